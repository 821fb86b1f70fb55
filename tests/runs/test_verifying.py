"""Every kind of file of a study is known, and what happens to it is noticed."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paribus.runs.faults import Fault, Kind
from paribus.runs.folder import CellFolder
from paribus.runs.study_folder import StudyFolder
from paribus.runs.verifying import examine, examine_cell, verify
from paribus.seeds import generator

FLIPS = 6
"""of each file; single bytes at drawn places"""


def files(study: Path) -> list[Path]:
    return [path for path in sorted(study.rglob("*")) if path.is_file()]


def kind_of(path: Path) -> str:
    """likelihood, checkpoints, .claims, ... for files in a group of a cell; the name for others."""
    return f"{path.parent.name}/{path.suffix}" if path.suffix in (".parquet", ".svg", ".csv") else path.name


def near(study: Path, path: Path) -> list[Fault]:
    """What is found of the cell that the file is in, or of the study where it is in none."""
    parts = path.relative_to(study).parts
    found = examine_cell(study.joinpath(*parts[:3])) if len(parts) > 3 else examine(study)
    return [fault for fault in found if fault.path == path or fault.path in path.parents]


def cell(study: Path, arm: str, seed: int, scale: str = "S") -> CellFolder:
    (path,) = (study / scale / arm).glob(f"{seed}-*")
    return CellFolder(path)


def test_every_file_of_a_study_that_was_really_trained_is_known_and_good(trained: Path):
    found = list(examine(trained))
    assert {fault.path for fault in found} == set(files(trained))
    assert {fault.kind for fault in found} == {Kind.GOOD}
    assert {"COMPLETE", "cell.json", "metrics.jsonl", "DONE", "plan.json"} <= {fault.path.name for fault in found}


def test_every_kind_of_file_is_known_and_good(study: Path):
    found = list(examine(study))
    assert len({fault.path for fault in found}) == len(found)
    assert {fault.path for fault in found} == set(files(study))
    assert {fault.kind for fault in found} == {Kind.GOOD}
    assert list(verify(study)) == []


def test_a_report_is_checked_by_what_its_data_say_of_its_other_files(study: Path):
    (study / "tables" / "a.csv").write_text("showm", encoding="utf-8")
    (study / "verdict.md").unlink()
    (study / "tables" / "of-an-earlier-one.csv").write_text("x", encoding="utf-8")
    found = {str(f.path.relative_to(study)): f for f in examine(study) if f.kind is not Kind.GOOD}
    assert {name: fault.kind for name, fault in found.items()} == {
        "tables/a.csv": Kind.DAMAGED,
        "verdict.md": Kind.DAMAGED,
        "tables/of-an-earlier-one.csv": Kind.UNPROTECTED,
    }
    assert "paribus report" in found["verdict.md"].repair
    (study / "report.json").write_text('{"format": 6}', encoding="utf-8")
    kinds = {f.path.name: f.kind for f in examine(study) if f.path.name in ("report.json", "a.csv")}
    assert kinds == {"report.json": Kind.UNCHECKED, "a.csv": Kind.UNPROTECTED}, "of an earlier version"
    (study / "report.json").write_text('{"format": 6, "digests": {}, "checksum": "blake2b-8:0"}', encoding="utf-8")
    assert [f.kind for f in examine(study) if f.path.name == "report.json"] == [Kind.DAMAGED]


def protected(study: Path) -> Iterator[Path]:
    """One file of each kind, of cells that have ended and of others."""
    seen = set()
    for fault in examine(study):
        ended = any(CellFolder(above).finished for above in fault.path.parents)
        if fault.kind is Kind.GOOD and fault.path.stat().st_size and (kind_of(fault.path), ended) not in seen:
            seen.add((kind_of(fault.path), ended))
            yield fault.path


@pytest.mark.parametrize("which", ["study", "copied"])
def test_a_flipped_byte_anywhere_is_noticed_in_its_file(
    which: str, request: pytest.FixtureRequest, flip: Callable[[Path, int, int], None]
):
    folder: Path = request.getfixturevalue(which)
    draw = generator("tests", "verifying", which)
    tried = 0
    for path in protected(folder):
        before = path.read_bytes()
        places = {0, len(before) - 1, *draw.integers(0, len(before), FLIPS).tolist()}
        for place in sorted(places):
            by = int(draw.integers(1, 256))
            flip(path, place, by)
            found = near(folder, path)
            assert found, f"{path}: byte {place} by {by}"
            assert any(fault.kind in (Kind.DAMAGED, Kind.REFORMATTED) for fault in found), f"{path}: {place} by {by}"
            assert all(fault.what and fault.repair for fault in found if fault.kind is Kind.DAMAGED)
            path.write_bytes(before)
            tried += 1
    assert tried > 80
    assert [fault for fault in verify(folder) if fault.kind is Kind.DAMAGED] == []


def test_a_truncated_file_is_noticed(study: Path):
    draw = generator("tests", "verifying", "truncated")
    for path in protected(study):
        before = path.read_bytes()
        for length in {0, len(before) - 1, *draw.integers(0, len(before), 4).tolist()}:
            path.write_bytes(before[:length])
            found = {fault.kind for fault in near(study, path)}
            # Lines that were cut off the end of a ledger leave no trace; neither do those of metrics before the end.
            growing = path.suffix == ".jsonl" and (path.parent == study or not CellFolder(path.parent).finished)
            whole_lines = growing and (not length or before[:length].endswith(b"\n"))
            assert whole_lines or found & {Kind.DAMAGED, Kind.REFORMATTED, Kind.ORPHAN}, f"{path}: {length}"
            path.write_bytes(before)


def swap(one: Path, other: Path) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


@pytest.mark.parametrize(
    ("one", "other", "noticed"),
    [
        ("S/standard/1-1abc/cell.json", "S/standard/2-2abc/cell.json", "it is that of S/standard/2-2abc"),
        ("S/standard/1-1abc/DONE", "S/standard/2-2abc/DONE", "was changed after the cell had ended"),
        ("S/standard/1-1abc/metrics.jsonl", "S/standard/2-2abc/metrics.jsonl", "was changed after the cell had ended"),
        (
            "S/standard/1-1abc/likelihood/test-00000002.parquet",
            "S/standard/1-1abc/likelihood/test-00000004.parquet",
            "was changed after the cell had ended",
        ),
        (
            "S/other/1-1abc/likelihood/test-00000002.parquet",
            "S/other/1-1abc/likelihood/test-00000004.parquet",
            "was changed",
        ),
        (
            "S/other/1-1abc/checkpoints/step-00000002",
            "S/other/1-1abc/checkpoints/step-00000004",
            "COMPLETE is that of step 4 of 1-1abc",
        ),
        (
            "S/other/1-1abc/checkpoints/step-00000002/state.json",
            "S/other/1-1abc/checkpoints/step-00000004/state.json",
            "state.json was changed after it was written",
        ),
        ("S/other/1-1abc/checkpoints", "S/other/2-2abc/checkpoints", "COMPLETE is that of step 2 of 2-2abc"),
        ("cost/S.json", "cost/M.json", "it is that of scale M"),
        ("plan.json", "corpus.json", "cells (missing, or no list)"),
        (
            "S/standard/1-1abc/tasks/core.easy-00000004.json",
            "S/standard/1-1abc/tasks/core.hard-00000004.json",
            "it is the record of core.hard",
        ),
    ],
)
def test_files_that_changed_places_are_noticed(study: Path, one: str, other: str, noticed: str):
    swap(study / one, study / other)
    above = (study / one).parent
    found = [fault for fault in verify(study) if above in (fault.path, *fault.path.parents)]
    assert any(noticed in fault.what for fault in found), found


@pytest.mark.parametrize(
    "lost",
    [
        "study.json",
        "S/standard/1-1abc/cell.json",
        "S/standard/1-1abc/metrics.jsonl",
        "S/standard/1-1abc/likelihood/test-00000002.parquet",
        "S/other/1-1abc/likelihood/test-00000002.parquet",
        "S/standard/1-1abc/checkpoints/step-00000004/state.json",
        "S/standard/1-1abc/tasks/core.easy-00000004.parquet",
    ],
)
def test_a_file_that_is_missing_is_named(study: Path, lost: str):
    (study / lost).unlink()
    found = list(verify(study))
    assert {fault.kind for fault in found} == {Kind.DAMAGED}
    (only,) = found
    assert only.path in (study / lost, (study / lost).parent)
    assert "missing" in only.what or "No such file" in only.what


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt",
        ".plan.json.12-00ff00ff.partial",
        "S/notes.txt",
        "S/standard/notes.txt",
        "S/standard/elsewhere/notes.txt",
        "S/standard/1-1abc/notes.txt",
        "S/standard/1-1abc/.DONE.12-00ff00ff.partial",
        "S/standard/1-1abc/likelihood/notes.txt",
        "S/standard/1-1abc/likelihood/test-00000009.parquet",
        "S/standard/1-1abc/likelihood/.test-00000009.parquet.12-00ff00ff.partial",
        "S/standard/1-1abc/checkpoints/notes.txt",
        "S/standard/1-1abc/checkpoints/step-00000004/notes.txt",
        "S/standard/1-1abc/checkpoints/step-00000009/state.json",
        "S/standard/1-1abc/checkpoints/.step-00000009.12-00ff00ff.partial/state.json",
        "S/standard/1-1abc/tasks/notes.txt",
        "S/standard/1-1abc/tasks/core.other-00000004.parquet",
        "S/standard/1-1abc/finetuned/notes.txt",
        "S/other/2-2abc/.claims/notes.txt",
        "S/other/3-3abc-twin/trouble/notes.txt",
        "cost/notes.txt",
    ],
)
def test_what_nobody_wrote_for_the_study_or_only_half_is_an_orphan(study: Path, name: str):
    (study / name).parent.mkdir(exist_ok=True, parents=True)
    (study / name).write_text("?", encoding="utf-8")
    (found,) = verify(study)
    assert found.kind is Kind.ORPHAN
    assert found.path in (study / name, (study / name).parent)
    assert found.what
    assert found.repair


def as_an_earlier_version_wrote_it(study: Path) -> None:
    """Without checksums, CRCs, digests of checkpoints and of row files, and without page checksums."""
    for path in files(study):
        if path.name == "COMPLETE":
            path.write_bytes(b"")
        elif path.suffix == ".json" or path.name in ("DONE", "DIVERGED", "PARKED"):
            content = json.loads(path.read_bytes())
            content.pop("checksum", None)
            content.pop("row_digests", None)
            path.write_text(json.dumps(content, indent=1), encoding="utf-8")
        elif path.name == "rows.jsonl":
            path.unlink()
        elif path.suffix == ".jsonl":
            lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            text = "".join(json.dumps({key: v for key, v in line.items() if key != "crc"}) + "\n" for line in lines)
            path.write_text(text, encoding="utf-8")
        elif path.suffix == ".parquet" and path.parent.name != "tasks":
            pq.write_table(pq.read_table(path), path, compression="zstd")


def test_a_study_of_an_earlier_version_is_unchecked_and_read_as_it_is(copied: Path):
    before = {path.parent: CellFolder(path.parent) for path in copied.rglob("cell.json")}
    assert len(before) == 2
    read = {path: (c.metrics(), c.record(), c.row_files("likelihood")) for path, c in before.items()}
    tensors = {path: c.latest_checkpoint() for path, c in before.items()}
    as_an_earlier_version_wrote_it(copied)
    found = {fault.path: fault.kind for fault in examine(copied)}
    assert found.keys() == set(files(copied))
    assert set(found.values()) == {Kind.UNCHECKED, Kind.GOOD}
    good = {path.relative_to(copied).parts[3] for path, kind in found.items() if kind is Kind.GOOD}
    assert good <= {".claims", ".claim"}, "names that say it all"
    for path, (metrics, record, rows) in read.items():
        old = CellFolder(path)
        assert (old.metrics(), old.record()) == (metrics, record)
        checkpoint, then = old.latest_checkpoint(), tensors[path]
        assert checkpoint is not None
        assert then is not None
        assert (checkpoint[0], checkpoint[1]["state.safetensors"]) == (then[0], then[1]["state.safetensors"])
        assert all(isinstance(old.rows(name), pa.Table) for name in rows)
        assert (old.alterations(), old.keeps_digests) == ([], False)
    assert StudyFolder(copied).plan() is not None


def test_a_record_that_was_only_laid_out_anew_is_read_and_said_to_be_so(study: Path):
    for name in ("plan.json", "S/standard/1-1abc/cell.json", "S/standard/1-1abc/DONE"):
        path = study / name
        path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")), indent=4, sort_keys=True))
        (found,) = verify(study)
        assert (found.path, found.kind) == (path, Kind.REFORMATTED)
        path.write_text(json.dumps(json.loads(path.read_text()), separators=(",", ":")), encoding="utf-8")
        assert [fault.kind for fault in verify(study)] == [Kind.REFORMATTED]
        CellFolder(path.parent).written_digests()
        content = json.loads(path.read_text(encoding="utf-8"))
        checksum = content.pop("checksum")
        lines = json.dumps({**dict(sorted(content.items())), "checksum": checksum}, indent=1) + "\n"
        path.write_text(lines, encoding="utf-8")
        assert list(verify(study)) == []


def test_looking_changes_nothing(study: Path):
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files(study)}
    list(verify(study))
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files(study)} == before


def test_a_parked_cell_that_never_began_is_no_fault(study: Path):
    parked = study / "S" / "other" / "9-9abc"
    shutil.copytree(study / "S" / "other" / "2-2abc" / ".claims", parked / ".claims")
    shutil.copy(study / "S" / "other" / "2-2abc" / "PARKED", parked / "PARKED")
    assert list(verify(study)) == []


def test_a_row_file_that_a_kill_kept_from_being_written_is_no_fault_until_training_is_beyond_it(study: Path):
    running = cell(study, "other", 1)
    running.append_metrics({"step": 5, "tokens_seen": 1, "loss_nats_per_token": 1.0})
    running.write_rows("likelihood/test-00000005", {"nats": [1.0]})
    (running.path / "likelihood" / "test-00000005.parquet").unlink()
    assert list(verify(study)) == []
    running.write_checkpoint(5, {"state.json": b"{}"})
    assert list(verify(study)) == [], "whoever goes on from there measures anew"
    running.append_metrics({"step": 6, "tokens_seen": 1, "loss_nats_per_token": 1.0})
    running.write_checkpoint(6, {"state.json": b"{}"})
    assert [fault.what for fault in verify(study)] == ["is missing"]


def test_a_folder_in_the_place_of_a_row_file_is_told_as_both(study: Path):
    path = study / "S" / "standard" / "1-1abc" / "likelihood" / "test-00000002.parquet"
    path.unlink()
    path.mkdir()
    (path / "inside").touch()
    assert {fault.path: fault.what for fault in verify(study)} == {
        path: "is missing",
        path / "inside": "is no file of a study",
    }
