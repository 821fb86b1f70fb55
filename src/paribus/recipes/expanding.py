"""From a file that names a preset to the plain file that it stands for, on the tables as TOML has them.

[base] preset = NAME completes [base]; [scales.NAME.derive] completes its scale. A key that the file holds, at the scale
or in [base], is never touched. What is not a number where one belongs is left alone: the schema refuses it afterwards.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from paribus.errors import ExperimentFileError, nearest
from paribus.recipes.config import Derive
from paribus.recipes.presets import PRESETS, Preset
from paribus.recipes.rules import BATCH, BUDGET, WARMUP, WHOLE, Derivation, derive, updates_of
from paribus.refusal import refusal

Tables = dict[str, Any]
NUMBER = (int, float)
_LOADED = ("path", "hub")
"""keys of a tokenizer that is not learnt, which takes none of the preset's"""


def expanded(table: Tables, path: Path) -> Tables:
    """The tables of an experiment file without what a preset leaves unsaid; `path` is named in errors.

    ExperimentFileError for a preset that does not exist or stands in the wrong place, another backbone than the
    preset's, a derivation without a preset, and a run that is shorter than its warm-up.
    """
    base, scales = _table(table, "base"), _table(table, "scales")
    _refuse_elsewhere(path, table)
    if "preset" not in base:
        _refuse_derivations(path, scales)
        return table
    preset = _named(path, base["preset"])
    for where, at in (
        ("base", base),
        *((f"scales.{name}.base", _table(scale, "base")) for name, scale in _each(scales)),
    ):
        _refuse_other_backbone(path, preset, where, at)
    completed = _completed(preset, base, scales)
    result = {**table, "base": completed}
    if scales:
        result["scales"] = {
            name: _scale(path, preset, name, scale, base, completed) if isinstance(scale, dict) else scale
            for name, scale in scales.items()
        }
    return result


def _completed(preset: Preset, base: Tables, scales: Tables) -> Tables:
    """[base] with what the preset says and it does not."""
    own = dict(preset.base)
    tokenizers = [_table(at, "tokenizer") for at in (base, *(_table(scale, "base") for _, scale in _each(scales)))]
    if any(key in tokenizer for tokenizer in tokenizers for key in _LOADED) or _reads_a_task(base):
        del own["tokenizer"]
    completed = beneath(own, base)
    completed["corpus"] = _packed(preset, base.get("corpus", {}))
    return completed


def _packed(preset: Preset, corpus: Any) -> Any:
    if not isinstance(corpus, dict) or corpus.get("task") is not None:
        return corpus
    return beneath({"packing": preset.packing}, corpus)


def _scale(path: Path, preset: Preset, name: str, scale: Tables, base: Tables, completed: Tables) -> Tables:
    """A scale with everything that is derived; `base` is the file's own, `completed` that with the preset."""
    result = dict(scale)
    own = _table(scale, "base")
    if "corpus" in own:
        result["base"] = {**own, "corpus": _packed(preset, own["corpus"])}
    if not isinstance(scale.get("derive"), dict):
        return result
    where = f"{path}: scales.{name}.derive"
    try:
        wish = Derive.model_validate(scale["derive"])
    except ValidationError as error:
        raise refusal(error, where, Derive) from None
    if _reads_a_task(completed) or _reads_a_task(own):
        raise ExperimentFileError(
            f"{where}: a task's rows have no scaling law",
            expected="a corpus of texts",
            remedy="write layers, width, mlp_width, batch_tokens and budget_tokens of the task yourself",
        )
    in_force = beneath(completed, own)
    model = {**preset.base["model"], **_usable(preset.base["model"], _table(in_force, "model"))}
    _refuse_odd_depth(where, wish, scale, model)
    vocabulary = _table(in_force, "tokenizer").get("vocabulary_size")
    if not isinstance(vocabulary, int) or vocabulary < 1:
        vocabulary = preset.base["tokenizer"]["vocabulary_size"]
    given = {key: value for key, value in _said(scale, base) if _is_positive(value, int if key in WHOLE else NUMBER)}
    found = derive(preset, wish, model, vocabulary, given)
    said = {key for key, _ in _said(scale, base)}
    if WARMUP not in said:
        _refuse_short_run(f"{path}: scales.{name}", preset, found)
    for derivation in found:
        if derivation.key and derivation.key not in said:
            result = beneath(_nested(derivation.key, derivation.value), result)
    return result


def _said(scale: Tables, base: Tables) -> Iterator[tuple[str, Any]]:
    """What the file says, by key path below the scale, which comes last: it is laid over [base]."""
    yield from ((f"base.{key}", value) for key, value in _flat(base))
    yield from _flat(scale)


