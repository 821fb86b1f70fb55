"""What a preset fills in, what it leaves alone, and which files are refused."""

import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from paribus.errors import ExperimentFileError
from paribus.experiment.spec import Experiment
from paribus.model.config import NanochatConstants
from paribus.recipes.expanding import expanded
from paribus.recipes.presets import PRESETS

Load = Callable[..., Experiment]
BFLOAT16: Any = {"compute": "bfloat16", "table_storage": "bfloat16"}


def test_a_file_of_a_preset_is_the_plain_file_that_it_stands_for(load: Load):
    found = load()
    size, base = found.scales["one"], found.base
    assert (size.layers, size.width, size.mlp_width, size.budget_tokens) == (12, 768, 3072, 2520 * 524_288)
    assert (base.context_length, base.batch_tokens) == (2048, 524_288)
    assert base.model == NanochatConstants(**BFLOAT16)
    assert (base.tokenizer.vocabulary_size, base.tokenizer.pre_tokenizer) == (32_768, "nanochat")
    assert (base.corpus.name, base.corpus.packing) == ("local-docs", "best-fit")
    assert base.optimiser.matrix_update == "nanochat"
    assert base.optimiser.matrix_weight_decay == 0.28
    assert base.schedule.warmup == 40 / 2520


def test_it_reaches_a_worker_as_it_is(load: Load):
    found = load()
    assert Experiment.model_validate_json(found.model_dump_json(exclude_unset=True)) == found


def test_the_presets_differ_in_what_trains(load: Load):
    april, july = load(), load(("2026-04", "2026-07"))
    assert not april.base.optimiser.matrix_unit_norm
    assert july.base.optimiser.matrix_unit_norm
    assert july.base.optimiser.matrix_row_equilibration


def test_what_the_file_says_wins_key_by_key(load: Load):
    found = load(
        ("preset =", "model = { head_width = 64 }\noptimiser = { head_learning_rate = 0.5 }\npreset ="),
        (
            "depth = 12",
            'depth = 12\n[scales.one.base]\nschedule = { decay = 0.3 }\ntokenizer = { pre_tokenizer = "gpt2" }',
        ),
        ('"local-docs"', '"local-docs", packing = "stream"'),
    )
    assert found.base.model == NanochatConstants(head_width=64, **BFLOAT16)
    assert found.base.optimiser.head_learning_rate == 0.5
    assert found.base.optimiser.embedding_learning_rate == 0.3
    assert (found.base.schedule.decay, found.base.schedule.final) == (0.3, 0.05)
    assert (found.base.tokenizer.pre_tokenizer, found.base.tokenizer.vocabulary_size) == ("gpt2", 32_768)
    assert found.base.corpus.packing == "stream"


def test_the_scales_own_word_wins_over_that_of_the_base(load: Load):
    found = load(
        ("preset =", "batch_tokens = 262_144\npreset ="),
        ("depth = 12", "depth = 12\n[scales.one.base]\nbatch_tokens = 1_048_576"),
    )
    assert found.base.batch_tokens == 1_048_576
    assert found.base.optimiser.matrix_learning_rate == pytest.approx(0.02 * 2**0.5)


def test_a_batch_of_the_base_sets_the_factors_of_every_scale(load: Load):
    found = load(("preset =", "batch_tokens = 262_144\npreset ="))
    assert found.base.batch_tokens == 262_144
    assert found.base.optimiser.matrix_learning_rate == pytest.approx(0.02 * 0.5**0.5)
    assert found.scales["one"].budget_tokens % 262_144 == 0


def test_a_zero_that_the_file_says_stays_a_zero(load: Load):
    found = load(("preset =", "optimiser = { matrix_weight_decay = 0.0 }\nschedule = { warmup = 0.0 }\npreset ="))
    assert found.base.optimiser.matrix_weight_decay == 0.0
    assert found.base.schedule.warmup == 0.0


def test_an_arm_may_still_differ_from_what_was_derived(load: Load):
    found = load(("[arms.standard]", "[arms.standard]\n[arms.hot]\noptimiser = { matrix_learning_rate = 0.1 }"))
    assert found.arm("hot").optimiser.matrix_learning_rate == 0.1
    assert found.arm("standard").optimiser.matrix_learning_rate == 0.02


def test_a_loaded_tokenizer_takes_nothing_from_the_preset(load: Load):
    found = load(("preset =", 'tokenizer = { path = "tokenizer.json" }\npreset ='))
    assert found.base.tokenizer.model_fields_set == {"path"}


def test_without_a_derivation_rates_and_shares_are_those_of_depth_12(load: Load):
    sizes = "[scales.one]\nlayers = 4\nwidth = 128\nmlp_width = 256\nbudget_tokens = 10_000_000"
    found = load(("[scales.one.derive]\ndepth = 12", sizes))
    assert found.base.optimiser.matrix_learning_rate == 0.02
    assert found.base.schedule.warmup == 40 / 2520
    assert found.scales["one"].derive is None


def test_a_file_without_a_preset_is_left_as_it_is():
    table = {"base": {"batch_tokens": 4}, "scales": {"one": {"layers": 2}}}
    assert expanded(table, Path("study.toml")) is table


def test_the_tables_that_come_in_are_not_changed(short: str):
    table = tomllib.loads(short)
    expanded(table, Path("study.toml"))
    assert table == tomllib.loads(short)


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-1, 1) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "base", "model"]), inner, max_size=2)
    ),
    max_leaves=4,
)
PLACES = ("base.model", "base.model.head_width", "base.optimiser", "base.tokenizer.vocabulary_size", "base.corpus")
PLACES += (
    "base.batch_tokens",
    "scales",
    "scales.one",
    "scales.one.base",
    "scales.one.width",
    "scales.one.budget_tokens",
)
PLACES += (
    "scales.one.derive",
    "scales.one.derive.depth",
    "base.schedule",
    "arms",
    "arms.standard",
    "base.context_length",
)


@settings(max_examples=400)
@given(place=st.sampled_from(PLACES), value=anything)
@example(place="scales.one.width", value=0.5)
@example(place="base.model.head_width", value=0.5)
@example(place="scales.one.derive.tokens_per_parameter", value=1e-300)
@example(place="scales.one.derive.tokens_per_parameter", value=1e300)
def test_whatever_stands_in_a_file_is_refused_in_words_or_left_to_the_schema(place: str, value: Any):
    """No mistake of a person ends in an error of Python's."""
    table: dict[str, Any] = {
        "base": {"preset": "nanochat-2026-07", "corpus": {}, "model": {}, "tokenizer": {}},
        "scales": {"one": {"derive": {"depth": 12}}},
        "arms": {"standard": {}},
    }
    at = table
    *above, last = place.split(".")
    for key in above:
        at = at[key]
    at[last] = value
    with suppress(ExperimentFileError):
        expanded(table, Path("study.toml"))


SAME_RECIPE = """[contrasts.xsa.published]
file = "published.toml"
entry = "paper"
difference = "nats"
same_recipe = true
"""
REFUSED = {
    "an unknown preset": (
        [("2026-04", "2026-05")],
        "base.preset: no such preset",
        ['"nanochat-2026-04"', '"nanochat-2026-07"', "'nanochat-2026-05'"],
    ),
    "a preset that is no text": ([('"nanochat-2026-04"', "7")], "base.preset: no such preset", ["nanochat-2026-07"]),
    "a preset beside another backbone": (
        [("preset =", 'model = { backbone = "prenorm" }\npreset =')],
        "base.model.backbone: the preset nanochat-2026-04 is a recipe of another backbone",
        ['"nanochat"', "'prenorm'"],
    ),
    "a scale of another backbone": (
        [("depth = 12", 'depth = 12\n[scales.one.base]\nmodel = { backbone = "prenorm" }')],
        "scales.one.base.model.backbone",
        ['"nanochat"'],
    ),
    "a derivation without a preset": (
        [('preset = "nanochat-2026-04"', "context_length = 64")],
        "scales.one.derive: there is no preset",
        ['"nanochat-2026-04"', "layers, width, mlp_width and budget_tokens"],
    ),
    "an odd depth": ([("depth = 12", "depth = 13")], "scales.one.derive.depth", ["12 or 14", "13", "value_embeddings"]),
    "odd layers of one's own": (
        [("[scales.one.derive]", "[scales.one]\nlayers = 13\n[scales.one.derive]")],
        "scales.one: 13 layers",
        ["value_embeddings"],
    ),
    "heads that do not divide the width": (
        [("[scales.one.derive]", "[scales.one]\nwidth = 800\n[scales.one.derive]")],
        "scales.one: width 800 is not a multiple of head_width 128",
        ["head_width could be 16, 20"],
    ),
    "a run shorter than its warm-up": (
        [("[scales.one.derive]", "[scales.one]\nbudget_tokens = 10_000_000\n[scales.one.derive]"),
         ("preset =", "batch_tokens = 262_144\npreset =")],
        "scales.one: the run is shorter than its warm-up",
        ["at least 40 updates", "39 updates", "warmup"],
    ),
    "a misspelt key of a derivation": (
        [("depth = 12", "depth = 12\naspectratio = 64")],
        "scales.one.derive.aspectratio: unknown key",
        ["aspect_ratio"],
    ),
    "a derivation without a depth": (
        [("depth = 12", "aspect_ratio = 64")],
        "scales.one.derive.depth: missing",
        [],
    ),
    "a depth of no layers": ([("depth = 12", "depth = 0")], "scales.one.derive.depth", ["at least 1"]),
    "a preset of one arm": (
        [("[arms.standard]", '[arms.standard]\npreset = "nanochat-2026-07"')],
        "arms.standard.preset: a preset is what all arms and scales share",
        ["[base]"],
    ),
    "a preset of one scale": (
        [("depth = 12", 'depth = 12\n[scales.one.base]\npreset = "nanochat-2026-07"')],
        "scales.one.base.preset: a preset is what all arms and scales share",
        ["[base]"],
    ),
    "a derivation on a task": (
        [('{ name = "local-docs" }', '{ task = "cross", m = 1 }')],
        "scales.one.derive: a task's rows have no scaling law",
        ["layers, width, mlp_width"],
    ),
    "a claim that a twin replicates": (
        [("depth = 12", 'depth = 12\n[scales.one.twin_of]\nfile = "other.toml"'),
         ("[seeds]", f"{SAME_RECIPE}[seeds]")],
        "contrasts.xsa.published.same_recipe: one is the twin of a larger scale",
        ["never a replication"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_file_is_refused_with_file_key_and_what_would_be_valid(case: str, load: Load):
    changes, what, said = REFUSED[case]
    with pytest.raises(ExperimentFileError) as caught:
        load(*changes)
    assert caught.value.what.partition("study.toml: ")[2].startswith(what)
    for part in said:
        assert part in str(caught.value)


def test_a_short_run_with_a_warm_up_of_its_own_is_loaded(load: Load):
    changes = [("[scales.one.derive]", "[scales.one]\nbudget_tokens = 10_000_000\n[scales.one.derive]")]
    changes += [("preset =", "batch_tokens = 262_144\nschedule = { warmup = 0.1 }\npreset =")]
    found = load(*changes)
    assert found.base.schedule.warmup == 0.1
    assert found.base.schedule.momentum_warmup == 1.0


def test_forty_updates_are_enough(load: Load):
    found = load(
        ("[scales.one.derive]", f"[scales.one]\nbudget_tokens = {40 * 2**17}\n[scales.one.derive]"),
        ("preset =", "batch_tokens = 131_072\npreset ="),
    )
    assert found.base.batch_tokens == 2**17
    assert found.base.schedule.warmup == 1.0


def test_presets_share_no_table_with_the_files_that_they_complete(load: Load):
    found = load()
    assert found.base.corpus.packing == PRESETS["nanochat-2026-04"].packing
    assert "corpus" not in PRESETS["nanochat-2026-04"].base
