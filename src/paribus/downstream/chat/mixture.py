"""The mixture file: which conversations a model is fine-tuned on, how often, in which order, and at which rates.

A strict TOML file. It may start from a preset, whose tables it then overrides key by key, and whose parts it replaces
when it has some of its own. Paths are relative to the folder given with --data, else to the file's.
"""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from paribus.downstream.chat.presets import PRESETS
from paribus.downstream.chat.sources import GENERATED, Kind
from paribus.errors import ExperimentFileError, nearest
from paribus.refusal import read_toml, refusal

Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Order = Literal["seeded", "nanochat"]
HELD_OUT_FRACTION = 0.02
"""of the conversations, where nothing else is said of validation"""
_NO_IDENTITY = {"preset": True, "checkpoint_updates": True}
_OF_PLACES = {"path", "fetch"}


class _Table(BaseModel):
    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class Part(_Table):
    """Rows of one source."""

    source: Kind
    """what the rows are: conversations as they are; questions of GSM8K, MMLU or ARC; or generated from a word list"""
    path: Annotated[Path, Field(strict=False)]
    """file or folder of Parquet or JSON lines (`paribus.downstream.chat.sources`); of generated rows, the word list"""
    split: str | None = None
    """of files, the folder below `path` that is read, as the hub has it; of generated rows "train" (the default) or
    "test", which never draw the same row"""
    epochs: Positive = 1
    """how often each of its rows is in the mixture"""
    rows: Positive | None = None
    """of files: only so many, a fixed sample whatever the seed; of generated rows how many there are"""
    rows_expected: Positive | None = None
    """how many rows the files must hold; another number is an error"""
    bad_rows: Literal["refuse", "skip"] = "refuse"
    """a row that is no conversation: an error, or left out and counted"""
    fetch: str = ""
    """what to put at `path`, in words, where it is missing"""

    @model_validator(mode="after")
    def _generated(self) -> Self:
        if self.source in GENERATED:
            if self.rows is None:
                raise ValueError(f"rows of {self.source} are generated: say how many with `rows`")
            if self.split not in (None, "train", "test"):
                raise ValueError(f"`split` of {self.source} is train or test, not '{self.split}'")
        return self

    @property
    def label(self) -> str:
        """What it is called in counts."""
        return "/".join([self.source, self.path.name, *([self.split] if self.split else [])])


class Training(_Table):
    """The updates."""

    updates: Positive | None = None
    """optimiser updates; none: as many as the mixture fills"""
    batch_tokens: Positive | None = None
    """of an update; none: as the model was pretrained with"""
    micro_batch_rows: Annotated[int, Field(ge=0)] | None = None
    """of one forward pass, 0 for all of the batch; none: as in pretraining"""
    too_long: Literal["truncate", "drop"] = "truncate"
    """of a conversation with more tokens than the context: the beginning is kept, as nanochat does, or nothing. Both
    are counted"""
    warm_start: bool = True
    """the optimiser's averages are those that pretraining ended with"""
    rate_factor: Annotated[float, Field(gt=0.0)] = 0.8
    """of every learning rate of pretraining, at its peak"""
    rates_at_batch_tokens: Positive | None = None
    """the pretraining's rates are first carried back to a batch of this size: times sqrt(this / its batch), but for
    rates that no recipe scales with the batch (shortcuts, and a mechanism's own). nanochat fine-tunes at its rates of
    2^19 tokens; right for cells whose rates were derived so. None: they are taken as they are"""
    warmup: Share = 0.0
    """share of the updates in which the rate rises linearly from 0"""
    decay: Share = 0.5
    """share of the updates, at the end, in which it falls linearly"""
    final: Share = 0.0
    """multiplier that the decay ends at"""
    matrix_weight_decay: Annotated[float, Field(ge=0.0)] = 0.0
    """of hidden matrices; that of the other tensors is the pretraining's"""
    momentum_initial: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.85
    """Muon's, at the first update"""
    momentum: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.95
    """Muon's, after the warm-up"""
    momentum_warmup_updates: Annotated[int, Field(ge=0)] = 300
    """updates over which it goes linearly from the one to the other, however many there are"""


