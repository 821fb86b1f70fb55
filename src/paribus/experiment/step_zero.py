"""What one forward pass of an untrained arm must show: values everywhere, finite outputs, float32 sources and reads, a
norm that ignores scale, and a table of sources that is the wiring.

At step 0 a read of K additive sources is their sum over K, so eps / mean square of the read is eps K^2 / rms^2.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from paribus import mechanisms
from paribus.experiment.gate import Gate
from paribus.experiment.narrow import narrowed
from paribus.experiment.plan import ArmAtScale
from paribus.mechanisms.contract import ROUTE, Reads, Seam, Site
from paribus.mechanisms.laws import belongs_to_routing
from paribus.model.backbone import Backbone
from paribus.model.build import build_model
from paribus.seeds import generator

FINITE = "outputs are finite at step 0"
WRITTEN = "every parameter has a value"
SHARED = "the standard arm's tensors are there with its initial values"
FLOAT32 = "stream and depth sources are float32"
SCALE = "norms are scale-invariant at every read"
TABLE = "the table of sources is the wiring"
EFFECTIVE_EPS_LIMIT = 1e-3
"""largest eps / mean square of a read that still counts as a scale-invariant norm"""
PROBE_ROWS, PROBE_TIME, PROBE_HEAD_WIDTH = 2, 32, 64
"""the mean square of a read is a mean over width: the probe keeps up to two key-value heads of 64 features"""


@dataclass(frozen=True)
class Read:
    """One tensor that a sublayer or the output read."""

    layer: int
    site: str
    effective_eps: float
    """NaN where the read is not finite"""
    dtype: torch.dtype

    @property
    def place(self) -> str:
        return "the output" if self.site == Site.OUTPUT else f"layer {self.layer}, {self.site}"


@dataclass(frozen=True)
class Probe:
    """What one forward pass at step 0 showed."""

    unwritten: tuple[str, ...]
    reads: tuple[Read, ...]
    order: tuple[tuple[int, str], ...]
    """(layer, site) of each read, in the order in which they happened"""
    mixed: dict[tuple[int, str], int]
    """sources in the depth routes that a tap saw"""
    table: tuple[dict[str, Any], ...]
    """the routing's own list of its reads"""
    strays: tuple[str, ...] = ()
    """tensors of the standard arm that are missing or have other initial values, with what is wrong"""
    not_finite: str = ""
    """the first tensor of the forward pass that holds NaN or inf; empty where all are finite"""
    kept: tuple[tuple[str, torch.dtype], ...] = ()
    """(when, type) of the floating-point tensors in the routing's memory, in order"""


def probe_arm(arm: ArmAtScale, stream: tuple[str | int, ...]) -> Probe:
    """Build the arm, narrowed where it is wide, with values from `stream`, and run it once."""
    model = build_model(narrowed(arm.model, PROBE_HEAD_WIDTH), arm.seam_configs, stream)
    unwritten = tuple(name for name, parameter in model.named_parameters() if not bool(parameter.isfinite().all()))
    reads: list[Read] = []
    order: list[tuple[int, str]] = []
    mixed: dict[tuple[int, str], int] = {}
    kept: list[tuple[str, torch.dtype]] = []
    strange: list[str] = []

    def look(name: str, tensor: Tensor) -> bool:
        missing = tensor.numel() - int(tensor.isfinite().sum())
        if missing:
            strange.append(f"{name} is not finite ({missing} of {tensor.numel()} numbers)")
        return missing == 0

    def note(layer: int, site: str, tensors: tuple[Tensor, ...]) -> None:
        order.append((layer, site))
        for tensor in {id(t): t for t in tensors}.values():
            finite = look(_place((layer, site)), tensor)
            smallest = float(tensor.square().mean(-1).min())
            ratio = arm.model.norm_eps / smallest if smallest > 0 else float("inf")
            reads.append(Read(layer, site, ratio if finite else math.nan, tensor.dtype))

    def keep(when: str, memory: Any) -> None:
        kept.extend((when, dtype) for dtype in dict.fromkeys(t.dtype for t in _floating(memory)))

    def tap(site: str, layer: int, **tensors: Tensor) -> None:
        for name, tensor in tensors.items():
            look(f"'{name}' of layer {layer}, {site},", tensor)
            if name.startswith(ROUTE):
                mixed[layer, site.removesuffix(" depth read")] = tensor.shape[-1]

    _watch(model, note, keep)
    tokens = generator("gates", "tokens").integers(0, model.config.vocabulary_size, (PROBE_ROWS, PROBE_TIME))
    with torch.no_grad():
        logits = model(torch.from_numpy(tokens), torch.zeros(PROBE_ROWS, PROBE_TIME, dtype=torch.int64), tap)
    look("the logits", logits)
    routing: Any = model.routing
    table = tuple(routing.source_lists())
    return Probe(
        unwritten,
        tuple(reads),
        tuple(order),
        mixed,
        table,
        _strays(model, stream, [s for s, c in arm.mechanisms.items() if c.name != mechanisms.IDENTITY[s]]),
        not_finite=next(iter(strange), ""),
        kept=tuple(kept),
    )


def _strays(model: Backbone, stream: tuple[str | int, ...], changed: Sequence[Seam]) -> tuple[str, ...]:
    standard = build_model(model.config, {seam: mechanisms.resolve(seam, None, str(seam)) for seam in Seam}, stream)
    own = dict(model.named_parameters())
    shared = {n: p for n, p in standard.named_parameters() if not belongs_to_routing(n, changed)}
    missing = [f"{name}: missing" for name in shared if name not in own]
    return (
        *missing,
        *(
            f"{name}: other initial values"
            for name, parameter in shared.items()
            if name in own and not torch.equal(own[name], parameter)
        ),
    )


