"""What runs on the CPU of the tests runs where the studies run: every tensor on the model's device, and no operation
that CUDA refuses where algorithms have to be deterministic.

Both are shown without a GPU: fake tensors of the meta device refuse any tensor of another one, and the operations that
a model, its gradient, the diagnostics and the interventions call are compared with the list of those that are refused.
"""

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from paribus.mechanisms import interventions_of, modules, resolve
from paribus.mechanisms.contract import Diagnostic, Seam
from paribus.mechanisms.depth.diagnostics import expected_depth
from paribus.mechanisms.depth.reads import DepthRead
from paribus.mechanisms.exclusion.diagnostics import pair_sums
from paribus.mechanisms.laws import Arm, example_arms
from paribus.mechanisms.role_decoupled import UntyingResiduals
from paribus.model import tables
from paribus.model.backbone import Backbone
from paribus.model.build import abstract_model
from paribus.model.lawbench import LawBench

XSA = [
    {"name": "xsa", "strength": "learned", "initial_strength": 0.3},
    *({"name": f"xsa-{of}"} for of in ("random-direction", "wrong-token", "common-mode", "shrink")),
    {"name": "xsa-shrink", "through_factor": False},
]
DEPTH = [
    {"name": "role-decoupled", "blocks": 3, **fields}
    for fields in (
        {"routes": "q|k|v"},
        {"average": True},
        {"frozen_v": True, "frozen_qk": True},
        {"frozen_v_from": "parent"},
        {"untie_at": 0.5},
    )
]
ARMS: list[Arm] = [
    *(arm for _, arm in example_arms()),
    *({Seam.OUTPUT_MAP: table} for table in XSA),
    {Seam.VALUE_MAP: {"name": "value-embedding"}, Seam.OUTPUT_MAP: {"name": "xsa", "value": "embedding"}},
    {Seam.MASK: {"name": "diagonal-mask", "within_document": True}},
    {Seam.ROUTING: {"name": "block-attnres", "block_layers": 2}},
    *({Seam.ROUTING: table} for table in DEPTH),
]
BENCH = LawBench(layers=2, query_heads_per_kv_head=2)
REFUSED = {"cumsum", "cumsum_", "histc", "bincount", "kthvalue", "median", "put_", "scatter_reduce", "ctc_loss"}
"""operations for which CUDA has no deterministic algorithm (torch.use_deterministic_algorithms), of those that
arithmetic on sequences might call"""


class _Collected(dict[int, dict[str, Tensor]]):
    """A tap that keeps what each layer shows."""

    def __call__(self, site: str, layer: int, **tensors: Tensor) -> None:
        self.setdefault(layer, {}).update({f"{site}/{name}": t for name, t in tensors.items()})


class _Operations(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def diagnostics() -> Iterator[Diagnostic]:
    yield from {d.name: d for module in modules() for d in getattr(module, "DIAGNOSTICS", ())}.values()


def exercise(model: Backbone, tokens: Tensor, document: Tensor, seen: set[str]) -> None:
    """A forward and backward pass, every diagnostic of what was tapped, and one variant of every intervention."""
    collected = _Collected()
    model(tokens, document, collected).float().square().mean().backward()
    weight = torch.ones_like(tokens, dtype=torch.float32)
    with torch.no_grad():
        for tapped in collected.values():
            for diagnostic in diagnostics():
                own: Mapping[str, Tensor] = {
                    k: t for k, t in tapped.items() if k.rpartition("/")[0] in diagnostic.sites
                }
                if {k.rpartition("/")[0] for k in own} == set(diagnostic.sites) and diagnostic.observe(own, weight):
                    seen.add(diagnostic.name)
        for module in modules():
            for intervention in interventions_of(module):
                for context in list(intervention.variants(model).values())[:1]:
                    with context():
                        model(tokens, document)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeTensorMode]:
    """Tensors of the meta device that refuse those of another. Rotary phases are kept by device, and forgotten here."""
    # Autocast, which a depth read switches off, does not know the meta device.
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    tables.forget()
    yield FakeTensorMode()
    tables.forget()


def untied(model: Backbone) -> Backbone:
    """A fake tensor has no value that could say whether a model is untied."""
    if isinstance(model.routing, UntyingResiduals):
        model.routing.announced = True
        for read in model.routing.modules():
            if isinstance(read, DepthRead):
                read.tied = False
    return model


def test_every_mechanism_diagnostic_and_intervention_keeps_to_the_models_device(elsewhere: FakeTensorMode):
    seen: set[str] = set()
    with elsewhere:
        tokens, document = (torch.empty(t.shape, dtype=t.dtype, device="meta") for t in (BENCH.tokens, BENCH.document))
        for arm in ARMS:
            mechanisms = {seam: resolve(seam, dict(arm[seam]) if seam in arm else None, "here") for seam in Seam}
            exercise(untied(abstract_model(BENCH.config, mechanisms)), tokens, document, seen)
    assert seen == {diagnostic.name for diagnostic in diagnostics()}


def test_a_tensor_that_forgets_the_device_is_caught(elsewhere: FakeTensorMode, monkeypatch: pytest.MonkeyPatch):
    linspace = torch.linspace

    def forgetful(*arguments: Any, device: torch.device, **keywords: Any) -> Tensor:
        del device
        return linspace(*arguments, **keywords)

    with elsewhere:
        p = torch.empty(2, 3, 4, device="meta")
        assert expected_depth(p).device.type == "meta"
        monkeypatch.setattr(torch, "linspace", forgetful)
        with pytest.raises(RuntimeError, match="device"):
            expected_depth(p)


def test_no_mechanism_diagnostic_or_intervention_calls_what_cuda_refuses_when_deterministic():
    called, seen = _Operations(), set[str]()
    for arm in ARMS:
        with called:
            exercise(untied(BENCH.model(arm)), BENCH.tokens, BENCH.document, seen)
    assert called.names & REFUSED == set()
    assert {"cat", "mul", "gather"} <= called.names


def test_the_operations_of_pair_sums_are_seen():
    with _Operations() as called:
        torch.ones(3).cumsum(0)
    assert called.names & REFUSED == {"cumsum"}
    with _Operations() as called:
        sums, count = pair_sums(torch.ones(1, 5, 2, 1, 3), torch.ones(1, 5))
    assert called.names & REFUSED == set()
    assert torch.equal(count, torch.arange(5.0, dtype=torch.float64)[None])
    assert torch.allclose(sums, count[..., None].expand(1, 5, 2))
