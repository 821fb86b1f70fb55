from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from paribus.model.backbone import Backbone
from paribus.model.lawbench import LawBench
from paribus.seeds import unit_noise


@pytest.fixture(scope="session")
def bench() -> LawBench:
    return LawBench()


@pytest.fixture
def role_decoupled(bench: LawBench) -> Backbone:
    return bench.model({"routing": {"name": "role-decoupled", "blocks": 3}})


@pytest.fixture(scope="session")
def matrix() -> Callable[..., Tensor]:
    """A named random matrix of the given singular values: matrix("name", rows, columns, values), float32."""

    def draw(name: str, rows: int, columns: int, values: Tensor) -> Tensor:
        left, right = (
            torch.linalg.qr(torch.from_numpy(unit_noise((n, n), "tests", "optim", name, side)).double())[0]
            for n, side in ((rows, "left"), (columns, "right"))
        )
        rank = min(rows, columns)
        return (left[:, :rank] @ torch.diag(values.double()) @ right[:, :rank].T).float()

    return draw
