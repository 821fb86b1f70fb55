"""What `paribus try` tries: an arm beside a baseline, from an experiment file or on a small built-in setting.

A trial trains on the first seed that the study does not plan: nobody tunes an arm by eye on the seeds of its verdict.
"""

import importlib.util
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
from paribus.mechanisms.contract import MechanismConfig, Seam
from paribus.refusal import refusal

SEPARATORS = "/\\"
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
    """The trial of an arm of `file` or, without one, of a mechanism: see `table_of`."""
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
    table = table_of(text, ", or an arm's name with --file FILE")
    arm = INLINE if "=" in text else plain_name(next(iter(table.values()))["name"])
    arm = INLINE if arm == BASELINE else arm
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


def table_of(text: str, also: str = "") -> dict[str, Any]:
    """The table by seam of a mechanism: an inline TOML table, a module that declares one ("mypackage.idea"), one of
    several in a module ("mypackage.idea:mine"), or a registered mechanism's name.

    ExperimentFileError where it is none of them; `also` is what else may stand there, in words. A module is imported.
    """
    if "=" in text:
        return inline(text)
    return _of_module(text) if means_module(text) else by_name(text, also)


def plain_name(name: str) -> str:
    """A mechanism's name without the module that a table puts before it."""
    return name.rpartition(mechanisms.OF_MODULE)[2]


def _a_file(text: str) -> ExperimentFileError:
    """What to write in the place of a file's path."""
    module = _module_of(Path(text.replace("\\", "/").partition(mechanisms.OF_MODULE)[0]))
    return ExperimentFileError(
        f"'{text}' is a file",
        expected="a module's name",
        received=f"'{text}'",
        remedy=f"name the module, {module}, not its file; the folder that holds {module.partition('.')[0]} is the "
        "working folder, or on PYTHONPATH",
    )


def _module_of(file: Path) -> str:
    """The dotted name of a file's module: its package begins where no __init__.py lies above. Of a file that is not
    there, what its path suggests."""
    if not file.exists():
        return ".".join([part for part in file.with_suffix("").parts if part not in ("..", file.anchor)][-2:])
    whole = file.resolve()
    top = whole.parent
    while (top / "__init__.py").exists() and top != top.parent:
        top = top.parent
    return ".".join(whole.relative_to(top).with_suffix("").parts)


def means_module(text: str) -> bool:
    """Whether a module is meant: "a.b", "a:b", its file, or a name that no mechanism has and that can be imported."""
    if set(text) & {".", mechanisms.OF_MODULE, *SEPARATORS}:
        return True
    known = {name for seam in Seam for name in mechanisms.mechanisms(seam)}
    return text not in known and text.isidentifier() and importlib.util.find_spec(text) is not None


def declared_in(text: str) -> tuple[dict[str, type[MechanismConfig]], str]:
    """The mechanisms of the module that `text` means, "mypackage.idea" or "mypackage.idea:mine", by full name, and what
    stands behind the colon. ExperimentFileError for a file, and for what is no module's name."""
    if text.endswith(".py") or set(text) & set(SEPARATORS):
        raise _a_file(text)
    module, _, name = text.partition(mechanisms.OF_MODULE)
    if not all(part.isidentifier() for part in module.split(".")):
        raise ExperimentFileError(
            f"'{module}' is no module's name",
            expected="names joined by points, such as mypackage.idea or mypackage.idea:mine",
            received=f"'{text}'",
            remedy="name it as an import statement would",
        )
    return mechanisms.declared_in(module), name


def _of_module(text: str) -> dict[str, Any]:
    found, name = declared_in(text)
    module = text.partition(mechanisms.OF_MODULE)[0]
    if not name and len(found) > 1:
        raise ExperimentFileError(
            f"'{module}' declares {len(found)} mechanisms",
            expected="one of them: " + ", ".join(found),
            received=f"'{text}'",
            remedy=f"name one, such as {next(iter(found))}",
        )
    full = text if name else next(iter(found))
    if full not in found:
        raise ExperimentFileError(
            f"'{module}' declares no mechanism '{name}'",
            expected=", ".join(found),
            received=f"'{text}'",
            remedy=nearest(full, found),
        )
    config = found[full]
    example: Mapping[str, Any] = config.example
    return {str(config.seam): {"name": full, **example}}


def by_name(name: str, also: str = "") -> dict[str, Any]:
    """The table of a registered mechanism at its example's values; `also` is what else may stand there, in words."""
    seams = {found: seam for seam in Seam for found in mechanisms.mechanisms(seam)}
    tried = {found: seam for found, seam in seams.items() if found != mechanisms.IDENTITY[seam]}
    if name not in tried:
        raise ExperimentFileError(
            f"'{name}' changes nothing: it is a seam's identity" if name in seams else f"'{name}': no such mechanism",
            expected=f"a mechanism's name, an inline TOML table, a module such as mypackage.idea{also}: "
            + ", ".join(sorted(tried)),
            remedy=nearest(name, tried),
        )
    seam = tried[name]
    return {str(seam): {"name": name, **mechanisms.mechanisms(seam)[name].example}}
