from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from paribus.seeds import unit_noise

Noise = Callable[..., Tensor]


@pytest.fixture(scope="session")
def noise() -> Noise:
    """Named float64 noise of a shape: noise("queries", 2, 24)."""

    def draw(name: str, *shape: int) -> Tensor:
        return torch.from_numpy(unit_noise(shape, "tests", "kernels", name)).double()

    return draw
