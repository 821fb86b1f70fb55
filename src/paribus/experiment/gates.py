"""What must hold before training may start. Each gate names the law, the arm, and the tensor and step where it fails.

Arms of equal mechanisms, recipe and depth are shown once, whatever their width: see `paribus.experiment.narrow`.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial

import torch

from paribus.experiment.fast_gate import COMPILED, compiled_gate
from paribus.experiment.gate import Gate, Job, require_all
from paribus.experiment.law_gates import bench, bench_of, declared_laws, law_gate, row_of
from paribus.experiment.narrow import narrowed
from paribus.experiment.pairs import check_contrast, check_derived
from paribus.experiment.plan import ArmAtScale, device_of
from paribus.experiment.short_run import Setting, ShortRun, ShortRuns, tables_of
from paribus.experiment.spec import Experiment
from paribus.experiment.step_zero import PROBE_GATES, Probe, probe_arm
from paribus.experiment.training_gates import (
    FIXED,
    GRADIENT,
    RESUMED,
    equivalence_gate,
    fixed_gate,
    gradient_gate,
    resume_gate,
)
from paribus.mechanisms.contract import Law
from paribus.mechanisms.laws import universal
from paribus.model.lawbench import LawBench
from paribus.roles import Role

__all__ = ["Gate", "arm_gates", "gates", "number_of_gates", "planned_gates", "require_all"]

Arms = Mapping[tuple[str, str], ArmAtScale]
SHORT_RUN_HEAD_WIDTH = 8


def gates(experiment: Experiment, arms: Arms) -> Iterator[Gate]:
    """Every gate of the study, in order, as it is finished. The pair check raises: it names fields, not numbers."""
    for job in planned_gates(experiment, arms):
        yield job()


def number_of_gates(experiment: Experiment, arms: Arms) -> int:
    """How many gates `gates` yields, for a progress bar."""
    return len(planned_gates(experiment, arms))


def planned_gates(experiment: Experiment, arms: Arms) -> list[Callable[[], Gate]]:
    """The gates of all contrasts whose arms are given, then those of the arms. Nothing has run yet."""
    pairs: list[Callable[[], Gate]] = []
    for name, contrast in experiment.contrasts.items():
        if {(experiment.contrast_scale(contrast), arm) for arm in contrast.arms} <= arms.keys():
            pairs.append(partial(_pair_gate, experiment, name, arms))
    for name in experiment.robustness.derived:
        place = experiment.beside(name)
        scale = "" if place is None else experiment.contrast_scale(experiment.contrasts[place[0]])
        if place is not None and {(scale, name), (scale, place[1])} <= arms.keys():
            pairs.append(partial(_derived_gate, experiment, name, arms))
    return [*pairs, *arm_gates(experiment, arms)]


def arm_gates(experiment: Experiment, arms: Arms) -> list[Job]:
    """Gates that each arm passes or fails by itself, in order: step 0, short runs, laws. Nothing has run yet."""
    jobs: list[Job] = []
    runs = ShortRuns()
    settings = _distinct({f"{scale}/{name}": arm for (scale, name), arm in arms.items()})
    for subject, (setting, arm) in settings.items():
        # Built when its first gate runs, and shared by all of them.
        probed = cache(partial(probe_arm, arm, (experiment.study, arm.scale, experiment.seeds.first)))
        jobs += [Job(name, subject, partial(_of_probe, gate, subject, probed)) for name, gate in PROBE_GATES.items()]
        trained = {GRADIENT: gradient_gate, RESUMED: resume_gate}
        if any(declaration.role is Role.FIXED for declaration in arm.declarations.values()):
            trained[FIXED] = fixed_gate
        jobs += [Job(name, subject, partial(_of_run, gate, subject, setting, runs)) for name, gate in trained.items()]
    jobs += _equivalences(settings, runs)
    for (module, backbone), laws in declared_laws(arms).items():
        jobs += [_of_law(module, law, partial(bench, backbone)) for law in laws]
    wirings: dict[str, tuple[str, ArmAtScale]] = {}
    for subject, (_, arm) in settings.items():
        wiring = f"{row_of(arm)} {arm.model.layers} {arm.model.query_heads_per_kv_head} {tables_of(arm.mechanisms)}"
        wirings.setdefault(f"{arm.model.backbone} {wiring}", (subject, arm))
    for subject, arm in wirings.values():
        jobs += [_of_law(subject, law, partial(bench_of, arm)) for law in universal(tables_of(arm.mechanisms))]
    if experiment.execution.mode == "fast":
        jobs += [_of_compiler(f"{scale}/{name}", arm, experiment) for (scale, name), arm in arms.items()]
    return jobs


def _of_compiler(subject: str, arm: ArmAtScale, experiment: Experiment) -> Job:
    execution = experiment.execution
    gate = partial(
        compiled_gate,
        subject,
        arm,
        experiment.study,
        execution.declared_rows,
        torch.device(device_of(execution)),
        execution.activation_checkpointing,
    )
    return Job(COMPILED, subject, gate)


def _distinct(arms: Mapping[str, ArmAtScale]) -> dict[str, tuple[Setting, ArmAtScale]]:
    """The short-run setting of each arm, by the first subject that has it."""
    found: dict[str, str] = {}
    settings: dict[str, tuple[Setting, ArmAtScale]] = {}
    for subject, arm in arms.items():
        model = narrowed(arm.model, SHORT_RUN_HEAD_WIDTH)
        setting = Setting(model, arm.mechanisms, arm.base.optimiser, arm.base.schedule)
        if found.setdefault(setting.key, subject) == subject:
            settings[subject] = (setting, arm)
    return settings


def _equivalences(settings: Mapping[str, tuple[Setting, ArmAtScale]], runs: ShortRuns) -> Iterator[Job]:
    seen: set[str] = set()
    for subject, (setting, _) in settings.items():
        for config in setting.mechanisms.values():
            for equivalence in config.equivalences():
                key = f"{setting.model} {setting.optimiser} {setting.schedule} {equivalence}"
                if key not in seen:
                    seen.add(key)
                    gate = partial(equivalence_gate, subject, setting, equivalence, runs)
                    yield Job(equivalence.claim, subject, gate)


def _pair_gate(experiment: Experiment, name: str, arms: Arms) -> Gate:
    check_contrast(experiment, name, arms)
    return Gate("pair check", name, True, "the arms differ in declared mechanisms only")


def _derived_gate(experiment: Experiment, name: str, arms: Arms) -> Gate:
    check_derived(experiment, name, arms)
    knob = experiment.robustness.derived[name].knob
    return Gate("pair check", name, True, f"differs in {knob} and in what its contrast declares only")


def _of_law(subject: str, law: Law, bench: Callable[[], LawBench]) -> Job:
    return Job(law.claim, subject, lambda: law_gate(subject, law, bench()))


def _of_probe(gate: Callable[[str, Probe], Gate], subject: str, probed: Callable[[], Probe]) -> Gate:
    return gate(subject, probed())


def _of_run(gate: Callable[[str, Setting, ShortRun], Gate], subject: str, setting: Setting, runs: ShortRuns) -> Gate:
    return gate(subject, setting, runs.of(setting))
