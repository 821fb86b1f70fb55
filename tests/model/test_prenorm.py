import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from paribus.errors import MechanismError
from paribus.mechanisms.contract import Reads, Seam, Site, Tap, Values
from paribus.model.backbone import Backbone
from paribus.model.config import PrenormConfig

Build = Callable[..., Backbone]
GROUPED = "[batch time kv_head group head_width] = [2, 16, 3, 1, 8], torch.float32"
PLAIN = "[batch time kv_head head_width] = [2, 16, 3, 8], torch.float32"
U32, U64 = 2.0**-24, 2.0**-53


def rms(x: Tensor, eps: float) -> Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt()


def rotated(x: Tensor, position: int, base: float) -> Tensor:
    """Pairs (i, i + half) as complex numbers, turned by position / base^(2 i / head_width)."""
    half = x.shape[-1] // 2
    angle = position / base ** (torch.arange(half, dtype=torch.float64) / half)
    # The model keeps its phases in float32.
    phase = torch.complex(angle.cos().float().double(), angle.sin().float().double())
    turned = torch.complex(x[..., :half], x[..., half:]) * phase
    return torch.cat((turned.real, turned.imag), dim=-1)


def reference_logits(model: Backbone, row: Tensor, document: Tensor | None = None) -> Tensor:
    """[time vocab] of one row of token ids by explicit loops in float64, from the description of the backbone."""
    c = model.config
    w = {name: parameter.detach().double() for name, parameter in model.named_parameters()}
    x = rms(w["embedding"][row], c.norm_eps)
    for n in range(c.layers):
        p = f"layers.{n}"
        h = rms(x, c.norm_eps) * w[f"{p}.attention_norm.gain"]
        mixed = torch.zeros(len(row), c.heads * c.head_width, dtype=torch.float64)
        for head in range(c.heads):
            own = slice(head * c.head_width, (head + 1) * c.head_width)
            group = head // c.query_heads_per_kv_head
            shared = slice(group * c.head_width, (group + 1) * c.head_width)
            q = h @ w[f"{p}.attention.query"][own].T
            k, v = (h @ w[f"{p}.attention.{name}"][shared].T for name in ("key", "value"))
            if c.qk_norm:
                q, k = rms(q, c.norm_eps), rms(k, c.norm_eps)
            q, k = (torch.stack([rotated(t[i], i, c.rotary_base) for i in range(len(row))]) for t in (q, k))
            for i in range(len(row)):
                seen = [j for j in range(i + 1) if document is None or document[j] == document[i]]
                weights = torch.softmax(torch.stack([q[i] @ k[j] for j in seen]) / c.head_width**0.5, dim=0)
                mixed[i, own] = sum((a * v[j] for a, j in zip(weights, seen, strict=True)), torch.zeros(c.head_width))
        x = x + mixed @ w[f"{p}.attention.output"].T
        h = rms(x, c.norm_eps) * w[f"{p}.mlp_norm.gain"]
        gate = h @ w[f"{p}.mlp.gate"].T
        x = x + (gate / (1 + torch.exp(-gate)) * (h @ w[f"{p}.mlp.up"].T)) @ w[f"{p}.mlp.down"].T
    return (rms(x, c.norm_eps) * w["output_norm.gain"]) @ w["embedding"].T


