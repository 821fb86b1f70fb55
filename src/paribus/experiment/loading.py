"""From a file to an experiment: what TOML says is read, validated, and its names are checked against each other.

A file with several scales is one study where every contrast names its scale and no scale differs from the base. It is
several where it is restricted to a scale: contrasts that name another scale are left out, and the study is called
"file@scale", so that each has a run folder, a plan, a ledger of looks and random streams of its own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from paribus.data.store import CORPORA
from paribus.data.updates import updates_of
from paribus.errors import ExperimentFileError, nearest
from paribus.experiment import sweeps, vocabulary
from paribus.experiment.slices import check_metrics
from paribus.experiment.spec import AT, CALIBRATION, SEAM_FIELDS, TUNING, Base, Experiment, Scale, merged
from paribus.experiment.tuning import declare_knobs, declared_values
from paribus.model.config import CONFIGS
from paribus.published import read as read_published
from paribus.recipes.expanding import expanded
from paribus.refusal import read_toml, refusal

RESERVED_SCALE_NAMES = frozenset(
    {"corpus.json", "cost", "figures", "tables", "study.json", "plan.json", "looks.jsonl"}
    | {"report.html", "report.json", "report.md", "verdict.svg", "verdict.md"}
)
"""what else lies beside the scales' folders"""
OWN = {"base", "seeds", "noise", "execution", "margins", "calibration"}
"""fields of a scale that are laid over the rest of the file"""
_OF_NO_CELL = {"calibration"}
"""those with which a file of several scales can still be one study"""
AnyTable = TypeVar("AnyTable", bound=BaseModel)


def load(path: Path, scale: str | None = None) -> Experiment:
    """The experiment in the file at `path`, restricted to one of its scales where that is named.

    All of the file is checked, whichever scale is asked for. ExperimentFileError names file, key path and the nearest
    valid name.
    """
    whole = _whole(path)
    chosen = _chosen_scale(path, whole, scale)
    experiments = {name: _restricted(path, whole, name) for name in whole.scales}
    if chosen is None:
        experiments = {"": whole}
    with naming(path):
        for experiment in experiments.values():
            _check_arms(path, experiment)
    _check_references(path, whole)
    with naming(path):
        for each in experiments.values():
            check_metrics(each)
    experiment = experiments[chosen or ""]
    _check_primary(path, experiment)
    _check_published(path, experiment)
    with naming(path):
        declared_values(experiment)
    return declare_knobs(experiment)


def _whole(path: Path) -> Experiment:
    table = read_toml(path, "an experiment file (TOML)", "see experiments/ for examples")
    table.setdefault("study", path.stem)
    _check_study_name(path, table["study"])
    vocabulary.read_into(table, path)
    table = sweeps.expanded(expanded(table, path), path)
    return _validated(path, table, "", Experiment)


def _check_study_name(path: Path, name: Any) -> None:
    joints = {
        AT: "the scale that it is restricted to",
        TUNING: "the study that tunes it",
        CALIBRATION: "the study that calibrates its task",
    }
    for joint, what in joints.items():
        if joint not in str(name):
            continue
        raise ExperimentFileError(
            f"{path}: study: '{joint}' joins a study to {what}",
            expected="letters, digits, '_', '.' and '-'",
            received=f"'{name}'",
            remedy="rename the file, or give it a `study` of another name",
        )
    if name == CORPORA:
        raise ExperimentFileError(
            f"{path}: study: '{CORPORA}' is the folder of prepared corpora beside the studies",
            expected="another name",
            received=f"'{CORPORA}'",
            remedy="rename the file, or give it a `study` of another name",
        )


