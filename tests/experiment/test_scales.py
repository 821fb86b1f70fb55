"""One file, several scales: what `--scale` makes of it, and what is refused."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from paribus.cli import main
from paribus.errors import ExperimentFileError
from paribus.experiment import loading
from paribus.experiment.plan import cells, resolve_arms
from paribus.experiment.spec import Experiment

LARGE = """\
[scales.large]
layers = 3
width = 64
mlp_width = 96
budget_tokens = 40_000
"""
OWN = """\
base = { context_length = 64, tokenizer = { vocabulary_size = 400 }, optimiser = { matrix_learning_rate = 0.01 } }
seeds = { count = 5 }
execution = { micro_batch_rows = 4 }
"""
WITH_OWN_CORPUS = OWN.replace("base = {", 'base = { corpus = { name = "local-docs" },')
Load = Callable[..., Experiment]


@pytest.fixture
def two(tiny: str) -> str:
    """The small experiment with a second scale; no contrast names one."""
    return tiny.replace("[arms.standard]", f"{LARGE}\n[arms.standard]", 1)


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def from_text(text: str, scale: str | None = None) -> Experiment:
        (tmp_path / "study.toml").write_text(text, encoding="utf-8")
        return loading.load(tmp_path / "study.toml", scale)

    return from_text


@pytest.fixture
def refused(load: Load) -> Callable[..., ExperimentFileError]:
    def by(text: str, scale: str | None = None) -> ExperimentFileError:
        with pytest.raises(ExperimentFileError) as caught:
            load(text, scale)
        return caught.value

    return by


def named(text: str, contrast: str, scale: str) -> str:
    return text.replace(f"[contrasts.{contrast}]", f'[contrasts.{contrast}]\nscale = "{scale}"')


def test_contrasts_without_a_scale_are_decided_at_the_scale_that_is_run(load: Load, two: str):
    for scale, width in (("tiny", 32), ("large", 64)):
        experiment = load(two, scale)
        arms = resolve_arms(experiment)
        assert {where for where, _ in arms} == {scale}
        assert {arm.model.width for arm in arms.values()} == {width}
        assert {experiment.contrast_scale(contrast) for contrast in experiment.contrasts.values()} == {scale}
        assert {cell.scale for cell in cells(experiment, arms, "corpus")} == {scale}


def test_several_scales_and_none_chosen_is_one_error_that_names_them(refused, two: str):
    error = refused(two)
    assert "the file holds several scales: say which one with --scale" in error.what
    assert error.expected == "one of tiny, large"
    assert "contrasts.block names no scale" in error.received
    assert error.remedy == "add --scale tiny"


def test_an_unknown_scale_is_refused_with_the_nearest_one(refused, two: str, tiny: str):
    for text in (two, tiny):
        error = refused(text, "tini")
        assert "--scale: no such scale" in error.what
        assert error.remedy == "did you mean 'tiny'?"


def test_each_scale_of_a_file_is_a_study_with_a_name_that_no_file_can_have(load: Load, refused, two: str, tiny: str):
    assert [load(two, scale).study for scale in ("tiny", "large")] == ["study@tiny", "study@large"]
    assert load(tiny, "tiny").study == load(tiny).study == "study", "one scale needs no choice"
    # "study-tiny.toml" at its only scale, or scale "b-c" of "a" beside scale "c" of "a-b", are told apart by the sign.
    error = refused('study = "study@tiny"\n' + tiny)
    assert "study: '@' joins a study to the scale" in error.what


def test_the_streams_of_two_scales_of_a_file_differ_and_so_do_their_cells(load: Load, two: str):
    same_size = two.replace(LARGE, LARGE.replace("64", "32").replace("96", "48").replace("layers = 3", "layers = 2"))
    found = [load(same_size, scale) for scale in ("tiny", "large")]
    digests = [{cell.digest for cell in cells(e, resolve_arms(e), "corpus")} for e in found]
    assert not digests[0] & digests[1]


def test_what_a_command_needs_to_mean_the_same_experiment_is_said(load: Load, two: str, tiny: str):
    assert load(two, "large").option == "--scale large"
    assert load(tiny, "tiny").option == load(tiny).option == ""


def test_contrasts_of_another_scale_are_left_out_and_exactly_one_primary_must_remain(load: Load, refused, two: str):
    text = named(two, "xsa", "large")
    assert list(load(text, "tiny").contrasts) == ["block", "rd"]
    assert list(load(text, "large").contrasts) == ["block", "xsa", "rd"]
    error = refused(named(two, "block", "large"), "tiny")
    assert "exactly one must be primary at scale tiny" in error.what
    assert error.received == "none"
    both = named(two, "block", "large").replace("[contrasts.xsa]", '[contrasts.xsa]\nscale = "tiny"\nprimary = true')
    assert [load(both, scale).primary for scale in ("tiny", "large")] == ["xsa", "block"]


def test_a_file_whose_contrasts_all_name_their_scale_is_one_study_of_all_scales(load: Load, two: str):
    text = two
    for contrast, scale in (("block", "tiny"), ("xsa", "large"), ("rd", "large")):
        text = named(text, contrast, scale)
    experiment = load(text)
    assert experiment.study == "study"
    assert list(experiment.scales) == ["tiny", "large"]
    assert {key[0] for key in experiment.cell_keys()} == {"tiny", "large"}


def test_a_scales_own_base_seeds_and_execution_are_laid_over_the_files(load: Load, two: str):
    text = two.replace(LARGE, LARGE + WITH_OWN_CORPUS)
    large, tiny = load(text, "large"), load(text, "tiny")
    assert (large.base.context_length, tiny.base.context_length) == (64, 32)
    assert large.base.batch_tokens == 512, "what it does not say stays"
    assert (large.base.optimiser.matrix_learning_rate, large.base.optimiser.depth_read_learning_rate) == (0.01, 0.005)
    assert (large.seeds.count, large.noise.repeats, tiny.seeds.count) == (5, 1, 3)
    assert (large.execution.micro_batch_rows, large.execution.threads, tiny.execution.micro_batch_rows) == (4, 1, 8)
    assert (large.base.corpus.name, large.base.corpus.path) == ("local-docs", None), "a corpus is replaced whole"
    assert (tiny.base.corpus.name, tiny.base.corpus.path) == (None, Path("corpus"))
    assert large.arm("xsa").context_length == 64
    assert {arm.model.vocabulary_size for arm in resolve_arms(large).values()} == {400}


def test_a_scales_margins_replace_those_of_contrasts_that_name_no_scale(load: Load, refused, two: str):
    text = named(two, "xsa", "large").replace(
        LARGE, LARGE + "margins = { smallest_effect = 0.003, design_effect = 0.01 }\n"
    )
    margins = {name: (c.smallest_effect, c.design_effect) for name, c in load(text, "large").contrasts.items()}
    assert margins == {"block": (0.003, 0.01), "xsa": (0.01, 0.03), "rd": (0.003, 0.01)}
    assert {c.smallest_effect for c in load(text, "tiny").contrasts.values()} == {0.01}
    error = refused(text.replace("design_effect = 0.01 ", "design_effect = 0.003 "), "tiny")
    assert "scales.large.margins, contrasts.block: design_effect 0.003 must exceed smallest_effect 0.003" in error.what


def test_an_arms_difference_stands_above_the_scales(load: Load, two: str):
    text = two.replace(LARGE, LARGE + OWN).replace("[arms.xsa]", "[arms.xsa]\noptimiser = { adam_eps = 1e-9 }")
    optimiser = load(text, "large").arm("xsa").optimiser
    assert (optimiser.matrix_learning_rate, optimiser.adam_eps) == (0.01, 1e-9)


def test_a_file_with_one_scale_may_use_the_scales_own_tables_too(load: Load, tiny: str):
    text = tiny.replace("milestones_tokens = [5_000]", "milestones_tokens = [5_000]\nseeds = { count = 4 }")
    assert load(text).seeds.count == 4
    assert load(text).study == "study"


def test_scales_that_differ_in_their_base_are_never_one_study(refused, two: str):
    text = two.replace(LARGE, LARGE + OWN)
    for contrast, scale in (("block", "tiny"), ("xsa", "large"), ("rd", "large")):
        text = named(text, contrast, scale)
    error = refused(text)
    assert error.received == "scales.large differs from the rest of the file"


@pytest.mark.parametrize("scale", [None, "tiny", "large"])
@pytest.mark.parametrize(
    ("own", "where", "remedy"),
    [
        ("base = { contxt_length = 64 }", "scales.large.base.contxt_length: unknown key", "context_length"),
        ("base = { optimiser = { matrix_rate = 1 } }", "scales.large.base.optimiser.matrix_rate: unknown key", ""),
        ("base = { batch_tokens = 500 }", "scales.large.base: batch_tokens 500 is not a multiple", ""),
        ('base = { routing = { name = "serial" } }', "scales.large.base.routing: a scale changes no mechanism", ""),
        ("seeds = { cuont = 3 }", "scales.large.seeds.cuont: unknown key", "count"),
        ("noise = { repeats = 9 }", "noise.repeats: more repeats than seeds", ""),
        ("execution = { thread = 3 }", "scales.large.execution.thread: unknown key", "threads"),
        ("base = { model = { head_width = 48 } }", "scales.large: width 64 is not a multiple of head_width 48", ""),
        ("bases = 1", "scales.large.bases: unknown key", "base"),
    ],
)
def test_a_mistake_in_one_scale_is_found_whichever_is_asked_for(
    refused, two: str, scale: str | None, own: str, where: str, remedy: str
):
    text = two.replace(LARGE, f"{LARGE}{own}\n")
    if scale is None:  # the file's only scale
        start, stop = text.index("[scales.tiny]"), text.index("[scales.large]")
        text = text[:start] + text[stop:]
    error = refused(text, scale)
    assert where in error.what
    assert remedy in error.remedy


def test_the_command_line_takes_the_scale_and_says_the_studys_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], two: str
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "texts.parquet").touch()
    Path("study.toml").write_text(two, encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["paribus", "plan", "study.toml", "--scale", "large"])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr().out
    assert ended.value.code in (0, None)
    assert "study 'study@large' (its name is part of every random stream), run folder runs/study@large" in printed
    assert "large  standard" in printed
    assert "tiny  standard" not in printed
    for command in ("plan", "check", "run", "status", "report"):
        monkeypatch.setattr(sys, "argv", ["paribus", command, "study.toml"])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        assert "several scales: say which one with --scale" in capsys.readouterr().err
    assert not Path("runs").exists()
