"""Prompts to the letter, their tokens whatever was encoded before, and the tokens that are scored."""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from paribus.data.tokenizer import Tokenizer
from paribus.data.tokenizers.files import from_ranks
from paribus.downstream.core.bundle import CoreTask, read_bundle
from paribus.downstream.core.encoding import PromptEncoder
from paribus.downstream.core.items import core_items
from paribus.downstream.core.official import CORE
from paribus.downstream.core.rendering import Prompt, prompts, text
from paribus.downstream.core.rendering import example as rendered
from paribus.downstream.core.rows import Choices, Passage, Schema
from paribus.downstream.core.settings import CoreSettings
from paribus.downstream.core.shots import draw, shuffled
from paribus.downstream.core.spans import SpanError, common_prefix, common_suffix, scored
from paribus.interop.ranks import read_tokenizer

SHARED = Path(__file__).parents[4] / "shared" / "data"
KINDS_OF_TOKENIZER = ["gpt2", "nanochat", "whole", "unsplit", "words", "comments"]
NANOCHAT = CoreSettings(shots_from="truncated", too_long="keep")


def test_each_kind_is_rendered_as_its_template_says():
    asked = Choices("Q: two?\n", ("a", "b "), 1)
    shots = [rendered(Choices("Q: one?", ("x", "y"), 0), "\nA: "), rendered(asked, "\nA: ")]
    assert shots == ["Q: one?\nA: x\n\n", "Q: two?\n\nA: b \n\n"]
    assert [text(prompt) for prompt in prompts(asked, shots, "\nA: ")] == [
        "Q: one?\nA: x\n\nQ: two?\n\nA: b \n\nQ: two?\n\nA: a",
        "Q: one?\nA: x\n\nQ: two?\n\nA: b \n\nQ: two?\n\nA: b ",
    ]
    schema = Schema(("Ann", "Bob "), "ran.", 1)
    assert rendered(schema, " ") == "Bob  ran.\n\n"
    assert [text(prompt) for prompt in prompts(schema, [], " ")] == ["Ann ran.", "Bob  ran."]
    passage = Passage("\n The end of \t", " all ")
    assert rendered(passage, " ") == "The end of  all \n\n"
    assert [text(prompt) for prompt in prompts(passage, ["x y\n\n"], " ")] == [
        "x y\n\nThe end of",
        "x y\n\nThe end of  all ",
    ]


_WORDS = (
    "a",
    "the",
    " the",
    "Answer: ",
    "123",
    "é",
    "漢",
    "🙂",
    ".",
    "in",
    "er\t",
    "I'm",
    "ﬁ",
    "#",
    "the cat saw the cat",
)
WORDS = st.sampled_from(("", " ", "  ", "\n", "\n\n", *_WORDS))
PARTS = st.lists(WORDS, max_size=8).map("".join)


@given(contexts=st.lists(PARTS, min_size=1, max_size=4), delimiter=PARTS, continuation=PARTS)
@example(contexts=[" "], delimiter=" ", continuation="a")
@example(contexts=["", ""], delimiter="\n ", continuation="")
def test_a_prompt_without_its_continuation_is_the_stripped_text(contexts: list[str], delimiter: str, continuation: str):
    *shots, last = [Passage(context, continuation) for context in contexts]
    examples = [rendered(shot, delimiter) for shot in shots]
    without, whole = prompts(last, examples, delimiter)
    assert text(whole) == "".join(examples) + last.context.strip() + delimiter + continuation
    assert text(without) == ("".join(examples) + last.context.strip() + delimiter).strip()


