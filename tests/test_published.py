"""Published figures: what is read from a file, what is inherited, and what is refused with a way out."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from paribus.errors import ExperimentFileError
from paribus.published import Published, PublishedFigure, read
from paribus.refusal import refusal

SHIPPED = Path(__file__).parents[1] / "experiments" / "published" / "papers.toml"
FILE = """
caveats = ["everything here is made up"]
[paper]
source = "arXiv 2031.01234"
caveats = ["one run per arm"]
[paper.large]
loss = { baseline = 2.310, gated = 2.285 }
reduction = 0.025
se = 0.004
zero = 0
steps = [10, 12]
nothing = "not public"
flag = true
[paper.small]
source = "its appendix"
caveats = ["read off a figure"]
gain = 1
[orphan]
gain = 0.1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "figures.toml").write_text(FILE, encoding="utf-8")
    return tmp_path


def figure(entry: str = "paper.large", **keys: Any) -> PublishedFigure:
    return PublishedFigure.model_validate({"file": "figures.toml", "entry": entry, **keys})


def test_a_difference_is_treatment_minus_baseline_with_what_is_known_of_it(folder: Path):
    found = read(
        figure(treatment="loss.gated", baseline="loss.baseline", standard_error="se", seeds=3, same_recipe=True), folder
    )
    assert found == Published(
        difference=2.285 - 2.310,
        standard_error=0.004,
        seeds=3,
        source="arXiv 2031.01234",
        caveats=("everything here is made up", "one run per arm"),
        entry="paper.large",
    )


def test_a_reduction_is_turned_around(folder: Path):
    assert read(figure(difference="reduction", reduction=True), folder).difference == -0.025
    assert read(figure(difference="reduction"), folder).difference == 0.025


def test_the_innermost_source_counts_and_caveats_add_up(folder: Path):
    found = read(figure("paper.small", difference="gain", standard_error=0.5), folder)
    assert found.source == "its appendix"
    assert found.caveats == ("everything here is made up", "one run per arm", "read off a figure")
    assert (found.difference, found.standard_error, found.seeds) == (1.0, 0.5, None)


def test_a_number_in_a_list_is_named_by_its_place(folder: Path):
    assert read(figure(treatment="steps.1", baseline="steps.0"), folder).difference == 2.0


@pytest.mark.parametrize(
    ("keys", "what", "remedy"),
    [
        ({"difference": "reduktion"}, "paper.large: no key 'reduktion'", "did you mean 'reduction'"),
        ({"treatment": "loss.gatd", "baseline": "loss.baseline"}, "large.loss: no key 'gatd'", "mean 'gated'"),
        ({"difference": "reduction.x"}, "large.reduction: no key 'x'", "none is valid here"),
        ({"difference": "steps.2"}, "large.steps: no key '2'", "valid: 0, 1"),
        ({"difference": "nothing"}, "large.nothing: not a number", "'not public'"),
        ({"difference": "flag"}, "large.flag: not a number", "True"),
        ({"difference": "loss"}, "large.loss: not a number", "name one of its keys"),
        ({"difference": "reduction", "standard_error": "ses"}, "no key 'ses'", "did you mean 'se'"),
        ({"difference": "reduction", "standard_error": "zero"}, "zero: a standard error must be above 0", "leave"),
        ({"entry": "paper.lrge", "difference": "x"}, "no table 'lrge' in 'paper'", "did you mean 'large'"),
        ({"entry": "papers", "difference": "x"}, "no table 'papers'", "did you mean 'paper'"),
        ({"entry": "paper.large.se", "difference": "x"}, "no table 'se' in 'paper.large'", "valid: loss"),
        ({"entry": "orphan", "difference": "gain"}, "orphan: a published figure needs its source", "name the paper"),
        ({"file": "figure.toml", "difference": "x"}, "figure.toml: no such file", "relative to the experiment file"),
    ],
)
def test_what_the_file_does_not_hold_is_refused_with_the_nearest_name(
    folder: Path, keys: dict[str, Any], what: str, remedy: str
):
    with pytest.raises(ExperimentFileError) as caught:
        read(figure(**{"entry": "paper.large", **keys}), folder)
    assert what in caught.value.what
    assert remedy in str(caught.value)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("a = [1", "not a readable TOML file"),
        ('[a]\nsource = ""\ngain = 1', "needs its source"),
        ("[a]\nsource = 7\ngain = 1", "needs its source"),
        ('[a]\nsource = "b"\ncaveats = "one"\ngain = 1', "caveats must be a list"),
        ('[a]\nsource = "b"\ngain = inf', "not a number"),
    ],
)
def test_a_file_that_says_too_little_is_refused(tmp_path: Path, content: str, word: str):
    (tmp_path / "figures.toml").write_text(content, encoding="utf-8")
    with pytest.raises(ExperimentFileError, match=word):
        read(figure("a", difference="gain"), tmp_path)


