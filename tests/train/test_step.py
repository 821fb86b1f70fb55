from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from paribus.data.order import Batch, Order
from paribus.model.backbone import Backbone
from paribus.optim.clipping import gradient_norm
from paribus.optim.config import OptimiserConfig
from paribus.optim.groups import build_optimisers
from paribus.optim.schedule import Moment
from paribus.seeds import stream_key
from paribus.train import step as step_module
from paribus.train.step import Consumed, batch_digest, token_losses, update

Build = Callable[..., Backbone]
CPU = torch.device("cpu")
U32, U64 = 2.0**-24, 2.0**-53


@pytest.fixture(scope="module")
def batch(order: Order) -> Batch:
    """A batch of several documents a row, some of whose targets do not count."""
    found = order.batch(0)
    assert 0 < found.weight.mean() < 1
    assert found.document.max() > 0
    return found


def gradients(model: nn.Module, batch: Batch, micro_batch_rows: int) -> tuple[float, int, dict[str, Tensor]]:
    """(loss, digest, gradients): an update of no optimiser leaves the gradients where they are."""
    loss, digest, *_ = update(model, [], batch, 0, Moment(), micro_batch_rows)
    return float(loss), int(digest), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def test_the_reported_loss_is_the_weighted_mean_over_every_position_of_the_batch(build: Build, batch: Batch):
    model = build()
    with torch.no_grad():
        logits = model(torch.from_numpy(batch.tokens), torch.from_numpy(batch.document).long()).double()
    log_p = torch.log_softmax(logits, -1).gather(-1, torch.from_numpy(batch.targets)[..., None])[..., 0]
    weight = torch.from_numpy(batch.weight).double()
    # The loss sums 96 float32 numbers of about ln 300 = 5.7, each rounded once or twice before.
    for rows in (1, 4, 6):
        loss, _, _ = gradients(model, batch, rows)
        assert loss == pytest.approx(float(-(log_p * weight).sum() / weight.sum()), rel=(96 + 4) * U32)


@pytest.mark.parametrize("clip", [None, 0.01])
def test_the_size_of_a_gradient_is_that_of_before_it_was_clipped(build: Build, batch: Batch, clip: float | None):
    reference, model = build(), build()
    gradients(reference, batch, 6)
    optimisers = build_optimisers(model, OptimiserConfig())
    done = update(model, optimisers, batch, 0, Moment(), 6, gradient_clip_norm=clip)
    norms = [float(gradient_norm([parameter])) for parameter in reference.parameters()]
    expected = sum(norms) if clip is None else float(gradient_norm(reference.parameters()))
    # Sums of some thousand squares in float32 in an order of torch's own: 1e-5 is more than they lose.
    assert float(done.gradient_size) == pytest.approx(expected, rel=1e-5)
    assert (done.gradient_norm is None) == (clip is None)


@pytest.mark.parametrize("clip", [None, 0.01])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_one_value_of_a_gradient_that_is_not_finite_makes_its_size_not_finite(
    build: Build, batch: Batch, clip: float | None, value: float
):
    model = build()

    def poisoned(gradient: Tensor) -> Tensor:
        found = gradient.clone()
        found.view(-1)[3] = value
        return found

    model.get_parameter("layers.1.attention.key").register_hook(poisoned)
    optimisers = build_optimisers(model, OptimiserConfig())
    done = update(model, optimisers, batch, 0, Moment(), 6, gradient_clip_norm=clip)
    assert bool(done.loss.isfinite())
    assert not bool(done.gradient_size.isfinite())


def test_the_loss_is_that_of_the_weights_before_the_update(build: Build, batch: Batch):
    model = build()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    optimiser.param_groups[0]["base_lr"] = 0.5
    expected, _, _ = gradients(build(), batch, 6)
    first, *_ = update(model, [optimiser], batch, 0, Moment(), 6)
    second, *_ = update(model, [optimiser], batch, 1, Moment(), 6)
    assert float(first) == expected
    assert float(second) < float(first)
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("rows", [1, 2, 4, 100])
def test_micro_batches_add_up_to_the_gradient_and_the_digest_of_the_whole_batch(build: Build, batch: Batch, rows: int):
    _, digest, whole = gradients(build(), batch, 6)
    _, split_digest, split = gradients(build(), batch, rows)
    assert split_digest == digest
    assert set(split) == set(whole)
    for name, gradient in whole.items():
        # The same 96 terms a number in another order; no term exceeds a few times the largest sum.
        assert (split[name] - gradient).abs().max() <= 8 * 96 * U32 * gradient.abs().max()


