"""How controlled harnesses have failed in public without a word, each by name: `adopt` says every one of them."""

from typing import Any

import pytest

from paribus.adopting.findings import Severity


def test_a_folder_that_nothing_is_wrong_with_gets_its_verdict(foreign) -> None:
    adopted = foreign.adopt(foreign.study())
    (outcome,) = adopted.outcomes
    assert outcome.word == "better by at least the smallest effect"
    assert outcome.reasons == ()
    assert foreign.whats(adopted) == {"rule written afterwards", "pairing not proven"}
    assert outcome.time_ratio == pytest.approx(1.0)


def test_a_baseline_that_was_deleted_leaves_no_difference(foreign) -> None:
    adopted = foreign.adopt([r for r in foreign.study() if r["arm"] == "trick"])
    (outcome,) = adopted.outcomes
    assert (outcome.word, outcome.verdict) == (Severity.NOTHING.value, None)
    assert foreign.whats(adopted, "main") == {"missing baseline"}
    assert "No run of the baseline 'plain' at d12, 5 runs of the other arm" in outcome.reasons[0]


def test_a_baseline_of_another_recipe_is_no_baseline(foreign) -> None:
    """Results of tricks were kept when the recipe changed, those of the baseline were not."""
    records = [{**r, "recipe": "new" if r["arm"] == "trick" else "old"} for r in foreign.study()]
    changes = {"columns": {"recipe": "recipe"}, "contrasts": {"main": {"primary_scale": "d12, new"}}}
    adopted = foreign.adopt(records, changes)
    assert [outcome.compared.name for outcome in adopted.outcomes] == ["main@d12, new", "main@d12, old"]
    assert [outcome.word for outcome in adopted.outcomes] == [Severity.NOTHING.value] * 2
    assert foreign.whats(adopted, "main@d12, new") == {"missing baseline"}
    assert foreign.whats(adopted, "main@d12, old") == {"missing treatment"}


def test_two_recipes_under_one_name_and_seed_are_not_an_a_a(foreign) -> None:
    records = [*foreign.study(), foreign.record("plain", 2, 0.86, lr=0.01)]
    adopted = foreign.adopt(records)
    assert adopted.outcomes[0].verdict is None
    assert "two recipes under one name" in foreign.whats(adopted, "main")
    assert "lr = 0.02 and 0.01" in foreign.sentence(adopted, "two recipes under one name")


def test_a_key_that_the_runner_dropped_is_found_where_the_manifest_is_declared(foreign) -> None:
    records = [foreign.record(r["arm"], r["seed"], r["val_bpb"], bias_init=0.0) for r in foreign.study()]
    adopted = foreign.adopt(records, {"declared": {"trick": {"bias_init": 10.0}}})
    assert adopted.outcomes[0].verdict is None
    assert foreign.whats(adopted, "main") == {"silent key"}
    assert "declared with bias_init = 10 and ran with 0" in foreign.sentence(adopted, "silent key")
    kept = foreign.adopt(records, {"declared": {"trick": {"bias_init": 0}}})
    assert kept.outcomes[0].verdict is not None


def test_a_declared_key_that_no_record_holds_is_said(foreign) -> None:
    adopted = foreign.adopt(foreign.study(), {"declared": {"trick": {"bias": 10.0}}})
    assert foreign.whats(adopted, "main") == {"setting not recorded"}
    assert "key without a column" in foreign.whats(adopted)


def test_27_percent_more_parameters_are_said_beside_the_verdict(foreign) -> None:
    records = [
        foreign.record(
            r["arm"], r["seed"], r["val_bpb"], model={"params": 22_300_000 if r["arm"] == "trick" else 17_600_000}
        )
        for r in foreign.study()
    ]
    adopted = foreign.adopt(records)
    assert foreign.whats(adopted, "main") == {"unequal parameters"}
    assert "22,300,000 parameters against 17,600,000 (+26.7 %)" in foreign.sentence(adopted, "unequal parameters")
    assert adopted.outcomes[0].parameters == (22_300_000, 17_600_000)


