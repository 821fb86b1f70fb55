"""`paribus diagnose`: the same numbers as training's own measurements, on models that came from elsewhere and cells."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.nn import functional

from paribus import mechanisms
from paribus.data.config import CorpusConfig, TokenizerConfig
from paribus.data.frozen import FrozenCorpus
from paribus.data.material import held_out_of
from paribus.data.prepare.pipeline import prepare
from paribus.data.tokenizer import Tokenizer
from paribus.diagnosing.running import Findings, diagnose
from paribus.errors import CorpusError, ParibusError, StudyFolderError
from paribus.interop import imported
from paribus.interop.errors import ForeignModelError
from paribus.interop.nanochat import import_checkpoint
from paribus.measure.likelihood import document_nats
from paribus.measure.probes import probe
from paribus.measuring import probing_batches, scoring_batches
from paribus.mechanisms import resolve
from paribus.mechanisms.contract import Seam
from paribus.model.build import build_model
from paribus.model.config import PrenormConfig
from paribus.optim.config import OptimiserConfig
from paribus.runs.folder import CellFolder
from paribus.seeds import generator
from paribus.train.state import TrainState

from .conftest import Write, state_of

Cli = Callable[..., tuple[int, str, str]]
CPU = torch.device("cpu")


@pytest.fixture(scope="session")
def texts() -> list[str]:
    draw = generator("tests", "interop", "documents")
    return [
        " ".join("".join(draw.choice(list("abcdefgh"), size=draw.integers(2, 7))) for _ in range(draw.integers(1, 30)))
        for _ in range(24)
    ]


@pytest.fixture
def lines(texts: list[str], tmp_path: Path) -> Path:
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


@pytest.fixture
def model(write: Write, ranks: Path, tmp_path: Path) -> Path:
    import_checkpoint(write(), to=tmp_path / "model", tokenizer=ranks)
    return tmp_path / "model"


def look(
    folder: Path, text: object, tokens: int = 10**6, runs: Path = Path("runs"), tokenizer: Path | None = None
) -> Findings:
    return diagnose(folder, str(text), tokenizer, tokens, runs)


def test_likelihood_is_the_sum_over_single_documents(model: Path, lines: Path, texts: list[str], tokenizer: Tokenizer):
    """By hand: BOS, the document's tokens in windows of the context, every token a target once."""
    found = look(model, lines)
    network = imported.load(imported.read(model))
    total, count = 0.0, 0
    for text in texts:
        ids = torch.from_numpy(tokenizer.encode_batch([text])[0].astype(np.int64))
        before = torch.cat((torch.tensor([tokenizer.bos_id]), ids))[:-1]
        for start in range(0, len(ids), 32):
            window = slice(start, start + 32)
            inputs = before[window][None]
            with torch.no_grad():
                logits = network(inputs, torch.zeros_like(inputs))[0]
            total += float(functional.cross_entropy(logits.double(), ids[window], reduction="sum"))
        count += len(ids)
    size = sum(len(text.encode()) for text in texts)
    assert (found.documents, found.tokens, found.bytes) == (len(texts), count, size)
    # Single rows instead of padded batches: float32 losses of the same logits to rounding.
    assert found.nats_per_token.value == pytest.approx(total / count, rel=1e-6)
    assert found.bits_per_byte.value == pytest.approx(total / math.log(2) / size, rel=1e-6)
    assert 0 < found.nats_per_token.standard_error < found.nats_per_token.value


