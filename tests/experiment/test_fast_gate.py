"""The gate of fast mode: what is compiled is held against float64, with the room that eager computation takes."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from paribus.errors import ExperimentFileError
from paribus.experiment.fast_gate import COMPILED, ROOM, ULP, Computed, compiled_gate, differences
from paribus.experiment.gate import Job
from paribus.experiment.gates import planned_gates
from paribus.train.step import Consumed, token_losses
from tests.experiment.conftest import Resolved

CPU = torch.device("cpu")


def wrong_losses(model: nn.Module, consumed: Consumed) -> Tensor:
    return token_losses(model, consumed) * (1 + 1e-5)


def wrong_gradients(model: nn.Module, consumed: Consumed) -> Tensor:
    """The losses themselves, with a gradient that is a ten-thousandth too large."""
    losses = token_losses(model, consumed)
    return losses + 1e-4 * (losses - losses.detach())


def no_number(model: nn.Module, consumed: Consumed) -> Tensor:
    return token_losses(model, consumed) * torch.nan


@pytest.mark.parametrize("name", ["xsa", "rd"])
def test_what_computes_the_same_passes_and_what_does_not_is_named(
    resolve: Callable[[str], Resolved], tiny: str, name: str
):
    arm = resolve(tiny)[1]["tiny", name]
    passed = compiled_gate("tiny/x", arm, "study", 4, CPU, compiled=token_losses)
    assert passed.passed
    assert passed.name == COMPILED
    for wrong in (wrong_losses, wrong_gradients, no_number):
        failed = compiled_gate("tiny/x", arm, "study", 4, CPU, compiled=wrong)
        assert not failed.passed
        assert f"{ROOM} allowed" in failed.detail
    assert "the gradient of" in compiled_gate("tiny/x", arm, "study", 4, CPU, compiled=wrong_gradients).detail


def computed(losses: float, gradient: float, scalar: float) -> Computed:
    gradients = {"matrix": torch.full((100,), 1.0), "scalar": torch.tensor([1.0]), "idle": torch.zeros(3)}
    exact = Computed(torch.full((10,), 2.0, dtype=torch.float64), {k: v.double() for k, v in gradients.items()})
    off = {"matrix": exact.gradients["matrix"] + gradient, "scalar": exact.gradients["scalar"] + scalar}
    return Computed(exact.losses + losses, {**exact.gradients, **off})


def test_a_scalar_that_eager_computation_hit_by_luck_may_be_off_as_far_as_tensors_usually_are():
    exact, eager = computed(0, 0, 0), computed(4 * ULP, 80 * ULP, 0)
    usual = 40 * ULP  # the middle of 80 and 0
    assert differences(exact, eager, computed(4 * ULP, 0, ROOM * usual))[0] == []
    faults, _ = differences(exact, eager, computed(4 * ULP, 0, 1.1 * ROOM * usual))
    assert len(faults) == 1
    assert faults[0].startswith("the gradient of scalar")
    assert differences(exact, eager, computed(1.01 * ROOM * 4 * ULP, 0, 0))[0][0].startswith("a loss is off")


def test_a_tensor_without_gradient_may_receive_one_that_moves_nothing_and_no_more():
    exact = computed(0, 0, 0)
    eager, fast = computed(0, ULP, 0), computed(0, ULP, 0)
    whole = ULP * 101**0.5
    for size, number in ((ROOM * whole / 2, 0), (ROOM * whole, 1)):
        gradients = {**fast.gradients, "idle": torch.full((3,), size, dtype=torch.float64)}
        assert len(differences(exact, eager, replace(fast, gradients=gradients))[0]) == number


def in_fast_mode(text: str) -> str:
    return text.replace("[execution]", '[execution]\nmode = "fast"')


def test_every_arm_of_a_study_in_fast_mode_is_compiled_before_it_is_trained(
    resolve: Callable[[str], Resolved], tiny: str
):
    def named(text: str) -> list[str]:
        jobs = [job for job in planned_gates(*resolve(text)) if isinstance(job, Job)]
        return [job.subject for job in jobs if job.name == COMPILED]

    assert named(tiny) == []
    assert named(in_fast_mode(tiny)) == ["tiny/standard", "tiny/xsa", "tiny/block", "tiny/rd"]


def test_fast_mode_without_a_cell_that_is_trained_twice_is_refused(resolve: Callable[[str], Resolved], tiny: str):
    with pytest.raises(ExperimentFileError, match=r"noise\.repeats") as refused:
        resolve(in_fast_mode(tiny).replace("repeats = 1", "repeats = 0"))
    assert refused.value.expected.startswith("1 or more")