def test_arms_on_different_machines_are_confounded_and_their_times_are_not_compared(foreign) -> None:
    records = [
        foreign.record(r["arm"], r["seed"], r["val_bpb"], host=f"box of {r['arm']}", train={"wall": wall})
        for r, wall in zip(foreign.study(), [1428.0, 1614.0] * 5, strict=True)
    ]
    adopted = foreign.adopt(records)
    assert foreign.whats(adopted, "main") == {"hosts confounded with arms"}
    assert adopted.outcomes[0].time_ratio is None
    assert adopted.outcomes[0].verdict is not None, "a loss is not read off a clock"


def test_only_pairs_on_one_host_are_timed(foreign) -> None:
    records = foreign.study()
    for r in records:
        r["train"] = {"tokens": 10_000, "wall": 120.0 if r["arm"] == "trick" else 100.0}
    records[0]["host"] = "another"
    records[0]["train"]["wall"] = 1.0
    adopted = foreign.adopt(records)
    assert foreign.whats(adopted, "main") == {"pairs across hosts"}
    assert adopted.outcomes[0].time_ratio == pytest.approx(1.2)


def test_times_and_sizes_that_are_none_are_not_divided_by(foreign) -> None:
    records = foreign.study(2)
    for seconds, r in zip((0.0, 100.0, 1e308, 5e-324), records, strict=True):
        r["train"] = {"tokens": 10_000, "wall": seconds}
        r["model"] = {"params": 0 if r["arm"] == "plain" else 5}
    adopted = foreign.adopt(records)
    assert adopted.outcomes[0].time_ratio is None
    assert foreign.sentence(adopted, "unequal parameters").startswith("trick has 5 parameters against 0: size")


def test_times_without_a_host_are_not_compared(foreign) -> None:
    adopted = foreign.adopt([{k: v for k, v in r.items() if k != "host"} for r in foreign.study()])
    assert "host not recorded" in foreign.whats(adopted, "main")
    assert adopted.outcomes[0].time_ratio is None


def test_a_name_that_promises_ten_minutes_and_took_twenty_is_drift(foreign) -> None:
    records = [{**r, "name": "fixed_time_10min"} for r in foreign.study()]
    for r in records:
        r["train"] = {"tokens": 10_000, "wall": 600.0}
    records[3]["train"]["wall"] = 1200.0
    records[4]["name"] = "no promise"
    label = {"column": {"path": "name", "pattern": r"(\d+)min"}, "measured": "train.wall", "factor": 60.0}
    changes: dict[str, Any] = {"labels": {"budget": label}, "equal": {"ignore": ["name"]}}
    adopted = foreign.adopt(records, changes)
    assert "'fixed_time_10min' promises 600, measured at 'train.wall' is 1200" in foreign.sentence(
        adopted, "label drift"
    )
    (drift,) = [finding for finding in adopted.findings if finding.what == "label drift"]
    assert drift.rows == ("run-03.json",)
    assert "1 record without both numbers" in foreign.sentence(adopted, "label not checked")


def test_an_unequal_budget_blocks_unless_the_contrast_is_about_equal_time(foreign) -> None:
    records = foreign.study()
    records[1]["train"] = {"tokens": 8_280, "wall": 100.0}
    adopted = foreign.adopt(records)
    assert adopted.outcomes[0].verdict is None
    assert foreign.whats(adopted, "main") == {"unequal budget"}
    assert "tokens = 8280 against 10000" in foreign.sentence(adopted, "unequal budget")
    at_equal_time = foreign.adopt(records, {"contrasts": {"main": {"also_differs": ["tokens"]}}})
    assert at_equal_time.outcomes[0].verdict is not None


def test_a_budget_may_differ_by_the_rounding_to_whole_batches(foreign) -> None:
    records = foreign.study()
    records[1]["train"]["tokens"] = 10_009
    assert foreign.adopt(records).outcomes[0].verdict is not None
    records[1]["train"]["tokens"] = 10_011
    assert foreign.adopt(records).outcomes[0].verdict is None


def test_an_unequal_learning_rate_is_named_with_its_seeds_and_blocks(foreign) -> None:
    records = foreign.study()
    records[3]["lr"] = 0.04
    records[7]["lr"] = 0.04
    adopted = foreign.adopt(records)
    assert adopted.outcomes[0].verdict is None
    assert foreign.sentence(adopted, "unequal setting") == "lr = 0.04 against 0.02 (seed 1, 3)."
    allowed = foreign.adopt(records, {"contrasts": {"main": {"also_differs": ["l*"]}}})
    assert allowed.outcomes[0].verdict is not None