@pytest.fixture(scope="session")
def corpus(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[FrozenCorpus, Path]:
    """A prepared corpus with a tokenizer of its own, and the folder of runs that it lies in."""
    folder, runs = tmp_path_factory.mktemp("texts"), tmp_path_factory.mktemp("runs")
    pq.write_table(pa.table({"text": texts}), folder / "texts.parquet")
    declared = CorpusConfig(
        kind="folder", folder=folder, test_fraction=0.2, validation_fraction=0.4, near_duplicate_similarity=None
    )
    frozen = prepare(declared, TokenizerConfig(vocabulary_size=290), runs / "corpora", name="words", workers=1)
    assert frozen.counts["validation"].documents > 3
    return frozen, runs


def finished_cell(corpus: tuple[FrozenCorpus, Path], arm: dict[str, Any], name: str) -> tuple[CellFolder, Any]:
    """A cell as training leaves it, of random values."""
    frozen, runs = corpus
    config = PrenormConfig(layers=2, width=16, head_width=8, mlp_width=24, vocabulary_size=290, context_length=16)
    configs = {seam: resolve(seam, arm.get(str(seam)), str(seam)) for seam in Seam}
    network = build_model(config, configs, (name,))
    cell = CellFolder(runs / "words" / "S" / name / "0-0123456789ab")
    tables = {
        str(seam): {"name": c.name, "module": type(c).__module__, **c.model_dump(mode="json")}
        for seam, c in configs.items()
    }
    resolved = {"model": config.model_dump(mode="json"), "mechanisms": tables}
    cell.write_record({"scale": "S", "arm": name, "seed": 0, "resolved": resolved})
    cell.write_checkpoint(3, TrainState.fresh(network, OptimiserConfig()).to_files())
    link = {"corpus": frozen.folder.name, "key": frozen.key, "digest": frozen.digest}
    (runs / "words" / "corpus.json").write_text(json.dumps(link))
    return cell, network


ARMS: dict[str, dict[str, Any]] = {
    "standard": {},
    "both": {"output_map": {"name": "xsa"}, "routing": {"name": "role-decoupled", "blocks": 2}},
}


@pytest.mark.parametrize("name", ARMS)
def test_a_finished_cell_gets_what_training_records(corpus: tuple[FrozenCorpus, Path], name: str):
    """The corpus' validation split, decoded and encoded again, gives bit for bit the numbers of the study's call."""
    frozen, runs = corpus
    cell, network = finished_cell(corpus, ARMS[name], name)
    cell.finish({"steps": 3})
    found = look(cell.path, frozen.folder, runs=runs)
    held_out = held_out_of(frozen, "validation", None, 16, study="words", scale="S", seed=0)
    nats = document_nats(network, scoring_batches(held_out, CPU), len(held_out.unit))
    assert found.nats_per_token.value == nats.sum() / held_out.tokens.sum()
    assert held_out.bytes is not None
    assert found.bits_per_byte.value == pytest.approx(nats.sum() / math.log(2) / held_out.bytes.sum(), rel=1e-14)
    assert list(found.readings) == probe(network, probing_batches(held_out, CPU), mechanisms.all_diagnostics())
    assert {reading.layer for reading in found.readings} >= {0, 1}
    assert look(cell.path, "words", runs=runs).nats_per_token == found.nats_per_token


def test_a_cell_that_has_not_ended_is_refused(corpus: tuple[FrozenCorpus, Path]):
    cell, _ = finished_cell(corpus, {}, "unfinished")
    with pytest.raises(StudyFolderError, match="holds no finished model") as caught:
        look(cell.path, "words", runs=corpus[1])
    assert caught.value.received == "started"


def test_an_imported_model_reads_a_prepared_corpus_with_its_own_tokenizer(
    model: Path, corpus: tuple[FrozenCorpus, Path]
):
    frozen, runs = corpus
    found = look(model, frozen.folder.name, runs=runs)
    assert found.bytes == frozen.counts["validation"].bytes
    assert found.tokens != frozen.counts["validation"].tokens


def test_every_diagnostic_of_the_registry_that_has_its_sites_is_read(model: Path, lines: Path):
    found = look(model, lines)
    read = {reading.diagnostic for reading in found.readings}
    every = {"attention_entropy", "cos_v_v", "cos_y_v", "diagonal_mass", "first_token_share"}
    assert read >= every & {diagnostic.name for diagnostic in mechanisms.all_diagnostics()}
    assert len(read) >= 5
    assert {reading.layer for reading in found.readings} == {0, 1}


def test_whole_documents_are_read_until_there_are_enough_tokens(
    model: Path, lines: Path, texts: list[str], tokenizer: Tokenizer
):
    lengths = np.cumsum([len(ids) for ids in tokenizer.encode_batch(texts)])
    for tokens in (1, int(lengths[2]), int(lengths[2]) + 1):
        found = look(model, lines, tokens=tokens)
        assert found.tokens == int(lengths[np.searchsorted(lengths, tokens)])


@pytest.mark.parametrize("kind", ["a.txt", "folder", "a.parquet", "b.jsonl.gz"])
def test_texts_of_every_kind_are_read(model: Path, tmp_path: Path, texts: list[str], kind: str):
    path = tmp_path / kind
    if kind == "folder":
        path.mkdir()
        (path / "one.txt").write_text(texts[0])
    elif kind == "a.txt":
        path.write_text(texts[0])
    elif kind == "a.parquet":
        pq.write_table(pa.table({"text": texts[:1]}), path)
    else:
        with pa.output_stream(str(path), compression="gzip") as stream:
            stream.write(json.dumps({"text": texts[0]}).encode() + b"\n")
    found = look(model, path)
    assert (found.documents, found.bytes) == (1, len(texts[0].encode()))
    assert math.isnan(found.nats_per_token.standard_error)


def test_what_cannot_be_read_is_refused(model: Path, tmp_path: Path):
    with pytest.raises(CorpusError, match="there is no such text"):
        look(model, tmp_path / "nowhere.txt")
    with pytest.raises(CorpusError, match="no prepared corpus of this name"):
        look(model, "nowhere", runs=tmp_path)
    (tmp_path / "a.bin").write_bytes(b"x")
    with pytest.raises(CorpusError, match=r"a\.bin is of a kind that is not read"):
        look(model, tmp_path / "a.bin")
    (tmp_path / "blank.txt").write_text(" \n")
    with pytest.raises(CorpusError, match="there is no document to read"):
        look(model, tmp_path / "blank.txt")
    with pytest.raises(ParibusError, match="holds no trained model"):
        look(tmp_path, model)


def test_a_model_without_a_tokenizer_says_how_to_get_one(write: Write, tmp_path: Path, lines: Path, ranks: Path):
    import_checkpoint(write(), to=tmp_path / "bare")
    with pytest.raises(ParibusError, match="has no tokenizer") as caught:
        look(tmp_path / "bare", lines)
    assert "get_tokenizer" in caught.value.remedy
    assert look(tmp_path / "bare", lines, tokenizer=ranks).documents == 24


def test_a_tokenizer_that_is_not_the_models_is_refused(model: Path, lines: Path, tmp_path: Path):
    Tokenizer.train(["abc"], 260).save(tmp_path / "other.json")
    with pytest.raises(ParibusError, match="this tokenizer is not the model's"):
        look(model, lines, tokenizer=tmp_path / "other.json")
    (model / "tokenizer.json").write_text((tmp_path / "other.json").read_text())
    with pytest.raises(ForeignModelError, match=r"tokenizer\.json is not what was written"):
        look(model, lines)


def test_a_broken_model_is_refused(write: Write, ranks: Path, lines: Path, tmp_path: Path):
    # Finite weights: squares of 1e30 are beyond float32, and infinities of both signs meet in the sum behind them.
    state = {**state_of(), "transformer.h.0.mlp.c_fc.weight": torch.full((128, 32), 1e30)}
    import_checkpoint(write(state), to=tmp_path / "broken", tokenizer=ranks)
    with pytest.raises(ParibusError, match="not a finite number"):
        look(tmp_path / "broken", lines)


def test_the_command_prints_tables_or_json(cli: Cli, model: Path, lines: Path):
    code, out, err = cli("diagnose", str(model), "--text", str(lines))
    assert (code, err) == (0, "")
    assert "nats per token" in out
    assert "of this one model" in out
    code, out, _ = cli("diagnose", str(model), "--text", str(lines), "--json", "--tokens", "1")
    found = json.loads(out)
    assert (code, found["documents"], found["nats_per_token"]["standard_error"]) == (0, 1, None)
    assert found["readings"]
    assert {reading["diagnostic"] for reading in found["readings"]} == set(found["diagnostics"])
