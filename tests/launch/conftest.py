"""An experiment whose workers fail at once."""

from collections.abc import Callable
from pathlib import Path

import pytest

from paribus.experiment import loading, spec


@pytest.fixture
def experiment_without_corpus(study_text: Callable[..., str], tmp_path: Path) -> spec.Experiment:
    text = study_text(base={"corpus": '{ path = "nowhere" }'})
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")
    return loading.load(tmp_path / "study.toml")
