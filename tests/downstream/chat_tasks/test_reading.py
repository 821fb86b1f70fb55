"""Evaluation sets in the hub's layout: what is read, what is marked, what is refused."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paribus.downstream.chat.definitions import CHANCE, CHATCORE, ROWS
from paribus.downstream.chat.sources import calculations
from paribus.downstream.chat.tasks.catalogue import TASKS, chat_task
from paribus.downstream.chat.tasks.questions import LetterQuestion, NumberQuestion, ProgramQuestion, Questions
from paribus.downstream.chat.tasks.reading import ChatTaskError
from paribus.errors import ParibusError

Written = Callable[..., Path]
ARC = {"id": "1", "question": "Why?", "choices": {"text": ["a", "b", "c"], "label": ["1", "2", "3"]}, "answerKey": "2"}
MMLU = {"question": "Why?", "subject": "logic", "choices": ["a", "b", "c", "d"], "answer": 3}
GSM = {"question": "How many?", "answer": "It is <<2*600=1200>>1200.\n#### 1,200"}
HUMAN = {
    "task_id": "0",
    "prompt": "def f(x):\n",
    "canonical_solution": "    return x\n",
    "test": "def check(candidate):\n    assert candidate(1) == 1\n",
    "entry_point": "f",
}
PLACES = {
    "arc_easy": ("allenai--ai2_arc/ARC-Easy/test", ARC),
    "arc_challenge": ("allenai--ai2_arc/ARC-Challenge/test", ARC),
    "mmlu": ("cais--mmlu/all/test", MMLU),
    "gsm8k": ("openai--gsm8k/main/test", GSM),
    "humaneval": ("openai--openai_humaneval/openai_humaneval/test", HUMAN),
}


def read(written: Written, task: str, *files: list[dict[str, Any]]) -> Questions:
    return chat_task(task).read(written(PLACES[task][0], *files))


def test_rows_become_questions(written: Written) -> None:
    assert read(written, "arc_easy", [ARC]).all == (LetterQuestion(0, "Why?", ("a", "b", "c"), ("1", "2", "3"), 1),)
    [question] = read(written, "mmlu", [MMLU]).all
    assert question == LetterQuestion(0, "Why?", ("a", "b", "c", "d"), ("A", "B", "C", "D"), 3, "logic")
    assert read(written, "gsm8k", [GSM]).all == (NumberQuestion(0, "How many?", "1200"),)
    early = {"question": "How many?", "answer": "#### 7 <<1+1=2>>2\n#### 2"}
    assert read(written, "gsm8k", [early]).all == (NumberQuestion(0, "How many?", "2"),)
    assert read(written, "humaneval", [HUMAN]).all == (
        ProgramQuestion(0, HUMAN["prompt"], HUMAN["canonical_solution"], HUMAN["test"], "f"),
    )


def test_rows_are_numbered_over_all_files_in_the_manifests_order(written: Written) -> None:
    questions = read(written, "gsm8k", [GSM, GSM | {"question": "b"}], [GSM | {"question": "c"}])
    assert [(q.item, q.asked) for q in questions.all if isinstance(q, NumberQuestion)] == [
        (0, "How many?"),
        (1, "b"),
        (2, "c"),
    ]


@pytest.mark.parametrize(
    ("task", "change", "words"),
    [
        ("arc_easy", {"answerKey": "4"}, "the right answer '4' is none of 1, 2, 3"),
        ("arc_easy", {"answerKey": None}, "the right answer None"),
        ("arc_easy", {"question": None}, "question is None, not a text"),
        ("arc_easy", {"question": "  "}, "not a text"),
        ("arc_challenge", {"choices": {"text": ["a", "b"], "label": ["1", "2", "3"]}}, "2 choices with 3 labels"),
        ("arc_challenge", {"choices": {"text": ["a", "b"], "label": ["2", "2"]}}, "one label"),
        ("arc_challenge", {"choices": None}, "no texts with labels"),
        ("mmlu", {"answer": 4}, "the right answer 4 is no index from 0 to 3"),
        ("mmlu", {"answer": -1}, "the right answer -1"),
        ("mmlu", {"answer": None}, "the right answer None"),
        ("mmlu", {"choices": ["a", "b", "c"]}, "3 choices, not 4"),
        ("mmlu", {"choices": ["a", "b", None, "d"]}, "not a list of texts"),
        ("gsm8k", {"answer": "about 5"}, 'no number behind "#### "'),
        ("gsm8k", {"question": ""}, "not a text"),
        ("humaneval", {"entry_point": "f(); import os"}, "is no name"),
        ("humaneval", {"test": None}, "test is None"),
    ],
)
def test_a_malformed_row_is_marked_and_counted_and_the_others_are_read(
    written: Written, task: str, change: dict[str, Any], words: str
) -> None:
    good = PLACES[task][1]
    questions = read(written, task, [good, good | change, good])
    assert [question.item for question in questions.malformed] == [1]
    assert words in questions.all[1].problem
    assert not isinstance(questions.all[1], LetterQuestion | NumberQuestion | ProgramQuestion)
    assert "1 malformed, the first in row 1" in questions.missing


@pytest.mark.parametrize("task", sorted(PLACES))
def test_fewer_rows_than_the_task_has_are_told(written: Written, task: str) -> None:
    questions = read(written, task, [PLACES[task][1]])
    assert questions.missing == f"1 of {ROWS[task]:,} items"
    assert questions.rows_expected == chat_task(task).rows_expected == ROWS[task]


def test_what_cannot_be_read_is_one_error(written: Written, tmp_path: Path) -> None:
    task = chat_task("gsm8k")
    with pytest.raises(ChatTaskError, match="the questions of gsm8k are not there"):
        task.read(tmp_path)
    root = written(PLACES["gsm8k"][0], [GSM])
    folder = root / PLACES["gsm8k"][0]
    (folder / "manifest.json").write_text(json.dumps(["00000.parquet", "00001.parquet"]))
    with pytest.raises(ChatTaskError, match=r"00001\.parquet is not readable"):
        task.read(root)
    for content in ("{}", "[]", "[1]"):
        (folder / "manifest.json").write_text(content)
        with pytest.raises(ChatTaskError, match="names no files"):
            task.read(root)
    (folder / "manifest.json").write_text("[")
    with pytest.raises(ChatTaskError, match="a JSON list of file names"):
        task.read(root)
    written(PLACES["gsm8k"][0], [{"question": "a"}])
    with pytest.raises(ChatTaskError, match="without answer"):
        task.read(root)
    (folder / "00000.parquet").write_bytes(b"PAR1")
    with pytest.raises(ChatTaskError, match="a Parquet file"):
        task.read(root)


def test_the_digest_is_of_the_files_content(written: Written) -> None:
    first = read(written, "gsm8k", [GSM]).digest
    assert read(written, "gsm8k", [GSM]).digest == first
    assert read(written, "gsm8k", [GSM | {"question": "b"}]).digest != first


def test_a_limit_takes_what_nanochats_shuffle_puts_first_in_the_files_order(written: Written) -> None:
    questions = read(written, "gsm8k", [GSM] * 50)
    first = np.random.default_rng(42).permutation(50)[:7]
    assert [question.item for question in questions.selected(7)] == sorted(first)
    assert questions.selected(None) == questions.selected(50) == questions.selected(99) == questions.all


def test_spelling_questions_are_256_and_their_gold_is_the_count(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("strawberry\n\n banana \nTennessee\n")
    questions = chat_task("spelling_bee").read(path)
    assert len(questions.all) == ROWS["spelling_bee"]
    assert questions.missing == ""
    for question in questions.all:
        assert isinstance(question, NumberQuestion)
        counts = {
            str(word.count(letter))
            for word in ("strawberry", "banana", "Tennessee")
            if word.lower() in question.asked.lower()
            for letter in "abcdefghijklmnopqrstuvwxyzT"
        }
        assert question.gold in counts
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "words.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert chat_task("spelling_bee").read(tmp_path / "other").all == questions.all


def test_a_missing_or_damaged_word_list_is_one_error(tmp_path: Path) -> None:
    task = chat_task("spelling_bee")
    for content in (b"", b" \n", b"\xff\xfe"):
        (tmp_path / "words").write_bytes(content)
        with pytest.raises(ChatTaskError, match="holds no word list"):
            task.read(tmp_path / "words")
    (tmp_path / "words.gz").write_bytes(b"not compressed")
    for place in (tmp_path / "words.gz", tmp_path / "absent", tmp_path):
        with pytest.raises(ChatTaskError, match="chatcore-5, which has no spelling_bee"):
            task.read(place)


def test_the_catalogue_is_what_the_definitions_name() -> None:
    assert set(TASKS) == set(CHATCORE["chatcore-6"]) == set(CHANCE) == set(ROWS)
    assert {name for name, task in TASKS.items() if task.kind == "letters"} == {n for n in CHANCE if CHANCE[n] == 0.25}
    with pytest.raises(ParibusError, match="no ChatCORE task has this name"):
        chat_task("ARC-Easy")


@pytest.mark.shared_data
def test_the_real_sets_are_complete(evaluation_sets: Path, words: Path) -> None:
    for name, task in TASKS.items():
        questions = task.read(words if name == "spelling_bee" else evaluation_sets)
        assert (questions.missing, len(questions.all)) == ("", ROWS[name])


@pytest.mark.shared_data
def test_every_real_answer_of_gsm8k_is_right_by_its_own_judge(evaluation_sets: Path) -> None:
    import pyarrow.parquet as pq

    task = chat_task("gsm8k")
    answers = pq.read_table(evaluation_sets / PLACES["gsm8k"][0] / "00000.parquet").column("answer").to_pylist()
    for question, answer in zip(task.read(evaluation_sets).all, answers, strict=True):
        assert isinstance(question, NumberQuestion)
        text = "".join(part["text"] for part in calculations(answer))
        assert task.judge(question, text).correct
        assert not task.judge(question, text.replace("#### ", "#### 1")).correct


@pytest.mark.shared_data
@pytest.mark.usefixtures("sandboxed")
def test_canonical_programs_are_right_and_programs_without_a_body_wrong(evaluation_sets: Path) -> None:
    task = chat_task("humaneval")
    for question in task.read(evaluation_sets).all[::12]:
        assert isinstance(question, ProgramQuestion)
        assert task.judge(question, f"{question.asked}\n{question.solution}", allow_code=True).correct
        assert not task.judge(question, f"{question.asked}\n    return None", allow_code=True).correct
