"""Fast mode: one graph of the whole model, the same up to rounding, and an error that says what cannot be compiled.

In processes of their own, since the shape checks of the tests cannot be compiled.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROLOGUE = """
import copy
import json
import numpy as np
import torch
from torch import nn
from torch._dynamo.utils import counters
from paribus.data.order import Batch
from paribus.experiment.fast_gate import _computed, differences
from paribus.model.lawbench import LawBench, wake
from paribus.optim.schedule import Moment
from paribus.seeds import generator
from paribus.train.compiling import CompilationError, compiled_losses
from paribus.train.step import Consumed, token_losses, update

torch.set_num_threads(1)
CPU = torch.device("cpu")

def batch(bench, rows):
    shape = (rows, 12)
    tokens = generator("tests", "compiling").integers(0, bench.config.vocabulary_size, shape)
    document = np.ascontiguousarray(np.broadcast_to(np.arange(12) // 5, shape), np.int32)
    return Batch(tokens, np.roll(tokens, -1, 1), np.ones(shape, np.float32), document, np.zeros(shape, np.int16))
"""

ONE_GRAPH = """
bench = LawBench({backbone!r}, layers=2)
model = bench.model({arm})
wake(model, [name for name, _ in model.named_parameters()], "tests")
model.compiled = True
graphs = []
for _ in range(2):
    update(model, [], batch(bench, 4), 0, Moment(), 2)
    graphs.append(counters["stats"]["unique_graphs"])
model.zero_grad()
consumed = Consumed.from_batch(batch(bench, 2), CPU)
exact = copy.deepcopy(model).double()
of = [_computed(m, consumed, 2, CPU, f) for m, f in
      ((exact, token_losses), (model, token_losses), (model, compiled_losses()))]
faults, worst = differences(*of)
print(json.dumps({{"graphs": graphs, "faults": faults, "worst": worst, "gradients": len(of[2].gradients)}}))
"""

BRANCHES = """
import importlib.util
spec = importlib.util.spec_from_file_location("branches", {path!r})
branches = importlib.util.module_from_spec(spec)
spec.loader.exec_module(branches)
bench = LawBench(layers=2)
model = bench.model({{}})
model.layers[1].attention.output_map = branches.Branches()
try:
    compiled_losses()(model, Consumed.from_batch(batch(bench, 2), CPU))
except CompilationError as error:
    print(json.dumps({{"what": error.what, "received": error.received, "remedy": error.remedy}}))
"""
OUTPUT_MAP = """from torch import nn
class Branches(nn.Module):
    def forward(self, y, values, document):
        return y if float(y.sum()) > 0 else -y
"""


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of compiled graphs without any."""
    return tmp_path_factory.mktemp("graphs")


def said(script: str, graphs: Path) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", PROLOGUE + script],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(graphs)},
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return json.loads(done.stdout)


ALL_SEAMS = {
    "output_map": {"name": "xsa"},
    "routing": {"name": "role-decoupled", "blocks": 2},
    "value_map": {"name": "value-embedding"},
    "mask": {"name": "document"},
}


@pytest.mark.parametrize(
    ("backbone", "arm"),
    [("prenorm", ALL_SEAMS), ("nanochat", {"output_map": {"name": "xsa"}})],
    ids=["every seam", "nanochat"],
)
def test_a_model_is_one_graph_and_computes_the_same_up_to_rounding(backbone: str, arm: dict[str, Any], graphs: Path):
    found = said(ONE_GRAPH.format(backbone=backbone, arm=arm), graphs)
    assert found["graphs"] == [1, 1]
    assert found["faults"] == []
    assert found["gradients"] > 20


def test_what_cannot_be_compiled_is_said_with_the_line_that_stops_the_compiler(tmp_path: Path, graphs: Path):
    (tmp_path / "branches.py").write_text(OUTPUT_MAP, encoding="utf-8")
    found = said(BRANCHES.format(path=str(tmp_path / "branches.py")), graphs)
    assert found["what"] == "the model cannot be compiled as one graph"
    assert "data-dependent" in found["received"]
    assert found["received"].endswith("branches.py:4: return y if float(y.sum()) > 0 else -y")
    assert 'mode = "proof"' in found["remedy"]
    # A mended machine, say with a C++ compiler at last, is not to find the model set aside.
    assert not list(graphs.rglob("*.refused"))
