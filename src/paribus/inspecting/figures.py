"""The figures of an inspected corpus: lengths of documents, what became of what was read, tokens by source."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paribus.data.split import SPLITS
from paribus.inspecting.findings import Findings
from paribus.inspecting.tables import share
from paribus.report import canvas
from paribus.report.canvas import ARM_COLOURS, INK, Picture
from paribus.report.numbers import count, short_count

SOURCES_DRAWN = 15
_DOCUMENTS, _TOKENS = ARM_COLOURS[0], ARM_COLOURS[1]
_NARROW_INCHES = 4.2
_ROW_INCHES = 0.3


def lengths_figure(found: Findings, name: str, *, narrow: bool = False) -> Picture:
    """Shares of documents and of tokens by a document's length, on a logarithmic axis, and the context length."""
    lengths = found.lengths
    documents, tokens = (column / max(column.sum(), 1) * 100 for column in (lengths.documents, lengths.tokens))
    with canvas.style():
        figure = Figure(figsize=(_NARROW_INCHES if narrow else canvas.WIDTH_INCHES, 3.1), layout="constrained")
        axes = figure.add_subplot()
        axes.stairs(documents, lengths.edges, fill=True, color=_DOCUMENTS, alpha=0.35, label="documents")
        axes.stairs(documents, lengths.edges, color=_DOCUMENTS, lw=1.2)
        axes.stairs(tokens, lengths.edges, color=_TOKENS, lw=2, label="tokens in them")
        axes.axvline(found.context_length, color=INK, lw=1, ls=(0, (4, 2)), alpha=0.7)
        axes.set_xscale("log", base=2)
        filled = documents.nonzero()[0]
        if len(filled):
            axes.set_xlim(float(lengths.edges[filled[0]]), float(lengths.edges[-1]))
        axes.set_ylim(0, None)
        _ticks(axes, 4 if narrow else 2)
        axes.annotate(
            f"row of {count(found.context_length)}", (found.context_length, 1), xycoords=("data", "axes fraction"),
            xytext=(0, 2), textcoords="offset points", ha="center", va="bottom", fontsize=8, alpha=0.8,
        )  # fmt: skip
        axes.set_xlabel("length of the document, tokens")
        axes.set_ylabel("share, %")
        canvas.quiet(axes)
        figure.legend(loc="outside upper left", ncols=2)
    told = [f"{facts.split}: median {facts.median:,.0f}, longest {facts.longest:,} tokens" for facts in found.splits]
    return Picture(figure, name, "Lengths of documents", "; ".join(told), narrow)


def kept_figure(found: Findings, name: str, *, narrow: bool = False) -> Picture:
    """Documents in each split, and those that were read and left out, by reason."""
    kept = [(facts.split, facts.documents) for facts in found.splits]
    bars = [*kept, *sorted(found.left_out.items(), key=lambda item: -item[1])]
    total = sum(number for _, number in bars)
    told = [f"{count(number)}  ({share(number / total if total else None)})" for _, number in bars]
    colours = [_DOCUMENTS] * len(SPLITS) + [_TOKENS] * (len(bars) - len(SPLITS))
    described = ", ".join(f"{label} {number:,}" for label, number in bars)
    return _bars(bars, told, colours, name, "What became of what was read", described, narrow)


def sources_figure(found: Findings, name: str, *, narrow: bool = False) -> Picture:
    """Tokens of the largest sources, over all splits."""
    shown, rest = found.sources[:SOURCES_DRAWN], found.sources[SOURCES_DRAWN:]
    bars = [(source.source, source.tokens) for source in shown]
    bars += [(f"{len(rest)} others", sum(source.tokens for source in rest))] if rest else []
    told = [f"{short_count(number)}  ({share(number / max(found.tokens, 1))})" for _, number in bars]
    colours = [_DOCUMENTS] * len(shown) + [INK] * bool(rest)
    described = ", ".join(f"{label} {number:,} tokens" for label, number in bars)
    return _bars(bars, told, colours, name, "Tokens by source", described, narrow)


def _bars(
    bars: Sequence[tuple[str, int]],
    told: Sequence[str],
    colours: Sequence[str],
    name: str,
    title: str,
    description: str,
    narrow: bool,
) -> Picture:
    """Horizontal bars from the top down, each with its number behind it."""
    longest = max((number for _, number in bars), default=0) or 1
    with canvas.style():
        width = _NARROW_INCHES if narrow else canvas.WIDTH_INCHES
        figure = Figure(figsize=(width, 0.3 + _ROW_INCHES * max(len(bars), 1)), layout="constrained")
        axes = figure.add_subplot()
        places = range(len(bars))
        axes.barh(places, [number for _, number in bars], height=0.62, color=list(colours), alpha=0.75)
        for place, text in zip(places, told, strict=True):
            axes.annotate(
                text, (bars[place][1], place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8
            )
        axes.set_yticks(places, [canvas.label(label, 18 if narrow else 30) for label, _ in bars])
        axes.set_ylim(len(bars) - 0.4, -0.6)
        # Room for the number behind the longest bar.
        axes.set_xlim(0, longest * (1.65 if narrow else 1.2))
        axes.set_xticks([])
        canvas.quiet(axes, grid="")
        axes.spines["bottom"].set_visible(False)
    return Picture(figure, name, title, description, narrow)


def _ticks(axes: Axes, every: int) -> None:
    """Powers of two, as many as the width holds."""
    low, high = axes.get_xlim()
    ticks = [2.0**power for power in range(0, 64, every) if low <= 2.0**power <= high]
    axes.set_xticks(ticks, [short_count(tick) if tick >= 1e4 else f"{tick:.0f}" for tick in ticks])
    axes.minorticks_off()
