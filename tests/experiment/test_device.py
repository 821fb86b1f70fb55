"""Where cells are trained: asked for, found, part of their identity."""

import sys
from pathlib import Path

import pytest
import torch

from paribus.cli import main
from paribus.errors import ExperimentFileError
from paribus.experiment.plan import ArmAtScale, cells, device_of
from paribus.experiment.spec import Execution, Experiment

HERE = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")


def with_device(text: str, device: str) -> str:
    return text.replace("[execution]", f'[execution]\ndevice = "{device}"')


def digests(resolved: tuple[Experiment, dict[tuple[str, str], ArmAtScale]]) -> set[str]:
    return {cell.digest for cell in cells(*resolved, "corpus")}


@HERE
def test_cuda_without_a_gpu_is_refused_when_the_file_is_resolved(resolve, tiny: str):
    with pytest.raises(ExperimentFileError, match=r"execution\.device: there is no CUDA device here") as caught:
        resolve(with_device(tiny, "cuda"))
    assert 'device = "auto" or "cpu"' in caught.value.remedy


@HERE
@pytest.mark.parametrize("command", ["plan", "check", "run"])
def test_every_command_that_would_train_refuses_it_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tiny: str, command: str
):
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(with_device(tiny, "cuda"), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["paribus", command, "study.toml"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == ExperimentFileError.exit_code
    assert capsys.readouterr().err.startswith("error: study.toml: execution.device: there is no CUDA device here")
    assert [path.name for path in tmp_path.iterdir()] == ["study.toml"]


def test_auto_takes_cuda_where_there_is_one(monkeypatch: pytest.MonkeyPatch):
    for there, found in ((False, "cpu"), (True, "cuda")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert device_of(Execution()) == found
        assert device_of(Execution(device="cpu")) == "cpu"


def test_the_device_that_was_found_is_part_of_a_cells_identity_not_how_it_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, resolve, tiny: str
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    on_cpu = digests(resolve(with_device(tiny, "auto")))
    assert on_cpu == digests(resolve(with_device(tiny, "cpu"))) == digests(resolve(tiny))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    on_gpu = digests(resolve(with_device(tiny, "auto")))
    assert on_gpu == digests(resolve(with_device(tiny, "cuda")))
    assert not on_cpu & on_gpu, "sums of another order are another cell"


def test_an_unknown_device_is_refused_with_the_valid_ones(resolve, tiny: str):
    with pytest.raises(ExperimentFileError, match=r"execution\.device: not a valid value"):
        resolve(with_device(tiny, "gpu"))


def test_bfloat16_is_refused_on_a_gpu_that_does_not_multiply_in_it(monkeypatch: pytest.MonkeyPatch, resolve, tiny: str):
    text = tiny.replace("[base]", '[base]\nmodel.compute = "bfloat16"', 1) if "model =" not in tiny else tiny
    text = text.replace("model = {", 'model = { compute = "bfloat16",')
    resolve(text)  # a CPU can
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "an old one")
    for supported in (True, False):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda found=supported, **_: found)
        if supported:
            resolve(text)
            continue
        with pytest.raises(ExperimentFileError, match=r"model\.compute: the device of arm \w+ does not") as refused:
            resolve(text)
        assert refused.value.received == "compute = 'bfloat16' on an old one"
        resolve(tiny)
