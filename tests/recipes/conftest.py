"""A file as short as a preset allows, and what it is loaded as."""

from collections.abc import Callable
from pathlib import Path

import pytest

from paribus.experiment import loading
from paribus.experiment.spec import Experiment

SHORT = """\
question = "Does it hold?"
[base]
preset = "nanochat-2026-04"
corpus = { name = "local-docs" }
[scales.one.derive]
depth = 12
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
count = 3
"""
Load = Callable[..., Experiment]


@pytest.fixture
def short() -> str:
    return SHORT


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """The short file with pairs of (old, new) text replaced."""

    def from_changes(*changes: tuple[str, str], text: str = SHORT) -> Experiment:
        for old, new in changes:
            assert old in text
            text = text.replace(old, new, 1)
        file = tmp_path / "study.toml"
        file.write_text(text, encoding="utf-8")
        return loading.load(file)

    return from_changes
