"""The pair check: two cells of a contrast may differ only in what the experiment declares.

Arms exist to change mechanisms. Every other field, and every tensor of the baseline (name, shape, initial law,
optimiser group, orthogonalisation unit), must be equal, or be named by the contrast under `also_differs`. A control
that has tensors of its own (a fixed direction, a frozen query) is a baseline whose contrast names them.

An interaction compares two differences: each is a pair, and what the pairs share must be equal across them too.
"""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from paribus.errors import PairCheckError
from paribus.experiment.plan import ArmAtScale, resolved_fields
from paribus.experiment.spec import Contrast, Experiment

DECLARED_BY_ARMS = "mechanisms."


def _flat(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in fields.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def undeclared_differences(
    treatment: Mapping[str, Any], baseline: Mapping[str, Any], also_differs: tuple[str, ...]
) -> list[str]:
    """Field paths in which two resolved records differ without the contrast declaring it."""
    left, right = dict(_flat(treatment)), dict(_flat(baseline))
    absent = object()
    return [
        f"{path}: {left.get(path, 'absent')!r} in the treatment, {right.get(path, 'absent')!r} in the baseline"
        for path in sorted(left.keys() | right.keys())
        if left.get(path, absent) != right.get(path, absent)
        and not path.startswith(DECLARED_BY_ARMS)
        and not any(fnmatchcase(path, declared) or fnmatchcase(path, f"{declared}.*") for declared in also_differs)
        and not _knob_of_one_arm(path, treatment, baseline)
    ]


def _knob_of_one_arm(path: str, treatment: Mapping[str, Any], baseline: Mapping[str, Any]) -> bool:
    # A role that only one arm's mechanism has brings its own optimiser fields with it.
    table, _, field = path.partition(".")
    return table == "optimiser" and (field in treatment[table]) != (field in baseline[table])


def tensor_differences(
    treatment: ArmAtScale, baseline: ArmAtScale, contrast: Contrast, *, shared_only: bool = False
) -> list[str]:
    """What differs about the baseline's tensors, tensor by tensor; of those that both have where `shared_only`."""
    found = []
    for name, shape in baseline.shapes.items():
        if contrast.declares_tensor(name) or (shared_only and name not in treatment.shapes):
            continue
        if name not in treatment.shapes:
            found.append(f"tensor {name}: missing in the treatment")
            continue
        for what, left, right in (
            ("shape", treatment.shapes[name], shape),
            ("role and initial law", treatment.declarations[name], baseline.declarations[name]),
            ("optimiser", treatment.groups[name].optimiser, baseline.groups[name].optimiser),
            (
                "orthogonalisation unit",
                treatment.groups[name].orthogonalisation_unit,
                baseline.groups[name].orthogonalisation_unit,
            ),
        ):
            if left != right:
                found.append(f"tensor {name}: {what} is {left} in the treatment, {right} in the baseline")
    return found


def check_pair(
    experiment: Experiment, name: str, treatment: ArmAtScale, baseline: ArmAtScale, *, shared_only: bool = False
) -> None:
    """Raise PairCheckError, naming the fields, where two arms of a contrast differ in something undeclared.

    `shared_only`: neither arm is the other's baseline, so that each may have tensors of its own.
    """
    contrast: Contrast = experiment.contrasts[name]
    left, right = (resolved_fields(experiment, arm, corpus_digest="shared") for arm in (treatment, baseline))
    found = undeclared_differences(left, right, contrast.also_differs)
    found += tensor_differences(treatment, baseline, contrast, shared_only=shared_only)
    if treatment.base.corpus != baseline.base.corpus:
        found.append("corpus: the arms read different corpora")
    if found:
        shown = found[:5] + ([f"and {len(found) - 5} more"] if len(found) > 5 else [])
        raise PairCheckError(
            f"contrast '{name}': '{treatment.arm}' and '{baseline.arm}' differ in more than they declare",
            expected="differences in mechanisms only, or fields named in also_differs",
            received="; ".join(shown),
            remedy=f"make the fields equal, or add them to contrasts.{name}.also_differs (* stands for any text)",
        )


def check_contrast(experiment: Experiment, name: str, arms: Mapping[tuple[str, str], ArmAtScale]) -> None:
    """`check_pair` for the two arms of a contrast, or for both differences of an interaction and across them."""
    contrast = experiment.contrasts[name]
    scale = experiment.contrast_scale(contrast)
    treatment, baseline, *minus = (arms[scale, arm] for arm in contrast.arms)
    check_pair(experiment, name, treatment, baseline)
    if minus:
        check_pair(experiment, name, *minus)
        # With both differences pairs, this makes the two baselines equal as well.
        check_pair(experiment, name, treatment, minus[0], shared_only=True)


def check_derived(experiment: Experiment, name: str, arms: Mapping[tuple[str, str], ArmAtScale]) -> None:
    """`check_pair` for an arm of `robustness.derived` and the arm that it is compared with.

    They may differ in what the contrast that they stand beside declares, where that arm is another one than the one
    that this one is derived from, and in the one field that was changed.
    """
    derived, place = experiment.robustness.derived[name], experiment.beside(name)
    if place is None:
        return
    beside, baseline = place
    contrast = experiment.contrasts[beside]
    declared = () if derived.of == baseline else contrast.also_differs
    own = {"treatment": name, "baseline": baseline, "minus_treatment": None, "minus_baseline": None}
    pair = contrast.model_copy(update={**own, "also_differs": (*declared, derived.knob)})
    scale = experiment.contrast_scale(contrast)
    alone = experiment.model_copy(update={"contrasts": {**experiment.contrasts, beside: pair}})
    check_pair(alone, beside, arms[scale, name], arms[scale, baseline])


def check_pairs(experiment: Experiment, arms: Mapping[tuple[str, str], ArmAtScale]) -> None:
    """`check_contrast` for every contrast of the file, `check_derived` for every derived arm."""
    for name in experiment.contrasts:
        check_contrast(experiment, name, arms)
    for name in experiment.robustness.derived:
        check_derived(experiment, name, arms)
