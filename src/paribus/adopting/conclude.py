"""What can be concluded from a folder of foreign results, by the rule that decides paribus' own studies.

A contrast goes to the rule only if nothing stands in its way; otherwise its line says that nothing can be concluded,
and why. What is blocked keeps its place: a primary that cannot be formed leaves every secondary undecided, and a
blocked secondary still counts in Holm's family, so that a broken contrast makes no other easier to win.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from paribus.adopting import findings as found_in
from paribus.adopting.checks import check
from paribus.adopting.findings import Finding, Repeats, Severity
from paribus.adopting.mapping import FILE, AdoptionMapping, load_mapping
from paribus.adopting.noise import NoiseReading, read_noise
from paribus.adopting.pairing import Compared, Pair, compared
from paribus.adopting.records import Left, read_folder
from paribus.adopting.runs import Run, to_runs
from paribus.adopting.settings import same_host_pairs
from paribus.errors import ParibusError, nearest
from paribus.stats.paired import PairedDifferences, paired_differences
from paribus.stats.rule import Comparison, Rule, Verdict
from paribus.stats.verdict import EXPLORATORY_SEEDS, decide

MAPPING = "mapping.toml"


@dataclass(frozen=True)
class Outcome:
    """One contrast at one scale: a verdict, or why there is none."""

    compared: Compared
    differences: PairedDifferences
    verdict: Verdict | None
    """None where nothing can be concluded"""
    reasons: tuple[str, ...]
    """why nothing can be concluded; empty where there is a verdict"""
    noise: NoiseReading | None

    @property
    def word(self) -> str:
        return self.verdict.word.value if self.verdict is not None else Severity.NOTHING.value

    @property
    def parameters(self) -> tuple[float, float] | None:
        """Of treatment and baseline in the first pair; None where they are not recorded."""
        for pair in self.compared.pairs:
            if pair.treatment.parameters is not None and pair.baseline.parameters is not None:
                return pair.treatment.parameters, pair.baseline.parameters
        return None

    @property
    def time_ratio(self) -> float | None:
        """Geometric mean of treatment's seconds over baseline's, of the pairs that ran on one recorded host."""
        ratios = [_time_ratio(pair) for pair in same_host_pairs(self.compared)]
        logs = [math.log(ratio) for ratio in ratios if ratio is not None]
        return math.exp(sum(logs) / len(logs)) if logs else None


@dataclass(frozen=True)
class Adopted:
    """A folder of foreign results, read."""

    name: str
    """of the folder"""
    mapping: AdoptionMapping
    records: int
    runs: tuple[Run, ...]
    left: tuple[Left, ...]
    """files and records that are not used, each with its reason"""
    outcomes: tuple[Outcome, ...]
    """the primary first"""
    findings: tuple[Finding, ...]
    repeats: tuple[Repeats, ...]

    def of(self, severity: Severity) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity is severity]


def adopt(directory: Path, mapping: Path | None = None) -> Adopted:
    """Read a folder by its mapping (DIR/mapping.toml unless another is named) and conclude what its files allow.

    ExperimentFileError where the mapping is wrong; ParibusError where no file or no run can be read.
    """
    found = load_mapping(directory / MAPPING if mapping is None else mapping)
    return conclude(directory, found)


def conclude(directory: Path, mapping: AdoptionMapping) -> Adopted:
    """As `adopt`, with a mapping that was read already."""
    records, left = read_folder(directory, mapping.globs)
    runs, unused = to_runs(records, mapping)
    left += unused
    if not runs:
        examples = "; ".join(f"{one.source}: {one.reason}" for one in left[:3])
        keys = sorted({path for record in records for path in record.fields} - {FILE})
        arm = mapping.columns.arm.path
        close = f"{nearest(arm, keys)}; " if arm is not None and keys and arm not in keys else ""
        raise ParibusError(
            f"{directory}: no run could be read",
            expected="records with an arm, as [columns] says",
            received=examples or "no record",
            remedy=f"{close}fields that were found: {', '.join(keys)}" if keys else "look at the files",
        )
    contrasts = compared(runs, mapping)
    repeats = found_in.accidental_repeats(runs, mapping)
    findings = [finding for one in contrasts for finding in check(one, mapping)]
    outcomes = _outcomes(contrasts, findings, mapping)
    findings += [_within_noise(outcome) for outcome in outcomes if _is_within_noise(outcome)]
    findings += found_in.other_scales(runs, mapping)
    findings += found_in.missing_columns(records, mapping)
    findings += found_in.label_drift(records, mapping)
    findings += found_in.repeats_as_findings(repeats)
    findings += found_in.unused_arms(runs, mapping)
    findings += found_in.standing(mapping)
    return Adopted(
        name=directory.resolve().name,
        mapping=mapping,
        records=len(records),
        runs=tuple(runs),
        left=tuple(left),
        outcomes=tuple(_without_what_noise_explains(outcome) for outcome in outcomes),
        findings=tuple(findings),
        repeats=tuple(repeats),
    )


def _outcomes(contrasts: Sequence[Compared], findings: Sequence[Finding], mapping: AdoptionMapping) -> list[Outcome]:
    """Verdicts of one page: what is blocked is stood in for, so that the family keeps its size."""
    blocked = {f.contrast for f in findings if f.severity is Severity.NOTHING}
    differences = {one.name: _differences(one) for one in contrasts}
    page = [
        _blocked(one) if one.name in blocked else _comparison(one, differences[one.name], mapping) for one in contrasts
    ]
    planned, primary_pairs = mapping.planned_seeds or 0, differences[contrasts[0].name].pairs
    outcomes = []
    for one, verdict in zip(contrasts, decide(page), strict=True):
        pairs = differences[one.name]
        reasons = tuple(f.sentence for f in findings if f.contrast == one.name and f.severity is Severity.NOTHING)
        # While the primary or this contrast waits no number is shown, here no more than in a study of our own.
        waiting = planned > min(pairs.pairs, primary_pairs)
        noise = None if waiting else read_noise(pairs.differences, one.metric)
        outcomes.append(Outcome(one, pairs, None if one.name in blocked else verdict, reasons, noise))
    return outcomes


def _differences(one: Compared) -> PairedDifferences:
    def values(role: str) -> dict[int, float | None]:
        found: dict[int, float | None] = {}
        for pair in one.pairs:
            value = getattr(pair, role).values[one.spec.metric]
            if value is not None:
                found[pair.seed] = value if math.isfinite(value) else None
        return found

    return paired_differences(values("treatment"), values("baseline"))


def _comparison(one: Compared, pairs: PairedDifferences, mapping: AdoptionMapping) -> Comparison:
    by_seed = {pair.seed: pair for pair in one.pairs}

    def values(role: str) -> tuple[float, ...]:
        return tuple(getattr(by_seed[seed], role).values[one.spec.metric] for seed in pairs.seeds)

    planned = mapping.planned_seeds if mapping.planned_seeds is not None else max(1, pairs.pairs)
    return _on_the_page(one, planned, pairs, values("treatment"), values("baseline"))


def _blocked(one: Compared) -> Comparison:
    """What stands on the page for a contrast that cannot be formed; its own verdict is never shown.

    A primary: pairs without information, so that its null stands and no secondary is tested. A secondary: planned and
    not there, so that it keeps its place in the family with p = 1.
    """
    planned = EXPLORATORY_SEEDS + 1
    values = (0.0,) * planned if one.primary else ()
    pairs = PairedDifferences(tuple(range(len(values))), values)
    return _on_the_page(one, planned, pairs, values, values)


def _on_the_page(
    one: Compared,
    planned: int,
    pairs: PairedDifferences,
    treatment_values: tuple[float, ...],
    baseline_values: tuple[float, ...],
) -> Comparison:
    metric = one.metric
    return Comparison(
        name=one.name,
        treatment=one.spec.treatment,
        baseline=one.spec.baseline,
        scale=one.scale,
        metric=one.spec.metric,
        unit=metric.unit,
        primary=one.primary,
        rule=Rule(metric.smallest_effect, metric.design_effect, planned, lower_is_better=metric.lower_is_better),
        differences=pairs,
        treatment_values=treatment_values,
        baseline_values=baseline_values,
    )


def _is_within_noise(outcome: Outcome) -> bool:
    """Too few pairs for an interval of their own, and a difference that two runs of one arm would show."""
    few = outcome.differences.pairs <= EXPLORATORY_SEEDS
    return few and outcome.noise is not None and outcome.noise.within_noise


def _within_noise(outcome: Outcome) -> Finding:
    assert outcome.noise is not None
    one = outcome.compared
    return Finding(
        Severity.NOTHING,
        "within noise",
        f"The difference is {outcome.noise.in_sd:.2f} sd of a difference of two runs of one arm: chance alone shows "
        "as much, and not even a direction can be read from it.",
        tuple(source for pair in one.pairs for source in pair.sources),
        one.name,
    )


def _without_what_noise_explains(outcome: Outcome) -> Outcome:
    if not _is_within_noise(outcome):
        return outcome
    return replace(outcome, verdict=None, reasons=(*outcome.reasons, _within_noise(outcome).sentence))


def _time_ratio(pair: Pair) -> float | None:
    """Seconds of the treatment over those of the baseline; None where they are not recorded or no times."""
    treatment, baseline = pair.treatment.seconds, pair.baseline.seconds
    if treatment is None or baseline is None or not (treatment > 0 and baseline > 0):
        return None
    ratio = treatment / baseline
    return ratio if 0 < ratio < math.inf else None
