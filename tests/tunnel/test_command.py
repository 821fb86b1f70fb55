"""`paribus tunnel` from end to end, on two tasks that take seconds."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paribus.errors import ParibusError
from paribus.report.of_tasks import CAUTION
from paribus.runs.folder import CellFolder
from paribus.runs.study_folder import StudyFolder
from paribus.stats.rounding import MINUS
from paribus.stats.words import Word
from paribus.tunnel import running, suites
from paribus.tunnel.session import FILE, seconds, timed

Cli = Callable[..., tuple[int, str, str]]
FOLDER = Path("runs/tunnel-smoke")
GEOMETRY = """
from torch import nn

from paribus.mechanisms.contract import MechanismConfig, Seam


class Same(nn.Module):
    def forward(self, y, values, document):
        return y


class SameConfig(MechanismConfig):
    name = "same"
    seam = Seam.OUTPUT_MAP

    def validate_for(self, geometry):
        return "a vocabulary of four is too small" if geometry.vocabulary_size == 4 else None

    def build(self, geometry, layer):
        return Same()
"""


def cells(folder: Path) -> dict[str, str]:
    """State by study, arm and seed."""
    found = sorted(folder.glob("*/*/*/*-*"))
    return {f"{p.parts[-4]}/{p.parts[-2]}/{p.name.split('-')[0]}": CellFolder(p).state for p in found}


def expected_cells(*arms: str) -> dict[str, str]:
    return {f"micro-{t}/{a}/{s}": "complete" for t in ("tally", "twin") for a in arms for s in range(3)}


def test_one_command_trains_every_cell_of_every_task_and_leaves_one_page(flown: Path):
    printed = (flown / "printed.txt").read_text(encoding="utf-8")
    assert cells(FOLDER) == expected_cells("standard", "xsa")
    assert "training 12 cells of 2 tasks" in printed
    assert printed.count(" trained in ") == 12
    for place, task in ((1, "tally"), (2, "twin")):
        head = f"{task}, task {place} of 2: 6 cells; below, the time left is that of this task\n"
        assert printed.count(head) == 1
        assert printed.index(head) < printed.index(f"{task}/standard/0 trained in ")
    assert re.search(
        r"^tally, task 1 of 2, took [\d.]+ min; 1 task to go, about [\d.]+ min by their floating-point operations$",
        printed,
        re.MULTILINE,
    )
    assert CAUTION in printed
    assert re.search(r"^page: .*/tunnel-smoke/tunnel.html$", printed, re.MULTILINE)
    assert {path.name for path in FOLDER.iterdir() if path.is_file()} >= {"tunnel.html", "tunnel.md", "tunnel.json"}
    data = json.loads((FOLDER / "tunnel.json").read_text(encoding="utf-8"))
    assert [row["task"] for row in data["rows"]] == ["tally", "twin"]
    assert all(row["difference"]["area_difference"] is not None for row in data["rows"])


def test_a_smoke_set_says_no_verdict_word_anywhere(flown: Path):
    said = {word.value for word in Word} - {Word.NOT_INFORMATIVE.value}  # that one is a mark as well
    names = "|".join(sorted(map(re.escape, said), key=len, reverse=True))
    words = re.compile(rf"\b({names}|wins?|significan\w*)\b", re.IGNORECASE)
    for text in (flown / "printed.txt", FOLDER / "tunnel.md", FOLDER / "tunnel.json"):
        assert not words.findall(text.read_text(encoding="utf-8")), text


@pytest.mark.usefixtures("flown")
def test_a_second_run_trains_nothing_and_writes_the_page_again(cli: Cli, here: Any):
    (FOLDER / "tunnel.html").unlink()
    before = seconds(FOLDER)
    code, out, err = cli("tunnel", "--smoke")
    assert (code, err, here.updates) == (0, "", [])
    assert "nothing to train: all 12 cells are finished\n" in out
    assert (FOLDER / "tunnel.html").exists()
    assert seconds(FOLDER) == before, "looking again takes no training time"


def test_an_interrupted_set_is_continued_where_it_stopped_and_comes_out_the_same(
    flown: Path, micro: Path, cli: Cli, here: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(micro)
    here.updates_left = 41  # in the fourth cell of the first task
    code, out, _ = cli("tunnel")
    assert code == 75
    assert out.endswith("stopped; the same command continues from the last checkpoints\n")
    assert not (FOLDER / "tunnel.html").exists()
    assert list(cells(FOLDER).values()).count("complete") == 3
    here.updates_left = None
    code, _, err = cli("tunnel")
    assert (code, err) == (0, "")
    assert cells(FOLDER) == expected_cells("standard", "xsa")
    assert len(here.updates) == 12 * 12, "no update was made twice: the stop wrote a checkpoint"
    ours, whole = (
        json.loads((folder / FOLDER / "tunnel.json").read_text(encoding="utf-8")) for folder in (micro, flown / "work")
    )
    assert ours["rows"] == whole["rows"]


def test_a_task_whose_gates_fail_is_named_and_the_others_keep_their_results(micro: Path, cli: Cli, here: Any):
    del micro
    here.failing = ("micro-tally",)
    code, out, err = cli("tunnel")
    assert code == 1
    assert err.startswith("error: no result for 1 of 2 tasks (tally)\n")
    assert "tally: 1 of 1 gates failed" in err
    assert "tally: 1 of 1 gates failed" in out
    assert "finished tasks are kept: runs/tunnel-smoke/tunnel.html" in err
    assert set(cells(FOLDER)) == {name for name in expected_cells("standard", "xsa") if "twin" in name}
    data = json.loads((FOLDER / "tunnel.json").read_text(encoding="utf-8"))
    assert [row["task"] for row in data["rows"]] == ["twin"]
    assert data["caveats"][0].startswith("tally has no result: ")


def test_where_every_task_fails_there_is_one_error_and_no_page(micro: Path, cli: Cli, here: Any):
    del micro
    here.failing = ("micro-tally", "micro-twin")
    code, _, err = cli("tunnel")
    assert (code, here.updates) == (1, [])
    assert err.startswith("error: no result for 2 of 2 tasks (tally, twin)\n")
    assert not (FOLDER / "tunnel.html").exists()


def test_workers_that_die_cost_their_task_alone(micro: Path, cli: Cli, here: Any, monkeypatch: pytest.MonkeyPatch):
    del micro

    def dies(count: int, experiment: Any, *others: Any) -> bool:
        if "tally" in experiment.study:
            raise ParibusError("1 of 1 workers ended unexpectedly", remedy="run the same command again")
        return here.run_workers(count, experiment, *others)

    monkeypatch.setattr(running, "run_workers", dies)
    code, _, err = cli("tunnel")
    assert code == 1
    assert "error: no result for 1 of 2 tasks (tally)" in err
    assert sum(state == "complete" for state in cells(FOLDER).values()) == 6


def test_a_mechanism_that_does_not_fit_one_task_is_tried_on_the_others(micro: Path, cli: Cli, here: Any):
    (micro / "mypackage").mkdir()
    (micro / "mypackage" / "__init__.py").touch()
    (micro / "mypackage" / "idea.py").write_text(GEOMETRY, encoding="utf-8")
    file = suites.SUITES / "smoke" / "tally.toml"
    text = file.read_text(encoding="utf-8").replace("symbols = 4", "symbols = 4, classes = 4")
    file.write_text(text, encoding="utf-8")
    code, _, err = cli("tunnel", "--mechanism", "mypackage.idea")
    assert code == 2
    assert "a vocabulary of four is too small" in err
    (folder,) = Path("runs").iterdir()
    assert re.fullmatch(r"tunnel-smoke-same-[0-9a-f]{6}", folder.name)
    data = json.loads((folder / "tunnel.json").read_text(encoding="utf-8"))
    (row,) = data["rows"]
    assert row["difference"]["compared"] == f"same {MINUS} standard"
    assert row["difference"]["area_difference"] == 0.0, "an identity changes nothing, bit for bit"
    assert (row["difference"]["expected"], row["difference"]["agreement"]) == ("", "")
    assert here.updates


def test_the_terminal_says_of_every_task_once_whether_its_difficulty_was_calibrated(flown: Path):
    printed = (flown / "printed.txt").read_text(encoding="utf-8")
    for task in ("tally", "twin"):
        (line,) = re.findall(rf"^difficulty of {task}: (.*)$", printed, re.MULTILINE)
        assert line.startswith("the task's difficulty was not calibrated on the baseline")
        assert printed.count(line) == 2, "once for each task, and not among the notes again"
    text = (FOLDER / "tunnel.md").read_text(encoding="utf-8")
    assert "How the difficulty of each task was set" in text


def test_the_set_says_its_cells_before_anything_is_trained(flown: Path):
    printed = (flown / "printed.txt").read_text(encoding="utf-8")
    assert printed.startswith("2 tasks, 12 cells: tally 6, twin 6\n")


def test_a_part_of_a_set_shares_its_cells_and_has_a_page_of_its_own(flown: Path, cli: Cli, here: Any):
    del flown
    whole = (FOLDER / "tunnel.html").read_bytes()
    code, out, err = cli("tunnel", "--task", "twin")
    assert (code, err, here.updates) == (0, "", []), "its cells were trained with the set"
    assert out.startswith("1 task, 6 cells: twin 6\n")
    assert (FOLDER / "tunnel.html").read_bytes() == whole
    data = json.loads((FOLDER / "only-twin" / "tunnel.json").read_text(encoding="utf-8"))
    assert [row["task"] for row in data["rows"]] == ["twin"]
    assert data["caveats"][0] == "A part of the set: twin, 1 of its 2 tasks."
    assert data["seconds"] is None
    assert data["repeat_command"] == "paribus tunnel --smoke --task twin"


def test_a_part_of_a_set_trains_its_own_cells_alone(micro: Path, cli: Cli, here: Any):
    del micro
    assert cli("tunnel", "--task", "tally", "--task", "tally")[0] == 0
    assert {name.partition("/")[0] for name in cells(FOLDER)} == {"micro-tally"}
    assert len(here.updates) == 6 * 12
    code, _, err = cli("tunnel", "--task", "twn")
    assert code == 2
    assert err.startswith("error: --task: the smoke set has no task of this name\n")
    assert "did you mean 'twin'?" in err


def test_a_part_of_a_full_set_links_reports_one_folder_up_and_says_whose_family_its_words_are(
    micro: Path, cli: Cli, here: Any, monkeypatch: pytest.MonkeyPatch
):
    del here
    (suites.SUITES / "full").mkdir()
    for task in ("tally", "twin"):
        text = (suites.SUITES / "smoke" / f"{task}.toml").read_text(encoding="utf-8")
        text = text.replace("count = 3", "count = 10").replace("1_536", "512")
        (suites.SUITES / "full" / f"{task}.toml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(micro)
    code, _, err = cli("tunnel", "--full", "--task", "tally")
    assert (code, err) == (0, "")
    folder = Path("runs/tunnel-full/only-tally")
    data = json.loads((folder / "tunnel.json").read_text(encoding="utf-8"))
    (row,) = data["rows"]
    assert (folder / row["report"]).exists()
    assert data["caveats"][0].endswith("Its words are those of one family over these rows alone.")


def test_a_look_at_the_page_goes_into_each_studys_ledger(flown: Path):
    del flown
    for study in ("micro-tally", "micro-twin"):
        looks = StudyFolder(FOLDER / study).looks()
        assert [look["command"] for look in looks] == ["tunnel"]
        assert [look["words"] for look in looks] == [{}], "a smoke set has shown no word"


def test_the_full_set_links_every_tasks_own_report(micro: Path, cli: Cli, here: Any, monkeypatch: pytest.MonkeyPatch):
    del here
    (suites.SUITES / "full").mkdir()
    text = (suites.SUITES / "smoke" / "tally.toml").read_text(encoding="utf-8")
    text = text.replace("count = 3", "count = 10").replace("1_536", "512")
    (suites.SUITES / "full" / "tally.toml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(micro)
    code, out, err = cli("tunnel", "--full")
    assert (code, err) == (0, "")
    data = json.loads(Path("runs/tunnel-full/tunnel.json").read_text(encoding="utf-8"))
    (row,) = data["rows"]
    assert row["report"] == "micro-tally/report.html"
    assert (Path("runs/tunnel-full") / row["report"]).exists()
    assert row["word"] in {word.value for word in Word}
    assert (row["p_holm"] is None) == (row["word"] == Word.NOT_INFORMATIVE.value)
    assert row["word"] in out
    assert "paribus tunnel --full" in data["repeat_command"]


def test_unknown_mechanisms_train_nothing(micro: Path, cli: Cli, here: Any):
    code, _, err = cli("tunnel", "--mechanism", "xsaa")
    assert (code, here.updates) == (2, [])
    assert err.startswith("error: --mechanism: 'xsaa': no such mechanism\n")
    assert not (micro / "runs").exists()


def test_the_time_of_a_set_is_the_sum_of_its_sessions_and_unknown_after_a_kill(tmp_path: Path):
    assert seconds(tmp_path) is None
    for _ in range(2):
        with timed(tmp_path, time.monotonic() - 10):
            assert seconds(tmp_path) is None, "it still runs"
    total = seconds(tmp_path)
    assert total is not None
    assert 20 <= total < 30
    (tmp_path / FILE).write_text('{"running": true, "seconds": 20.0}', encoding="utf-8")  # as a kill leaves it
    with timed(tmp_path, time.monotonic()):
        pass
    assert seconds(tmp_path) is None


def test_the_time_of_a_set_counts_what_comes_before_its_cells_and_no_look_at_it(
    micro: Path, here: Any, cli: Cli, monkeypatch: pytest.MonkeyPatch
):
    del micro
    gates, during = here.run_gates, []

    def slow(*arguments: Any) -> Any:
        during.append(json.loads((FOLDER / FILE).read_text(encoding="utf-8")))
        return gates(*arguments)

    monkeypatch.setattr(running, "run_gates", slow)
    assert cli("tunnel")[0] == 0
    assert during
    assert all(found["running"] for found in during), "a kill at the gates leaves its mark too"
    assert (total := seconds(FOLDER)) is not None
    assert total > 0
    (FOLDER / FILE).write_text('{"running": true, "seconds": 1.0}', encoding="utf-8")
    assert cli("tunnel")[0] == 0
    assert seconds(FOLDER) is None, "a look mends no mark that a kill left"


def test_workers_find_a_module_of_the_working_folder_by_themselves(micro: Path):
    """Real gates and real worker processes, which import the module that the table names."""
    (micro / "idea.py").write_text(GEOMETRY, encoding="utf-8")
    (suites.SUITES / "smoke" / "tally.toml").unlink()
    file = suites.SUITES / "smoke" / "twin.toml"
    file.write_text(file.read_text(encoding="utf-8").replace("count = 3", "count = 1"), encoding="utf-8")
    code = (
        "from pathlib import Path\nfrom paribus.tunnel import suites\n"
        f"suites.SUITES = Path({str(suites.SUITES)!r})\nfrom paribus.cli import main\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "tunnel", "--mechanism", "idea"],
        cwd=micro,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "gates passed" in done.stdout
    (folder,) = (micro / "runs").iterdir()
    assert sorted(name.split("/", 1)[1] for name in cells(folder)) == ["same/0", "standard/0"]
    (row,) = json.loads((folder / "tunnel.json").read_text(encoding="utf-8"))["rows"]
    assert "What the task shows" in (folder / row["report"]).read_text(encoding="utf-8"), "its own report, as it is"