@pytest.mark.parametrize("name", KINDS_OF_TOKENIZER)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(
    pool=st.lists(PARTS, min_size=1, max_size=5), picks=st.lists(st.lists(st.integers(0, 4), max_size=6), max_size=6)
)
@example(pool=["# ", "the cat saw the cat"], picks=[[1, 1], [0, 1], [1, 0, 1]])
def test_tokens_are_those_of_the_whole_text_whatever_was_encoded_before(
    tokenizers: dict[str, Tokenizer], name: str, pool: list[str], picks: list[list[int]]
):
    tokenizer = tokenizers[name]
    asked: list[Prompt] = [tuple(pool[pick % len(pool)] for pick in picked) for picked in picks]
    expected = [[tokenizer.bos_id, *ids.tolist()] for ids in tokenizer.encode_batch([text(prompt) for prompt in asked])]
    encoder = PromptEncoder(tokenizer)
    for _ in range(2):
        assert [ids.tolist() for ids in encoder.encode(asked)] == expected
        assert [ids.tolist() for prompt in asked for ids in encoder.encode([prompt])] == expected


def test_parts_that_prompts_share_are_encoded_once(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch):
    seen: list[int] = []
    encode = tokenizer.encode_batch_utf8

    def counting(texts: Sequence[bytes], **options: Any) -> Any:
        seen.append(sum(map(len, texts)))
        return encode(texts, **options)

    monkeypatch.setattr(tokenizer, "encode_batch_utf8", counting)
    shared = "the cat saw the dog and the dog saw the cat " * 20
    encoder = PromptEncoder(tokenizer)
    encoder.encode([(shared, shared, f"and answer {number} it was") for number in range(10)])
    assert seen[0] < 2 * len(shared) + 10 * 100
    encoder.encode([(shared, f"and nothing in call {number}") for number in range(10)])
    assert seen[1] < len(shared)


def test_what_is_kept_is_bounded_and_forgetting_changes_nothing(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("paribus.downstream.core.encoding.KEPT_CHARACTERS", 50)
    encoder = PromptEncoder(tokenizer)
    asked = [("the cat saw the dog number " + str(number), " and ran away from it") for number in range(9)]
    once = [ids.tolist() for prompt in asked for ids in encoder.encode([prompt])]
    assert once == [ids.tolist() for ids in PromptEncoder(tokenizer).encode(asked)]
    assert sum(map(len, encoder._kept)) <= 50 + 50


ROWS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=2, max_size=4)


@given(ROWS)
def test_common_prefix_and_suffix_are_the_longest(rows: list[list[int]]):
    arrays = [np.array(row, dtype=np.int32) for row in rows]
    shortest = min(map(len, rows))
    prefixes = [length for length in range(shortest + 1) if len({tuple(row[:length]) for row in rows}) == 1]
    suffixes = [length for length in range(shortest + 1) if len({tuple(row[len(row) - length :]) for row in rows}) == 1]
    assert (common_prefix(arrays), common_suffix(arrays)) == (max(prefixes), max(suffixes))


def arrays(*rows: Sequence[int]) -> list[Any]:
    return [np.array(row, dtype=np.int32) for row in rows]


def test_spans_of_each_kind():
    assert scored("multiple_choice", arrays([9, 1, 2, 3], [9, 1, 4]))[1] == [2, 2]
    assert scored("schema", arrays([9, 1, 2, 3], [9, 4, 5, 2, 3]))[1] == [2, 3]
    rows, starts = scored("language_modeling", arrays([9, 1], [9, 1, 2, 3]))
    assert ([row.tolist() for row in rows], starts) == ([[9, 1, 2, 3]], [2])


def test_an_answer_that_begins_another_one_still_has_a_scored_token():
    assert scored("multiple_choice", arrays([9, 1, 2], [9, 1, 2, 3], [9, 1, 2, 4]))[1] == [2, 2, 2]


