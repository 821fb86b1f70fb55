import os
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from paribus.kernels import compiler
from paribus.seeds import unit_noise

Noise = Callable[..., Tensor]


@pytest.fixture(scope="session")
def noise() -> Noise:
    """Named float64 noise of a shape: noise("queries", 2, 24)."""

    def draw(name: str, *shape: int) -> Tensor:
        return torch.from_numpy(unit_noise(shape, "tests", "kernels", name)).double()

    return draw


INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""in the process that `test_triton.py` starts: there the kernels in Triton take tensors of the CPU"""


@pytest.fixture(params=["interpreted"] if INTERPRETED else ["compiled", "operators"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Every claim holds of all three implementations; float64 and tensors that are not dense take operators in each."""
    if request.param == "operators":
        with compiler.operators():
            yield request.param
    else:
        assert compiler.compiler() is not None, "where this runs a compiler is part of the machine"
        if request.param == "interpreted":
            from paribus.kernels import depth_read_triton

            monkeypatch.setattr(depth_read_triton, "PART", 4)  # several programs, the last of which is not full
        yield request.param