def _floating(memory: Any) -> Iterator[Tensor]:
    """Floating-point tensors inside a routing's memory, however it keeps them."""
    if isinstance(memory, Tensor):
        if memory.is_floating_point():
            yield memory
        return
    parts: list[Any] = []
    if isinstance(memory, Mapping):
        parts = list(memory.values())
    elif isinstance(memory, list | tuple):
        parts = list(memory)
    elif is_dataclass(memory):
        parts = [getattr(memory, field.name) for field in fields(memory)]
    for part in parts:
        yield from _floating(part)


def _watch(
    model: Backbone, note: Callable[[int, str, tuple[Tensor, ...]], None], keep: Callable[[str, Any], None]
) -> None:
    routing: Any = model.routing
    opening, read, write, close = routing.open, routing.read, routing.write, routing.close

    def watching_open(x0: Tensor) -> Any:
        memory = opening(x0)
        keep("before layer 0 (open)", memory)
        return memory

    def watching_write(memory: Any, delta: Tensor, layer: int, site: Site) -> Any:
        memory = write(memory, delta, layer, site)
        keep(f"after layer {layer}, {site}", memory)
        return memory

    def watching_read(memory: Any, layer: int, site: Site, tap: Any) -> Reads:
        reads = read(memory, layer, site, tap)
        note(layer, str(site), tuple(reads))
        return reads

    def watching_close(memory: Any, tap: Any) -> Tensor:
        x = close(memory, tap)
        note(model.config.layers, str(Site.OUTPUT), (x,))
        return x

    routing.open, routing.read, routing.write, routing.close = (
        watching_open,
        watching_read,
        watching_write,
        watching_close,
    )


def finite_gate(subject: str, probe: Probe) -> Gate:
    return Gate(FINITE, subject, not probe.not_finite, probe.not_finite or "the logits, and all that taps see")


def written_gate(subject: str, probe: Probe) -> Gate:
    detail = f"never written: {', '.join(probe.unwritten)}" if probe.unwritten else "all written"
    return Gate(WRITTEN, subject, not probe.unwritten, detail)


def shared_gate(subject: str, probe: Probe) -> Gate:
    """The law of shared tensors, on the study's own streams and by name."""
    shown = probe.strays[:3] + ((f"and {len(probe.strays) - 3} more",) if len(probe.strays) > 3 else ())
    detail = "; ".join(shown) or "each tensor, bit for bit"
    return Gate(SHARED, subject, not probe.strays, detail)


def dtype_gate(subject: str, probe: Probe) -> Gate:
    faults = [f"{dtype} kept {when}" for when, dtype in probe.kept if dtype != torch.float32]
    faults += [f"{read.dtype} read by {read.place}" for read in probe.reads if read.dtype != torch.float32]
    return Gate(FLOAT32, subject, not faults, faults[0] if faults else "torch.float32")


def effective_eps_gate(subject: str, probe: Probe) -> Gate:
    broken = next((read for read in probe.reads if math.isnan(read.effective_eps)), None)
    if broken is not None:
        return Gate(
            SCALE, subject, False, f"the read of {broken.place} is not finite: nothing can be said of its scale"
        )
    worst = max(probe.reads, key=lambda read: read.effective_eps)
    return Gate(
        SCALE,
        subject,
        worst.effective_eps <= EFFECTIVE_EPS_LIMIT,
        f"eps K^2 / rms^2 at most {worst.effective_eps:.1e} ({worst.place}), limit {EFFECTIVE_EPS_LIMIT:.0e}; "
        "base.model.norm_eps scales it",
    )


def routing_table_gate(subject: str, probe: Probe) -> Gate:
    """Every read is listed once, in order, with as many sources as it mixes."""
    listed = [(int(entry["layer"]), str(entry["site"])) for entry in probe.table]
    counts = Counter(listed)
    faults = [f"{_place(read)} is not listed" for read in probe.order if read not in counts]
    faults += [f"{_place(read)} is listed, but nothing reads there" for read in counts if read not in probe.order]
    faults += [f"{_place(read)} is listed {count} times" for read, count in counts.items() if count > 1]
    if not faults and listed != list(probe.order):
        faults.append("reads are listed in another order than they happen")
    for entry, read in zip(probe.table, listed, strict=True):
        named, seen = list(entry["sources"]), probe.mixed.get(read, len(entry["sources"]))
        if len(named) != seen:
            faults.append(f"{_place(read)} lists {len(named)} sources ({', '.join(named)}) but mixes {seen}")
        if len(set(named)) != len(named):
            faults.append(f"{_place(read)} lists a source twice ({', '.join(named)})")
    detail = "; ".join(faults[:3]) if faults else f"{len(listed)} reads, {len(probe.mixed)} of them depth mixes"
    return Gate(TABLE, subject, not faults, detail)


def _place(read: tuple[int, str]) -> str:
    return "the output read" if read[1] == Site.OUTPUT else f"the {read[1]} read of layer {read[0]}"


PROBE_GATES: Mapping[str, Callable[[str, Probe], Gate]] = {
    FINITE: finite_gate,
    WRITTEN: written_gate,
    SHARED: shared_gate,
    FLOAT32: dtype_gate,
    SCALE: effective_eps_gate,
    TABLE: routing_table_gate,
}
"""by name, in order: a number that is none explains whatever fails after it"""
