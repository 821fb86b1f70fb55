"""Jobs put to a model: rows item by item, nothing asked twice, nothing overwritten unasked."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from paribus.downstream.core.bundle import read_bundle
from paribus.downstream.core.items import core_items
from paribus.downstream.core.settings import CoreSettings
from paribus.errors import StudyFolderError
from paribus.evaluating.core import core_jobs, core_sentences
from paribus.evaluating.running import evaluate
from paribus.evaluating.scores import scores
from paribus.measure.answers_reference import naive_answer
from paribus.runs.answers import SCHEMA, AnswersFolder
from paribus.trained import Trained

Opened = Callable[[], Trained]


def silent(*_: object) -> None:
    pass


def test_every_item_has_a_row_with_what_a_naive_forward_of_its_own_gives(bundle: Path, opened: Opened) -> None:
    jobs = core_jobs(bundle, CoreSettings())
    answered = evaluate([opened], jobs, silent)
    assert [a.asked.stem for a in answered] == [
        "core.arc_easy-00000007",
        "core.lambada_openai-00000007",
        "core.winograd-00000007",
    ]
    trained = opened()
    for done, task in zip(answered, read_bundle(bundle).tasks, strict=True):
        rows = AnswersFolder(done.folder).rows(done.asked)
        assert rows.schema == SCHEMA
        assert rows["item"].to_pylist() == list(range(12))
        by_item = {row["item"]: row for row in rows.to_pylist()}
        for item in core_items(task, trained.tokenizer, context_length=128):
            expected, row = naive_answer(trained.model, item, trained.tokenizer.decode), by_item[item.item]
            assert (row["prediction"], row["correct"]) == (expected.prediction, expected.correct)
            assert row["gold"] == item.labels[item.gold]
            assert row["prompt_digest"] == item.prompt_digest
            # Both in float32: sums of at most some hundred terms of about 6 nats.
            assert np.allclose(row["nats"], expected.nats, rtol=1e-5)
            assert expected.gold_nats is not None
            assert math.isclose(row["gold_nats"], expected.gold_nats, rel_tol=1e-5)


def test_what_was_answered_is_not_asked_again_and_its_files_stay(bundle: Path, opened: Opened) -> None:
    jobs = core_jobs(bundle, CoreSettings(), tasks=("winograd",))
    [first] = evaluate([opened], jobs, silent)
    rows = first.folder / "tasks" / f"{first.asked.stem}.parquet"
    before = rows.stat().st_mtime_ns
    [second] = evaluate([opened], jobs, silent)
    assert first.new
    assert not second.new
    assert rows.stat().st_mtime_ns == before
    [third] = evaluate([opened], jobs, silent, again=True)
    assert third.new
    assert rows.stat().st_mtime_ns != before


def test_damaged_answers_are_asked_again(bundle: Path, opened: Opened) -> None:
    jobs = core_jobs(bundle, CoreSettings(), tasks=("winograd",))
    [first] = evaluate([opened], jobs, silent)
    rows = first.folder / "tasks" / f"{first.asked.stem}.parquet"
    content = bytearray(rows.read_bytes())
    content[len(content) // 2] ^= 1
    rows.write_bytes(bytes(content))
    with pytest.raises(StudyFolderError, match="changed after it was written"):
        AnswersFolder(first.folder).rows(first.asked)
    [again] = evaluate([opened], jobs, silent)
    assert again.new
    assert len(AnswersFolder(first.folder).rows(first.asked)) == 12


def test_a_changed_question_under_the_same_name_is_refused_naming_the_field(bundle: Path, opened: Opened) -> None:
    evaluate([opened], core_jobs(bundle, CoreSettings(), tasks=("winograd",)), silent)
    file = bundle / "eval_data" / "winograd.jsonl"
    file.write_text(file.read_text().replace("hat", "cap"))
    with pytest.raises(StudyFolderError, match=r"core.winograd that were asked in another way(.|\n)*file = "):
        evaluate([opened], core_jobs(bundle, CoreSettings(), tasks=("winograd",)), silent)


def test_no_core_is_printed_from_an_incomplete_bundle_and_what_is_missing_is_said(bundle: Path, opened: Opened) -> None:
    found = scores(evaluate([opened], core_jobs(bundle, CoreSettings()), silent))
    sentence, altered = core_sentences(bundle, found, listed_in="core.yaml", baselines_v2=None)
    assert altered == "not byte for byte the files that CORE's bundle ships: arc_easy, lambada_openai, winograd"
    assert sentence.startswith("CORE is not printed")
    assert "hellaswag_zeroshot is not in core.yaml" in sentence
    assert not any(score.complete for score in found)


def test_a_limit_and_the_control_have_names_of_their_own(bundle: Path, opened: Opened) -> None:
    jobs = core_jobs(bundle, CoreSettings(max_items=5), tasks=("arc_easy",), counterfactual=True)
    found = scores(evaluate([opened], jobs, silent))
    assert [(score.variant, score.items) for score in found] == [("first-5", 5), ("first-5+counterfactual", 5)]


def test_examples_in_prompts_do_not_depend_on_the_limit(bundle: Path, opened: Opened) -> None:
    def digests(limit: int | None) -> dict[int, str]:
        [done] = evaluate([opened], core_jobs(bundle, CoreSettings(max_items=limit), tasks=("arc_easy",)), silent)
        rows = AnswersFolder(done.folder).rows(done.asked)
        return dict(zip(rows["item"].to_pylist(), rows["prompt_digest"].to_pylist(), strict=True))

    some, every = digests(4), digests(None)
    assert len(some) == 4
    assert all(every[item] == digest for item, digest in some.items())
