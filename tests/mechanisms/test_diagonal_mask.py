import pytest
import torch

from paribus.errors import ExperimentFileError
from paribus.mechanisms import resolve
from paribus.mechanisms.contract import Geometry, Seam
from paribus.mechanisms.laws import universal
from paribus.model.lawbench import LawBench

DOCUMENT = torch.tensor([[0, 0, 1, 1, 2], [0, 0, 0, 0, 0]])
CAUSAL = torch.ones(5, 5, dtype=torch.bool).tril()


def allowed(geometry: Geometry, *, within_document: bool) -> torch.Tensor:
    table = {"name": "diagonal-mask", "within_document": within_document}
    return resolve(Seam.MASK, table, "here").build(geometry, 0)(DOCUMENT)


def test_every_token_attends_to_all_earlier_ones_and_only_the_rows_first_to_itself(geometry: Geometry):
    expected = [[1, 0, 0, 0, 0], [1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0]]
    found = allowed(geometry, within_document=False)
    assert found.dtype == torch.bool
    assert all(row.int().tolist() == expected for row in found)


def test_within_documents_the_first_of_each_document_attends_to_itself_and_nobody_looks_across(geometry: Geometry):
    found = allowed(geometry, within_document=True)
    expected = [[1, 0, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 1]]
    assert found[0].int().tolist() == expected
    assert torch.equal(found[1], allowed(geometry, within_document=False)[1])


@pytest.mark.parametrize("within_document", [False, True])
def test_nobody_attends_to_nothing_or_ahead(geometry: Geometry, within_document: bool):
    found = allowed(geometry, within_document=within_document)
    assert found.any(-1).all()
    assert not (found & ~CAUSAL).any()


def test_universal_laws_hold_within_documents_too(bench: LawBench):
    for law in universal({"mask": {"name": "diagonal-mask", "within_document": True}}):
        assert law.measure(bench, False) <= law.bound


def test_it_says_that_it_is_not_norm_matched():
    docstring = type(resolve(Seam.MASK, {"name": "diagonal-mask"}, "here")).__doc__
    assert docstring is not None
    assert "not norm-matched" in docstring


def test_a_choice_that_is_no_truth_value_is_refused():
    with pytest.raises(ExperimentFileError, match=r"here\.within_document"):
        resolve(Seam.MASK, {"name": "diagonal-mask", "within_document": 1}, "here")