def test_the_gradient_is_that_of_the_mean_not_a_mean_of_micro_batch_means(build: Build, batch: Batch):
    """Rows whose targets count differently often: a mean of means would weigh them alike."""
    weight = batch.weight.copy()
    weight[0] = 0.0
    weight[0, 0] = 1.0
    uneven = replace(batch, weight=weight)
    _, _, whole = gradients(build(), uneven, 6)
    _, _, split = gradients(build(), uneven, 1)
    for name, gradient in whole.items():
        assert (split[name] - gradient).abs().max() <= 8 * 96 * U32 * gradient.abs().max()


def test_positions_without_weight_give_no_gradient(build: Build, batch: Batch):
    elsewhere = np.where(batch.weight == 0, 5, batch.targets)
    _, _, one = gradients(build(), batch, 6)
    _, _, two = gradients(build(), replace(batch, targets=elsewhere), 6)
    assert all(torch.equal(gradient, two[name]) for name, gradient in one.items())


@pytest.mark.parametrize("rows", [1, 4])
def test_the_norm_that_clips_does_not_depend_on_micro_batches_beyond_the_gradients_own_rounding(
    build: Build, batch: Batch, rows: int
):
    norms = [update(build(), [], batch, 0, Moment(), r, gradient_clip_norm=0.1).gradient_norm for r in (6, rows)]
    assert norms[0] is not None
    assert norms[1] is not None
    assert float(norms[0]) > 0.1
    # As the gradients themselves do (see above).
    assert float(norms[1]) == pytest.approx(float(norms[0]), rel=8 * 96 * U32)


def test_the_whole_accumulated_gradient_is_clipped_before_the_step(build: Build, batch: Batch):
    model, plain = build(), build()
    gradients(plain, batch, 6)
    whole = gradient_norm(plain.parameters())
    done = update(model, [], batch, 0, Moment(), 2, gradient_clip_norm=0.01)
    assert done.gradient_norm is not None
    assert float(done.gradient_norm) == pytest.approx(float(whole), rel=8 * 96 * U32)
    assert float(gradient_norm(model.parameters())) == pytest.approx(0.01, rel=8 * U32)
    stepped = build()
    optimiser = torch.optim.SGD(stepped.parameters(), lr=1.0)
    optimiser.param_groups[0]["base_lr"] = 1.0
    update(stepped, [optimiser], batch, 0, Moment(), 6, gradient_clip_norm=0.01)
    moved = [(a - b).detach() for a, b in zip(stepped.parameters(), build().parameters(), strict=True)]
    # A weight near 1 is rounded by 2^-25 where the step is added: 3,000 weights, each far below the step's own size.
    assert float(torch.stack([m.double().norm() for m in moved]).norm()) == pytest.approx(0.01, rel=1e-3)


