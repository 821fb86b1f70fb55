"""What `adopt` concludes: by paribus' own rule, with what is blocked still standing in the family."""

import math

import pytest
import scipy.stats

from paribus.adopting.conclude import adopt
from paribus.adopting.findings import Severity
from paribus.adopting.noise import read_noise
from paribus.errors import ExperimentFileError, ParibusError
from paribus.stats.paired import t_interval
from paribus.stats.power import rule_power

NOISE = {"noise_sd": 0.01, "noise_source": "somebody's ten runs", "noise_runs": 10}
SECOND = {"other": {"treatment": "third", "baseline": "plain", "metric": "loss"}}


def test_the_verdict_is_that_of_the_rule(foreign) -> None:
    (outcome,) = foreign.adopt(foreign.study()).outcomes
    verdict = outcome.verdict
    assert verdict is not None
    assert verdict.mean == pytest.approx(-0.003)
    differences = outcome.differences.differences
    assert verdict.interval == pytest.approx(t_interval(differences))
    assert verdict.p_t == pytest.approx(scipy.stats.ttest_1samp(differences, 0.0)[1])


@pytest.mark.parametrize("seeds", [1, 2])
def test_one_or_two_pairs_are_exploratory_whatever_the_numbers(foreign, seeds: int) -> None:
    (outcome,) = foreign.adopt(foreign.study(seeds)).outcomes
    assert outcome.word == "exploratory"
    assert outcome.verdict is not None
    assert outcome.verdict.p_t is None


def test_higher_is_better_turns_the_word(foreign) -> None:
    (outcome,) = foreign.adopt(foreign.study(), {"metrics": {"loss": {"lower_is_better": False}}}).outcomes
    assert outcome.word == "worse by at least the smallest effect"


def test_planned_seeds_that_are_not_there_yet_show_no_number(foreign) -> None:
    changes = {"planned_seeds": 5, "metrics": {"loss": NOISE}}
    (outcome,) = foreign.adopt(foreign.study(3), changes).outcomes
    assert outcome.word == "waiting for the planned seeds"
    assert outcome.noise is None
    assert outcome.verdict is not None
    assert outcome.verdict.mean is None
    (outcome,) = foreign.adopt(foreign.study(5), changes).outcomes
    assert outcome.noise is not None


def test_a_primary_that_cannot_be_formed_leaves_the_secondary_untested(foreign) -> None:
    records = [*foreign.study(), *({**r, "arm": "third"} for r in foreign.study() if r["arm"] == "trick")]
    tested = foreign.adopt(records, {"contrasts": SECOND})
    assert [o.word for o in tested.outcomes] == ["better by at least the smallest effect"] * 2
    records[1]["lr"] = 1.0
    blocked = foreign.adopt(records, {"contrasts": SECOND})
    assert blocked.outcomes[0].verdict is None
    assert blocked.outcomes[1].word.startswith("not tested")
    assert blocked.outcomes[1].verdict is not None
    assert blocked.outcomes[1].verdict.p_t is None


def test_a_blocked_secondary_makes_no_other_one_easier_to_win(foreign) -> None:
    """Holm tests the one that is left at alpha/2, as if the broken one were there with p = 1."""
    more = {**SECOND, "broken": {"treatment": "fourth", "baseline": "plain", "metric": "loss"}}
    arms = [r for r in foreign.study() if r["arm"] == "trick"]
    records = [
        *foreign.study(),
        *({**r, "arm": "third"} for r in arms),
        *({**r, "arm": "fourth", "lr": 1.0} for r in arms),
    ]
    adopted = foreign.adopt(records, {"contrasts": more})
    words = {o.compared.name: o.word for o in adopted.outcomes}
    assert words["broken"] == Severity.NOTHING.value
    (other,) = [o.verdict for o in adopted.outcomes if o.compared.name == "other"]
    assert other is not None
    assert other.p_holm == pytest.approx(2 * (other.p_t or 0))
    assert other.interval_confidence == pytest.approx(0.975)


def test_one_pair_within_public_noise_shows_nothing_and_beyond_it_stays_exploratory(foreign) -> None:
    (within,) = foreign.adopt(foreign.study(1), {"metrics": {"loss": NOISE}}).outcomes
    assert within.verdict is None
    assert within.noise is not None
    assert within.noise.in_sd == pytest.approx(0.0031 / (math.sqrt(2) * 0.01))
    assert "chance alone shows as much" in within.reasons[-1]
    (beyond,) = foreign.adopt(foreign.study(1), {"metrics": {"loss": NOISE | {"noise_sd": 0.0001}}}).outcomes
    assert beyond.word == "exploratory"
    assert beyond.noise is not None
    assert not beyond.noise.within_noise


