"""The tasks of ChatCORE put to a model: letters compared, texts written and judged, code only where it is allowed."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paribus.downstream import sandbox
from paribus.downstream.chat.format import ChatFormat
from paribus.downstream.chat.tasks.arc import read_arc_easy
from paribus.downstream.chat.tasks.letters import letters_item
from paribus.errors import ParibusError
from paribus.evaluating.chat import chat_jobs, chat_sentences
from paribus.evaluating.running import evaluate
from paribus.evaluating.scores import scores
from paribus.measure.answers_reference import naive_answer
from paribus.runs.answers import AnswersFolder
from paribus.trained import Trained

Opened = Callable[[], Trained]
OPTIONS = {"text": ["red", "blue", "green", "black"], "label": ["A", "B", "C", "D"]}


def silent(*_: object) -> None:
    pass


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    """Five questions with letters, and two sums of which one has no answer."""
    folder = tmp_path / "chat"

    def write(place: str, rows: list[dict[str, Any]]) -> None:
        (folder / place).mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows), folder / place / "00000.parquet")
        (folder / place / "manifest.json").write_text(json.dumps(["00000.parquet"]))

    letters = [
        {"id": f"{n}", "question": f"Which is number {n}", "choices": OPTIONS, "answerKey": "ABCD"[n % 4]}
        for n in range(5)
    ]
    write("allenai--ai2_arc/ARC-Easy/test", letters)
    write("allenai--ai2_arc/ARC-Challenge/test", letters)
    four = {"question": "Which", "subject": "colours", "choices": OPTIONS["text"], "answer": 1}
    write("cais--mmlu/all/test", [four])
    program = {"prompt": "def f():\n", "canonical_solution": "    return 1\n", "entry_point": "f"}
    write("openai--openai_humaneval/openai_humaneval/test", [program | {"test": "def check(f):\n    pass\n"}])
    sums = [{"question": "1 + 1", "answer": "so\n#### 2"}, {"question": "2 + 2", "answer": "nobody knows"}]
    write("openai--gsm8k/main/test", sums)
    return folder


def test_letters_are_compared_where_the_answer_stands(chat: Path, opened: Opened) -> None:
    [done] = evaluate([opened], chat_jobs(chat, "chatcore-5", tasks=("arc_easy",)), silent)
    rows = AnswersFolder(done.folder).rows(done.asked).to_pylist()
    trained = opened()
    form = ChatFormat.of(trained.tokenizer)
    for row, question in zip(rows, read_arc_easy(chat).all, strict=True):
        item = letters_item(question, form, 128)
        expected = naive_answer(trained.model, item, trained.tokenizer.decode)
        assert (row["prediction"], row["gold"]) == (expected.prediction, item.labels[item.gold])
        assert row["correct"] == (row["prediction"] == row["gold"])
        assert row["prompt_digest"] == item.prompt_digest
        # Both in float32: one logarithm of a sum of 300 terms.
        assert all(math.isclose(a, b, rel_tol=1e-5) for a, b in zip(row["nats"], expected.nats, strict=True))


def test_written_answers_have_rows_and_what_cannot_be_asked_is_marked(chat: Path, opened: Opened) -> None:
    [done] = evaluate([opened], chat_jobs(chat, "chatcore-5", tasks=("gsm8k",)), silent)
    first, second = AnswersFolder(done.folder).rows(done.asked).to_pylist()
    assert (first["item"], first["gold"], first["problem"]) == (0, "2", "")
    assert first["nats"] == []
    assert first["gold_nats"] is None
    assert (second["correct"], second["prediction"]) == (False, "")
    assert "no number" in second["problem"]
    record = AnswersFolder(done.folder).record(done.asked)
    assert record is not None
    assert record["counts"]["problems"] == 1
    assert record["complete"] is False


def test_no_chatcore_is_printed_from_some_of_the_items(chat: Path, opened: Opened) -> None:
    found = scores(evaluate([opened], chat_jobs(chat, "chatcore-5", tasks=("arc_easy", "gsm8k")), silent))
    [sentence] = chat_sentences("chatcore-5", found, code_ran=False)
    assert sentence.startswith("ChatCORE is not printed")
    assert "mmlu was not asked" in sentence


def test_the_control_is_a_task_of_its_own_for_letters_only(chat: Path) -> None:
    jobs = chat_jobs(chat, "chatcore-5", tasks=("arc_easy", "gsm8k"), first=3, counterfactual=True)
    named = [(job.task, job.variant, job.total) for job in jobs]
    assert named == [("arc_easy", "first-3", 3), ("arc_easy", "first-3+counterfactual", 3), ("gsm8k", "first-3", 2)]


@pytest.mark.parametrize(
    ("definition", "tasks", "said"),
    [
        ("chatcore-6", ("humaneval",), "humaneval runs programs that a model wrote"),
        ("chatcore-6", ("spelling_bee",), "SpellingBee makes its questions of a list of words"),
        ("chatcore-5", ("spelling_bee",), "chatcore-5 has no task spelling_bee"),
        ("chatcore-7", (), "no definition of ChatCORE has this name"),
    ],
)
def test_what_cannot_be_asked_is_refused(chat: Path, definition: str, tasks: tuple[str, ...], said: str) -> None:
    with pytest.raises(ParibusError, match=said):
        chat_jobs(chat, definition, tasks=tasks)


def test_programs_are_left_out_unless_they_are_allowed(chat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probed: list[bool] = []
    monkeypatch.setattr(sandbox, "require", lambda: probed.append(True))
    left = [job.task for job in chat_jobs(chat, "chatcore-5")]
    assert (left, probed) == (["arc_easy", "arc_challenge", "mmlu", "gsm8k"], [])
    allowed = [job.task for job in chat_jobs(chat, "chatcore-5", allow_code=True)]
    assert (allowed[-1], probed) == ("humaneval", [True])
