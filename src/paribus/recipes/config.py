"""What an experiment file says of the recipe that it starts from. Torch-free."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=1)]


class Derive(BaseModel):
    """One number, the depth, from which the preset's rules make a scale. What the file says beside it always wins, and
    rules that depend on such a value use it."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    depth: Count
    """layers; everything else follows from it"""
    aspect_ratio: Count = 64
    """width over depth, before the width is rounded up to whole heads"""
    tokens_per_parameter: Annotated[float, Field(gt=0.0, le=1e6)] = 12.0
    """training tokens for each scaling parameter: those of the hidden matrices and of the output head"""
    reference_aspect_ratio: Count = 64
    """of the model of depth 12 at which the preset's rates, batch and weight decay were measured; nanochat builds that
    model with the run's own aspect ratio, so that its --aspect-ratio 42 is 42 here as well"""
