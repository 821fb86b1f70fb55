"""Arms that start from what another arm of the study has learned: who gives, who takes, in which order they train.

A mechanism that keeps another model's tensors fixed (a route that was learned elsewhere, say) names that arm as its
donor. The donor of a cell is the cell of that arm at the same scale and seed, so that a donor is replicated like
everything else; its digest is part of the taker's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from paribus.errors import ExperimentFileError, GateError, nearest
from paribus.mechanisms.contract import Geometry, MechanismConfig, Seam
from paribus.roles import Role, declarations

Donors = Mapping[Seam, str]
"""the arm whose tensors each seam's mechanism takes"""


@dataclass(frozen=True)
class Slot:
    """One place of a model that a mechanism fills: the routing, or an output map of one layer, for instance."""

    prefix: str
    """of the qualified names of the parameters inside it: "routing.", "layers.0.attention.mask.", ..."""
    layer: int
    """-1 where it serves the whole model"""


def slots(seam: Seam, layers: int) -> list[Slot]:
    """Where the modules of a seam lie in a model."""
    if seam is Seam.ROUTING:
        return [Slot("routing.", -1)]
    return [Slot(f"layers.{layer}.attention.{seam}.", layer) for layer in range(layers)]


def inside(slot: Slot, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a slot by their names inside it."""
    return {name.removeprefix(slot.prefix): t for name, t in tensors.items() if name.startswith(slot.prefix)}


def declared_donors(
    arm: str, configs: Mapping[Seam, MechanismConfig], where: Mapping[Seam, str], arms: Mapping[str, Any]
) -> Donors:
    """The donors that an arm's mechanisms name. ExperimentFileError where one is no other arm of the file."""
    found = {seam: donor for seam, config in configs.items() if (donor := config.donor()) is not None}
    for seam, donor in found.items():
        if donor not in arms or donor == arm:
            raise ExperimentFileError(
                f"{where[seam]}: its donor is " + ("the arm itself" if donor == arm else "no arm of this file"),
                expected="another arm: " + ", ".join(name for name in arms if name != arm),
                received=f"'{donor}'",
                remedy=nearest(donor, [name for name in arms if name != arm]),
            )
    return found


def donors_first(donors: Mapping[str, Donors]) -> list[str]:
    """The arms, each after its donors, otherwise in the order given. ExperimentFileError where donors form a circle."""
    ordered: list[str] = []

    def place(arm: str, waiting: tuple[str, ...]) -> None:
        if arm in waiting:
            circle = [*waiting[waiting.index(arm) :], arm]
            raise ExperimentFileError(
                f"arms.{arm}: donors form a circle",
                expected="a donor that can be trained first",
                received=" takes from ".join(circle),
                remedy="let one of them start on its own",
            )
        if arm not in ordered:
            for donor in donors[arm].values():
                place(donor, (*waiting, arm))
            ordered.append(arm)

    for arm in donors:
        place(arm, ())
    return ordered


def require_tensors(
    where: str, donor: str, config: MechanismConfig, geometry: Geometry, donor_shapes: Mapping[str, tuple[int, ...]]
) -> None:
    """Take zeros of the donor's shapes: a donor without the right tensors is refused before anything is trained."""
    for slot in slots(config.seam, geometry.layers):
        own = {name: shape for name, shape in donor_shapes.items() if name.startswith(slot.prefix)}
        zeros = inside(slot, {name: torch.zeros(shape) for name, shape in own.items()})
        try:
            with torch.no_grad():
                config.adopt(config.build(geometry, slot.layer), zeros)
        except ExperimentFileError as error:
            raise ExperimentFileError(
                f"{where}: {error.what}", expected=error.expected, received=error.received, remedy=error.remedy
            ) from None
        except (KeyError, RuntimeError, AttributeError) as error:
            raise ExperimentFileError(
                f"{where}: its donor '{donor}' does not have the tensors that '{config.name}' takes",
                expected="an arm that learns them, with the same shapes",
                received=", ".join(sorted(zeros)[:5]) or f"nothing at '{slot.prefix.removesuffix('.')}'",
                remedy=f"name another arm ({type(error).__name__}: {error})",
            ) from None


def adopt(
    model: nn.Module, configs: Mapping[Seam, MechanismConfig], given: Mapping[Seam, Mapping[str, Tensor]]
) -> None:
    """Let the mechanisms take from their donors' final tensors, given by seam under their names in the whole model.

    GateError where that touches anything but parameters of role `fixed`: what an arm trains is drawn, never inherited.
    """
    roles = {name: declaration.role for name, declaration in declarations(model).items()}
    before = {name: p.detach().clone() for name, p in model.named_parameters() if roles[name] is not Role.FIXED}
    layers = len(cast(nn.ModuleList, model.get_submodule("layers")))
    with torch.no_grad():
        for seam, tensors in given.items():
            for slot in slots(seam, layers):
                configs[seam].adopt(model.get_submodule(slot.prefix.removesuffix(".")), inside(slot, tensors))
    changed = [name for name, value in before.items() if not torch.equal(model.get_parameter(name), value)]
    if changed:
        raise GateError(
            f"taking from a donor changed '{changed[0]}', which is trained",
            expected=f"parameters of role '{Role.FIXED}' only",
            received=", ".join(changed[:5]),
            remedy="declare what is taken as fixed, or do not take it",
        )
