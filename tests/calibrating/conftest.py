"""A task so small that its baseline learns it within a second: two symbols are counted up to three."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paribus.draining import train_missing
from paribus.experiment.spec import Experiment
from paribus.study import open_study


@pytest.fixture(scope="session")
def text(study_text: Callable[..., str]) -> str:
    return study_text(
        base={
            "context_length": "16",
            "corpus": '{ task = "tally", symbols = 2, classes = 3 }',
            "optimiser": "{ matrix_learning_rate = 0.02 }",
        },
        scale={"budget_tokens": "40_000"},
        contrast={"metric": '"train.area"'},
        more='[execution]\ndevice = "cpu"\nworkers = 1\ncheckpoint_steps = 10\n',
    )


@pytest.fixture
def file(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """small.toml in the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(text, encoding="utf-8")
    return Path("small.toml")


@pytest.fixture(scope="session")
def workers() -> Callable[..., Callable[..., bool]]:
    """`run_workers` without processes, to which the experiment travels as to them; after `updates` Ctrl-C stops it."""

    def stopping_after(updates: int | None = None) -> Callable[..., bool]:
        def run(count: int, experiment: Experiment, folder: Path, runs: Path, on_event: Callable[..., None]) -> bool:
            assert count > 0
            arrived = Experiment.model_validate_json(experiment.model_dump_json(exclude_unset=True))
            done = 0

            def listen(event: dict[str, Any]) -> None:
                nonlocal done
                done += event["kind"] == "step"
                on_event(event)

            train_missing(open_study(arrived, folder, runs), listen, lambda: updates is not None and done >= updates)
            return updates is None

        return run

    return stopping_after
