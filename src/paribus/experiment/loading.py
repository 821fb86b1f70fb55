"""From a file to an experiment: what TOML says is read, validated, and its names are checked against each other."""

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from paribus.errors import ExperimentFileError, nearest
from paribus.experiment.spec import Base, Experiment, Scale, merged
from paribus.model.config import ModelConfig
from paribus.refusal import refusal

RESERVED_SCALE_NAMES = frozenset(
    {"corpus", "study.json", "plan.json", "looks.jsonl", "report.html", "report.json", "verdict.svg", "verdict.md"}
)
"""what else lies beside the scales' folders"""
AnyTable = TypeVar("AnyTable", bound=BaseModel)


def load(path: Path) -> Experiment:
    """The experiment in the file at `path`. ExperimentFileError names file, key path and the nearest valid name."""
    try:
        content = path.read_bytes()
        table = tomllib.loads(content.decode())
    except FileNotFoundError:
        raise ExperimentFileError(
            f"{path}: no such file", expected="an experiment file (TOML)", remedy="see experiments/ for examples"
        ) from None
    except IsADirectoryError:
        raise ExperimentFileError(
            f"{path}: a folder", expected="an experiment file (TOML)", remedy="name the file, such as study.toml"
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ExperimentFileError(
            f"{path}: not a readable TOML file",
            received=str(error),
            remedy="an unclosed quote or bracket on or above that line is the usual cause",
        ) from None
    table.setdefault("study", path.stem)
    experiment = _validated(path, table, "", Experiment)
    _check_shared(path, experiment)
    for name, difference in experiment.arms.items():
        _validated(path, merged(experiment.base.model_dump(exclude_unset=True), difference), f"arms.{name}", Base)
    for name, scale in experiment.scales.items():
        for arm in experiment.arms:
            _check_milestones(path, name, scale, experiment.arm(arm).batch_tokens)
            try:
                experiment.model_config_of(experiment.arm(arm), name)
            except ValidationError as error:
                raise refusal(error, f"{path}: scales.{name}", ModelConfig) from None
    _check_references(path, experiment)
    return experiment


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let errors that are found after loading, in a mechanism's own table, name the file too."""
    try:
        yield
    except ExperimentFileError as error:
        if error.what.startswith(f"{path}: "):
            raise
        raise ExperimentFileError(
            f"{path}: {error.what}", expected=error.expected, received=error.received, remedy=error.remedy
        ) from None


def _validated(path: Path, table: dict[str, Any], prefix: str, kind: type[AnyTable]) -> AnyTable:
    try:
        return kind.model_validate(table)
    except ValidationError as error:
        raise refusal(error, f"{path}: {prefix}", kind) from None


def _check_shared(path: Path, experiment: Experiment) -> None:
    for name, difference in experiment.arms.items():
        for shared in sorted({"corpus", "tokenizer"} & difference.keys()):
            raise ExperimentFileError(
                f"{path}: arms.{name}.{shared}: an arm cannot have its own",
                expected=f"[base] {shared}, shared by all arms",
                remedy="a comparison across corpora is two studies",
            )


def _check_milestones(path: Path, name: str, scale: Scale, batch_tokens: int) -> None:
    budgets = (*scale.milestones_tokens, scale.budget_tokens)
    if len({-(-budget // batch_tokens) for budget in budgets}) < len(budgets):
        raise ExperimentFileError(
            f"{path}: scales.{name}.milestones_tokens: two budgets end at the same update",
            expected=f"budgets at least one update of {batch_tokens:,} tokens apart",
            received=", ".join(f"{budget:,}" for budget in budgets),
            remedy="drop one of them, or make batch_tokens smaller",
        )


def _check_references(path: Path, experiment: Experiment) -> None:
    for name in experiment.scales:
        if name in RESERVED_SCALE_NAMES:
            raise ExperimentFileError(
                f"{path}: scales.{name}: this name is taken inside the run folder",
                expected=f"a name other than {', '.join(sorted(RESERVED_SCALE_NAMES))}",
                received=f"'{name}'",
                remedy="rename the scale",
            )
    for name, contrast in experiment.contrasts.items():
        for side in ("treatment", "baseline"):
            arm = getattr(contrast, side)
            if arm not in experiment.arms:
                raise ExperimentFileError(
                    f"{path}: contrasts.{name}.{side}: no such arm",
                    expected=", ".join(experiment.arms),
                    received=f"'{arm}'",
                    remedy=nearest(arm, experiment.arms),
                )
        if contrast.scale is None and len(experiment.scales) > 1:
            raise ExperimentFileError(
                f"{path}: contrasts.{name}.scale: missing",
                expected="one of " + ", ".join(experiment.scales),
                remedy="a contrast is decided at one scale: name it",
            )
        if contrast.scale is not None and contrast.scale not in experiment.scales:
            raise ExperimentFileError(
                f"{path}: contrasts.{name}.scale: no such scale",
                expected=", ".join(experiment.scales),
                received=f"'{contrast.scale}'",
                remedy=nearest(contrast.scale, experiment.scales),
            )
    primaries = [name for name, contrast in experiment.contrasts.items() if contrast.primary]
    if len(primaries) != 1:
        raise ExperimentFileError(
            f"{path}: contrasts: exactly one must be primary",
            expected="primary = true in one contrast",
            received=", ".join(primaries) or "none",
            remedy="decide before the run which contrast the study is about",
        )
    if experiment.seeds.repeats > experiment.seeds.count:
        raise ExperimentFileError(
            f"{path}: seeds.repeats: more repeats than seeds",
            expected=f"0 to {experiment.seeds.count}",
            received=str(experiment.seeds.repeats),
        )
