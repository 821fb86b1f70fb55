"""The experiment file: a strict TOML schema that reads like a methods section. Torch-free.

Unknown keys, wrong types, NaN and infinity are refused. Coercions from what TOML can write: arrays to tuples, strings
to paths. Mechanism tables are checked here for their shape only and by `paribus.mechanisms` for their contents.

A file may hold several scales. `paribus.experiment.loading` restricts it to one, which then is an experiment of its
own: what the scale declares under `base`, `seeds` and `execution` is laid over the tables of these names, and its
`margins` over those of the contrasts.
"""

import hashlib
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from paribus.experiment.arm import (
    REPLACED_WHOLE,
    SEAM_FIELDS,
    Base,
    Corpus,
    Evaluation,
    MechanismTable,
    ModelFields,
    Tokenizer,
    named_in_mechanisms,
)
from paribus.experiment.control import SCHEDULE_ARM, with_longer_decay
from paribus.experiment.design import Contrast, Margins, Scale
from paribus.experiment.downstream import Downstream
from paribus.experiment.metrics import MetricName, unit_of
from paribus.experiment.seeds import (
    Calibration,
    DerivedArm,
    Execution,
    Extension,
    Noise,
    Robustness,
    Seeds,
    Tuning,
)
from paribus.experiment.table import Effect, Name, Positive, Table
from paribus.experiment.variants import (
    BUDGET,
    PROOF,
    RATE,
    REPEAT,
    STUDY,
    TWIN,
    Key,
    Variant,
    budget_variant,
    rate_variant,
    variant_budget,
    variant_rate,
)
from paribus.model.config import CONFIGS, ModelConfig

__all__ = [  # the schema has one door, whatever file a table stands in
    "AT",
    "BUDGET",
    "CALIBRATION",
    "PROOF",
    "RATE",
    "REPEAT",
    "REPLACED_WHOLE",
    "SEAM_FIELDS",
    "STUDY",
    "TUNING",
    "TWIN",
    "Base",
    "Calibration",
    "Contrast",
    "Corpus",
    "DerivedArm",
    "Downstream",
    "Effect",
    "Evaluation",
    "Execution",
    "Experiment",
    "Extension",
    "Key",
    "Margins",
    "MechanismTable",
    "MetricName",
    "ModelFields",
    "Name",
    "Noise",
    "Positive",
    "Robustness",
    "Scale",
    "Seeds",
    "StudyName",
    "Table",
    "Tokenizer",
    "Tuning",
    "Variant",
    "barely_scored",
    "budget_variant",
    "declared",
    "merged",
    "named_in_mechanisms",
    "rate_variant",
    "rule_digest",
    "unit_of",
    "variant_budget",
    "variant_rate",
]

AT = "@"
"""between a study's name and the scale that its file is restricted to; no name in a file can contain it"""
TUNING = "+tuning"
"""behind a study's name: the study that tunes it, with random streams and a run folder of its own"""
CALIBRATION = "+calibration"
"""behind a study's name: the study that calibrates its task, likewise with streams and a run folder of its own"""
_PLAIN_NAME = "[A-Za-z0-9][A-Za-z0-9_.-]*"
StudyName = Annotated[
    str,
    Field(pattern=rf"^{_PLAIN_NAME}({AT}{_PLAIN_NAME})?(\{TUNING}|\{CALIBRATION})?$", max_length=130),
]
BESIDE_THE_RULE = {"assumed_sd", "published"}
"""fields of a contrast that plan or illustrate, and decide nothing"""
BESIDE_THE_FULL_RUN = {
    *("budgets_tokens", "budget_cells", "seeds", "noise", "margins", "calibration"),
    *("derive", "twin_of"),
}
"""fields of a scale that say which further cells there are, what their verdict goes by, and where its other fields come
from: no arm's full run changes with them"""


