"""The faults of `run.py` in small numbers: what the long version does hundreds of times works, and nothing is lost."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import drains, flips, kills, power, space, trace
from tests.faults.command import HEAD, table
from tests.faults.scene import LostError, Row, Scene, Server, build, cells, scratch

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads from /proc which processes live")
SEED = 1


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    server, home = Server(), scratch(tmp_path_factory.mktemp("faults"))
    try:
        yield build(home / "base", server, execution=f"lease_seconds = {drains.LEASE_SECONDS}")
    finally:
        server.end()
        shutil.rmtree(home)


def require_survived(row: Row, tried: int) -> None:
    assert row.lost == []
    assert (row.tried, row.survived) == (tried, tried)


def nothing(row: Row) -> None:
    del row


def test_a_worker_killed_at_random_moments_ends_in_the_same_bytes(scene: Scene):
    require_survived(kills.kill_training(scene, 2, SEED, nothing), 2)


def test_a_worker_killed_while_it_writes_a_checkpoint_ends_in_the_same_bytes(scene: Scene):
    require_survived(kills.kill_writing(scene, 3, SEED, nothing, "checkpoints", "checkpointing"), 3)


def test_an_evaluation_killed_at_random_moments_gives_the_same_answers(scene: Scene):
    require_survived(kills.kill_evaluation(scene, 2, SEED, nothing), 2)


def test_a_changed_byte_is_noticed_and_a_cell_goes_on_from_before_it(scene: Scene):
    for row in flips.flip_bytes(scene, 90, SEED, nothing):
        require_survived(row, 30)
    require_survived(flips.resume_damaged(scene, 1, SEED, nothing), 1)


def test_a_disk_that_is_full_at_random_moments_loses_nothing(scene: Scene):
    rows = space.full_disks(scene, 3, SEED, nothing)
    assert sum(row.tried for row in rows) == 3
    for row in rows:
        require_survived(row, row.tried)


def test_workers_of_which_some_are_killed_do_every_cell_once(scene: Scene):
    require_survived(drains.drain(scene, 1, SEED, nothing, workers=4), 2)


def test_a_worker_stopped_beyond_its_lease_is_refused_when_it_wakes_up(scene: Scene):
    require_survived(drains.freeze(scene, 1, SEED, nothing), 1)


def test_what_was_declared_finished_survives_a_power_loss(scene: Scene):
    if why := trace.may_not_trace():
        pytest.skip(why)
    require_survived(power.power_losses(scene, 3, SEED, nothing), 3)


def test_a_difference_of_one_byte_is_a_loss(scene: Scene):
    folder = scene.trained()
    scene.require_same(folder)
    cell = cells(folder)["xsa/0"]
    path = next(cell.path.glob("checkpoints/*/state.safetensors"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(LostError, match="1 differences, first xsa/0: checkpoints/step-"):
        scene.require_same(folder)


def test_the_table_is_aligned_and_says_what_was_not_tested():
    rows = [Row("a fault", "here", "kills", 3, 2, 1.4, {"completions": 1}), Row("other", "there", skipped="no disk")]
    text = table(rows, 7).split("\n")
    assert len({len(line) for line in text[:4]}) == 1
    assert [cell.strip() for cell in text[0].strip("|").split("|")] == list(HEAD)
    assert [cell.strip() for cell in text[2].strip("|").split("|")] == ["a fault", "here", "3 kills", "2", "7", "1"]
    assert "other, there: no disk." in text
    assert "NFS" in text[-1]
