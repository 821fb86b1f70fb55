from collections.abc import Callable

import pytest
import torch

from paribus.data.order import Order
from paribus.errors import StudyFolderError
from paribus.model.prenorm import Prenorm
from paribus.optim.config import OptimiserConfig, ScheduleConfig
from paribus.train.loop import RunLength, StepFinished, train
from paribus.train.state import TrainState

Build = Callable[..., Prenorm]
LENGTH = RunLength(6 * 96, 96)
ARMS = [{}, {"routing": {"name": "role-decoupled", "blocks": 2}, "output_map": {"name": "xsa"}}]


def fresh(build: Build, arm: dict) -> TrainState:
    return TrainState.fresh(build(arm), OptimiserConfig(matrix_weight_decay=0.01))


def run(state: TrainState, order: Order, until: int) -> list[float]:
    losses = []
    for event in train(state, order, LENGTH, ScheduleConfig(), 4):
        if isinstance(event, StepFinished):
            losses.append(event.loss_nats_per_token)
            if event.step == until:
                break
    return losses


@pytest.mark.parametrize("arm", ARMS, ids=["standard", "role-decoupled with xsa"])
@pytest.mark.parametrize("stop", [1, 4])
def test_a_restored_run_continues_bit_for_bit_as_if_never_interrupted(build: Build, order: Order, arm: dict, stop: int):
    uninterrupted, first = fresh(build, arm), fresh(build, arm)
    losses = run(uninterrupted, order, LENGTH.steps)
    assert run(first, order, stop) == losses[:stop]
    second = fresh(build, arm)
    second.restore(first.to_files())
    assert second.step == stop
    assert second.digest_hex() == first.digest_hex()
    assert run(second, order, LENGTH.steps) == losses[stop:]
    assert second.to_files() == uninterrupted.to_files()


def test_a_state_written_read_and_written_again_is_the_same_file(build: Build, order: Order):
    state, other = fresh(build, ARMS[1]), fresh(build, ARMS[1])
    run(state, order, 2)
    other.restore(state.to_files())
    assert other.to_files() == state.to_files()


def test_a_restored_state_shares_no_memory_with_the_files(build: Build, order: Order):
    state, other = fresh(build, {}), fresh(build, {})
    run(state, order, 2)
    files = state.to_files()
    kept = dict(files)
    other.restore(files)
    run(other, order, 4)
    assert files == kept


@pytest.mark.parametrize(("saved", "into"), [(0, 1), (1, 0)])
def test_a_checkpoint_of_an_arm_with_other_parameters_is_refused(build: Build, saved: int, into: int):
    with pytest.raises(StudyFolderError, match=r"first difference: routing\.attention\.0\.key_gain"):
        fresh(build, ARMS[into]).restore(fresh(build, ARMS[saved]).to_files())


def test_a_checkpoint_with_another_shape_is_refused_and_changes_nothing(build: Build):
    files = fresh(build, {}).to_files()
    other = build({})
    # A gain of one feature would broadcast over all of them.
    other.output_norm.gain = torch.nn.Parameter(torch.ones(1))
    smaller = TrainState.fresh(other, OptimiserConfig()).to_files()
    state = fresh(build, {})
    with pytest.raises(StudyFolderError, match=r"first difference: output_norm\.gain"):
        state.restore(smaller)
    assert state.to_files() == files


def test_the_digest_is_sixteen_hexadecimal_digits_for_either_sign(build: Build):
    state = fresh(build, {})
    assert state.digest_hex() == "0" * 16
    state.digest = torch.tensor(-1)
    assert state.digest_hex() == "f" * 16
