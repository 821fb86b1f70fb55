"""Whether the runs of one contrast at one scale are there, seed by seed, and hold numbers; and all checks in one call.

Each failure here has happened silently in public harnesses: a deleted baseline, a dropped key, two recipes under one
name.
"""

import math
from collections.abc import Iterator, Mapping

from paribus.adopting import settings
from paribus.adopting.findings import Finding, Severity, some
from paribus.adopting.mapping import AdoptionMapping
from paribus.adopting.pairing import Compared
from paribus.adopting.runs import Run, setting, text_of
from paribus.adopting.settings import TOKENS_TOLERANCE, far_apart, is_budget, of_contrast, same, sources
from paribus.stats.power import count_of

ROLES = ("treatment", "baseline")


def check(one: Compared, mapping: AdoptionMapping) -> list[Finding]:
    """Every finding about this contrast at this scale."""
    parts = (_present, _repeated, _seeds, _values, _declared, *settings.CHECKS)
    return [finding for part in parts for finding in part(one, mapping)]


def _present(one: Compared, mapping: AdoptionMapping) -> Iterator[Finding]:
    del mapping
    sides = {"baseline": (one.spec.baseline, one.baseline), "treatment": (one.spec.treatment, one.treatment)}
    missing = {role: arm for role, (arm, runs) in sides.items() if not runs}
    if len(missing) == 2:
        names = f"{one.spec.treatment} nor {one.spec.baseline}"
        yield of_contrast(one, Severity.NOTHING, "missing runs", f"Neither {names} has a run at {one.scale}.")
    elif missing:
        role, arm = next(iter(missing.items()))
        there = tuple(run.source for run in one.runs)
        yield of_contrast(
            one,
            Severity.NOTHING,
            f"missing {role}",
            f"No run of the {role} '{arm}' at {one.scale}, {count_of(len(there), 'run')} of the other arm: no pair.",
            there,
        )
    elif not one.pairs:
        of = "; ".join(f"{arm}: {_seeds_text(runs)}" for arm, runs in sides.values())
        rows = tuple(run.source for run in one.runs)
        yield of_contrast(one, Severity.NOTHING, "no pair", f"No seed has a run of both arms ({of}).", rows)


def _seeds_text(runs: Mapping[int | None, tuple[Run, ...]]) -> str:
    return ", ".join(f"{len(found)} without a seed" if seed is None else str(seed) for seed, found in runs.items())


def _repeated(one: Compared, mapping: AdoptionMapping) -> Iterator[Finding]:
    """Several runs of one cell are A/A only where they were set alike; otherwise nobody knows which one is meant."""
    for seed, runs in (*one.treatment.items(), *one.baseline.items()):
        if len(runs) == 1:
            continue
        rows = tuple(run.source for run in runs)
        if seed is None:
            yield of_contrast(
                one,
                Severity.NOTHING,
                "runs without a seed",
                f"{len(runs)} runs of {runs[0].arm} at {one.scale} record no seed: which of them belongs to which run "
                "of the other arm is not known.",
                rows,
            )
            continue
        paths = [
            path
            for path in mapping.equal.fields
            if not is_budget(path, mapping) and len({text_of(setting(r, path)) for r in runs}) > 1
        ]
        if paths or far_apart([run.tokens for run in runs], TOKENS_TOLERANCE):
            differing = [f"{path} = {' and '.join(text_of(setting(r, path)) for r in runs)}" for path in paths]
            tokens = [] if paths else [f"tokens = {' and '.join(text_of(run.tokens) for run in runs)}"]
            yield of_contrast(
                one,
                Severity.NOTHING,
                "two recipes under one name",
                f"{len(runs)} runs of {runs[0].arm} at {one.scale}, seed {seed}, were not set alike "
                f"({some([*differing, *tokens])}): name what tells them apart as columns.recipe.",
                rows,
            )


