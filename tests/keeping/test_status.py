"""Status tells who trains what where, how far it is, and what needs a person; it writes nothing and shows no loss."""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from paribus.disk import sealed
from paribus.experiment import loading
from paribus.keeping import status as showing
from paribus.keeping.progress import begun, seconds_left
from paribus.keeping.status import status_of
from paribus.reading.study import read_study
from paribus.runs.failures import Failure, record_failure
from paribus.runs.folder import CellFolder
from paribus.runs.records import append_line

Cli = Callable[..., tuple[int, str, str]]
Hold = Callable[..., subprocess.Popen[str]]


def unfinish(cell: Path, steps: int = 10) -> Path:
    """The cell as it was after some of its 20 updates of 512 tokens, two tenths of a second each."""
    (cell / "DONE").unlink()
    (cell / "metrics.jsonl").unlink()
    for step in range(1, steps + 1):
        line = {"step": step, "tokens_seen": 512 * step, "loss_nats_per_token": 4.0, "wall_seconds": 0.2, "token": 1}
        append_line(cell / "metrics.jsonl", line)
    return cell


pytestmark = pytest.mark.usefixtures("cell")


@pytest.fixture
def cell(here: Path) -> Path:
    (path,) = (here / "runs" / "tiny" / "tiny" / "xsa").iterdir()
    return unfinish(path)


def elsewhere(cell: Path, *, age: float = 0.0) -> None:
    """Another machine holds the cell, or held it when it was last heard of."""
    owner = {"host": "node-7", "machine": "another", "pid": 77, "started": "1", "nonce": "0"}
    record = {"token": 5, "owner": owner, "taken": "2026-03-01T09:12:33.123+00:00", "lease_seconds": 60.0}
    (cell / ".claims" / "00000005.json").write_bytes(sealed(record))
    then = time.time() - age
    os.utime(cell / ".claims" / "00000005.json", (then, then))


def test_a_cell_that_is_trained_elsewhere_is_told_with_machine_time_speed_and_what_is_left(
    here: Path, cell: Path, cli: Cli
):
    elsewhere(cell, age=7)
    before = {path: path.stat().st_mtime_ns for path in here.rglob("*")}
    _, out, _ = cli("status", "study.toml")
    assert {path: path.stat().st_mtime_ns for path in here.rglob("*")} == before
    for words in ("tiny/xsa/0", "node-7, 77", "2026-03-01 09:12", "10 of 20", "2,560", "2 s"):
        assert words in out, out
    assert re.search(r" \d+ s ago ", out), "its heartbeat"
    assert "about 2 s of training left with 1 at work" in out
    assert "1 complete, 1 running" in out
    assert "4.0" not in out, "a loss would be a look"
    (work,) = json.loads(cli("status", "study.toml", "--json")[1])["begun"]
    claim = work.pop("claim")
    assert (claim["host"], claim["pid"], claim["token"], claim["state"]) == ("node-7", 77, 5, "held")
    assert (work["cell"], work["step"], work["steps"], work["running"]) == ("tiny/xsa/0", 10, 20, True)
    assert work["tokens_per_second"] == pytest.approx(2560)
    assert work["seconds_left"] == pytest.approx(2.0)


def test_a_machine_that_has_not_been_heard_of_is_told_to_be_silent(cell: Path, cli: Cli):
    elsewhere(cell, age=500)
    _, out, _ = cli("status", "study.toml")
    assert "8 min ago (silent)" in out


def test_a_dead_worker_of_this_machine_is_told_and_the_cell_is_free(cell: Path, cli: Cli, hold: Hold):
    process = hold(cell, "die")
    _, out, _ = cli("status", "study.toml")
    assert f"left  tiny/xsa/0 at update 10 of 20: process {process.pid} of" in out
    assert "nobody is at work; about 2 s of training left for one worker" in out
    assert "1 complete, 1 started" in out


def test_a_stopped_cell_is_resumable(cli: Cli):
    _, out, _ = cli("status", "study.toml")
    assert "stopped  tiny/xsa/0 at update 10 of 20: resumable" in out


