"""The perturbed twin of a cell: one shared tensor changed by a millionth, everything else the same.

One changed bit grows like a new seed (Summers and Dinneen 2021, arXiv 2103.04514), so twins show how far two runs part
that nobody would call different: the floor of the standard deviation of a paired difference.
"""

import torch
from torch import nn

from paribus.roles import Role, declarations
from paribus.seeds import unit_noise

PERTURBED_ROLE = Role.EMBEDDING
"""of the tensor that is changed: every arm has it, and every later number depends on it"""
RELATIVE_CHANGE = 1e-6
"""of each value: about 8 units in the last place of a float32, so that rounding cannot undo it"""


def perturb(model: nn.Module, key: tuple[str, str, int]) -> str:
    """Multiply each value of the token embedding by 1 + 1e-6 n with n of unit variance; return the tensor's name.

    `key` is (study, scale, seed), as for initial values; the change has a stream of its own.
    """
    found = declarations(model)
    name = next(name for name, declaration in found.items() if declaration.role is PERTURBED_ROLE)
    parameter = model.get_parameter(name)
    noise = torch.from_numpy(unit_noise(tuple(parameter.shape), *key, "twin", name))
    with torch.no_grad():
        parameter.mul_(1 + RELATIVE_CHANGE * noise)
    return name
