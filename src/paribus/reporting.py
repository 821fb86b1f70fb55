"""From a run folder that was read back to what the report shows. Loads no torch."""

from collections.abc import Iterator
from pathlib import Path

from paribus.experiment import spec
from paribus.optim.config import OptimiserConfig
from paribus.reading import ReadCell, ReadStudy, values_by_seed
from paribus.report.content import (
    ArmParameters,
    CellRow,
    Curve,
    DiagnosticText,
    DiagnosticValue,
    HeldEqual,
    Look,
    PairRow,
    ReportContent,
)
from paribus.stats.rule import Verdict, Word

FEW_DOCUMENTS = 100
"""held-out documents below which the report says so"""


def report_content(study: ReadStudy, verdicts: tuple[Verdict, ...], repeat_command: str) -> ReportContent:
    """Everything that the report shows, from rows and records."""
    complete = [cell for cell in study.cells.values() if cell.state == "complete" and cell.key[3] == 0]
    return ReportContent(
        study=study.experiment.study,
        question=study.experiment.question,
        verdicts=verdicts,
        curves=tuple(_curve(cell) for cell in complete),
        measurements=tuple(m for cell in complete for m in cell.measurements),
        diagnostics=tuple(value for cell in complete for value in _diagnostics(study, cell)),
        diagnostic_texts=tuple(
            DiagnosticText(d["diagnostic"], d["title"], d["sentence"], d["correctness_only"])
            for d in study.plan["diagnostics"]
        ),
        held_equal=tuple(_held_equal(study)),
        parameters=tuple(
            ArmParameters(
                a["scale"],
                a["arm"],
                a["parameters_by_role"],
                sum(a["parameters_by_role"].values()),
                a["training_flops_per_token"],
            )
            for a in study.plan["arms"]
        ),
        cells=tuple(_cell_row(cell) for cell in study.cells.values()),
        looks=tuple(_distinct_looks(study)),
        environment=study.plan["environment"],
        corpus=_corpus(study),
        caveats=tuple(_caveats(study, verdicts)),
        repeat_command=repeat_command,
        pairs=tuple(_pair_rows(study)),
    )


def _curve(cell: ReadCell) -> Curve:
    scale, arm, seed, _ = cell.key
    tokens, losses = zip(*((line["tokens_seen"], line["loss_nats_per_token"]) for line in cell.metrics), strict=True)
    return Curve(scale, arm, seed, tokens, losses)


def _diagnostics(study: ReadStudy, cell: ReadCell) -> list[DiagnosticValue]:
    units = {d["diagnostic"]: d["unit"] for d in study.plan["diagnostics"]}
    assert cell.folder is not None
    scale, arm, seed, _ = cell.key
    found = []
    for name in cell.folder.row_files("diagnostics"):
        for row in cell.folder.rows(name).to_pylist():
            # "query source:3" is source 3 as the role "query" weighs it.
            role, _, source = row["group"].rpartition(" source:")
            site, group = (role, f"source:{source}") if role else ("", row["group"])
            unit = units.get(row["diagnostic"], "")
            found.append(
                DiagnosticValue(row["diagnostic"], unit, scale, arm, seed, row["layer"], site, group, row["value"])
            )
    return found


def _held_equal(study: ReadStudy) -> list[HeldEqual]:
    found = []
    for name, contrast in study.experiment.contrasts.items():
        pairs = _complete_pairs(study, contrast)
        if not pairs:
            continue
        of = f"in {{}} of {len(pairs)} pairs"
        batches = sum(t.summary.get("batch_digest") == b.summary.get("batch_digest") for t, b in pairs)
        found.append(
            HeldEqual(
                f"{name}: training batches, in order",
                "digest of every batch as the model consumed it, equal " + of.format(batches),
                batches == len(pairs),
            )
        )
        tensors = len(pairs[0][1].record["initial_digests"])
        initial = sum(b.record["initial_digests"].items() <= t.record["initial_digests"].items() for t, b in pairs)
        found.append(
            HeldEqual(
                f"{name}: initial values of the baseline's {tensors} tensors",
                "digest of each tensor at step 0, equal " + of.format(initial),
                initial == len(pairs),
            )
        )
        steps = sum(t.summary.get("steps") == b.summary.get("steps") for t, b in pairs)
        found.append(HeldEqual(f"{name}: optimiser updates", "counted, equal " + of.format(steps), steps == len(pairs)))
    for key, cell in study.cells.items():
        original = study.cells[(*key[:3], 0)]
        if key[3] and cell.state == original.state == "complete":
            same = cell.summary["final_tensors_digest"] == original.summary["final_tensors_digest"]
            proof = "trained twice: final tensors " + ("bit-identical" if same else "differ")
            found.append(HeldEqual(f"A/A repeat of {'/'.join(map(str, key[:3]))}", proof, same))
    gates = (
        HeldEqual(f"{gate['subject']}: {gate['name']}", gate["detail"], gate["passed"], gate=True)
        for gate in study.plan["gates"]
    )
    return [*found, *gates]


