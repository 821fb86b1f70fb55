"""Attempts that failed are counted against the last checkpoint; too many of them park a cell until somebody says so."""

import json
from pathlib import Path

import pytest

from paribus.runs.claims import FOLDER
from paribus.runs.failures import FAILURES, PARKED, Failure, failures, is_parked, parked, record_failure, retry


def failed(folder: Path, token: int, step: int, reason: str = "it broke", attempts: int = 3) -> bool:
    return record_failure(folder, Failure.now(token, step, reason), attempts)


def test_a_cell_is_parked_when_it_fails_three_times_without_a_further_checkpoint(tmp_path: Path):
    assert [failed(tmp_path, token, 5, f"reason {token}") for token in (1, 2, 3)] == [False, False, True]
    found = parked(tmp_path)
    assert found is not None
    assert [(each.token, each.checkpoint_step, each.reason) for each in found] == [
        (1, 5, "reason 1"),
        (2, 5, "reason 2"),
        (3, 5, "reason 3"),
    ]
    assert all(each.host and each.time for each in found)


def test_a_cell_that_gets_on_between_its_failures_is_never_parked(tmp_path: Path):
    assert not any(failed(tmp_path, token, 5 * (token // 2)) for token in range(1, 20))
    assert not is_parked(tmp_path)
    assert parked(tmp_path) is None
    assert len(failures(tmp_path)) == 19


def test_an_attempt_is_counted_once_whoever_reports_it(tmp_path: Path):
    assert not any(failed(tmp_path, 1, 0) for _ in range(5))
    assert len(failures(tmp_path)) == 1


def test_a_worker_that_lost_the_cell_cannot_park_it(tmp_path: Path):
    def lost() -> None:
        raise RuntimeError("lost")

    with pytest.raises(RuntimeError, match="lost"):
        record_failure(tmp_path, Failure.now(1, 0, "it broke"), 1, lost)
    assert failures(tmp_path) == []
    assert not is_parked(tmp_path)


def test_a_damaged_record_costs_attempts_and_a_damaged_parking_stays_one(tmp_path: Path):
    failed(tmp_path, 1, 0)
    (tmp_path / FOLDER / FAILURES).write_text(
        (tmp_path / FOLDER / FAILURES).read_text(encoding="utf-8").replace("broke", "brake"), encoding="utf-8"
    )
    assert failures(tmp_path) == []
    failed(tmp_path, 2, 0, attempts=1)
    (tmp_path / PARKED).write_text(json.dumps({"reasons": "gone"}), encoding="utf-8")
    assert is_parked(tmp_path)
    assert parked(tmp_path) == []


def test_retrying_forgets_the_failures_of_parked_cells_alone(tmp_path: Path):
    cell, other = tmp_path / "tiny" / "standard" / "0-abc", tmp_path / "tiny" / "standard" / "1-abc"
    for token in (1, 2, 3):
        failed(cell, token, 0)
    failed(other, 1, 0)
    assert retry(tmp_path) == [cell]
    assert not is_parked(cell)
    assert failures(cell) == []
    assert len(failures(other)) == 1
    assert retry(tmp_path) == []
    assert not failed(cell, 4, 0), "counted from the beginning"
