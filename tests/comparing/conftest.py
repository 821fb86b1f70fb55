"""Run folders as `paribus report` leaves them: a report by the real writer, a plan with the real text of an arm."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from paribus.experiment import loading, spec
from paribus.report.content import CellRow, PairRow, ReportContent
from paribus.report.page import to_json
from paribus.runs.study_folder import StudyFolder
from paribus.stats.paired import paired_differences
from paribus.stats.verdict import Comparison, Rule, decide

EXPERIMENT = """
question = "Does it help?"
[base]
context_length = 16
batch_tokens = 64
[scales.tiny]
layers = 2
width = 32
mlp_width = 64
budget_tokens = 6400
[arms.plain]
[arms.trick]
output_map = { name = "exclusive" }
[contrasts.main]
treatment = "trick"
baseline = "plain"
primary = true
smallest_effect = 0.003
design_effect = 0.01
[seeds]
count = 3
"""
GAINS = (-0.0121, -0.0118, -0.0125)


@dataclass(frozen=True)
class Made:
    """What a made-up study reports."""

    name: str
    gains: Sequence[float] = GAINS
    planned: int = 3
    arms: tuple[str, str] = ("trick", "plain")
    contrast: str = "main"
    unit: str = "nats per token"
    metric: str = "test.nll"
    corpus: Mapping[str, Any] = field(default_factory=lambda: corpus("one"))
    replaced: tuple[str, str] = ("", "")
    """a text in the experiment file, and what stands in its place"""
    code: str = "4f1c09ab77"


def corpus(digest: str, vocabulary: int = 2048, test_bytes: int = 5000) -> dict[str, Any]:
    counts = {"documents": 7, "tokens": vocabulary, "bytes": test_bytes}
    return {
        "digest": digest,
        "vocabulary_size": vocabulary,
        "declared": {"kind": "local-docs"},
        "counts": {"test": counts, "train": counts},
    }


def content_of(made: Made) -> ReportContent:
    treatment, baseline = made.arms
    values = {treatment: {}, baseline: {}}
    for seed, gain in enumerate(made.gains):
        values[baseline][seed] = 3.4 + 0.01 * seed
        values[treatment][seed] = 3.4 + 0.01 * seed + gain
    pairs = paired_differences(values[treatment], values[baseline])
    comparison = Comparison(
        name=made.contrast,
        treatment=treatment,
        baseline=baseline,
        scale="tiny",
        metric=made.metric,
        unit=made.unit,
        primary=True,
        rule=Rule(0.003, 0.01, made.planned),
        differences=pairs,
        treatment_values=tuple(values[treatment].values()),
        baseline_values=tuple(values[baseline].values()),
    )
    cells = [
        CellRow("tiny", arm, seed, "complete", "d", value, None, None, None, None, None, made.code)
        for arm in made.arms
        for seed, value in values[arm].items()
    ]
    rows = zip(pairs.seeds, pairs.differences, strict=True)
    return ReportContent(
        study=made.name,
        question=f"What of {made.name}?",
        verdicts=decide([comparison]),
        curves=(),
        measurements=(),
        diagnostics=(),
        diagnostic_texts=(),
        held_equal=(),
        parameters=(),
        cells=tuple(cells),
        looks=(),
        environment={},
        corpus={},
        caveats=(),
        repeat_command="",
        pairs=tuple(PairRow(made.contrast, "tiny", seed, difference) for seed, difference in rows),
    )


@dataclass(frozen=True)
class Runs:
    """A folder of run folders."""

    folder: Path

    def corpus(self, digest: str, vocabulary: int, test_bytes: int) -> dict[str, Any]:
        return corpus(digest, vocabulary, test_bytes)

    def make(self, **about: Any) -> Path:
        """One run folder with its report, its plan and a look."""
        made = Made(**about)
        place = self.folder / made.name
        place.mkdir(parents=True)
        (place / "report.json").write_text(to_json(content_of(made)), encoding="utf-8")
        file = self.folder / f"{made.name}.toml"
        file.write_text(EXPERIMENT.replace(*made.replaced) if made.replaced[0] else EXPERIMENT, encoding="utf-8")
        experiment = loading.load(file)
        arms = [
            {
                "scale": "tiny",
                "arm": said,
                "declared": spec.declared(experiment, "tiny", arm),
                "parameters_by_role": {"matrix": 100},
                "code_digest": made.code,
            }
            for said, arm in zip(made.arms, ("trick", "plain"), strict=True)
        ]
        plan = {"arms": arms, "corpus": made.corpus, "environment": {"torch": "2.13.0"}}
        (place / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
        StudyFolder(place).append_look("report", {made.contrast: len(made.gains)}, {}, "4f1c09ab77cd21e0")
        return place


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)