def test_parked_diverged_and_damaged_cells_are_named_with_why(here: Path, cell: Path, cli: Cli):
    for token in (1, 2, 3):
        record_failure(cell, Failure.now(token, 0, "it does not fit\nframes"), 3)
    (other,) = (here / "runs" / "tiny" / "tiny" / "standard").iterdir()
    rows = next(other.glob("likelihood/*.parquet"))
    rows.write_bytes(rows.read_bytes()[:-1] + b"x")
    _, out, _ = cli("status", "study.toml")
    assert "parked  tiny/xsa/0: it does not fit (`paribus run --retry-parked` tries it again)" in out
    assert f"altered  tiny/standard/0: {rows.parent.name}/{rows.name} was changed" in out
    assert "stopped" not in out
    assert "training left" not in out, "neither will be trained"
    found = json.loads(cli("status", "study.toml", "--json")[1])
    assert found["begun"][0]["parked"] == "it does not fit"
    assert list(found["not_used"]) == ["tiny/standard/0"]
    (cell / "PARKED").unlink()
    CellFolder(cell).finish({"reason": "the loss became nan at step 7", "step": 7}, diverged=True)
    assert "diverged  tiny/xsa/0: the loss became nan at step 7" in cli("status", "study.toml")[1]


def test_time_left_counts_every_cell_at_its_arms_speed_or_its_scales(here: Path, cell: Path):
    (other,) = (here / "runs" / "tiny" / "tiny" / "standard").iterdir()
    spent = CellFolder(other).summary()["train_seconds"]
    study = read_study(loading.load(here / "study.toml"), here / "runs")
    works = begun(study.folder.path)
    assert seconds_left(study, works) == pytest.approx((10_000 - 5120) / 2560)
    (cell / "metrics.jsonl").unlink()
    works = begun(study.folder.path)
    assert seconds_left(study, works) == pytest.approx(10_000 * spent / (20 * 512)), "as long as the other arm took"
    (other / "DONE").unlink()
    (other / "metrics.jsonl").unlink()
    study = read_study(loading.load(here / "study.toml"), here / "runs")
    assert seconds_left(study, begun(study.folder.path)) is None, "nobody knows a speed"


def test_the_speed_is_of_the_latest_updates_and_of_the_newest_holder(cell: Path, here: Path):
    for step in range(8, 13):
        line = {"step": step, "tokens_seen": 512 * step, "loss_nats_per_token": 4.0, "wall_seconds": 0.1, "token": 2}
        append_line(cell / "metrics.jsonl", line)
    (work,) = begun(here / "runs" / "tiny")
    assert work.step == 12
    assert work.tokens_per_second == pytest.approx(12 * 512 / (7 * 0.2 + 5 * 0.1))
    with (cell / "metrics.jsonl").open("ab") as file:
        file.write(b'{"torn')
    assert begun(here / "runs" / "tiny")[0].step == 12


def test_only_the_end_of_a_long_file_is_read(here: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("paribus.keeping.progress.TAIL_BYTES", 400)
    (work,) = begun(here / "runs" / "tiny")
    assert (work.step, work.steps) == (10, 20)
    assert work.tokens_per_second == pytest.approx(2560)


def test_every_cell_has_a_line_on_request(here: Path, cli: Cli):
    plain, all_cells = cli("status", "study.toml")[1], cli("status", "study.toml", "--cells")[1]
    (path,) = (here / "runs" / "tiny" / "tiny" / "xsa").iterdir()
    assert path.name.partition("-")[2] in all_cells
    assert path.name.partition("-")[2] not in plain


def test_watching_looks_again_until_ctrl_c_and_has_no_json(cell: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch):
    code, out, err = cli("status", "study.toml", "--watch", "--json")
    assert (code, out) == (2, "")
    assert "--watch" in err
    looks = 0

    def sleep(seconds: float) -> None:
        nonlocal looks
        assert seconds == 3.0
        looks += 1
        if looks == 2:
            raise KeyboardInterrupt
        line = {"step": 11, "tokens_seen": 5632, "loss_nats_per_token": 4.0, "wall_seconds": 0.2, "token": 1}
        append_line(cell / "metrics.jsonl", line)

    monkeypatch.setattr(time, "sleep", sleep)
    code, out, _ = cli("status", "study.toml", "--watch", "--every", "3")
    assert code == 0
    assert out.index("at update 10 of 20") < out.index("at update 11 of 20")


def test_on_a_terminal_watching_draws_in_one_place(here: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupt)
    console = Console(force_terminal=True, width=120, record=True)
    study = read_study(loading.load(here / "study.toml"), here / "runs")
    showing.watch(lambda: status_of(study, "", ()), 2.0, console)
    assert "stopped  tiny/xsa/0 at update 10 of 20" in console.export_text()


@pytest.mark.parametrize("width", [60, 100, 160])
def test_nothing_is_cut_on_a_narrow_terminal(here: Path, cell: Path, width: int):
    elsewhere(cell)
    console = Console(width=width, record=True)
    study = read_study(loading.load(here / "study.toml"), here / "runs")
    showing.show(status_of(study, "", ()), console)
    text = console.export_text()
    assert "…" not in text
    for words in ("tiny/xsa/0", "node-7, 77", "10 of 20", "2,560"):
        assert words in text
