"""The names of metrics, and which of them a study may have."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from paribus.errors import ExperimentFileError
from paribus.experiment import loading
from paribus.experiment.metrics import parse, unit_of
from paribus.experiment.spec import Contrast, Experiment

Load = Callable[..., Experiment]


@pytest.fixture
def load(study_text: Callable[..., str], tmp_path: Path) -> Load:
    """The experiment with this corpus and primary metric."""

    def of(*, corpus: str = 'task = "twin"', metric: str = "train.area") -> Experiment:
        text = study_text(base={"corpus": f"{{ {corpus} }}"}, contrast={"metric": f'"{metric}"'})
        (tmp_path / "study.toml").write_text(text, encoding="utf-8")
        return loading.load(tmp_path / "study.toml")

    return of


@pytest.mark.parametrize(
    ("name", "split", "quantity", "slices", "unit"),
    [
        ("test.nll", "test", "nll", (), "nats per token"),
        ("validation.bits_per_byte", "validation", "bits_per_byte", (), "bits per byte"),
        ("train.area", "train", "area", (), "nats per target"),
        ("train.area.same-different", "train", "area", ("same", "different"), "nats per target"),
        ("train.log2_updates.QD", "train", "log2_updates", ("QD",), "log2 updates"),
        ("test.nll.k3", "test", "nll", ("k3",), "nats per token"),
    ],
)
def test_a_metric_is_a_split_a_quantity_and_up_to_two_slices(
    name: str, split: str, quantity: str, slices: tuple[str, ...], unit: str
):
    metric = parse(name)
    assert (metric.split, metric.quantity, metric.slices) == (split, quantity, slices)
    assert unit_of(name) == unit


@pytest.mark.parametrize(
    "name",
    [
        "",
        "test",
        "nll",
        "test.area",
        "train.nll",
        "test.nll.",
        "test.nll.a-b-c",
        "test.nll.a b",
        "test.bits_per_byte.a",
    ],
)
def test_other_names_are_refused(name: str):
    with pytest.raises(PydanticCustomError):
        parse(name)
    with pytest.raises(ValidationError):
        Contrast(treatment="a", baseline="b", metric=name, smallest_effect=1.0, design_effect=2.0)


def test_a_training_metric_is_accompanied_by_the_test_split():
    assert parse("train.area").held_out_split == "test"
    assert parse("validation.nll").held_out_split == "validation"


def test_a_task_with_its_knobs_needs_nothing_but_the_corpus_line(load: Load):
    experiment = load(corpus='task = "twin", colours = 4')
    assert experiment.base.task is not None
    assert experiment.base.task.model_dump()["colours"] == 4
    assert experiment.model_config_of(experiment.arm("xsa"), "tiny").vocabulary_size == experiment.base.vocabulary_size


@pytest.mark.parametrize("metric", ["train.area", "train.log2_updates", "test.nll.same"])
def test_text_has_no_slices_and_no_learning_curve(load: Load, metric: str):
    with pytest.raises(ExperimentFileError, match=r"contrasts\.xsa\.metric: only a synthetic task") as caught:
        load(corpus='name = "local-docs"', metric=metric)
    assert "study.toml" in caught.value.what
    assert metric in caught.value.received


def test_the_targets_of_a_task_have_no_bytes(load: Load):
    with pytest.raises(ExperimentFileError, match="no bytes"):
        load(metric="test.bits_per_byte")


@pytest.mark.parametrize("metric", ["train.area.sane", "test.nll.same-differnt"])
def test_an_unknown_slice_is_refused_with_the_nearest_one(load: Load, metric: str):
    with pytest.raises(ExperimentFileError, match="no targets in a slice of this name") as caught:
        load(metric=metric)
    assert caught.value.remedy.startswith("did you mean '")


def test_a_slice_that_the_knobs_leave_empty_is_refused(load: Load):
    with pytest.raises(ExperimentFileError, match="no targets in a slice"):
        load(corpus='task = "twin", overlap = "never"', metric="train.area.same")


@pytest.mark.parametrize(
    ("corpus", "what"),
    [
        ('task = "twins"', "base.corpus.task: no such task"),
        ('task = "twin", color = 4', "base.corpus.color: unknown key"),
        ('task = "twin", colours = "four"', "base.corpus.colours"),
        ('task = "twin", name = "local-docs"', "give either name or task"),
        ('task = "twin", test_fraction = 0.1', "base.corpus.test_fraction: unknown key"),
        ('tusk = "twin"', "base.corpus.tusk: unknown key"),
    ],
)
def test_a_wrong_task_is_one_clear_error_that_names_the_key(load: Load, corpus: str, what: str):
    with pytest.raises(ExperimentFileError) as caught:
        load(corpus=corpus)
    assert what in caught.value.what
    assert "study.toml" in caught.value.what


def test_updates_to_a_threshold_are_refused_where_chance_is_the_best_predictor(load: Load):
    for corpus, metric, expected in (
        ('task = "static"', "train.log2_updates", "train.area or test.nll"),
        ('task = "chain"', "train.log2_updates.first", "train.log2_updates.later"),
        ('task = "chain"', "train.log2_updates.later-first", "train.log2_updates.later"),
    ):
        with pytest.raises(ExperimentFileError, match="so no update acquires it") as refused:
            load(corpus=corpus, metric=metric)
        assert expected in str(refused.value)
    for corpus, metric in (
        ('task = "static"', "train.area"),
        ('task = "chain"', "train.log2_updates"),
        ('task = "chain"', "train.log2_updates.later"),
    ):
        load(corpus=corpus, metric=metric)
