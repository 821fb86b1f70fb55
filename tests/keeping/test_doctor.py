"""The doctor tells what is wrong of a folder of runs, and repairs what cannot cost a result."""

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paribus.data.progress import Advance
from paribus.disk import sealed
from paribus.errors import StudyFolderError
from paribus.keeping import doctor
from paribus.keeping.doctor import diagnose, examined
from paribus.keeping.repairing import Repaired, repair
from paribus.runs.checkpoints import Checkpoint
from paribus.runs.claims import claim
from paribus.runs.failures import Failure, failures, parked, record_failure
from paribus.runs.faults import Fault, Kind
from paribus.runs.folder import CellFolder
from paribus.runs.holders import history, holder, tokens_of
from paribus.runs.records import append_line
from paribus.runs.verifying import trained_folders

Cli = Callable[..., tuple[int, str, str]]
Contents = Callable[[Path], dict[str, bytes]]

Hold = Callable[..., subprocess.Popen[str]]


def cell(study: Path, arm: str, seed: int) -> CellFolder:
    (path,) = (study / "S" / arm).glob(f"{seed}-*")
    return CellFolder(path)


def named(study: Path, faults: list[Fault] | tuple[Fault, ...]) -> dict[str, Kind]:
    return {fault.path.relative_to(study).as_posix(): fault.kind for fault in faults}


def damage(path: Path) -> Path:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    return path


def leave_over(study: Path, aged: Callable[[Path], Path]) -> dict[str, Path]:
    """What kills leave in a study that nobody works on: one of each kind that may be repaired."""
    unfinished, done = cell(study, "other", 1), cell(study, "standard", 1)
    tuned = done.path / "finetuned" / "7-chat"
    left = {
        "record aside": unfinished.path / ".cell.json.12-ab.partial",
        "rows aside": done.path / "likelihood" / ".test-00000002.parquet.12-ab.partial",
        "tuned aside": tuned / ".metrics.jsonl.12-ab.partial",
        "claim aside": unfinished.path / ".claims" / ".00000004.json.12-ab.partial",
        "study aside": study / ".plan.json.12-ab.partial",
        "answers": done.path / "tasks" / "core.hard-00000004.parquet",
    }
    for path in left.values():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"half")
    aside = unfinished.path / "checkpoints" / ".step-00000006.12-ab.partial"
    headless = unfinished.path / "checkpoints" / "step-00000001"
    for folder in (aside, headless):
        folder.mkdir()
        (folder / "state.json").write_bytes(b"{}")
    for path in (left["study aside"], left["answers"]):
        aged(path)
    damaged = damage(unfinished.path / "checkpoints" / "step-00000004" / "state.safetensors").parent
    return left | {"checkpoint aside": aside, "headless": headless, "damaged": damaged}


def repaired(study: Path) -> Repaired:
    return repair(examined(study))


def test_a_study_that_was_trained_and_its_corpus_are_sound_and_the_doctor_writes_nothing(here: Path, cli: Cli):
    before = {path: path.stat().st_mtime_ns for path in here.rglob("*")}
    code, out, err = cli("doctor", "runs")
    assert (code, err) == (0, "")
    assert "sound: 1 study and 1 corpus" in out
    assert {path: path.stat().st_mtime_ns for path in here.rglob("*")} == before
    found = json.loads(cli("doctor", "runs/tiny", "--json")[1])
    assert (found["sound"], found["repairs"], found["strangers"]) == (True, 0, [])
    assert found["studies"][0]["faults"] == []
    assert [Path(corpus["path"]).parent.name for corpus in found["corpora"]] == ["corpora"], "the one that it reads"


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("runs/tiny/tiny/standard/*/likelihood/*.parquet", "was changed after the cell had ended"),
        ("runs/tiny/tiny/xsa/*/metrics.jsonl", "is damaged"),
        ("runs/tiny/tiny/xsa/*/checkpoints/*/state.safetensors", "was changed after it was written"),
        ("runs/tiny/plan.json", "damaged"),
        ("runs/corpora/*/train.tokens", "was changed after it was prepared"),
    ],
)
def test_a_changed_byte_ends_the_doctor_with_code_1_naming_the_file_and_the_remedy(
    here: Path, cli: Cli, pattern: str, said: str
):
    path = damage(sorted(here.glob(pattern))[0])
    code, out, err = cli("doctor", "runs")
    assert (code, err) == (1, "")
    assert said in out
    assert "1 damaged file; what to do stands below each" in out
    found = json.loads(cli("doctor", "runs", "--json")[1])
    (fault,) = [fault for each in (*found["studies"], *found["corpora"]) for fault in each["faults"]]
    assert Path(fault["path"]) in (path.relative_to(here), path.parent.relative_to(here))
    assert fault["remedy"]
    before = {each: each.read_bytes() for each in here.rglob("*") if each.is_file() and ".claims" not in each.parts}
    assert cli("doctor", "runs", "--repair")[0] == 1, "what a person must decide stays"
    for each, content in before.items():
        assert each.read_bytes() == content


