"""What a few real updates must show: equivalences hold, gradients arrive, fixed tensors stay, resuming is exact.

Each check names the first tensor and the first update at which it fails.
"""

import math
from collections.abc import Mapping
from typing import Any

from paribus import mechanisms
from paribus.experiment.gate import Gate
from paribus.experiment.short_run import STEPS, Setting, ShortRun, ShortRuns, first_difference, short_run
from paribus.mechanisms.contract import Equivalence, Geometry, MechanismConfig, Seam
from paribus.model.backbone import geometry_of

GRADIENT = f"gradient reaches every trained parameter within {STEPS} updates"
FIXED = "no update changes a fixed parameter"
RESUMED = "a resumed run repeats the uninterrupted one, bit for bit"


def gradient_gate(subject: str, setting: Setting, run: ShortRun) -> Gate:
    """Gradient reaches every trained parameter, except exactly those that the mechanisms declare dead."""
    names = list(run.values[0])
    dead, unknown = declared_dead(setting, names)
    expected = [name for name in names if name not in run.fixed and name not in dead]
    faults = [f"gradient of {name} is not finite in update {number}" for name, number in run.not_finite.items()]
    faults += [f"{name}: declared dead, but the arm has no such parameter" for name in unknown]
    arrived = {*run.reached, *run.not_finite}
    faults += [f"{name}: no gradient in {STEPS} updates" for name in expected if name not in arrived]
    faults += [
        f"{name}: declared dead, but gradient reached it in update {run.reached[name]}"
        for name in dead
        if name in run.reached
    ]
    faults += [f"{name}: fixed, but it receives gradient" for name in run.fixed if name in run.reached]
    latest = max((run.reached[name] for name in expected if name in run.reached), default=0)
    found = f"all trained tensors, the last in update {latest}" + (
        f"; dead by construction: {', '.join(dead)}" if dead else ""
    )
    return Gate(
        GRADIENT,
        subject,
        not faults,
        _listed(faults) if faults else found,
    )


def declared_dead(setting: Setting, names: list[str]) -> tuple[list[str], list[str]]:
    """Qualified names of the parameters that the arm's mechanisms declare dead, and declared names it does not have.

    A seam with a module for each layer may declare `name` (in every layer) or `layer.name`.
    """
    geometry = geometry_of(setting.model, setting.mechanisms)
    dead, unknown = [], []
    for seam, config in setting.mechanisms.items():
        for declared in config.dead_parameters(geometry):
            found = [name for name in names if declared in _names_inside(name, seam)]
            dead += found
            unknown += [] if found else [f"{seam}.{declared}"]
    return dead, unknown


def _names_inside(qualified: str, seam: Seam) -> tuple[str, ...]:
    parts = qualified.split(".")
    if str(seam) not in parts:
        return ()
    place = parts.index(str(seam))
    inside = ".".join(parts[place + 1 :])
    layers = [part for part in parts[:place] if part.isdigit()]
    return (inside, *(f"{layer}.{inside}" for layer in layers))


def fixed_gate(subject: str, setting: Setting, run: ShortRun) -> Gate:
    """No update changes a fixed parameter; its own module may, when it is told the step."""
    del setting
    moved = "; ".join(f"{name} moved in update {number}" for name, number in run.moved.items())
    found = f"fixed: {', '.join(run.fixed)}" + "".join(
        f"; {name} was written by its schedule before update {number}" for name, number in run.scheduled.items()
    )
    return Gate(FIXED, subject, not moved, moved or found)


def resume_gate(subject: str, setting: Setting, run: ShortRun) -> Gate:
    """A run restarted from its saved state after every update has the bits of one that was never interrupted."""
    difference = first_difference(run, short_run(setting, restarted=True))
    return Gate(
        RESUMED,
        subject,
        difference is None,
        _described(difference) if difference else f"saved and restored after each of {STEPS - 1} updates",
    )


def equivalence_gate(subject: str, setting: Setting, equivalence: Equivalence, runs: ShortRuns) -> Gate:
    """Arm and twin have equal bits in every shared tensor after every update; the perturbed arm does not."""
    trained = []
    for which in ("arm", "twin", "perturbed"):
        other = Setting(
            setting.model,
            {seam: _resolved(seam, getattr(equivalence, which), which) for seam in Seam},
            setting.optimiser,
            setting.schedule,
        )
        problem = _refused(other.mechanisms, geometry_of(other.model, other.mechanisms))
        if problem is not None:
            return Gate(equivalence.claim, subject, False, f"the {which} does not fit this arm's geometry: {problem}")
        trained.append(runs.of(other))
    arm, twin, perturbed = trained
    difference, broken = first_difference(arm, twin), first_difference(perturbed, twin)
    if difference is not None:
        return Gate(equivalence.claim, subject, False, _described(difference))
    if broken is None:
        detail = f"the check cannot fail: equal through {STEPS} updates although {equivalence.perturbation}"
        return Gate(equivalence.claim, subject, False, detail)
    detail = f"equal through {STEPS} updates; {equivalence.perturbation}: {_described(broken)}"
    return Gate(equivalence.claim, subject, True, detail)


def _resolved(seam: Seam, arm: Mapping[str, Mapping[str, Any]], which: str) -> MechanismConfig:
    table = arm.get(seam)
    return mechanisms.resolve(seam, None if table is None else dict(table), f"{which}.{seam}")


def _refused(configs: Mapping[Seam, MechanismConfig], geometry: Geometry) -> str | None:
    problems = (config.validate_for(geometry) for config in configs.values())
    return next((problem for problem in problems if problem is not None), None)


def _described(difference: tuple[int, str, float]) -> str:
    step, tensor, size = difference
    when = "before the first update" if step == 0 else f"after update {step}"
    if math.isnan(size):
        return f"{tensor} is not a number {when}, so that nothing equals it"
    return f"{tensor} first differs {when}, by {size:.1e}"


def _listed(faults: list[str]) -> str:
    shown = faults[:3] + ([f"and {len(faults) - 3} more"] if len(faults) > 3 else [])
    return "; ".join(shown)
