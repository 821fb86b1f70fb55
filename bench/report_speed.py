"""Seconds from a run folder to the report, for a study larger than most: rows are drawn, everything else is real.

    python bench/report_speed.py --arms 10 --seeds 8 --milestones 4 --documents 5000

The folder is written as `paribus run` would have written it (a small model's plan, 80 cells, two splits at every
milestone and at the end), and `paribus report` reads it in a process of its own.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.progress import track

from paribus.experiment import loading
from paribus.seeds import generator
from paribus.study import Study, open_study, write_plan

STEPS = 1000
BATCH_TOKENS = 512


def experiment_text(arms: int, seeds: int, milestones: int) -> str:
    """A plain arm and its rivals, each against the plain one."""
    tokens = STEPS * BATCH_TOKENS
    budgets = ", ".join(str(tokens * (k + 1) // (milestones + 1)) for k in range(milestones))
    lines = [
        'study = "large"',
        'question = "How long does a large report take?"',
        f"[base]\ncontext_length = 32\nbatch_tokens = {BATCH_TOKENS}",
        'corpus = { path = "corpus", test_fraction = 0.1, validation_fraction = 0.1 }',
        "tokenizer = { vocabulary_size = 300 }\nmodel = { head_width = 16 }",
        f"[scales.tiny]\nlayers = 4\nwidth = 32\nmlp_width = 48\nbudget_tokens = {tokens}",
        f"milestones_tokens = [{budgets}]\n[arms.plain]",
    ]
    for arm in range(1, arms):
        lines.append(f'[arms.rival{arm}]\noutput_map = {{ name = "xsa", strength = {arm / arms} }}')
        lines.append(f'[contrasts.rival{arm}]\ntreatment = "rival{arm}"\nbaseline = "plain"')
        lines.append(f"primary = {str(arm == 1).lower()}\nsmallest_effect = 0.003\ndesign_effect = 0.01")
    return "\n".join([*lines, f"[seeds]\ncount = {seeds}"]) + "\n"


def write_corpus(folder: Path) -> None:
    draw = generator("bench", "corpus")
    words = ["".join(draw.choice(list("abcdefghij"), 4)) for _ in range(300)]
    texts = [" ".join(draw.choice(words, 80)) + "." for _ in range(2 * STEPS * BATCH_TOKENS // 100)]
    folder.mkdir()
    pq.write_table(pa.table({"text": texts}), folder / "texts.parquet")


def fill(study: Study, documents: int) -> None:
    """Every cell as if it had been trained: rows of each milestone, the curve, diagnostics of heads and layers."""
    draw = generator("bench", "rows")
    names = np.array([f"{number:016x}" for number in range(documents)])
    tokens = draw.integers(100, 2000, documents)
    of_document = draw.normal(3.0, 0.3, documents)
    for cell in track(study.cells, "cells", transient=True):
        folder, length = study.cell_folder(cell), cell.length
        shift = draw.normal(-0.01 * int(cell.arm.removeprefix("rival") or 0 if cell.arm != "plain" else 0), 0.003)
        where = {"scale": cell.scale, "arm": cell.arm, "seed": cell.seed, "variant": cell.variant}
        record = {"initial_digests": {"embedding": "0"}, "environment": {}, "code_version": "", "resolved": {}}
        folder.write_record({**where, "digest": cell.digest, **record})
        for step, budget in length.milestones().items():
            nats = tokens * (of_document + shift + draw.normal(0, 0.02, documents) + 20 / step)
            for split in ("test", "validation"):
                columns = {"document": names, "source": names, "tokens": tokens, "bytes": 4 * tokens, "nats": nats}
                columns |= {"tokens_seen": np.full(documents, budget)}
                columns |= {"mid_schedule": np.full(documents, step != length.steps)}
                folder.write_rows(f"likelihood/{split}-{step:08d}", columns)
        lines = [
            json.dumps(
                {
                    "step": step,
                    "tokens_seen": step * BATCH_TOKENS,
                    "loss_nats_per_token": 3 + 20 / step + draw.normal(0, 0.05),
                    "learning_rate_multiplier": 1.0,
                    "wall_seconds": 0.1,
                }
            )
            + "\n"
            for step in range(1, STEPS + 1)
        ]
        (folder.path / "metrics.jsonl").write_text("".join(lines), encoding="utf-8")
        summary = {"steps": STEPS, "tokens_seen": STEPS * BATCH_TOKENS, "train_seconds": 100.0}
        folder.finish({**summary, "batch_digest": "0", "final_tensors_digest": "0"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--milestones", type=int, default=4)
    parser.add_argument("--documents", type=int, default=5000)
    parser.add_argument("--keep", type=Path, help="write the study here and leave it")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "large.toml"
        file.write_text(experiment_text(arguments.arms, arguments.seeds, arguments.milestones), encoding="utf-8")
        write_corpus(folder / "corpus")
        study = open_study(loading.load(file), folder, folder / "runs")
        write_plan(study, [])
        fill(study, arguments.documents)
        for _ in range(3):
            started = time.perf_counter()
            command = [sys.executable, "-m", "paribus", "report", str(file), "--runs", str(folder / "runs")]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            took = time.perf_counter() - started
            size = (folder / "runs" / "large" / "report.html").stat().st_size
            print(f"report of {len(study.cells)} cells: {took:.1f} s, page of {size / 2**20:.2f} MiB")


if __name__ == "__main__":
    main()
