"""Arms that a file asks for in one line: the baseline with a longer decay, and an arm at other values of a field.

Both say how much a difference owes to what nobody asked about. `schedule = true` in [robustness] stands for one arm,
`schedule-sensitivity`: the primary's baseline with `schedule.decay` half as long again. In an arm,

    sweep = { "optimiser.matrix_learning_rate" = [0.01, 0.02, 0.04] }

stands for one arm a value, `NAME.matrix_learning_rate-0.01` and so on; the arm's own value is the arm itself. Of
several fields one is changed at a time. They are written out here on the tables as TOML gives them, before anything is
validated, so that a derived arm is an arm like any other; what is wrong in those tables otherwise is left for the
schema to say. Torch-free: a mechanism's field can be swept where the file gives the arm's own value.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paribus.errors import ExperimentFileError, nearest
from paribus.experiment.arm import SEAM_FIELDS
from paribus.experiment.control import DECAY, SCHEDULE_ARM
from paribus.experiment.seeds import written
from paribus.experiment.spec import Experiment, merged
from paribus.model.config import NanochatConstants, PrenormConstants
from paribus.optim.config import OptimiserConfig, ScheduleConfig

MOST_ARMS = 20
"""that the sweeps of one file may stand for: beyond, a study is a search"""
LONGEST_NAME = 60
"""of an arm"""
SWEEP = "sweep"
_SIDES = ("treatment", "baseline", "minus_treatment", "minus_baseline")
_CONSTANTS = {kind.model_fields["backbone"].default: kind for kind in (PrenormConstants, NanochatConstants)}
Raw = dict[str, Any]


@dataclass(frozen=True)
class Group:
    """The derived arms that change one field of one arm."""

    of: str
    knob: str
    own: Any
    """the field's value in the arm itself"""
    values: tuple[bool | int | float | str, ...]
    arms: tuple[str, ...]
    """one a value"""

    @property
    def sentence(self) -> str:
        """Such as "standard with schedule.decay 0.6 in place of 0.4", without a full stop."""
        own = "none" if self.own is None else written(self.own)
        return f"{self.of} with {self.knob} {', '.join(map(written, self.values))} in place of {own}"


def described(experiment: Experiment) -> list[Group]:
    """The derived arms of an experiment that have cells, by arm and field, in the order of the file."""
    found: dict[tuple[str, str, bool], dict[str, Any]] = {}
    for name, arm in experiment.robustness.derived.items():
        if experiment.beside(name) is not None:
            value = own_value(experiment, name, arm.knob)
            found.setdefault((arm.of, arm.knob, name == SCHEDULE_ARM), {})[name] = value
    return [
        Group(of, knob, own_value(experiment, of, knob), tuple(arms.values()), tuple(arms))
        for (of, knob, _), arms in found.items()
    ]


def own_value(experiment: Experiment, arm: str, path: str) -> Any:
    """The value that an arm has at the path of a field that can be swept."""
    found: Any = experiment.arm(arm)
    for part in path.split("."):
        found = found[part] if isinstance(found, dict) else getattr(found, part)
    return found


def expanded(table: Raw, where: Path) -> Raw:
    """The tables of an experiment file with the arms that `robustness.schedule` and every arm's `sweep` stand for.

    They stand in `arms` and, with what they are derived from, in `robustness.derived`. The tables given are left as
    they are. ExperimentFileError names the file `where` and the key.
    """
    arms, robustness = _table(table.get("arms")), _table(table.get("robustness"))
    if "derived" in robustness:
        raise ExperimentFileError(
            f"{where}: robustness.derived: paribus fills this in",
            expected=f"schedule = true, or {SWEEP} in an arm",
            remedy="remove it; give an arm of your own a table [arms.NAME]",
        )
    sweeps = {name: arm[SWEEP] for name, arm in arms.items() if isinstance(arm, dict) and SWEEP in arm}
    own = {name: {k: v for k, v in arm.items() if k != SWEEP} if name in sweeps else arm for name, arm in arms.items()}
    if not sweeps and robustness.get("schedule") is not True:
        return table
    plain = table | {"arms": own}
    found: dict[str, tuple[Raw, Raw]] = {}
    if robustness.get("schedule") is True:
        found |= _control(plain, where)
    for arm, sweep in sweeps.items():
        for name, made in _swept(plain, arm, sweep, where):
            if name in found:
                raise _taken(where, arm, name)
            found[name] = made
    most = sum(name != SCHEDULE_ARM for name in found)
    if most > MOST_ARMS:
        raise ExperimentFileError(
            f"{where}: arms.*.{SWEEP}: too many arms",
            expected=f"at most {MOST_ARMS} besides those that the file writes out",
            received=str(most),
            remedy="sweep fewer fields, or fewer values; `paribus run` searches a field by itself with [tuning]",
        )
    _check_unused(plain, found, where)
    derived = {name: what for name, (_, what) in found.items()}
    return plain | {
        "arms": {**own, **{name: arm for name, (arm, _) in found.items()}},
        "robustness": robustness | {"derived": derived},
    }


