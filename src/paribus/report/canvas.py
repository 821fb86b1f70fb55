"""Where every figure is drawn: one style, and one way from a matplotlib figure to an SVG that a page can hold.

matplotlib draws geometry; this file makes its SVG fit to be read. Text stays text (searchable, in the reader's own
font, spoken by a screen reader), ink follows the page's text colour, ids carry the figure's name so that several
SVGs live in one page, and the same records give the same bytes: no date, no version, no random salt.
"""

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

# Ink is drawn in this colour and replaced on the way out: by `currentColor` in a page (light or dark, the page
# knows), by a mid grey where a file stands alone. Its contrast to white and to near-black is equal, about 4.4 to 1.
INK = "#010203"
_MID_GREY = "#777b80"
_MID_BLUE = ("#0072b2", "#2b87cc")
"""the page's first colour, and what stands for it in a file that does not know its ground"""

# Okabe and Ito (2008), without the yellow that white paper swallows. The baseline is ink; arms differ in dash too.
# In a page each colour is a variable, which a dark page sets to a lighter shade of the same hue.
ARM_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
ARM_DASHES: tuple[str | tuple[float, tuple[float, ...]], ...] = (
    "-",
    (0, (5, 1.6)),
    (0, (1.4, 1.4)),
    (0, (7, 1.6, 1.4, 1.6)),
    (0, (3, 1.2)),
    (0, (9, 2)),
)
ARM_MARKERS = ("s", "D", "^", "v", "P", "X")
WIDTH_INCHES = 9.6
_FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Noto Sans', Arial, sans-serif"

_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "paribus",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # letters that can be searched and edited, not outlines
    "font.family": "DejaVu Sans",  # shipped with matplotlib, so the layout is the same on every machine
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "text.parse_math": False,  # an arm may be called "$x"
    "text.usetex": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "path.simplify": True,
    "axes.unicode_minus": True,
    "axes.formatter.useoffset": False,
}


@contextmanager
def style() -> Iterator[None]:
    """The settings every figure is drawn and written under, matplotlib's own defaults restored after."""
    # A name in a script that the layout font lacks is still shown: the reader's font draws it, not matplotlib's.
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        yield


def label(text: str, limit: int = 30) -> str:
    """A name as a figure can hold it: one line, no control characters, shortened in the middle beyond `limit`."""
    clean = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    if len(clean) <= limit:
        return clean
    head = (limit - 1) * 2 // 3
    return f"{clean[:head]}…{clean[len(clean) - (limit - 1 - head) :]}"


