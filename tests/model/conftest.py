from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from paribus.mechanisms import resolve
from paribus.mechanisms.contract import MechanismConfig, Seam
from paribus.model.backbone import Backbone
from paribus.model.build import build_model
from paribus.model.config import PrenormConfig

Arm = Mapping[str, Mapping[str, Any]]


@pytest.fixture(scope="session")
def config() -> PrenormConfig:
    return PrenormConfig(layers=3, width=24, head_width=8, mlp_width=40, vocabulary_size=37, context_length=16)


@pytest.fixture(scope="session")
def mechanisms_of() -> Callable[[Arm], dict[Seam, MechanismConfig]]:
    return lambda arm: {seam: resolve(seam, dict(arm[seam]) if seam in arm else None, seam) for seam in Seam}


@pytest.fixture(scope="session")
def build(
    config: PrenormConfig, mechanisms_of: Callable[[Arm], dict[Seam, MechanismConfig]]
) -> Callable[..., Backbone]:
    """A model of an arm: build(arm, dtype, stream, config)."""

    def model(
        arm: Arm,
        dtype: torch.dtype = torch.float32,
        stream: tuple[str | int, ...] = ("study", "S", 0),
        config: PrenormConfig = config,
    ) -> Backbone:
        return build_model(config, mechanisms_of(arm), stream, dtype)

    return model


@pytest.fixture(scope="session")
def tokens(config: PrenormConfig) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(1, config.vocabulary_size, (2, config.context_length), generator=generator)
