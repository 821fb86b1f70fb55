"""Folders as another harness leaves them: one JSON file a run, and a mapping beside them."""

import copy
import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paribus.adopting.conclude import Adopted, conclude
from paribus.adopting.mapping import AdoptionMapping

MAPPING = """
question = "Does the trick help?"
files = "*.json"
[columns]
arm = "arm"
scale = "depth"
seed = "seed"
host = "host"
parameters = "model.params"
tokens = "train.tokens"
seconds = "train.wall"
[metrics.loss]
column = "val_bpb"
lower_is_better = true
smallest_effect = 0.001
design_effect = 0.002
unit = "bits per byte"
[contrasts.main]
treatment = "trick"
baseline = "plain"
metric = "loss"
primary = true
[equal]
fields = ["lr"]
"""
GAINS = (-0.0031, -0.0029, -0.0032, -0.0028, -0.0030)
"""trick minus plain at seeds 0 to 4: mean -0.003, sd 0.000158, so better by at least 0.001"""


def mapping_of(changes: Mapping[str, Any] | None = None, without: Iterable[str] = ()) -> AdoptionMapping:
    """The mapping above, with tables merged into it and dotted keys taken out."""
    table = _merged(tomllib.loads(MAPPING), changes or {})
    for path in without:
        *above, key = path.split(".")
        at = table
        for part in above:
            at = at[part]
        del at[key]
    return AdoptionMapping.model_validate(table)


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    result = copy.deepcopy(dict(base))
    for key, value in changes.items():
        both = isinstance(value, Mapping) and isinstance(result.get(key), dict)
        result[key] = _merged(result[key], value) if both else value
    return result


def record(arm: str, seed: int | None, loss: object, **changes: Any) -> dict[str, Any]:
    """One run; `changes` are merged in, and what is set to None is taken out."""
    base = {
        "arm": arm,
        "depth": "d12",
        "seed": seed,
        "host": "box",
        "lr": 0.02,
        "val_bpb": loss,
        "model": {"params": 1_000_000},
        "train": {"tokens": 10_000, "wall": 100.0},
    }
    found = _merged(base, changes)
    return {key: value for key, value in found.items() if value is not None}


def study(seeds: int = 5) -> list[dict[str, Any]]:
    """Pairs that nothing is wrong with."""
    found = []
    for seed, gain in list(enumerate(GAINS))[:seeds]:
        plain = 0.85 + 0.002 * seed
        found += [record("plain", seed, plain), record("trick", seed, plain + gain)]
    return found


@dataclass(frozen=True)
class Foreign:
    """A folder to fill, and what is concluded from it."""

    folder: Path
    mapping_text: str = MAPPING

    def mapping(self, changes: Mapping[str, Any] | None = None, without: Iterable[str] = ()) -> AdoptionMapping:
        return mapping_of(changes, without)

    def record(self, arm: str, seed: int | None, loss: object, **changes: Any) -> dict[str, Any]:
        return record(arm, seed, loss, **changes)

    def study(self, seeds: int = 5) -> list[dict[str, Any]]:
        return study(seeds)

    def adopt(
        self,
        records: Iterable[Mapping[str, Any]],
        changes: Mapping[str, Any] | None = None,
        without: Iterable[str] = (),
    ) -> Adopted:
        """Write the records one a file, and conclude."""
        for number, entry in enumerate(records):
            (self.folder / f"run-{number:02d}.json").write_text(json.dumps(entry), encoding="utf-8")
        return conclude(self.folder, mapping_of(changes, without))

    @staticmethod
    def whats(adopted: Adopted, contrast: str | None = None) -> set[str]:
        """Kinds of findings, of one contrast where it is named."""
        return {finding.what for finding in adopted.findings if contrast is None or finding.contrast == contrast}

    @staticmethod
    def sentence(adopted: Adopted, what: str) -> str:
        """The one sentence of a kind of finding."""
        (sentence,) = {finding.sentence for finding in adopted.findings if finding.what == what}
        return sentence


@pytest.fixture
def foreign(tmp_path: Path) -> Foreign:
    return Foreign(tmp_path)