@pytest.mark.parametrize(
    ("kind", "rows", "message"),
    [
        ("multiple_choice", ([9, 1, 2], [9, 1, 2]), "the answers are the same in tokens"),
        ("multiple_choice", ([9], [9, 1]), "has no token at all"),
        ("schema", ([9, 1, 2], [9, 1, 3]), "change the last token of the continuation"),
        ("schema", ([9, 1, 2], [9, 1, 2]), "the beginnings are the same"),
        ("language_modeling", ([9, 1, 5], [9, 1, 2, 3]), "no token boundary where the continuation begins"),
        ("language_modeling", ([9, 1], [9, 1]), "no token boundary where the continuation begins"),
    ],
)
def test_a_span_that_cannot_be_scored_is_said(kind: Any, rows: tuple[list[int], ...], message: str):
    with pytest.raises(SpanError, match=message):
        scored(kind, arrays(*rows))


def test_a_tokenizer_that_splits_a_continuation_across_the_boundary_marks_the_item_and_the_run_goes_on(
    one_task: Callable[..., CoreTask],
):
    # ": " is one token, so the stripped prompt "...:" ends in another token than the prompt with its answer has there.
    ranks = [*(bytes([byte]) for byte in range(256)), b": "]
    tokenizer = Tokenizer(from_ranks(ranks, r"(?m:.+)", {"<|bos|>": len(ranks)}))
    rows = [{"context": "It was:", "continuation": "so"}, {"context": "It was", "continuation": "so"}]
    crossed, clean = sorted(
        core_items(one_task("language_modeling", rows), tokenizer, context_length=99), key=lambda item: item.item
    )
    assert "no token boundary where the continuation begins" in crossed.problem
    assert (crossed.rows, crossed.labels, crossed.gold) == ((), ("so",), 0)
    assert clean.problem == ""
    assert tokenizer.decode(clean.rows[0].tokens[clean.rows[0].start :]) == " so"


@pytest.mark.parametrize("name", KINDS_OF_TOKENIZER)
@pytest.mark.parametrize("kind", ["multiple_choice", "schema", "language_modeling"])
def test_items_hold_what_a_reference_of_single_whole_prompts_holds(
    one_task: Callable[..., CoreTask], tokenizers: dict[str, Tokenizer], rows_of: Any, name: str, kind: str
):
    tokenizer, rows = tokenizers[name], rows_of[kind]
    task = one_task(kind, rows, shots=3, delimiter=" ")
    order = shuffled(len(rows))
    sizes = tokenizer.token_bytes()
    found = list(core_items(task, tokenizer, context_length=4096))
    assert [item.item for item in found] == order
    for position, item in enumerate(found):
        row = rows[item.item]
        head = "".join(reference_example(rows[order[place]]) for place in draw(position, range(len(rows)), 3))
        if kind == "multiple_choice":
            texts = [f"{head}{row['query']} {choice}" for choice in row["choices"]]
        elif kind == "schema":
            texts = [f"{head}{option} {row['continuation']}" for option in row["context_options"]]
        else:
            texts = [f"{head}{row['context'].strip()} {row['continuation']}"]
        expected = [[tokenizer.bos_id, *ids.tolist()] for ids in tokenizer.encode_batch(texts)]
        assert [of_row.tokens.tolist() for of_row in item.rows] == expected
        assert item.problem == ""
        for of_row in item.rows:
            assert of_row.bytes == sizes[of_row.tokens[of_row.start :]].sum()
        labels = (row["continuation"],) if kind == "language_modeling" else tuple("ABCD"[: len(item.rows)])
        assert (item.labels, item.gold) == (labels, row.get("gold", 0))
        assert item.kind == ("exact" if kind == "language_modeling" else "choices")
        if kind == "language_modeling":
            span = item.rows[0].tokens[item.rows[0].start :]
            assert tokenizer.decode(span).strip() == row["continuation"]
            # Without its space the continuation is that many bytes; the space before it belongs to the span.
            assert item.rows[0].bytes == len(row["continuation"].encode()) + 1


def reference_example(row: dict[str, Any]) -> str:
    if "query" in row:
        return f"{row['query']} {row['choices'][row['gold']]}\n\n"
    if "context_options" in row:
        return f"{row['context_options'][row['gold']]} {row['continuation']}\n\n"
    return f"{row['context'].strip()} {row['continuation']}\n\n"


