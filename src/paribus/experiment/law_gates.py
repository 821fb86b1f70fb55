"""Laws as gates: what mechanisms declare is shown once for each module, what all obey once for each distinct arm."""

import math
from collections.abc import Mapping
from functools import cache

from paribus import mechanisms
from paribus.experiment.gate import Gate
from paribus.experiment.plan import ArmAtScale
from paribus.mechanisms.contract import Law
from paribus.mechanisms.laws import UniversalLaw
from paribus.model.lawbench import TIME, LawBench, Shown, show

LONGEST_ROW = 256
"""a mechanism that looks further ahead than this is not seen by the gates"""


def law_gate(subject: str, law: Law, bench: LawBench) -> Gate:
    """The law holds on the bench, and its perturbation breaks it."""
    shown = show(law, bench)
    return Gate(law.claim, subject, shown.passed, _passed(shown, bench) if shown.passed else _failed(shown))


def _passed(shown: Shown, bench: LawBench) -> str:
    law = shown.law
    if law.bound == 0.0:
        # How far a mechanism may reach across positions without being seen.
        rows = f" on rows of {bench.tokens.shape[1]} positions" if isinstance(law, UniversalLaw) else ""
        return f"exact{rows}; broken by: {law.perturbation}"
    return f"{_against(shown)}; {shown.found_when_perturbed:.1e} when perturbed: {law.perturbation}"


def _failed(shown: Shown) -> str:
    """What is wrong: with the mechanism where the law does not hold, with the check where it cannot fail."""
    law = shown.law
    if math.isnan(shown.found):
        return "not a number, on the mechanism as it is: nothing can be shown"
    fault = "" if shown.found <= law.bound else getattr(shown.found, "where", "") or f"does not hold: {_against(shown)}"
    if shown.can_fail:
        return fault
    perturbed = shown.found_when_perturbed
    found = "not a number" if math.isnan(perturbed) else f"{perturbed:.1e}, within the bound,"
    blind = f"the check cannot fail: {found} when perturbed: {law.perturbation}"
    return f"{fault}; and {blind}" if fault else f"{_against(shown)}, but {blind}"


def _against(shown: Shown) -> str:
    return f"{float(shown.found):.1e} (bound {shown.law.bound:.1e})"


def declared_laws(arms: Mapping[tuple[str, str], ArmAtScale]) -> dict[tuple[str, str], tuple[Law, ...]]:
    """The laws of every mechanism in use and of those that it extends, by (mechanism's module, backbone)."""
    found: dict[tuple[str, str], tuple[Law, ...]] = {}
    for arm in arms.values():
        for module in (module for config in arm.mechanisms.values() for module in mechanisms.lineage_of(config)):
            held = tuple(law for law in mechanisms.laws_of(module) if arm.model.backbone in law.backbones)
            found[module.__name__.rpartition(".")[2], arm.model.backbone] = held
    return found


def row_of(arm: ArmAtScale) -> int:
    """Positions of the rows on which the arm's universal laws are shown: those of its training, up to LONGEST_ROW."""
    return min(max(arm.model.context_length, TIME), LONGEST_ROW)


def bench_of(arm: ArmAtScale) -> LawBench:
    """A bench of the arm's depth, wiring and rows; it is scaled in width alone."""
    return bench(arm.model.backbone, arm.model.layers, arm.model.query_heads_per_kv_head, row_of(arm))


@cache
def bench(backbone: str, layers: int = 4, query_heads_per_kv_head: int = 1, time: int = TIME) -> LawBench:
    """Benches hold no values of a model, so one serves all laws."""
    return LawBench(backbone, layers, query_heads_per_kv_head, time)
