import subprocess
import sys
import time
from pathlib import Path

import pytest

from paribus.runs.claims import claim, claimed

# Claims the folder again and again; inside a claim it creates a file that must not be there.
CONTENDER = """
import os, sys, time
from pathlib import Path
from paribus.runs.claims import claim

folder, end, held = Path(sys.argv[1]), time.monotonic() + 1.0, 0
while time.monotonic() < end:
    with claim(folder) as got:
        if got:
            os.close(os.open(folder / "inside", os.O_CREAT | os.O_EXCL))
            time.sleep(0.002)
            (folder / "inside").unlink()
            held += 1
    time.sleep(0.001)
print(held)
"""

HOLDER = """
import sys, time
from pathlib import Path
from paribus.runs.claims import claim

with claim(Path(sys.argv[1])) as got:
    print(got, flush=True)
    time.sleep(60)
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    """A process that has the claim."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_two_processes_never_hold_one_cell_at_once(tmp_path: Path):
    command = [sys.executable, "-c", CONTENDER, str(tmp_path)]
    contenders = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    held = [int(contender.communicate()[0]) for contender in contenders]
    assert all(contender.returncode == 0 for contender in contenders), "somebody was inside another one's claim"
    assert sum(held) > 10


def test_a_held_claim_is_refused_and_a_killed_holders_claim_is_free_again(tmp_path: Path):
    process = holder(tmp_path)
    try:
        assert claimed(tmp_path)
        with claim(tmp_path) as got:
            assert not got
    finally:
        end(process)
    assert not claimed(tmp_path)
    with claim(tmp_path) as got:
        assert got


def test_a_reader_that_asks_leaves_the_claim_as_it_was(tmp_path: Path):
    assert not claimed(tmp_path), "a folder that nobody ever claimed"
    assert list(tmp_path.iterdir()) == [], "asking writes nothing"
    with claim(tmp_path) as got:
        assert got
    assert not claimed(tmp_path)
    with claim(tmp_path) as got:
        assert got


def test_a_reader_that_asks_does_not_make_a_trainer_pass_by(tmp_path: Path):
    # The reader holds the lock for a moment; a trainer waits that moment out.
    with claim(tmp_path):
        pass
    asking = "import sys\nfrom pathlib import Path\nfrom paribus.runs.claims import claimed\n"
    asking += "print('asking', flush=True)\nwhile True: claimed(Path(sys.argv[1]))"
    reader = subprocess.Popen([sys.executable, "-c", asking, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert reader.stdout is not None
        reader.stdout.readline()
        for _ in range(20):
            with claim(tmp_path) as got:
                assert got
            time.sleep(0.005)
    finally:
        end(reader)


def test_a_claim_is_released_when_its_block_fails(tmp_path: Path):
    with pytest.raises(RuntimeError, match="inside"), claim(tmp_path):
        raise RuntimeError("inside")
    assert not claimed(tmp_path)
