"""Six updates of nanochat itself (commit of 2026-07-03, float32 on a CPU), repeated by our backbone and optimisers."""

import json
from collections.abc import Callable
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from paribus.mechanisms import resolve
from paribus.mechanisms.contract import Seam
from paribus.model.build import build_model
from paribus.model.config import NanochatConfig
from paribus.optim import nanochat, polar_express
from paribus.optim.config import OptimiserConfig, ScheduleConfig
from paribus.optim.groups import build_optimisers, set_schedule
from paribus.optim.schedule import moment
from paribus.roles import Role, declarations

FOLDER = Path(__file__).parents[3] / "shared" / "data" / "nanochat_golden"
STEPS = 6
U32 = 2.0**-24
SCHEDULE = ScheduleConfig(
    warmup=0.5,
    decay=0.5,
    final=0.25,
    place="ends",
    momentum_initial=0.85,
    momentum_warmup=1.0,
    weight_decay="cosine",
)
"""of the golden run: three steps up, three down to a quarter; momentum from 0.85 towards 0.97 over all six"""
PEAK_MOMENTUM, MATRIX_DECAY = 0.97, 0.1

pytestmark = pytest.mark.shared_data


def our_name(theirs: str) -> str:
    """Our name of nanochat's parameter."""
    table, _, rest = theirs.partition(".")
    if table == "value_embeds":
        return f"layers.{rest.partition('.')[0]}.attention.value_embedding"
    if theirs.startswith("transformer.h."):
        layer, _, inner = theirs.removeprefix("transformer.h.").partition(".")
        return f"layers.{layer}.{OF_A_LAYER[inner.removesuffix('.weight')]}"
    return OF_THE_MODEL[theirs.removesuffix(".weight")]


OF_THE_MODEL = {
    "transformer.wte": "embedding",
    "lm_head": "head",
    "smear_gate": "smear_gate",
    "smear_lambda": "smear_scale",
    "resid_lambdas": "routing.stream_scale",
    "x0_lambdas": "routing.embedding_scale",
    "backout_lambda": "routing.backout_scale",
}
OF_A_LAYER = {
    "attn.c_q": "attention.query",
    "attn.c_k": "attention.key",
    "attn.c_v": "attention.value",
    "attn.c_proj": "attention.output",
    "attn.ve_gate": "attention.value_gate",
    "mlp.c_fc": "mlp.up",
    "mlp.c_proj": "mlp.down",
}


class Golden(NamedTuple):
    about: dict[str, Any]
    tensors: dict[str, Tensor]
    after: dict[str, Tensor]

    def part(self, prefix: str) -> dict[str, Tensor]:
        """Tensors of `prefix` by our names of the parameters."""
        found = self.tensors | self.after
        return {our_name(name.removeprefix(prefix)): t for name, t in found.items() if name.startswith(prefix)}

    def model(self, dtype: torch.dtype = torch.float32) -> nn.Module:
        """Our backbone with nanochat's weights of before the first update."""
        told = self.about["config"]
        config = NanochatConfig(
            layers=told["n_layer"],
            width=told["n_embd"],
            head_width=told["n_embd"] // told["n_head"],
            query_heads_per_kv_head=told["n_head"] // told["n_kv_head"],
            mlp_width=4 * told["n_embd"],
            vocabulary_size=told["vocab_size"],
            context_length=told["sequence_len"],
            window_pattern=told["window_pattern"],
        )
        model = build_model(config, {seam: resolve(seam, None, str(seam)) for seam in Seam}, ("golden",), dtype)
        values = self.part("param.")
        assert set(values) == {name for name, _ in model.named_parameters()}
        with torch.no_grad():
            for name, value in values.items():
                model.get_parameter(name).copy_(value)
        return model

    def recipe(self) -> OptimiserConfig:
        """The groups of the golden file as ours by role."""
        roles = {name: declared.role for name, declared in declarations(self.model()).items()}
        fields: dict[str, Any] = {
            "matrix_update": "nanochat",
            "matrix_momentum": PEAK_MOMENTUM,
            "matrix_row_equilibration": True,
            "matrix_unit_norm": True,
        }
        for group in self.about["groups"]:
            (role,) = {roles[our_name(name)] for name in group["params"]}
            prefix = role.replace(" ", "_")
            fields |= {f"{prefix}_learning_rate": group["lr"], f"{prefix}_weight_decay": group["weight_decay"]}
            if group["kind"] == "adamw":
                fields |= {f"{prefix}_betas": group["betas"], "adam_eps": group["eps"]}
            else:
                fields["matrix_variance_beta2"] = group["beta2"]
        return OptimiserConfig(**fields)

    def loss(self, model: nn.Module, step: int) -> Tensor:
        rows = self.tensors["tokens"][step]
        tokens, targets = rows[:, :-1], rows[:, 1:]
        logits = model(tokens, torch.zeros_like(tokens))
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def trained(self) -> tuple[nn.Module, list[float]]:
        """Our model after the six updates, and the loss before each."""
        model, losses = self.model(), []
        optimisers = build_optimisers(model, self.recipe())
        for step in range(STEPS):
            loss = self.loss(model, step)
            losses.append(loss.item())
            loss.backward()
            set_schedule(optimisers, moment(step, STEPS, SCHEDULE))
            for optimiser in optimisers:
                optimiser.step()
                optimiser.zero_grad(set_to_none=True)
        return model, losses


