"""What a wrong file is answered: plain words, every key that is missing, and no name of Python's or pydantic's."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from paribus.errors import ExperimentFileError
from paribus.experiment import loading
from paribus.experiment.spec import Experiment

CORPUS = 'corpus = { task = "cross", m = 1 }'
Load = Callable[..., Experiment]


@pytest.fixture
def load(study_text: Callable[..., str], tmp_path: Path) -> Load:
    """A study of a task, with a text replaced."""
    text = study_text(
        "idea",
        base={"corpus": CORPUS.removeprefix("corpus = ")},
        contrast={"metric": '"train.area.QD"', "expected": '"-"'},
    )

    def read(old: str = "", new: str = "") -> Experiment:
        assert old in text
        (tmp_path / "study.toml").write_text(text.replace(old, new) if old else text, encoding="utf-8")
        return loading.load(tmp_path / "study.toml")

    return read


@pytest.mark.parametrize(
    ("old", "new", "what", "expected", "remedy"),
    [
        ('"-"', '"lower"', "contrasts.idea.expected: not a valid value", "'+', '-' or '0'", "valid: +, -, 0"),
        (
            CORPUS,
            'corpus = { name = "local" }',
            "base.corpus.name: not a valid value",
            "",
            "did you mean 'local-docs'?",
        ),
        ("[arms.idea]", '[arms."my idea"]', "arms.my idea: not a valid value", "letters, digits, '_'", ""),
        ('"Does it hold?"', '""', "question: not a valid value", "at least 1 character", "question: what"),
        ("count = 3", "count = 3\ncount = 4", "not a readable TOML file", "", "this key stands twice in the table"),
        ("[seeds]", "[arms.idea]", "not a readable TOML file", "", "this key stands twice in the table"),
        ("m = 1 }", "m = 1, m = 2 }", "not a readable TOML file", "", "this key stands twice in the table"),
        ("m = 1 }", "m = 1", "not a readable TOML file", "", "an unclosed quote or bracket"),
        ("layers = 1\n", 'layers = "x"\n', "scales.tiny.layers: not a valid value", "a whole number", ""),
        (CORPUS, 'corpus = { task = "cross", knobs = 3 }', "base.corpus.knobs: not a valid value", "a table", ""),
        (CORPUS, "corpus = { knobs = 3 }", "base.corpus.knobs: not a valid value", "a table", ""),
    ],
)
def test_a_wrong_value_is_refused_in_plain_words(load: Load, old: str, new: str, what: str, expected: str, remedy: str):
    with pytest.raises(ExperimentFileError) as caught:
        load(old, new)
    assert what in caught.value.what
    assert expected in caught.value.expected
    assert remedy in caught.value.remedy
    assert not re.search(
        r"typing|<class|NoneType|String should|Input should|dictionary|valid integer|or equal", str(caught.value)
    )


@pytest.mark.parametrize(
    ("old", "new", "key", "expected", "received"),
    [
        ("budget_tokens = 10_000", "budget_tokens = 0", "scales.tiny.budget_tokens", "at least 1", "0"),
        ("design_effect = 0.03", "design_effect = 0.0", "contrasts.idea.design_effect", "more than 0", "0.0"),
        ("design_effect = 0.03", "design_effect = inf", "contrasts.idea.design_effect", "a finite number", "inf"),
        ("primary = true", "primary = 1", "contrasts.idea.primary", "true or false", "1"),
        ("count = 3", "count = true", "seeds.count", "a whole number", "true"),
        ("head_width = 16", "head_width = 15", "base.model.head_width", "a multiple of 2", "15"),
        (CORPUS, "corpus = { test_fraction = 0.5 }", "base.corpus.test_fraction", "less than 0.5", "0.5"),
        ("[scales.tiny]", "schedule = { decay = 1.5 }\n[scales.tiny]", "base.schedule.decay", "at most 1", "1.5"),
        ("[seeds]", "[tuning]\nknobs = {}\n[seeds]", "tuning.knobs", "at least 1 entry", "{}"),
        ("layers = 1\n", "layers = 1\nbudgets_tokens = [0]\n", "scales.tiny.budgets_tokens.0", "at least 1", "0"),
        ("layers = 1\n", "layers = 1\nbudgets_tokens = 100\n", "scales.tiny.budgets_tokens", "a list", "100"),
        ("[seeds]", '[calibration]\nevidence = "?"\n[seeds]', "calibration.evidence", "16 hexadecimal digits", "'?'"),
        ("[seeds]", "[execution]\ndevice = 3\n[seeds]", "execution.device", "'auto', 'cpu' or 'cuda'", "3"),
        ("question =", f'study = "{"x" * 131}"\nquestion =', "study", "at most 130 characters", "'xxx"),
        ("question =", 'study = "a b"\nquestion =', "study", "letters, digits, '_', '.' and '-'", "'a b'"),
    ],
)
def test_every_kind_of_limit_of_the_file_is_named_with_what_came(
    load: Load, old: str, new: str, key: str, expected: str, received: str
):
    with pytest.raises(ExperimentFileError) as caught:
        load(old, new)
    assert caught.value.what.endswith(f"study.toml: {key}: not a valid value")
    assert caught.value.expected.startswith(expected)
    assert caught.value.received.startswith(received)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (
            'treatment = "idea"\nbaseline = "standard"\n',
            "",
            "contrasts.idea.treatment: missing (also missing: contrasts.idea.baseline)",
        ),
        (
            "layers = 1\nwidth = 32\n",
            'layers = "x"\n',
            "scales.tiny.layers: not a valid value (missing: scales.tiny.width)",
        ),
        (
            "layers = 1\nwidth = 32\n",
            'layers = "x"\nwidht = 3\n',
            "widht: unknown key (also wrong: scales.tiny.layers)",
        ),
    ],
)
def test_the_keys_of_all_findings_are_named(load: Load, old: str, new: str, what: str):
    with pytest.raises(ExperimentFileError) as caught:
        load(old, new)
    assert caught.value.what.endswith(what)


@pytest.mark.parametrize(
    ("corpus", "what"),
    [
        ("{ m = 1 }", '`m` is a knob of cross: name its task too, such as { task = "cross", m = 1 }'),
        ("{ knobs = { m = 2 } }", '`m` is a knob of cross: name its task too, such as { task = "cross", m = 2 }'),
        ('{ task = "cross", m = 1, knobs = { m = 2 } }', "the knob 'm' is given twice, beside `task` and in `knobs`"),
    ],
)
def test_a_knob_without_its_task_or_given_twice_is_refused(load: Load, corpus: str, what: str):
    with pytest.raises(ExperimentFileError) as caught:
        load(CORPUS, f"corpus = {corpus}")
    assert what in caught.value.what


def test_a_slice_minus_itself_is_refused(load: Load):
    with pytest.raises(ExperimentFileError) as caught:
        load("train.area.QD", "train.area.QD-QD")
    assert caught.value.expected == "two different slices joined by '-'"
    assert load("train.area.QD", "train.area.QD-QS").contrasts["idea"].metric == "train.area.QD-QS"


def test_more_seeds_of_robustness_than_planned_are_refused_where_somebody_wrote_them(load: Load):
    rates = "[robustness]\nrate_factors = [0.5]\n"
    with pytest.raises(ExperimentFileError) as caught:
        load("[seeds]", f"{rates}seeds = 4\n[seeds]")
    assert "robustness.seeds: more seeds than seeds.count" in caught.value.what
    assert caught.value.expected == "at most 3"
    assert load("[seeds]\ncount = 3", f"{rates}[seeds]\ncount = 2").robustness.seeds == 3, "the default is a ceiling"
