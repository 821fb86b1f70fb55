"""Predicted letters beside right ones: a model that always says one letter is seen at a glance.

Such a model scores the share of that letter, which looks like skill where the right answers lean to it. Each seed is
marked, since one may say A only and the next B only, and their mean would look balanced.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from paribus.report import canvas
from paribus.report.canvas import INK, Picture
from paribus.report.of_answers import LettersRow, named
from paribus.report.tables import Column, Table
from paribus.stats.rounding import MISSING, whole_percent

ONE_LETTER = 0.95
"""share of predictions from which on a model is said to name one letter only"""
_COLUMNS = 4
_DASH = 0.07
"""half the width of a seed's dash, in letters"""
_Numbers = NDArray[np.float64]
_LETTERS_SHOWN = 12
"""of a task with more choices the commonest are drawn"""


@dataclass(frozen=True)
class _Task:
    """One task as all arms answered it."""

    name: str
    letters: tuple[str, ...]
    gold: tuple[float, ...]
    """share of each letter among right answers"""
    arms: dict[str, dict[int, tuple[float, ...]]]
    """by arm and seed: share of each letter among predictions"""


def _tasks(found: Sequence[LettersRow]) -> list[_Task]:
    tasks = []
    for key in dict.fromkeys((row.suite, row.task, row.variant) for row in found):
        own = [row for row in found if (row.suite, row.task, row.variant) == key]
        total = {letter: 0 for row in own for letter in row.letters}
        for row in own:
            for letter, gold, predicted in zip(row.letters, row.gold, row.predicted, strict=True):
                total[letter] += gold + predicted
        letters = tuple(sorted(sorted(total, key=lambda letter: (-total[letter], letter))[:_LETTERS_SHOWN]))
        arms: dict[str, dict[int, tuple[float, ...]]] = {}
        for row in own:
            arms.setdefault(row.arm, {})[row.seed] = _shares(row.letters, row.predicted, letters)
        tasks.append(_Task(named(*key), letters, _shares(own[0].letters, own[0].gold, letters), arms))
    return tasks


def _shares(names: Sequence[str], counts: Sequence[int], letters: Sequence[str]) -> tuple[float, ...]:
    held = dict(zip(names, counts, strict=True))
    total = sum(counts)
    return tuple(held.get(letter, 0) / total if total else math.nan for letter in letters)


def letters_picture(found: Sequence[LettersRow], arms: Sequence[str], baseline: str, name: str) -> Picture:
    """A panel a task, of one scale: shares of right letters as pale bars, each arm as marks on them."""
    tasks = _tasks(found)
    looks = canvas.look_of(arms, baseline)
    columns = min(len(tasks), _COLUMNS)
    lines = math.ceil(len(tasks) / columns)
    with canvas.style():
        width = canvas.WIDTH_INCHES * (0.3 + 0.7 * columns / _COLUMNS if columns < _COLUMNS else 1)
        figure = Figure(figsize=(width, 0.55 + 1.6 * lines), layout="constrained")
        panels = figure.subplots(lines, columns, squeeze=False, sharey=True).ravel()
        for panel, task in zip(panels, tasks, strict=False):
            _panel(panel, task, arms, looks)
        for panel in panels[len(tasks) :]:
            panel.set_visible(False)
        for line in range(lines):
            panels[line * columns].set_ylabel("share")
        canvas.key(figure, [arm for arm in arms if any(arm in task.arms for task in tasks)], looks, markers=True)
        title = "Predicted letters beside right ones"
        return Picture(figure, name, title, f"{title}. {_in_words(tasks)}")


def _panel(panel: Axes, task: _Task, arms: Sequence[str], looks: dict) -> None:
    places = np.arange(len(task.letters), dtype=np.float64)
    panel.bar(places, task.gold, width=0.86, color=INK, alpha=0.14, lw=0)
    present = [arm for arm in arms if arm in task.arms]
    for number, arm in enumerate(present):
        colour, _, marker = looks[arm]
        x = places + (number - (len(present) - 1) / 2) * min(0.26, 0.78 / len(present))
        seeds = np.array([*task.arms[arm].values()])
        mean = seeds.mean(axis=0)
        panel.plot(*_strokes(x, x, np.zeros(len(x)), mean), color=colour, lw=1.4)
        panel.plot(x, mean, ls="", marker=marker, ms=4.2, color=colour)
        left, right = np.tile(x - _DASH, len(seeds)), np.tile(x + _DASH, len(seeds))
        panel.plot(*_strokes(left, right, seeds.ravel(), seeds.ravel()), color=colour, lw=0.9, alpha=0.75)
    panel.set_xticks(places, [canvas.label(letter, 6) for letter in task.letters])
    panel.set_xlim(-0.6, len(places) - 0.4)
    panel.set_ylim(0, 1.03)
    panel.set_yticks([0, 0.5, 1], ["0", "50 %", "100 %"])
    panel.set_title(canvas.label(task.name, 28))
    canvas.quiet(panel)


