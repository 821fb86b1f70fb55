from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paribus.data.frozen import FrozenCorpus
from paribus.data.order import Order
from paribus.data.updates import updates_of
from paribus.errors import DivergenceError
from paribus.model.backbone import Backbone
from paribus.optim.config import OptimiserConfig, ScheduleConfig
from paribus.optim.schedule import moment, multiplier
from paribus.train.loop import MilestoneReached, RunLength, StepFinished, train
from paribus.train.state import TrainState

Build = Callable[..., Backbone]
BATCH_TOKENS = 6 * 16
SCHEDULE = ScheduleConfig()


def events(state: TrainState, order: Order, length: RunLength) -> list[StepFinished | MilestoneReached]:
    return list(train(state, order, length, SCHEDULE, micro_batch_rows=6))


@pytest.fixture
def state(build: Build) -> TrainState:
    return TrainState.fresh(build(), OptimiserConfig())


@pytest.mark.parametrize(
    ("budget", "step"), [(1, 1), (BATCH_TOKENS - 1, 1), (BATCH_TOKENS, 1), (BATCH_TOKENS + 1, 2), (3 * BATCH_TOKENS, 3)]
)
def test_a_milestone_is_the_first_step_with_at_least_its_tokens(budget: int, step: int):
    length = RunLength(10 * BATCH_TOKENS, BATCH_TOKENS, (budget,))
    assert length.milestones() == {step: budget, 10: 10 * BATCH_TOKENS}


@given(batch=st.integers(1, 10**7), updates=st.integers(1, 10**7), short=st.integers(0, 10**7))
def test_a_budget_takes_the_fewest_whole_updates_that_hold_it_however_large(batch: int, updates: int, short: int):
    budget = updates * batch - short % batch  # the last update may be used in part
    assert updates_of(budget, batch) == RunLength(budget, batch).steps == updates


def test_a_run_reports_every_step_and_after_it_its_milestone(state: TrainState, order: Order):
    length = RunLength(4 * BATCH_TOKENS - 5, BATCH_TOKENS, (BATCH_TOKENS + 1,))
    found = events(state, order, length)
    assert [(type(e).__name__, e.step, e.tokens_seen) for e in found] == [
        ("StepFinished", 1, BATCH_TOKENS),
        ("StepFinished", 2, 2 * BATCH_TOKENS),
        ("MilestoneReached", 2, 2 * BATCH_TOKENS),
        ("StepFinished", 3, 3 * BATCH_TOKENS),
        ("StepFinished", 4, 4 * BATCH_TOKENS),
        ("MilestoneReached", 4, 4 * BATCH_TOKENS),
    ]
    milestones = [e for e in found if isinstance(e, MilestoneReached)]
    assert [(m.budget_tokens, m.final) for m in milestones] == [(BATCH_TOKENS + 1, False), (length.budget_tokens, True)]


def test_each_step_reports_the_multiplier_of_its_place_in_the_run(state: TrainState, order: Order):
    steps = [e for e in events(state, order, RunLength(4 * BATCH_TOKENS, BATCH_TOKENS)) if isinstance(e, StepFinished)]
    assert [e.learning_rate_multiplier for e in steps] == [multiplier(n, 4, SCHEDULE) for n in range(4)]
    last = multiplier(3, 4, SCHEDULE)
    assert all(g["lr"] == g["base_lr"] * last for o in state.optimisers for g in o.param_groups)


def test_each_update_is_made_at_its_moment_of_the_schedule(build: Build, order: Order):
    schedule = ScheduleConfig(
        place="ends", momentum_initial=0.5, momentum_warmup=0.5, momentum_final=0.8, weight_decay="cosine"
    )
    state = TrainState.fresh(build(), OptimiserConfig(matrix_weight_decay=0.1))
    seen = []
    for event in train(state, order, RunLength(4 * BATCH_TOKENS, BATCH_TOKENS), schedule, 6):
        if isinstance(event, StepFinished):
            (group,) = state.optimisers[0].param_groups
            seen.append((event.learning_rate_multiplier, group["lr"], group["momentum"], group["weight_decay"]))
    expected = [moment(step, 4, schedule) for step in range(4)]
    assert len({m.momentum(0.95) for m in expected}) == 4
    assert seen == [(m.learning_rate, 0.02 * m.learning_rate, m.momentum(0.95), 0.1 * m.weight_decay) for m in expected]