def test_without_clipping_there_is_no_norm_and_one_that_is_never_reached_changes_no_bit(build: Build, batch: Batch):
    found = []
    for clip in (None, 1e6):
        model = build()
        optimisers = build_optimisers(model, OptimiserConfig())
        done = update(model, optimisers, batch, 0, Moment(), 4, gradient_clip_norm=clip)
        assert (done.gradient_norm is None) == (clip is None)
        found.append([p.detach().clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def digest_of(batch: Batch, step: int = 0) -> int:
    return int(batch_digest(Consumed.from_batch(batch, CPU), step, 0))


def swapped(array: np.ndarray, *, axis: int = 0) -> np.ndarray:
    """The first two entries of an axis trade places."""
    return np.take(array, [1, 0, *range(2, array.shape[axis])], axis=axis)


@pytest.mark.parametrize(
    "change",
    [
        lambda b: replace(b, tokens=b.tokens + (np.indices(b.tokens.shape).sum(0) == 0)),
        lambda b: replace(b, targets=b.targets + (np.indices(b.tokens.shape).sum(0) == 0)),
        lambda b: replace(b, weight=(1 - b.weight).astype(np.float32)),
        lambda b: replace(b, document=b.document + np.int32(1)),
        lambda b: replace(b, tokens=b.targets, targets=b.tokens),
        lambda b: replace(b, tokens=swapped(b.tokens, axis=1)),
        lambda b: Batch(*(swapped(getattr(b, f)) for f in ("tokens", "targets", "weight", "document", "slice"))),
    ],
    ids=["a token", "a target", "weights", "documents", "fields trade", "positions trade", "rows trade"],
)
def test_the_digest_changes_with(batch: Batch, change: Callable[[Batch], Batch]):
    assert digest_of(change(batch)) != digest_of(batch)


def test_the_digest_of_two_steps_changes_when_they_trade_batches(order: Order):
    first, second = order.batch(0), order.batch(1)
    assert digest_of(first, 0) + digest_of(second, 1) != digest_of(second, 0) + digest_of(first, 1)


def splitmix(x: int) -> int:
    """The finaliser on unsigned 64-bit integers."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


def test_the_digest_is_the_one_of_plain_unsigned_integers(batch: Batch):
    """Folders keep digests, so the function may not depend on how a device wraps or shifts."""
    stride, key, total = 0x9E3779B97F4A7C15, stream_key("batch digest", 3) >> 1, 0
    fields = (batch.tokens, batch.targets, batch.weight.view(np.int32), batch.document)
    for row in range(len(batch.tokens)):
        hashed = 0
        for salt, field in enumerate(fields):
            numbers = enumerate(field[row].tolist(), start=1)
            hashed = splitmix((hashed + salt + sum(splitmix((n + t * stride) % 2**64) for t, n in numbers)) % 2**64)
        total += splitmix((hashed + splitmix((row * stride + key) % 2**64)) % 2**64)
    assert digest_of(batch, 3) % 2**64 == total % 2**64


def test_rows_that_trade_places_on_the_way_to_the_model_change_the_digest(
    build: Build, batch: Batch, monkeypatch: pytest.MonkeyPatch
):
    _, digest, _ = gradients(build(), batch, 6)
    original = Consumed.from_batch

    def faulty(batch: Batch, device: torch.device) -> Consumed:
        whole = original(batch, device)
        swap = [1, 0, *range(2, len(whole.tokens))]
        return Consumed(*(t[swap] for t in (whole.tokens, whole.targets, whole.weight, whole.document)))

    monkeypatch.setattr(step_module.Consumed, "from_batch", faulty)
    assert gradients(build(), batch, 6)[1] != digest


def test_the_digest_is_taken_of_the_very_tensors_that_enter_the_model(
    build: Build, batch: Batch, monkeypatch: pytest.MonkeyPatch
):
    model, digested, entered = build(), [], []
    original = batch_digest

    def watching(consumed: Consumed, step: int, first_row: int) -> Tensor:
        digested.append((consumed.tokens, consumed.document))
        return original(consumed, step, first_row)

    monkeypatch.setattr(step_module, "batch_digest", watching)
    model.register_forward_pre_hook(lambda _, inputs: entered.append(inputs))
    gradients(model, batch, 4)
    assert len(entered) == len(digested) == 2
    assert all(a is b for seen, used in zip(digested, entered, strict=True) for a, b in zip(seen, used, strict=True))


def test_token_losses_are_float32_whatever_the_models_logits_are(batch: Batch):
    class Half(nn.Module):
        def forward(self, tokens: Tensor, document: Tensor) -> Tensor:
            del document
            return torch.zeros(*tokens.shape, 300, dtype=torch.bfloat16)

    losses = token_losses(Half(), Consumed.from_batch(batch, CPU))
    assert losses.dtype == torch.float32
    # ln 300 in float32.
    assert (losses - np.log(300)).abs().max() <= 4 * 8 * U32
