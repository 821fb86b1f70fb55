"""Deterministic algorithms are required as torch's own switch requires them, without its compiler."""

import subprocess
import sys

import pytest
import torch

from paribus.train.determinism import set_deterministic


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
