"""The shipped sets of tasks: what every file of them must declare."""

import math
import re
from pathlib import Path

import pytest

from paribus import mechanisms
from paribus.data.tasks import tasks
from paribus.errors import ExperimentFileError
from paribus.experiment.metrics import parse
from paribus.experiment.pairs import check_pairs
from paribus.experiment.plan import resolve_arms
from paribus.experiment.spec import SEAM_FIELDS
from paribus.mechanisms.contract import Seam
from paribus.tunnel import suites
from paribus.tunnel.suites import Suite, load_suite

NAMES = ("smoke", "full")
CONTROLS = {"static"}
"""tasks that belong to no set: `static` finds leaks, and none of its arms is below chance"""
REASON = r"The claim of the task is about [^.]*never learnt in [\d,]+ updates \(docs/results/LOG\.md\)"


@pytest.fixture(scope="module", params=NAMES)
def suite(request: pytest.FixtureRequest) -> Suite:
    return load_suite(request.param)


def test_the_smoke_set_has_four_tasks_and_the_full_one_all_of_them():
    assert [study.task for study in load_suite("smoke").studies] == ["cross", "ledger", "tally", "twin"]
    assert {study.task for study in load_suite("full").studies} == set(tasks()) - CONTROLS


def test_every_file_reads_the_task_of_its_name_and_has_a_study_of_its_own(suite: Suite):
    for study in suite.studies:
        assert study.experiment.base.task is not None
        assert study.experiment.base.task.name == study.task == next(iter(study.experiment.scales))
        assert study.experiment.study == f"tunnel-{suite.name}-{study.task}"


def test_no_study_of_one_set_shares_random_streams_with_one_of_the_other():
    names = [study.experiment.study for name in NAMES for study in load_suite(name).studies]
    assert len(names) == len(set(names)), "a direction check on the verdict's seeds would be a look"


def reason_for_another_slice(text: str) -> str:
    """What the comments of a suite's file say of a claim that is not about the task's primary slice: what the task's
    claim is about, and where it is written down that the baseline does not learn it. Empty where they do not."""
    comments = " ".join(line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#"))
    found = re.search(REASON, comments)
    return found.group() if found else ""


def test_every_contrast_declares_a_sign_on_the_tasks_primary_slice_or_the_file_says_why_not(suite: Suite):
    for study in suite.studies:
        task = study.experiment.base.task
        assert task is not None
        assert sum(contrast.primary for contrast in study.experiment.contrasts.values()) == 1
        for contrast in study.experiment.contrasts.values():
            metric = parse(contrast.metric)
            assert contrast.expected in ("+", "-", "0")
            assert (metric.split, metric.quantity) == ("train", "area")
            if ("-".join(metric.slices) or "all") != task.primary:
                assert reason_for_another_slice(study.file.read_text(encoding="utf-8")), study.file
                calibrated = study.experiment.calibration
                assert calibrated is not None
                assert set(calibrated.slices or ()) == set(metric.slices), "the baseline learns this one"
            assert set(metric.slices) <= set(task.levels(study.experiment.base.context_length))


def test_no_other_comment_is_a_reason_for_another_slice():
    said = (suites.SUITES / "full" / "mano.toml").read_text(encoding="utf-8")
    assert reason_for_another_slice(said).startswith("The claim of the task is about four operators")
    for lacking in ("The claim of the task is about", "never learnt", "docs/results/LOG.md"):
        assert not reason_for_another_slice(said.replace(lacking, "..."))
    assert not reason_for_another_slice(said.replace("\n# ", "\n").removeprefix("# ")), "a comment, not a key"


def test_the_smoke_set_has_one_contrast_a_task_and_the_full_one_three():
    assert {len(study.experiment.contrasts) for study in load_suite("smoke").studies} == {1}
    assert {len(study.experiment.contrasts) for study in load_suite("full").studies} == {3}


def test_seeds_are_five_for_a_direction_and_enough_for_an_exact_sign_flip_in_the_full_family():
    assert {study.experiment.seeds.count for study in load_suite("smoke").studies} == {5}
    full = load_suite("full").studies
    rows = sum(len(study.experiment.contrasts) for study in full)
    for study in full:
        # Rules of evidence, section 8: S >= 1 + log2(20 m).
        assert study.experiment.seeds.count >= 1 + math.log2(20 * rows)


def test_the_full_set_searches_a_rate_of_every_arm_and_checks_the_sign_at_other_rates():
    for study in load_suite("full").studies:
        experiment = study.experiment
        assert experiment.tuning is not None
        assert set(experiment.tuning.knobs) == set(experiment.arms)
        depth_reads = {arm for arm in experiment.arms if experiment.arm(arm).routing is not None}
        searched = {arm for arm, knob in experiment.tuning.knobs.items() if "depth_read" in knob}
        assert searched == depth_reads != set()
        assert experiment.robustness.rate_factors == (0.5, 2.0)


def test_arms_differ_in_mechanisms_that_exist_and_fit_the_size(suite: Suite):
    for study in suite.studies:
        arms = resolve_arms(study.experiment)
        check_pairs(study.experiment, arms)
        for name, difference in study.experiment.arms.items():
            assert set(difference) <= set(SEAM_FIELDS), name
            for seam, table in difference.items():
                assert table["name"] in mechanisms.mechanisms(Seam(seam))
        for seam in SEAM_FIELDS:
            assert getattr(study.experiment.base, seam) is None, "the base is the plain arm of a mechanism of one's own"


def test_depth_blocks_are_single_layers(suite: Suite):
    for study in suite.studies:
        (size,) = study.experiment.scales.values()
        tables = [arm["routing"] for arm in study.experiment.arms.values() if "routing" in arm]
        assert {table["blocks"] for table in tables} <= {size.layers}


def test_an_update_reads_about_two_thousand_tokens_at_the_tunnels_width(suite: Suite):
    for study in suite.studies:
        (size,) = study.experiment.scales.values()
        assert (size.width, size.mlp_width, study.experiment.base.model.head_width) == (64, 160, 32)
        assert abs(study.experiment.base.batch_tokens - 2048) < study.experiment.base.context_length
        assert size.budget_tokens % study.experiment.base.batch_tokens == 0


def test_an_unknown_set_is_refused_with_the_known_ones():
    with pytest.raises(ExperimentFileError) as caught:
        load_suite("smok")
    assert (caught.value.expected, caught.value.received) == ("full, smoke", "'smok'")
    assert caught.value.remedy == "did you mean 'smoke'?"


def test_a_file_that_reads_text_is_refused_by_name(micro: Path):
    del micro
    file = suites.SUITES / "smoke" / "twin.toml"
    text = file.read_text(encoding="utf-8").replace('{ task = "twin", ids = 4, colours = 2 }', "{}")
    file.write_text(text.replace("train.area.same-different", "test.nll"), encoding="utf-8")
    with pytest.raises(ExperimentFileError, match="holds synthetic tasks only"):
        load_suite("smoke")