def test_the_gradients_norm_is_reported_only_where_gradients_are_clipped(build: Build, order: Order):
    length = RunLength(2 * BATCH_TOKENS, BATCH_TOKENS)
    for clip in (None, 1e-3):
        state = TrainState.fresh(build(), OptimiserConfig(gradient_clip_norm=clip))
        steps = [e for e in events(state, order, length) if isinstance(e, StepFinished)]
        if clip is None:
            assert [e.gradient_norm for e in steps] == [None, None]
        else:
            assert all(e.gradient_norm is not None and e.gradient_norm > clip for e in steps)


def test_a_state_that_stands_at_a_milestone_reports_it_again_before_the_next_step(state: TrainState, order: Order):
    length = RunLength(3 * BATCH_TOKENS, BATCH_TOKENS, (2 * BATCH_TOKENS,))
    for event in train(state, order, length, SCHEDULE, 6):
        if isinstance(event, MilestoneReached):
            break
    again = events(state, order, length)
    assert isinstance(again[0], MilestoneReached)
    assert [e.step for e in again] == [2, 3, 3]


def test_a_finished_state_reports_its_last_milestone_and_trains_no_further(state: TrainState, order: Order):
    length = RunLength(2 * BATCH_TOKENS, BATCH_TOKENS)
    events(state, order, length)
    before = state.to_files()
    again = events(state, order, length)
    assert [(type(e), e.step) for e in again] == [(MilestoneReached, 2)]
    assert state.to_files() == before


def test_the_loss_falls_on_a_corpus_of_few_words(state: TrainState, order: Order):
    losses = [
        e.loss_nats_per_token
        for e in events(state, order, RunLength(order.batches * 96, 96))
        if isinstance(e, StepFinished)
    ]
    assert losses[-1] < 0.9 * losses[0]


def test_a_loss_that_is_not_a_number_stops_the_run_naming_step_and_tokens(state: TrainState, order: Order):
    run = train(state, order, RunLength(4 * BATCH_TOKENS, BATCH_TOKENS), SCHEDULE, 6)
    next(run)
    with torch.no_grad():
        state.model.get_parameter("layers.1.mlp.down").fill_(torch.nan)
    with pytest.raises(DivergenceError, match=rf"became nan at step 2 \({2 * BATCH_TOKENS} tokens\)"):
        next(run)


def test_each_step_names_its_own_batch_and_together_they_are_the_running_digest(state: TrainState, order: Order):
    steps = [e for e in events(state, order, RunLength(4 * BATCH_TOKENS, BATCH_TOKENS)) if isinstance(e, StepFinished)]
    assert len({event.batch_digest for event in steps}) == 4
    assert f"{sum(int(event.batch_digest, 16) for event in steps) % 2**64:016x}" == state.digest_hex()


def test_the_running_digest_does_not_depend_on_micro_batches_or_arms(build: Build, order: Order):
    length, found = RunLength(3 * BATCH_TOKENS, BATCH_TOKENS), set()
    for rows, arm in ((6, {}), (2, {}), (6, {"routing": {"name": "role-decoupled", "blocks": 2}})):
        state = TrainState.fresh(build(arm), OptimiserConfig())
        list(train(state, order, length, SCHEDULE, rows))
        found.add(state.digest_hex())
    assert len(found) == 1


def test_the_running_digest_tells_another_seed_and_a_step_that_another_preceded(
    build: Build, order: Order, frozen: FrozenCorpus
):
    other = Order(frozen, 16, 6, study="study", scale="S", seed=1)
    length, found = RunLength(2 * BATCH_TOKENS, BATCH_TOKENS), set()
    for source in (order, other):
        state = TrainState.fresh(build(), OptimiserConfig())
        for event in train(state, source, length, SCHEDULE, 6):
            if isinstance(event, StepFinished):
                found.add(state.digest_hex())
    assert len(found) == 4


class _Watcher(torch.nn.Module):
    """A module that changes during a run: notes what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[int, int]] = []

    def at_step(self, step: int, steps: int) -> None:
        self.told.append((step, steps))

    def forward(self, y: torch.Tensor, *_: object) -> torch.Tensor:
        return y


def test_a_module_that_changes_during_a_run_is_told_before_each_update_where_the_run_stands(
    state: TrainState, order: Order
):
    watcher = _Watcher()
    state.model.get_submodule("layers.1.attention").set_submodule("output_map", watcher)
    length = RunLength(3 * BATCH_TOKENS, BATCH_TOKENS)
    run = train(state, order, length, SCHEDULE, 6)
    next(run)
    next(run)
    assert watcher.told == [(0, 3), (0, 3), (1, 3)]
    watcher.told.clear()
    events(state, order, length)  # a restart: told again with the step it stands at, before anything is measured
    assert watcher.told == [(2, 3), (2, 3)]
    watcher.told.clear()
    events(state, order, length)
    assert watcher.told == [(3, 3)]
