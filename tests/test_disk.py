"""Room on the disk is asked for before it is needed; the system's answer is replaced, so that no disk need be full."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from paribus import disk
from paribus.disk import MARGIN_BYTES, MARGIN_SHARE, require_space
from paribus.errors import StorageError


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[Path]]:
    """Let every disk have so much room; gives the places that were asked about."""

    def of(size: int, total: int = 10**12) -> list[Path]:
        asked: list[Path] = []
        monkeypatch.setattr(disk.shutil, "disk_usage", lambda place: (asked.append(place), Usage(total, 0, size))[1])
        return asked

    return of


@pytest.mark.parametrize("needed", [0, 10_000, 12_345_678, 10**11])
def test_what_fits_with_its_margin_to_the_byte_is_let_through_and_a_byte_less_is_not(free, tmp_path: Path, needed: int):
    wanted = needed + int(needed * MARGIN_SHARE) + MARGIN_BYTES
    free(wanted)
    require_space(tmp_path, needed, "it")
    free(wanted - 1)
    with pytest.raises(StorageError):
        require_space(tmp_path, needed, "it")


def test_the_error_says_what_is_needed_where_what_is_free_and_what_to_do(free, tmp_path: Path):
    free(7_000_000)
    with pytest.raises(StorageError) as caught:
        require_space(tmp_path / "not" / "there" / "yet", 50_000_000, "the checkpoint of step 8")
    error = caught.value
    assert error.what == "there is no room for the checkpoint of step 8"
    assert error.expected == f"50.6 MB free at {tmp_path}: 50.0 MB and a margin"
    assert error.received == "7,000 kB free, 43.6 MB too few"
    assert "paribus gc" in error.remedy
    assert "kept" in error.remedy


def test_the_disk_that_is_asked_is_that_of_the_nearest_folder_that_is_there(
    free, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked = free(10**9)
    require_space(tmp_path / "runs" / "study" / "cell", 1, "it")
    require_space(tmp_path, 1, "it")
    monkeypatch.chdir(tmp_path)
    require_space(Path("runs/study"), 1, "it")
    assert asked == [tmp_path, tmp_path, tmp_path]


def test_a_disk_that_does_not_say_how_large_it_is_is_left_to_the_write_itself(
    free, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    free(0, total=0)
    require_space(tmp_path, 10**15, "it")

    def refuse(_: Path) -> Usage:
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(disk.shutil, "disk_usage", refuse)
    require_space(tmp_path, 10**15, "it")


def test_a_real_disk_refuses_more_than_it_has_and_takes_a_byte(tmp_path: Path):
    require_space(tmp_path, 1, "a byte")
    with pytest.raises(StorageError, match="no room for far too much"):
        require_space(tmp_path, shutil.disk_usage(tmp_path).total + 1, "far too much")