def _strokes(x1: _Numbers, x2: _Numbers, y1: _Numbers, y2: _Numbers) -> tuple[_Numbers, _Numbers]:
    """Strokes as one broken line, since a mark each would be most of the picture's bytes."""
    gap = np.full(len(x1), np.nan)
    return np.stack([x1, x2, gap], axis=1).ravel(), np.stack([y1, y2, gap], axis=1).ravel()


def one_letter_sentences(found: Sequence[LettersRow]) -> tuple[str, ...]:
    """Which arms say one letter nearly always, a sentence a task."""
    by_task: dict[tuple[str, str], dict[tuple[str, str], list[str]]] = {}
    for row in found:
        letter, share = row.favourite if row.letters else ("", math.nan)
        if share >= ONE_LETTER:
            name = named(row.suite, row.task, row.variant) + (f" after {row.after}" if row.after else "")
            said = by_task.setdefault((name, row.scale), {})
            said.setdefault((row.arm, letter), []).append(str(row.seed))
    several = len({scale for _, scale in by_task}) > 1
    return tuple(
        f"One letter nearly always in {name}{f', scale {scale}' if several else ''}: "
        + "; ".join(
            f"{arm} says {letter} ({'seeds' if len(seeds) > 1 else 'seed'} {', '.join(seeds)})"
            for (arm, letter), seeds in said.items()
        )
        + ". Its accuracy is little but the share of that letter."
        for (name, scale), said in by_task.items()
    )


def letters_table(found: Sequence[LettersRow]) -> Table:
    """The same as numbers: a row for the right answers of a task, then one a model."""
    letters = sorted({letter for row in found for letter in row.letters})
    columns = (
        Column("task"),
        Column("arm"),
        Column("seed", numeric=True),
        *(Column(letter, numeric=True) for letter in letters),
        Column("no prediction", "items", numeric=True),
    )
    body, accents = [], []
    for key in dict.fromkeys((row.scale, row.suite, row.task, row.variant, row.after) for row in found):
        own = [row for row in found if (row.scale, row.suite, row.task, row.variant, row.after) == key]
        scale, suite, task, variant, after = key
        name = named(suite, task, variant) + (f"\nafter {after}" if after else "")
        body.append((name, "right answers", MISSING, *_percents(own[0].letters, own[0].gold, letters), MISSING))
        accents.append("")
        for row in own:
            none = str(row.unanswered) if row.unanswered else MISSING
            shares = _percents(row.letters, row.predicted, letters)
            body.append((name, f"{row.arm}\nscale\u00a0{scale}", str(row.seed), *shares, none))
            accents.append("bad" if row.letters and row.favourite[1] >= ONE_LETTER else "")
    note = f"Shares of items. Marked: models that say one letter in at least {whole_percent(ONE_LETTER)} of them."
    return Table("Predicted letters beside right ones", columns, tuple(body), note, tuple(accents))


def _percents(names: Sequence[str], counts: Sequence[int], letters: Sequence[str]) -> list[str]:
    held = dict(zip(names, _shares(names, counts, names), strict=True))
    return [whole_percent(held[name]) if name in held and math.isfinite(held[name]) else MISSING for name in letters]


def _in_words(tasks: Sequence[_Task]) -> str:
    told = []
    for task in tasks:
        right = ", ".join(f"{n} {whole_percent(s)}" for n, s in zip(task.letters, task.gold, strict=True))
        parts = [f"{task.name}: right {right}"]
        for arm, seeds in task.arms.items():
            mean = np.mean([*seeds.values()], axis=0)
            each = ", ".join(
                f"{n} {whole_percent(float(s))}" for n, s in zip(task.letters, mean, strict=True) if math.isfinite(s)
            )
            parts.append(f"{arm} says {each or 'nothing'}")
        told.append("; ".join(parts))
    return ". ".join(told) + "."