@pytest.fixture(scope="module")
def golden() -> Golden:
    if not FOLDER.exists():
        pytest.skip("real data is absent: expected ../shared/data/nanochat_golden beside the repository")
    about = json.loads((FOLDER / "2026-07.json").read_text(encoding="utf-8"))
    first, last = (load_file(FOLDER / f"2026-07-kv4{end}.safetensors") for end in ("", "-after-6-steps"))
    return Golden(about, first, last)


@pytest.fixture(scope="module")
def trained(golden: Golden) -> tuple[nn.Module, list[float]]:
    return golden.trained()


def test_the_schedule_is_nanochats_at_each_of_its_steps(golden: Golden):
    for step, theirs in enumerate(golden.about["schedule_per_step"]):
        ours = moment(step, STEPS, SCHEDULE)
        assert ours.learning_rate == pytest.approx(theirs["lrm"], rel=1e-12)
        assert ours.momentum(PEAK_MOMENTUM) == pytest.approx(theirs["momentum"], rel=1e-12)
        assert MATRIX_DECAY * ours.weight_decay == pytest.approx(theirs["wd"], rel=1e-12)


def test_each_parameter_has_the_optimiser_rate_decay_and_betas_of_nanochats_groups(golden: Golden):
    model = golden.model()
    names = {parameter: name for name, parameter in model.named_parameters()}
    ours = {
        names[p]: (type(o).__name__, group["lr"], group["weight_decay"], group.get("betas"), group.get("eps"))
        for o in build_optimisers(model, golden.recipe())
        for group in o.param_groups
        for p in group["params"]
    }
    theirs = {}
    for group in golden.about["groups"]:
        betas = tuple(group["betas"]) if "betas" in group else None
        kind = {"adamw": "AdamW", "muon": "NanochatMuon"}[group["kind"]]
        told = (kind, group["lr"], group["weight_decay"], betas, group.get("eps"))
        theirs |= dict.fromkeys(map(our_name, group["params"]), told)
    assert ours == theirs


def test_the_loss_before_each_of_six_updates_is_nanochats(golden: Golden, trained: tuple[nn.Module, list[float]]):
    theirs = golden.about["losses_before_each_step"]
    assert len(theirs) == STEPS
    # Means of 400 numbers near 6: nine levels of additions, and a few roundings in each number.
    assert trained[1] == pytest.approx(theirs, rel=(9 + 5) * U32)
    # A step that was not taken, or another one, shows by far.
    assert max(abs(a - b) for a, b in pairwise(theirs)) > 1e3 * 6 * 14 * U32


def gradient_rounding(golden: Golden) -> float:
    """By how much of its norm nanochat's float32 gradient of a matrix differs from the exact one, at most."""
    model = golden.model(torch.float64)
    golden.loss(model, 0).backward()
    theirs, found = golden.part("grad."), []
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        if parameter.ndim == 2:
            found.append(float((theirs[name] - parameter.grad).norm() / parameter.grad.norm()))
    return max(found)


