"""An experiment whose workers fail at once."""

from pathlib import Path

import pytest

from paribus.experiment import loading, spec

TEXT = """\
question = "Does it start?"
[base]
context_length = 8
batch_tokens = 16
corpus = { path = "nowhere" }
[scales.tiny]
layers = 1
width = 32
mlp_width = 8
budget_tokens = 16
[arms.standard]
[arms.xsa]
output_map = { name = "xsa" }
[contrasts.xsa]
primary = true
treatment = "xsa"
baseline = "standard"
smallest_effect = 0.01
design_effect = 0.03
[seeds]
count = 1
"""


@pytest.fixture
def experiment_without_corpus(tmp_path: Path) -> spec.Experiment:
    (tmp_path / "study.toml").write_text(TEXT, encoding="utf-8")
    return loading.load(tmp_path / "study.toml")
