"""What is read: files of conversations, questions of data sets, and generated spelling; and what of it is refused."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paribus.data.sources.folder import file_digest
from paribus.downstream.chat.format import ChatFormat
from paribus.downstream.chat.questions import multiple_choice_prompt
from paribus.downstream.chat.sources import Raw, calculations, chat_files, open_chat_source
from paribus.downstream.chat.spelling import simple_spelling, spelling_bee
from paribus.errors import ParibusError

DATA = Path(__file__).parents[4] / "shared" / "data"
TALK = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]


def read(kind: Any, path: Path, **settings: Any) -> list[Raw]:
    source = open_chat_source(kind, path, **({"rows": None, "split": "train"} | settings))
    found = list(source.read())
    assert [raw.row for raw in found] == list(range(source.count()))
    return found


def write_lines(path: Path, *records: Any) -> Path:
    content = "".join(json.dumps(record) + "\n" for record in records).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("name", ["talk.jsonl", "talk.jsonl.gz"])
def test_lines_are_lists_of_messages_or_tables_that_hold_one(tmp_path: Path, name: str):
    path = write_lines(tmp_path / name, TALK, {"messages": TALK, "source": "x"})
    assert [raw.conversation for raw in read("conversations", path)] == [TALK, TALK]


def test_parquet_in_several_files_is_numbered_over_all_of_them(tmp_path: Path):
    for name in ("b.parquet", "a.parquet"):
        rows = [[{"role": "user", "content": name}, {"role": "assistant", "content": "yes"}]] * 2
        pq.write_table(pa.table({"messages": rows, "source": ["s"] * 2}), tmp_path / name)
    found = read("conversations", tmp_path)
    assert [raw.conversation[0]["content"] for raw in found if raw.conversation] == ["a.parquet"] * 2 + [
        "b.parquet"
    ] * 2
    source = open_chat_source("conversations", tmp_path, rows=None, split="train")
    assert [(f.name, f.digest) for f in source.files()] == [
        (name, file_digest(tmp_path / name)) for name in ("a.parquet", "b.parquet")
    ]


def test_a_manifest_says_which_files_belong_and_a_missing_one_is_an_error(tmp_path: Path):
    write_lines(tmp_path / "00000.jsonl", TALK)
    write_lines(tmp_path / "other.jsonl", TALK, TALK)
    (tmp_path / "manifest.json").write_text('["00000.jsonl"]')
    assert len(read("conversations", tmp_path)) == 1
    (tmp_path / "manifest.json").write_text('["00000.jsonl", "00001.jsonl"]')
    with pytest.raises(ParibusError, match=r"without 00001\.jsonl"):
        chat_files(tmp_path)


def test_what_is_missing_is_named_with_what_to_fetch(tmp_path: Path):
    with pytest.raises(ParibusError) as error:
        chat_files(tmp_path / "openai--gsm8k" / "main", "the Parquet files of openai/gsm8k")
    assert "no such file or folder" in str(error.value)
    assert "put there the Parquet files of openai/gsm8k" in str(error.value)


def test_files_of_two_kinds_in_one_folder_are_refused(tmp_path: Path):
    write_lines(tmp_path / "a.jsonl", TALK)
    pq.write_table(pa.table({"messages": [TALK]}), tmp_path / "b.parquet")
    with pytest.raises(ParibusError, match=r"\.jsonl and \.parquet"):
        chat_files(tmp_path)


def test_rows_that_are_none_are_told_with_the_reason_and_the_others_are_read(tmp_path: Path):
    path = tmp_path / "talk.jsonl"
    path.write_text(
        json.dumps(TALK) + '\n{"messages": \n' + json.dumps({"text": "x"}) + "\n\n" + json.dumps(TALK) + "\n"
    )
    found = read("conversations", path)
    assert [raw.conversation is not None for raw in found] == [True, False, False, True]
    assert "not JSON" in found[1].problem
    assert "messages" in found[2].problem


def test_a_file_that_is_cut_short_is_one_clear_error(tmp_path: Path):
    pq.write_table(pa.table({"messages": [TALK]}), tmp_path / "a.parquet")
    content = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(content[:-20])
    with pytest.raises(ParibusError, match="not readable"):
        read("conversations", tmp_path)
    packed = write_lines(tmp_path / "b.jsonl.gz", *[TALK] * 50)
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(ParibusError, match="not readable"):
        read("conversations", packed)


def test_calculations_become_calls_with_their_output():
    answer = "She earns 12/60 = $<<12/60=0.2>>0.2. <<x=1=2>><<7>>\n#### 10"
    assert [(part["type"], part["text"]) for part in calculations(answer)] == [
        ("text", "She earns 12/60 = $"),
        ("python", "12/60"),
        ("python_output", "0.2"),
        ("text", "0.2. "),
        ("python", "x=1"),
        ("python_output", "2"),
        ("python", "7"),
        ("python_output", ""),
        ("text", "\n#### 10"),
    ]


def test_questions_with_letters_are_asked_as_they_are_scored(tmp_path: Path):
    question = {"question": "Why?", "choices": ["a", "b", "c", "d"], "answer": 2, "subject": "x"}
    path = write_lines(tmp_path / "q.jsonl", question, {"train": question}, question | {"answer": 4})
    found = read("mmlu", path)
    expected = [
        {"role": "user", "content": multiple_choice_prompt("Why?", ["a", "b", "c", "d"])},
        {"role": "assistant", "content": "C"},
    ]
    assert [raw.conversation for raw in found[:2]] == [expected, expected], "wrapped or not, as auxiliary_train is"
    assert "none of the choices" in found[2].problem
    arc = {"question": "Why?", "choices": {"text": ["a", "b", "c"], "label": ["1", "2", "3"]}, "answerKey": "3"}
    path = write_lines(tmp_path / "arc.jsonl", arc, arc | {"answerKey": "D"})
    found = read("arc", path)
    assert found[0].conversation is not None
    assert found[0].conversation[1]["content"] == "3"
    assert "- c=3" in found[0].conversation[0]["content"]
    assert "none of 1, 2, 3" in found[1].problem


WORDS = ["strawberry", "banana", "kayak", "o'clock"]


def test_spelling_is_right_and_a_pure_function_of_its_row(tmp_path: Path):
    path = tmp_path / "words.txt"
    path.write_text("\n".join([*WORDS, "", "  "]) + "\n")
    found = read("simple-spelling", path, rows=40)
    for raw in found:
        assert raw.conversation is not None
        word = raw.conversation[0]["content"].removeprefix("Spell the word: ")
        assert raw.conversation[1]["content"] == f"{word}:{','.join(word)}"
        assert word in WORDS
        assert raw.conversation == simple_spelling(WORDS, raw.row)
    assert found[:10] == read("simple-spelling", path, rows=10)
    assert found != read("simple-spelling", path, rows=40, split="test")


def test_counting_letters_ends_with_the_number_that_the_interpreter_gives():
    asked = set()
    for row in range(300):
        user, assistant = spelling_bee(WORDS, row)
        parts = {part["type"]: part["text"] for part in assistant["content"]}
        count = eval(parts["python"])  # the expression is ours; whether it is right is what is tested
        called = re.fullmatch(r"(['\"])(.+)\1\.count\((['\"])(.)\3\)", parts["python"])
        assert called is not None
        assert called[2] in user["content"]
        assert called[4] in user["content"]
        assert parts["python_output"] == str(count)
        assert parts["text"].endswith(f"#### {count}")
        steps = assistant["content"][0]["text"]
        assert steps.count(" is number ") == count
        assert f"{len(called[2])}:{called[2][-1]}" in steps
        asked.add((called[2], called[4]))
    assert [spelling_bee(WORDS, row) for row in range(9)] != [spelling_bee(WORDS, row, "test") for row in range(9)]
    absent = [letter not in word for word, letter in asked]
    assert any(absent)
    assert not all(absent)


def test_generated_rows_need_a_number_and_words(tmp_path: Path):
    (tmp_path / "words.txt").write_text("cat\n")
    with pytest.raises(ParibusError, match="without a number of rows"):
        open_chat_source("spelling-bee", tmp_path / "words.txt", rows=None, split="train")
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(ParibusError, match="holds no words"):
        read("spelling-bee", tmp_path / "empty.txt", rows=2)
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe\n")
    with pytest.raises(ParibusError, match="not readable"):
        read("spelling-bee", tmp_path / "bad.txt", rows=2)


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("kind", "path", "rows"),
    [
        ("conversations", "chat_sft/identity_conversations.jsonl", 1000),
        ("conversations", "chat_sft/dolly_hhrlhf_small.parquet", 1000),
        ("conversations", "chat_sft/fastchat_dummy.parquet", 500),
        ("conversations", "chat_sft/self_instruct_seed_tasks.parquet", 175),
        ("conversations", "chat_sft/self_instruct_user_oriented.parquet", 252),
        ("gsm8k", "chat_eval/openai--gsm8k/main/train", 7473),
        ("mmlu", "chat_eval/cais--mmlu/all/dev", 285),
        ("arc", "chat_eval/allenai--ai2_arc/ARC-Challenge/test", 1172),
    ],
)
def test_every_row_of_the_real_sets_is_a_conversation(chat: ChatFormat, kind: Any, path: str, rows: int):
    if not (DATA / path).exists():
        pytest.skip(f"real data is absent: expected ../shared/data/{path} beside the repository")
    found = read(kind, DATA / path)
    assert len(found) == rows
    assert [raw.problem for raw in found if raw.problem] == []
    assert [raw.row for raw in found if raw.conversation is None or chat.problem_of(raw.conversation)] == []
