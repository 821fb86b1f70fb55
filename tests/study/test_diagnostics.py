"""From a trained model through the rows on disk to the report: nothing lost, nothing stored as an aggregate only."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from paribus import measuring
from paribus.data.frozen import FrozenCorpus
from paribus.data.held_out import HeldOut
from paribus.data.material import held_out_of
from paribus.data.split import Split
from paribus.experiment import loading, spec
from paribus.measure.likelihood import document_nats
from paribus.measure.probes import probe
from paribus.measure.routes import depth_routes
from paribus.mechanisms.contract import Diagnostic, Intervention, Site
from paribus.mechanisms.depth.diagnostics import OF_EVERY_ROUTING, js_of_roles
from paribus.model.backbone import Backbone
from paribus.model.lawbench import LawBench
from paribus.reading.cell import ReadCell
from paribus.reading.study import ReadStudy
from paribus.report import page
from paribus.reporting.assemble import report_content
from paribus.runs.folder import CellFolder
from paribus.runs.study_folder import StudyFolder
from paribus.stats.divergence import js_divergence
from paribus.texts import recorded
from paribus.train.loop import MilestoneReached

DIAGNOSTICS = (*OF_EVERY_ROUTING, js_of_roles(Site.ATTENTION))
LAST = MilestoneReached(step=20, tokens_seen=10_000, budget_tokens=10_000, final=True)


@contextmanager
def halved(model: nn.Module) -> Iterator[None]:
    gain = model.get_parameter("output_norm.gain")
    with torch.no_grad():
        gain.mul_(0.5)
    try:
        yield
    finally:
        with torch.no_grad():
            gain.mul_(2.0)


def variants(model: nn.Module) -> Mapping[str, Callable]:
    return {"halved": lambda: halved(model), "unchanged": nullcontext}


HALVED = Intervention(name="halved", title="Halved", sentence="What a factor is worth.", variants=variants)


@pytest.fixture
def experiment(fresh: Path) -> spec.Experiment:
    """The prepared study, with more documents to look at."""
    text = (fresh / "study.toml").read_text(encoding="utf-8").replace("probe_tokens = 400", "probe_tokens = 1500")
    assert "probe_tokens = 1500" in text
    (fresh / "study.toml").write_text(text, encoding="utf-8")
    return loading.load(fresh / "study.toml")


@pytest.fixture
def models() -> dict[int, Backbone]:
    """Two seeds of a small model with depth routes that differ from token to token."""
    bench = LawBench(layers=2)
    bench.config = bench.config.model_copy(update={"vocabulary_size": 300, "context_length": 32})
    found = {}
    for seed in (0, 1):
        found[seed] = bench.model({"routing": {"name": "role-decoupled", "blocks": 2}})
        for _ in range(1 + seed):
            bench.disturb(found[seed], "query", std=1.0)
    return found


def frozen_of(runs: Path) -> FrozenCorpus:
    found = recorded(runs, StudyFolder(runs / "tiny"))
    assert found is not None
    return found


def measure(corpus: FrozenCorpus, base: spec.Base, *arguments: Any) -> Iterator[dict[str, Any]]:
    """`measuring.measure` on the held-out documents of a text."""

    def held_out(split: Split, tokens: int | None) -> HeldOut:
        return held_out_of(corpus, split, tokens, base.context_length, study="tiny", scale="tiny", seed=0)

    return measuring.measure(held_out, base.evaluation, *arguments)


def completed(folder: CellFolder) -> None:
    """What else a finished cell has on record."""
    folder.append_metrics({"step": 20, "tokens_seen": 10_000, "loss_nats_per_token": 5.0})
    folder.write_record({"code_version": "", "initial_digests": {}, "environment": {}})
    folder.finish({"train_seconds": 1.0, "tokens_seen": 10_000, "steps": 20, "batch_digest": "b"})


@pytest.fixture
def measured(fresh: Path, experiment: spec.Experiment, models: dict[int, Backbone]) -> ReadStudy:
    """A run folder with two measured cells, as it is read back."""
    corpus = frozen_of(fresh / "runs")
    study = StudyFolder(fresh / "runs" / "tiny")
    cells = {}
    for seed, model in models.items():
        folder = CellFolder(fresh / "cells" / str(seed))
        list(measure(corpus, experiment.base, folder, model, LAST, DIAGNOSTICS, [HALVED]))
        completed(folder)
        cells["tiny", "rd", seed, ""] = ReadCell(("tiny", "rd", seed, ""), "complete", "d", folder)
    every = experiment.cell_keys()
    missing = {key: ReadCell(key, "missing", "", None) for key in every if key not in cells}
    described = [
        {"diagnostic": d.name, "title": d.title, "sentence": d.sentence, "unit": d.unit, "correctness_only": False}
        for d in DIAGNOSTICS
    ]
    intervention = {"intervention": HALVED.name, "title": HALVED.title, "sentence": HALVED.sentence}
    plan = {
        "diagnostics": described,
        "interventions": [intervention],
        "arms": [],
        "gates": [],
        "cells": [],
        "environment": {},
        "corpus": {},
    }
    return ReadStudy(experiment, study, plan, {**cells, **missing})


def batches_of(fresh: Path, experiment: spec.Experiment) -> tuple[list, int]:
    corpus = frozen_of(fresh / "runs")
    base = experiment.base
    length, tokens = base.context_length, base.evaluation.probe_tokens
    probed = held_out_of(corpus, "validation", tokens, length, study="tiny", scale="tiny", seed=0)
    return list(measuring.scoring_batches(probed, torch.device("cpu"))), probed.documents


def test_what_was_measured_is_what_the_report_is_made_of(
    fresh: Path, experiment: spec.Experiment, models: dict[int, Backbone], measured: ReadStudy
) -> None:
    content = report_content(measured, (), "paribus run study.toml")
    batches, documents = batches_of(fresh, experiment)
    assert documents > 3

    readings = [r for r in probe(models[0], batches, DIAGNOSTICS) if not r.group.endswith(", in bits")]
    own = [value for value in content.diagnostics if value.seed == 0]
    assert [(v.diagnostic, v.layer, v.bucket, v.value, v.documents) for v in own] == [
        (r.diagnostic, r.layer, r.bucket, r.value, r.documents) for r in readings
    ]
    assert all(v.standard_error == r.standard_error for v, r in zip(own, readings, strict=True))
    assert {v.unit for v in own if v.diagnostic.startswith("js_")} == {"nats"}

    before = document_nats(models[1], batches, documents)
    with halved(models[1]):
        after = document_nats(models[1], batches, documents)
    tokens = sum(float(batch.weight.sum()) for batch, _ in batches)
    found = {v.variant: v for v in content.interventions if v.seed == 1}
    assert found["halved"].change == pytest.approx((after - before).sum() / tokens, rel=1e-12)
    assert (found["halved"].documents, found["unchanged"].change) == (documents, 0.0)
    assert found["halved"].standard_error is not None

    routes = {
        seed: {(r.site, r.layer, r.role): r.weights for r in depth_routes(m, batches)} for seed, m in models.items()
    }
    assert content.route_changes
    for change in content.route_changes:
        p, q = (routes[seed][change.site, change.layer, change.role] for seed in change.seeds)
        # Weights are kept in float32, as the model mixed them.
        assert change.nats == pytest.approx(js_divergence(p, q).mean(), rel=1e-12)
    several = {key for key, weights in routes[0].items() if weights.shape[1] > 1}
    assert {(c.site, c.layer, c.role) for c in content.route_changes} == several


def test_rows_of_interventions_are_kept_by_document_and_routes_by_token(measured: ReadStudy) -> None:
    folder = measured.cells["tiny", "rd", 0, ""].folder
    assert folder is not None
    (name,) = folder.row_files("interventions")
    rows = folder.rows(name).to_pydict()
    assert list(rows) == ["intervention", "variant", "document", "source", "tokens", "nats_before", "nats_after"]
    assert len(set(rows["document"])) * 2 == len(rows["document"])
    (name,) = folder.row_files("routes")
    rows = folder.rows(name)
    assert rows.column_names == ["site", "layer", "role", "position", "source", "weight"]
    assert str(rows.schema.field("weight").type) == "float"
    sums = rows.group_by(["site", "layer", "role", "position"]).aggregate([("weight", "sum")])
    # Softmax weights of at most five sources, summed in float32 and float64.
    assert np.allclose(sums["weight_sum"].to_numpy(), 1.0, atol=5 * 2.0**-23)


def test_rows_of_one_model_are_equal_whenever_it_is_measured(
    fresh: Path, experiment: spec.Experiment, models: dict[int, Backbone], measured: ReadStudy
) -> None:
    corpus = frozen_of(fresh / "runs")
    again, first = CellFolder(fresh / "cells" / "again"), measured.cells["tiny", "rd", 0, ""].folder
    assert first is not None
    list(measure(corpus, experiment.base, again, models[0], LAST, DIAGNOSTICS, [HALVED]))
    for group in ("diagnostics", "interventions", "routes"):
        (name,) = again.row_files(group)
        assert again.rows(name).to_pydict() == first.rows(name).to_pydict()  # a NaN would differ from itself


def test_one_document_has_no_standard_error_on_disk_or_in_the_report(
    fresh: Path, experiment: spec.Experiment, models: dict[int, Backbone], measured: ReadStudy
) -> None:
    corpus = frozen_of(fresh / "runs")
    evaluation = experiment.base.evaluation.model_copy(update={"probe_tokens": 1})
    base = experiment.base.model_copy(update={"evaluation": evaluation})
    folder = CellFolder(fresh / "cells" / "one")
    list(measure(corpus, base, folder, models[0], LAST, DIAGNOSTICS, [HALVED]))
    completed(folder)
    rows = folder.rows("diagnostics/00000020")
    assert set(rows["standard_error"].to_pylist()) == {None}
    cell = ("tiny", "rd", 0, "")
    cells = {**measured.cells, cell: ReadCell(cell, "complete", "d", folder)}
    content = report_content(replace(measured, cells=cells), (), "")
    assert {v.standard_error for v in content.diagnostics if v.seed == 0} == {None}
    assert {v.standard_error for v in content.interventions if v.seed == 0} == {None}


def test_a_page_is_written_from_a_measured_folder(measured: ReadStudy) -> None:
    content = report_content(measured, (), "paribus run study.toml")
    text = page.render(content)
    assert "Halved: change in NLL" in text
    assert "seed against seed" in text


def test_without_diagnostics_or_interventions_the_model_is_only_scored(
    fresh: Path, experiment: spec.Experiment, models: dict[int, Backbone]
) -> None:
    corpus = frozen_of(fresh / "runs")
    seen: list[tuple] = []
    models[0].register_forward_hook(lambda *call: seen.append(call[1]))
    nothing: tuple[Diagnostic, ...] = ()
    folder = CellFolder(fresh / "cells" / "bare")
    list(measure(corpus, experiment.base, folder, models[0], LAST, nothing, ()))
    assert seen
    assert all(len(inputs) == 2 for inputs in seen), "a tap was on"
    assert [folder.row_files(name) for name in ("diagnostics", "routes", "interventions")] == [[], [], []]
    middle = MilestoneReached(step=10, tokens_seen=5_000, budget_tokens=5_000, final=False)
    list(measure(corpus, experiment.base, folder, models[0], middle, DIAGNOSTICS, [HALVED]))
    assert folder.row_files("diagnostics") == []


def test_untuned_rates_of_a_mechanisms_own_parameters_are_a_caveat_by_role(measured: ReadStudy) -> None:
    arms = [{"arm": "xsa", "role": "scalar"}, {"arm": "rd", "role": "depth read"}, {"arm": "block", "role": "gain"}]
    counted = [
        {"scale": "tiny", "arm": a["arm"], "parameters_by_role": {a["role"]: 4}, "training_flops_per_token": 1.0}
        for a in arms
    ]
    content = report_content(replace(measured, plan={**measured.plan, "arms": counted}), (), "")
    untuned = [caveat for caveat in content.caveats if "untuned" in caveat]
    assert [caveat.partition(" is the default")[0] for caveat in untuned] == [
        "The learning rate of depth queries in rd",
        "The learning rate of learned scalars in xsa",
    ]


def test_an_interaction_is_paired_and_checked_over_its_four_arms(fresh: Path, measured: ReadStudy) -> None:
    text = (fresh / "study.toml").read_text(encoding="utf-8")
    contrast = '\n[contrasts.together]\ntreatment = "rd"\nbaseline = "block"\nminus_treatment = "xsa"\n'
    contrast += 'minus_baseline = "standard"\nsmallest_effect = 0.01\ndesign_effect = 0.03\n'
    (fresh / "study.toml").write_text(text + contrast, encoding="utf-8")
    experiment = loading.load(fresh / "study.toml")
    cells = dict(measured.cells)
    for seed in (0, 1):
        for arm in ("rd", "block", "xsa", "standard"):
            key = ("tiny", arm, seed, "")
            # Each arm is the model of one seed, so that its loss is known and their difference is not 0.
            of = seed if arm == "rd" else 0
            cells[key] = ReadCell(key, "complete", "d", measured.cells["tiny", "rd", of, ""].folder)
    content = report_content(replace(measured, experiment=experiment, cells=cells), (), "")
    final = {seed: cells["tiny", "rd", seed, ""].final("test.nll") for seed in (0, 1)}
    assert final[0] is not None
    assert final[1] is not None
    differences = {row.seed: row.difference for row in content.pairs if row.contrast == "together"}
    assert differences == {0: 0.0, 1: (final[1] - final[0]) - (final[0] - final[0])}
    proofs = {held.what: held for held in content.held_equal if held.what.startswith("together")}
    assert len(proofs) == 3
    assert all(held.holds and held.proof.endswith("2 of 2 seeds") for held in proofs.values())
