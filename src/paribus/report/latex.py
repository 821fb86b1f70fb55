r"""Tables for a paper: LaTeX with booktabs rules, to be read by \input, every name escaped.

A table with more rows than a page holds is a longtable. The first line of each file says which packages it needs.
"""

from collections.abc import Sequence

from paribus.report import tuning
from paribus.report.content import ReportContent
from paribus.report.core_shares import core_differences_table, core_table, shares_table
from paribus.report.costs import gains_table
from paribus.report.estimates import estimates_table
from paribus.report.evidence import Shown, may_compare
from paribus.report.tables import Table, seeds_table, verdict_table, without_empty_columns
from paribus.report.tasks import counterfactual_table, pairs_table, tasks_table
from paribus.stats.rounding import MINUS

PAGE_ROWS = 40
"""rows beyond which a table breaks over pages"""
_TEXT_WIDTH = 28
"""letters beyond which a column of words is set in lines of a fixed width"""

_ESCAPED = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    MINUS: "$-$",
    "\N{EN DASH}": "--",
    "\N{EM DASH}": "---",
    "\N{PLUS-MINUS SIGN}": r"$\pm$",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
    "\N{INFINITY}": r"$\infty$",
    "\N{LEFTWARDS ARROW}": r"$\leftarrow$",
    "\N{RIGHTWARDS ARROW}": r"$\rightarrow$",
    "\N{MIDDLE DOT}": r"$\cdot$",
    "\N{HORIZONTAL ELLIPSIS}": r"\ldots{}",
    "\N{NO-BREAK SPACE}": "~",
    "\N{NARROW NO-BREAK SPACE}": r"\,",
    **{c: f"$^{{{d}}}$" for c, d in zip("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789", strict=True)},
}


def tex_files(content: ReportContent, rows: Sequence[Shown]) -> dict[str, str]:
    """File name and text of each table that has rows."""
    scales = [scale for scale in dict.fromkeys(trial.scale for trial in content.trials) if may_compare(rows, scale)]
    found = {
        "verdicts": verdict_table(rows, content.parameters),
        "estimates": estimates_table(rows, content.estimates),
        "cost": gains_table(content.costs, content.loss_unit),
        "tasks": tasks_table(content.tasks),
        "task-pairs": pairs_table(content.task_pairs),
        "core": core_table(content.core),
        "core-differences": core_differences_table(content.core_differences),
        "core-shares": shares_table(content.core_shares),
        "counterfactuals": counterfactual_table(content.counterfactuals),
        "tuning": tuning.trials_table(content.trials, scales),
        "seeds": seeds_table(content.cells, content.loss_unit),
    }
    return {
        f"{name}.tex": to_latex(without_empty_columns(table, keep=1), f"tab:{name}")
        for name, table in found.items()
        if table is not None and table.rows
    }


def to_latex(table: Table, label: str) -> str:
    """The table under `label`, caption and note included."""
    long = len(table.rows) > PAGE_ROWS
    kinds = "".join(_column(table, i) for i in range(len(table.columns)))
    heads = [" & ".join(_cell(column.heading) for column in table.columns) + r" \\"]
    if any(column.unit for column in table.columns):
        heads.append(" & ".join(escape(column.unit) for column in table.columns) + r" \\")
    body = [" & ".join(_cell(cell) for cell in row) + r" \\" for row in table.rows]
    caption = rf"\caption{{{escape(' '.join(part for part in (table.caption + '.', table.note) if part))}}}"
    names = rf"\label{{{label}}}"
    if long:
        lines = [
            r"% needs \usepackage{booktabs,longtable}",
            rf"\begin{{longtable}}{{{kinds}}}",
            rf"{caption} {names} \\",
            r"\toprule",
            *heads,
            r"\midrule",
            r"\endfirsthead",
            r"\toprule",
            *heads,
            r"\midrule",
            r"\endhead",
            r"\bottomrule",
            r"\endfoot",
            *body,
            r"\end{longtable}",
        ]
    else:
        lines = [
            r"% needs \usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            r"\small",
            caption,
            names,
            rf"\begin{{tabular}}{{{kinds}}}",
            r"\toprule",
            *heads,
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Text that LaTeX prints as it stands; what no font of it has is left to the engine (XeLaTeX, LuaLaTeX)."""
    clean = " ".join("".join(c if c.isprintable() or c in _ESCAPED else " " for c in text).split(" "))
    # Two superscripts in a row would be an error of TeX: their groups are joined.
    return "".join(_ESCAPED.get(c, c) for c in clean).replace("}$$^{", "")


def _cell(text: str) -> str:
    first, _, rest = text.partition("\n")
    told = escape(first) + (f" ({escape(rest.replace(chr(10), ' '))})" if rest else "")
    # A row that begins with a bracket would be read as the argument of the line break before it.
    return f"{{}}{told}" if told.startswith(("[", "*")) else told


def _column(table: Table, number: int) -> str:
    if table.columns[number].numeric:
        return "r"
    longest = max((len(row[number]) for row in table.rows), default=0)
    return "l" if longest <= _TEXT_WIDTH else r"p{0.22\textwidth}"