def test_other_fields_that_differ_are_listed_unless_they_are_declared_or_no_settings(foreign) -> None:
    records = [
        {**r, "gpus": 4 if r["arm"] == "trick" else 8, "date": r["arm"], "use_trick": r["arm"]} for r in foreign.study()
    ]
    changes = {"equal": {"ignore": ["da*"]}, "contrasts": {"main": {"also_differs": ["use_*"]}}}
    adopted = foreign.adopt(records, changes)
    assert foreign.whats(adopted, "main") == {"other fields differ"}
    assert "gpus = 4 against 8 (seed 0, 1, 2, 3, 4)" in foreign.sentence(adopted, "other fields differ")
    assert "date" not in foreign.sentence(adopted, "other fields differ")
    assert "use_trick" not in foreign.sentence(adopted, "other fields differ")


def test_a_field_that_only_one_arm_records_is_listed(foreign) -> None:
    records = [{**r, **({"wd": 0.1} if r["arm"] == "trick" else {})} for r in foreign.study(1)]
    adopted = foreign.adopt(records)
    assert "wd = 0.1 against not recorded" in foreign.sentence(adopted, "other fields differ")


def test_one_arm_run_twice_by_accident_is_its_own_noise_estimate(foreign) -> None:
    records = [*foreign.study(1), foreign.record("trick", 0, 0.8470, host="other")]
    adopted = foreign.adopt(records)
    (repeat,) = adopted.repeats
    assert repeat.differences == (pytest.approx(0.8470 - 0.8469),)
    assert repeat.sd_of_difference == pytest.approx(1e-4)
    assert "was run 2 times with one seed" in foreign.sentence(adopted, "accidental A/A")
    # The first run in file order is the pair, whatever the other one says.
    assert adopted.outcomes[0].differences.differences == (pytest.approx(-0.0031),)


def test_a_repeat_that_was_not_set_alike_is_a_doubtful_a_a(foreign) -> None:
    """In public one arm ran twice with one seed, on budgets that a clock had set."""
    records = [*foreign.study(1), foreign.record("plain", 0, 0.8501, wd=0.1, train={"tokens": 9_000})]
    adopted = foreign.adopt(records, {"contrasts": {"main": {"also_differs": ["tokens"]}}})
    assert adopted.repeats[0].differing == ("wd", "tokens")
    assert "do not matter: wd, tokens" in foreign.sentence(adopted, "accidental A/A")


def test_two_runs_with_one_value_are_no_noise_estimate(foreign) -> None:
    records = [*foreign.study(1), foreign.study(1)[1]]
    adopted = foreign.adopt(records)
    assert adopted.repeats[0].sd_of_difference is None
    assert "identical to the last digit" in foreign.sentence(adopted, "accidental A/A")


def test_runs_that_record_no_seed_make_a_pair_only_where_there_is_one_of_each(foreign) -> None:
    single = [{k: v for k, v in r.items() if k != "seed"} for r in foreign.study(1)]
    adopted = foreign.adopt(single)
    assert adopted.outcomes[0].word == "exploratory"
    assert {"seed not recorded", "single seed"} <= foreign.whats(adopted, "main")
    several = [{k: v for k, v in r.items() if k != "seed"} for r in foreign.study(3)]
    adopted = foreign.adopt(several)
    assert adopted.outcomes[0].verdict is None
    assert "runs without a seed" in foreign.whats(adopted, "main")
    assert adopted.repeats == (), "runs of unknown seeds are no repeats of one another"


def test_different_seeds_make_no_pair(foreign) -> None:
    records = [foreign.record("plain", 1, 0.85), foreign.record("trick", 2, 0.84)]
    adopted = foreign.adopt(records)
    assert adopted.outcomes[0].verdict is None
    assert foreign.sentence(adopted, "no pair") == "No seed has a run of both arms (plain: 1; trick: 2)."


def test_a_seed_without_a_partner_is_left_out_by_name(foreign) -> None:
    adopted = foreign.adopt(foreign.study()[:-1])
    assert "plain seed 4" in foreign.sentence(adopted, "run without a partner")
    assert adopted.outcomes[0].differences.seeds == (0, 1, 2, 3)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_not_finite_is_a_lost_pair_and_never_dropped(foreign, value: float) -> None:
    records = foreign.study()
    records[1]["val_bpb"] = value
    adopted = foreign.adopt(records)
    assert "value not finite" in foreign.whats(adopted, "main")
    assert adopted.outcomes[0].word == "withheld: divergence"
    assert adopted.outcomes[0].verdict is not None
    assert adopted.outcomes[0].verdict.treatment_diverged == 1


