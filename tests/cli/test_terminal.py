"""What is printed while a study trains and nobody watches a terminal."""

import io
from typing import Any

import pytest
from rich.console import Console

from paribus import terminal
from paribus.terminal import live_study


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that the terminal believes in."""
    now = [100.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    return now


def event(kind: str, step: int = 0) -> dict[str, Any]:
    told = {"scale": "tiny", "arm": "plain", "seed": 0, "variant": "", "kind": kind, "step": step, "steps": 10}
    return told | {"tokens_seen": 8 * step, "wall_seconds": 1.0, "loss_nats_per_token": 2.0, "seconds": 3.0}


def test_the_time_left_is_estimated_once_from_the_first_updates_and_without_the_start(clock: list[float]) -> None:
    out = io.StringIO()
    with live_study(Console(file=out, width=200), 6, 60) as on_event:
        on_event(event("started"))
        clock[0] += 90.0  # a worker starts
        for step in range(1, 10):
            on_event(event("step", step))
            clock[0] += 2.0
    assert out.getvalue() == "about 1.9 min left if every update takes as long as the first ones\n"  # 56 * 2 s


def test_a_stopped_cell_promises_no_time(clock: list[float]) -> None:
    out = io.StringIO()
    with live_study(Console(file=out, width=200), 2, 20) as on_event:
        on_event(event("started"))
        clock[0] += 36.0
        on_event(event("stopped", 4))
        on_event(event("started"))
        on_event(event("finished", 10))
    stopped, finished = out.getvalue().splitlines()
    assert stopped == "  0 of 2  tiny/plain/0 stopped at step 4, resumable  (0.6 min so far)"
    assert finished == "  1 of 2  tiny/plain/0 trained in 3 s  (0.6 min so far, about 0.6 min left)"
