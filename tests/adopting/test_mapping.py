"""The mapping file: what it refuses, and how it says so."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from paribus.adopting.mapping import AdoptionMapping, Contrast, load_mapping
from paribus.errors import ExperimentFileError


@pytest.fixture
def load(foreign):
    """Load the mapping with one text replaced."""

    def loaded(old: str = "", new: str = "") -> AdoptionMapping:
        assert old in foreign.mapping_text
        file = foreign.folder / "mapping.toml"
        text = foreign.mapping_text
        file.write_text(text.replace(old, new, 1) if old else text, encoding="utf-8")
        return load_mapping(file)

    return loaded


def test_a_text_is_a_path_and_a_table_is_a_constant_or_a_pattern(load) -> None:
    found = load('seed = "seed"', 'seed = { path = "@file", pattern = "seed(\\\\d+)" }')
    assert found.columns.arm.path == "arm"
    assert found.columns.seed is not None
    assert found.columns.seed.pattern == "seed(\\d+)"
    assert load('host = "host"', 'host = { value = "box" }').columns.host is not None
    assert found.globs == ("*.json",)
    assert found.primary == "main"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('baseline = "plain"', 'baselin = "plain"', "did you mean 'baseline'?"),
        ('metric = "loss"', 'metric = "los"', "did you mean 'loss'?"),
        ('arm = "arm"\n', "", "columns.arm: missing"),
        ("smallest_effect = 0.001", "smallest_effect = nan", "smallest_effect"),
        ("design_effect = 0.002", "design_effect = 0.001", "must exceed smallest_effect"),
        ("primary = true", "primary = false", "exactly one contrast must be primary"),
        ('treatment = "trick"', 'treatment = "plain"', "the same arm"),
        ('seed = "seed"', 'seed = { path = "seed", pattern = "seed" }', "exactly one group"),
        ('seed = "seed"', 'seed = { path = "seed", pattern = "(" }', "no regular expression"),
        ('seed = "seed"', 'seed = { path = "seed", value = 3 }', "either path or value"),
        ('unit = "bits per byte"', 'unit = "bits per byte"\nnoise_sd = 0.1', "noise_source belong together"),
        ("[equal]", "[declared.trik]\nlr = 0.1\n[equal]", "did you mean 'trick'?"),
        ("primary = true", 'primary = true\nscales = ["d12"]\nprimary_scale = "d24"', "not among scales"),
        ("question =", "question = 3 #", "question"),
        ("[columns]", "[columns", "not a readable TOML file"),
    ],
)
def test_a_wrong_mapping_is_refused_with_the_key_and_a_remedy(load, old: str, new: str, says: str) -> None:
    with pytest.raises(ExperimentFileError, match=r"mapping\.toml") as caught:
        load(old, new)
    assert says in str(caught.value)


def test_a_missing_mapping_says_what_one_is(tmp_path: Path) -> None:
    with pytest.raises(ExperimentFileError, match="no such file") as caught:
        load_mapping(tmp_path / "mapping.toml")
    assert "--mapping" in caught.value.remedy


def test_every_key_is_explained(foreign) -> None:
    """The error of a missing key prints its sentence, so each needs one."""
    tables = [AdoptionMapping, Contrast]
    tables += [type(getattr(foreign.mapping(), name)) for name in ("columns", "equal")]
    tables += [type(foreign.mapping().metrics["loss"]), type(foreign.mapping().columns.arm)]
    for table in tables:
        assert all(field.description for field in table.model_fields.values()), table


def test_a_label_needs_the_number_it_promises(foreign) -> None:
    with pytest.raises(ValidationError, match="needs a pattern"):
        foreign.mapping({"labels": {"budget": {"column": "name", "measured": "train.wall"}}})
