"""Deterministic algorithms are required as torch's own switch requires them, without its compiler."""

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from paribus.data.order import Order
from paribus.model.backbone import Backbone
from paribus.optim.config import OptimiserConfig
from paribus.optim.groups import build_optimisers
from paribus.optim.schedule import Moment
from paribus.train.determinism import fill_allocated_memory, set_deterministic
from paribus.train.step import update
from tests.shared import process_as_it_was


def test_an_operation_without_a_deterministic_algorithm_is_refused_while_they_are_required():
    x, index = torch.zeros(3), torch.tensor([0])
    set_deterministic(True)
    assert torch.are_deterministic_algorithms_enabled()
    assert not torch.is_deterministic_algorithms_warn_only_enabled()
    with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
        x.put_(index, torch.ones(1))
    set_deterministic(False)
    assert not torch.are_deterministic_algorithms_enabled()
    assert x.put_(index, torch.ones(1)).tolist() == [1, 0, 0]


def loads_the_compiler(statement: str) -> bool:
    code = f"import sys, torch\n{statement}\nsys.exit('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return bool(done.returncode)


def test_requiring_them_loads_no_compiler():
    assert not loads_the_compiler("from paribus.study import prepare_process, spec\nprepare_process(spec.Execution())")


def test_torch_s_own_switch_would_load_it():
    assert loads_the_compiler("torch.use_deterministic_algorithms(True)")


ARMS = (
    {"output_map": {"name": "xsa"}, "routing": {"name": "role-decoupled", "blocks": 2}},
    {"value_map": {"name": "value-embedding"}, "mask": {"name": "document"}},
)


@pytest.mark.parametrize("arm", ARMS, ids=["kernels", "operators"])
def test_nothing_is_read_before_it_is_written(build: Callable[..., Backbone], order: Order, arm: object):
    def trained(filled: bool) -> dict[str, Tensor]:
        set_deterministic(True)
        fill = torch.utils.deterministic
        assert not fill.fill_uninitialized_memory  # pyright: ignore[reportAttributeAccessIssue] - a property of the module
        if filled:
            fill_allocated_memory(True)
            assert torch.empty(1 << 12).isnan().all()
        model = build(arm)
        optimisers = build_optimisers(model, OptimiserConfig())
        for step in range(3):
            update(model, optimisers, order.batch(step), step, Moment(), 3)
        return dict(model.named_parameters())

    with process_as_it_was():
        left, right = trained(False), trained(True)
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)
