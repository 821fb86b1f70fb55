"""Graphs on disk: another process finds them without tracing, and takes none for a model or source that is not its."""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from paribus.model.lawbench import LawBench
from paribus.train import kept_graphs
from paribus.train.kept_graphs import describe, find, is_refused, keep, refuse

SHAPE = (2, 12)
IDEA = """from torch import nn
SCALE = {scale}
class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = 2.0
    def forward(self, y, values, document):
        return y * (SCALE * self.factor)
"""
PROLOGUE = """
import json
import sys
import numpy as np
import torch
from torch._dynamo.utils import counters
from paribus.data.order import Batch
from paribus.model.lawbench import LawBench, wake
from paribus.seeds import generator
from paribus.train.compiling import compiled_losses
from paribus.train.step import Consumed, token_losses

sys.path.insert(0, {folder!r})
import idea

torch.set_num_threads(1)
bench = LawBench(layers=1)
shape = (2, 12)
tokens = generator("tests", "kept").integers(0, bench.config.vocabulary_size, shape)
zeros = np.zeros(shape, np.int32)
batch = Batch(tokens, np.roll(tokens, -1, 1), np.ones(shape, np.float32), zeros, zeros.astype(np.int16))
consumed = Consumed.from_batch(batch, torch.device("cpu"))
losses = compiled_losses()

def made():
    model = bench.model({{}})
    wake(model, [name for name, _ in model.named_parameters()], "tests")
    model.layers[0].attention.output_map = idea.Scaled()
    return model

def computed(model, consumed=consumed):
    model.zero_grad()
    found = losses(model, consumed)
    found.sum().backward()
    gradients = [p.grad.double().sum().item() for p in model.parameters()]
    off = float((found - token_losses(model, consumed)).abs().max().detach())
    return {{"off": off, "traced": counters["stats"]["unique_graphs"],
             "bits": [found.detach().double().sum().item(), *gradients]}}
"""
ONE_MODEL = """
print(json.dumps([computed(made())]))
"""
TWO_SHAPES = """
print(json.dumps([computed(made()), computed(made()), computed(made(), consumed.rows(0, 1))]))
"""
CHANGED_MODELS = """
whole, otherwise, replaced = made(), made(), made()
found = [computed(model) for model in (whole, otherwise, replaced)]
otherwise.layers[0].attention.output_map.factor = 3.0
own = replaced.layers[0].attention.output_map.forward
replaced.layers[0].attention.output_map.forward = lambda y, values, document: 2 * own(y, values, document)
print(json.dumps([*found, computed(otherwise), computed(replaced)]))
"""
ROUNDING = 2.0**-20
"""of a loss of a few nats, summed in another order over 12 positions"""


