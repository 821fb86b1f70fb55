"""From trained models on a task through the rows on disk to the retrieving layer of each arm."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from paribus.data.held_out import HeldOut
from paribus.data.material import held_out_of
from paribus.data.split import Split
from paribus.data.tasks.cross import Cross
from paribus.data.tasks.stream import TaskCorpus
from paribus.experiment import spec
from paribus.measure.probes import probe
from paribus.measure.retrieval import ANSWER_MASS
from paribus.measure.retrieval import LARGEST_HEAD as WRITTEN_LARGEST_HEAD
from paribus.measuring import measure, probing_batches
from paribus.mechanisms import all_diagnostics
from paribus.model.backbone import Backbone
from paribus.model.lawbench import LawBench
from paribus.reading.cell import ReadCell
from paribus.reading.study import ReadStudy
from paribus.report import of_retrieval
from paribus.report.content import DiagnosticValue
from paribus.reporting.mechanism import diagnostics
from paribus.reporting.retrieval import retrieval
from paribus.runs.folder import CellFolder
from paribus.train.loop import MilestoneReached

CORPUS = TaskCorpus(Cross(), 32)
LAST = MilestoneReached(step=20, tokens_seen=640, budget_tokens=640, final=True)
ARMS: dict[str, dict[str, dict[str, Any]]] = {
    "plain": {},
    "one route": {"routing": {"name": "block-attnres", "blocks": 3}},
    "two routes": {"routing": {"name": "role-decoupled", "blocks": 3}},
}
READ = (*all_diagnostics(), ANSWER_MASS)


def model_of(arm: str) -> Backbone:
    bench = LawBench(layers=3)
    bench.config = bench.config.model_copy(update={"vocabulary_size": CORPUS.vocabulary_size, "context_length": 32})
    model = bench.model(ARMS[arm])
    if arm != "plain":
        bench.disturb(model, "query", std=1.0)
    return model


def held_out(split: Split, tokens: int | None) -> HeldOut:
    return held_out_of(CORPUS, split, tokens, 32, study="s", scale="S", seed=0)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[ReadStudy, list[DiagnosticValue]]:
    """A study of three arms and one seed, as far as readings go, and all that was read in it."""
    evaluation = spec.Evaluation(test_tokens=16, validation_tokens=16, probe_tokens=64)
    described = [{"diagnostic": d.name, "unit": d.unit} for d in READ]
    plan = {"diagnostics": described, "corpus": {"task": CORPUS.describe()}}
    read = cast(ReadStudy, SimpleNamespace(plan=plan, experiment=about("train.area")))
    values = []
    for arm in ARMS:
        folder = CellFolder(tmp_path_factory.mktemp("cell"))
        list(measure(held_out, evaluation, folder, model_of(arm), LAST, all_diagnostics(), ()))
        values += diagnostics(read, ReadCell(("S", arm, 0, ""), "complete", "d", folder))
    return read, values


def about(metric: str) -> Any:
    """An experiment, as far as its primary contrast goes."""
    return SimpleNamespace(primary="only", contrasts={"only": SimpleNamespace(metric=metric)})


def test_the_readings_are_of_the_slices_that_the_primary_contrast_is_about(
    study: tuple[ReadStudy, list[DiagnosticValue]],
):
    def slices(metric: str) -> set[str]:
        read = cast(ReadStudy, SimpleNamespace(plan=study[0].plan, experiment=about(metric)))
        return {row.slice for row in retrieval(read, study[1])}

    assert slices("train.area.QS") == {"QS"}
    assert slices("train.area.QD-QS") == {"QD", "QS"}
    assert slices("test.nll") == {"QD"}, "where the metric names none, what the task itself is about"


def test_each_arm_has_the_readings_of_its_retrieving_layer(study: tuple[ReadStudy, list[DiagnosticValue]]):
    rows = {row.arm: row for row in retrieval(*study)}
    assert list(rows) == list(ARMS)
    for arm, row in rows.items():
        batches = list(probing_batches(held_out("validation", 64), torch.device("cpu")))
        found = {
            (r.diagnostic, r.group, r.layer): r.value
            for r in probe(model_of(arm), batches, READ, CORPUS.task.slices)
            if r.bucket == "QD"
        }
        masses = [
            max(
                value
                for (name, group, at), value in found.items()
                if (name, group[:5], at) == ("answer_mass", "head:", n)
            )
            for n in range(3)
        ]
        assert (row.slice, row.layer) == ("QD", int(np.argmax(masses)))
        assert row.answer_mass == max(masses)
        assert row.own_cosine == found["cos_y_v", "mean over heads", row.layer]
        assert row.own_share == found["own_share", "mean over heads", row.layer]
        role = {"plain": "", "one route": "query", "two routes": "value_query"}[arm]
        assert row.value_route_on_embedding == found.get(("depth_embedding_mass_attention", role, row.layer))
        pair = ("js_roles_attention", "query vs value_query: per token, then averaged", row.layer)
        assert row.route_divergence_nats == found.get(pair)


def test_arms_with_routes_have_readings_of_them_and_others_none(study: tuple[ReadStudy, list[DiagnosticValue]]):
    """At a layer that reads more than one source, whichever layer it is."""
    read, values = study
    deep = [v for v in values if v.layer > 0]
    rows = {row.arm: row for row in retrieval(read, deep)}
    assert (rows["plain"].value_route_on_embedding, rows["plain"].route_divergence_nats) == (None, None)
    assert rows["one route"].value_route_on_embedding is not None
    assert rows["one route"].route_divergence_nats is None
    assert rows["two routes"].value_route_on_embedding is not None
    assert (rows["two routes"].route_divergence_nats or 0.0) > 0.0


def test_a_text_has_no_answers_and_no_rows(study: tuple[ReadStudy, list[DiagnosticValue]]):
    text = cast(ReadStudy, SimpleNamespace(plan={"diagnostics": [], "corpus": {}}))
    assert retrieval(text, study[1]) == []


def test_the_report_looks_for_diagnostics_that_exist_under_the_names_they_are_written_with():
    names = {d.name for d in READ}
    looked_for = {
        of_retrieval.ANSWER_MASS,
        of_retrieval.OWN_SHARE,
        of_retrieval.OWN_COSINE,
        of_retrieval.EMBEDDING_MASS,
        of_retrieval.DIVERGENCE,
    }
    assert looked_for <= names
    assert of_retrieval.LARGEST_HEAD == WRITTEN_LARGEST_HEAD
