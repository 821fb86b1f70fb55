"""What stands behind the numbers of a scale: the rules of its preset, and the larger scale that it is a twin of."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paribus.errors import ExperimentFileError
from paribus.experiment.design import TwinOf
from paribus.experiment.loading import load
from paribus.experiment.plan import ArmAtScale, resolve_arm
from paribus.experiment.spec import Experiment
from paribus.model.config import NanochatConfig
from paribus.recipes.presets import PRESETS
from paribus.recipes.rules import Derivation, derive


def derivations(experiment: Experiment, scale: str) -> tuple[Derivation, ...]:
    """The numbers of a scale with the rule of each; none where the scale derives nothing."""
    size, base = experiment.scales[scale], experiment.base
    if size.derive is None or base.preset is None:
        return ()
    in_force = {f"base.{key}": value for key, value in _flat(base.model_dump())}
    in_force |= dict(_flat(size.model_dump(exclude={"base", "derive", "twin_of"})))
    model = base.model.model_dump()
    return derive(PRESETS[base.preset], size.derive, model, base.vocabulary_size, in_force)


@dataclass(frozen=True)
class Scaled:
    """One number of a twin beside that of the scale that it stands for."""

    name: str
    larger: str
    here: str


def twin_sizes(experiment: Experiment, scale: str, folder: Path) -> tuple[Scaled, ...]:
    """What differs between a twin and the scale that it stands for, in the baselines of their primary contrasts; what
    is equal is left out, but for the layers. Empty where the scale is no twin.

    `folder` is the experiment file's. ExperimentFileError where the other file cannot be loaded.
    """
    twin_of = experiment.scales[scale].twin_of
    if twin_of is None:
        return ()
    larger = _loaded(twin_of, f"scales.{scale}.twin_of", folder)
    left, right = dict(_numbers(larger)), dict(_numbers(experiment))
    return tuple(
        Scaled(name, left.get(name, "none"), right.get(name, "none"))
        for name in dict.fromkeys((*left, *right))
        if name == "layers" or left.get(name) != right.get(name)
    )


def _loaded(twin_of: TwinOf, where: str, folder: Path) -> Experiment:
    try:
        return load(folder / twin_of.file, twin_of.scale)
    except ExperimentFileError as error:
        raise ExperimentFileError(
            f"{where}: {error.what}", expected=error.expected, received=error.received, remedy=error.remedy
        ) from None


def _numbers(experiment: Experiment) -> Iterator[tuple[str, str]]:
    baseline = experiment.compared_with_itself
    assert baseline is not None  # loading has asked for a primary contrast
    scale, name = baseline
    arm = resolve_arm(experiment, name, scale)
    model, length = arm.model, arm.length
    parameters = sum(arm.parameters_by_role.values())
    tokens = length.steps * length.batch_tokens
    yield "layers", f"{model.layers}"
    yield "width", f"{model.width:,}"
    yield "width of the MLP", f"{model.mlp_width:,}"
    yield "heads", f"{model.heads} of {model.head_width}"
    yield "vocabulary", f"{model.vocabulary_size:,}"
    yield "context in tokens", f"{model.context_length:,}"
    if isinstance(model, NanochatConfig):
        windows = [model.window(layer) for layer in range(model.layers)]
        short = {window for window in windows if window is not None}
        yield (
            "short windows",
            ", ".join(f"{window:,} of {model.context_length:,}" for window in sorted(short)) or "none",
        )
    yield "parameters", f"{parameters:,}"
    yield "batch in tokens", f"{length.batch_tokens:,}"
    yield "updates", f"{length.steps:,}"
    yield "tokens", f"{tokens:,}"
    yield "tokens per parameter", f"{tokens / parameters:.3g}"
    yield "FLOPs per cell", f"{_flops(arm):.3g}"
    yield "corpus", _corpus(experiment)
    yield "seeds", f"{experiment.seeds.count}"
    for table in ("model", "optimiser", "schedule"):
        for key, value in _flat(getattr(arm.base, table).model_dump(mode="json", exclude={"head_width"})):
            yield f"{table}.{key}", f"{value:.6g}" if isinstance(value, float) else str(value)


def _flops(arm: ArmAtScale) -> float:
    return arm.training_flops_per_token * arm.length.steps * arm.length.batch_tokens


def _corpus(experiment: Experiment) -> str:
    corpus = experiment.base.corpus
    name = str(corpus.task or corpus.name or corpus.hub or corpus.path or "local-docs")
    return name if corpus.task is not None else f"{name}, rows by {corpus.packing}"


def _flat(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in fields.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
