"""The recipe of a checkpoint: nanochat's own numbers, as an experiment file that can be planned."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from paribus.experiment import loading
from paribus.interop.nanochat import import_checkpoint
from paribus.interop.nanochat_meta import Meta, read_meta
from paribus.interop.nanochat_recipe import DEFAULTS, derive, recipe_text
from paribus.optim.groups import groups
from paribus.roles import Role

from .conftest import SHAPE, Write

SHARED = Path(__file__).parents[3] / "shared" / "data" / "nanochat_golden"


def meta_of(tmp_path: Path, shape: Mapping[str, Any], arguments: Mapping[str, Any], **more: Any) -> Meta:
    path = tmp_path / "meta_000010.json"
    path.write_text(json.dumps({"step": 10, "model_config": shape, "user_config": arguments, **more}))
    return read_meta(path, 10)


def shape_of(layers: int, width: int, head_width: int) -> dict[str, Any]:
    heads = width // head_width
    sizes = {"n_layer": layers, "n_embd": width, "n_head": heads, "n_kv_head": heads}
    return {"sequence_len": 2048, "vocab_size": 32_768, "window_pattern": "SSSL", **sizes}


@pytest.mark.parametrize(
    ("shape", "arguments", "batch", "updates", "decay"),
    [
        (shape_of(12, 768, 128), {}, 524_288, 2520, 0.28),
        (shape_of(12, 768, 128), {"target_param_data_ratio": 10.5}, 524_288, 2205, 0.28),
        (shape_of(24, 1536, 128), {"target_param_data_ratio": 8.0}, 1_048_576, 5568, 0.05974),
        (shape_of(24, 1536, 128), {}, 1_048_576, 8352, 0.05974),
        (
            shape_of(24, 1024, 64),
            {"head_dim": 64, "aspect_ratio": 42, "target_param_data_ratio": 8},
            1_048_576,
            2560,
            # of 12 layers of width 512: 12 * 12 * 512^2 + 6 * 8 * 12 + 32768 * 512; of its own 24 of width 1024
            0.28 * 2**0.5 * 54_526_528 / 335_546_624,
        ),
    ],
    ids=["d12", "d12 at 10.5", "d24 at 8", "d24 at 12", "d24 in the text's shape"],
)
def test_batch_updates_and_decay_are_those_that_nanochat_prints(
    tmp_path: Path, shape: dict[str, Any], arguments: dict[str, Any], batch: int, updates: int, decay: float
):
    """The public logs' numbers of the stock models: updates, batch, and the scaled decay of matrices."""
    found = derive(meta_of(tmp_path, shape, arguments))
    assert (found.batch_tokens, found.updates) == (batch, updates)
    assert 0.28 * found.decay_factor == pytest.approx(decay, abs=5e-6)
    assert found.batch_factor == pytest.approx((batch / 524_288) ** 0.5)


