"""The power fails at random moments of a recorded run: what is left of its folder is taken up by the next run.

The system calls of one process that trains and asks are recorded with strace and replayed into `volume.Volume`, which
loses what nobody synced. Survived: a cell whose DONE had been renamed and its folder synced by then is still finished
and verifies, a checkpoint likewise can be used, answers likewise are there; and the same commands end as undisturbed
ones.
"""

import shutil
import sys
from pathlib import Path

from paribus.runs.answers import AnswersFolder
from paribus.runs.faults import Kind
from paribus.runs.folder import CellFolder
from paribus.runs.verifying import examine_cell
from paribus.seeds import generator
from tests.faults import trace
from tests.faults.scene import (
    STUDY,
    Advance,
    LostError,
    Row,
    Scene,
    require_ended,
    require_same,
    state_of,
    timed,
)
from tests.faults.volume import File, Folder, Volume

WORK = ("work", "study.toml")
EVALUATE = ("evaluate", "study.toml", "--core", "bundle")
PROGRAM = """
import sys
from paribus.cli import main
for arguments in {commands}:
    sys.argv = ["paribus", *arguments]
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise
"""


def power_losses(scene: Scene, losses: int, seed: int, advance: Advance) -> Row:
    """So many moments, uniform over the changes that were recorded."""
    draw = generator("faults", "power", seed)
    row = Row("power loss, unsynced changes dropped", "training and evaluation, replayed", "moments")
    if why := trace.may_not_trace():
        row.skipped = why
        return row
    with timed(row):
        traced, log = scene.fresh(), scene.home / "strace.txt"
        runs = traced / "runs"
        before = scene.fresh()
        program = PROGRAM.format(commands=[list(WORK), list(EVALUATE)])
        trace.record([sys.executable, "-c", program], traced, log)
        expected = state_of(traced)
        happened = [change for change in trace.changes(log, traced) if f"{change.path}/".startswith(f"{runs}/")]
        row.note("changes recorded", len(happened))
        for _ in range(losses):
            folder = scene.fresh()
            shutil.rmtree(folder / "runs")
            volume = Volume(runs, before / "runs")
            for change in happened[: int(draw.integers(len(happened) + 1))]:
                volume.change(change)
            volume.lose_power(folder / "runs", draw)
            try:
                _require_declared(volume.root, folder, row)
                require_ended(scene.server.run(folder, *WORK), folder)
                require_ended(scene.server.run(folder, *EVALUATE), folder)
                require_same(folder, expected)
                row.survived += 1
                shutil.rmtree(folder)
            except LostError as error:
                row.lost.append(f"power loss: {error}")
            row.tried += 1
            advance(row)
    return row


def _require_declared(root: Folder, folder: Path, row: Row) -> None:
    """LostError where something is gone that the program had declared finished, each by a name whose folder it synced.

    What a name promises is judged by itself: whether the folders above were synced as well was the program's business.
    """
    for path, node in _cells(root):
        cell = CellFolder(folder / "runs" / STUDY / "tiny" / path)
        surely = node.surely()
        if "DONE" in surely:
            row.note("finished cells")
            damaged = [fault for fault in examine_cell(cell.path) if fault.kind is Kind.DAMAGED]
            if not cell.finished or damaged:
                raise LostError(f"{path} had ended, and is {cell.state} with {damaged[:1]} in {folder}")
        steps = [int(name[5:]) for name in _surely_in(node, "checkpoints") if name.startswith("step-")]
        if steps:
            row.note("checkpoints")
            latest = cell.latest_checkpoint()
            if latest is None or latest[0] < max(steps):
                raise LostError(f"{path} had a checkpoint of update {max(steps)}, not {latest and latest[0]}, {folder}")
        answered = {Path(name).stem for name in _surely_in(node, "tasks") if name.endswith(".json")}
        found = AnswersFolder(cell.path)
        row.note("answers", len(answered))
        if lost := answered - {asked.stem for asked in found.all() if found.rows(asked) is not None}:
            raise LostError(f"{path} had answers to {sorted(lost)[0]}, in {folder}")


def _surely_in(cell: Folder, name: str) -> dict[str, File | Folder]:
    node = cell.now().get(name)
    return node.surely() if isinstance(node, Folder) else {}


def _cells(root: Folder) -> list[tuple[str, Folder]]:
    found = []
    study = root.now().get(STUDY)
    scale = study.now().get("tiny") if isinstance(study, Folder) else None
    for arm, cells_of_arm in scale.now().items() if isinstance(scale, Folder) else ():
        for name, cell in cells_of_arm.now().items() if isinstance(cells_of_arm, Folder) else ():
            if isinstance(cell, Folder):
                found.append((f"{arm}/{name}", cell))
    return found
