"""Tokenisation beside the bare library, interleaved: seconds, MB/s, ratio, peak memory.

    python bench/tokenisation.py ../shared/data/pretrain/textmix --vocabulary 8192 --megabytes 8 --rounds 5

`bare` is `encode_batch_fast` on the same texts, already strings, in one call, its results unread; `bare, ids` also
reads the ids into one array. `paribus` starts from bytes and ends with that array and the length of each document.
`datasets` maps the same call over the same texts, where that package is installed. `--long` encodes one document of
so many megabytes in a process of its own and prints its peak memory; `--train` times learning on the texts.
"""

import argparse
import importlib
import importlib.util
import itertools
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import tokenizers
from rich.console import Console
from rich.progress import track

from paribus.data.config import NANOCHAT_SPECIAL_TOKENS, TokenizerConfig
from paribus.data.tokenizer import Tokenizer
from paribus.seeds import generator
from paribus.terminal import table


def read(folder: Path, megabytes: float) -> list[str]:
    texts: list[str] = []
    left = megabytes * 1e6
    for file in sorted(folder.glob("*.parquet")):
        for batch in pq.ParquetFile(file).iter_batches(columns=["text"]):
            for text in batch.column(0).to_pylist():
                if left <= 0:
                    return texts
                texts.append(text)
                left -= len(text.encode())
    return texts


def contenders(tokenizer: Tokenizer, path: Path, texts: list[str]) -> dict[str, Callable[[], Any]]:
    backend = tokenizers.Tokenizer.from_file(str(path))
    utf8 = [text.encode() for text in texts]

    def bare() -> list[tokenizers.Encoding]:
        return backend.encode_batch_fast(texts, add_special_tokens=False)

    def bare_ids() -> Any:
        encodings = bare()
        return np.fromiter(itertools.chain.from_iterable(encoding.ids for encoding in encodings), tokenizer.token_type)

    found: dict[str, Callable[[], Any]] = {
        "bare": bare,
        "bare, ids": bare_ids,
        "paribus": lambda: tokenizer.encode_batch_utf8(utf8),
    }
    if importlib.util.find_spec("datasets") is not None:
        datasets: Any = importlib.import_module("datasets")
        datasets.disable_progress_bars()

        def ids(rows: dict[str, list[str]]) -> dict[str, list[list[int]]]:
            return {"ids": [encoding.ids for encoding in backend.encode_batch_fast(rows["text"])]}

        def mapped() -> Any:
            whole = datasets.Dataset.from_dict({"text": texts})
            return whole.map(ids, batched=True, remove_columns=["text"], load_from_cache_file=False)

        found["datasets"] = mapped
    return found


def encode_long(path: Path, sentence: bytes, megabytes: int, answer: Any) -> None:
    """Peak resident memory in MB before encoding and after, and seconds, of one document."""
    tokenizer = Tokenizer.load(path)
    text = sentence * (megabytes * 1_000_000 // len(sentence))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    started = time.perf_counter()
    tokens = sum(len(ids) for ids in tokenizer.encode_utf8(text))
    seconds = time.perf_counter() - started
    answer.put((before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, seconds, tokens))


def learn(folder: Path, config: TokenizerConfig, megabytes: float, path: Path) -> None:
    texts = read(folder, megabytes)
    started = time.perf_counter()
    learnt = Tokenizer.train(texts, config)
    seconds = time.perf_counter() - started
    size = sum(len(text.encode()) for text in texts) / 1e6
    Console().print(f"learnt {learnt.vocabulary_size:,} tokens from {size:.1f} MB in {seconds:.1f} s")
    learnt.save(path)


def show_long(path: Path, folder: Path, megabytes: int) -> None:
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    prose = "\n".join(read(folder, 1)).encode()
    process = context.Process(target=encode_long, args=(path, prose, megabytes, answer))
    process.start()
    before, after, seconds, tokens = answer.get()
    process.join()
    Console().print(
        f"one document of {megabytes} MB: {seconds:.1f} s, {tokens:,} tokens, "
        f"peak {after:.0f} MB ({before:.0f} MB before encoding)"
    )


def compare(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Seconds of the clock and of the processor `[round]` of each contender, turns in random order."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    order = generator("bench", "tokenisation")
    for run in runs.values():
        run()
    for _ in track(range(rounds), "rounds", transient=True, disable=not sys.stdout.isatty()):
        for name in order.permutation(list(runs)):
            clock, processor = time.perf_counter(), time.process_time()
            result = runs[str(name)]()
            found[str(name)].append((time.perf_counter() - clock, time.process_time() - processor))
            del result
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="Parquet files with a column text")
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer.json; else one is learnt from the texts")
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--nanochat", action="store_true", help="learn with nanochat's pattern and special tokens")
    parser.add_argument("--megabytes", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--long", type=int, default=0, help="megabytes of one document")
    parser.add_argument("--train", type=float, default=8, help="megabytes to learn from")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        path = arguments.tokenizer or Path(folder) / "tokenizer.json"
        if arguments.tokenizer is None:
            config = TokenizerConfig(arguments.vocabulary)
            if arguments.nanochat:
                config = TokenizerConfig(arguments.vocabulary, "nanochat", NANOCHAT_SPECIAL_TOKENS)
            learn(arguments.folder, config, arguments.train, path)
        if arguments.long:
            show_long(path, arguments.folder, arguments.long)
        texts = read(arguments.folder, arguments.megabytes)
        tokenizer = Tokenizer.load(path)
        found = compare(contenders(tokenizer, path, texts), arguments.rounds)
    size = sum(len(text.encode()) for text in texts) / 1e6
    bare = np.array(found["bare"])
    rows = []
    for name, measured in found.items():
        seconds, ratio = np.median(measured, axis=0), np.median(bare / np.array(measured), axis=0)
        rows.append((name, f"{seconds[0]:.2f}", f"{size / seconds[0]:.2f}", f"{ratio[0]:.2f}", f"{ratio[1]:.2f}"))
    columns = ("contender", "seconds", "MB/s", "speed / bare, clock", "speed / bare, processor")
    title = f"{size:.1f} MB, {len(texts):,} documents, {tokenizer.vocabulary_size:,} tokens, {os.cpu_count()} cores"
    Console().print(table(title, columns, rows, right=(1, 2, 3, 4)))
    if "datasets" not in found:
        Console().print("datasets is not installed")
    Console().print(f"peak of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
