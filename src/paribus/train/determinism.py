"""Deterministic algorithms on or off for this process: the half of proof mode that belongs to torch."""

import torch


def set_deterministic(on: bool) -> None:
    """Require deterministic algorithms, or no longer; an operation that has none then raises RuntimeError.

    What `torch.use_deterministic_algorithms(on)` does, but for two things. That function also imports torch's compiler
    to tell it, which costs every process two seconds. And it has every tensor that is allocated without values filled
    with NaN, so that what is read before it was written is the same garbage every time: a pass over memory that here
    only finds what is written whole a moment later. Tests fill it and see no bit change.
    """
    torch.set_deterministic_debug_mode("error" if on else "default")
    fill_allocated_memory(False)


def require_mode(mode: str, device: str) -> None:
    """What a mode of `paribus.experiment.spec.Execution` requires on a kind of device: deterministic algorithms, except
    in fast mode on a GPU. On a CPU they cost a compiled graph nothing."""
    set_deterministic(mode == "proof" or device == "cpu")


def fill_allocated_memory(on: bool) -> None:
    """Whether, while deterministic algorithms are required, tensors without values are filled with NaN."""
    torch.utils.deterministic.fill_uninitialized_memory = on  # pyright: ignore[reportAttributeAccessIssue] - a property of the module