def look_of(arms: Sequence[str], baseline: str) -> dict[str, tuple[str, str | tuple[float, tuple[float, ...]], str]]:
    """Colour, dash and marker of each arm; the baseline is ink, solid, a circle. Six colours, then other dashes."""
    others = [arm for arm in arms if arm != baseline]
    looks = {
        arm: (ARM_COLOURS[i % 6], ARM_DASHES[(i + i // 6) % 6], ARM_MARKERS[(i + i // 6) % 6])
        for i, arm in enumerate(others)
    }
    if baseline in arms:
        looks[baseline] = (INK, "-", "o")
    return looks


def quiet(axes: Axes, *, grid: str = "y") -> None:
    """Thin the frame so that the data is the darkest thing in the panel. `grid` is "x", "y" or "" for none."""
    for side in axes.spines.values():
        side.set_alpha(0.45)
    if grid in ("x", "y"):
        axes.grid(visible=True, axis=grid, color=INK, alpha=0.12, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(length=3, pad=3)


def key(figure: Figure, arms: Sequence[str], looks: dict, *, markers: bool = False, limit: int = 30) -> None:
    """One line above the panels that names each arm's colour, dash and marker; names are cut to `limit` letters."""
    handles = [
        Line2D([], [], color=looks[a][0], linestyle=looks[a][1], marker=looks[a][2] if markers else "", lw=2, ms=5)
        for a in arms
    ]
    # matplotlib leaves a name that begins with "_" out of a legend; a space in front keeps it.
    names = [f" {label(a, limit)}" if a.startswith("_") else label(a, limit) for a in arms]
    widest = 60 + 5.5 * max(map(len, names), default=0)  # points: swatch and gap, then 5.5 a letter at this size
    columns = max(1, min(4, int(figure.get_figwidth() * 72 / widest)))
    figure.legend(handles, names, loc="outside upper left", ncols=columns, handlelength=3.2, columnspacing=2.0)


@dataclass(frozen=True, eq=False)
class Picture:
    """A drawn figure, to be written as often as it is needed: into the page, and into files of its own."""

    figure: Figure
    name: str
    """unique within a page: every id starts with it"""
    title: str
    description: str
    """the figure in words, for those who hear it"""
    narrow: bool = False
    """as wide as a phone: it fills its place instead of keeping letters at the page's size"""

    @cached_property
    def svg(self) -> str:
        """One `<svg>` element for a page, which gives it ink, colours and size."""
        return self._written(standalone=False)

    @cached_property
    def standalone(self) -> str:
        """An SVG file of its own, with its size and an ink that reads on white and on dark."""
        return self._written(standalone=True)

    @cached_property
    def pdf(self) -> bytes:
        """A PDF for a paper: black ink, letters that stay letters, no date."""
        _ = self._drawn  # the layout that the SVG was given, so that all forms look alike
        buffer = io.BytesIO()
        with style():
            nothing = dict.fromkeys(("Creator", "Producer", "CreationDate"))
            self.figure.savefig(buffer, format="pdf", transparent=True, metadata=nothing)
        return buffer.getvalue()

    @cached_property
    def _drawn(self) -> str:
        buffer = io.StringIO()
        with style():
            empty = dict.fromkeys(("Date", "Creator", "Format", "Type"))
            self.figure.savefig(buffer, format="svg", transparent=True, metadata=empty)
            self.figure.set_layout_engine("none")  # laid out once; to do it again for a PDF would be half of its cost
        return buffer.getvalue()

    def _written(self, standalone: bool) -> str:
        raw = self._drawn
        body = re.sub(r"<defs>\s*<style[^>]*>.*?</style>\s*</defs>", "", raw[raw.index("<svg") :], flags=re.S)
        body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.S)
        body = re.sub(r"<!--.*?-->", "", body, flags=re.S)
        box = re.search(r'viewBox="([^"]+)"', body)
        content = body[body.index(">") + 1 : body.rindex("</svg>")]
        return self._open(box.group(1) if box else "", standalone) + _tidy(content, self.name, standalone)

    def _open(self, box: str, standalone: bool) -> str:
        _, _, width, height = (float(part) for part in box.split())
        if standalone:
            margin = 8
            width, height = width + 2 * margin, height + 2 * margin
            box = f"-{margin} -{margin} {width:g} {height:g}"
            size = f'width="{width * 4 / 3:.0f}" height="{height * 4 / 3:.0f}"'
        elif self.narrow:
            size = 'style="width:100%"'
        else:
            # As wide as its share of the page, so that letters have one size; on a narrow screen it scrolls instead.
            share = min(width / (WIDTH_INCHES * 72), 1)
            size = f'style="max-width:{100 * share:.0f}%;min-width:{50 * share:.1f}rem"'
        name = self.name
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" id="{name}" viewBox="{box}" {size} role="img" '
            f'aria-labelledby="{name}-title {name}-desc" stroke-linejoin="round" stroke-linecap="butt">\n'
            f'<title id="{name}-title">{escape(_spoken(self.title))}</title>\n'
            f'<desc id="{name}-desc">{escape(_spoken(self.description))}</desc>\n'
        )


def to_svg(figure: Figure, name: str, title: str, description: str) -> str:
    """The figure as one `<svg>` element of a page, with `title` and `description` as its text alternative."""
    return Picture(figure, name, title, description).svg


def _spoken(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _tidy(content: str, name: str, standalone: bool) -> str:
    """Markup only: text between tags is left as it is, whatever it says."""
    used = set(re.findall(r"(?:url\(#|href=\"#)([^)\"]+)", content))

    def tag(match: re.Match[str]) -> str:
        markup = re.sub(r' id="([^"]*)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", match[0])
        markup = re.sub(r"url\(#", f"url(#{name}-", markup)
        markup = re.sub(r'(?:xlink:)?href="#', f'href="#{name}-', markup)
        markup = markup.replace("xlink:href", "href")
        markup = markup.replace(INK, _MID_GREY if standalone else "currentColor")
        if standalone:
            # A paler shade of a mid grey would not be legible on either ground.
            markup = re.sub(r" ?opacity: 0\.\d+;?", "", markup) if markup.startswith("<text") else markup
            markup = markup.replace(*_MID_BLUE)
        else:
            for number, colour in enumerate(ARM_COLOURS, 1):
                markup = markup.replace(colour, f"var(--arm-{number})")
        markup = re.sub(r"'DejaVu Sans'", _FONTS if standalone else "var(--figure-font)", markup)
        return re.sub(r"(?<= d=\")[^\"]+", lambda m: re.sub(r"\d+\.\d{3,}", _two_decimals, m[0]), markup)

    tidy = re.sub(r"<[^>]+>", tag, content)
    return re.sub(r"\n\s*\n+", "\n", tidy).strip() + "\n</svg>\n"


def _two_decimals(match: re.Match[str]) -> str:
    # Hundredths of a point are finer than any screen; the rest would be half of the page's bytes.
    return f"{float(match[0]):.2f}".rstrip("0").rstrip(".")