def test_a_torn_manifest_of_a_corpus_is_damage(here: Path, cli: Cli):
    (manifest,) = here.glob("runs/corpora/*/manifest.json")
    manifest.write_bytes(manifest.read_bytes()[:-20])
    code, out, _ = cli("doctor", "runs")
    assert code == 1
    assert "damaged  manifest.json: the frozen corpus has changed" in out


def test_a_corpus_that_is_gone_is_said_of_the_study_that_reads_it(here: Path, cli: Cli):
    (corpus,) = [path for path in (here / "runs" / "corpora").iterdir() if (path / "manifest.json").exists()]
    shutil.rmtree(corpus)
    code, out, _ = cli("doctor", "runs")
    assert code == 1
    assert "is missing: tiny was planned with this corpus" in out


def test_what_kills_leave_is_repaired_nothing_else_is_touched_and_a_second_doctor_finds_nothing_to_do(
    study: Path, contents: Contents, aged: Callable[[Path], Path]
):
    untouched = contents(study)
    left = leave_over(study, aged)
    with (cell(study, "other", 1).path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 5, "tok')
    first = examined(study)
    assert {path for fault in first.repairable for path in [fault.path]} >= set(left.values())
    done = repair(first)
    assert {each.path for each in done.done} >= set(left.values())
    assert done.left == ()
    assert not any(path.exists() for path in left.values())
    record = "S/other/1-1abc/cell.json"
    gone = {name for name in untouched if name.startswith("S/other/1-1abc/checkpoints/step-00000004")}
    after = contents(study)
    assert {name: after.get(name) for name in untouched.keys() - gone - {record}} == {
        name: content for name, content in untouched.items() if name not in gone and name != record
    }
    assert after.keys() == untouched.keys() - gone
    assert CellFolder(study / "S/other/1-1abc").record()["damaged_checkpoints"] == [
        {"step": 4, "reason": "state.safetensors was changed after it was written", "token": 2}
    ]
    second = examined(study)
    assert (second.repairable, second.old_claims, second.faults) == ([], (), ())
    assert repair(second) == Repaired((), ())


def test_a_torn_last_line_of_looks_or_of_a_finished_cell_is_left(study: Path):
    torn = [study / "looks.jsonl", cell(study, "standard", 1).path / "metrics.jsonl"]
    for path in torn:
        with path.open("ab") as file:
            file.write(b'{"torn')
    before = [path.read_bytes() for path in torn]
    found = examined(study)
    assert set(named(study, found.faults)) == {path.relative_to(study).as_posix() for path in torn}
    assert found.repairable == []
    assert repair(found).done == ()
    assert [path.read_bytes() for path in torn] == before


def test_a_file_aside_that_no_claim_protects_is_left_while_somebody_may_still_write_it(
    study: Path, aged: Callable[[Path], Path]
):
    done = cell(study, "standard", 1).path
    fresh = [study / ".plan.json.12-ab.partial", done / "tasks" / ".core.x-00000004.json.1-a.partial"]
    fresh.append(done / "tasks" / "core.hard-00000004.parquet")
    for path in fresh:
        path.write_bytes(b"half")
    assert repaired(study).done == ()
    assert all(path.exists() for path in fresh)
    for path in fresh:
        aged(path)
    assert {each.path for each in repaired(study).done} == set(fresh)


def test_nothing_of_a_cell_that_is_held_is_touched_or_taken_for_damage(study: Path, hold: Hold):
    folder = cell(study, "other", 1).path
    aside = folder / ".cell.json.12-ab.partial"
    aside.write_bytes(b"half")
    process = hold(folder)
    found = examined(study)
    assert [(lease.folder, lease.state) for lease in found.leases] == [(folder, "held")]
    assert found.leases[0].holder.pid == process.pid
    assert found.faults == (), "it is being written"
    assert repaired(study) == Repaired((), ())
    assert aside.exists()
    process.kill()
    process.wait()
    found = examined(study)
    assert [lease.state for lease in found.leases] == ["stale"]
    assert [fault.path for fault in found.repairable] == [aside]
    assert [each.path for each in repair(found).done] == [aside]


def test_a_cell_that_somebody_takes_between_the_look_and_the_repair_is_left(study: Path, hold: Hold):
    folder = cell(study, "other", 1).path
    aside = folder / ".cell.json.12-ab.partial"
    aside.write_bytes(b"half")
    found = examined(study)
    hold(folder)
    done = repair(found)
    assert done.done == ()
    assert [each.path for each in done.left] == [folder]
    assert aside.exists()


def test_what_changes_in_a_held_cell_between_two_looks_is_no_damage_and_what_stays_is(
    study: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = cell(study, "other", 1).path
    rows = folder / "likelihood" / "test-00000004.parquet"
    whole = rows.read_bytes()
    rows.write_bytes(whole[:100])
    with claim(folder):
        assert named(study, examined(study).faults) == {"S/other/1-1abc/likelihood/test-00000004.parquet": Kind.DAMAGED}
        monkeypatch.setattr(time, "sleep", lambda _: rows.write_bytes(whole))
        assert examined(study).faults == ()


def test_a_cell_that_was_trained_while_it_was_read_is_looked_at_again(study: Path, monkeypatch: pytest.MonkeyPatch):
    folder = cell(study, "other", 1).path
    rows = folder / "likelihood" / "test-00000004.parquet"
    whole = rows.read_bytes()
    rows.write_bytes(whole[:100])
    real = doctor.examine

    def meanwhile(study: Path) -> Iterator[Fault]:
        yield from list(real(study))
        with claim(folder):
            rows.write_bytes(whole)

    monkeypatch.setattr(doctor, "examine", meanwhile)
    assert examined(study).faults == ()


def test_files_that_vanish_while_they_are_read_begin_the_look_anew(study: Path, monkeypatch: pytest.MonkeyPatch):
    real, times = doctor.examine, iter((True, True, False))

    def vanishing(study: Path) -> Iterator[Fault]:
        yield from list(real(study))[:3]
        if next(times):
            raise FileNotFoundError("a checkpoint that was just removed")
        yield from list(real(study))[3:]

    monkeypatch.setattr(doctor, "examine", vanishing)
    whole = examined(study)
    assert whole.faults == ()
    assert whole.files == len(list(real(study)))
    times = iter([True] * doctor.LOOKS)
    with pytest.raises(FileNotFoundError):
        examined(study)


def test_a_checkpoint_that_is_removed_while_it_is_read_is_no_damage(study: Path, monkeypatch: pytest.MonkeyPatch):
    folder = cell(study, "other", 1).path / "checkpoints" / "step-00000002"
    real = Checkpoint.damage

    def removed(self: Checkpoint) -> str:
        if self.path == folder:
            shutil.rmtree(folder)
        return real(self)

    monkeypatch.setattr(Checkpoint, "damage", removed)
    assert examined(study).faults == ()


def test_a_repair_of_a_cell_leaves_what_it_is_being_fine_tuned_to(study: Path, hold: Hold):
    base = cell(study, "standard", 1).path
    tuned = base / "finetuned" / "7-chat"
    asides = [folder / ".metrics.jsonl.12-ab.partial" for folder in (base, tuned)]
    for aside in asides:
        aside.write_bytes(b"half")
    hold(tuned)
    assert [each.path for each in repaired(study).done] == asides[:1]
    assert asides[1].exists()


def test_a_worker_that_died_is_told_as_a_stale_lease_and_its_death_stays_on_record(study: Path, hold: Hold):
    folder = cell(study, "other", 1).path
    hold(folder, "die")
    found = examined(study)
    assert [(lease.state, lease.holder.token) for lease in found.leases] == [("stale", 1)]
    assert found.repairable == [], "the next worker takes it over: there is nothing to repair"
    assert repair(found) == Repaired((), ())
    (folder / ".cell.json.12-ab.partial").write_bytes(b"half")
    assert len(repaired(study).done) == 1
    (failure,) = failures(folder)
    assert (failure.token, failure.checkpoint_step) == (1, 4)
    assert "ended without a word" in failure.reason
    assert parked(folder) is None
    assert examined(study).leases == ()


def test_claims_long_ended_go_and_tokens_keep_growing(study: Path):
    folder = cell(study, "standard", 2).path
    for _ in range(5):
        with claim(folder):
            pass
    found = examined(study)
    assert len(found.old_claims) == 6
    assert {file.suffix for file in found.old_claims} == {".json", ".released"}
    repair(found)
    assert tokens_of(folder) == [4, 5]
    assert all(past.released for past in history(folder))
    with claim(folder) as held:
        assert held is not None
        assert held.token == 6
    assert repair(examined(study)).done[0].path == folder / ".claims"
    assert examined(study).old_claims == ()


def test_a_damaged_claim_is_cleared_once_nobody_can_hold_it(study: Path):
    folder = cell(study, "standard", 2).path
    with claim(folder):
        pass
    damage(folder / ".claims" / "00000001.json")
    found = examined(study)
    assert [fault.path.name for fault in found.damaged] == ["00000001.json"]
    assert [each.path.name for each in repair(found).done] == ["00000001.json"]
    assert tokens_of(folder) == [2]
    assert examined(study).faults == ()


def test_the_token_of_a_repair_is_above_those_of_the_rows_where_claims_were_cleared_away(study: Path):
    folder = cell(study, "other", 1).path
    append_line(folder / "metrics.jsonl", {"step": 5, "tokens_seen": 2560, "loss_nats_per_token": 1.0, "token": 7})
    (folder / ".cell.json.12-ab.partial").write_bytes(b"half")
    repaired(study)
    assert tokens_of(folder) == [8]


def test_a_silent_claim_of_another_machine_is_watched_for_its_lease_before_anything_is_repaired(
    study: Path, aged: Callable[[Path], Path]
):
    folder = cell(study, "other", 1).path
    aside = folder / ".cell.json.12-ab.partial"
    aside.write_bytes(b"half")
    owner = {"host": "elsewhere", "machine": "another", "pid": 7, "started": "1", "nonce": "0"}
    file = folder / ".claims" / "00000003.json"
    file.parent.mkdir()
    file.write_bytes(sealed({"token": 3, "owner": owner, "taken": "2026-01-01T00:00:00", "lease_seconds": 1.0}))
    aged(file)
    found = examined(study)
    assert [(lease.state, lease.holder.host) for lease in found.leases] == [("silent", "elsewhere")]
    said: list[str] = []
    assert [each.path for each in repair(found, said.append).done] == [aside]
    assert said == ["watching 1 claims that nobody seems to renew, 1 s at most"]
    assert failures(folder)[0].host == "elsewhere"
    assert holder(folder) is None


def test_a_damaged_checkpoint_of_a_finished_cell_is_told_and_left(study: Path):
    path = damage(cell(study, "standard", 1).path / "checkpoints" / "step-00000002" / "state.json").parent
    found = examined(study)
    assert [fault.path for fault in found.damaged] == [path]
    assert "train it anew" in found.damaged[0].repair
    assert repair(found).done == ()
    assert path.exists()


def test_the_only_checkpoint_of_a_finished_cell_is_kept_though_its_marker_is_gone(study: Path):
    folder = cell(study, "standard", 1).path / "checkpoints"
    (folder / "step-00000004" / "COMPLETE").unlink()
    assert repaired(study).done == ()
    (folder / "step-00000002" / "COMPLETE").unlink()
    assert repaired(study).done == ()
    assert (folder / "step-00000004" / "state.safetensors").exists()


def test_parked_cells_and_what_is_no_study_are_told_and_cost_no_soundness(study: Path, cli: Cli):
    folder = cell(study, "other", 1).path
    for token in (1, 2, 3):
        record_failure(folder, Failure.now(token, 0, "it does not fit\nand more"), 3)
    runs = study.parent
    (runs / "thesis").mkdir()
    (runs / "thesis" / "chapter.tex").write_text("years", encoding="utf-8")
    (runs / "notes.txt").write_text("mine", encoding="utf-8")
    (runs / ".mine.moving").mkdir()
    (study / "S" / "notes.txt").write_text("mine", encoding="utf-8")
    code, out, _ = cli("doctor", str(runs), "--repair")
    assert code == 0
    assert "parked  S/other/1-1abc: it does not fit\n" in out
    assert "orphan  thesis: is the folder of no study" in out
    assert "orphan  notes.txt: lies beside studies, and is no file" in out
    assert "orphan  .mine.moving: is a copy that is not whole" in out
    assert "orphan  S/notes.txt: is no file of a study" in out
    assert "nothing to repair" in out
    assert (runs / "thesis" / "chapter.tex").exists()


def test_sets_of_studies_are_looked_into_and_a_study_without_its_record_is_known(study: Path, tmp_path: Path):
    runs = tmp_path / "set"
    shutil.copytree(study, runs / "tunnel" / "mine")
    shutil.copytree(study, runs / "lost")
    (runs / "lost" / "study.json").unlink()
    (runs / "tunnel" / "tunnel.html").write_text("page", encoding="utf-8")
    found = diagnose(runs)
    assert [each.study for each in found.studies] == [runs / "lost", runs / "tunnel" / "mine"]
    assert found.strangers == ()
    assert [fault.path for fault in found.damaged] == [runs / "lost" / "study.json"]


@pytest.mark.parametrize("name", ["absent", "empty", "file"])
def test_a_folder_without_a_study_is_one_clear_error(tmp_path: Path, name: str):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(StudyFolderError, match="holds no study"):
        diagnose(tmp_path / name)


def test_an_earlier_versions_study_without_checksums_is_sound_and_says_so(study: Path, cli: Cli):
    for path in study.rglob("*.json"):
        if ".claims" not in path.parts and "tasks" not in path.parts and "checkpoints" not in path.parts:
            content = json.loads(path.read_bytes())
            content.pop("checksum", None)
            path.write_text(json.dumps(content), encoding="utf-8")
    code, out, _ = cli("doctor", str(study))
    assert code == 0
    assert "kept no checksum (an earlier version wrote them): readable" in out


def test_progress_is_told_in_bytes_of_each_study_and_corpus_up_to_its_end(here: Path):
    told: list[Advance] = []
    diagnose(here / "runs", told.append)
    phases = {advance.phase: advance for advance in told}
    (corpus,) = here.glob("runs/corpora/*/manifest.json")
    assert list(phases) == ["verify tiny", f"verify {corpus.parent.name}"]
    for phase, last in phases.items():
        done = [advance.done for advance in told if advance.phase == phase]
        assert done == sorted(done)
        assert last.done == last.total > 10_000


def test_what_was_aside_for_a_moment_is_no_fault(study: Path, monkeypatch: pytest.MonkeyPatch):
    aside = study / ".plan.json.12-ab.partial"
    aside.write_bytes(b"half")
    assert [fault.path for fault in examined(study).faults] == [aside]
    monkeypatch.setattr(doctor, "_seen_twice", lambda _, faults, __: (aside.unlink(), faults)[1])
    assert examined(study).faults == ()


def test_every_folder_that_a_worker_claims_is_known(study: Path):
    assert {path.relative_to(study).as_posix() for path in trained_folders(study)} == {
        "S/standard/1-1abc",
        "S/standard/1-1abc/finetuned/7-chat",
        "S/standard/2-2abc",
        "S/other/1-1abc",
        "S/other/2-2abc",
    }
