"""A small experiment with the demo's four arms, and mechanisms that register through an entry point."""

from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch

from paribus import mechanisms
from paribus.experiment import loading, spec
from paribus.experiment.plan import ArmAtScale, resolve_arms

TINY = """\
question = "Does it hold?"

[base]
context_length = 32
batch_tokens = 512
corpus = { path = "corpus" }
tokenizer = { vocabulary_size = 300 }
model = { head_width = 16 }
evaluation = { test_tokens = 1500, validation_tokens = 800, probe_tokens = 400 }
optimiser = { matrix_learning_rate = 0.02, depth_read_learning_rate = 0.005 }
schedule = { warmup = 0.05 }

[scales.tiny]
layers = 2
width = 32
mlp_width = 48
budget_tokens = 10_000
milestones_tokens = [5_000]

[arms.standard]

[arms.xsa]
output_map = { name = "xsa", strength = 1.0 }

[arms.block]
routing = { name = "block-attnres", blocks = 2 }

[arms.rd]
routing = { name = "role-decoupled", blocks = 2 }

[contrasts.block]
primary = true
treatment = "block"
baseline = "standard"
smallest_effect = 0.01
design_effect = 0.03

[contrasts.xsa]
treatment = "xsa"
baseline = "standard"
smallest_effect = 0.01
design_effect = 0.03

[contrasts.rd]
treatment = "rd"
baseline = "block"
smallest_effect = 0.01
design_effect = 0.03

[seeds]
count = 3

[noise]
repeats = 1

[execution]
threads = 1
micro_batch_rows = 8
"""

Resolved = tuple[spec.Experiment, dict[tuple[str, str], ArmAtScale]]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Small tensors are slower on several threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def tiny() -> str:
    return TINY


@pytest.fixture
def resolve(tmp_path: Path) -> Callable[[str], Resolved]:
    """The experiment of a text, with its arms."""

    def load(text: str) -> Resolved:
        path = tmp_path / "study.toml"
        path.write_text(text, encoding="utf-8")
        experiment = loading.load(path)
        return experiment, resolve_arms(experiment)

    return load


@pytest.fixture
def register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Make a module of a package outside the project known as mechanisms: (module name, source)."""
    points: list[EntryPoint] = []
    folder = tmp_path / "outside"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(mechanisms, "entry_points", lambda **_: points)

    def forget() -> None:
        mechanisms.modules.cache_clear()
        mechanisms.mechanisms.cache_clear()

    def add(name: str, source: str) -> None:
        (folder / f"{name}.py").write_text(source, encoding="utf-8")
        points.append(EntryPoint(name, name, "paribus.mechanisms"))
        forget()

    yield add
    forget()