def test_pairs_enough_for_an_interval_are_not_overruled_by_a_public_figure(foreign) -> None:
    (outcome,) = foreign.adopt(foreign.study(), {"metrics": {"loss": NOISE | {"noise_sd": 1.0}}}).outcomes
    assert outcome.word == "better by at least the smallest effect"
    assert outcome.noise is not None
    assert outcome.noise.within_noise


def test_the_line_between_noise_and_not_is_the_normal_quantile(foreign) -> None:
    metric = foreign.mapping({"metrics": {"loss": NOISE}}).metrics["loss"]
    line = float(scipy.stats.norm.ppf(0.975)) * math.sqrt(2) * 0.01
    for pairs in (1, 2):
        for share, within in ((0.999, True), (1.001, False)):
            reading = read_noise([share * line / math.sqrt(pairs)] * pairs, metric)
            assert reading is not None
            assert reading.within_noise is within


def test_the_pairs_needed_are_the_fewest_that_reach_the_power(foreign) -> None:
    metric = foreign.mapping({"metrics": {"loss": NOISE}}).metrics["loss"]
    sd = math.sqrt(2) * 0.01
    reading = read_noise([0.008], metric)
    assert reading is not None
    for needed, effect, margin in (
        (reading.pairs_needed_observed, 0.008 / sd, 0.0),
        (reading.pairs_needed_design, 0.002 / sd, 0.001 / sd),
    ):
        assert needed is not None
        assert rule_power(needed, effect, margin) >= 0.8 > rule_power(needed - 1, effect, margin)


def test_a_difference_of_zero_needs_no_number_of_pairs(foreign) -> None:
    reading = read_noise([0.0], foreign.mapping({"metrics": {"loss": NOISE}}).metrics["loss"])
    assert reading is not None
    assert reading.pairs_needed_observed is None
    assert "no practical number of pairs would tell" in reading.sentence
    assert read_noise([], foreign.mapping({"metrics": {"loss": NOISE}}).metrics["loss"]) is None


def test_a_primary_at_several_scales_has_to_be_chosen(foreign) -> None:
    records = [*foreign.study(1), *({**r, "depth": "d24"} for r in foreign.study(1))]
    with pytest.raises(ExperimentFileError, match="several scales") as caught:
        foreign.adopt(records)
    assert 'primary_scale = "d12" or "d24"' in caught.value.expected
    adopted = foreign.adopt(records, {"contrasts": {"main": {"primary_scale": "d24"}}})
    assert [(o.compared.name, o.compared.primary) for o in adopted.outcomes] == [
        ("main@d24", True),
        ("main@d12", False),
    ]


def test_a_scale_that_no_run_has_names_the_nearest(foreign) -> None:
    with pytest.raises(ExperimentFileError, match="no run has the scale 'd21'") as caught:
        foreign.adopt(foreign.study(1), {"contrasts": {"main": {"scales": ["d21"]}}})
    assert "did you mean 'd12'?" in str(caught.value)


def test_a_folder_without_a_run_shows_the_fields_it_has(foreign) -> None:
    with pytest.raises(ParibusError, match="no run could be read") as caught:
        foreign.adopt(foreign.study(1), {"columns": {"arm": "arn"}})
    assert "no arm at 'arn'" in caught.value.received
    assert "did you mean 'arm'?" in caught.value.remedy
    assert "val_bpb" in caught.value.remedy


def test_seeds_of_64_bits_do_not_collide(foreign) -> None:
    """2^53 and 2^53 + 1 are one float64."""
    records = [foreign.record(arm, 2**53 + seed, 0.8 + seed) for seed in (0, 1) for arm in ("plain", "trick")]
    (outcome,) = foreign.adopt(records).outcomes
    assert outcome.differences.seeds == (2**53, 2**53 + 1)


def test_constants_and_patterns_are_read(foreign) -> None:
    records = foreign.study(2)
    for r in records:
        r["name"] = f"{r['arm']}-s{r.pop('seed')}"
        del r["host"]
    changes = {"columns": {"seed": {"path": "name", "pattern": r"-s(\d+)"}, "host": {"value": "the one box"}}}
    (outcome,) = foreign.adopt(records, changes | {"equal": {"ignore": ["name"]}}).outcomes
    assert outcome.differences.seeds == (0, 1)
    assert outcome.time_ratio == pytest.approx(1.0)


def test_the_mapping_lies_in_the_folder_or_is_named(foreign) -> None:
    foreign.adopt(foreign.study())
    (foreign.folder / "mapping.toml").write_text(foreign.mapping_text, encoding="utf-8")
    assert adopt(foreign.folder).outcomes[0].word == "better by at least the smallest effect"
    (foreign.folder / "mapping.toml").rename(foreign.folder / "elsewhere.toml")
    assert adopt(foreign.folder, foreign.folder / "elsewhere.toml").name == foreign.folder.name
    with pytest.raises(ExperimentFileError):
        adopt(foreign.folder)
