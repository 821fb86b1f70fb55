"""Attention that does not cross a document boundary inside a packed row.

Rows are cut from a stream of documents, so a row may hold several. With this mask a token attends to itself and to
earlier tokens of its own document only. Positions keep counting across the row (rotary phases are relative).
"""

import torch
from torch import nn

from paribus.mechanisms.contract import Geometry, MechanismConfig, Seam, Tensors
from paribus.shapes import AllowedPairs, Documents


class SameDocument(nn.Module):
    def forward(self, document: Documents) -> AllowedPairs:
        time = document.shape[-1]
        causal = torch.ones(time, time, dtype=torch.bool, device=document.device).tril()
        return (document[:, :, None] == document[:, None, :]) & causal


class DocumentMask(MechanismConfig):
    """Attend within the document."""

    name = "document"
    seam = Seam.MASK

    def build(self, geometry: Geometry, layer: int) -> nn.Module:
        del geometry, layer
        return SameDocument()

    def parameters(self, geometry: Geometry) -> tuple[Tensors, ...]:
        del geometry
        return ()
