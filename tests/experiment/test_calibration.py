"""What a file's calibration is worth, and the study that finds it: words, evidence, names, refusals."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paribus.data.material import batches_of
from paribus.data.tasks.contract import Levels, Rows
from paribus.data.tasks.tally import Tally
from paribus.errors import ExperimentFileError
from paribus.experiment import loading, spec
from paribus.experiment.calibration import (
    State,
    baseline_of,
    calibration_experiment,
    calibration_of,
    evidence_of,
    in_words,
    judged,
    lowered,
    share_of,
    slices_of,
)
from paribus.experiment.plan import cells, resolve_arms
from paribus.experiment.spec import CALIBRATION, Experiment
from paribus.experiment.tuning import with_values
from paribus.study import task_corpus

FILE = """
question = "Does it hold?"
[base]
context_length = 16
batch_tokens = 512
corpus = { task = "tally", symbols = 2, classes = 4 }
model = { head_width = 16 }
optimiser = { matrix_learning_rate = 0.02 }
evaluation = { test_tokens = 512 }
[scales.tiny]
layers = 1
width = 32
mlp_width = 48
budget_tokens = 24_000
[arms.standard]
[arms.xsa]
output_map = { name = "xsa" }
[contrasts.xsa]
primary = true
treatment = "xsa"
baseline = "standard"
metric = "train.area.many-one"
smallest_effect = 0.01
design_effect = 0.03
[seeds]
count = 3
[execution]
device = "cpu"
"""
Load = Callable[..., Experiment]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """The experiment of FILE with texts replaced: (old, new), ..."""

    def of(*changes: tuple[str, str], behind: str = "", name: str = "small.toml", scale: str | None = None):
        text = FILE
        for old, new in changes:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        (tmp_path / name).write_text(text + behind, encoding="utf-8")
        return loading.load(tmp_path / name, scale)

    return of


def frozen(experiment: Experiment, many: str = "[0.5, 0.6, 0.7]", one: str = "[0.5, 0.6, 0.7]", seeds: int = 3) -> str:
    evidence = evidence_of(experiment)
    return f'[calibration]\nseeds = {seeds}\nslices = {{ many = {many}, one = {one} }}\nevidence = "{evidence}"\n'


@pytest.mark.parametrize(
    ("shares", "seeds", "state", "said"),
    [
        ((0.61, 0.45, 0.7), 3, "calibrated", "at 45 %, 61 % and 70 % of the budget (3 of 3 seeds within 40 to 80 %)"),
        ((0.4, 0.8), 3, "calibrated", "at 40 % and 80 % of the budget, and never at 1 of 3 seeds (2 of 3 seeds within"),
        ((0.5,), 1, "calibrated", "at 50 % of the budget (1 of 1 seed within"),
        ((0.3999, 0.2, 0.5), 3, "too easy", "at 20 %, 39.99 % and 50 % of the budget (1 of 3 seeds within"),
        ((0.8001, 0.5), 3, "too hard", "at 50 % and 80.01 % of the budget, and never at 1 of 3 seeds (1 of 3 seeds"),
        ((), 3, "too hard", "at none of 3 seeds within the budget"),
        ((0.3, 0.5, 0.9), 3, "uneven", "at 30 %, 50 % and 90 % of the budget (1 of 3 seeds within"),
        ((0.3, 0.5), 2, "uneven", "at 30 % and 50 % of the budget (1 of 2 seeds within"),
        ((0.5, 0.6, 0.3), 4, "uneven", "and never at 1 of 4 seeds (2 of 4 seeds within"),
        ((0.5, 0.6, 0.7, 0.1, 1.0), 5, "calibrated", "(3 of 5 seeds within"),
    ],
)
def test_most_seeds_decide_and_the_words_hold_every_share(
    shares: tuple[float, ...], seeds: int, state: str, said: str
) -> None:
    assert judged({"all": shares}, seeds) == state
    sentence = in_words({"all": shares}, seeds)
    assert sentence.startswith(f"{state}: the baseline got half-way from chance to the floor at ")
    assert said in sentence


@pytest.mark.parametrize(
    ("other", "state"),
    [
        ((0.5, 0.5, 0.5), "calibrated"),
        ((0.1, 0.1, 0.1), "too easy"),
        ((0.9, 0.9), "too hard"),
        ((0.1, 0.5, 0.9), "uneven"),
    ],
)
def test_a_difference_of_slices_is_calibrated_where_both_are(other: tuple[float, ...], state: str) -> None:
    shares = {"many": (0.6, 0.6, 0.6), "one": other}
    assert judged(shares, 3) == state
    assert "on many the baseline got half-way from chance to the floor at 60 %, 60 % and 60 %" in in_words(shares, 3)


def test_a_slice_that_is_too_easy_beside_one_that_is_too_hard_is_uneven() -> None:
    assert judged({"many": (0.9, 0.9, 0.9), "one": (0.1, 0.1, 0.1)}, 3) is State.UNEVEN


def test_a_share_keeps_four_digits_and_is_never_written_as_nothing() -> None:
    assert share_of(51, 59) == 0.8644
    assert share_of(1, 10_000_000) == 1e-7
    assert share_of(7, 7) == 1.0


def test_a_file_without_the_table_is_missing_one_and_a_file_with_it_is_judged(load: Load) -> None:
    experiment = load()
    assert slices_of(experiment) == ("many", "one")
    found = calibration_of(experiment)
    assert found.state is State.MISSING
    assert "was not calibrated on the baseline" in found.sentence
    found = calibration_of(load(behind=frozen(experiment, one="[0.5, 0.6]")))
    assert found.state is State.CALIBRATED
    # In rows this short the place alone says more than half of both slices.
    assert lowered(experiment) == ("many", "one")
    assert found.sentence == in_words({"many": (0.5, 0.6, 0.7), "one": (0.5, 0.6)}, 3, ("many", "one"))
    assert "on one the baseline got below every shortcut at 50 % and 60 % of the budget" in found.sentence
    assert (found.crossed("one"), found.crossed("many")) == ((0.5, 0.6, None), (0.5, 0.6, 0.7))
    for one, state in (("[0.1, 0.2, 0.3]", State.TOO_EASY), ("[]", State.TOO_HARD)):
        assert calibration_of(load(behind=frozen(experiment, one=one))).state is state


@pytest.mark.parametrize(
    "change",
    [
        ("context_length = 16", "context_length = 32"),
        ("batch_tokens = 512", "batch_tokens = 1024"),
        ("symbols = 2", "symbols = 3"),
        ("classes = 4", "classes = 3"),
        ("classes = 4", "classes = 4, anchor = true"),
        ("head_width = 16", "head_width = 32"),
        ("matrix_learning_rate = 0.02", "matrix_learning_rate = 0.03"),
        ("[arms.standard]", "[arms.standard]\noptimiser.matrix_learning_rate = 0.03"),
        ("[arms.standard]", "[arms.standard]\nschedule.warmup = 0.2"),
        ("[arms.standard]", '[arms.standard]\nrouting = { name = "block-attnres", blocks = 1 }'),
        ("layers = 1", "layers = 2"),
        ("width = 32", "width = 64"),
        ("mlp_width = 48", "mlp_width = 64"),
        ("budget_tokens = 24_000", "budget_tokens = 25_000"),
        ('device = "cpu"', 'device = "cpu"\nthreads = 2'),
        ('device = "cpu"', 'device = "cpu"\nmicro_batch_rows = 8'),
        ('device = "cpu"', 'device = "auto"'),
        ('treatment = "xsa"\nbaseline = "standard"', 'treatment = "standard"\nbaseline = "xsa"'),
    ],
    ids=lambda change: change[1].splitlines()[-1],
)
def test_whatever_changes_how_the_baseline_learns_makes_a_calibration_stale(
    load: Load, change: tuple[str, str]
) -> None:
    table = frozen(load())
    old, new = change
    old, new = (f"\n{old}", f"\n{new}") if old.startswith("width") else (old, new)  # not head_width, not mlp_width
    found = calibration_of(load((old, new), behind=table))
    assert found.state is State.STALE
    assert "were changed after it" in found.sentence


@pytest.mark.parametrize(
    "change",
    [
        ('name = "xsa"', 'name = "xsa", strength = 0.5'),
        ("test_tokens = 512", "test_tokens = 1024"),
        ("budget_tokens = 24_000", "budget_tokens = 24_000\nmilestones_tokens = [8_000]\nbudgets_tokens = [6_000]"),
        ("count = 3", "count = 10\nfirst = 5"),
        ("smallest_effect = 0.01", "smallest_effect = 0.02"),
        ('device = "cpu"', 'device = "cpu"\nworkers = 3\ncheckpoint_steps = 7'),
        ("Does it hold?", "Does it?"),
        ("[seeds]", "[arms.third]\n[noise]\ntwins = 1\n[robustness]\nrate_factors = [0.5]\n[seeds]"),
        ("train.area.many-one", "train.log2_updates.one-many"),
        ("train.area.many-one", "test.nll.one"),
    ],
    ids=lambda change: change[1].splitlines()[-1],
)
def test_what_the_baseline_does_not_learn_from_leaves_a_calibration_as_it_was(
    load: Load, change: tuple[str, str]
) -> None:
    assert calibration_of(load(change, behind=frozen(load()))).state is State.CALIBRATED


def test_a_generator_that_yields_other_rows_makes_a_calibration_stale(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = load(behind=frozen(load()))
    rows = Tally.rows
    monkeypatch.setattr(Tally, "rows", lambda self, seed, *rest: rows(self, seed + 1, *rest))
    assert calibration_of(experiment).state is State.STALE


def test_a_threshold_that_a_shortcut_lowers_is_part_of_the_evidence_and_half_way_is_not(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = load(behind=frozen(load()))
    levels = Tally.levels

    def with_shortcut(nats: float, name: str) -> Callable[..., dict[str, Levels]]:
        def changed(self: Tally, row_length: int) -> dict[str, Levels]:
            found = dict(levels(self, row_length))
            return found | {name: Levels(found[name].chance, found[name].floor, {"the place alone": nats})}

        return changed

    for nats, name, state in ((0.6, "one", State.STALE), (1.3, "few", State.CALIBRATED), (9.0, "many", State.STALE)):
        monkeypatch.setattr(Tally, "levels", with_shortcut(nats, name))
        assert calibration_of(experiment).state is state, name
    monkeypatch.setattr(Tally, "levels", with_shortcut(1.5, "one"))  # above half-way: nothing is lowered
    high = load(behind=frozen(load()))
    monkeypatch.setattr(Tally, "levels", with_shortcut(1.6, "one"))
    assert lowered(high) == ("many",)
    assert calibration_of(high).state is State.CALIBRATED
    assert "on one the baseline got half-way from chance to the floor" in calibration_of(high).sentence
    assert lowered(load(("train.area.many-one", "train.area"))) == ("all",)


def test_a_primary_about_a_slice_that_was_not_calibrated_is_stale_and_names_it(load: Load) -> None:
    found = calibration_of(load(("area.many-one", "area.many-few"), behind=frozen(load())))
    assert found.state is State.STALE
    assert "it says nothing of few, which the primary is about" in found.sentence


KNOBS = '[tuning]\nknobs.standard = "optimiser.matrix_learning_rate"\nknobs.xsa = "optimiser.matrix_learning_rate"\n'


def test_a_value_that_tuning_moved_makes_nothing_stale_and_any_other_change_does(load: Load) -> None:
    table = frozen(load(behind=KNOBS))
    declared = load(behind=table + KNOBS)
    moved = with_values(declared, {"standard": 0.08})
    assert moved.arm("standard").optimiser.matrix_learning_rate == 0.08
    assert evidence_of(moved) == evidence_of(declared) != evidence_of(load())
    for experiment in (declared, moved):
        found = calibration_of(experiment)
        assert found.state is State.CALIBRATED
        said = "calibrated at the declared value of optimiser.matrix_learning_rate, which tuning then chooses"
        assert found.sentence.endswith(said)
    assert "tuning" not in calibration_of(load(behind=frozen(load()))).sentence
    other = load(("[arms.standard]", "[arms.standard]\noptimiser.matrix_weight_decay = 0.02"), behind=table + KNOBS)
    assert calibration_of(other).state is State.STALE


@pytest.mark.parametrize("field", ["chance", "floor"])
def test_other_levels_move_the_threshold_and_make_a_calibration_stale(
    load: Load, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    experiment, levels = load(behind=frozen(load())), Tally.levels

    def moved(self: Tally, row_length: int) -> dict[str, Levels]:
        found = dict(levels(self, row_length))
        return found | {"many": replace(found["many"], **{field: getattr(found["many"], field) + by})}

    by = 1e-12  # the last bits of a logarithm
    monkeypatch.setattr(Tally, "levels", moved)
    assert calibration_of(experiment).state is State.CALIBRATED
    by = 1e-3
    assert calibration_of(experiment).state is State.STALE


def test_another_floor_of_single_targets_makes_a_calibration_stale(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment, rows = load(behind=frozen(load())), Tally.rows

    def raised(self: Tally, *numbers: Any) -> Rows:
        found = rows(self, *numbers)
        return replace(found, floor_nats=found.floor_nats + 1e-3 * found.asked)

    monkeypatch.setattr(Tally, "rows", raised)
    assert calibration_of(experiment).state is State.STALE


SECOND = "[scales.other]\nlayers = 1\nwidth = 48\nmlp_width = 48\nbudget_tokens = 9_000\n"


def test_each_scale_of_a_file_can_hold_a_calibration_of_its_own(load: Load) -> None:
    two = ("[arms.standard]", f"{SECOND}[arms.standard]")
    tables = [
        frozen(load(two, scale=name), many=many).replace("[calibration]", f"[scales.{name}.calibration]")
        for name, many in (("tiny", "[0.5, 0.6, 0.7]"), ("other", "[0.1, 0.1, 0.1]"))
    ]
    for scale, state in (("tiny", State.CALIBRATED), ("other", State.TOO_EASY)):
        both = load(two, behind="".join(tables), scale=scale)
        assert calibration_of(both).state is state
        one = load(two, scale=scale)
        assert spec.declared(both, scale, "standard") == spec.declared(one, scale, "standard")
    alone = load(two, behind=tables[0], scale="other")
    assert calibration_of(alone).state is State.MISSING
    above = load(two, behind=frozen(load(two, scale="other")) + tables[0], scale="other")
    assert calibration_of(above).state is State.CALIBRATED


def test_a_scales_calibration_leaves_a_study_of_several_scales_one_study(load: Load) -> None:
    named = ("[arms.standard]", f"{SECOND}[arms.standard]"), ("metric =", 'scale = "other"\nmetric =')
    table = frozen(load(*named)).replace("[calibration]", "[scales.other.calibration]")
    whole = load(*named, behind=table)
    assert (whole.study, calibration_of(whole).state) == ("small", State.CALIBRATED)
    assert calibration_experiment(whole, 1).calibration is None


@pytest.mark.parametrize("where", ["calibration", "scales.tiny.calibration"])
def test_a_calibrated_slice_that_the_task_has_not_is_refused(load: Load, where: str) -> None:
    table = f'[{where}]\nseeds = 1\nslices = {{ man = [0.5] }}\nevidence = "0123456789abcdef"\n'
    with pytest.raises(
        ExperimentFileError, match=r"calibration\.slices\.man: the task 'tally' has no such slice"
    ) as caught:
        load(behind=table)
    assert "'many'" in caught.value.remedy
    text = ('task = "tally", symbols = 2, classes = 4', 'path = "corpus"'), ("train.area.many-one", "test.nll")
    with pytest.raises(ExperimentFileError, match="text has no slices"):
        load(*text, behind=table)


def test_a_negative_control_says_why_instead_and_text_has_nothing_to_calibrate(load: Load) -> None:
    found = calibration_of(load(behind='[calibration]\nnot_applicable = "A leak detector."\n'))
    assert found.state is State.NOT_APPLICABLE
    assert found.sentence == "not calibrated, as the file declares: A leak detector"
    on_text = load(('task = "tally", symbols = 2, classes = 4', 'path = "corpus"'), ("train.area.many-one", "test.nll"))
    assert (calibration_of(on_text).state, calibration_of(on_text).sentence) == (State.NOT_APPLICABLE, "")


def test_no_cell_and_no_rule_depends_on_the_table(load: Load) -> None:
    without = load()
    for with_table in (load(behind=frozen(without)), load(behind='[calibration]\nnot_applicable = "No."\n')):
        assert with_table.calibration is not None
        assert spec.rule_digest(with_table) == spec.rule_digest(without)
        for arm in without.arms:
            assert spec.declared(with_table, "tiny", arm) == spec.declared(without, "tiny", arm)
        one, other = (cells(of, resolve_arms(of), "corpus") for of in (without, with_table))
        assert [cell.digest for cell in one] == [cell.digest for cell in other]


def test_the_calibration_study_holds_the_baseline_alone_and_reaches_a_worker_as_it_is(load: Load) -> None:
    beside = "milestones_tokens = [8_000]\nbudgets_tokens = [6_000]\n"
    noise = "[noise]\nrepeats = 2\ntwins = 1\nother_seeds = 1\n[robustness]\nrate_factors = [0.5]\n"
    experiment = load(("[arms.standard]", f"{beside}[arms.standard]"), behind=noise + frozen(load()))
    alone = calibration_experiment(experiment, 4)
    assert alone.study == f"small{CALIBRATION}"
    assert alone.cell_keys() == [("tiny", "standard", seed, "") for seed in range(4)]
    assert Experiment.model_validate_json(alone.model_dump_json(exclude_unset=True)) == alone
    (cell,) = [c for c in cells(experiment, resolve_arms(experiment), "corpus") if c.key == ("tiny", "standard", 0, "")]
    (ours, *_) = cells(alone, resolve_arms(alone), "corpus")
    unlike = {key for key in cell.resolved if cell.resolved[key] != ours.resolved[key]}
    assert unlike == {"study", "evaluation", "milestones_tokens"}


def test_calibration_seeds_are_never_the_verdicts_whatever_their_numbers(load: Load) -> None:
    experiment = load()
    alone = calibration_experiment(experiment, 1)
    tokens = [
        batches_of(task_corpus(of.base), 16, 32, study=of.study, scale="tiny", seed=0).batch(0).tokens
        for of in (experiment, alone, experiment)
    ]
    assert not np.array_equal(tokens[0], tokens[1])
    np.testing.assert_array_equal(tokens[0], tokens[2])


def test_a_baseline_that_starts_from_another_arm_brings_it_along(load: Load) -> None:
    arms = (
        '[arms.first]\nrouting = { name = "role-decoupled", blocks = 1 }\n[arms.standard]\n'
        'routing = { name = "role-decoupled", blocks = 1, v_route = "frozen", donor = "first" }\n'
    )
    alone = calibration_experiment(load(("[arms.standard]\n", arms)), 1)
    assert tuple(alone.arms) == ("first", "standard")


def test_of_a_file_with_two_scales_the_primarys_is_calibrated(load: Load) -> None:
    second = "[scales.other]\nlayers = 1\nwidth = 48\nmlp_width = 48\nbudget_tokens = 9_000\n"
    two = ("[arms.standard]", f"{second}[arms.standard]")
    with pytest.raises(ExperimentFileError, match="say which one with --scale"):
        load(two)
    restricted = load(two, scale="other")
    alone = calibration_experiment(restricted, 1)
    assert (alone.study, list(alone.scales)) == (f"small@other{CALIBRATION}", ["other"])
    assert evidence_of(restricted) != evidence_of(load(two, scale="tiny"))
    assert evidence_of(load(two, scale="tiny")) == evidence_of(load())
    whole = load(two, ("metric =", 'scale = "other"\nmetric ='))
    assert baseline_of(whole) == ("other", "standard")
    assert calibration_experiment(whole, 1).cell_keys() == [("other", "standard", 0, "")]


def test_what_cannot_be_calibrated_is_refused_with_the_reason(load: Load) -> None:
    text = load(('task = "tally", symbols = 2, classes = 4', 'path = "corpus"'), ("train.area.many-one", "test.nll"))
    with pytest.raises(ExperimentFileError, match="calibration belongs to a synthetic task, and this study reads text"):
        calibration_experiment(text, 3)
    static = load(('task = "tally", symbols = 2, classes = 4', 'task = "static"'), ("area.many-one", "area"))
    with pytest.raises(ExperimentFileError, match="'static' has no way from chance to the floor on 'every'") as caught:
        calibration_experiment(static, 3)
    assert "not_applicable" in caught.value.remedy
    declared = load(behind='[calibration]\nnot_applicable = "A leak detector"\n')
    with pytest.raises(ExperimentFileError, match="the file says that there is nothing to calibrate"):
        calibration_experiment(declared, 3)


@pytest.mark.parametrize(
    ("table", "what"),
    [
        ("seeds = 3\n", "give seeds, slices and evidence as `paribus calibrate` prints them, or not_applicable"),
        (
            'seeds = 1\nslices = { all = [0.5] }\nevidence = "0123456789abcdef"\nnot_applicable = "Why"\n',
            "give either not_applicable or what was found, not both",
        ),
        (
            'seeds = 1\nslices = { all = [0.5, 0.6] }\nevidence = "0123456789abcdef"\n',
            "slices.all holds 2 shares of 1 seeds",
        ),
        ('seeds = 1\nslices = { all = [0.0] }\nevidence = "0123456789abcdef"\n', "slices.all.0: not a valid value"),
        ('seeds = 1\nslices = { all = [1.1] }\nevidence = "0123456789abcdef"\n', "slices.all.0: not a valid value"),
        ('seeds = 1\nslices = {}\nevidence = "0123456789abcdef"\n', "slices: not a valid value"),
        ('seeds = 1\nslices = { all = [0.5] }\nevidence = "no digest"\n', "evidence: not a valid value"),
        ('not_applicable = ""\n', "not_applicable: not a valid value"),
        ('not_aplicable = "Why"\n', "calibration.not_aplicable: unknown key"),
    ],
)
def test_a_table_that_cannot_be_one_is_refused_and_its_key_is_named(load: Load, table: str, what: str) -> None:
    with pytest.raises(ExperimentFileError) as caught:
        load(behind=f"[calibration]\n{table}")
    assert what in caught.value.what


def test_no_file_may_be_called_like_a_calibration(load: Load) -> None:
    with pytest.raises(ExperimentFileError, match=r"study: '\+calibration' joins a study to the study that calibrates"):
        load(name=f"small{CALIBRATION}.toml")


def test_a_file_without_a_contrast_still_lacks_its_primary(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(FILE.partition("[contrasts.xsa]")[0] + "[contrasts]\n[seeds]\ncount = 3\n")
    with pytest.raises(ExperimentFileError, match="contrasts: exactly one must be primary"):
        loading.load(tmp_path / "small.toml")
