"""The recipe of the update in numbers. Torch-free."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Rate = Annotated[float, Field(gt=0.0)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class OptimiserConfig(BaseModel):
    """Muon for hidden matrices, AdamW for everything else, one learning rate per role."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    matrix_learning_rate: Rate = 0.02
    """Muon, before the shape factor sqrt(max(1, rows / columns))"""
    matrix_momentum: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.95
    """Muon's Nesterov momentum"""
    matrix_weight_decay: Annotated[float, Field(ge=0.0)] = 0.0
    """decoupled: w <- w (1 - learning rate * decay)"""
    embedding_learning_rate: Rate = 0.04
    """AdamW; the optimum of the plain arm at the demo's size lies between 0.04 and 0.08 (docs/results/LOG.md)"""
    gain_learning_rate: Rate = 0.01
    """AdamW, norm gains of the backbone, no decay"""
    depth_read_learning_rate: Rate = 0.005
    """AdamW, pseudo-queries and key gains, no decay. Untuned: prototypes show that it can matter more than the
    mechanism, so a verdict at the default says so"""
    scalar_learning_rate: Rate = 0.01
    """AdamW, learned scalars of a mechanism such as strengths, no decay. Untuned, like the rate of depth reads"""
    adam_beta1: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    """decay of AdamW's first moment"""
    adam_beta2: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.95
    """decay of AdamW's second moment"""
    adam_eps: Annotated[float, Field(gt=0.0)] = 1e-10
    """added outside AdamW's root"""


def at_rates(config: OptimiserConfig, factor: float) -> OptimiserConfig:
    """The recipe with every learning rate multiplied by `factor`."""
    rates = {name: value * factor for name, value in config.model_dump().items() if name.endswith("_learning_rate")}
    return config.model_copy(update=rates)


class ScheduleConfig(BaseModel):
    """Learning-rate multiplier as fractions of the run, the same for every group."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    warmup: Share = 0.05
    """share of the run in which the multiplier rises linearly from 0 to 1"""
    decay: Share = 0.4
    """share of the run, at its end, in which the multiplier falls linearly from 1 to `final`"""
    final: Share = 0.0
    """multiplier that the decay ends at"""
