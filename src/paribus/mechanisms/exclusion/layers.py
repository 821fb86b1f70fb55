"""In which layers an output map acts: the choice that Exclusive Self-Attention and each of its controls offers."""

from abc import abstractmethod
from typing import Annotated

from torch import nn

from paribus.mechanisms.contract import Equivalence, Geometry, Kept, MechanismConfig, Seam, Tensors
from paribus.mechanisms.exclusion.layer_choice import layer_choice, outside
from paribus.mechanisms.standard import UnchangedOutput

LAST = "last:"
WITHOUT = "without-value-embedding"


class OnChosenLayers(MechanismConfig):
    """An output map in some layers; the others keep the standard path, bit for bit."""

    layers: Annotated[str | tuple[int, ...], layer_choice("all", WITHOUT, last=True)] = "all"
    """"all", "last:N", "without-value-embedding", or a list of layer indices from 0"""

    def chosen_layers(self, geometry: Geometry) -> frozenset[int]:
        everywhere = frozenset(range(geometry.layers))
        if self.layers == "all":
            return everywhere
        if self.layers == WITHOUT:
            return everywhere - geometry.value_embedding_layers
        if isinstance(self.layers, str):
            return frozenset(range(geometry.layers - int(self.layers.removeprefix(LAST)), geometry.layers))
        return frozenset(self.layers)

    def validate_for(self, geometry: Geometry) -> str | None:
        if self.layers == WITHOUT and not geometry.value_embedding_layers:
            return f'layers = "{WITHOUT}": this backbone has no value embeddings; "all" means the same layers here'
        if isinstance(self.layers, str) and self.layers.startswith(LAST):
            asked, count = int(self.layers.removeprefix(LAST)), geometry.layers
            if asked > count:
                return (
                    f'layers = "{self.layers}" asks for {asked} of {count} layers: valid are "{LAST}1" to '
                    f'"{LAST}{count}" (layer indices are 0 to {count - 1})'
                )
        chosen = self.chosen_layers(geometry)
        if not chosen:
            return f'layers = "{WITHOUT}" chooses no layer: every layer of this backbone has value embeddings'
        return outside(chosen, geometry.layers)

    def active_layers(self, geometry: Geometry) -> frozenset[int]:
        """Layers whose map is more than the identity."""
        return self.chosen_layers(geometry)

    def build(self, geometry: Geometry, layer: int) -> nn.Module:
        return self.map_for(geometry) if layer in self.active_layers(geometry) else UnchangedOutput()

    @abstractmethod
    def map_for(self, geometry: Geometry) -> nn.Module:
        """The map of one layer that is active."""

    def equivalences(self) -> tuple[Equivalence, ...]:
        return (
            Equivalence(
                claim=f"{self.name} at strength 0 trains like standard attention",
                arm={Seam.OUTPUT_MAP: {"name": self.name, "strength": 0.0}},
                twin={},
                perturbed={Seam.OUTPUT_MAP: {"name": self.name, "strength": 0.001}},
                perturbation="strength 0.001",
                why="strength 0 is built as the standard output map",
            ),
        )

    def flops_per_token(self, geometry: Geometry) -> float:
        return len(self.active_layers(geometry)) * self.layer_flops_per_token(geometry)

    @abstractmethod
    def layer_flops_per_token(self, geometry: Geometry) -> float:
        """Work on whole heads in one active layer; numbers of one a head, comparisons and moves are left out."""

    def parameters(self, geometry: Geometry) -> tuple[Tensors, ...]:
        of_layer = self.layer_parameters(geometry)
        return tuple(t._replace(copies=t.copies * len(self.active_layers(geometry))) for t in of_layer)

    def layer_parameters(self, geometry: Geometry) -> tuple[Tensors, ...]:
        """Parameters of one active layer."""
        del geometry
        return ()

    def kept_for_backward(self, geometry: Geometry, number: int) -> Kept:
        return Kept(dict.fromkeys(self.active_layers(geometry), self.layer_bytes_per_token(geometry, number)))

    @abstractmethod
    def layer_bytes_per_token(self, geometry: Geometry, number: int) -> float:
        """What one active layer keeps for the backward pass beside y and the aggregated value, which attention keeps:
        z, which the output projection keeps, and what z is made of. y, values and z have `number` bytes a number."""


def exclusion_flops(geometry: Geometry) -> float:
    """Of one `exclude_self`: per query head element a dot product and a scaled subtraction (4), per value element two
    scalings and a square norm (4)."""
    return float((4 * geometry.heads + 4 * geometry.kv_heads) * geometry.head_width)


def exclusion_bytes(geometry: Geometry, number: int) -> float:
    """Kept of one `exclude_self` of a value that is kept already: z."""
    return float(number * geometry.heads * geometry.head_width)
