"""The passes of `depth_read.py` in Triton, for CUDA tensors; the equations are written out there.

A program takes PART tokens in turn. Of a token's sources it has a tile of AT_ONCE in registers at a time, [source,
column], padded to powers of two and masked. Forwards every source is read once: the mixes of the tiles so far are
rescaled as larger scores turn up. Backwards the gradient of any score needs the mean of G . v over all sources. Where
all tiles fit a program's registers (9 sources of 1024 columns under two queries do) they stay there between the two
loops and every source is read once; else it is read twice, the second time just after the first, while it may still be
in the caches. With a norm behind the read the mixes are formed again before that, from the same tiles. Gradients of a
source are added to what is there in the pass that forms them; those of the queries and of the norm's gain are summed
within a program and then over programs, in the same order on every device and in every run.

Sources are a list of tensors that lie anywhere. A kernel gets a table of their addresses, int64 in the device's memory,
and casts them to pointers: unlike a tuple of arguments this makes their number an argument of the run, so that one
compiled kernel serves many layers (`forward_shape`, `backward_shape`). The table is copied from page-locked memory
without waiting; PyTorch's allocators keep both ends until the stream is past them. A pointer cast from a number tells
the compiler nothing of alignment, without which it loads 4 bytes at a time: 16 are required and promised.
"""

from collections.abc import Sequence
from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from paribus.kernels import gpu

PART = 16
"""tokens of one program: the same on every device, and so are the sums over programs"""
AT_ONCE = 4
"""sources of a tile at most: what is one number a source takes a register of every thread for each"""
TILE = 4096
"""numbers of a tile at most"""
MOST_HELD = 4
"""tiles that a program keeps at most, each of which is written out in the compiled kernel"""
HELD_NUMBERS = 20 * 1024
"""of the tiles, upstream gradients, queries and their gradients that a program keeps, 80 a thread: of a thread's 255
registers this leaves enough for the rest (checked with the compiler for M up to 4, not measured on a device)"""
MOST_WIDTH = 2048
"""columns: rows of more fill the registers by themselves"""


def trial(device: torch.device) -> None:
    summed(torch.ones(1, 1, 16, device=device), None, 1e-6)


