"""A study on the nanochat backbone with a tokenizer that was loaded, from its file to its report."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from paribus.data.config import TokenizerConfig
from paribus.data.tokenizer import Tokenizer
from paribus.errors import PairCheckError
from paribus.experiment import loading
from paribus.experiment.pairs import check_pairs
from paribus.experiment.plan import resolve_arms
from paribus.experiment.spec import Experiment
from paribus.runs.records import read_json
from paribus.trained import open_model

TEXT = """
study = "tiny"
question = "Does it hold on another backbone?"
[base]
context_length = 32
batch_tokens = 512
corpus = {{ path = "{corpus}", test_fraction = 0.1, validation_fraction = 0.1 }}
tokenizer = {{ path = "tokenizer.json" }}
evaluation = {{ test_tokens = 1500, validation_tokens = 800, probe_tokens = 400 }}
[base.model]
backbone = "nanochat"
head_width = 16
smear_channels = 8
short_window_multiple = 4
[base.optimiser]
matrix_update = "nanochat"
matrix_learning_rate = 0.02
matrix_momentum = 0.97
gradient_clip_norm = 1.0
[base.schedule]
momentum_initial = 0.85
momentum_warmup = 0.2
momentum_final = 0.9
weight_decay = "cosine"
[scales.tiny]
layers = 4
width = 32
mlp_width = 128
budget_tokens = 5_000
[arms.standard]
[arms.xsa]
output_map = {{ name = "xsa" }}
[arms.block]
routing = {{ name = "block-attnres", blocks = 2 }}
[contrasts.xsa]
treatment = "xsa"
baseline = "standard"
primary = true
smallest_effect = 0.01
design_effect = 0.03
[contrasts.block]
treatment = "block"
baseline = "standard"
also_differs = ["tensor:routing.*"]
smallest_effect = 0.01
design_effect = 0.03
[seeds]
count = 3
[execution]
micro_batch_rows = "probe"
activation_checkpointing = true
workers = 1
cost_rounds = 0
"""
VOCABULARY = 700


@pytest.fixture
def folder(tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    words = [f"{a}{b}{c}" for a in ("ka", "lo", "mi", "ne") for b in ("ru", "so", "ti") for c in ("vu", "the", "ing")]
    learnt = Tokenizer.train([" ".join(words[n:] + words[:n]) for n in range(36)], TokenizerConfig(VOCABULARY))
    learnt.save(tmp_path / "tokenizer.json")
    (tmp_path / "study.toml").write_text(TEXT.format(corpus=corpus), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plan_of(folder: Path, change: Mapping[str, str] | None = None) -> Experiment:
    text = (folder / "study.toml").read_text(encoding="utf-8")
    for old, new in (change or {}).items():
        assert old in text
        text = text.replace(old, new)
    (folder / "study.toml").write_text(text, encoding="utf-8")
    return loading.load(folder / "study.toml")


def test_it_trains_measures_and_reports_like_any_other(folder: Path, cli: Callable[..., tuple[int, str, str]]):
    code, out, err = cli("run", "study.toml")
    assert (code, err) == (0, ""), err + out
    data = json.loads((folder / "runs" / "tiny" / "report.json").read_text(encoding="utf-8"))
    assert {verdict["name"]: verdict["seeds"] for verdict in data["verdicts"]} == {"xsa": 3, "block": 3}
    [record] = read_json(folder / "runs" / "tiny" / "micro-batch.json").values()
    assert record["rows"] == 16, "all of a batch this small"
    cells: list[dict[str, Any]] = []
    for path in (folder / "runs" / "tiny" / "tiny").glob("*/*/cell.json"):
        cells.append(json.loads(path.read_text(encoding="utf-8")))
        metrics = [json.loads(line) for line in (path.parent / "metrics.jsonl").read_text("utf-8").splitlines()]
        assert len(metrics) == 10
        assert all(line["gradient_norm"] > 0.0 for line in metrics)
    assert len(cells) == 9
    size = Tokenizer.load(folder / "tokenizer.json").vocabulary_size
    assert {cell["resolved"]["model"]["vocabulary_size"] for cell in cells} == {size}
    assert {cell["resolved"]["execution"]["micro_batch_rows"] for cell in cells} == {16}
    lambdas = {cell["arm"]: "routing.stream_scale" in cell["initial_digests"] for cell in cells}
    assert lambdas == {"standard": True, "xsa": True, "block": False}


def test_an_arm_that_replaces_the_residual_path_must_be_declared_to(folder: Path):
    experiment = plan_of(folder, {'also_differs = ["tensor:routing.*"]\n': ""})
    with pytest.raises(PairCheckError, match="'block' and 'standard'") as refused:
        check_pairs(experiment, resolve_arms(experiment))
    assert "tensor routing.stream_scale: missing in the treatment" in refused.value.received


def test_the_embedding_has_a_row_for_each_token_of_a_loaded_tokenizer(folder: Path):
    size = Tokenizer.load(folder / "tokenizer.json").vocabulary_size
    arm = resolve_arms(plan_of(folder))["tiny", "standard"]
    assert arm.shapes["embedding"] == (-(-size // 64) * 64, 32)


def test_a_number_of_tokens_that_the_tokenizer_does_not_have_is_refused_before_training(
    folder: Path, cli: Callable[..., tuple[int, str, str]]
):
    plan_of(folder, {'path = "tokenizer.json"': 'path = "tokenizer.json", vocabulary_size = 4000'})
    code, _, err = cli("run", "study.toml")
    assert code != 0
    size = Tokenizer.load(folder / "tokenizer.json").vocabulary_size
    assert "another number of tokens than the file says" in err
    assert f"tokenizer.vocabulary_size = {size}" in err
    assert not list((folder / "runs" / "tiny").glob("tiny/*/*"))


def test_a_mechanism_that_the_backbone_cannot_hold_is_refused_at_plan(
    folder: Path, cli: Callable[..., tuple[int, str, str]]
):
    plan_of(folder, {'name = "block-attnres"': 'name = "mlp-decoupled"'})
    code, _, err = cli("plan", "study.toml")
    assert code != 0
    assert "arms.block.routing: the backbone 'nanochat' lacks what 'mlp-decoupled' needs" in err
    assert "model.backbone = 'prenorm'" in err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"head_width = 16": "head_width = 12"}, "width 32 is not a multiple of head_width 12"),
        ({"layers = 4": "layers = 3"}, "take an even number"),
        ({"smear_channels = 8": "smear_channels = 64"}, "smear_channels 64 exceeds width 32"),
        ({'backbone = "nanochat"': 'backbone = "nanogpt"'}, "a table with backbone = 'prenorm' or 'nanochat'"),
        ({"smear_channels = 8": "qk_norm = true"}, "unknown key"),
        ({"smear_channels = 8": 'compute = "float16"'}, "'float32' or 'bfloat16'"),
    ],
)
def test_a_backbone_that_cannot_be_is_refused_at_plan_with_what_can(
    folder: Path, cli: Callable[..., tuple[int, str, str]], change: dict[str, str], said: str
):
    text = (folder / "study.toml").read_text(encoding="utf-8")
    [(old, new)] = change.items()
    (folder / "study.toml").write_text(text.replace(old, new), encoding="utf-8")
    code, _, err = cli("plan", "study.toml")
    assert code != 0
    assert said in err


def test_tables_that_are_stored_in_bfloat16_are_trained_kept_and_opened(
    folder: Path, cli: Callable[..., tuple[int, str, str]]
):
    narrow = 'head_width = 16\ncompute = "bfloat16"\ntable_storage = "bfloat16"'
    plan_of(folder, {"head_width = 16": narrow, "count = 3": "count = 1"})
    code, out, err = cli("run", "study.toml")
    assert (code, err) == (0, ""), err + out
    [cell] = (folder / "runs" / "tiny" / "tiny" / "standard").iterdir()
    tables = [
        name for name in json.loads((cell / "cell.json").read_text("utf-8"))["initial_digests"] if "embed" in name
    ]
    assert "embedding" in tables
    assert len(tables) > 1
    trained = open_model(cell)
    kept = trained.model.get_parameter("embedding")
    assert trained.step == 10
    assert kept.dtype == torch.bfloat16, "as it was trained, not widened"