def test_the_digest_of_a_prompt_is_of_its_tokens(one_task: Callable[..., CoreTask], tokenizers: Any, rows_of: Any):
    task = one_task("schema", rows_of["schema"])
    digests = {
        name: [item.prompt_digest for item in core_items(task, tokenizers[name], context_length=999)]
        for name in ("gpt2", "unsplit")
    }
    assert all(len(set(found)) == 16 for found in digests.values())
    assert not set(digests["gpt2"]) & set(digests["unsplit"])
    again = [item.prompt_digest for item in core_items(task, tokenizers["gpt2"], context_length=999)]
    assert again == digests["gpt2"]


def golden() -> Any:
    for path in (SHARED / "nanochat_golden" / "2026-07-text.json", SHARED / "core_eval_bundle" / "core_available.yaml"):
        if not path.exists():
            pytest.skip(f"real data is absent: expected ../shared/data/{path.parent.name}/{path.name}")
    return json.loads((SHARED / "nanochat_golden" / "2026-07-text.json").read_text(encoding="utf-8"))["core"]


@pytest.mark.shared_data
def test_prompts_and_spans_of_every_task_are_nanochats():
    cases = golden()
    tokenizer = read_tokenizer(SHARED / "nanochat_golden" / "2026-07-text.json")
    bundle = read_bundle(SHARED / "core_eval_bundle", "core_available.yaml")
    assert {case["label"] for case in cases} == {task.label for task in bundle.tasks}
    assert len(bundle.tasks) == 21
    for task in bundle.tasks:
        lines = task.lines()
        questions = [line.question for line in lines]
        order = shuffled(len(lines))
        # Longer prompts than any context: here every example stands.
        plain = core_items(task, tokenizer, context_length=1 << 20)
        nanochats = core_items(task, tokenizer, context_length=256, settings=NANOCHAT)
        for case in (case for case in cases if case["label"] == task.label):
            assert (case["type"], case["num_fewshot"], case["delimiter"]) == (task.kind, task.shots, task.delimiter)
            position = case["index_after_shuffle"]
            shots = [questions[order[place]] for place in draw(position, range(len(lines)), task.shots)]
            asked = questions[order[position]]
            assert asked is not None
            examples = [rendered(shot, task.delimiter) for shot in shots if shot is not None]
            texts = [text(prompt) for prompt in prompts(asked, examples, task.delimiter)]
            assert [hashlib.sha256(each.encode()).hexdigest() for each in texts] == case["prompt_sha256"]
            assert [each[-60:] for each in texts] == case["prompt_tails"]
            assert [len(each) for each in texts] == case["prompt_chars"]
            for item in (next(plain), next(nanochats)):
                assert item.item == order[position]
                assert [len(row.tokens) for row in item.rows] == case["token_counts"]
                assert [row.start for row in item.rows] == case["start"]
                assert [len(row.tokens) for row in item.rows] == case["end"]
                assert (item.problem, item.cropped_shots, item.cropped_tokens) == ("", 0, 0)


@pytest.mark.shared_data
def test_of_the_real_bundle_exactly_what_is_known_to_be_missing_or_rebuilt_is_said():
    golden()
    bundle = read_bundle(SHARED / "core_eval_bundle")
    assert bundle.missing() == {
        "squad": "1,190 of 10,570 items",
        "coqa": "eval_data/reading_comprehension/coqa.jsonl is missing",
    }
    assert bundle.altered() == ["hellaswag_zeroshot", "hellaswag"]
    assert [task.label for task in bundle.tasks] == list(CORE)
    assert [task.label for task in bundle.tasks if task.altered is None] == ["squad", "coqa"]
    smoke = read_bundle(SHARED / "core_eval_bundle", "core_smoke.yaml")
    assert smoke.missing()["coqa"] == "12 of 7,983 items"
