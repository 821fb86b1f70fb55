"""Every law of every mechanism in the registry holds, and its perturbation breaks it."""

import re
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from paribus.mechanisms import IDENTITY
from paribus.mechanisms.contract import Geometry, Law, MechanismConfig, Reads, Seam, Site, Tap, Values
from paribus.mechanisms.laws import (
    ROW,
    Arm,
    Located,
    UniversalLaw,
    all_laws,
    causality,
    example_arms,
    rows_apart,
    universal,
)
from paribus.mechanisms.standard import SerialResidual
from paribus.model.lawbench import TIME, LawBench
from paribus.roles import DeclaredModule, Init, Role, declarations, initialise
from paribus.shapes import Documents, GroupedHeads, GroupValues, Stream

BenchOf = Callable[[str, int, int], LawBench]
UNIVERSAL_CLAIMS = {law.claim for law in universal({})}


def laws() -> Iterator[tuple[str, str, int, Law]]:
    """(subject, backbone, query heads that share a value, law): what modules declare and what every mechanism obeys.

    What output maps obey they obey under grouped queries too.
    """
    for subject, law in all_laws():
        for backbone in law.backbones:
            yield subject, backbone, 1, law
    for name, arm in example_arms():
        for law in universal(arm) if Seam.OUTPUT_MAP in arm else ():
            for backbone in law.backbones:
                yield f"{name} of grouped queries", backbone, 2, law


