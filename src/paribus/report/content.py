"""What a report is made of: plain frozen records, assembled by `paribus.reporting` from the run folder's rows.

Nothing here is computed by the page: a figure or a table only shows these records. This module is their door: the
records live by idea in `of_cells`, `of_contrasts` and `of_conduct`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from paribus.report.of_answers import (
    CoreDifferenceRow,
    CoreRow,
    CoreShareRow,
    CounterfactualRow,
    LettersRow,
    TaskPairRow,
    TaskRow,
)
from paribus.report.of_cells import (
    EVERY_POSITION,
    CellRow,
    Curve,
    DiagnosticText,
    DiagnosticValue,
    InterventionText,
    InterventionValue,
    Measurement,
    RouteChange,
)
from paribus.report.of_conduct import ArmParameters, HeldEqual, Look, NoiseRow, TrialRow, TuningSummary
from paribus.report.of_contrasts import (
    BudgetGap,
    BudgetSummary,
    CostRow,
    EstimateRow,
    GapForm,
    PairRow,
    PublishedRow,
    UpdateRow,
)
from paribus.report.of_overlap import OverlapRow
from paribus.report.of_retrieval import RetrievalRow
from paribus.report.of_robustness import RateRow
from paribus.report.of_sensitivity import SensitivityRow
from paribus.report.of_tasks import TaskContent
from paribus.report.of_training import DivergedRow, SpikeRow
from paribus.stats.verdict import Verdict

__all__ = [
    "EVERY_POSITION",
    "ArmParameters",
    "BudgetGap",
    "BudgetSummary",
    "CellRow",
    "CoreDifferenceRow",
    "CoreRow",
    "CoreShareRow",
    "CostRow",
    "CounterfactualRow",
    "Curve",
    "DiagnosticText",
    "DiagnosticValue",
    "DivergedRow",
    "EstimateRow",
    "GapForm",
    "HeldEqual",
    "InterventionText",
    "InterventionValue",
    "LettersRow",
    "Look",
    "Measurement",
    "NoiseRow",
    "OverlapRow",
    "PairRow",
    "PublishedRow",
    "RateRow",
    "ReportContent",
    "RetrievalRow",
    "RouteChange",
    "SensitivityRow",
    "SpikeRow",
    "TaskContent",
    "TaskPairRow",
    "TaskRow",
    "TrialRow",
    "TuningSummary",
    "UpdateRow",
]


@dataclass(frozen=True)
class ReportContent:
    """Everything `paribus.report.page.render` needs for one study."""

    study: str
    question: str
    verdicts: tuple[Verdict, ...]
    curves: tuple[Curve, ...]
    measurements: tuple[Measurement, ...]
    diagnostics: tuple[DiagnosticValue, ...]
    diagnostic_texts: tuple[DiagnosticText, ...]
    held_equal: tuple[HeldEqual, ...]
    parameters: tuple[ArmParameters, ...]
    cells: tuple[CellRow, ...]
    looks: tuple[Look, ...]
    environment: Mapping[str, str]
    corpus: Mapping[str, str]
    caveats: tuple[str, ...]
    """what could still be wrong: stale code, mixed versions, untuned rates, failed cells, changed rule"""
    repeat_command: str
    pairs: tuple[PairRow, ...] = ()
    """per-seed differences of the contrasts; those of a waiting contrast are never shown"""
    interventions: tuple[InterventionValue, ...] = ()
    intervention_texts: tuple[InterventionText, ...] = ()
    route_changes: tuple[RouteChange, ...] = ()
    estimates: tuple[EstimateRow, ...] = ()
    overlap: tuple[OverlapRow, ...] = ()
    """of a text whose test documents are marked: the contrasts on those without overlap with training text"""
    noise: tuple[NoiseRow, ...] = ()
    budget_gaps: tuple[BudgetGap, ...] = ()
    gap_forms: tuple[GapForm, ...] = ()
    budget_summaries: tuple[BudgetSummary, ...] = ()
    costs: tuple[CostRow, ...] = ()
    updates: tuple[UpdateRow, ...] = ()
    trials: tuple[TrialRow, ...] = ()
    tuning: tuple[TuningSummary, ...] = ()
    published: tuple[PublishedRow, ...] = ()
    tasks: tuple[TaskRow, ...] = ()
    """downstream tasks of a text, each contrast over seeds"""
    task_pairs: tuple[TaskPairRow, ...] = ()
    """the same, each pair of checkpoints"""
    core: tuple[CoreRow, ...] = ()
    """CORE and ChatCORE of single models, or why there is none"""
    core_differences: tuple[CoreDifferenceRow, ...] = ()
    core_shares: tuple[CoreShareRow, ...] = ()
    letters: tuple[LettersRow, ...] = ()
    """which choices single models name"""
    counterfactuals: tuple[CounterfactualRow, ...] = ()
    """what arms score with each question swapped for another item's"""
    robustness: tuple[RateRow, ...] = ()
    """of a text: the contrasts at other learning rates, where the file declares them; those of a task are in `task`"""
    sensitivity: tuple[SensitivityRow, ...] = ()
    """the primary beside its baseline with a longer decay, and arms at other values of a field, where the file asks"""
    task: TaskContent | None = None
    """the synthetic task that the study reads; None for text"""
    retrieval: tuple[RetrievalRow, ...] = ()
    """of a task: the layer that fetches the answer, and what is read there"""
    spikes: tuple[SpikeRow, ...] = ()
    """of every run that ended, whichever arm and kind of cell; none is left out"""
    diverged: tuple[DivergedRow, ...] = ()
    """every run that ended in NaN or infinity"""
    pairing_proven: bool = True
    """whether the two arms of a pair are known to have shared initial weights and batches; not so of adopted results"""

    @property
    def loss_unit(self) -> str:
        """Of every loss that is a mean of -ln p: per token of a text, per target of a task."""
        return "nats per token" if self.task is None else "nats per target"
