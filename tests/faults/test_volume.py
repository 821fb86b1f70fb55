"""The model of a power loss: what must be there, what may be gone, and how a trace is read."""

from pathlib import Path

import pytest

from paribus.seeds import generator
from tests.faults.trace import Change, changes
from tests.faults.volume import Volume

DRAWS = 200


def outcomes(
    tmp_path: Path, *happened: Change, before: dict[str, bytes] | None = None
) -> set[tuple[tuple[str, bytes], ...]]:
    """Every state that is left in some draw: (name, content) of each file."""
    start = tmp_path / "start"
    start.mkdir()
    for name, content in (before or {}).items():
        (start / name).write_bytes(content)
    volume = Volume(start)
    for change in happened:
        volume.change(change)
    found = set()
    for number in range(DRAWS):
        target = tmp_path / str(number)
        volume.lose_power(target, generator("faults", "test", number))
        files = [path for path in target.rglob("*") if path.is_file()]
        found.add(tuple(sorted((str(path.relative_to(target)), path.read_bytes()) for path in files)))
    return found


def at(tmp_path: Path, name: str = "") -> str:
    return str(tmp_path / "start" / name) if name else str(tmp_path / "start")


def test_a_file_that_was_written_aside_synced_renamed_and_its_folder_synced_is_there(tmp_path: Path):
    aside, final = at(tmp_path, "aside"), at(tmp_path, "final")
    steps = [Change("open", aside), Change("write", aside, data=b"new", number=0), Change("sync", aside)]
    steps.append(Change("rename", aside, final))
    assert outcomes(tmp_path, *steps, Change("sync", at(tmp_path)), before={"final": b"old"}) == {(("final", b"new"),)}


def test_before_the_folder_is_synced_the_old_file_or_the_new_one_is_there_and_whole(tmp_path: Path):
    aside, final = at(tmp_path, "aside"), at(tmp_path, "final")
    steps = [Change("open", aside), Change("write", aside, data=b"new", number=0), Change("sync", aside)]
    found = outcomes(tmp_path, *steps, Change("rename", aside, final), before={"final": b"old"})
    assert {dict(state)["final"] for state in found} == {b"old", b"new"}


def test_without_a_sync_of_the_file_a_renamed_one_may_be_empty_torn_or_zeros(tmp_path: Path):
    aside, final = at(tmp_path, "aside"), at(tmp_path, "final")
    steps = [Change("open", aside), Change("write", aside, data=b"new", number=0), Change("rename", aside, final)]
    found = outcomes(tmp_path, *steps, Change("sync", at(tmp_path)))
    assert {dict(state)["final"] for state in found} >= {b"", b"n", b"new", b"\0\0\0"}


def test_a_synced_file_in_a_folder_whose_name_nobody_synced_may_be_gone(tmp_path: Path):
    folder, file = at(tmp_path, "folder"), at(tmp_path, "folder/file")
    steps = [Change("mkdir", folder), Change("open", file), Change("sync", file), Change("sync", folder)]
    assert outcomes(tmp_path, *steps) == {(), (("folder/file", b""),)}


def test_a_trace_is_read_with_its_data_and_a_call_that_is_not_understood_is_refused(tmp_path: Path):
    def hexadecimal(text: str) -> str:
        return "".join(f"\\x{byte:02x}" for byte in text.encode())

    folder, cwd = tmp_path / "f", f"AT_FDCWD<{hexadecimal(str(tmp_path / 'f'))}>"
    file = f"3<{hexadecimal(str(folder / 'a,b'))}>"
    lines = [
        f'7 openat({cwd}, "{hexadecimal("a,b")}", O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC, 0666) = {file}',
        f'7 write({file}, "{hexadecimal("one, two")}", 8 <unfinished ...>',
        '8 mkdir("\\x2f\\x65\\x6c\\x73\\x65", 0777) = 0',
        "7 <... write resumed>)              = 8",
        f'7 write({file}, "{hexadecimal("!")}", 1) = 1',
        f"7 fsync({file})                     = 0",
        f'7 rename("{hexadecimal("a,b")}", "{hexadecimal("c")}") = -1 ENOENT (No such file or directory)',
        f'7 rename("{hexadecimal("a,b")}", "{hexadecimal("c")}") = 0',
    ]
    log = tmp_path / "trace"
    log.write_text("\n".join(lines) + "\n", encoding="ascii")
    path = str(folder / "a,b")
    assert list(changes(log, folder)) == [
        Change("open", path, number=1),
        Change("write", path, data=b"one, two", number=0),
        Change("write", path, data=b"!", number=8),
        Change("sync", path),
        Change("rename", path, str(folder / "c")),
    ]
    log.write_text(f"7 fallocate({file}, 0, 0, 100) = 0\n", encoding="ascii")
    with pytest.raises(ValueError, match="not understood: fallocate"):
        list(changes(log, folder))
