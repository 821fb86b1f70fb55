"""The part of the page about downstream tasks: beside the verdict, never instead of it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from paribus.report import figures
from paribus.report.answers_figures import gold_bits_picture
from paribus.report.blocks import Absent, Block, PageFigure, PageTable, Section, picture_figure
from paribus.report.content import ReportContent
from paribus.report.core_shares import core_differences_table, core_table, score_name, shares_picture, shares_table
from paribus.report.evidence import Shown
from paribus.report.letters import letters_picture, letters_table, one_letter_sentences
from paribus.report.of_answers import LettersRow, TaskPairRow, TaskRow, named
from paribus.report.tables import Table, without_empty_columns
from paribus.report.tasks import counterfactual_table, milestones_table, pairs_table, tasks_table

TITLE = "Downstream tasks"
_ANCHOR = "tasks"
_ABSENT = "No task was evaluated; `paribus evaluate` asks trained cells at any time."
_SWAPPED = "counterfactual"
_SENTENCE = (
    "Two models answer the same items, so only items on which they differ say anything. Seeds are the replicates: what "
    "follows describes, and decides nothing."
)


def answers_section(content: ReportContent, rows: Sequence[Shown], withheld: str = "") -> Section | Absent:
    """Of a content that went through `door.due`; a line where nothing was answered. `withheld` says why that may be."""
    shown = (content.tasks, content.core, content.letters, content.counterfactuals)
    if not any(shown):
        return Absent(TITLE, withheld or _ABSENT)
    plain = _plain(content.letters)
    found = [
        *(tasks_table(own, of) for of, own in _by_contrast(content.tasks, content)),
        core_table(content.core),
        core_differences_table(content.core_differences),
        counterfactual_table(content.counterfactuals),
    ]
    folded = {
        "Pairs of checkpoints, item by item": [
            pairs_table(own, of) for of, own in _by_contrast(content.task_pairs, content)
        ],
        "In the middle of the schedule": [
            milestones_table(own, of) for of, own in _by_contrast(content.tasks, content)
        ],
        "What each task adds to a difference of scores": [shares_table(content.core_shares)],
        "Predicted letters in numbers": [letters_table(plain)],
    }
    blocks = [
        Block(title, "", "", (), _tables(f"{_ANCHOR}-more-{number}", inside))
        for number, (title, inside) in enumerate(folded.items(), 1)
        if any(table.rows for table in inside)
    ]
    said = (*one_letter_sentences(plain), *swapped_sentences(content))
    drawn = (*_gold_bits(content), *_shares(content), *_letters(content, plain, rows))
    return Section(_ANCHOR, TITLE, (_SENTENCE, *said), drawn, _tables(_ANCHOR, found), tuple(blocks))


_Row = TypeVar("_Row", TaskRow, TaskPairRow)


def _by_contrast(found: Sequence[_Row], content: ReportContent) -> Iterator[tuple[str, list[_Row]]]:
    """The rows of each contrast and fine-tuning, with what the caption of their table says they are of."""
    several = len(figures.scales_of(content)) > 1
    for contrast, scale, after in dict.fromkeys((row.contrast, row.scale, row.after) for row in found):
        own = [row for row in found if (row.contrast, row.scale, row.after) == (contrast, scale, after)]
        yield _of(contrast, after) + (f", scale {scale}" if several else ""), own


def swapped_sentences(content: ReportContent) -> tuple[str, ...]:
    """Which tasks an arm answers above chance without their question."""
    by_task: dict[str, list[str]] = {}
    for row in content.counterfactuals:
        if row.above_chance:
            name = named(row.suite, row.task, row.variant) + (f" after {row.after}" if row.after else "")
            by_task.setdefault(name, []).append(row.arm)
    return tuple(
        f"With its questions swapped {name} is still answered above chance by {', '.join(dict.fromkeys(arms))}: "
        "some of its score is had without the question."
        for name, arms in by_task.items()
    )


def _plain(found: Iterable[LettersRow]) -> list[LettersRow]:
    return [row for row in found if _SWAPPED not in row.variant.split("+") and row.letters]


def _tables(anchor: str, found: Sequence[Table]) -> tuple[PageTable, ...]:
    held = [without_empty_columns(table, keep=1) for table in found if table.rows]
    # Tables of several contrasts have one note between them.
    notes = [table.note for table in held]
    held = [replace(table, note="") if table.note in notes[:place] else table for place, table in enumerate(held)]
    return tuple(PageTable(f"{anchor}-{number}", table) for number, table in enumerate(held, 1))


def _gold_bits(content: ReportContent) -> list[PageFigure]:
    drawn = []
    for contrast, scale, after in dict.fromkeys((row.contrast, row.scale, row.after) for row in content.tasks):
        own = [row for row in content.tasks if (row.contrast, row.scale, row.after) == (contrast, scale, after)]
        pairs = [row for row in content.task_pairs if (row.contrast, row.scale, row.after) == (contrast, scale, after)]
        number = len(drawn) + 1
        picture = gold_bits_picture(own, pairs, f"figure-gold-bits-{number}")
        if picture is not None:
            caption = (
                f"{_of(contrast, after)}: dots are means over seeds, bars their intervals, ticks the seeds. Hollow: "
                "the baseline's accuracy does not clear chance, or is saturated, so the task may not join a family."
            )
            drawn.append(picture_figure(f"Scale {scale}", caption, picture, _file("gold-bits", number)))
    return drawn


def _shares(content: ReportContent) -> list[PageFigure]:
    drawn = []
    keys = [(row.contrast, row.scale, row.suite, row.variant, row.after) for row in content.core_shares]
    for key in dict.fromkeys(keys):
        own = [row for row, of in zip(content.core_shares, keys, strict=True) if of == key]
        number = len(drawn) + 1
        score = score_name(*key[2:4], "").replace("\n", ", ")
        caption = (
            f"{_of(key[0], key[4])}: what each task adds to the difference of {score}, under each table of random "
            "baselines that is known."
        )
        nothing = [row.task for row in own if not (row.v1_contribution or row.v2_contribution)]
        caption += f" Nothing is added by {', '.join(nothing)}." if nothing else ""
        picture = shares_picture(own, f"figure-core-shares-{number}")
        if picture is None:
            continue
        drawn.append(picture_figure(f"Scale {key[1]}", caption, picture, _file("core-shares", number)))
    return drawn


def _letters(content: ReportContent, found: Sequence[LettersRow], rows: Sequence[Shown]) -> list[PageFigure]:
    drawn = []
    for scale, after in dict.fromkeys((row.scale, row.after) for row in found):
        own = [row for row in found if (row.scale, row.after) == (scale, after)]
        arms = figures.arms_of(content, scale)
        number = len(drawn) + 1
        picture = letters_picture(own, arms, figures.baseline_of(rows, scale, arms), f"figure-letters-{number}")
        caption = (
            f"{f'After {after}: pale' if after else 'Pale'} bars: how often a letter is right; markers: how often an "
            "arm says it, mean over seeds; dashes: single seeds."
        )
        drawn.append(picture_figure(f"Scale {scale}", caption, picture, _file("letters", number)))
    return drawn


def _of(contrast: str, after: str) -> str:
    return contrast + (f", after {after}" if after else "")


def _file(stem: str, number: int) -> str:
    return stem if number == 1 else f"{stem}-{number}"
