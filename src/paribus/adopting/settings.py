"""Whether the two runs of each pair were set alike: budget, declared settings, sizes, machines, and all else recorded.

Each inequality here has happened silently in public harnesses: unequal budgets, 27 % more parameters, every treatment
on one machine and every baseline on another.
"""

from collections.abc import Iterator

from paribus.adopting.findings import Finding, Severity, some
from paribus.adopting.mapping import AdoptionMapping
from paribus.adopting.pairing import Compared, Pair
from paribus.adopting.runs import matches, no_settings, setting, text_of

TOKENS_TOLERANCE = 1e-3
"""relative difference of two budgets that rounding to whole batches may leave"""
PARAMETERS_TOLERANCE = 0.01
BUDGET = "tokens"


def _unequal(one: Compared, mapping: AdoptionMapping) -> Iterator[Finding]:
    """Settings that the mapping wants equal, and the budget."""
    for path in mapping.equal.fields:
        # Tokens have a check of their own, which lets rounding to whole batches pass.
        if matches(path, one.spec.also_differs) or is_budget(path, mapping):
            continue
        unequal = _unlike(one, path)
        unknown = [p for p in unequal if None in (setting(p.treatment, path), setting(p.baseline, path))]
        differing = [p for p in unequal if p not in unknown]
        if differing:
            yield of_contrast(one, Severity.NOTHING, "unequal setting", _by_seed(path, differing), sources(differing))
        if unknown:
            yield of_contrast(one, Severity.LIMITS, "setting not recorded", _by_seed(path, unknown), sources(unknown))
    if mapping.columns.tokens is None or matches(BUDGET, one.spec.also_differs):
        return
    differing = [p for p in one.pairs if far_apart([p.treatment.tokens, p.baseline.tokens], TOKENS_TOLERANCE)]
    unknown = [p for p in one.pairs if None in (p.treatment.tokens, p.baseline.tokens)]
    if differing:
        sentence = f"Training budgets differ: {_by_seed(BUDGET, differing)}"
        yield of_contrast(one, Severity.NOTHING, "unequal budget", sentence, sources(differing))
    if unknown:
        sentence = f"Equal budgets cannot be shown: {_by_seed(BUDGET, unknown)}"
        yield of_contrast(one, Severity.LIMITS, "budget not recorded", sentence, sources(unknown))


def _comparable(one: Compared, mapping: AdoptionMapping) -> Iterator[Finding]:
    del mapping
    for path in one.metric.comparable_within:
        unequal = _unlike(one, path)
        if unequal:
            yield of_contrast(
                one,
                Severity.NOTHING,
                "metric not comparable",
                f"{one.spec.metric} is not the same quantity in both arms: {_by_seed(path, unequal)}",
                sources(unequal),
            )


def _sizes(one: Compared, mapping: AdoptionMapping) -> Iterator[Finding]:
    del mapping
    differing = [
        p for p in one.pairs if far_apart([p.treatment.parameters, p.baseline.parameters], PARAMETERS_TOLERANCE)
    ]
    if not differing:
        return
    t, b = differing[0].treatment.parameters, differing[0].baseline.parameters
    assert t is not None
    assert b is not None
    share = f" ({100 * (t - b) / b:+.1f} %)" if b else ""
    yield of_contrast(
        one,
        Severity.LIMITS,
        "unequal parameters",
        f"{one.spec.treatment} has {t:,.0f} parameters against {b:,.0f}{share}: size alone may be the difference.",
        sources(differing),
    )


