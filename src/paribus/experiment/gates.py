"""What must hold before training may start. Each gate names the law, the arm and what it found."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from paribus import mechanisms
from paribus.errors import GateError
from paribus.experiment.pairs import check_pair
from paribus.experiment.plan import ArmAtScale
from paribus.experiment.spec import Experiment
from paribus.mechanisms.contract import Law, Reads
from paribus.mechanisms.laws import universal
from paribus.model.build import build_model
from paribus.model.lawbench import LawBench
from paribus.model.prenorm import Prenorm
from paribus.roles import Role
from paribus.seeds import generator

EFFECTIVE_EPS_LIMIT = 1e-3
"""largest eps / mean square of a read that still counts as a scale-invariant norm"""
PROBE_ROWS, PROBE_TIME = 2, 32


@dataclass(frozen=True)
class Gate:
    """One check: `found` against what was allowed. `shown_to_fail` says that its perturbation broke it just now."""

    name: str
    subject: str
    passed: bool
    detail: str


def gates(experiment: Experiment, arms: Mapping[tuple[str, str], ArmAtScale]) -> Iterator[Gate]:
    """Every gate of the study, in order, as it is finished. The pair check raises: it names fields, not numbers."""
    for name, contrast in experiment.contrasts.items():
        scale = experiment.contrast_scale(contrast)
        check_pair(experiment, name, arms[scale, contrast.treatment], arms[scale, contrast.baseline])
        yield Gate("pair check", name, True, "the arms differ in declared mechanisms only")
    for (scale, arm), resolved in arms.items():
        yield from _arm_gates(experiment, f"{scale}/{arm}", resolved)
    yield from _law_gates(arms)


def number_of_gates(experiment: Experiment, arms: Mapping[tuple[str, str], ArmAtScale]) -> int:
    """How many gates `gates` yields, for a progress bar."""
    laws = sum(len(module_laws) for module_laws in _declared_laws(arms).values())
    return len(experiment.contrasts) + 3 * len(arms) + laws + len(_distinct_tables(arms)) * len(universal({}))


def require_all(found: list[Gate]) -> None:
    """Raise GateError naming the first gate that failed."""
    for gate in found:
        if not gate.passed:
            raise GateError(
                f"gate '{gate.name}' failed for {gate.subject}",
                received=gate.detail,
                remedy="nothing was trained; mend the mechanism or the experiment file and run again",
            )


def _arm_gates(experiment: Experiment, subject: str, arm: ArmAtScale) -> Iterator[Gate]:
    model = build_model(arm.model, arm.seam_configs, (experiment.study, arm.scale, experiment.seeds.first))
    unwritten = [name for name, parameter in model.named_parameters() if not bool(parameter.isfinite().all())]
    written = f"{len(arm.shapes)} tensors written" if not unwritten else f"never written: {', '.join(unwritten)}"
    yield Gate("every parameter has a value", subject, not unwritten, written)
    reads = _reads(model, arm)
    dtypes = sorted({str(read["dtype"]) for read in reads})
    yield Gate("stream and depth sources are float32", subject, dtypes == ["torch.float32"], ", ".join(dtypes))
    worst = max(reads, key=lambda read: read["effective_eps"])
    yield Gate(
        "norms are scale-invariant at every read",
        subject,
        worst["effective_eps"] <= EFFECTIVE_EPS_LIMIT,
        f"eps K^2 / rms^2 at most {worst['effective_eps']:.1e} (layer {worst['layer']}, {worst['site']}), "
        f"limit {EFFECTIVE_EPS_LIMIT:.0e}",
    )


def effective_eps_by_read(experiment: Experiment, arm: ArmAtScale) -> list[dict[str, Any]]:
    """eps K^2 / rms^2 of each read at step 0: {"layer", "site", "effective_eps", "dtype"}."""
    model = build_model(arm.model, arm.seam_configs, (experiment.study, arm.scale, experiment.seeds.first))
    return _reads(model, arm)


def _reads(model: Prenorm, arm: ArmAtScale) -> list[dict[str, Any]]:
    # At step 0 a read of K additive sources is their sum over K, so eps / mean square of the read is eps K^2 / rms^2.
    routing: Any = model.routing
    read, close = routing.read, routing.close
    found: list[dict[str, Any]] = []

    def note(tensor: torch.Tensor, layer: int, site: str) -> None:
        smallest = float(tensor.square().mean(-1).min())
        ratio = arm.model.norm_eps / smallest if smallest > 0 else float("inf")
        found.append({"layer": layer, "site": site, "effective_eps": ratio, "dtype": tensor.dtype})

    def watching_read(memory: Any, layer: int, site: Any, tap: Any) -> Reads:
        reads = read(memory, layer, site, tap)
        for tensor in {id(t): t for t in reads}.values():
            note(tensor, layer, str(site))
        return reads

    def watching_close(memory: Any, tap: Any) -> torch.Tensor:
        x = close(memory, tap)
        note(x, arm.model.layers, "output")
        return x

    routing.read, routing.close = watching_read, watching_close
    tokens = torch.from_numpy(
        generator("gates", "tokens").integers(0, arm.model.vocabulary_size, (PROBE_ROWS, PROBE_TIME))
    )
    with torch.no_grad():
        model(tokens, torch.zeros_like(tokens))
    return found


def _tables(arm: ArmAtScale) -> dict[str, dict[str, Any]]:
    return {
        str(seam): {"name": config.name, **config.model_dump()}
        for seam, config in arm.mechanisms.items()
        if config.name != mechanisms.IDENTITY[seam]
    }


def _distinct_tables(arms: Mapping[tuple[str, str], ArmAtScale]) -> list[tuple[str, ArmAtScale]]:
    distinct: dict[str, tuple[str, ArmAtScale]] = {}
    for (scale, name), arm in arms.items():
        distinct.setdefault(f"{arm.model.layers} {arm.model.backbone} {_tables(arm)}", (f"{scale}/{name}", arm))
    return list(distinct.values())


def _declared_laws(arms: Mapping[tuple[str, str], ArmAtScale]) -> dict[tuple[str, str], tuple[Law, ...]]:
    """The laws of every mechanism in use, by (mechanism's module, backbone)."""
    found: dict[tuple[str, str], tuple[Law, ...]] = {}
    for arm in arms.values():
        for config in arm.mechanisms.values():
            module = mechanisms.module_of(config)
            held = tuple(law for law in mechanisms.laws_of(module) if arm.model.backbone in law.backbones)
            found[module.__name__.rpartition(".")[2], arm.model.backbone] = held
    return found


def _law_gates(arms: Mapping[tuple[str, str], ArmAtScale]) -> Iterator[Gate]:
    for (module, backbone), laws in _declared_laws(arms).items():
        for law in laws:
            yield _shown(law, LawBench(backbone), module)
    for subject, arm in _distinct_tables(arms):
        # Scaled in width, never in depth or wiring.
        bench = LawBench(arm.model.backbone, arm.model.layers)
        for law in universal(_tables(arm)):
            yield _shown(law, bench, subject)


def _shown(law: Law, bench: LawBench, subject: str) -> Gate:
    found, broken = law.measure(bench, False), law.measure(bench, True)
    holds, can_fail = found <= law.bound, broken > law.bound
    detail = f"{found:.1e} (bound {law.bound:.1e}); {broken:.1e} when perturbed: {law.perturbation}"
    return Gate(law.claim, subject, holds and can_fail, detail if can_fail else f"{detail}: the check cannot fail")


def roles_in_use(arms: Mapping[tuple[str, str], ArmAtScale]) -> list[str]:
    """Roles of all arms in the order of the enumeration, for tables."""
    return [str(role) for role in Role if any(str(role) in arm.parameters_by_role for arm in arms.values())]
