"""Text with and without a cache: seconds for so many tokens of a tiny text model, and tokens per second in batches.

    python bench/generation_speed.py [EXPERIMENT] [--tokens 256] [--rows 1 8] [--rounds 3] [--arms standard]

The model has the size that an experiment file says (experiments/demo.toml), fresh values and a context that holds the
text. Without a cache every token is behind a pass over the whole row, of which the head computes one position, as in
the loop with a cache. Rounds of both are interleaved, so that what else runs on the machine meets both alike; printed
is the median of the ratios of one round, of seconds and of processor time. At a temperature of 0 both must write the
same tokens. One row of so small a model is bound by the calls of operations, which a pass over one token makes as many
of as a pass over all: what a cache saves shows where a batch gives them something to do.
"""

import argparse
import statistics
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from paribus.mechanisms import resolve
from paribus.mechanisms.contract import Seam
from paribus.model.backbone import Backbone
from paribus.model.build import build_model
from paribus.model.cache import Cache
from paribus.model.config import PrenormConfig
from paribus.model.generate import generate
from paribus.seeds import generator

PROMPT_TOKENS = 8
ARMS: dict[str, dict[str, Any]] = {
    "standard": {},
    "xsa": {"output_map": {"name": "xsa"}},
    "xsa-common-mode": {"output_map": {"name": "xsa-common-mode"}},
    "block-attnres": {"routing": {"name": "block-attnres", "blocks": 6}},
}


def text_model(experiment: Path, scale: str, arm: dict[str, Any], context_length: int) -> Backbone:
    table = tomllib.loads(experiment.read_text())
    size = {name: table["scales"][scale][name] for name in ("layers", "width", "mlp_width")}
    vocabulary_size = table["base"]["tokenizer"]["vocabulary_size"]
    config = PrenormConfig(**size, vocabulary_size=vocabulary_size, context_length=context_length)
    return build_model(config, {seam: resolve(seam, arm.get(seam), str(seam)) for seam in Seam}, ("generation speed",))


def without_cache(model: Backbone, prompts: list[NDArray[np.int32]], tokens: int) -> list[list[int]]:
    """The likeliest token of each row behind a pass over the whole rows, again and again."""
    rows = torch.from_numpy(np.stack(prompts)).long()
    with torch.inference_mode():
        for _ in range(tokens):
            # An empty cache that takes the rows in at once is `forward`, with the head at the last position alone.
            logits = model.extend(rows, Cache.empty(model, *rows.shape), last_only=True)
            rows = torch.cat((rows, logits.argmax(-1, keepdim=True)), dim=1)
    return rows[:, PROMPT_TOKENS:].tolist()


def with_cache(model: Backbone, prompts: list[NDArray[np.int32]], tokens: int) -> list[list[int]]:
    return [one.tokens.tolist() for one in generate(model, prompts, new_tokens=tokens, stop=(), seed=("speed",))]


def timed(work: Callable[[], list[list[int]]]) -> tuple[float, float, list[list[int]]]:
    """Seconds, seconds of this process, and what was written."""
    began, processor = time.perf_counter(), time.process_time()
    found = work()
    return time.perf_counter() - began, time.process_time() - processor, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", type=Path, nargs="?", default=Path("experiments/demo.toml"))
    parser.add_argument("--scale", default="tiny")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--arms", nargs="+", default=["standard"], choices=list(ARMS))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    print(f"{asked.experiment}, {asked.scale}; {asked.tokens} tokens behind {PROMPT_TOKENS}; {asked.threads} threads")
    for name in asked.arms:
        model = text_model(asked.experiment, asked.scale, ARMS[name], PROMPT_TOKENS + asked.tokens)
        draw = generator("generation speed", "prompts")
        for rows in asked.rows:
            prompts = [draw.integers(1, 2000, PROMPT_TOKENS).astype(np.int32) for _ in range(rows)]
            with_cache(model, prompts, 8)
            wall, processor, fast = [], [], []
            for _ in range(asked.rounds):
                cached = timed(lambda model=model, prompts=prompts: with_cache(model, prompts, asked.tokens))
                whole = timed(lambda model=model, prompts=prompts: without_cache(model, prompts, asked.tokens))
                assert cached[2] == whole[2], "the cache changed the text"
                wall.append(whole[0] / cached[0])
                processor.append(whole[1] / cached[1])
                fast.append(cached[0])
            print(
                f"{name}, {rows} rows: {statistics.median(wall):.1f} times as fast with a cache ({min(wall):.1f} to "
                f"{max(wall):.1f} in {asked.rounds} rounds; processor time {statistics.median(processor):.1f}), "
                f"{rows * asked.tokens / statistics.median(fast):,.0f} tokens/s",
                flush=True,
            )


if __name__ == "__main__":
    main()