def _flat(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from ((f"{key}.{below}", leaf) for below, leaf in _flat(value))
        else:
            yield key, value


def _nested(key: str, value: Any) -> Tables:
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


def beneath(below: Mapping[str, Any], above: Mapping[str, Any]) -> Tables:
    """`above` with what only `below` says, table by table."""
    result = {**below, **above}
    for key in below.keys() & above.keys():
        if isinstance(below[key], Mapping) and isinstance(above[key], Mapping):
            result[key] = beneath(below[key], above[key])
    return result


def _usable(preset: Mapping[str, Any], model: Tables) -> Tables:
    """Constants that a person may have written and a rule can compute with: of the preset's kind, positive if a
    number."""
    return {
        key: value
        for key, value in model.items()
        if key in preset
        and (isinstance(value, str) if isinstance(preset[key], str) else _is_positive(value, type(preset[key])))
    }


def _is_positive(value: Any, kind: type | tuple[type, ...]) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool) and value > 0


def _table(tables: Any, key: str) -> Tables:
    found = tables.get(key) if isinstance(tables, dict) else None
    return found if isinstance(found, dict) else {}


def _each(tables: Tables) -> list[tuple[str, Tables]]:
    return [(name, table) for name, table in tables.items() if isinstance(table, dict)]


def _reads_a_task(base: Tables) -> bool:
    return _table(base, "corpus").get("task") is not None


def _named(path: Path, name: Any) -> Preset:
    if isinstance(name, str) and name in PRESETS:
        return PRESETS[name]
    raise ExperimentFileError(
        f"{path}: base.preset: no such preset",
        expected=", ".join(f'"{known}"' for known in PRESETS),
        received=repr(name),
        remedy=nearest(str(name), PRESETS),
    )


def _refuse_elsewhere(path: Path, table: Tables) -> None:
    arms = [(f"arms.{name}", arm) for name, arm in _each(_table(table, "arms"))]
    scales = [(f"scales.{name}.base", _table(scale, "base")) for name, scale in _each(_table(table, "scales"))]
    for where, at in (*arms, *scales):
        if "preset" in at:
            raise ExperimentFileError(
                f"{path}: {where}.preset: a preset is what all arms and scales share",
                expected="preset in [base] alone",
                received=repr(at["preset"]),
                remedy="write the fields that differ, or make it a file of its own",
            )


def _refuse_derivations(path: Path, scales: Tables) -> None:
    for name, scale in _each(scales):
        if "derive" in scale:
            raise ExperimentFileError(
                f"{path}: scales.{name}.derive: there is no preset whose rules would derive anything",
                expected="[base] preset, one of " + ", ".join(f'"{known}"' for known in PRESETS),
                received="no preset",
                remedy="name one, or write layers, width, mlp_width and budget_tokens in place of derive",
            )


def _refuse_other_backbone(path: Path, preset: Preset, where: str, base: Tables) -> None:
    backbone = _table(base, "model").get("backbone", preset.backbone)
    if backbone != preset.backbone:
        raise ExperimentFileError(
            f"{path}: {where}.model.backbone: the preset {preset.name} is a recipe of another backbone",
            expected=f'"{preset.backbone}", or no backbone: the preset names it',
            received=repr(backbone),
            remedy="leave backbone out, or leave preset out and write the recipe of your backbone",
        )


def _refuse_odd_depth(where: str, wish: Derive, scale: Tables, model: Tables) -> None:
    if "layers" in scale or model["value_embeddings"] != "alternating" or wish.depth % 2 == 0:
        return
    raise ExperimentFileError(
        f"{where}.depth: every second layer back from the last has a value embedding, which leaves layer 0 without one "
        "only where the depth is even",
        expected=f"an even depth, such as {wish.depth - 1 or 2} or {wish.depth + 1}",
        received=str(wish.depth),
        remedy='take one of them, or write value_embeddings = "none" in [base.model]',
    )


def _refuse_short_run(where: str, preset: Preset, found: tuple[Derivation, ...]) -> None:
    value = {derivation.key: int(derivation.value) for derivation in found}
    updates, least = updates_of(value[BUDGET], value[BATCH]), preset.reference.warmup_updates
    if updates >= least:
        return
    raise ExperimentFileError(
        f"{where}: the run is shorter than its warm-up",
        expected=f"at least {least} updates, as many as the preset warms up for",
        received=f"{updates} updates: budget_tokens {value[BUDGET]:,} over batch_tokens {value[BATCH]:,}",
        remedy="raise budget_tokens, lower batch_tokens, or say the share of the run yourself: "
        "base.schedule.warmup, such as 0.05",
    )