def readable(subject: str, backbone: str, law: Law) -> str:
    return "-".join(re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_") for text in (subject, backbone, law.claim))


BOUNDARY = "with the document mask on, a token changes no logit of the next document"


def row_of(law: Law) -> int:
    return ROW if isinstance(law, UniversalLaw) else TIME


LAWS = [
    pytest.param(backbone, group, law, id=readable(subject, backbone, law)) for subject, backbone, group, law in laws()
]


@pytest.mark.parametrize(("backbone", "group", "law"), LAWS)
def test_the_law_holds(backbone: str, group: int, law: Law, bench_of: BenchOf):
    assert law.measure(bench_of(backbone, group, row_of(law)), False) <= law.bound


@pytest.mark.parametrize(("backbone", "group", "law"), LAWS)
def test_the_perturbation_breaks_the_law(backbone: str, group: int, law: Law, bench_of: BenchOf):
    assert law.measure(bench_of(backbone, group, row_of(law)), True) > law.bound


def test_the_grouped_bench_has_two_query_heads_for_each_key_value_head():
    config = LawBench(query_heads_per_kv_head=2).config
    assert (config.heads, config.kv_heads, config.head_width) == (4, 2, 8)


def test_wrapping_the_output_maps_reaches_every_layer_once():
    bench, wrapped = LawBench(), []

    def wrapper(inner: nn.Module) -> nn.Module:
        wrapped.append(inner)
        return nn.Sequential(inner)

    model = bench.model({})
    bench.wrap_output_maps(model, wrapper)
    assert len(wrapped) == bench.config.layers
    assert sum(isinstance(module, nn.Sequential) for module in model.modules()) == bench.config.layers


@pytest.mark.parametrize(("table", "named"), [({"name": "document"}, False), ({"name": "diagonal-mask"}, True)])
def test_the_boundary_law_says_whose_mask_it_takes_away(table: dict[str, str], named: bool):
    claim = next(law.claim for law in universal({"mask": table}) if "document mask" in law.claim)
    assert ("in place of the arm's 'diagonal-mask'" in claim) is named


def test_every_mechanism_outside_the_standard_arm_is_under_the_universal_laws():
    assert {name for name, _ in example_arms()} >= {"xsa", "block-attnres", "role-decoupled", "document"}
    assert not {name for name, _ in example_arms()} & set(IDENTITY.values())


# Mechanisms that are wrong on purpose. Each must be caught by the one law that names its fault.


def next_value(v: GroupValues) -> GroupValues:
    return functional.pad(v[:, 1:], (0, 0, 0, 0, 0, 0, 0, 1))


class _Foresight(nn.Module):
    def forward(self, y: GroupedHeads, values: Values, document: Documents) -> GroupedHeads:
        del document
        return y + 1e-3 * next_value(values.aggregated)


class LooksAhead(MechanismConfig):
    name = "looks-ahead"
    seam = Seam.OUTPUT_MAP

    def build(self, geometry: Geometry, layer: int) -> nn.Module:
        del geometry, layer
        return _Foresight()


class _ReadsOtherwiseWhenWatched(SerialResidual):
    def read(self, memory: Stream, layer: int, site: Site, tap: Tap | None) -> Reads:
        reads = super().read(memory, layer, site, tap)
        return reads if tap is None else Reads.shared(reads.q + 1e-3)


class ShyOfTaps(MechanismConfig):
    name = "shy-of-taps"
    seam = Seam.ROUTING

    def build(self, geometry: Geometry, layer: int) -> nn.Module:
        del layer
        return _ReadsOtherwiseWhenWatched(geometry.layers)


class _Scale(DeclaredModule):
    """A map that does nothing until its parameter has left zero."""

    def __init__(self, head_width: int, *, ahead: bool) -> None:
        super().__init__()
        self.declare("scale", (head_width,), Role.GAIN, Init())
        self.ahead = ahead

    def forward(self, y: GroupedHeads, values: Values, document: Documents) -> GroupedHeads:
        del document
        v = values.aggregated
        return y + self.get_parameter("scale") * (next_value(v) if self.ahead else v)


class Learned(MechanismConfig):
    """Correct: adds a parameter and nothing else."""

    name = "learned"
    seam = Seam.OUTPUT_MAP
    ahead: bool = False

    def build(self, geometry: Geometry, layer: int) -> nn.Module:
        del layer
        return _Scale(geometry.head_width, ahead=self.ahead)


class _NoNumber(nn.Module):
    def forward(self, y: GroupedHeads, values: Values, document: Documents) -> GroupedHeads:
        del values, document
        return y * torch.nan


class NotANumber(MechanismConfig):
    name = "not-a-number"
    seam = Seam.OUTPUT_MAP

    def build(self, geometry: Geometry, layer: int) -> nn.Module:
        del geometry, layer
        return _NoNumber()


class _LooksFarAhead(nn.Module):
    def __init__(self, distance: int) -> None:
        super().__init__()
        self.distance = distance

    def forward(self, y: GroupedHeads, values: Values, document: Documents) -> GroupedHeads:
        del document
        ahead = torch.zeros_like(y)
        ahead[:, : -self.distance] = values.aggregated[:, self.distance :]
        return y + 0.5 * ahead


class LooksFarAhead(MechanismConfig):
    name = "looks-far-ahead"
    seam = Seam.OUTPUT_MAP
    distance: int

    def build(self, geometry: Geometry, layer: int) -> nn.Module:
        del geometry, layer
        return _LooksFarAhead(self.distance)


class _LessTheBatchMean(nn.Module):
    def forward(self, y: GroupedHeads, values: Values, document: Documents) -> GroupedHeads:
        del document
        return y - values.aggregated.mean(0, keepdim=True)


class LessTheBatchMean(MechanismConfig):
    name = "less-the-batch-mean"
    seam = Seam.OUTPUT_MAP

    def build(self, geometry: Geometry, layer: int) -> nn.Module:
        del geometry, layer
        return _LessTheBatchMean()


def broken_laws(arm: Arm, time: int = TIME) -> set[str]:
    bench = LawBench(time=time)
    return {law.claim for law in universal(arm) if not law.measure(bench, False) <= law.bound}


@pytest.mark.parametrize(
    ("arm", "broken"),
    [
        ({"output_map": {"name": "looks-ahead"}}, {"a token changes no earlier logit, bit for bit"}),
        ({"output_map": {"name": "learned", "ahead": True}}, {"a token changes no earlier logit, bit for bit"}),
        ({"routing": {"name": "shy-of-taps"}}, {"logits are the same with taps on and off, bit for bit"}),
        (
            {"output_map": {"name": "not-a-number"}},
            UNIVERSAL_CLAIMS - {"every tensor of the standard arm is there, with bit-identical initial values"},
        ),
        (
            {"output_map": {"name": "less-the-batch-mean"}},
            # What reaches the other row comes back from it, into the next document.
            {"a row changes no logit of another row, bit for bit", BOUNDARY},
        ),
        ({"output_map": {"name": "learned"}}, set()),
    ],
    ids=[
        "looks one token ahead",
        "looks ahead once trained",
        "reads otherwise when tapped",
        "nan",
        "averages rows",
        "a correct one",
    ],
)
def test_a_wrong_mechanism_is_caught_by_the_law_of_its_fault(
    arm: Arm, broken: set[str], install: Callable[[ModuleType], None]
):
    install(sys.modules[__name__])
    assert broken_laws(arm) == broken


def looking_ahead(distance: int) -> Arm:
    return {"output_map": {"name": "looks-far-ahead", "distance": distance}}


@pytest.mark.parametrize("distance", [1, 4, 11, 12, 47])
def test_looking_ahead_is_caught_up_to_the_length_of_a_row(distance: int, install: Callable[[ModuleType], None]):
    install(sys.modules[__name__])
    caught = {"a token changes no earlier logit, bit for bit"}
    assert broken_laws(looking_ahead(distance), ROW) == caught
    assert broken_laws(looking_ahead(distance), TIME) == (caught if distance < TIME else set())


def test_a_broken_causality_says_which_token_reaches_which_logits(install: Callable[[ModuleType], None]):
    install(sys.modules[__name__])
    found = causality(looking_ahead(100)).measure(LawBench(time=128), False)
    assert isinstance(found, Located)
    assert re.fullmatch(r"the token at 127 changes the logits at 27 \(\d\.\de[-+]\d\d\)", found.where)


def test_a_broken_law_of_rows_says_which_row_reaches_which(install: Callable[[ModuleType], None]):
    install(sys.modules[__name__])
    found = rows_apart({"output_map": {"name": "less-the-batch-mean"}}).measure(LawBench(), False)
    assert isinstance(found, Located)
    assert re.match(r"the token at \d+ of row [01] changes the logits at \d+ of row [01] \(", found.where)


def test_a_law_that_crashes_leaves_the_benchs_tokens_as_they_were(monkeypatch: pytest.MonkeyPatch):
    bench = LawBench()
    tokens, calls, logits = bench.tokens.clone(), [], bench.logits

    def failing(model: Any, *, tap: Tap | None = None) -> Tensor:
        calls.append(model)
        if len(calls) > 1:
            raise RuntimeError
        return logits(model, tap=tap)

    monkeypatch.setattr(bench, "logits", failing)
    with pytest.raises(RuntimeError):
        causality({}).measure(bench, False)
    assert torch.equal(bench.tokens, tokens)


def test_an_initialiser_that_draws_in_sequence_is_caught(
    install: Callable[[ModuleType], None], monkeypatch: pytest.MonkeyPatch
):
    """The classic fault: an added parameter moves every later draw, so "one seed" is two sets of initial weights."""

    def drawn_in_sequence(model: nn.Module, *stream: str | int) -> None:
        del stream
        draw = torch.Generator().manual_seed(0)
        for name, declaration in declarations(model).items():
            noise = torch.randn(model.get_parameter(name).shape, generator=draw)
            assert isinstance(declaration.init.constant, float)
            model.get_parameter(name).data = declaration.init.constant + declaration.init.std * noise

    install(sys.modules[__name__])
    monkeypatch.setattr("paribus.model.build.initialise", drawn_in_sequence)
    assert broken_laws({"output_map": {"name": "learned"}}) == {
        "every tensor of the standard arm is there, with bit-identical initial values"
    }


def test_a_shared_tensor_that_nobody_initialised_breaks_the_law_of_shared_values(monkeypatch: pytest.MonkeyPatch):
    def forgets_the_last(model: nn.Module, *stream: str | int) -> None:
        initialise(model, *stream)
        if any(isinstance(module, DeclaredModule) and "routing" in name for name, module in model.named_modules()):
            model.get_parameter("output_norm.gain").data.fill_(torch.nan)

    monkeypatch.setattr("paribus.model.build.initialise", forgets_the_last)
    assert "every tensor of the standard arm is there, with bit-identical initial values" in broken_laws(
        {"routing": {"name": "block-attnres", "blocks": 3}}
    )