class Experiment(Table):
    """One study."""

    study: StudyName
    """name of the run folder, and part of every random stream; the file's name where it is not given, and "@" with
    the scale's name behind it where the file holds several scales and is restricted to one"""
    question: Annotated[str, Field(min_length=1)]
    """what the study wants to know, in one sentence"""
    base: Base
    """what all arms share"""
    scales: Annotated[dict[Name, Scale], Field(min_length=1)]
    """sizes with their budgets, by name"""
    arms: Annotated[dict[Name, dict[str, Any]], Field(min_length=1)]
    """differences from the base, by name; an empty table is the base itself"""
    contrasts: dict[Name, Contrast]
    """comparisons with their rule, by name; exactly one is primary"""
    seeds: Seeds
    """how many pairs"""
    noise: Noise = Noise()
    """the same arm against itself"""
    robustness: Robustness = Robustness()
    """the same arms at other learning rates, the baseline with another schedule, arms at other values of a field"""
    tuning: Tuning | None = None
    """fields that are searched first, arm by arm"""
    downstream: Downstream | None = None
    """evaluation sets that trained cells are asked"""
    calibration: Calibration | None = None
    """how hard the baseline alone found the task; `paribus calibrate` prints it, and no cell depends on it"""
    execution: Execution = Execution()
    """how cells run on this machine"""

    @model_validator(mode="after")
    def _tasks_of_text_are_asked_of_text(self) -> Self:
        if self.downstream is not None and self.base.corpus.task is not None:
            raise ValueError("downstream asks questions in words, and base.corpus is a synthetic task; leave it out")
        return self

    def arm(self, name: str) -> Base:
        """The base with the arm's differences."""
        found = Base.model_validate(merged(self.base.model_dump(exclude_unset=True), self.arms[name]))
        # Lengthened here, where the scale's own schedule is laid over the file's.
        longer = name == SCHEDULE_ARM and name in self.robustness.derived
        return with_longer_decay(found) if longer else found

    def model_config_of(self, arm: Base, scale: str) -> ModelConfig:
        size = self.scales[scale]
        return CONFIGS[arm.model.backbone](
            **arm.model.model_dump(),
            layers=size.layers,
            width=size.width,
            mlp_width=size.mlp_width,
            vocabulary_size=arm.vocabulary_size,
            context_length=arm.context_length,
        )

    @property
    def option(self) -> str:
        """What a command needs beside the file to mean this experiment: "" or "--scale NAME"."""
        return f"--scale {next(iter(self.scales))}" if AT in self.study else ""

    def contrast_scale(self, contrast: Contrast) -> str:
        return contrast.scale if contrast.scale is not None else next(iter(self.scales))

    def cell_keys(self) -> list[Key]:
        """Every cell, seed by seed, so that pairs complete early; A/A and smaller budgets follow the cell they belong
        to, and cells at further seeds and of derived arms come last."""
        found: list[Key] = []
        aside = self.compared_with_itself
        for position, seed in enumerate(self.seeds.numbers):
            for scale, size in self.scales.items():
                for arm in (name for name in self.arms if name not in self.robustness.derived):
                    here = (scale, arm) == aside
                    copies = [REPEAT] * (here and position < self.noise.repeats)
                    copies += [TWIN] * (here and position < self.noise.twins)
                    copies += [PROOF] * (position < self.noise.proof_seeds)
                    beside = [budget_variant(budget) for budget in size.budgets_tokens]
                    if position < self.robustness.seeds:
                        beside += map(rate_variant, self.robustness.rate_factors)
                    found += [(scale, arm, seed, variant) for variant in (STUDY, *copies, *beside)]
        if aside is not None:
            found += [(*aside, seed, STUDY) for seed in self.other_seeds]
        beside = {arm: self.beside(arm) for arm in self.robustness.derived}
        for seed in self.seeds.numbers[: self.robustness.seeds]:
            for arm, place in beside.items():
                if place is not None:
                    found.append((self.contrast_scale(self.contrasts[place[0]]), arm, seed, STUDY))
        return found

    def beside(self, derived: str) -> tuple[str, str] | None:
        """(contrast, arm): what an arm of `robustness.derived` is shown beside and compared with.

        The primary where it has the arm that this one is derived from, else the first contrast that has; compared with
        that arm's baseline, and a changed baseline with the baseline itself. None where no contrast has the arm, and
        where the value of the field is the arm's own at this scale: that is the arm itself.
        """
        of = self.robustness.derived[derived].of
        if self.arm(derived) == self.arm(of):
            return None
        ordered = sorted(self.contrasts.items(), key=lambda entry: (not entry[1].primary, len(entry[1].arms)))
        for name, contrast in ordered:
            for pair in zip(contrast.arms[::2], contrast.arms[1::2], strict=True):
                if of in pair:
                    return name, pair[1]
        return None

    @property
    def compared_with_itself(self) -> tuple[str, str] | None:
        """(scale, arm) of A/A: the primary's baseline; None where there is no primary."""
        primary = next((contrast for contrast in self.contrasts.values() if contrast.primary), None)
        return None if primary is None else (self.contrast_scale(primary), primary.baseline)

    @property
    def other_seeds(self) -> tuple[int, ...]:
        """Seeds behind the planned ones, for unpaired noise."""
        behind = self.seeds.first + self.seeds.count
        return tuple(range(behind, behind + self.noise.other_seeds))

    @property
    def primary(self) -> str:
        return next(name for name, contrast in self.contrasts.items() if contrast.primary)


def merged(base: dict[str, Any], difference: dict[str, Any]) -> dict[str, Any]:
    """`base` with `difference` laid over it. A mechanism or corpus is replaced whole; other tables merge by key."""
    result = dict(base)
    for key, value in difference.items():
        below = result.get(key)
        if isinstance(value, dict) and isinstance(below, dict) and key not in REPLACED_WHOLE:
            result[key] = merged(below, value)
        else:
            result[key] = value
    return result


def barely_scored(base: Base, difference: dict[str, Any], *splits: str) -> dict[str, Any]:
    """An arm's `difference` with as little held out in these splits, and as little probed, as a cell must: for a study
    that decides nothing by them. `base` is the arm as the file declares it."""
    probed = min(base.evaluation.probe_tokens, base.context_length)
    least = {f"{split}_tokens": 1 for split in splits}
    return merged(difference, {"evaluation": {**least, "probe_tokens": probed}})


def rule_digest(experiment: Experiment) -> str:
    """Identity of what decides a verdict: contrasts, planned seeds, looks. Changing it is recorded and shown.

    What was declared beforehand is no change: raising `count` behind a declared first stage leaves the digest alone.
    """
    contrasts = {
        name: contrast.model_dump_json(
            exclude=BESIDE_THE_RULE
            | (set() if len(contrast.arms) > 2 else {"minus_treatment", "minus_baseline"})
            | (set() if contrast.expected is not None else {"expected"})
        )
        for name, contrast in sorted(experiment.contrasts.items())
    }
    seeds = experiment.seeds
    text = f"{contrasts} {seeds.count if seeds.extension is None else seeds.extension.model_dump()} {seeds.first}"
    if seeds.looks:
        text += f" {seeds.looks}"
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def declared(experiment: Experiment, scale: str, arm: str) -> str:
    """What the file says about an arm's full run at a scale, as one text: a changed file is noticed without resolving.

    How many cells the arm has, and with which other budgets, is no part of it: those are cells of their own.
    """
    execution = experiment.execution.model_dump(include={"mode", "device", "threads", "micro_batch_rows"})
    size = experiment.scales[scale].model_dump_json(exclude=BESIDE_THE_FULL_RUN)
    return f"{experiment.arm(arm).model_dump_json()} {size} {execution}"
