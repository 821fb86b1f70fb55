"""From a run folder that was read back to what the report shows. Loads no torch."""

import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paribus.experiment import spec
from paribus.optim.config import OptimiserConfig
from paribus.reading import ReadCell, ReadStudy, contrast_differences
from paribus.report.content import (
    EVERY_POSITION,
    ArmParameters,
    CellRow,
    Curve,
    DiagnosticText,
    DiagnosticValue,
    HeldEqual,
    InterventionText,
    InterventionValue,
    Look,
    PairRow,
    ReportContent,
    RouteChange,
)
from paribus.stats import documents
from paribus.stats.divergence import RouteKey, between_seeds
from paribus.stats.rule import Verdict, Word

FEW_DOCUMENTS = 100
"""held-out documents below which the report says so"""
_IN_BITS = ", in bits"
"""how a group ends that holds the group before it in another unit"""
_RATES = (
    ("depth read", "depth queries", "depth_read_learning_rate"),
    ("scalar", "learned scalars", "scalar_learning_rate"),
)
"""roles that only a mechanism has: the role, what it is called in a sentence, and its rate"""


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
        interventions=tuple(value for cell in complete for value in _interventions(cell)),
        intervention_texts=tuple(
            InterventionText(i["intervention"], i["title"], i["sentence"])
            for i in study.plan.get("interventions", [])  # a plan of an earlier version has none
        ),
        route_changes=tuple(_route_changes(complete)),
    )


def _curve(cell: ReadCell) -> Curve:
    scale, arm, seed, _ = cell.key
    tokens, losses = zip(*((line["tokens_seen"], line["loss_nats_per_token"]) for line in cell.metrics), strict=True)
    return Curve(scale, arm, seed, tokens, losses)


def _diagnostics(study: ReadStudy, cell: ReadCell) -> list[DiagnosticValue]:
    """Every reading but those of one head in one bucket of positions, which stay in the run folder.

    Nor is a reading "in bits" taken beside the same one in nats: tables convert.
    """
    units = {d["diagnostic"]: d["unit"].partition(" (bits")[0] for d in study.plan["diagnostics"]}
    assert cell.folder is not None
    scale, arm, seed, _ = cell.key
    found = []
    for name in cell.folder.row_files("diagnostics"):
        for row in cell.folder.rows(name).to_pylist():
            if row["group"].endswith(_IN_BITS):
                continue
            # "query source:3" is source 3 as the role "query" weighs it.
            role, _, source = row["group"].rpartition(" source:")
            site, group = (role, f"source:{source}") if role else ("", row["group"])
            value = DiagnosticValue(
                diagnostic=row["diagnostic"],
                unit=units.get(row["diagnostic"], ""),
                scale=scale,
                arm=arm,
                seed=seed,
                layer=row["layer"],
                site=site,
                group=group,
                value=row["value"],
                bucket=row.get("bucket", EVERY_POSITION),
                standard_error=_there(row.get("standard_error")),
                documents=row.get("documents"),
            )
            if not (value.of_head and value.bucket != EVERY_POSITION):
                found.append(value)
    return found