def _chosen_scale(path: Path, experiment: Experiment, asked: str | None) -> str | None:
    """The scale to restrict the file to; None where the file is one study as it stands."""
    scales = experiment.scales
    if asked is not None and asked not in scales:
        raise ExperimentFileError(
            f"{path}: --scale: no such scale",
            expected=", ".join(scales),
            received=f"'{asked}'",
            remedy=nearest(asked, scales),
        )
    if asked is not None or len(scales) == 1:
        return asked or next(iter(scales))
    without = [f"contrasts.{name} names no scale" for name, c in experiment.contrasts.items() if c.scale is None]
    separate = OWN - _OF_NO_CELL
    own = [f"scales.{n} differs from the rest of the file" for n, s in scales.items() if separate & s.model_fields_set]
    if without or own:
        raise ExperimentFileError(
            f"{path}: the file holds several scales: say which one with --scale",
            expected="one of " + ", ".join(scales),
            received="; ".join([*without, *own][:3]),
            remedy=f"add --scale {next(iter(scales))}",
        )
    return None


def _restricted(path: Path, experiment: Experiment, name: str) -> Experiment:
    """The experiment at one scale, with the scale's own base, seeds and execution laid over the file's."""
    scale = experiment.scales[name]
    for key in sorted(scale.base.keys() & SEAM_FIELDS):
        raise ExperimentFileError(
            f"{path}: scales.{name}.base.{key}: a scale changes no mechanism",
            expected="fields other than " + ", ".join(SEAM_FIELDS),
            remedy="write mechanisms in a unit that fits every scale, such as blocks of layers, or use two files",
        )

    def laid_over(table: AnyTable, difference: dict[str, Any], key: str) -> AnyTable:
        below = table.model_dump(exclude_unset=True)
        return _validated(path, merged(below, difference), f"scales.{name}.{key}", type(table))

    margins = {} if scale.margins is None else scale.margins.model_dump()
    contrasts = {
        key: laid_over(contrast, margins if contrast.scale is None else {}, f"margins, contrasts.{key}")
        for key, contrast in experiment.contrasts.items()
        if contrast.scale in (None, name)
    }
    changes: dict[str, Any] = {
        "base": laid_over(experiment.base, scale.base, "base"),
        "seeds": laid_over(experiment.seeds, scale.seeds, "seeds"),
        "noise": laid_over(experiment.noise, scale.noise, "noise"),
        "execution": laid_over(experiment.execution, scale.execution, "execution"),
        "scales": {name: Scale.model_validate(scale.model_dump(exclude_unset=True, exclude=OWN))},
        "contrasts": contrasts,
        "calibration": scale.calibration or experiment.calibration,
    }
    if len(experiment.scales) > 1:
        changes["study"] = f"{experiment.study}{AT}{name}"
    return experiment.model_copy(update=changes)


def _check_arms(path: Path, experiment: Experiment) -> None:
    """Every arm on every scale: what can be seen without the mechanisms."""
    _check_shared(path, experiment)
    for name, difference in experiment.arms.items():
        _validated(path, merged(experiment.base.model_dump(exclude_unset=True), difference), f"arms.{name}", Base)
    for name, scale in experiment.scales.items():
        for arm in experiment.arms:
            _check_milestones(path, name, scale, experiment.arm(arm).batch_tokens)
            try:
                experiment.model_config_of(experiment.arm(arm), name)
            except ValidationError as error:
                raise refusal(error, f"{path}: scales.{name}", CONFIGS[experiment.arm(arm).model.backbone]) from None
    for what in ("repeats", "twins", "proof_seeds"):
        _check_copies(path, experiment, f"noise.{what}", getattr(experiment.noise, what))
    if experiment.execution.mode == "proof" and experiment.noise.proof_seeds:
        raise ExperimentFileError(
            f"{path}: noise.proof_seeds: every cell of this file is trained in proof mode",
            expected='0, or execution.mode = "fast"',
            received=str(experiment.noise.proof_seeds),
        )
    if experiment.execution.mode == "fast" and experiment.compared_with_itself and not experiment.noise.repeats:
        raise ExperimentFileError(
            f"{path}: noise.repeats: nothing would say by how much the same cell differs from itself in fast mode",
            expected="1 or more, so many cells of the baseline being trained a second time",
            received=str(experiment.noise.repeats),
            remedy='write [noise] repeats = 1, or mode = "proof"',
        )
    if "seeds" in experiment.robustness.model_fields_set:  # the default means "as many as there are, up to it"
        _check_copies(path, experiment, "robustness.seeds", experiment.robustness.seeds)


