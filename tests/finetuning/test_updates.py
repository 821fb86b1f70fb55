"""One update, the schedule, the recipe that goes on, and the likelihood of held-out answers, against float64."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from paribus.data.order import Batch
from paribus.downstream.chat.dataset import ChatData, PartFacts
from paribus.downstream.chat.mixture import Training
from paribus.errors import StudyFolderError
from paribus.finetuning.base import BaseCell, moment_of, recipe_of
from paribus.finetuning.held_out import HeldOutChat, score, summary
from paribus.finetuning.step import update
from paribus.mechanisms import resolve
from paribus.mechanisms.contract import Seam
from paribus.model.backbone import Backbone
from paribus.model.build import build_model
from paribus.model.config import PrenormConfig
from paribus.optim.config import OptimiserConfig
from paribus.optim.groups import build_optimisers
from paribus.optim.schedule import Moment
from paribus.runs.folder import CellFolder
from paribus.seeds import generator
from paribus.train.loop import not_finite

VOCABULARY, TIME, ROWS = 60, 12, 5
U32 = 2.0**-24
Build = Callable[[], Backbone]


@pytest.fixture
def build() -> Build:
    config = PrenormConfig(
        layers=2, width=16, head_width=8, mlp_width=24, vocabulary_size=VOCABULARY, context_length=TIME
    )
    mechanisms = {seam: resolve(seam, None, seam) for seam in Seam}
    return lambda: build_model(config, mechanisms, ("finetuning", "S", 0))


def batch_of(weight: Any) -> Batch:
    draw = generator("tests", "finetuning", "batch")
    tokens = draw.integers(0, VOCABULARY, size=(ROWS, TIME + 1))
    zeros = np.zeros((ROWS, TIME), dtype=np.int32)
    weights = np.broadcast_to(np.asarray(weight, dtype=np.float32), (ROWS, TIME)).copy()
    return Batch(tokens[:, :-1], tokens[:, 1:], weights, zeros, zeros.astype(np.int16))


@pytest.fixture
def uneven() -> Batch:
    """Rows with many, few and no learnt tokens."""
    weight = np.zeros((ROWS, TIME))
    weight[0, :9], weight[2, 4], weight[3, 6:] = 1, 1, 1
    return batch_of(weight)


def gradients(model: Backbone, batch: Batch, rows: int) -> tuple[float, dict[str, Tensor]]:
    done = update(model, [], batch, 0, Moment(), rows)
    assert done.loss is not None
    return float(done.loss), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("rows", [1, 2, 5, 100])
def test_every_learnt_token_of_the_batch_weighs_the_same(build: Build, uneven: Batch, rows: int):
    """Against the loss in float64 from its definition, and its gradient."""
    model = build().double()
    logits = model(torch.from_numpy(uneven.tokens), torch.from_numpy(uneven.document).long())
    log_p = torch.log_softmax(logits.double(), -1).gather(-1, torch.from_numpy(uneven.targets)[..., None])[..., 0]
    expected = -(log_p * torch.from_numpy(uneven.weight)).sum() / 16
    expected.backward()
    loss, found = gradients(build(), uneven, rows)
    # 16 float32 numbers near ln 60 in any order; the gradient through two layers of width 16.
    assert loss == pytest.approx(float(expected.detach()), rel=(16 + 8) * U32)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        reference = parameter.grad.float()
        torch.testing.assert_close(found[name], reference, rtol=1e-3, atol=float(reference.abs().max()) * 1e-5)


def test_micro_batches_without_targets_are_as_if_they_were_not_there(build: Build, uneven: Batch):
    """Against the same rows without those that have nothing to learn: equal bits, one row at a time."""
    kept = [0, 2, 3]
    fewer = Batch(*(array[kept] for array in vars(uneven).values()))
    loss, whole = gradients(build(), uneven, 1)
    other, part = gradients(build(), fewer, 1)
    assert loss == other
    assert all(torch.equal(whole[name], part[name]) for name in part)


def test_a_gradient_that_is_not_finite_is_seen_where_the_loss_is(build: Build, uneven: Batch):
    model = build()
    model.get_parameter("layers.1.mlp.up").register_hook(lambda gradient: gradient * torch.inf)
    done = update(model, build_optimisers(model, OptimiserConfig()), uneven, 0, Moment(), 2)
    assert done.loss is not None
    assert done.gradient is not None
    assert not_finite(float(done.loss), float(done.gradient.size)).startswith("gradient became")


def test_a_batch_without_targets_changes_nothing_and_has_no_loss(build: Build, uneven: Batch):
    model = build()
    optimisers = build_optimisers(model, OptimiserConfig(embedding_weight_decay=0.1, matrix_weight_decay=0.1))
    update(model, optimisers, uneven, 0, Moment(), 2)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    averages = [{k: torch.as_tensor(v).clone() for k, v in s.items()} for o in optimisers for s in o.state.values()]
    done = update(model, optimisers, batch_of(0.0), 1, Moment(), 2)
    assert (done.loss, done.targets) == (None, 0)
    assert int(done.digest) != 0, "what was read is told all the same"
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    after = [s for o in optimisers for s in o.state.values()]
    assert all(torch.equal(a[k], torch.as_tensor(b[k])) for a, b in zip(averages, after, strict=True) for k in a)
    again = update(model, optimisers, uneven, 2, Moment(), 2)
    assert again.loss is not None
    assert math.isfinite(float(again.loss))


@given(
    steps=st.integers(1, 700),
    share=st.floats(0, 1),
    warmup=st.floats(0, 1),
    decay=st.floats(0, 1),
    final=st.floats(0, 1),
    momentum_warmup=st.integers(0, 400),
)
def test_rates_stay_in_the_unit_interval_and_momentum_between_its_two_values(
    steps: int, share: float, warmup: float, decay: float, final: float, momentum_warmup: int
):
    training = Training(warmup=warmup, decay=decay, final=final, momentum_warmup_updates=momentum_warmup)
    found = moment_of(min(steps - 1, int(share * steps)), steps, training)
    assert 0.0 <= found.learning_rate <= 1.0
    assert 0.85 - 1e-12 <= found.momentum(0.95) <= 0.95 + 1e-12


def test_the_schedule_is_flat_to_the_middle_and_falls_to_nothing():
    training = Training()
    rates = [moment_of(step, 10, training).learning_rate for step in range(10)]
    assert rates == pytest.approx([1, 1, 1, 1, 1, 0.9, 0.7, 0.5, 0.3, 0.1])
    momenta = [moment_of(step, 1000, training).momentum(0.95) for step in (0, 150, 300, 999)]
    assert momenta == pytest.approx([0.85, 0.90, 0.95, 0.95]), "by number of updates, not by share"


def test_the_recipe_goes_on_at_its_own_rates(cells: list[Path]):
    base = BaseCell.read(cells[0])
    pretraining = OptimiserConfig.model_validate(base.resolved["optimiser"])
    plain = recipe_of(base, Training()).optimiser
    assert plain.matrix_learning_rate == pytest.approx(0.8 * pretraining.matrix_learning_rate)
    assert plain.embedding_learning_rate == pytest.approx(0.8 * pretraining.embedding_learning_rate)
    assert (plain.matrix_momentum, plain.matrix_weight_decay) == (0.95, 0.0)
    assert recipe_of(base, Training(matrix_weight_decay=0.1)).optimiser.matrix_weight_decay == 0.1
    carried = recipe_of(base, Training(rates_at_batch_tokens=4 * 512)).optimiser
    assert base.resolved["batch_tokens"] == 512
    assert carried.matrix_learning_rate == pytest.approx(2 * plain.matrix_learning_rate)
    assert carried.scalar_learning_rate == plain.scalar_learning_rate, "a mechanism's own rate follows no batch"
    assert carried.shortcut_learning_rate == plain.shortcut_learning_rate
    with pytest.raises(StudyFolderError, match="whole rows"):
        recipe_of(base, Training(batch_tokens=100))


def test_the_state_at_the_last_update_is_needed(cells: list[Path]):
    base = BaseCell.read(cells[0])
    assert set(base.last_files()) == {"state.safetensors", "state.json"}
    for checkpoint in (cells[0] / "checkpoints").glob("step-*"):
        (checkpoint / "COMPLETE").unlink()
    with pytest.raises(StudyFolderError, match="last update"):
        base.last_files()
    assert CellFolder(cells[0]).state == "complete"


def chat_data(sizes: list[int], digests: list[int]) -> ChatData:
    draw = generator("tests", "finetuning", "held out")
    start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    learnt = draw.random(start[-1]) < 0.5
    learnt[start[:-1]], learnt[start[1:] - 1] = False, True
    count = len(sizes)
    facts = PartFacts("talk", count, count, 0, 0, 0, 0, 0, 0, ())
    return ChatData(
        draw.integers(0, VOCABULARY, size=start[-1]).astype(np.uint16),
        learnt,
        start,
        np.zeros(count, np.int16),
        np.arange(count),
        np.array(digests, np.uint64),
        np.ones(count, np.bool_),
        (facts,),
    )


def test_held_out_answers_are_scored_one_by_one_as_a_naive_float64_reference_does(build: Build):
    data = chat_data([3, 13, 7, 2, 12, 9], [1, 2, 3, 4, 5, 6])
    sizes = np.array([0] * 6 + [1, 2, 3] * 18, dtype=np.int32)
    found = score(build(), HeldOutChat.of(data, np.arange(6), None), sizes, bos=0)
    model = build().double()
    for row in range(6):
        ids, mask = data.conversation(row)
        tokens = torch.from_numpy(ids.astype(np.int64))[None]
        with torch.no_grad():
            logits = model(tokens[:, :-1], torch.zeros_like(tokens[:, :-1])).double()
        log_p = torch.log_softmax(logits, -1)[0].gather(-1, tokens[0, 1:, None])[:, 0].numpy()
        learnt = mask[1:]
        spelled = sizes[ids[1:]]
        # At most 12 float32 losses near ln 60, each rounded a few times by a model of two layers.
        assert found["nats"][row] == pytest.approx(-log_p[learnt].sum(), rel=1e-5)
        assert found["text_nats"][row] == pytest.approx(-log_p[learnt & (spelled > 0)].sum(), rel=1e-5)
        assert found["targets"][row] == learnt.sum()
        assert found["bytes"][row] == spelled[learnt].sum()
    told = summary(found)
    bits = found["text_nats"].sum() / math.log(2) / found["bytes"].sum()
    assert told["bits_per_byte"] == pytest.approx(bits, rel=1e-12)
    assert told["conversations"] == 6


def test_padding_moves_no_score_beyond_rounding(build: Build):
    data = chat_data([3, 13, 7], [1, 2, 3])
    sizes = np.ones(VOCABULARY, dtype=np.int32)
    together = score(build(), HeldOutChat.of(data, np.arange(3), None), sizes, bos=0)["nats"]
    alone = [score(build(), HeldOutChat.of(data, np.array([i]), None), sizes, bos=0)["nats"][0] for i in range(3)]
    np.testing.assert_allclose(together, alone, rtol=1e-6)


def test_each_text_is_measured_once_and_a_limit_takes_them_evenly():
    data = chat_data([3] * 10, [1, 2, 1, 3, 4, 2, 5, 6, 7, 8])
    assert HeldOutChat.of(data, np.arange(10), None).numbers.tolist() == [0, 1, 3, 4, 6, 7, 8, 9]
    assert HeldOutChat.of(data, np.arange(10), 4).numbers.tolist() == [0, 3, 6, 8]