def _control(table: Raw, where: Path) -> dict[str, tuple[Raw, Raw]]:
    """The baseline once more, by the control's name: its decay is lengthened where a scale's schedule is known.

    Nothing where the schema will refuse the tables that it is made of.
    """
    contrasts = [c for c in _table(table.get("contrasts")).values() if isinstance(c, dict)]
    baselines = list(dict.fromkeys(str(c.get("baseline")) for c in contrasts if c.get("primary") is True))
    if len(baselines) > 1:
        raise ExperimentFileError(
            f"{where}: robustness.schedule: the primaries of this file's scales have several baselines",
            expected="one arm whose decay is lengthened",
            received=", ".join(baselines),
            remedy="leave schedule out, and write the control of each as an arm with a schedule.decay of its own",
        )
    if not baselines or baselines[0] not in table["arms"]:
        return {}
    if SCHEDULE_ARM in table["arms"]:
        raise _taken(where, "", SCHEDULE_ARM)
    return {SCHEDULE_ARM: (table["arms"][baselines[0]], {"of": baselines[0], "knob": DECAY})}


def _swept(table: Raw, arm: str, sweep: Any, where: Path) -> Iterator[tuple[str, tuple[Raw, Raw]]]:
    """(name, (arm, what it is derived from)) of every value that is not the arm's own."""
    key = f"{where}: arms.{arm}.{SWEEP}"
    example = f'{SWEEP} = {{ "optimiser.matrix_learning_rate" = [0.01, 0.04] }}'
    if not isinstance(sweep, dict) or not sweep:
        raise ExperimentFileError(f"{key}: not a sweep", expected=f"fields with their values, such as {example}")
    contrasts = [c for c in _table(table.get("contrasts")).values() if isinstance(c, dict)]
    if arm not in {contrast.get(side) for contrast in contrasts for side in _SIDES}:
        raise ExperimentFileError(
            f"{key}: no contrast compares '{arm}', so nothing says what its values stand beside",
            expected="an arm of a contrast",
            remedy=f"add a contrast that has '{arm}' in it",
        )
    tables = _resolved(table, arm)
    known = [_known(of) for of in tables]
    for path, values in _flat(sweep):
        if path not in known[0]:
            raise ExperimentFileError(
                f"{key}: no such field as '{path}'",
                expected="a field of optimiser, schedule or model, or one that the arm's mechanism has in this file",
                received=f"'{path}'",
                remedy=_did_you_mean(path, known[0]),
            )
        _check_values(f'{key}."{path}"', values)
        present = [of.get(path) for of in known]
        leaf = path.rpartition(".")[2]
        short = sum(other.rpartition(".")[2] == leaf for other, _ in _flat(sweep)) == 1
        for value in values:
            if all(_same(value, own) for own in present):
                continue
            name = f"{arm}.{leaf if short else path}-{_in_a_name(value)}"
            if name in table["arms"]:
                raise _taken(where, arm, name)
            if len(name) > LONGEST_NAME:
                raise ExperimentFileError(
                    f"{key}: the name of an arm that it stands for is too long",
                    expected=f"at most {LONGEST_NAME} characters",
                    received=f"'{name}'",
                    remedy=f"rename '{arm}'",
                )
            yield name, (_with(table["arms"][arm], tables[0], path, value), {"of": arm, "knob": path})


