"""How many rows one forward pass takes, where a study leaves that to the machine: measured once, then frozen for all.

The rows of a micro-batch change in which order gradients are added, so they belong to a cell's identity and are the
same for every arm. They are measured on the arm that needs most memory, once for each study and kind of
device, and lie in the study's folder from then on.
"""

import os
from collections.abc import Mapping

import torch

from paribus.errors import ExperimentFileError
from paribus.experiment.plan import ArmAtScale, device_of
from paribus.experiment.spec import Execution, Experiment
from paribus.runs.study_folder import StudyFolder
from paribus.sample_update import micro_batch, peak_bytes

PROBE = "probe"
SHARE_OF_MEMORY = 0.7
"""of what is there; the rest is for the allocator, for what is measured beside, and for everybody else"""
FLOAT32 = 4
COPIES_OF_PARAMETERS = 5
"""the parameter, its gradient, at most two moments of an optimiser, and an update before it is applied"""

Arms = Mapping[tuple[str, str], ArmAtScale]


def frozen_rows(experiment: Experiment, arms: Arms, folder: StudyFolder) -> int:
    """Rows of one forward pass of every arm, 0 for the whole batch: what the file says, or what was measured.

    Measures and puts it on record where the file leaves it to the machine and nobody has measured on this kind of
    device yet. ExperimentFileError where not even one row fits.
    """
    declared = experiment.execution.micro_batch_rows
    if declared != PROBE:
        return declared
    device = torch.device(device_of(experiment.execution))
    kind = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    known = folder.micro_batches()
    if kind not in known:
        known = {**known, kind: _measured(experiment.execution, arms, device)}
        folder.write_micro_batches(known)
    return int(known[kind]["rows"])


def _measured(execution: Execution, arms: Arms, device: torch.device) -> dict[str, int | str]:
    """What is put on record: the rows, and what they follow from."""
    again = execution.activation_checkpointing
    by_arm = {key: _bytes_of_a_row(arm, device, again) for key, arm in arms.items()}
    scale, name = hungriest = max(by_arm, key=lambda key: by_arm[key])
    arm, per_row = arms[hungriest], by_arm[hungriest]
    fixed = COPIES_OF_PARAMETERS * FLOAT32 * sum(arm.parameters_by_role.values())
    budget = int(SHARE_OF_MEMORY * memory_bytes(device, execution))
    rows = largest_that_fits(budget - fixed, per_row, _batch_rows(arm))
    if rows == 0:
        raise ExperimentFileError(
            f"execution.micro_batch_rows: not one row of {scale}/{name} fits",
            expected=f"{(fixed + per_row) / 2**30:.1f} GiB",
            received=f"{budget / 2**30:.1f} GiB, {SHARE_OF_MEMORY:.0%} of what each worker has here",
            remedy="write activation_checkpointing = true, take fewer workers, or a device with more memory",
        )
    return {
        "rows": _that_runs(arm, device, rows, again),
        "arm": f"{scale}/{name}",
        "bytes_per_row": per_row,
        "bytes_without_rows": fixed,
        "budget_bytes": budget,
    }


def largest_that_fits(free_bytes: int, bytes_per_row: int, batch_rows: int) -> int:
    """The batch, halved (rounded up) until its rows fit; 0 where not even one does."""
    rows = batch_rows
    while rows > 1 and rows * bytes_per_row > free_bytes:
        rows = -(-rows // 2)
    return rows if rows * bytes_per_row <= free_bytes else 0


def memory_bytes(device: torch.device, execution: Execution) -> int:
    """Of one GPU what is free; of this machine what one worker can have of all there is."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info()[0]
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    workers = execution.workers or max(1, (os.cpu_count() or 1) // execution.threads)
    return pages * page_bytes // workers


def _batch_rows(arm: ArmAtScale) -> int:
    return arm.base.batch_tokens // arm.base.context_length


def _bytes_of_a_row(arm: ArmAtScale, device: torch.device, recompute: bool) -> int:
    """How much more a micro-batch of two rows holds at one time than one of a single row."""
    one, two = (peak_bytes(micro_batch(arm, device, rows, recompute), device) for rows in (1, 2))
    return max(1, two - one)


def _that_runs(arm: ArmAtScale, device: torch.device, rows: int, recompute: bool) -> int:
    """The rows, halved until an update on a GPU does not run out of memory."""
    while device.type == "cuda":
        try:
            micro_batch(arm, device, rows, recompute)()
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()
            if rows == 1:
                raise
            rows = -(-rows // 2)
        else:
            break
    return rows