def _others(one: Compared, mapping: AdoptionMapping) -> Iterator[Finding]:
    """Any recorded setting that differs and that nobody declared."""
    excluded = no_settings(mapping) | {*mapping.equal.fields, *one.metric.comparable_within}
    differing: dict[str, list[Pair]] = {}
    for pair in one.pairs:
        for path in sorted(pair.treatment.fields.keys() | pair.baseline.fields.keys()):
            if path in excluded or matches(path, (*mapping.equal.ignore, *one.spec.also_differs)):
                continue
            if not same(pair.treatment.fields.get(path), pair.baseline.fields.get(path)):
                differing.setdefault(path, []).append(pair)
    if differing:
        of = "; ".join(_by_seed(path, pairs).removesuffix(".") for path, pairs in differing.items())
        rows = tuple(dict.fromkeys(row for pairs in differing.values() for row in sources(pairs)))
        yield of_contrast(
            one,
            Severity.LIMITS,
            "other fields differ",
            f"Recorded fields that differ between the arms, and are not declared to: {of}.",
            rows,
        )


def _time(one: Compared, mapping: AdoptionMapping) -> Iterator[Finding]:
    if mapping.columns.seconds is None or not one.pairs:
        return
    hosts = [{run.host for run in runs} for runs in zip(*((p.treatment, p.baseline) for p in one.pairs), strict=True)]
    same_host = same_host_pairs(one)
    if None in hosts[0] | hosts[1]:
        sentence = "No host is recorded for every run, so their times are not compared."
        yield of_contrast(one, Severity.LIMITS, "host not recorded", sentence, sources(list(one.pairs)))
    elif not hosts[0] & hosts[1]:
        t, b = (" and ".join(sorted(str(host) for host in of)) for of in hosts)
        yield of_contrast(
            one,
            Severity.LIMITS,
            "hosts confounded with arms",
            f"Every run of {one.spec.treatment} was made on {t} and every run of {one.spec.baseline} on {b}: arm and "
            "machine cannot be told apart, and times are not compared.",
            sources(list(one.pairs)),
        )
    elif len(same_host) < len(one.pairs):
        sentence = (
            f"{len(one.pairs) - len(same_host)} of {len(one.pairs)} pairs ran on two hosts: their times are left out."
        )
        yield of_contrast(one, Severity.LIMITS, "pairs across hosts", sentence)


CHECKS = (_unequal, _comparable, _sizes, _others, _time)


def same_host_pairs(one: Compared) -> list[Pair]:
    """Pairs whose two runs were made on one recorded host."""
    return [p for p in one.pairs if p.treatment.host is not None and p.treatment.host == p.baseline.host]


def same(one: object, other: object) -> bool:
    """Equal values; a number equals itself however it was written, and true is not 1."""
    if isinstance(one, bool) != isinstance(other, bool):
        return False
    return one == other


def far_apart(values: list[float | None], tolerance: float) -> bool:
    known = [value for value in values if value is not None]
    return len(known) > 1 and not max(known) - min(known) <= tolerance * max(map(abs, known))


def is_budget(path: str, mapping: AdoptionMapping) -> bool:
    tokens = mapping.columns.tokens
    return tokens is not None and path in (BUDGET, tokens.path)


def of_contrast(one: Compared, severity: Severity, what: str, sentence: str, rows: tuple[str, ...] = ()) -> Finding:
    return Finding(severity, what, sentence, rows, one.name)


def sources(pairs: list[Pair]) -> tuple[str, ...]:
    return tuple(source for pair in pairs for source in pair.sources)


def _unlike(one: Compared, path: str) -> list[Pair]:
    return [p for p in one.pairs if not same(setting(p.treatment, path), setting(p.baseline, path))]


def _by_seed(path: str, pairs: list[Pair]) -> str:
    """ "lr = 0.02 against 0.01 (seeds 1, 2)." """
    seeds: dict[tuple[str, str], list[int]] = {}
    for pair in pairs:
        key = (text_of(setting(pair.treatment, path)), text_of(setting(pair.baseline, path)))
        seeds.setdefault(key, []).append(pair.seed)
    several = sum(map(len, seeds.values())) > 1
    return (
        f"{path} = "
        + some(
            f"{t} against {b}" + (f" (seed {', '.join(map(str, of))})" if several else "")
            for (t, b), of in seeds.items()
        )
        + "."
    )
