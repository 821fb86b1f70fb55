"""An adopted folder in the terminal and as JSON: verdict lines, what can be concluded, what cannot, in this order."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from paribus.adopting.conclude import Adopted, Outcome
from paribus.adopting.findings import Finding, Severity, some
from paribus.report.evidence import shown
from paribus.report.numbers import interval, significant
from paribus.stats.power import count_of
from paribus.stats.rounding import MISSING, fixed, percent
from paribus.stats.rule import Word
from paribus.terminal import table


def describe(adopted: Adopted, console: Console) -> None:
    """Everything that was found, as a person reads it."""
    _print(console, adopted.mapping.question, style="bold")
    arms = dict.fromkeys(run.arm for run in adopted.runs)
    _print(
        console,
        f"{count_of(len(adopted.runs), 'run')} of {count_of(len(arms), 'arm')} ({some(arms)}) from "
        f"{count_of(adopted.records, 'record')}; {len(adopted.left)} files or records not used",
    )
    console.print()
    console.print(table("Verdicts: treatment minus baseline", *_verdict_rows(adopted), right=(2, 3, 4)))
    console.print()
    _print(console, "What can be concluded", style="bold")
    for line in concluded(adopted):
        _print(console, f"  {line}")
    console.print()
    _print(console, "What cannot be concluded", style="bold")
    for line in not_concluded(adopted):
        _print(console, f"  {line}")
    for severity, heading in ((Severity.LIMITS, "What limits these conclusions"), (Severity.NOTE, "Notes")):
        found = adopted.of(severity)
        if found:
            console.print()
            _print(console, heading, style="bold")
            for of, finding in merged(found):
                _print(console, f"  {of}{finding.sentence}{_rows_text(finding)}")
    if adopted.left:
        console.print()
        _print(console, "Not used", style="bold")
        for one in adopted.left:
            _print(console, f"  {one.source}: {one.reason}")


def describe_json(adopted: Adopted) -> dict[str, Any]:
    """The same as JSON types, with every row that a finding concerns. A number that is not finite is None."""
    return {
        "folder": adopted.name,
        "question": adopted.mapping.question,
        "source": adopted.mapping.source,
        "records": adopted.records,
        "outcomes": [_outcome_json(outcome) for outcome in adopted.outcomes],
        "concluded": concluded(adopted),
        "not_concluded": not_concluded(adopted),
        "findings": [
            {
                "severity": finding.severity.value,
                "what": finding.what,
                "contrast": finding.contrast or None,
                "sentence": finding.sentence,
                "rows": list(finding.rows),
            }
            for finding in adopted.findings
        ],
        "runs": [
            {"source": run.source, "scale": run.scale, "arm": run.arm, "seed": run.seed, "host": run.host}
            for run in adopted.runs
        ],
        "not_used": [{"source": one.source, "reason": one.reason} for one in adopted.left],
    }


def concluded(adopted: Adopted) -> list[str]:
    """A sentence a contrast that has a verdict, by the rule alone; one sentence where none has."""
    found = []
    for outcome in adopted.outcomes:
        if outcome.verdict is None:
            continue
        verdict = shown(outcome.verdict)
        found += [f"{outcome.compared.name}: {text}" for text in (verdict.sentence, *verdict.notes)]
        if outcome.noise is not None:
            found.append(f"{outcome.compared.name}: {outcome.noise.sentence}")
        if outcome.time_ratio is not None:
            found.append(
                f"{outcome.compared.name}: on one host {outcome.compared.spec.treatment} took {outcome.time_ratio:.3g} "
                "times as long. The runs were not interleaved, so this describes and is no measurement of overhead."
            )
    return found or ["Nothing."]


def not_concluded(adopted: Adopted) -> list[str]:
    """A sentence a reason, with the contrast that it blocks; then what exploratory pairs leave open."""
    found = []
    for outcome in adopted.outcomes:
        if outcome.verdict is None:
            found += [f"{outcome.compared.name}: {Severity.NOTHING.value}. {reason}" for reason in outcome.reasons]
            if outcome.noise is not None:
                found.append(f"{outcome.compared.name}: {outcome.noise.sentence}")
    found += [finding.sentence for finding in adopted.of(Severity.NOTHING) if not finding.contrast]
    few = [o.compared.name for o in adopted.outcomes if o.verdict is not None and o.verdict.word is Word.EXPLORATORY]
    if few:
        found.append(f"{', '.join(few)}: exploratory. Neither a win nor equality is shown, whatever the numbers.")
    return found or ["Nothing stands in the way beyond what is listed below."]


def merged(findings: Sequence[Finding]) -> list[tuple[str, Finding]]:
    """Each sentence once, with the contrasts that it holds for in front."""
    holders: dict[str, list[Finding]] = {}
    for finding in findings:
        holders.setdefault(finding.sentence, []).append(finding)
    found = []
    for of in holders.values():
        rows = dict.fromkeys(row for finding in of for row in finding.rows)
        names = dict.fromkeys(finding.contrast for finding in of if finding.contrast)
        found.append((", ".join(names) + (": " if names else ""), dataclasses.replace(of[0], rows=tuple(rows))))
    return found


def _verdict_rows(adopted: Adopted) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    rows = []
    for outcome in adopted.outcomes:
        verdict, one = outcome.verdict, outcome.compared
        mean = None if verdict is None else shown(verdict).mean
        bounds = None if verdict is None or shown(verdict).interval is None else shown(verdict).interval
        decimals = _decimals(one.metric.smallest_effect)
        difference = MISSING if mean is None else f"{fixed(mean, decimals, signed=True)} {one.metric.unit}"
        if bounds is not None and verdict is not None:
            difference += f" {interval(bounds, decimals)} {percent(verdict.interval_confidence)}"
        rows.append(
            (
                one.name,
                outcome.word + (" (primary)" if one.primary else ""),
                difference,
                MISSING if outcome.noise is None else f"{outcome.noise.in_sd:.2f}",
                str(outcome.differences.pairs),
                f"{one.spec.treatment} minus {one.spec.baseline}" + _sizes(outcome),
            )
        )
    return ("contrast", "verdict", "difference", "in sd of two runs", "pairs", "arms"), rows


def _sizes(outcome: Outcome) -> str:
    if outcome.parameters is None or 0 in outcome.parameters:
        return ""
    treatment, baseline = outcome.parameters
    more = 100 * (treatment - baseline) / baseline
    return f", {significant(more, 2)} % more parameters" if more > 0 else f", {significant(more, 2)} % parameters"


def _decimals(smallest_effect: float) -> int:
    """One digit below the margin."""
    return min(max(1 - math.floor(math.log10(smallest_effect)), 0), 9)


def _rows_text(finding: Finding) -> str:
    return f" ({some(finding.rows)})" if finding.rows else ""


def _outcome_json(outcome: Outcome) -> dict[str, Any]:
    one, verdict = outcome.compared, outcome.verdict
    return {
        "name": one.name,
        "contrast": one.contrast,
        "scale": one.scale,
        "metric": one.spec.metric,
        "treatment": one.spec.treatment,
        "baseline": one.spec.baseline,
        "primary": one.primary,
        "word": outcome.word,
        "pairs": outcome.differences.pairs,
        "reasons": list(outcome.reasons),
        "verdict": None if verdict is None else shown(verdict).to_dict(),
        "noise": None if outcome.noise is None else dataclasses.asdict(outcome.noise),
        "parameters": None if outcome.parameters is None else list(outcome.parameters),
        "time_ratio": outcome.time_ratio,
    }


def _print(console: Console, text: str, style: str | None = None) -> None:
    # Names come from other people's files: what looks like markup in them is text.
    console.print(text, style=style, highlight=False, soft_wrap=True, markup=False)