def _complete_pairs(study: ReadStudy, contrast: spec.Contrast) -> list[tuple[ReadCell, ReadCell]]:
    scale = study.experiment.contrast_scale(contrast)
    pairs = [
        (study.cells[scale, contrast.treatment, seed, 0], study.cells[scale, contrast.baseline, seed, 0])
        for seed in study.experiment.seeds.numbers
    ]
    return [(t, b) for t, b in pairs if t.state == b.state == "complete"]


def _cell_row(cell: ReadCell) -> CellRow:
    scale, arm, seed, repeat = cell.key
    seconds = cell.summary.get("train_seconds")
    tokens = cell.summary.get("tokens_seen")
    return CellRow(
        scale=scale,
        arm=arm if not repeat else f"{arm} (A/A repeat)",
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


def _distinct_looks(study: ReadStudy) -> list[Look]:
    """The ledger without lines that saw what the line before them saw: each state of evidence with its first time."""
    found: list[Look] = []
    for line in study.folder.looks():
        look = Look(line["time"], line["command"], line["pairs"], line["words"], line["rule_digest"])
        seen = (look.pairs, look.words, look.rule_digest)
        if not found or seen != (found[-1].pairs, found[-1].words, found[-1].rule_digest):
            found.append(look)
    return found


def _pair_rows(study: ReadStudy) -> list[PairRow]:
    found = []
    for name, contrast in study.experiment.contrasts.items():
        scale = study.experiment.contrast_scale(contrast)
        treatment, baseline = (
            values_by_seed(study, scale, arm, contrast.metric) for arm in (contrast.treatment, contrast.baseline)
        )
        for seed in sorted(treatment.keys() & baseline.keys()):
            t, b = treatment[seed], baseline[seed]
            found.append(PairRow(name, scale, seed, None if t is None or b is None else t - b))
    return found


def _corpus(study: ReadStudy) -> dict[str, str]:
    corpus = study.plan["corpus"]
    if not corpus:
        return {}
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


def _mixed(study: ReadStudy, name: str, contrast: spec.Contrast) -> Iterator[str]:
    """A contrast whose cells ran on different code, packages or processors says so."""
    records = [cell.record for pair in _complete_pairs(study, contrast) for cell in pair]
    versions: dict[str, set[str]] = {"code": {record["code_version"] for record in records}}
    for record in records:
        for what in record["environment"].keys() - {"code version"}:
            versions.setdefault(what, set()).add(record["environment"][what])
    for what, values in sorted(versions.items()):
        if len(values) > 1:
            found = ", ".join(sorted(values))
            yield f"Contrast {name} mixes cells that differ in what they ran on, {what}: {found}."


def _caveats(study: ReadStudy, verdicts: tuple[Verdict, ...]) -> list[str]:
    """What could still be wrong, each said only where it is the case."""
    found = []
    states = {state: study.count(state) for state in ("missing", "started", "running", "stale", "diverged")}
    for state, count in states.items():
        if count:
            found.append(f"{count} of {len(study.cells)} cells are {state}.")
    unequal = [held for held in _held_equal(study) if not held.holds]
    found += [f"Not held equal: {held.what} ({held.proof})." for held in unequal]
    found += [text for name, contrast in study.experiment.contrasts.items() for text in _mixed(study, name, contrast)]
    rules = [look["rule_digest"] for look in study.folder.looks()]
    if any(rule != spec.rule_digest(study.experiment) for rule in rules):
        found.append("The rule (contrasts, margins or planned seeds) was changed after cells had run; see the looks.")
    default = OptimiserConfig().depth_read_learning_rate
    untuned = [
        arm
        for arm in study.experiment.arms
        if study.experiment.arm(arm).optimiser.depth_read_learning_rate == default
        and any(a["arm"] == arm and "depth read" in a["parameters_by_role"] for a in study.plan["arms"])
    ]
    if untuned:
        found.append(
            f"The learning rate of depth queries in {', '.join(untuned)} is the default {default:g}, which is untuned; "
            "such rates can matter more than a mechanism."
        )
    used = [cell for cell in study.cells.values() if cell.state == "complete"]
    scored = {len(cell.folder.rows(cell.folder.row_files("likelihood")[0])) for cell in used if cell.folder is not None}
    if scored and min(scored) < FEW_DOCUMENTS:
        found.append(
            f"Only {min(scored)} held-out documents were scored: another collection may well answer differently."
        )
    found.append("Nothing was tuned for this file by paribus; equal tuning of the arms is the experimenter's to show.")
    if any(contrast.metric.startswith("validation.") for contrast in study.experiment.contrasts.values()):
        found.append("A verdict on the validation split is only as good as that split's distance from tuning.")
    found.append(
        "Seeds are random, the held-out documents are these; another collection of documents may answer differently."
    )
    if any(verdict.word is Word.WAITING for verdict in verdicts):
        found.append("Not all planned seeds are there yet; no verdict is due.")
    return found
