from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import nn

from paribus.data.frozen import TokenFile
from paribus.data.windows import windows
from paribus.errors import ParibusError
from paribus.measure.interventions import digest_of, intervene
from paribus.measure.likelihood import document_nats
from paribus.measure.probes import Scoring
from paribus.mechanisms.contract import Intervention
from paribus.model.prenorm import Prenorm
from paribus.train.step import Consumed


@pytest.fixture(scope="module")
def batches(held_out: TokenFile) -> list[Scoring]:
    found = windows(held_out, 16).batches(64)
    return [(Consumed.from_batch(batch, torch.device("cpu")), batch.document_row) for batch in found]


@contextmanager
def scaled(model: nn.Module, factor: float, *, restore: bool = True) -> Iterator[None]:
    """The output norm's gain times `factor`."""
    gain = model.get_parameter("output_norm.gain")
    before = gain.detach().clone()
    with torch.no_grad():
        gain.mul_(factor)
    try:
        yield
    finally:
        if restore:
            with torch.no_grad():
                gain.copy_(before)


def intervention(variants: Callable[[nn.Module], Mapping[str, Callable]], name: str = "scaled") -> Intervention:
    return Intervention(name=name, title="", sentence="", variants=variants)


SCALED = intervention(lambda m: {"halved": lambda: scaled(m, 0.5), "doubled": lambda: scaled(m, 2.0)})


def test_every_variant_is_scored_document_by_document(model: Prenorm, batches: list[Scoring], held_out: TokenFile):
    count = len(held_out.documents)
    found = intervene(model, batches, count, [SCALED])
    assert [(change.intervention, change.variant) for change in found] == [("scaled", "halved"), ("scaled", "doubled")]
    plain = document_nats(model, batches, count)
    for change, factor in zip(found, (0.5, 2.0), strict=True):
        assert np.array_equal(change.nats_before, plain)
        with scaled(model, factor):
            assert np.array_equal(change.nats_after, document_nats(model, batches, count))
        assert (change.nats_after != plain).all()


def test_the_model_is_bit_for_bit_what_it_was(model: Prenorm, batches: list[Scoring], held_out: TokenFile):
    before = digest_of(model)
    intervene(model, batches, len(held_out.documents), [SCALED])
    assert digest_of(model) == before
    with scaled(model, 1 + 2.0**-20):
        assert digest_of(model) != before


def test_one_that_does_not_apply_is_passed_over_and_costs_nothing(batches: list[Scoring]):
    class Unscored(nn.Module):
        def forward(self) -> None:
            raise AssertionError("was run")

    assert intervene(Unscored(), batches, 1, [intervention(lambda _: {})]) == []
    assert intervene(Unscored(), batches, 1, []) == []


def test_one_that_leaves_a_parameter_changed_is_named(model: Prenorm, batches: list[Scoring], held_out: TokenFile):
    forgets = intervention(lambda m: {"kept": lambda: scaled(m, 0.5, restore=False)}, "forgetful")
    try:
        with pytest.raises(ParibusError, match=r"'forgetful' did not leave the model(.|\n)*after 'kept'"):
            intervene(model, batches, len(held_out.documents), [forgets])
    finally:
        with torch.no_grad():
            model.get_parameter("output_norm.gain").mul_(2.0)


def test_one_that_leaves_an_attribute_changed_is_named(model: Prenorm, batches: list[Scoring], held_out: TokenFile):
    eps = model.output_norm.eps

    @contextmanager
    def forgets() -> Iterator[None]:
        model.output_norm.eps = 1.0
        yield

    try:
        with pytest.raises(ParibusError, match="'forgetful' did not leave the model"):
            intervene(model, batches, len(held_out.documents), [intervention(lambda _: {"kept": forgets}, "forgetful")])
    finally:
        model.output_norm.eps = eps