@pytest.mark.parametrize(
    ("keys", "word"),
    [
        ({}, "give either difference, or treatment and baseline"),
        ({"treatment": "a"}, "give either difference, or treatment and baseline"),
        ({"difference": "d", "treatment": "a", "baseline": "b"}, "give either difference"),
        ({"difference": "d", "baseline": "b"}, "give either difference"),
        ({"treatment": "a", "baseline": "b", "reduction": True}, "reduction turns a difference around"),
        ({"difference": "d", "standard_error": -0.1}, "or a number above 0"),
        ({"difference": "d", "standard_error": True}, "or a number above 0"),
        ({"difference": "d", "standard_error": "a..b"}, "or a number above 0"),
        ({"difference": "d", "seeds": 0}, "at least 1"),
        ({"difference": "d", "seeds": 2.5}, "a whole number"),
        ({"difference": ".d"}, "keys joined by '.'"),
        ({"difference": "d", "same_recipe": "yes"}, "true or false"),
        ({"difference": "d", "samerecipe": True}, "did you mean 'same_recipe'"),
    ],
)
def test_a_table_that_points_nowhere_is_refused_before_any_file_is_read(keys: dict[str, Any], word: str):
    with pytest.raises(ValidationError) as caught:
        figure(**keys)
    said = str(refusal(caught.value, "contrasts.main.published", PublishedFigure))
    assert said.startswith("contrasts.main.published")
    assert re.search(word, said)


def test_a_table_survives_the_way_to_a_worker():
    sent = figure(difference="reduction", standard_error=1, seeds=5)
    assert PublishedFigure.model_validate_json(sent.model_dump_json(exclude_unset=True)) == sent


@pytest.mark.parametrize(
    ("entry", "keys", "expected"),
    [
        ("rd_attnres.S", {"difference": "nll_reduction_nats", "reduction": True}, -0.0301),
        ("rd_attnres.M", {"difference": "nll_reduction_nats", "reduction": True}, -0.0247),
        ("xsa_under_muon.d12", {"treatment": "core.xsa", "baseline": "core.baseline"}, -0.0094),
        ("xsa_under_muon.d24", {"treatment": "core.xsa", "baseline": "core.baseline"}, 0.0013),
        (
            "xsa_under_muon.d12",
            {"treatment": "val_bits_per_byte.xsa", "baseline": "val_bits_per_byte.baseline"},
            -0.0027,
        ),
        ("attention_residuals.loss_528M", {"treatment": "block", "baseline": "baseline"}, -0.026),
    ],
)
def test_the_shipped_file_holds_the_published_differences(entry: str, keys: dict[str, Any], expected: float):
    found = read(PublishedFigure.model_validate({"file": SHIPPED.name, "entry": entry, **keys}), SHIPPED.parent)
    assert found.difference == pytest.approx(expected, abs=1e-12)  # four decimals each, subtracted
    assert found.source
    assert found.caveats
    assert found.standard_error is None


def test_every_figure_of_the_shipped_file_has_a_source_and_caveats():
    for name, table in tomllib.loads(SHIPPED.read_text(encoding="utf-8")).items():
        assert table["source"].strip(), name
        assert table["caveats"], name
