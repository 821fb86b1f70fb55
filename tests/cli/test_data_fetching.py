"""What is fetched before a preparation, where it is kept, and that it is not asked for twice: nothing here may ask."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paribus.data.config import TokenizerConfig
from paribus.data.sources.hub import GPT2_COMMIT, GPT2_REPOSITORY
from paribus.data.store import hub_folder, store_of
from paribus.data.tokenizer import Tokenizer
from paribus.preparing.declaring import Declared, Options, declare
from paribus.preparing.fetching import with_files, with_places

Cli = Callable[..., tuple[int, str, str]]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
TEXTS = [f"document {number} of a repository, said {number * number} times over" for number in range(200)]
OPTIONS = ("--revision", COMMIT, "--vocabulary", "300", "--test-fraction", "0.1", "--validation-fraction", "0.1")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever is not there is an error."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    monkeypatch.chdir(tmp_path)


def fetched(folder: Path, repository: str, revision: str, kind: str, files: Mapping[str, bytes]) -> None:
    """A folder as a fetch leaves it."""
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    about = {"format": 1, "repository": repository, "kind": kind, "revision": revision, "below": "", "verified": {}}
    digests = {name: [len(content), hashlib.sha256(content).hexdigest()] for name, content in files.items()}
    (folder / ".paribus-hub.json").write_text(json.dumps({**about, "files": digests}))


def shard() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"text": TEXTS}), sink)
    return sink.getvalue().to_pybytes()


def tokenizer_json(tmp_path: Path) -> bytes:
    path = tmp_path / "learnt.json"
    Tokenizer.train(TEXTS, TokenizerConfig(vocabulary_size=300, special_tokens=("<|endoftext|>",))).save(path)
    return path.read_bytes()


def declared(name: str, **options: Any) -> Declared:
    return declare(name, Options(revision=COMMIT, **options))


@pytest.mark.parametrize("own", [False, True])
def test_files_of_the_hub_that_are_there_are_used_as_they_are(cli: Cli, own: bool):
    repository = declared("owner/texts").corpus.hub
    assert repository is not None
    folder = Path("copy") if own else hub_folder(store_of(Path("runs")), repository)
    fetched(folder, "owner/texts", COMMIT, "dataset", {"shard_00000.parquet": shard()})
    named = ("--folder", "copy") if own else ()
    code, out, err = cli("data", "prepare", "owner/texts", *OPTIONS, *named, "--workers", "1", "--json")
    assert code == 0, err
    found = Path(json.loads(out)["folder"])
    assert found.name.startswith("texts-")
    manifest = json.loads((found / "manifest.json").read_text())
    assert manifest["config"]["hub"]["revision"] == COMMIT
    listed = {each["name"]: each["made_of"] for each in json.loads(cli("data", "list", "--json")[1])}
    assert listed[found.name] == "owner/texts at 0123456789ab"
    assert ("hub/owner--texts-0123456789ab" in listed) is not own


@pytest.mark.parametrize("name", ["climbmix", "owner/texts"])
def test_a_name_with_a_revision_is_the_hubs_and_without_one_a_folder_of_this_name(name: str):
    Path(name).mkdir(parents=True)
    assert declared(name).corpus.kind == "hub"
    assert declare(name, Options()).corpus.folder == Path(name).resolve()


def test_files_that_cannot_be_fetched_are_one_error(cli: Cli):
    code, _, err = cli("data", "prepare", "owner/texts", *OPTIONS)
    assert code == 1
    assert err.startswith("error: the hub may not be asked what its files are")


def test_the_published_tokenizer_is_fetched_once_into_the_store(tmp_path: Path):
    texts, store = tmp_path / "texts", tmp_path / "store"
    texts.mkdir()
    (texts / "shard.parquet").write_bytes(shard())
    asked = declare(str(texts), Options(tokenizer="gpt2"))
    place = with_places(asked, store).tokenizer.file
    assert place is not None
    assert not store.exists()
    content = tokenizer_json(tmp_path)
    fetched(place.parent, GPT2_REPOSITORY, GPT2_COMMIT, "model", {"tokenizer.json": content})
    assert with_files(asked, store).tokenizer == TokenizerConfig(file=place)


def test_a_corpus_of_gpt2_tokens_gets_the_vocabulary_beside_it_and_somebodys_own_folder_does_not(tmp_path: Path):
    store, content = tmp_path / "store", tokenizer_json(tmp_path)
    gpt2 = with_places(declared("climbmix-gpt2", tokenizer="gpt2"), store).tokenizer.file
    asked = declared("climbmix-gpt2", files=("*.parquet",))
    folder = with_places(asked, store).corpus.folder
    own = declared("climbmix-gpt2", files=("*.parquet",), folder=tmp_path / "own")
    assert gpt2 is not None
    assert folder is not None
    fetched(gpt2.parent, GPT2_REPOSITORY, GPT2_COMMIT, "model", {"tokenizer.json": content})
    for place in (folder, tmp_path / "own"):
        fetched(place, "nvidia/Nemotron-ClimbMix", COMMIT, "dataset", {"part_0.parquet": b"never read here"})
    assert with_files(asked, store).corpus.folder == folder
    assert (folder / "tokenizer.json").read_bytes() == content
    assert with_files(own, store).corpus.folder == tmp_path / "own"
    assert not (tmp_path / "own" / "tokenizer.json").exists()
