"""The kernels in Triton: every claim about reads and exclusion in Triton's interpreter, on the CPU, and what the
compiler makes of them for a GPU. Triton decides when it is imported whether it interprets: each has its own process."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from paribus.kernels import compiler, gpu

HERE = Path(__file__).parent
needs_triton = pytest.mark.skipif(
    find_spec("triton") is None, reason="Triton is not installed: it has builds for Linux on x86-64 alone"
)
AGREES = "test_forward_and_all_gradients_agree_with_the_loop_written_from_the_equation"
LEFT_OUT = {
    "test_depth_read.py": (
        # The interpreter takes some tenths of a second for a read: ends and middles stand for the rest.
        *(f"{AGREES}[interpreted-{m}-{k}]" for m in (1, 3) for k in (3, 4, 6, 7, 8)),
        f"{AGREES}[interpreted-2",
        "test_widths_that_are_no_powers_of_two_agree[interpreted-52]",
        "test_sources_of_small_and_large_rms_agree",  # one read has both in `interpreted.py`
        *(f"test_the_widths_of_real_models_agree[interpreted-{width}]" for width in (576, 768, 1024)),
        *(f"test_many_sources_and_queries_agree[interpreted-{sizes}]" for sizes in ("300-1", "33-1")),
        # Of autocast, sinks and threads, whatever computes.
        "test_autocast_changes_no_bit_of_a_read_or_of_its_gradients",
        "test_a_backward_pass_that_was_broken_off_leaves_nothing_to_the_next",
        "test_the_number_of_threads_changes_no_bit_of_the_compiled_read",
        # float64, which operators compute.
        "test_gradients_are_the_derivatives_of_the_forward_pass",
        "test_gradients_that_reads_add_up_in_a_sink_are_those_that_autograd_adds_up",
        "test_more_sources_than_any_fixed_cap_are_all_read",
    ),
    "test_normed_read.py": (
        *(f"test_it_agrees_with_the_equations_of_both[interpreted-{m}" for m in ("2-1", "5-2", "4-3")),
        "test_it_agrees_with_the_equations_of_both[interpreted-18-2-24",
        # Of threads, which Triton's interpreter has none of.
        "test_the_number_of_threads_changes_no_bit",
        # float64, which operators compute.
        "test_gradients_are_the_derivatives_of_the_forward_pass",
    ),
    "test_exclude_self.py": (
        # The interpreter cuts bfloat16 off where a GPU rounds; `interpreted.py` has claims for that.
        "test_bfloat16_values_and_outputs_of_any_size_give_finite_results",
        "test_the_removal_happens_in_float32_under_bfloat16_inputs",
        # float64, which operators compute.
        "test_gradients_are_the_derivatives_of_the_forward_pass_for_a_fixed_and_a_learned_strength",
    ),
}
"""claims that are not asked of the interpreter"""


def outside(command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TRITON_"))}
    environment |= {"OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(
        [sys.executable, *command],
        cwd=HERE.parents[1],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )


def assert_claims_hold(file: str, claims: str) -> None:
    left_out = [option for name in LEFT_OUT[file] for option in ("--deselect", f"tests/kernels/{file}::{name}")]
    # NumPy, which interprets, warns of quotients that a kernel's mask discards.
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore::RuntimeWarning", *left_out]
    asked = ["tests/kernels/" + file, f"tests/kernels/interpreted.py::{claims}"]
    said = outside(["-m", "pytest", *options, *asked], TRITON_INTERPRET="1")
    assert said.returncode == 0, said.stdout[-20_000:] + said.stderr
    assert "skipped" not in said.stdout


@needs_triton
def test_every_claim_about_reads_holds_of_the_kernels_in_triton():
    assert_claims_hold("test_depth_read.py", "TestReads")


@needs_triton
def test_every_claim_about_reads_through_their_norm_holds_of_the_kernels_in_triton():
    assert_claims_hold("test_normed_read.py", "TestNormedReads")


@needs_triton
def test_every_claim_about_exclusion_holds_of_the_kernels_in_triton():
    assert_claims_hold("test_exclude_self.py", "TestExclusion")


@needs_triton
def test_kernels_compile_for_a_gpu_with_wide_loads_and_next_to_no_spilled_registers(tmp_path: Path):
    """Without a GPU: two queries over nine sources of 1024 columns, on Hopper."""
    said = outside([str(HERE / "compiled_for_gpu.py")], TRITON_CACHE_DIR=str(tmp_path))
    assert said.returncode == 0, said.stderr
    kernels = {found["kernel"]: found for found in map(json.loads, said.stdout.splitlines())}
    read_bytes = {  # of one turn of a kernel's loops: rows, columns, bytes a number
        "_sum_forward": 1 * 1024 * 2 + 1 * 1024 * 4,
        "_read_forward": (4 + 2) * 1024 * 4,  # a tile, two queries
        "_read_backward": (12 + 12 + 2 + 2) * 1024 * 4,  # three tiles, what is added to, two queries, two gradients
        "_read_forward with norm": (4 + 2 + 2) * 1024 * 4,  # the gain, for each query
        "_read_backward with norm": (12 + 12 + 2 + 2 + 1) * 1024 * 4,  # the gain, once
        "_forward": 2 * 16 * 128 * 2,  # 16 tokens of v and y
        "_backward": 3 * 16 * 128 * 2,
    }
    assert set(kernels) == set(read_bytes)
    for name, found in kernels.items():
        assert found["wide_loads"] == read_bytes[name] / found["threads"] / 16, found
        # Of 255 registers two do not fit where the mixes are formed again beside all that is held.
        assert found["spilled_bytes"] <= (8 if name == "_read_backward with norm" else 0), found
        assert found["rounds_to_nearest"] == (name in ("_forward", "_backward")), found


def test_tensors_of_the_cpu_are_not_for_kernels_in_triton():
    assert not gpu.takes(torch.ones(4))
    assert not gpu.takes(torch.ones(4), None)


def test_only_contiguous_tensors_of_the_right_type_whose_first_number_is_aligned_count_as_dense():
    numbers = torch.ones(8, 8)
    assert gpu.dense(numbers, None, numbers[4:])
    assert not gpu.dense(numbers, numbers.T)
    assert not gpu.dense(numbers.bfloat16())
    assert gpu.dense(numbers.bfloat16(), types=gpu.NARROW)
    shifted = torch.ones(9)[1:]
    assert not gpu.dense(shifted)
    for awkward in (shifted, numbers.T, numbers.bfloat16().T):
        made = gpu.made_dense(awkward)
        assert torch.equal(made, awkward)
        assert gpu.dense(made, types=(awkward.dtype,))
    assert gpu.made_dense(numbers) is numbers


def test_a_device_on_which_the_kernels_do_not_run_is_told_once_and_left_to_operators():
    tried: list[torch.device] = []

    def trial(device: torch.device) -> None:
        tried.append(device)
        raise RuntimeError("no headers")

    with pytest.warns(UserWarning, match=r"PyTorch operators, which are slower: no headers"):
        assert not gpu.runs(trial, torch.device("cpu"))
    assert not gpu.runs(trial, torch.device("cpu"))
    assert len(tried) == 1
    assert gpu.runs(tried.append, torch.device("cpu"))


def test_the_record_names_triton_where_it_is_installed():
    said = compiler.in_use()
    assert (" on CUDA Triton " in said) == (find_spec("triton") is not None)