def _flat(sweep: Raw, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Paths with what stands under them: optimiser.x = [...] without quotes is a table in a table."""
    for key, below in sweep.items():
        if isinstance(below, dict):
            yield from _flat(below, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", below


def _check_values(key: str, values: Any) -> None:
    if not isinstance(values, list) or not all(isinstance(value, bool | int | float | str) for value in values):
        raise ExperimentFileError(
            f"{key}: not a list of values",
            expected="numbers, texts, true or false in a list, such as [0.01, 0.04]",
            received=f"{values!r}"[:80],
        )
    if any(isinstance(value, float) and not math.isfinite(value) for value in values):
        raise ExperimentFileError(f"{key}: a value is not finite", expected="finite numbers", received=f"{values}"[:80])
    twice = [value for place, value in enumerate(values) if any(_same(value, other) for other in values[:place])]
    if twice:
        raise ExperimentFileError(
            f"{key}: a value stands twice", expected="each value once", received=", ".join(map(written, values))
        )
    if len(values) < 2:
        raise ExperimentFileError(
            f"{key}: a sweep of {'one value' if values else 'no value'}",
            expected="two values or more; one of them may be the arm's own",
            received=f"[{', '.join(map(written, values))}]",
            remedy="add values, or give the one that you want an arm of its own",
        )


def _check_unused(table: Raw, found: Mapping[str, Any], where: Path) -> None:
    """No contrast, knob or mechanism of the file may name a derived arm: it has not all cells that an arm has."""

    def refuse(key: str, name: str) -> None:
        raise ExperimentFileError(
            f"{where}: {key}: '{name}' stands for a value of a sweep, and shows how far a difference moves",
            expected="an arm that the file writes out",
            received=f"'{name}'",
            remedy=f"give it a table of its own, such as [arms.other], and leave its value out of the {SWEEP}",
        )

    for contrast, sides in _table(table.get("contrasts")).items():
        for side in _SIDES:
            if (name := _table(sides).get(side)) in found:
                refuse(f"contrasts.{contrast}.{side}", str(name))
    for name in _table(_table(table.get("tuning")).get("knobs")):
        if name in found:
            refuse(f"tuning.knobs.{name}", name)
    for arm, difference in {"": table.get("base"), **table["arms"]}.items():
        for seam in SEAM_FIELDS:
            for key, value in _table(_table(difference).get(seam)).items():
                if key != "name" and isinstance(value, str) and value in found:
                    refuse(f"{f'arms.{arm}' if arm else 'base'}.{seam}.{key}", value)


def _resolved(table: Raw, arm: str) -> list[Raw]:
    """The arm with what it shares with the others, at each scale of the file: at least one."""
    base = _table(table.get("base"))
    scales = [_table(_table(scale).get("base")) for scale in _table(table.get("scales")).values()]
    return [merged(merged(base, scale), table["arms"][arm]) for scale in scales or [{}]]


def _known(arm: Raw) -> Raw:
    """Every field that can be swept, with the arm's own value."""
    seams = {f"{seam}.{key}": value for seam in SEAM_FIELDS for key, value in _table(arm.get(seam)).items()}
    found = {path: value for path, value in seams.items() if not path.endswith(".name")}
    model = _table(arm.get("model"))
    backbone = str(model.get("backbone", "prenorm"))
    for name, kind in (
        ("optimiser", OptimiserConfig),
        ("schedule", ScheduleConfig),
        ("model", _CONSTANTS.get(backbone, PrenormConstants)),
    ):
        found |= _fields(arm, name, kind)
    found.pop("model.backbone", None)
    return found


def _fields(arm: Raw, name: str, kind: Any) -> Raw:
    own = _table(arm.get(name))
    return {f"{name}.{field}": own.get(field, info.default) for field, info in kind.model_fields.items()}


def _with(difference: Raw, whole: Raw, path: str, value: Any) -> Raw:
    """The arm's `difference` with the field at `path` at a value. `whole` is the arm with what it shares."""
    table, _, field = path.partition(".")
    below = {**whole[table], field: value} if table in SEAM_FIELDS else {field: value}
    return merged(difference, {table: below})


def _same(one: Any, other: Any) -> bool:
    """Equal as a file means it: 1 is 1.0, and true is not 1."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _in_a_name(value: bool | int | float | str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "", written(value))


def _did_you_mean(path: str, known: Mapping[str, Any]) -> str:
    """The closest path, or the paths of the same table, where none is close."""
    same_table = [other for other in known if other.partition(".")[0] == path.partition(".")[0]]
    return nearest(path, same_table or known)


def _taken(where: Path, arm: str, name: str) -> ExperimentFileError:
    asked = f"arms.{arm}.{SWEEP}" if arm else "robustness.schedule"
    return ExperimentFileError(
        f"{where}: {asked}: an arm called '{name}' is there already",
        expected="a name for the arm that it stands for which is free",
        received=f'[arms."{name}"]',
        remedy="rename that arm, or leave its value out",
    )


def _table(found: Any) -> Raw:
    return found if isinstance(found, dict) else {}