def deviations(golden: Golden, model: nn.Module) -> dict[str, float]:
    """|ours - theirs| as a share of what six updates moved, tensor by tensor (Frobenius norms)."""
    start, end = golden.part("param."), golden.part("after.")
    return {
        name: float((model.get_parameter(name) - value).detach().norm() / (value - start[name]).norm())
        for name, value in end.items()
    }


def tolerances(golden: Golden) -> dict[Role, float]:
    """Of the deviation after six updates, by what the optimiser makes of a gradient's rounding.

    A relative change e of a gradient's Frobenius norm becomes at most e times the product of the leading
    coefficients (989) in the orthogonalised matrix, whose norm is sqrt(min(rows, columns)): the slope of the
    composed polynomial is largest at 0. That root, 2 to 8 here, is left to what later updates add and to entries of
    the cautious mask that fall on the other side.
    AdamW turns e times the gradient's size into a relative change e size / |g| of an entry's step: entries a hundred
    times smaller than their tensor's size are given room.
    """
    rounding = gradient_rounding(golden)
    assert U32 < rounding < 20 * U32
    steepest = prod(a for a, _, _ in polar_express.COEFFICIENTS)
    return {role: (steepest if role is Role.MATRIX else 100) * rounding for role in Role}


def test_all_weights_after_six_updates_are_nanochats(golden: Golden, trained: tuple[nn.Module, list[float]]):
    allowed, model = tolerances(golden), trained[0]
    found, roles = deviations(golden, model), {n: d.role for n, d in declarations(model).items()}
    assert set(found) == set(roles)
    assert {name: value for name, value in found.items() if value > allowed[roles[name]]} == {}
    assert max(allowed.values()) < 1e-3


def decay_without_the_shape_factor(patch: pytest.MonkeyPatch) -> None:
    def step(self: nanochat.NanochatMuon) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                rows, columns = parameter.shape
                factor = max(1.0, rows / columns) ** 0.5
                before = parameter.detach().clone()
                decay, group["weight_decay"] = group["weight_decay"], group["weight_decay"] / factor
                parameters, group["params"] = group["params"], [parameter]
                original(self)
                group["weight_decay"], group["params"] = decay, parameters
                assert not torch.equal(before, parameter)

    original = nanochat.NanochatMuon.step
    patch.setattr(nanochat.NanochatMuon, "step", step)


def variance_of_square_matrices_by_column(patch: pytest.MonkeyPatch) -> None:
    def mean_squares(matrices: Tensor) -> Tensor:
        return matrices.square().mean(dim=-1 if matrices.shape[-2] > matrices.shape[-1] else -2, keepdim=True)

    patch.setattr(nanochat, "mean_squares", mean_squares)


def unchanged_rows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(nanochat, "with_equal_rows", lambda matrices: matrices)


def no_unit_norm(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(nanochat, "with_unit_values", lambda matrices: matrices)


def another_norm_factor(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(polar_express, "NORM_FACTOR", 1.02)


def coefficients_of_two_decimals(patch: pytest.MonkeyPatch) -> None:
    rounded = tuple(tuple(round(value, 2) for value in triple) for triple in polar_express.COEFFICIENTS)
    patch.setattr(polar_express, "COEFFICIENTS", rounded)


@pytest.mark.parametrize(
    "change",
    [
        decay_without_the_shape_factor,
        variance_of_square_matrices_by_column,
        unchanged_rows,
        no_unit_norm,
        another_norm_factor,
        coefficients_of_two_decimals,
    ],
)
def test_the_golden_weights_tell_nanochats_update_from(
    golden: Golden, monkeypatch: pytest.MonkeyPatch, change: Callable[[pytest.MonkeyPatch], None]
):
    """Readings of the update that the reference leaves open, or that are easily mistaken: each is outside."""
    allowed = tolerances(golden)[Role.MATRIX]
    change(monkeypatch)
    model, _ = golden.trained()
    roles = {name: declared.role for name, declared in declarations(model).items()}
    assert max(v for name, v in deviations(golden, model).items() if roles[name] is Role.MATRIX) > 3 * allowed