def with_gains(model: Backbone) -> Backbone:
    """Gains away from 1, so that each is seen to act on its own features."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("gain"):
                parameter.add_(torch.linspace(-0.3, 0.3, len(parameter)))
    return model


@pytest.mark.parametrize("qk_norm", [True, False])
@pytest.mark.parametrize(("dtype", "unit"), [(torch.float64, U64), (torch.float32, U32)])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("head_width", "group"), [(8, 1), (4, 2), (4, 6)], ids=["multi-head", "grouped", "multi-query"]
)
def test_logits_equal_a_forward_pass_by_explicit_loops(
    build: Build,
    config: PrenormConfig,
    tokens: Tensor,
    qk_norm: bool,
    dtype: torch.dtype,
    unit: float,
    masked: bool,
    head_width: int,
    group: int,
):
    sizes = {"head_width": head_width, "query_heads_per_kv_head": group}
    own = config.model_copy(update={"qk_norm": qk_norm, "rotary_base": 100.0, **sizes})
    model = with_gains(build({"mask": {"name": "document"}} if masked else {}, dtype, config=own))
    document = torch.tensor([[0] * 6 + [1] * 10, [0] * 16])
    with torch.no_grad():
        logits = model(tokens, document)
    expected = torch.stack([reference_logits(model, tokens[b], document[b] if masked else None) for b in (0, 1)])
    # 6 sublayers and a head, each a chain of at most three sums of up to 40 products; relative to the largest logit.
    assert (logits - expected).abs().max() <= 7 * 3 * 40 * unit * expected.abs().max()


class _Watch:
    """Sees the stream at every read."""

    def __init__(self, model: Backbone) -> None:
        self.streams: list[Tensor] = []
        self.opened: list[Tensor] = []
        read, opening = model.routing.read, model.routing.open
        assert callable(read)
        assert callable(opening)

        def watched_read(memory: Tensor, layer: int, site: Site, tap: Tap | None) -> Reads:
            reads = read(memory, layer, site, tap)
            self.streams.append(reads.q)
            return reads

        def watched_open(x0: Tensor) -> object:
            self.opened.append(x0)
            return opening(x0)

        vars(model.routing).update(read=watched_read, open=watched_open)


def test_the_stream_starts_at_unit_rms(build: Build, config: PrenormConfig, tokens: Tensor):
    model = build({})
    watch = _Watch(model)
    model(tokens, torch.zeros_like(tokens))
    mean_square = watch.opened[0].double().square().mean(-1)
    # eps / (0.02^2) is what normalisation leaves undone, for a row of width 24 whose mean square may be half of that.
    assert ((mean_square - 1).abs() <= 4 * config.norm_eps / config.embedding_std**2).all()


@pytest.mark.parametrize("arm", [{}, {"routing": {"name": "role-decoupled", "blocks": 3}}], ids=["serial", "decoupled"])
def test_every_read_of_the_stream_is_float32_when_sublayers_compute_in_bfloat16(
    build: Build, config: PrenormConfig, tokens: Tensor, arm: dict[str, dict[str, object]]
):
    model = build(arm)
    watch = _Watch(model)
    with torch.autocast("cpu", torch.bfloat16):
        model(tokens, torch.zeros_like(tokens))
    assert len(watch.streams) == 2 * config.layers
    assert {stream.dtype for stream in watch.streams} == {torch.float32}


def test_a_document_mask_equals_separate_runs_of_the_documents(build: Build, tokens: Tensor):
    masked, plain = build({"mask": {"name": "document"}}, torch.float64), build({}, torch.float64)
    row, cut = tokens[:1], 6
    document = (torch.arange(row.shape[1]) >= cut).long()[None]
    with torch.no_grad():
        together = masked(row, document)
        apart = torch.cat([plain(part, torch.zeros_like(part)) for part in (row[:, :cut], row[:, cut:])], dim=1)
    # Rotary phases are relative in exact arithmetic. They are kept in float32, so a shift by `cut` positions moves each
    # attention logit (at most sqrt(head_width) in size) by some roundings, and 6 sublayers pass that on.
    assert (together - apart)[:, :cut].abs().max() <= 7 * 3 * 40 * U64
    assert (together - apart).abs().max() <= 6 * 4 * 8**0.5 * U32
    assert (together - plain(row, document))[:, cut:].abs().max() > 1e-3


def test_query_key_and_value_share_one_norm_of_a_shared_read(build: Build, tokens: Tensor):
    """The standard arm normalises each read once: one tensor enters all three projections."""
    model = build({})
    seen: list[Reads] = []
    model.get_submodule("layers.0.attention").register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model(tokens, torch.zeros_like(tokens))
    assert seen[0].q is seen[0].k is seen[0].v


def test_the_first_layers_value_reaches_the_value_map_of_later_layers(build: Build, tokens: Tensor):
    model = build({})
    first: list[Tensor] = []

    class Spy(torch.nn.Module):
        def forward(self, own: Tensor, first_value: Tensor, _: Tensor) -> Tensor:
            first.append(first_value)
            return own

    for layer in range(3):
        model.set_submodule(f"layers.{layer}.attention.value_map", Spy())
    model(tokens, torch.zeros_like(tokens))
    assert first[0] is first[1] is first[2]
    stream = functional.rms_norm(model.get_parameter("embedding")[tokens], (24,), None, 1e-6)
    value = model.get_parameter("layers.0.attention.value")
    expected = functional.linear(functional.rms_norm(stream, (24,), None, 1e-6), value)
    assert torch.allclose(first[0].flatten(-2), expected, atol=24 * U32)


def grouped_config(config: PrenormConfig) -> PrenormConfig:
    return config.model_copy(update={"head_width": 4, "query_heads_per_kv_head": 3})


def test_key_and_value_matrices_hold_one_head_for_each_group(build: Build, config: PrenormConfig):
    shapes = {name: tuple(p.shape) for name, p in build({}, config=grouped_config(config)).named_parameters()}
    rows = {name: shapes[f"layers.0.attention.{name}"] for name in ("query", "key", "value", "output")}
    assert rows == {"query": (24, 24), "key": (8, 24), "value": (8, 24), "output": (24, 24)}


def test_an_output_map_sees_the_value_of_its_own_group_as_a_view(build: Build, config: PrenormConfig, tokens: Tensor):
    """Six query heads beside two key-value heads: y by group, the values once a group, nothing copied."""
    model = build({}, config=grouped_config(config))
    attention = model.get_submodule("layers.0.attention")
    seen: dict[str, Tensor] = {}

    class Spy(torch.nn.Module):
        def forward(self, y: Tensor, values: Values, document: Tensor) -> Tensor:
            seen.update(y=y, aggregated=values.aggregated, projected=values.projected, document=document)
            return y

    class Doubled(torch.nn.Module):
        def forward(self, own: Tensor, *_: Tensor) -> Tensor:
            seen.update(own=own)
            return 2 * own

    attention.set_submodule("output_map", Spy())
    attention.set_submodule("value_map", Doubled())
    model(tokens, torch.zeros_like(tokens))
    assert seen["y"].shape == (2, 16, 2, 3, 4)
    assert seen["aggregated"].shape == seen["projected"].shape == (2, 16, 2, 1, 4)
    assert seen["projected"].data_ptr() == seen["own"].data_ptr()
    assert torch.equal(seen["aggregated"][..., 0, :], 2 * seen["own"])
    assert torch.equal(seen["y"][:, 0], seen["aggregated"][:, 0].expand(2, 2, 3, 4))  # the first token sees itself only


def test_the_mlps_gate_reads_the_first_tensor_and_its_up_projection_the_last(build: Build):
    mlp = build({}).get_submodule("layers.0.mlp")
    gate_input, up_input = torch.ones(1, 2, 24), -torch.ones(1, 2, 24)
    gate, up, down = (mlp.get_parameter(name) for name in ("gate", "up", "down"))
    expected = (functional.silu(gate_input @ gate.T) * (up_input @ up.T)) @ down.T
    assert torch.equal(mlp(Reads(gate_input, gate_input, up_input)), expected)


@pytest.mark.parametrize(
    ("field", "value"),
    [("width", 25), ("head_width", 7), ("layers", 0), ("norm_eps", 2e-5), ("query_heads_per_kv_head", 2)],
)
def test_a_geometry_that_the_backbone_cannot_have_is_refused(config: PrenormConfig, field: str, value: float):
    with pytest.raises(ValueError, match=field):
        PrenormConfig.model_validate(config.model_dump() | {field: value})


class _Calls(TorchDispatchMode):
    """The names of the tensor operations that were called, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("arm", [{}, {"routing": {"name": "role-decoupled", "blocks": 3}}], ids=["serial", "decoupled"])
