"""What a fine-tuning came to, on the terminal and as JSON."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from paribus.finetuning.running import Outcome
from paribus.terminal import table


def as_json(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    return [
        {
            "cell": outcome.base.name,
            "folder": str(outcome.folder),
            "state": outcome.state,
            "was_done": outcome.was_done,
            "summary": outcome.summary,
        }
        for outcome in outcomes
    ]


def show(outcomes: Sequence[Outcome], console: Console) -> None:
    """A line a cell: state, updates, and bits per byte of held-out answers before and after."""
    rows = []
    for outcome in outcomes:
        summary = outcome.summary
        measured = [found["bits_per_byte"] for _, found in sorted(_by_step(summary).items())]
        before, after = (measured[0], measured[-1]) if measured else (None, None)
        state = "complete before" if outcome.was_done and outcome.state == "complete" else outcome.state
        rows.append(
            [
                outcome.base.name,
                state,
                str(summary.get("steps", "")),
                "" if before is None else f"{before:.4f}",
                "" if after is None else f"{after:.4f}",
            ]
        )
    columns = ("cell", "state", "updates", "bits/byte before", "after")
    console.print(table("fine-tuned: answers of held-out conversations", columns, rows, right=(2, 3, 4)))
    for folder in sorted({str(outcome.folder) for outcome in outcomes})[:1]:
        console.print(f"{folder}{' and others' if len(outcomes) > 1 else ''}", highlight=False, soft_wrap=True)


def _by_step(summary: dict[str, Any]) -> dict[int, dict[str, Any]]:
    return {int(step): found for step, found in summary.get("validation", {}).items()}
