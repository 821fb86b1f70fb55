"""Laws as gates: what mechanisms declare is shown once for each module, what all obey once for each distinct arm."""

from collections.abc import Mapping
from functools import cache

from paribus import mechanisms
from paribus.experiment.gate import Gate
from paribus.experiment.plan import ArmAtScale
from paribus.mechanisms.contract import Law
from paribus.model.lawbench import LawBench, show


def law_gate(subject: str, law: Law, bench: LawBench) -> Gate:
    """The law holds on the bench, and its perturbation breaks it."""
    shown = show(law, bench)
    if shown.passed and law.bound == 0.0:
        detail = f"exact; broken by: {law.perturbation}"
    else:
        detail = (
            f"{shown.found:.1e} (bound {law.bound:.1e}); {shown.found_when_perturbed:.1e} when perturbed: "
            f"{law.perturbation}" + ("" if shown.can_fail else ": the check cannot fail")
        )
    return Gate(law.claim, subject, shown.passed, detail)


def declared_laws(arms: Mapping[tuple[str, str], ArmAtScale]) -> dict[tuple[str, str], tuple[Law, ...]]:
    """The laws of every mechanism in use, by (mechanism's module, backbone)."""
    found: dict[tuple[str, str], tuple[Law, ...]] = {}
    for arm in arms.values():
        for config in arm.mechanisms.values():
            module = mechanisms.module_of(config)
            held = tuple(law for law in mechanisms.laws_of(module) if arm.model.backbone in law.backbones)
            found[module.__name__.rpartition(".")[2], arm.model.backbone] = held
    return found


def bench_of(arm: ArmAtScale) -> LawBench:
    """A bench of the arm's depth and wiring; it is scaled in width alone."""
    return bench(arm.model.backbone, arm.model.layers, arm.model.query_heads_per_kv_head)


@cache
def bench(backbone: str, layers: int = 4, query_heads_per_kv_head: int = 1) -> LawBench:
    """Benches hold no values of a model, so one serves all laws."""
    return LawBench(backbone, layers, query_heads_per_kv_head)
