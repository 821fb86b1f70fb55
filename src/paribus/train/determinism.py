"""Deterministic algorithms on or off for this process: the half of proof mode that belongs to torch."""

import torch


def set_deterministic(on: bool) -> None:
    """Require deterministic algorithms, or no longer; an operation that has none then raises RuntimeError.

    What `torch.use_deterministic_algorithms(on)` does, but for one thing: that function also imports torch's compiler
    to tell it, which costs every process two seconds, and nothing here compiles.
    """
    torch.set_deterministic_debug_mode("error" if on else "default")
