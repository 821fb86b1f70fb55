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


@pytest.fixture(params=["compiled", "operators"])
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every claim holds of both implementations; float64 and tensors that are not dense take operators in either."""
    if request.param == "operators":
        with compiler.operators():
            yield request.param
    else:
        assert compiler.compiler() is not None, "where this runs a compiler is part of the machine"
        yield request.param
