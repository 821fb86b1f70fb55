"""What every table of an experiment file is: strict, frozen, explained field by field. Torch-free."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=60)]
Positive = Annotated[int, Field(ge=1)]
Effect = Annotated[float, Field(gt=0.0)]


class Table(BaseModel):
    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )
