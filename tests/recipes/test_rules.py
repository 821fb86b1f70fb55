"""What depth derives, against nanochat's own numbers: totals, batches, updates and decays of its public runs."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paribus import mechanisms
from paribus.mechanisms.contract import Seam
from paribus.model.build import abstract_model
from paribus.model.config import NanochatConfig
from paribus.recipes.config import Derive
from paribus.recipes.presets import PRESETS
from paribus.recipes.rules import Derivation, derive, scaling_parameters, width_of
from paribus.roles import Role, declarations

PRESET = PRESETS["nanochat-2026-04"]
MODEL = dict(PRESET.base["model"])
VOCABULARY = 32_768


def derived(
    depth: int, ratio: float = 12, aspect: int = 64, head_width: int = 128, **given: float
) -> dict[str, Derivation]:
    wish = Derive(depth=depth, aspect_ratio=aspect, tokens_per_parameter=ratio)
    keys = {name.replace("__", "."): value for name, value in given.items()}
    found = derive(PRESET, wish, MODEL | {"head_width": head_width}, VOCABULARY, keys)
    return {of.name: of for of in found}


# depth, tokens per parameter, aspect ratio, head width; then the numbers of nanochat's runs.
RUNS = {
    "d12": ((12, 12, 64, 128), (768, 110_100_912, 524_288, 2520, 0.28)),
    "d12 at 10.5": ((12, 10.5, 64, 128), (768, 110_100_912, 524_288, 2205, 0.28)),
    "d24 at 8": ((24, 8, 64, 128), (1536, 729_810_624, 1_048_576, 5568, 0.05974)),
    "d24 at 12": ((24, 12, 64, 128), (1536, 729_810_624, 1_048_576, 8352, 0.05974)),
    "the text's d24 at 8": ((24, 8, 42, 64), (1024, 335_546_624, 1_048_576, 2560, 0.1299)),
    "the text's d24 at 12": ((24, 12, 41, 64), (1024, 335_546_624, 1_048_576, 3840, 0.1299)),
}


@pytest.mark.parametrize("run", RUNS)
def test_width_parameters_batch_updates_and_decay_are_those_of_nanochats_runs(run: str):
    wish, (width, parameters, batch, updates, decay) = RUNS[run]
    found = derived(*wish)
    assert found["width"].value == width
    assert found["mlp_width"].value == 4 * width
    assert found["scaling parameters"].value == parameters
    assert found["batch_tokens"].value == batch
    assert found["budget_tokens"].value == updates * batch
    assert found["optimiser.matrix_weight_decay"].value == pytest.approx(decay, rel=1e-3), "printed to four digits"
    assert found["schedule.warmup"].value == 40 / updates
    assert found["schedule.momentum_warmup"].value == 400 / updates


@pytest.mark.parametrize(
    ("depths", "batch"), [((8,), 2**18), (range(10, 17, 2), 2**19), (range(18, 27, 2), 2**20)], ids=str
)
def test_batches_grow_with_depth_in_nanochats_steps(depths: range, batch: int):
    assert {derived(depth)["batch_tokens"].value for depth in depths} == {batch}


def test_rates_follow_width_and_batch_and_the_shortcuts_follow_neither():
    found = derived(24)
    by_batch = math.sqrt(2)
    by_width = (1536 / 768) ** -0.5
    expected = {
        "embedding": 0.3 * by_width * by_batch,
        "value_embedding": 0.15 * by_width * by_batch,
        "head": 0.008 * by_width * by_batch,
        "matrix": 0.02 * by_batch,
        "stream_scale": 0.005 * by_batch,
        "embedding_scale": 0.5 * by_batch,
    }
    rates = {name: of.value for name, of in found.items() if name.endswith("_learning_rate")}
    assert rates == pytest.approx({f"optimiser.{role}_learning_rate": rate for role, rate in expected.items()})


def test_a_batch_that_is_given_changes_the_factors_that_depend_on_it():
    plain, large = derived(12), derived(12, base__batch_tokens=2**21)
    assert large["batch_tokens"].given
    assert large["batch_tokens"].by_rule == 2**19
    for name in ("optimiser.matrix_learning_rate", "optimiser.embedding_learning_rate"):
        assert large[name].value == pytest.approx(2 * plain[name].value)
    assert large["optimiser.matrix_weight_decay"].value == pytest.approx(2 * 0.28)
    assert large["budget_tokens"].value == 1_321_210_944 // 2**21 * 2**21
    assert large["schedule.warmup"].value == 40 / (1_321_210_944 // 2**21)


def test_a_budget_that_is_given_changes_batch_decay_and_shares():
    found = derived(12, budget_tokens=100_000_000)
    assert found["batch_tokens"].value == 2 ** round(math.log2(2**19 * (1e8 / 1_321_210_944) ** 0.383)) == 2**18
    assert found["optimiser.matrix_weight_decay"].value == pytest.approx(
        0.28 * math.sqrt(0.5) * 1_321_210_944 / 1e8, rel=1e-12
    )
    assert found["schedule.warmup"].value == 40 / math.ceil(1e8 / 2**18)


def test_a_width_that_is_given_is_the_one_that_is_counted():
    found = derived(12, width=1024)
    assert found["mlp_width"].value == 4096
    assert found["scaling parameters"].value == 12 * 12 * 1024**2 + 6 * 8 * 12 + VOCABULARY * 1024
    assert found["optimiser.head_learning_rate"].value == pytest.approx(
        0.008 * (1024 / 768) ** -0.5 * math.sqrt(found["batch_tokens"].value / 2**19)
    )


def test_a_momentum_warm_up_longer_than_the_run_is_all_of_it():
    assert derived(12, budget_tokens=100 * 2**19, base__batch_tokens=2**19)["schedule.momentum_warmup"].value == 1.0


def test_the_reference_may_have_the_runs_own_aspect_ratio_as_in_nanochat():
    wish = Derive(depth=24, aspect_ratio=42, reference_aspect_ratio=42)
    found = derive(PRESET, wish, MODEL | {"head_width": 64}, VOCABULARY, {})
    own = 24 * 12 * 1024**2 + 12 * 16 * 12 + VOCABULARY * 1024
    reference = 12 * 12 * 512**2 + 6 * 8 * 12 + VOCABULARY * 512
    decay = next(of.value for of in found if of.name == "optimiser.matrix_weight_decay")
    assert decay == pytest.approx(0.28 * math.sqrt(2) * reference / own, rel=1e-6)


@settings(deadline=None)  # the first model imports what the others find
@given(
    depth=st.integers(1, 5).map(lambda half: 2 * half),
    heads=st.integers(1, 4),
    head_width=st.sampled_from([12, 16]),
    groups=st.integers(1, 3),
    vocabulary=st.integers(2, 200),
    embeddings=st.sampled_from(["alternating", "none"]),
)
def test_scaling_parameters_are_those_of_the_model_that_is_built(
    depth: int, heads: int, head_width: int, groups: int, vocabulary: int, embeddings: str
):
    width = heads * groups * head_width
    constants = MODEL | {
        "head_width": head_width,
        "query_heads_per_kv_head": groups,
        "value_embeddings": embeddings,
        "smear_channels": 4,
    }
    config = NanochatConfig.model_validate(
        constants
        | {"layers": depth, "width": width, "mlp_width": 3 * width, "vocabulary_size": vocabulary, "context_length": 8}
    )
    model = abstract_model(config, {seam: mechanisms.resolve(seam, None, str(seam)) for seam in Seam})
    counted = sum(
        model.get_parameter(name).numel()
        for name, declaration in declarations(model).items()
        if declaration.role in (Role.MATRIX, Role.HEAD)
    )
    assert scaling_parameters(depth, width, 3 * width, vocabulary, constants) == counted


@given(depth=st.integers(1, 64), aspect=st.integers(1, 128), head_width=st.integers(1, 128))
def test_a_width_is_the_fewest_whole_heads_that_reach_the_wish(depth: int, aspect: int, head_width: int):
    width = width_of(depth, aspect, head_width)
    assert width % head_width == 0
    assert 0 <= width - depth * aspect < head_width


@given(
    depth=st.integers(1, 40),
    ratio=st.floats(0.5, 30),
    batch=st.none() | st.integers(10, 24).map(lambda power: 2**power),
    budget=st.none() | st.integers(10**5, 10**11),
)
def test_deriving_again_from_what_was_derived_changes_nothing(
    depth: int, ratio: float, batch: int | None, budget: int | None
):
    """What `paribus plan` shows: the rules on the values in force, which are the file's and the rules' own."""
    wish = Derive(depth=depth, tokens_per_parameter=ratio)
    said = {"base.batch_tokens": batch, "budget_tokens": budget}
    said = {key: value for key, value in said.items() if value is not None}
    first = derive(PRESET, wish, MODEL, VOCABULARY, said)
    again = derive(PRESET, wish, MODEL, VOCABULARY, {of.key: of.value for of in first if of.key})
    assert again == first
