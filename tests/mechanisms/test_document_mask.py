import torch

from paribus.mechanisms import resolve
from paribus.mechanisms.contract import Geometry, Seam


def test_a_token_attends_to_itself_and_to_earlier_tokens_of_its_own_document(geometry: Geometry):
    mask = resolve(Seam.MASK, {"name": "document"}, "here").build(geometry, 0)
    allowed = mask(torch.tensor([[0, 0, 1, 1, 2], [0, 0, 0, 0, 0]]))
    first = [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 0, 1]]
    assert allowed.dtype == torch.bool
    assert allowed[0].int().tolist() == first
    assert torch.equal(allowed[1], torch.ones(5, 5, dtype=torch.bool).tril())


def test_the_causal_mask_leaves_attention_its_fast_path(geometry: Geometry):
    assert resolve(Seam.MASK, None, "here").build(geometry, 0)(torch.zeros(1, 3, dtype=torch.long)) is None