def _check_copies(path: Path, experiment: Experiment, key: str, number: int) -> None:
    if number > experiment.seeds.count:
        raise ExperimentFileError(
            f"{path}: {key}: more {key.rpartition('.')[2]} than seeds.count",
            expected=f"at most {experiment.seeds.count}",
            received=str(number),
            remedy=f"lower it, or raise seeds.count to {number}",
        )


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
        for shared in sorted({"batch_tokens", "context_length"} & difference.keys()):
            common = getattr(experiment.base, shared)
            if experiment.base.corpus.task is None or difference[shared] == common:
                continue
            raise ExperimentFileError(
                f"{path}: arms.{name}.{shared}: the arms of a study that reads a task read the same batches",
                expected=f"[base] {shared} = {common}, shared by all arms",
                received=f"{difference[shared]}",
                remedy="rows are drawn batch by batch, so that arms with other batches pair at no seed: make it two "
                "studies",
            )


def _check_milestones(path: Path, name: str, scale: Scale, batch_tokens: int) -> None:
    budgets = (*scale.milestones_tokens, scale.budget_tokens)
    if len({updates_of(budget, batch_tokens) for budget in budgets}) < len(budgets):
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
        for side in ("treatment", "baseline", "minus_treatment", "minus_baseline"):
            arm = getattr(contrast, side)
            if arm is not None and arm not in experiment.arms:
                raise ExperimentFileError(
                    f"{path}: contrasts.{name}.{side}: no such arm",
                    expected=", ".join(experiment.arms),
                    received=f"'{arm}'",
                    remedy=nearest(arm, experiment.arms),
                )
        if contrast.scale is not None and contrast.scale not in experiment.scales:
            raise ExperimentFileError(
                f"{path}: contrasts.{name}.scale: no such scale",
                expected=", ".join(experiment.scales),
                received=f"'{contrast.scale}'",
                remedy=nearest(contrast.scale, experiment.scales),
            )


def _check_published(path: Path, experiment: Experiment) -> None:
    """A figure that is not there is an error before anything is trained, not in the report."""
    for name, contrast in experiment.contrasts.items():
        if contrast.published is not None:
            twin = next((scale for scale, size in experiment.scales.items() if size.twin_of is not None), None)
            if twin is not None and contrast.published.same_recipe:
                raise ExperimentFileError(
                    f"{path}: contrasts.{name}.published.same_recipe: {twin} is the twin of a larger scale",
                    expected="same_recipe = false: a twin is related evidence, never a replication",
                    received="true",
                    remedy="leave same_recipe out, or leave twin_of out where the recipe is the published one",
                )
            try:
                read_published(contrast.published, path.parent)
            except ExperimentFileError as error:
                raise ExperimentFileError(
                    f"{path}: contrasts.{name}.published: {error.what}",
                    expected=error.expected,
                    received=error.received,
                    remedy=error.remedy,
                ) from None


def _check_primary(path: Path, experiment: Experiment) -> None:
    primaries = [name for name, contrast in experiment.contrasts.items() if contrast.primary]
    if len(primaries) != 1:
        scales = ", ".join(experiment.scales)
        raise ExperimentFileError(
            f"{path}: contrasts: exactly one must be primary"
            + (f" at scale {scales}" if AT in experiment.study else ""),
            expected="primary = true in one contrast",
            received=", ".join(primaries) or "none",
            remedy="decide before the run which contrast the study is about",
        )