class Mixture(_Table):
    """What the file says."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=60)]
    """of the fine-tuned model's folder; the file's name where it is not given"""
    preset: str | None = None
    """what the file starts from"""
    parts: Annotated[tuple[Part, ...], Field(strict=False, min_length=1)]
    """what is trained on"""
    validation: Annotated[tuple[Part, ...], Field(strict=False)] = ()
    """what is measured on; none: some of the conversations of `parts`"""
    validation_fraction: Annotated[float, Field(ge=0.0, lt=0.5)] | None = None
    """share of the conversations of `parts` that are held out, by a hash of the conversation, whatever part it is in;
    none: 0.02, or 0 where there are parts for validation"""
    validation_updates: Positive | None = None
    """updates between measurements; none: before the first and after the last"""
    validation_conversations: Positive | None = 2000
    """the largest number that is measured on, spread evenly; none: all"""
    order: Order = "seeded"
    """"seeded": drawn for (study, scale, seed, parts), the same for every arm. "nanochat": its own shuffles by seed 42,
    the same for every seed too"""
    buffer: Positive = 100
    """conversations among which the next one for a row is chosen"""
    training: Training = Training()
    """rates, schedule, batch"""
    checkpoint_updates: Positive = 50
    """updates between checkpoints; no part of what a model is"""

    @model_validator(mode="after")
    def _held_out_once(self) -> Self:
        if self.validation and self.validation_fraction:
            raise ValueError("give either parts for `validation` or a `validation_fraction`, not both")
        return self

    @property
    def held_out_fraction(self) -> float:
        if self.validation_fraction is not None:
            return self.validation_fraction
        return 0.0 if self.validation else HELD_OUT_FRACTION

    def as_json(self) -> dict[str, Any]:
        """Everything that decides what a model becomes, but for the data's contents; without places."""
        said = self.model_dump(mode="json", exclude=_NO_IDENTITY)
        for key in ("parts", "validation"):
            said[key] = [{k: v for k, v in part.items() if k not in _OF_PLACES} for part in said[key]]
        return said | {"validation_fraction": self.held_out_fraction}

    @property
    def digest(self) -> str:
        """Of `as_json`, 16 hexadecimal digits."""
        return _digest(self.as_json())

    @property
    def parts_digest(self) -> str:
        """Of the parts to train on alone: what the order is drawn for."""
        return _digest(self.as_json()["parts"])


def load_mixture(file: Path, name: str | None = None) -> Mixture:
    """The mixture in a file, or the preset of that name; `name` overrides its own. ExperimentFileError where it is not
    one, naming the key."""
    if not file.exists() and str(file) in PRESETS:
        table: dict[str, Any] = {"name": str(file), "preset": str(file)}
    else:
        remedy = f"name a file, or a preset: {', '.join(PRESETS)}"
        table = read_toml(file, "a mixture file (TOML)", remedy)
        table.setdefault("name", file.stem)
    if name is not None:
        table["name"] = name
    preset = table.get("preset")
    if preset is not None:
        if preset not in PRESETS:
            raise ExperimentFileError(
                f"{file}: preset: not a valid value",
                expected=", ".join(PRESETS),
                received=repr(preset),
                remedy=nearest(str(preset), PRESETS),
            )
        table = _laid_over(PRESETS[preset], table)
    try:
        return Mixture.model_validate(table)
    except ValidationError as error:
        raise refusal(error, f"{file}: ", Mixture) from None


def _digest(value: Any) -> str:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).hexdigest()


def _laid_over(below: Any, above: dict[str, Any]) -> dict[str, Any]:
    """Tables key by key, everything else whole. Where a file brings parts for training, those for validation are its
    own too."""
    found = dict(below)
    if "parts" in above:
        found.pop("validation", None)
    for key, value in above.items():
        inside = found.get(key)
        found[key] = {**inside, **value} if isinstance(inside, dict) and isinstance(value, dict) else value
    return found
