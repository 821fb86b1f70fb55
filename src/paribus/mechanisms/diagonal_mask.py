"""The diagonal mask: no token attends to itself, except where it would attend to nothing else.

    allowed (query i, key j): j < i, and j = i for the first token of the row (or of its document)

A control for Exclusive Self-Attention: it takes away attention to oneself, one of the two sources of cos(y, v), and
leaves the other, what values have in common. It is *not* norm-matched: the softmax renormalises, so the weight that a
token gave itself goes to others, and the first token keeps its own value.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from paribus.mechanisms.contract import Bench, Geometry, Law, MechanismConfig, Seam, Tensors, largest
from paribus.mechanisms.exclusion.attention_mass import attention_masses
from paribus.mechanisms.exclusion.diagnostics import EXCLUSIVE_DIAGNOSTICS
from paribus.shapes import AllowedPairs, Documents, PerHead


class NotOneself(nn.Module):
    def __init__(self, *, within_document: bool) -> None:
        super().__init__()
        self.within_document = within_document

    def forward(self, document: Documents) -> AllowedPairs:
        time = document.shape[-1]
        earlier = torch.ones(time, time, dtype=torch.bool, device=document.device).tril(-1)
        same = document[:, :, None] == document[:, None, :]
        allowed = earlier & same if self.within_document else earlier.expand_as(same)
        alone = ~allowed.any(-1, keepdim=True)
        return allowed | (alone & torch.eye(time, dtype=torch.bool, device=document.device))


class DiagonalMask(MechanismConfig):
    """Attend to others only. A control that is not norm-matched: the softmax renormalises over the other tokens."""

    name = "diagonal-mask"
    seam = Seam.MASK

    within_document: bool = False
    """True: a document mask as well, and the first token of each document attends to itself; False: of each row"""

    def build(self, geometry: Geometry, layer: int) -> nn.Module:
        del geometry, layer
        return NotOneself(within_document=self.within_document)

    def parameters(self, geometry: Geometry) -> tuple[Tensors, ...]:
        del geometry
        return ()


def _diagonal_masses(bench: Bench, mask: Mapping[str, Any]) -> list[PerHead]:
    """Each layer's attention weight of every token on itself."""
    found: list[PerHead] = []

    def tap(site: str, layer: int, **tensors: torch.Tensor) -> None:
        del layer
        if site == "attention":
            found.append(attention_masses(tensors["q"], tensors["k"], tensors.get("allowed")).itself)

    with torch.no_grad():
        bench.logits(bench.model({Seam.MASK: mask}), tap=tap)
    return found


def _nothing_on_the_diagonal(bench: Bench, perturbed: bool) -> float:
    found = []
    for within, others in ((False, "causal"), (True, "document")):
        starts = [(0, 0), (1, 0), *([(0, 5)] if within else [])]  # row 0's second document starts at 5
        own = {"name": "diagonal-mask", "within_document": within}
        for mass in _diagonal_masses(bench, {"name": others} if perturbed else own):
            for start in starts:
                found.append(float((mass[start] - 1).abs().max()))
                mass[start] = 0.0
            found.append(float(mass.abs().max()))
    return largest(found)


def _document_boundary(bench: Bench, perturbed: bool) -> float:
    model = bench.model({Seam.MASK: {"name": "diagonal-mask", "within_document": not perturbed}})
    tokens = bench.tokens
    with torch.no_grad():
        before = bench.logits(model)[0, 5:]  # row 0's second document
        kept = tokens[0, 2].clone()
        tokens[0, 2] = kept % 29 + 1
        after = bench.logits(model)[0, 5:]
        tokens[0, 2] = kept
    return float((after - before).abs().max())


DIAGNOSTICS = EXCLUSIVE_DIAGNOSTICS
LAWS = (
    Law(
        claim="no token attends to itself, except the first of a row (or document), which attends to nothing else",
        measure=_nothing_on_the_diagonal,
        perturbation="the mask that allows the diagonal",
        bound=0.0,
        why="a forbidden pair has score -inf and weight exactly zero; a single allowed one has weight exactly one",
    ),
    Law(
        claim="within_document: a token changes no logit of the next document",
        measure=_document_boundary,
        perturbation="within_document = false",
        bound=0.0,
        why="masked pairs have weight exactly zero",
    ),
)
