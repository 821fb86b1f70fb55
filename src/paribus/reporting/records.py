"""Cells, pairs, looks and the corpus as the report shows them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paribus.experiment import spec
from paribus.reading.cell import ReadCell
from paribus.reading.evidence import contrast_differences
from paribus.reading.study import ReadStudy
from paribus.report.content import CellRow, Curve, Look, PairRow

_VARIANTS = {spec.REPEAT: "A/A repeat", spec.TWIN: "A/A twin", spec.PROOF: "proof mode"}


def variant_in_words(variant: str) -> str:
    """Which of an arm's cells at one seed it is; empty for the study's own."""
    return _VARIANTS.get(variant, variant)


def curve(cell: ReadCell) -> Curve:
    scale, arm, seed, _ = cell.key
    tokens, losses = zip(*((line["tokens_seen"], line["loss_nats_per_token"]) for line in cell.metrics), strict=True)
    return Curve(scale, arm, seed, tokens, losses)


def cell_row(cell: ReadCell) -> CellRow:
    scale, arm, seed, variant = cell.key
    seconds = cell.summary.get("train_seconds")
    tokens = cell.summary.get("tokens_seen")
    return CellRow(
        scale=scale,
        arm=arm if not variant else f"{arm} ({variant_in_words(variant)})",
        seed=seed,
        state=cell.state,
        digest=cell.digest,
        test_nats_per_token=cell.final("test.nll"),
        test_bits_per_byte=cell.final("test.bits_per_byte"),
        validation_nats_per_token=cell.final("validation.nll"),
        final_training_loss_nats_per_token=cell.metrics[-1]["loss_nats_per_token"] if cell.metrics else None,
        train_seconds=seconds,
        tokens_per_second=tokens / seconds if tokens and seconds else None,
        code_version=cell.record.get("code_version", ""),
    )


def distinct_looks(study: ReadStudy) -> list[Look]:
    """The ledger without lines that saw what the line before them saw: each state of evidence with its first time."""
    found: list[Look] = []
    for line in study.folder.looks():
        look = Look(line["time"], line["command"], line["pairs"], line["words"], line["rule_digest"])
        seen = (look.pairs, look.words, look.rule_digest)
        if not found or seen != (found[-1].pairs, found[-1].words, found[-1].rule_digest):
            found.append(look)
    return found


def pair_rows(study: ReadStudy) -> list[PairRow]:
    found = []
    for name, contrast in study.experiment.contrasts.items():
        scale = study.experiment.contrast_scale(contrast)
        pairs = contrast_differences(study, contrast)
        finite = dict(zip(pairs.seeds, pairs.differences, strict=True))
        found += [PairRow(name, scale, seed, finite.get(seed)) for seed in sorted({*pairs.seeds, *pairs.diverged})]
    return found


def corpus(study: ReadStudy) -> dict[str, str]:
    corpus = study.plan["corpus"]
    if not corpus:
        return {}
    if corpus.get("task"):
        return _task(corpus)
    splits = {
        f"{split} split": f"{count['documents']:,} documents, {count['tokens']:,} tokens, {count['bytes']:,} bytes"
        for split, count in corpus["counts"].items()
    }
    declared = corpus["declared"]
    name = declared.get("folder", declared["kind"])
    dropped = ", ".join(f"{count:,} {what.replace('_', ' ')}" for what, count in corpus["dropped"].items())
    return {
        "corpus": Path(name).name,
        "digest": corpus["digest"][:16],
        "vocabulary": f"{corpus['vocabulary_size']:,} byte-level BPE tokens",
        **splits,
        "left out": dropped,
    }


def _task(corpus: Mapping[str, Any]) -> dict[str, str]:
    task = corpus["task"]
    return {
        "task": f"{task['name']}: {task['sentence']}",
        "knobs": ", ".join(f"{name} = {value}" for name, value in task["knobs"].items()),
        "rows": f"{task['row_length']} tokens each, drawn for every seed and step, none twice",
        "digest": corpus["digest"][:16],
        "vocabulary": f"{corpus['vocabulary_size']:,} tokens of the task's own",
    }
