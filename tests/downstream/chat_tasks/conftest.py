"""What tests of the ChatCORE tasks share: a tokenizer of conversations, tiny evaluation sets in the hub's layout."""

import json
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paribus.data.config import NANOCHAT_SPECIAL_TOKENS, TokenizerConfig
from paribus.data.tokenizer import Tokenizer
from paribus.downstream import sandbox
from paribus.downstream.chat.format import ChatFormat

TEXTS = ["the cat sat on the mat", "how many apples are there? 12 apples.", "What is 2+2? It is 4."]
DATA = Path(__file__).parents[4] / "shared" / "data"


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    config = TokenizerConfig(300, pre_tokenizer="nanochat", special_tokens=NANOCHAT_SPECIAL_TOKENS)
    return Tokenizer.train(TEXTS * 5, config)


@pytest.fixture(scope="session")
def chat(tokenizer: Tokenizer) -> ChatFormat:
    return ChatFormat.of(tokenizer)


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Write rows as Parquet files below a root folder, which is returned."""

    def write(place: str, *files: Sequence[dict[str, Any]]) -> Path:
        folder = tmp_path / place
        folder.mkdir(parents=True, exist_ok=True)
        names = [f"{number:05d}.parquet" for number in range(len(files))]
        for name, rows in zip(names, files, strict=True):
            pq.write_table(pa.Table.from_pylist(list(rows)), folder / name)
        (folder / "manifest.json").write_text(json.dumps(names))
        return tmp_path

    return write


@pytest.fixture(scope="session")
def evaluation_sets() -> Path:
    return _real("chat_eval")


@pytest.fixture(scope="session")
def words() -> Path:
    return _real("words")


@pytest.fixture(scope="session")
def sandboxed() -> None:
    """Skips where the kernel lacks what a sandbox needs; any other refusal on a machine that should do is a failure."""
    try:
        sandbox.require()
    except sandbox.SandboxError as error:
        lacking = sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64")
        if lacking or "the kernel" in error.received:
            pytest.skip(f"no sandbox here: {error.received}")
        raise


def _real(name: str) -> Path:
    if not (DATA / name).exists():
        pytest.skip(f"real data is absent: expected ../shared/data/{name} beside the repository")
    return DATA / name