def test_without_a_tap_no_operation_is_run_that_serves_taps(build: Build, tokens: Tensor, arm: dict):
    """A tap that ignores what it is given costs views at most; without one there are not even those."""
    model = build(arm)
    views = ("aten.unbind", "aten.select", "aten.view", "aten.transpose", "aten.detach", "aten.alias")

    def calls(tap: Tap | None) -> list[str]:
        with torch.no_grad(), _Calls() as seen:
            model(tokens, torch.zeros_like(tokens), tap)
        return seen.names

    def computing(names: list[str]) -> list[str]:
        return [name for name in names if not name.startswith(views)]

    calls(None)  # the rotary phases are made once
    silent, watched = calls(None), calls(lambda *_, **__: None)
    assert len(silent) <= len(watched)
    removed = list(computing(watched))
    for name in computing(silent):
        removed.remove(name)  # everything that runs without a tap runs with one
    assert len(computing(silent)) > 50


class _Returns(nn.Module):
    """In the place of a map: what `change` makes of its first argument."""

    def __init__(self, change: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.change = change

    def forward(self, first: Tensor, *rest: object) -> Any:
        del rest
        return self.change(first)


@pytest.mark.parametrize(
    ("seam", "change", "expected", "received"),
    [
        (Seam.OUTPUT_MAP, lambda y: y.flatten(2, 3), GROUPED, "[2, 16, 3, 8], torch.float32"),
        (Seam.OUTPUT_MAP, lambda y: y[:, :1], GROUPED, "[2, 1, 3, 1, 8], torch.float32"),
        (Seam.OUTPUT_MAP, lambda y: y.double(), GROUPED, "[2, 16, 3, 1, 8], torch.float64"),
        (Seam.OUTPUT_MAP, lambda y: (y, y), GROUPED, "tuple"),
        (Seam.VALUE_MAP, lambda v: v.mean(1, keepdim=True), PLAIN, "[2, 1, 3, 8], torch.float32"),
        (Seam.VALUE_MAP, lambda _: None, PLAIN, "NoneType"),
    ],
    ids=["flat heads", "one position", "another dtype", "a tuple", "a value that broadcasts", "nothing"],
)
def test_a_map_that_breaks_its_seams_contract_is_refused_with_shapes_and_layer(
    build: Build, tokens: Tensor, seam: Seam, change: Callable[[Tensor], Any], expected: str, received: str
):
    model = build({})
    setattr(model.layers[1].attention, seam, _Returns(change))
    with pytest.raises(MechanismError) as caught:
        model(tokens, torch.zeros_like(tokens))
    assert caught.value.what.startswith("_Returns of layer 1 returned")
    assert (caught.value.expected, caught.value.received) == (expected, received)


COMPILED = """
import torch
from paribus.model.lawbench import LawBench

bench = LawBench()
model = bench.model({"output_map": {"name": "xsa"}, "value_map": {"name": "value-embedding"}})
compiled = torch.compile(model, fullgraph=True, backend="eager")
with torch.no_grad():
    found, exact = compiled(bench.tokens, bench.document), bench.logits(model)
assert ((found - exact).abs() <= 2.0**-20 * exact.abs().max()).all()
"""


def test_checking_the_seams_leaves_the_model_one_graph():
    # In a process of its own: the shape checks of the tests cannot be compiled. A compiler is given the mechanisms' own
    # functions in another form, which rounds otherwise: some roundings of 2^-24.
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
