"""Bytes of a checkpoint in closed form: parameters, and what the optimisers remember of each."""

import math
from typing import Literal

from paribus.mechanisms.contract import Tensors
from paribus.model.accounting.parameters import Mechanisms, tensors
from paribus.model.config import ModelConfig
from paribus.roles import Role

FLOAT32, BFLOAT16 = 4, 2
DIGEST = 8
"""the running digest of the batches, one int64"""
LOOKED_UP = (Role.EMBEDDING, Role.VALUE_EMBEDDING)
"""roles of the tables that a configuration may store in bfloat16, moments and all"""
MatrixUpdate = Literal["muon", "nanochat", "adamw"]


def checkpoint_bytes(config: ModelConfig, mechanisms: Mechanisms, matrix_update: MatrixUpdate = "muon") -> int:
    """Bytes of all tensors of a checkpoint once each parameter has been updated; `matrix_update` is the recipe's field.

    The file's list of names (some 100 bytes a tensor) and the JSON beside it come on top.
    """
    table_number = FLOAT32 if config.stored_tables == "float32" else BFLOAT16
    total = DIGEST
    for kind in tensors(config, mechanisms):
        number = table_number if kind.role in LOOKED_UP else FLOAT32
        size = math.prod(kind.shape) * number
        total += kind.copies * (size + _moment_bytes(kind, size, matrix_update))
    return total


def _moment_bytes(kind: Tensors, size: int, matrix_update: MatrixUpdate) -> int:
    """What an optimiser keeps of a tensor of so many bytes: Muon its momentum, nanochat's Muon also a variance for each
    place of the longer axis, AdamW two moments and a count of its updates. Of FIXED values nothing."""
    if kind.role is Role.FIXED:
        return 0
    if kind.role is not Role.MATRIX or matrix_update == "adamw":
        return 2 * size + FLOAT32
    return size + (FLOAT32 * max(kind.shape) if matrix_update == "nanochat" else 0)