def test_a_metric_that_an_arm_lacks_blocks_and_one_value_that_is_missing_is_said(foreign) -> None:
    records = foreign.study()
    for r in records:
        if r["arm"] == "plain":
            del r["val_bpb"]
    adopted = foreign.adopt(records)
    assert adopted.outcomes[0].verdict is None
    assert foreign.whats(adopted, "main") == {"missing metric"}
    records = foreign.study()
    records[0]["val_bpb"] = "n/a"
    adopted = foreign.adopt(records)
    assert "1 of 5 paired runs of plain have no number" in foreign.sentence(adopted, "missing value")
    assert adopted.outcomes[0].differences.pairs == 4


def test_numbers_that_never_meet_at_a_seed_are_no_pair(foreign) -> None:
    records = foreign.study(2)
    del records[0]["val_bpb"], records[3]["val_bpb"]
    adopted = foreign.adopt(records)
    assert adopted.outcomes[0].verdict is None
    assert foreign.sentence(adopted, "missing metric") == "No seed has a number for loss in both arms."


def test_a_key_of_the_mapping_that_no_file_has_names_the_nearest(foreign) -> None:
    adopted = foreign.adopt(foreign.study(), {"columns": {"host": "hots"}, "equal": {"fields": ["lr", "warm_up"]}})
    said = [finding.sentence for finding in adopted.findings if finding.what == "key without a column"]
    assert any("columns.host" in text and "did you mean 'host'?" in text for text in said)
    assert any("equal.fields: no record has 'warm_up'" in text for text in said)


def test_records_without_an_arm_and_files_that_are_broken_are_named(foreign) -> None:
    (foreign.folder / "run-99.json").write_text("{")
    adopted = foreign.adopt([*foreign.study(), {"depth": "d12"}, foreign.record("plain", None, 0.8) | {"seed": 1.5}])
    assert [(one.source, one.reason.partition(":")[0]) for one in adopted.left] == [
        ("run-99.json", "could not be read"),
        ("run-10.json", "no arm at 'arm'"),
        ("run-11.json", "the seed at 'seed' is no whole number"),
    ]
    assert adopted.outcomes[0].verdict is not None


def test_an_arm_that_no_contrast_names_is_said(foreign) -> None:
    adopted = foreign.adopt([*foreign.study(), foreign.record("another", 0, 0.8)])
    assert "1 run of arms that no contrast names: another" in foreign.sentence(adopted, "arm in no contrast")


def test_a_metric_scored_on_different_items_is_not_compared(foreign) -> None:
    records = [{**r, "items": 500 if r["arm"] == "trick" else 1000} for r in foreign.study()]
    adopted = foreign.adopt(records, {"metrics": {"loss": {"comparable_within": ["items"]}}})
    assert adopted.outcomes[0].verdict is None
    assert foreign.whats(adopted, "main") == {"metric not comparable"}


def test_a_metric_that_is_another_quantity_at_another_scale_is_said(foreign) -> None:
    records = [{**r, "items": 500} for r in foreign.study(1)]
    records += [{**r, "items": 1000, "depth": "d24"} for r in foreign.study(1)]
    changes = {"metrics": {"loss": {"comparable_within": ["items"]}}, "contrasts": {"main": {"primary_scale": "d24"}}}
    adopted = foreign.adopt(records, changes)
    assert [outcome.word for outcome in adopted.outcomes] == ["exploratory"] * 2
    assert "d12: 500; d24: 1000" in foreign.sentence(adopted, "scales not comparable")


def test_true_is_not_one_and_a_whole_number_is_itself_however_it_was_written(foreign) -> None:
    """Python says True == 1 and 1 == 1.0; a switch that became a count is another setting, a float is not."""
    records = foreign.study(1)
    records[0] |= {"gate": True, "layers": 2}
    records[1] |= {"gate": 1, "layers": 2.0}
    said = foreign.sentence(foreign.adopt(records), "other fields differ")
    assert "gate = 1 against true" in said
    assert "layers" not in said