def test_another_process_finds_the_graph_and_takes_it_for_nothing_else(tmp_path: Path):
    def said(script: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-c", PROLOGUE.format(folder=str(tmp_path)) + script],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "graphs")},
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return json.loads(done.stdout)

    (tmp_path / "idea.py").write_text(IDEA.format(scale=0.5), encoding="utf-8")
    first = said(TWO_SHAPES)
    assert [each["traced"] for each in first] == [1, 1, 2]
    again = said(CHANGED_MODELS)
    assert [each["traced"] for each in again] == [0, 0, 0, 1, 2]
    assert [each["bits"] for each in again[:3]] == [first[0]["bits"]] * 3
    assert again[3]["bits"] != first[0]["bits"] != again[4]["bits"]
    # A constant of a module is in no function, hence in no guard.
    (tmp_path / "idea.py").write_text(IDEA.format(scale=0.75), encoding="utf-8")
    other = said(ONE_MODEL)
    assert other[0]["traced"] == 1
    assert other[0]["bits"] != first[0]["bits"]
    assert max(each["off"] for each in (*first, *again, *other)) < ROUNDING
    # A file that was cut off is one that is not there.
    files = list((tmp_path / "graphs" / "whole").glob("*.graph"))
    assert len(files) == 3
    for path in files:
        path.write_bytes(path.read_bytes()[:-1])
        assert find(path.stem, tmp_path / "graphs") is None


def described(model: nn.Module, dtype: torch.dtype = torch.int64, settings: str = "") -> str | None:
    return describe(model, {"tokens": torch.zeros(SHAPE, dtype=dtype)}, settings)


def made() -> nn.Module:
    return LawBench(layers=1).model({"output_map": {"name": "xsa"}})


def set_strength(model: nn.Module) -> None:
    vars(model.get_submodule("layers.0.attention.output_map"))["strength"] = 0.5


def freeze(model: nn.Module) -> None:
    model.get_submodule("layers.0.attention").get_parameter("query").requires_grad_(False)


def halve(model: nn.Module) -> None:
    model.bfloat16()


def evaluate(model: nn.Module) -> None:
    model.eval()


def recompute(model: nn.Module) -> None:
    vars(model)["recompute"] = True


def replace_a_module(model: nn.Module) -> None:
    model.get_submodule("layers.0.attention").output_map = nn.Identity()


@pytest.mark.parametrize("change", [set_strength, freeze, halve, evaluate, recompute, replace_a_module])
def test_a_description_holds_what_a_graph_depends_on(change: Callable[[nn.Module], None]):
    model = made()
    before = described(model)
    assert before is not None
    assert before == described(made())
    change(model)
    assert described(model) not in (before, None)


def test_a_description_holds_what_it_computes_on_and_with(monkeypatch: pytest.MonkeyPatch):
    model = made()
    different = [described(model), described(model, torch.int32), described(model, settings="other")]
    with torch.no_grad():
        different.append(described(model))
    with torch.autocast("cpu", torch.bfloat16):
        different.append(described(model))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    different.append(described(model))
    assert None not in different
    assert len(set(different)) == len(different)


def hook(model: nn.Module) -> None:
    model.get_submodule("layers.0.mlp").register_forward_hook(lambda *_: None)


def watch(model: nn.Module) -> None:
    model.get_submodule("layers.0.mlp").forward = lambda x: x


def hold_a_tensor(model: nn.Module) -> None:
    model.get_submodule("layers.0.mlp").kept = torch.zeros(2)


def make_one_here(model: nn.Module) -> None:
    class Local(nn.Identity):
        pass

    model.get_submodule("layers.0.attention").output_map = Local()


@pytest.mark.parametrize("change", [hook, watch, hold_a_tensor, make_one_here])
def test_what_is_more_than_values_is_not_described(change: Callable[[nn.Module], None]):
    model = made()
    change(model)
    assert described(model) is None


def test_a_package_changes_with_any_of_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "kept_idea").mkdir()
    (tmp_path / "kept_idea" / "__init__.py").write_text("from torch import nn\nclass Idea(nn.Identity): ...\n")
    (tmp_path / "kept_idea" / "numbers.py").write_text("SCALE = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("kept_idea")
    model = made()
    model.get_submodule("layers.0.attention").output_map = module.Idea()
    before = described(model)
    (tmp_path / "kept_idea" / "numbers.py").write_text("SCALE = 2\n")
    kept_graphs._sources.cache_clear()
    assert described(model) not in (before, None)
    monkeypatch.setattr(module.Idea, "__module__", "kept_nowhere")
    assert described(model) is None  # its sources are nowhere to be found


def test_nothing_is_found_where_nothing_was_kept(tmp_path: Path):
    assert find("00", tmp_path) is None
    (tmp_path / "whole").mkdir()
    for content in (b"", b"\n", b"{}\n", b'{"body": "", "sources": {}}\nx'):
        (tmp_path / "whole" / "00.graph").write_bytes(content)
        assert find("00", tmp_path) is None


class Saved:
    """As `aot_compile` returns it, of a graph traced from the named modules."""

    def __init__(self, *modules: str) -> None:
        self.modules = modules

    def source_info(self) -> SimpleNamespace:
        return SimpleNamespace(inlined_sources=[SimpleNamespace(module=module) for module in self.modules])

    def save_compiled_function(self, path: str) -> None:
        Path(path).write_bytes(b"graph")


def kept(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("whole/*")}


def test_those_that_were_not_used_for_longest_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kept_graphs, "MOST", 2)
    for age, name in enumerate(("c", "b", "a")):
        keep(Saved("paribus.model.prenorm", "torch.nn"), name, tmp_path)
        written = tmp_path / "whole" / f"{name}.graph"
        assert written.exists()
        os.utime(written, (age, age))
    assert kept(tmp_path) == {"b.graph", "a.graph"}


def test_nothing_is_kept_of_sources_that_cannot_be_found(tmp_path: Path):
    keep(Saved("kept_nowhere.idea"), "a", tmp_path)
    assert kept(tmp_path) == set()


def test_what_was_refused_stays_so(tmp_path: Path):
    assert not is_refused("a", tmp_path)
    refuse("a", tmp_path)
    assert is_refused("a", tmp_path)
    assert not is_refused("b", tmp_path)