def summed(delta: Tensor, running: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    """(running + delta in float32, inverse root mean square [batch time 1]) of contiguous float32 or bfloat16."""
    same = running is None and delta.dtype == torch.float32
    value = delta.view_as(delta) if same else torch.empty_like(delta, dtype=torch.float32)
    scale = torch.empty((*delta.shape[:-1], 1), dtype=torch.float32, device=delta.device)
    tokens, width = scale.numel(), delta.shape[-1]
    with torch.cuda.device_of(delta):
        _sum_forward[(triton.cdiv(tokens, PART),)](
            delta, running, None if same else value, scale, tokens, width, eps,
            PART=PART, **sum_shape(width), **gpu.OPTIONS,
        )  # fmt: skip
    return value, scale


def read(
    keyed: Tensor,
    scales: Sequence[Tensor],
    sources: Sequence[Tensor],
    norm_gain: Tensor | None = None,
    norm_eps: float | None = None,
) -> tuple[list[Tensor], Tensor, Tensor | None]:
    """(mixes, scores [batch time query source], None) of contiguous, aligned float32 tensors; with an eps what the norm
    makes of the mixes, and their inverse root mean squares [batch time query]."""
    queries, width = keyed.shape
    mixes = [torch.empty_like(sources[0]) for _ in range(queries)]
    scores = torch.empty((*sources[0].shape[:-1], queries, len(sources)), dtype=torch.float32, device=keyed.device)
    inverse_mix = None if norm_eps is None else torch.empty(scores.shape[:-1], dtype=torch.float32, device=keyed.device)
    tokens = scales[0].numel()
    with torch.cuda.device_of(keyed):
        _read_forward[(triton.cdiv(tokens, PART),)](
            table((*sources, *scales, *mixes), keyed.device), keyed, scores, inverse_mix, norm_gain,
            tokens, width, len(sources), norm_eps or 0.0,
            PART=PART, **forward_shape(len(sources), queries, width), **gpu.OPTIONS,
        )  # fmt: skip
    return mixes, scores, inverse_mix


def read_backward(
    keyed: Tensor,
    scales: Sequence[Tensor],
    sources: Sequence[Tensor],
    scores: Tensor,
    gradients: Sequence[Tensor],
    before: Sequence[Tensor | None],
    after: Sequence[Tensor],
    norm_gain: Tensor | None = None,
    inverse_mix: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Writes into `after` each source's gradient on top of `before`; returns the gradient of `keyed`, and of the norm's
    gain [width] where there is one."""
    queries, width = keyed.shape
    tokens = scales[0].numel()
    programs = triton.cdiv(tokens, PART)
    grad_keyed = torch.empty((programs, queries, width), dtype=torch.float32, device=keyed.device)
    grad_gain = None
    if norm_gain is not None:
        grad_gain = torch.empty((programs, width), dtype=torch.float32, device=keyed.device)
    with torch.cuda.device_of(keyed):
        _read_backward[(programs,)](
            table((*sources, *scales, *before, *after, *gradients), keyed.device), keyed, scores, grad_keyed,
            inverse_mix, norm_gain, grad_gain, tokens, width, len(sources),
            PART=PART, **backward_shape(len(sources), queries, width, normed=inverse_mix is not None), **gpu.OPTIONS,
        )  # fmt: skip
    return grad_keyed.sum(0), None if grad_gain is None else grad_gain.sum(0)


def sum_shape(width: int) -> dict[str, int]:
    return {"COLUMNS": triton.next_power_of_2(width), "num_warps": _warps(width, 32)}


def forward_shape(sources: int, queries: int, width: int) -> dict[str, int]:
    """What the kernel is compiled for."""
    columns = triton.next_power_of_2(width)
    at_once = min(triton.next_power_of_2(sources), AT_ONCE, max(1, TILE // columns))
    return {
        "QUERIES": queries,
        "AT_ONCE": at_once,
        "COLUMNS": columns,
        "num_warps": _warps(max(at_once, queries) * columns, 32),
    }


def backward_shape(sources: int, queries: int, width: int, *, normed: bool = False) -> dict[str, int]:
    """HELD: the tiles that stay in registers, 0 where they are read twice (with a norm three times)."""
    shape = forward_shape(sources, queries, width)
    at_once, columns = shape["AT_ONCE"], shape["COLUMNS"]
    tiles = triton.cdiv(sources, at_once)
    rows = tiles * at_once + 3 * queries + (2 if normed else 0)  # the norm's gain and its gradient
    fits = tiles <= MOST_HELD and rows * columns <= HELD_NUMBERS
    return {**shape, "HELD": tiles if fits else 0, "num_warps": _warps(max(at_once, queries) * columns, 16)}


def _warps(numbers: int, registers: int) -> int:
    """that spread a tile over so many registers a thread"""
    return min(8, max(1, triton.next_power_of_2(numbers) // (32 * registers)))


def table(tensors: Sequence[Tensor | None], device: torch.device) -> Tensor:
    """int64 addresses on the device, 0 for None, without waiting for it."""
    addresses = [0 if t is None else t.data_ptr() for t in tensors]
    if device.type == "cpu":  # Triton's interpreter
        return torch.tensor(addresses)
    return torch.tensor(addresses, pin_memory=True).to(device, non_blocking=True)


@triton.jit
@no_type_check
def _sum_forward(
    delta, running, value, inverse_rms, tokens, width, eps, COLUMNS: tl.constexpr, PART: tl.constexpr
):  # fmt: skip
    column = tl.arange(0, COLUMNS)
    inside = column < width
    first = tl.program_id(0).to(tl.int64) * PART
    for token in range(first, tl.minimum(first + PART, tokens)):
        at = token * width + column
        x = tl.load(delta + at, mask=inside, other=0.0).to(tl.float32)
        if running is not None:
            x += tl.load(running + at, mask=inside, other=0.0)
        if value is not None:
            tl.store(value + at, x, mask=inside)
        tl.store(inverse_rms + token, tl.div_rn(1.0, tl.sqrt_rn(tl.sum(x * x, 0) / width + eps)))


@triton.jit
@no_type_check
def _pointers(table, place, there):
    return tl.multiple_of(tl.load(table + place, mask=there).to(tl.pointer_type(tl.float32)), 16)


@triton.jit
@no_type_check
def _tile(table, k, there, at, inside):
    """[source column]"""
    rows = _pointers(table, k, there)
    return tl.load(rows[:, None] + at[None, :], mask=there[:, None] & inside[None, :], other=0.0)


@triton.jit
@no_type_check
def _tiles(table, sources, at, inside, HELD: tl.constexpr, AT_ONCE: tl.constexpr):
    tiles = ()
    for i in tl.static_range(HELD):
        k = i * AT_ONCE + tl.arange(0, AT_ONCE)
        tiles += (_tile(table, k, k < sources, at, inside),)
    return tiles


@triton.jit
@no_type_check
def _row(table, place, at, inside):
    return tl.load(_pointers(table, place, None) + at, mask=inside, other=0.0)


@triton.jit
@no_type_check
def _grown(s, v, top, total, mix):
    """A query's softmax with a tile more: the largest score, the sum of exp(score - largest), the mix up to the sum."""
    highest = tl.maximum(top, tl.max(s, 0))
    shrunk = tl.exp(top - highest)
    e = tl.exp(s - highest)
    return highest, total * shrunk + tl.sum(e, 0), mix * shrunk + tl.sum(e[:, None] * v, 0)


@triton.jit(do_not_specialize=["tokens", "sources"])
@no_type_check
def _read_forward(
    table, keyed, scores, inverse_mix, norm_gain, tokens, width, sources, norm_eps,
    QUERIES: tl.constexpr, AT_ONCE: tl.constexpr, COLUMNS: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    """table: sources, their inverse root mean squares, mixes."""
    column = tl.arange(0, COLUMNS)
    inside = column < width
    query = ()
    for m in tl.static_range(QUERIES):
        query += (tl.load(keyed + m * width + column, mask=inside, other=0.0),)
    first = tl.program_id(0).to(tl.int64) * PART
    for token in range(first, tl.minimum(first + PART, tokens)):
        at = token * width + column
        top, total, mix = (), (), ()
        for _ in tl.static_range(QUERIES):
            top += (tl.full((), float("-inf"), tl.float32),)
            total += (tl.full((), 0.0, tl.float32),)
            mix += (tl.zeros((COLUMNS,), tl.float32),)
        for start in range(0, sources, AT_ONCE):
            k = start + tl.arange(0, AT_ONCE)
            there = k < sources
            v = _tile(table, k, there, at, inside)
            inverse = tl.load(_pointers(table, sources + k, there) + token, mask=there, other=0.0)
            new_top, new_total, new_mix = (), (), ()
            for m in tl.static_range(QUERIES):
                s = tl.sum(v * query[m][None, :], 1) * inverse
                tl.store(scores + (token * QUERIES + m) * sources + k, s, mask=there)
                grown = _grown(tl.where(there, s, float("-inf")), v, top[m], total[m], mix[m])
                new_top += (grown[0],)
                new_total += (grown[1],)
                new_mix += (grown[2],)
            top, total, mix = new_top, new_total, new_mix
        for m in tl.static_range(QUERIES):
            row = _pointers(table, 2 * sources + m, None)
            result = mix[m] * tl.div_rn(1.0, total[m])
            if inverse_mix is not None:
                root = tl.div_rn(1.0, tl.sqrt_rn(tl.sum(result * result, 0) / width + norm_eps))
                tl.store(inverse_mix + token * QUERIES + m, root)
                result *= root
                if norm_gain is not None:
                    result *= tl.load(norm_gain + column, mask=inside, other=0.0)
            tl.store(row + at, result, mask=inside)


@triton.jit
@no_type_check
def _mixed(v, scores, k, there, top, total, mix, QUERIES: tl.constexpr):
    """`_grown` for every query, by the scores that are kept."""
    new_top, new_total, new_mix = (), (), ()
    for m in tl.static_range(QUERIES):
        s = tl.load(scores[m] + k, mask=there, other=float("-inf"))
        grown = _grown(s, v, top[m], total[m], mix[m])
        new_top += (grown[0],)
        new_total += (grown[1],)
        new_mix += (grown[2],)
    return new_top, new_total, new_mix


@triton.jit
@no_type_check
def _through_norm(
    tiles, table, scores, upstream, top, total, inverse_mix, norm_gain, of_gain, token, column, inside, width, sources,
    QUERIES: tl.constexpr, HELD: tl.constexpr, AT_ONCE: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The gradients of the mixes from those of what the norm made of them, and the gradient of the norm's gain with the
    token's part.

    With h = r mix gain and r = (mean(mix^2) + eps)^(-1/2):  dmix = r gain dh - r^3 mix (mix . gain dh) / width.
    """
    at = token * width + column
    mix = ()
    for _ in tl.static_range(QUERIES):
        mix += (tl.zeros((COLUMNS,), tl.float32),)
    if HELD > 0:
        for i in tl.static_range(HELD):
            k = i * AT_ONCE + tl.arange(0, AT_ONCE)
            top, total, mix = _mixed(tiles[i], scores, k, k < sources, top, total, mix, QUERIES)
    else:
        for start in range(0, sources, AT_ONCE):
            k = start + tl.arange(0, AT_ONCE)
            v = _tile(table, k, k < sources, at, inside)
            top, total, mix = _mixed(v, scores, k, k < sources, top, total, mix, QUERIES)
    of_mix = ()
    for m in tl.static_range(QUERIES):
        x = mix[m] * tl.div_rn(1.0, total[m])
        root = tl.load(inverse_mix + token * QUERIES + m)
        g = upstream[m]
        if norm_gain is not None:
            of_gain += x * root * g
            g *= tl.load(norm_gain + column, mask=inside, other=0.0)
        radial = root * root * (tl.sum(x * g, 0) / width)
        of_mix += ((g - x * radial) * root,)
    return of_mix, of_gain


@triton.jit
@no_type_check
def _agreements(v, upstream, scores, k, there, top, total, mean, QUERIES: tl.constexpr):
    """a_mk = G_m . v_k of a tile, and what all tiles so far have brought: the largest score, and the sums over sources
    of exp(score - largest) and of its product with a."""
    agreement, new_top, new_total, new_mean = (), (), (), ()
    for m in tl.static_range(QUERIES):
        s = tl.load(scores[m] + k, mask=there, other=float("-inf"))
        highest = tl.maximum(top[m], tl.max(s, 0))
        shrunk = tl.exp(top[m] - highest)
        e = tl.exp(s - highest)
        a = tl.sum(v * upstream[m][None, :], 1)
        agreement += (a,)
        new_top += (highest,)
        new_total += (total[m] * shrunk + tl.sum(e, 0),)
        new_mean += (mean[m] * shrunk + tl.sum(e * a, 0),)
    return agreement, new_top, new_total, new_mean


@triton.jit
@no_type_check
def _gradient_of_tile(
    v, agreement, table, query, of_query, upstream, scores, k, there, token, at, inside, width, sources,
    top, total, mean,
    QUERIES: tl.constexpr, AT_ONCE: tl.constexpr,
):  # fmt: skip
    """Writes the gradient of a tile of sources; returns the gradient of the queries with the tile's part."""
    inverse = tl.load(_pointers(table, sources + k, there) + token, mask=there, other=0.0)
    old = tl.load(table + 2 * sources + k, mask=there, other=0)
    grad = _tile(table, 2 * sources + k, there & (old != 0), at, inside)
    radial = tl.zeros((AT_ONCE,), tl.float32)
    new_of_query = ()
    for m in tl.static_range(QUERIES):
        s = tl.load(scores[m] + k, mask=there, other=float("-inf"))
        share = tl.div_rn(1.0, total[m])
        p = tl.exp(s - top[m]) * share
        of_score = p * (agreement[m] - mean[m] * share)
        scaled = of_score * inverse
        radial += of_score * tl.where(there, s, 0.0)
        grad += p[:, None] * upstream[m][None, :] + scaled[:, None] * query[m][None, :]
        new_of_query += (of_query[m] + tl.sum(scaled[:, None] * v, 0),)
    grad -= (radial / width * inverse * inverse)[:, None] * v
    rows = _pointers(table, 3 * sources + k, there)
    tl.store(rows[:, None] + at[None, :], grad, mask=there[:, None] & inside[None, :])
    return new_of_query


@triton.jit(do_not_specialize=["tokens", "sources"])
@no_type_check
def _read_backward(
    table, keyed, scores, grad_keyed, inverse_mix, norm_gain, grad_norm_gain, tokens, width, sources,
    QUERIES: tl.constexpr, HELD: tl.constexpr, AT_ONCE: tl.constexpr, COLUMNS: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    """table: sources, their inverse root mean squares, gradients before and after, gradients of the mixes."""
    column = tl.arange(0, COLUMNS)
    inside = column < width
    query, of_query = (), ()
    for m in tl.static_range(QUERIES):
        query += (tl.load(keyed + m * width + column, mask=inside, other=0.0),)
        of_query += (tl.zeros((COLUMNS,), tl.float32),)
    of_gain = tl.zeros((COLUMNS,), tl.float32)
    first = tl.program_id(0).to(tl.int64) * PART
    for token in range(first, tl.minimum(first + PART, tokens)):
        at = token * width + column
        upstream, own, top, total, mean = (), (), (), (), ()
        for m in tl.static_range(QUERIES):
            upstream += (_row(table, 4 * sources + m, at, inside),)
            own += (scores + (token * QUERIES + m) * sources,)
            top += (tl.full((), float("-inf"), tl.float32),)
            total += (tl.full((), 0.0, tl.float32),)
            mean += (tl.full((), 0.0, tl.float32),)
        tiles = _tiles(table, sources, at, inside, HELD, AT_ONCE)
        if inverse_mix is not None:
            upstream, of_gain = _through_norm(
                tiles, table, own, upstream, top, total, inverse_mix, norm_gain, of_gain, token, column, inside, width,
                sources, QUERIES, HELD, AT_ONCE, COLUMNS,
            )  # fmt: skip
        if HELD > 0:
            agreements = ()
            for i in tl.static_range(HELD):
                k = i * AT_ONCE + tl.arange(0, AT_ONCE)
                a, top, total, mean = _agreements(tiles[i], upstream, own, k, k < sources, top, total, mean, QUERIES)
                agreements += (a,)
            for i in tl.static_range(HELD):
                k = i * AT_ONCE + tl.arange(0, AT_ONCE)
                of_query = _gradient_of_tile(
                    tiles[i], agreements[i], table, query, of_query, upstream, own, k, k < sources, token, at, inside,
                    width, sources, top, total, mean, QUERIES, AT_ONCE,
                )  # fmt: skip
        else:
            for start in range(0, sources, AT_ONCE):
                k = start + tl.arange(0, AT_ONCE)
                v = _tile(table, k, k < sources, at, inside)
                _, top, total, mean = _agreements(v, upstream, own, k, k < sources, top, total, mean, QUERIES)
            for start in range(0, sources, AT_ONCE):
                k = start + tl.arange(0, AT_ONCE)
                v = _tile(table, k, k < sources, at, inside)
                a, _, _, _ = _agreements(v, upstream, own, k, k < sources, top, total, mean, QUERIES)
                of_query = _gradient_of_tile(
                    v, a, table, query, of_query, upstream, own, k, k < sources, token, at, inside,
                    width, sources, top, total, mean, QUERIES, AT_ONCE,
                )  # fmt: skip
    for m in tl.static_range(QUERIES):
        place = (tl.program_id(0).to(tl.int64) * QUERIES + m) * width + column
        tl.store(grad_keyed + place, of_query[m], mask=inside)
    if norm_gain is not None:
        tl.store(grad_norm_gain + tl.program_id(0).to(tl.int64) * width + column, of_gain, mask=inside)
