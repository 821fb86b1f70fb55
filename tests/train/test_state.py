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


RECIPES = {
    "muon": OptimiserConfig(matrix_weight_decay=0.01),
    "nanochat": OptimiserConfig(
        matrix_update="nanochat",
        matrix_weight_decay=0.1,
        matrix_row_equilibration=True,
        matrix_unit_norm=True,
        embedding_betas=(0.8, 0.995),
        embedding_weight_decay=0.001,
        gradient_clip_norm=0.5,
    ),
    "adamw": OptimiserConfig(matrix_update="adamw", matrix_learning_rate=0.003, matrix_weight_decay=0.1),
}
MOVING = ScheduleConfig(
    place="ends", momentum_initial=0.8, momentum_warmup=0.5, momentum_final=0.9, weight_decay="cosine"
)
"""everything that a schedule can change"""


def fresh(build: Build, arm: dict, recipe: str = "muon") -> TrainState:
    return TrainState.fresh(build(arm), RECIPES[recipe])


def run(state: TrainState, order: Order, until: int, schedule: ScheduleConfig | None = None) -> list[float]:
    losses = []
    for event in train(state, order, LENGTH, schedule or ScheduleConfig(), 4):
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


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_restored_run_continues_bit_for_bit_under_every_update_and_a_schedule_of_everything(
    build: Build, order: Order, recipe: str
):
    uninterrupted, first = fresh(build, {}, recipe), fresh(build, {}, recipe)
    losses = run(uninterrupted, order, LENGTH.steps, MOVING)
    run(first, order, 3, MOVING)
    second = fresh(build, {}, recipe)
    second.restore(first.to_files())
    assert run(second, order, LENGTH.steps, MOVING) == losses[3:]
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


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("state.json", lambda c: c.replace(b'"step": 2', b'"step": 3')),
        ("state.json", lambda c: c[:-5]),
        ("state.json", lambda c: b"[]"),  # noqa: ARG005 - whatever was there
        ("state.safetensors", lambda c: c[:-5]),
        ("state.safetensors", lambda c: b""),  # noqa: ARG005
        ("state.safetensors", lambda c: b"\xff" * 8 + c[8:]),  # a header longer than any file
    ],
)
def test_a_damaged_state_is_refused_and_changes_nothing(
    build: Build, order: Order, name: str, damage: Callable[[bytes], bytes]
):
    saved, state = fresh(build, {}), fresh(build, {})
    run(saved, order, 2)
    before, files = state.to_files(), saved.to_files()
    with pytest.raises(StudyFolderError, match="the state in a checkpoint is damaged"):
        state.restore(files | {name: damage(files[name])})
    with pytest.raises(StudyFolderError, match="the state in a checkpoint is damaged"):
        state.restore({other: content for other, content in files.items() if other != name})
    assert state.to_files() == before


def test_a_state_of_an_earlier_version_has_no_checksum_and_is_restored(build: Build, order: Order):
    saved, state = fresh(build, {}), fresh(build, {})
    run(saved, order, 2)
    state.restore(saved.to_files() | {"state.json": b'{"format": 1, "step": 2}'})
    assert state.to_files() == saved.to_files()


def test_the_digest_is_sixteen_hexadecimal_digits_for_either_sign(build: Build):
    state = fresh(build, {})
    assert state.digest_hex() == "0" * 16
    state.digest = torch.tensor(-1)
    assert state.digest_hex() == "f" * 16
