"""What `paribus try` tries: an arm beside a baseline, from an experiment file or on a small built-in setting.

A trial trains on the first seed that the study does not plan: nobody tunes an arm by eye on the seeds of its verdict.
"""

import tomllib
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from paribus import mechanisms
from paribus.errors import ExperimentFileError, nearest
from paribus.experiment import loading
from paribus.experiment.plan import ArmAtScale, resolve_arm
from paribus.experiment.spec import SEAM_FIELDS, Base, Experiment
from paribus.mechanisms.contract import Seam
from paribus.refusal import refusal

BASELINE, INLINE = "standard", "tried"
"""names of the built-in setting's arms; a mechanism tried by its name gives its arm that name"""
SETTING: Mapping[str, Any] = {
    "study": "try",
    "question": "Does it run, and which way does it go?",
    "base": {
        "context_length": 128,
        "batch_tokens": 2048,
        "corpus": {"name": "local-docs"},
        "tokenizer": {"vocabulary_size": 2048},
        "evaluation": {"probe_tokens": 8192},
    },
    "scales": {"tiny": {"layers": 12, "width": 64, "mlp_width": 160, "budget_tokens": 230_000}},
    "seeds": {"count": 1},
}
"""deep and narrow: 12 layers of width 64, 16 rows of 128 tokens an update"""


@dataclass(frozen=True)
class Trial:
    """Two arms that share initial values and data, and how long they are trained."""

    experiment: Experiment
    folder: Path
    """what a corpus' path is relative to"""
    arm: ArmAtScale
    baseline: ArmAtScale
    seed: int
    steps: int


def trial(
    name: str, file: Path | None, *, against: str | None, scale: str | None, seed: int | None, steps: int
) -> Trial:
    """The trial of an arm of `file` or, without one, of a mechanism by its name or as an inline TOML table."""
    if steps < 1:
        raise ExperimentFileError("--steps: nothing to train", expected="at least 1", received=str(steps))
    where: Callable[[str], str] = (lambda text: f"{file}: {text}") if file else (lambda text: text)
    experiment, arm = _of_file(file, name, scale) if file else _built_in(name, scale)
    place = next(iter(experiment.scales))
    if against is None:
        experiment, against = _default_baseline(experiment)
    if against not in experiment.arms:
        raise ExperimentFileError(
            where(f"--against: no such arm as '{against}'"),
            expected=", ".join(experiment.arms),
            remedy=nearest(against, experiment.arms),
        )
    if against == arm:
        raise ExperimentFileError(
            where(f"'{arm}' would be compared with itself"),
            expected="two arms",
            remedy="name another arm with --against",
        )
    planned = experiment.seeds.first + experiment.seeds.count
    with loading.naming(file) if file else nullcontext():
        tried, baseline = (resolve_arm(experiment, name, place) for name in (arm, against))
    folder = file.parent if file else Path()
    chosen = Trial(experiment, folder, tried, baseline, planned if seed is None else seed, steps)
    for resolved in (chosen.arm, chosen.baseline):
        if resolved.donors:
            raise ExperimentFileError(
                where(f"'{resolved.arm}' starts from trained tensors of {', '.join(resolved.donors.values())}"),
                expected="an arm that can be trained by itself",
                remedy="run the study; `paribus check` shows this arm's gates",
            )
    return chosen


def _of_file(file: Path, arm: str, scale: str | None) -> tuple[Experiment, str]:
    experiment = loading.load(file, scale)
    if arm not in experiment.arms:
        raise ExperimentFileError(
            f"{file}: no such arm as '{arm}'",
            expected=", ".join(experiment.arms),
            remedy=nearest(arm, experiment.arms),
        )
    return experiment, arm


def _default_baseline(experiment: Experiment) -> tuple[Experiment, str]:
    """The arm that changes no mechanism; where the file has none, the base itself as an arm of its own."""
    for name in experiment.arms:
        base = experiment.arm(name)
        named = {seam: (getattr(base, seam) or {}).get("name", mechanisms.IDENTITY[seam]) for seam in Seam}
        if named == mechanisms.IDENTITY:
            return experiment, name
    name = "base" if "base" not in experiment.arms else "[base]"
    return experiment.model_copy(update={"arms": {**experiment.arms, name: {}}}), name


def _built_in(text: str, scale: str | None) -> tuple[Experiment, str]:
    if scale is not None and scale not in SETTING["scales"]:
        raise ExperimentFileError(
            f"--scale: no such scale as '{scale}'",
            expected=", ".join(SETTING["scales"]),
            remedy="scales of your own come from a file: add --file FILE",
        )
    arm, table = (INLINE, inline(text)) if "=" in text else (text, by_name(text))
    contrast = {"treatment": arm, "baseline": BASELINE, "primary": True, "smallest_effect": 0.01, "design_effect": 0.03}
    experiment = Experiment.model_validate(
        {**SETTING, "arms": {BASELINE: {}, arm: table}, "contrasts": {"tried": contrast}}
    )
    try:
        experiment.arm(arm)
    except ValidationError as error:
        raise refusal(error, "ARM", Base) from None
    return experiment, arm


def inline(text: str) -> dict[str, Any]:
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ExperimentFileError(
            "ARM: not a readable TOML table",
            expected="one seam and its mechanism, such as 'mask = { name = \"document\" }'",
            received=f"{text!r}: {error}",
            remedy="quote the whole table once, for the shell",
        ) from None
    for key in table.keys() - set(SEAM_FIELDS):
        raise ExperimentFileError(
            f"ARM: '{key}' is not a seam", expected=", ".join(SEAM_FIELDS), remedy=nearest(key, SEAM_FIELDS)
        )
    return table


def by_name(name: str) -> dict[str, Any]:
    seams = {found: seam for seam in Seam for found in mechanisms.mechanisms(seam)}
    tried = {found: seam for found, seam in seams.items() if found != mechanisms.IDENTITY[seam]}
    if name not in tried:
        raise ExperimentFileError(
            f"'{name}' changes nothing: it is a seam's identity" if name in seams else f"'{name}': no such mechanism",
            expected="a mechanism's name, an inline TOML table, or an arm's name with --file FILE: "
            + ", ".join(sorted(tried)),
            remedy=nearest(name, tried),
        )
    seam = tried[name]
    return {str(seam): {"name": name, **mechanisms.mechanisms(seam)[name].example}}