def _there(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def _interventions(cell: ReadCell) -> Iterator[InterventionValue]:
    """The change of each variant, from the rows of its documents."""
    assert cell.folder is not None
    scale, arm, seed, _ = cell.key
    for name in cell.folder.row_files("interventions"):
        rows = cell.folder.rows(name)
        labels = list(zip(rows["intervention"].to_pylist(), rows["variant"].to_pylist(), strict=True))
        before, after, tokens = (rows[c].to_numpy().astype(float) for c in ("nats_before", "nats_after", "tokens"))
        for intervention, variant in dict.fromkeys(labels):
            own = np.array([label == (intervention, variant) for label in labels])
            change = documents.ratio((after - before)[own], tokens[own])
            error = _there(float(change.standard_error))
            what = (intervention, variant, scale, arm, seed)
            yield InterventionValue(*what, float(change.value), error, int(change.documents))


def _route_changes(complete: list[ReadCell]) -> Iterator[RouteChange]:
    """How far each depth route moves between the seeds of an arm."""
    for scale, arm in dict.fromkeys(cell.key[:2] for cell in complete):
        routes = {cell.key[2]: _routes(cell) for cell in complete if cell.key[:2] == (scale, arm)}
        for found in between_seeds(routes):
            yield RouteChange(scale, arm, found.site, found.layer, found.role, found.seeds, found.nats)


def _routes(cell: ReadCell) -> dict[RouteKey, NDArray[np.floating]]:
    """Weights [position source] of every route that the cell kept."""
    assert cell.folder is not None
    found = {}
    for name in cell.folder.row_files("routes"):
        rows = cell.folder.rows(name)
        site, role = (rows[column].dictionary_encode().combine_chunks() for column in ("site", "role"))
        layer, source = rows["layer"].to_numpy(), rows["source"].to_numpy()
        codes = np.stack([site.indices.to_numpy(), layer, role.indices.to_numpy()], -1)
        # Rows of one route stand together, by position and then by source, as they were written.
        starts = np.flatnonzero(np.any(codes[1:] != codes[:-1], axis=1)) + 1
        for first, stop in pairwise([0, *starts.tolist(), len(codes)]):
            s, number, r = codes[first]
            key = (site.dictionary[int(s)].as_py(), int(number), role.dictionary[int(r)].as_py())
            weights = rows["weight"].slice(first, stop - first).to_numpy()
            found[key] = weights.reshape(-1, int(source[first:stop].max()) + 1)
    return found


def _held_equal(study: ReadStudy) -> list[HeldEqual]:
    found = []
    for name, contrast in study.experiment.contrasts.items():
        groups = _complete_groups(study, contrast)
        if not groups:
            continue
        of = f"in {{}} of {len(groups)} " + ("pairs" if len(contrast.arms) == 2 else "seeds")
        batches, steps = (
            sum(len({cell.summary.get(what) for cell in group}) == 1 for group in groups)
            for what in ("batch_digest", "steps")
        )
        found.append(
            HeldEqual(
                f"{name}: training batches, in order",
                "digest of every batch as the model consumed it, equal " + of.format(batches),
                batches == len(groups),
            )
        )
        # Every second arm of the formula is what the arm before it is compared with.
        initial = [
            [(t.record["initial_digests"], b.record["initial_digests"]) for t, b in zip(g[::2], g[1::2], strict=True)]
            for g in groups
        ]
        same = sum(all(b.items() <= t.items() for t, b in pairs) for pairs in initial)
        tensors = " and ".join(f"{len(b)}" for _, b in initial[0])
        found.append(
            HeldEqual(
                f"{name}: initial values of the baseline's {tensors} tensors",
                "digest of each tensor at step 0, equal " + of.format(same),
                same == len(groups),
            )
        )
        equal = HeldEqual(f"{name}: optimiser updates", "counted, equal " + of.format(steps), steps == len(groups))
        found.append(equal)
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


def _complete_groups(study: ReadStudy, contrast: spec.Contrast) -> list[list[ReadCell]]:
    """The cells of the contrast's arms, in the order of its formula, at each seed where all are complete."""
    scale = study.experiment.contrast_scale(contrast)
    groups = [[study.cells[scale, arm, seed, 0] for arm in contrast.arms] for seed in study.experiment.seeds.numbers]
    return [group for group in groups if all(cell.state == "complete" for cell in group)]


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
        pairs = contrast_differences(study, contrast)
        finite = dict(zip(pairs.seeds, pairs.differences, strict=True))
        found += [PairRow(name, scale, seed, finite.get(seed)) for seed in sorted({*pairs.seeds, *pairs.diverged})]
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
    records = [cell.record for group in _complete_groups(study, contrast) for cell in group]
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
    found += _untuned_rates(study)
    used = [cell for cell in study.cells.values() if cell.state == "complete"]
    scored = {len(cell.folder.rows(cell.folder.row_files("likelihood")[0])) for cell in used if cell.folder is not None}
    if scored and min(scored) < FEW_DOCUMENTS:
        found.append(
            f"Only {min(scored)} held-out documents were scored: another collection may well answer differently."
        )
    found.append("Nothing was tuned for this file by paribus; equal tuning of the arms is the experimenter's to show.")
    if any(contrast.minus_treatment is not None for contrast in study.experiment.contrasts.values()):
        found.append(
            "An interaction is a statement about one scale. This one is in nats; in compute multipliers, which are not "
            "measured here, its sign may be another, and only where both agree is it a finding about the mechanisms."
        )
    if any(contrast.metric.startswith("validation.") for contrast in study.experiment.contrasts.values()):
        found.append("A verdict on the validation split is only as good as that split's distance from tuning.")
    found.append(
        "Seeds are random, the held-out documents are these; another collection of documents may answer differently."
    )
    if any(verdict.word is Word.WAITING for verdict in verdicts):
        found.append("Not all planned seeds are there yet; no verdict is due.")
    return found


def _untuned_rates(study: ReadStudy) -> Iterator[str]:
    """Rates of a mechanism's own parameters that nobody set: one sentence a role, with the arms that have it."""
    default = OptimiserConfig()
    for role, what, field in _RATES:
        rate = getattr(default, field)
        arms = [
            arm
            for arm in study.experiment.arms
            if getattr(study.experiment.arm(arm).optimiser, field) == rate
            and any(a["arm"] == arm and role in a["parameters_by_role"] for a in study.plan["arms"])
        ]
        if arms:
            yield (
                f"The learning rate of {what} in {', '.join(arms)} is the default {rate:g}, which is untuned; "
                "such rates can matter more than a mechanism."
            )