def _seeds(one: Compared, mapping: AdoptionMapping) -> Iterator[Finding]:
    del mapping
    pairs = one.pairs
    paired = {source for pair in pairs for source in pair.sources}
    if any(pair.treatment.seed is None or pair.baseline.seed is None for pair in pairs):
        sentence = "No seed is recorded: that the two runs share initial values and batches is not known."
        yield of_contrast(one, Severity.LIMITS, "seed not recorded", sentence, pairs[0].sources)
    if len(pairs) in (1, 2):
        what = "single seed" if len(pairs) == 1 else "two seeds"
        yield of_contrast(
            one,
            Severity.LIMITS,
            what,
            f"{count_of(len(pairs), 'pair')}: how much two runs of one arm differ by chance cannot be told from "
            f"{'it' if len(pairs) == 1 else 'them'}.",
            tuple(sorted(paired)),
        )
    if pairs:
        # Later runs of a paired cell are A/A and are said there.
        cells = {(pair.treatment.arm, pair.treatment.seed) for pair in pairs}
        cells |= {(pair.baseline.arm, pair.baseline.seed) for pair in pairs}
        alone = [run for run in one.runs if (run.arm, run.seed) not in cells]
        if alone:
            of = some(f"{run.arm} {'without a seed' if run.seed is None else f'seed {run.seed}'}" for run in alone)
            yield of_contrast(
                one,
                Severity.LIMITS,
                "run without a partner",
                f"Left out of this contrast because the other arm has no such seed: {of}.",
                tuple(run.source for run in alone),
            )


def _values(one: Compared, mapping: AdoptionMapping) -> Iterator[Finding]:
    del mapping
    metric = one.spec.metric
    absent_in = [{role for role in ROLES if getattr(p, role).values[metric] is None} for p in one.pairs]
    if absent_in and all(absent_in) and set.intersection(*absent_in) == set():
        sentence = f"No seed has a number for {metric} in both arms."
        yield of_contrast(one, Severity.NOTHING, "missing metric", sentence, sources(list(one.pairs)))
    for role in ROLES:
        runs: list[Run] = [getattr(pair, role) for pair in one.pairs]
        if not runs:
            continue
        absent = [run for run in runs if run.values[metric] is None]
        rows = tuple(run.source for run in absent)
        if len(absent) == len(runs):
            sentence = f"No paired run of {runs[0].arm} at {one.scale} has a number for {metric}."
            yield of_contrast(one, Severity.NOTHING, "missing metric", sentence, rows)
        elif absent:
            sentence = (
                f"{len(absent)} of {len(runs)} paired runs of {runs[0].arm} have no number for {metric}: no pair."
            )
            yield of_contrast(one, Severity.LIMITS, "missing value", sentence, rows)
        odd = [run for run in runs if (value := run.values[metric]) is not None and not math.isfinite(value)]
        if odd:
            values = some(text_of(run.values[metric]) for run in odd)
            yield of_contrast(
                one,
                Severity.LIMITS,
                "value not finite",
                f"{metric} of {runs[0].arm} is {values}: counted as diverged, never dropped.",
                tuple(run.source for run in odd),
            )


def _declared(one: Compared, mapping: AdoptionMapping) -> Iterator[Finding]:
    """A key that the harness dropped shows in its record, where somebody compares the record with the manifest."""
    for run in one.runs:
        for path, said in mapping.declared.get(run.arm, {}).items():
            if path not in run.fields:
                sentence = f"{run.arm} is declared with {path} = {text_of(said)}, which its record does not hold."
                yield of_contrast(one, Severity.LIMITS, "setting not recorded", sentence, (run.source,))
            elif not same(run.fields[path], said):
                yield of_contrast(
                    one,
                    Severity.NOTHING,
                    "silent key",
                    f"{run.arm} is declared with {path} = {text_of(said)} and ran with {text_of(run.fields[path])}: "
                    "what was trained is not what the arm is called.",
                    (run.source,),
                )
