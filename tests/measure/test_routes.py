import numpy as np
import pytest
import torch
from torch import Tensor

from paribus.measure.probes import Scoring, counted
from paribus.measure.routes import depth_routes
from paribus.model.backbone import Backbone
from paribus.model.lawbench import LawBench
from paribus.train.step import Consumed

RD = {"routing": {"name": "role-decoupled", "blocks": 3}}


@pytest.fixture
def routed() -> tuple[Backbone, list[Scoring]]:
    """A model whose routes differ from token to token, and two batches; row 1 ends in three tokens of padding."""
    bench = LawBench()
    model = bench.model(RD)
    bench.disturb(model, "query", std=2.0)
    weight = torch.ones(bench.tokens.shape)
    weight[1, -3:] = 0.0
    whole = Consumed(bench.tokens, bench.targets, weight, bench.document)
    return model, [(whole.rows(0, 1), np.array([4])), (whole.rows(1, 2), np.array([0]))]


def test_a_kept_route_is_what_the_read_mixed_at_that_token(routed: tuple[Backbone, list[Scoring]]):
    model, batches = routed
    found = {(r.site, r.layer, r.role): r for r in depth_routes(model, batches, positions=7)}
    expected: dict[tuple[str, int, str], list[Tensor]] = {}
    for batch, _ in batches:
        keep = counted(batch.weight) > 0

        def tap(site: str, layer: int, keep: Tensor = keep, **tensors: Tensor) -> None:
            for name, tensor in tensors.items():
                if site.endswith("depth read") and name.startswith("weights of "):
                    key = (site, layer, name.removeprefix("weights of "))
                    expected.setdefault(key, []).append(tensor[keep])

        with torch.no_grad():
            model(batch.tokens, batch.document, tap)
    assert found.keys() == expected.keys()
    for key, route in found.items():
        every = torch.cat(expected[key]).numpy()
        assert len(every) == 11 + 8
        assert route.weights.dtype == np.float32
        assert np.array_equal(route.weights, every[route.positions])
    assert len({len(route.positions) for route in found.values()} | {7}) == 1


def test_positions_are_spread_over_the_documents_and_the_same_in_every_model(routed: tuple[Backbone, list[Scoring]]):
    model, batches = routed
    chosen = depth_routes(model, batches, positions=6)[0].positions
    assert chosen.tolist() == [0, 3, 6, 9, 12, 15]
    other = depth_routes(LawBench().model({"routing": {"name": "block-attnres", "blocks": 2}}), batches, positions=6)
    assert all(route.positions.tolist() == chosen.tolist() for route in other)


def test_every_counted_token_is_kept_where_there_are_fewer_than_asked_for(routed: tuple[Backbone, list[Scoring]]):
    model, batches = routed
    assert depth_routes(model, batches)[0].positions.tolist() == list(range(19))


def test_a_model_without_routes_keeps_none(routed: tuple[Backbone, list[Scoring]]):
    assert depth_routes(LawBench().model({}), routed[1]) == []