@pytest.mark.parametrize(
    ("arguments", "more", "batch", "updates", "said"),
    [
        ({"num_iterations": 77, "total_batch_size": 8192}, {}, 8192, 77, "num_iterations"),
        ({"target_flops": 1e15}, {"total_batch_size": 4096}, 4096, 10, "this checkpoint had"),
        ({"target_param_data_ratio": -1}, {"total_batch_size": 4096}, 4096, 10, "this checkpoint had"),
        ({"target_param_data_ratio": 12}, {"total_batch_size": 10**9}, 10**9 // 32 * 32, 1, "12 tokens"),
    ],
)
def test_what_was_given_explicitly_wins(
    tmp_path: Path, arguments: dict[str, Any], more: dict[str, Any], batch: int, updates: int, said: str
):
    found = derive(meta_of(tmp_path, SHAPE, arguments, **more))
    assert (found.batch_tokens, found.updates) == (batch, updates)
    assert said in found.budget


def written(tmp_path: Path, meta: Meta, tag: str = "d2") -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(recipe_text(meta, tag, has_tokenizer=False))
    return path


@pytest.mark.shared_data
def test_every_group_has_the_rate_decay_and_betas_of_the_originals_optimiser(tmp_path: Path):
    path = SHARED / "2026-07.json"
    if not path.exists():
        pytest.skip(f"real data is absent: expected ../shared/data/nanochat_golden/{path.name} beside the repository")
    golden = json.loads(path.read_text())
    meta = meta_of(tmp_path, golden["config"], {"head_dim": 16, "aspect_ratio": 16}, total_batch_size=2**19)
    experiment = loading.load(written(tmp_path, meta))
    found = groups(experiment.base.optimiser)
    seen = set()
    for group in golden["groups"]:
        role = {
            "lm_head.weight": Role.HEAD,
            "transformer.wte.weight": Role.EMBEDDING,
            "value_embeds.1.weight": Role.VALUE_EMBEDDING,
            "resid_lambdas": Role.STREAM_SCALE,
            "x0_lambdas": Role.EMBEDDING_SCALE,
            "smear_lambda": Role.SHORTCUT,
        }.get(group["params"][0], Role.MATRIX)
        seen.add(role)
        assert found[role].learning_rate == pytest.approx(group["lr"], rel=1e-9), role
        if role is not Role.MATRIX:  # the golden run fixed the decay of matrices itself
            assert found[role].betas == tuple(group["betas"])
            assert found[role].weight_decay == group["weight_decay"]
            assert experiment.base.optimiser.adam_eps == group["eps"]
        else:
            assert experiment.base.optimiser.matrix_variance_beta2 == group["beta2"]
    assert len(seen) == 7


def test_rates_grow_with_the_batch_and_the_shortcuts_rate_does_not(tmp_path: Path):
    one, four = (
        loading.load(written(tmp_path, meta_of(tmp_path, SHAPE, {}, total_batch_size=batch))).base.optimiser
        for batch in (2**19, 2**21)
    )
    rates = [name for name in type(one).model_fields if name.endswith("_learning_rate")]
    scaled = {name for name in rates if getattr(four, name) == pytest.approx(2 * getattr(one, name), rel=1e-9)}
    of_nanochat = {"matrix", "embedding", "value_embedding", "head", "stream_scale", "embedding_scale"}
    assert scaled == {f"{role}_learning_rate" for role in of_nanochat}
    assert one.shortcut_learning_rate == four.shortcut_learning_rate == 0.2


def test_the_file_holds_the_models_shape_and_can_be_loaded(write: Write, tmp_path: Path):
    import_checkpoint(write(), to=tmp_path / "model")
    experiment = loading.load(tmp_path / "model" / "recipe.toml")
    assert (experiment.study, list(experiment.arms)) == ("d2-recipe", ["standard", "documents"])
    config = experiment.model_config_of(experiment.arm("standard"), "d2")
    assert (config.layers, config.width, config.heads, config.kv_heads) == (2, 32, 2, 1)
    assert (config.vocabulary_size, config.context_length, config.mlp_width) == (280, 32, 128)
    assert experiment.base.batch_tokens == 1024
    assert experiment.execution.micro_batch_rows == 4
    schedule = experiment.base.schedule
    updates = experiment.scales["d2"].budget_tokens // 1024
    assert schedule.warmup == pytest.approx(min(1, 40 / updates), rel=1e-9)
    assert (schedule.decay, schedule.final, schedule.place) == (0.65, 0.05, "ends")


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"warmdown_ratio": 0.0},
        {"warmup_steps": 0, "final_lr_frac": 0.0},
        {"num_iterations": 1},
        {"device_batch_size": 10_000},
        {"matrix_lr": 0.3, "weight_decay": 0.0},
        {"depth": "twelve", "matrix_lr": None},
    ],
)
def test_every_recipe_can_be_loaded(tmp_path: Path, arguments: dict[str, Any]):
    loading.load(written(tmp_path, meta_of(tmp_path, SHAPE, arguments, total_batch_size=1024)))


def test_arguments_that_the_meta_file_does_not_hold_are_named(tmp_path: Path):
    """A chat model's meta file holds another program's arguments."""
    text = recipe_text(meta_of(tmp_path, SHAPE, {"source": "base"}), "sft", has_tokenizer=True)
    assert all(key in text for key in DEFAULTS)
    assert "tokenizer.json, beside this file" in text
    assert "does not hold" not in recipe_text(meta_of(tmp_path, SHAPE, DEFAULTS), "d2", has_tokenizer=False)


def test_a_tag_of_odd_characters_makes_a_valid_study(tmp_path: Path):
    experiment = loading.load(written(tmp_path, meta_of(tmp_path, SHAPE, {}), "-my model @ 3/"))
    assert experiment.study == "my-model-3-recipe"
