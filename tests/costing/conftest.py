"""A small experiment to be timed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from paribus.costing import parts
from paribus.experiment import loading
from paribus.experiment.spec import Experiment

EXPERIMENT = """
study = "tiny"
question = "What does it cost?"
[base]
context_length = 32
batch_tokens = 256
tokenizer = { vocabulary_size = 300 }
model = { head_width = 16 }
[scales.small]
layers = 2
width = 32
mlp_width = 48
budget_tokens = 10_000
[arms.plain]
[arms.trick]
output_map = { name = "xsa" }
[contrasts.main]
treatment = "trick"
baseline = "plain"
primary = true
smallest_effect = 0.01
design_effect = 0.03
[seeds]
count = 3
[execution]
threads = 1
cost_rounds = 2
"""


@pytest.fixture(autouse=True)
def _few_watched_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "UPDATES", 3)


@pytest.fixture(scope="session")
def experiment_text() -> str:
    return EXPERIMENT


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Experiment]:
    """The experiment, with texts of the file replaced."""

    def loaded(*changes: tuple[str, str]) -> Experiment:
        text = EXPERIMENT
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "study.toml").write_text(text, encoding="utf-8")
        return loading.load(tmp_path / "study.toml")

    return loaded
