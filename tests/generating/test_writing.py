"""`paribus generate`: what is asked of the model, what is printed, and what is refused."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paribus.data.tokenizer import Tokenizer
from paribus.downstream.chat.format import ChatFormat
from paribus.generating import writing
from paribus.model.generate import Generated, generate
from paribus.trained import open_model

TEXT = "Whatever follows the beginning of a document is continued until another one begins. " * 3

Cli = Callable[..., tuple[int, str, str]]
STORIES = Path(__file__).parents[3] / "shared" / "data" / "models" / "stories260K"
PROMPTS = ("First red,", "", "größer")


def asked(cli: Cli, folder: Path, *arguments: str) -> dict[str, Any]:
    code, out, err = cli("generate", str(folder), *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def prompts_as_options() -> list[str]:
    return [word for prompt in PROMPTS for word in ("--prompt", prompt)]


def test_texts_are_what_the_model_writes_behind_the_beginning_and_the_prompt(
    cli: Cli, folder: Path, tokenizer: Tokenizer
):
    found = asked(cli, folder, *prompts_as_options(), "--tokens", "9", "--temperature", "0.9", "--top-k", "30")
    trained = open_model(folder)
    prompts = [np.array([tokenizer.bos_id, *tokenizer.encode_batch([text])[0]], dtype=np.int32) for text in PROMPTS]
    expected = generate(
        trained.model,
        prompts,
        new_tokens=9,
        stop={tokenizer.bos_id},
        temperature=0.9,
        top_k=30,
        seed=("paribus generate", 0),
    )
    assert [text["tokens"] for text in found["texts"]] == [one.tokens.tolist() for one in expected]
    assert [text["prompt"] for text in found["texts"]] == list(PROMPTS)
    assert [text["prompt_tokens"] for text in found["texts"]] == [len(prompt) for prompt in prompts]
    assert found["texts"][1]["prompt_tokens"] == 1
    assert (found["model"], found["step"], found["temperature"], found["top_k"], found["seed"], found["chat"]) == (
        "tiny, step 7, imported",
        7,
        0.9,
        30,
        0,
        False,
    )


def test_the_same_seed_writes_the_same_texts_and_another_one_others(cli: Cli, folder: Path):
    first = asked(cli, folder, "--prompt", "blue", "--tokens", "12")
    assert asked(cli, folder, "--prompt", "blue", "--tokens", "12") == first
    assert asked(cli, folder, "--prompt", "blue", "--tokens", "12", "--seed", "1")["texts"] != first["texts"]
    likeliest = [
        asked(cli, folder, "--prompt", "blue", "--temperature", "0", "--seed", seed)["texts"] for seed in ("0", "1")
    ]
    assert likeliest[0] == likeliest[1] != first["texts"]


def test_a_single_text_is_printed_as_it_is_written_and_says_how_it_ended(
    cli: Cli, folder: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
):
    """Tokens that are parts of a character, and what looks like markup, among them."""
    written = tokenizer.encode_utf8("größer [bold] 12".encode())
    tokens = np.concatenate([*written, [tokenizer.special_tokens["<|user_end|>"]]]).astype(np.int32)

    def stub(*_: Any, written: Callable[[int, int], None] | None, **__: Any) -> list[Generated]:
        for token in tokens.tolist():
            assert written is not None
            written(0, token)
        return [Generated(tokens, stopped=False)]

    monkeypatch.setattr(writing, "generate", stub)
    code, out, err = cli("generate", str(folder), "--prompt", "[red] ü ")
    assert (code, err) == (0, "")
    assert out == (
        "tiny, step 7, imported: temperature 0.8, top-k 50, seed 0\n\n"
        f"[red] ü größer [bold] 12<|user_end|>\n[stopped after {len(tokens)} tokens]\n"
    )


def test_several_texts_are_printed_one_below_the_other(cli: Cli, folder: Path):
    arguments = ["--tokens", "60", "--temperature", "0"]
    texts = asked(cli, folder, *prompts_as_options(), *arguments)["texts"]
    code, out, _ = cli("generate", str(folder), *prompts_as_options(), *arguments)
    assert code == 0
    assert out.startswith("tiny, step 7, imported: the likeliest token each time\n\n")
    places = [out.index(text["prompt"] + text["text"]) for text in texts]
    assert places == sorted(places)
    assert out.count("the context of the model is full]") == sum(text["ended"] == "context" for text in texts) > 0


def test_an_assistant_is_asked_in_the_format_of_conversations_with_the_calculator(
    cli: Cli, folder: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
):
    chat = ChatFormat.of(tokenizer)
    seen: dict[str, Any] = {}

    def stub(_: Any, prompts: list[Any], **settings: Any) -> list[Generated]:
        seen.update(settings, prompts=prompts)
        return [Generated(np.array([chat.python_start], dtype=np.int32), stopped=True)]

    monkeypatch.setattr(writing, "generate", stub)
    [found] = asked(cli, folder, "--chat", "--prompt", "What is 12 + 34?")["texts"]
    [prompt] = seen["prompts"]
    assert prompt.tolist() == chat.render_prompt([{"role": "user", "content": "What is 12 + 34?"}]).tolist()
    assert seen["stop"] == {chat.assistant_end, chat.bos}
    assert seen["vocabulary_size"] == tokenizer.vocabulary_size
    [expression, result] = tokenizer.encode_batch(["12 + 34", "46"])
    called = [chat.python_start, *expression.tolist(), chat.python_end]
    assert seen["tools"](called) == [chat.output_start, *result.tolist(), chat.output_end]
    assert (found["text"], found["ended"]) == ("<|python_start|>", "stop")


REFUSED: Mapping[str, tuple[list[str], int, str]] = {
    "too long": (["--prompt", "blue " * 60], 1, "prompt 1 is longer than the model can continue"),
    "below zero": (["--temperature", "-1"], 2, "--temperature"),
    "no number": (["--temperature", "nan"], 2, "--temperature"),
    "without end": (["--temperature", "inf"], 1, "this temperature means nothing"),
    "top-k 0": (["--top-k", "0"], 2, "--top-k"),
    "no tokens": (["--tokens", "0"], 2, "--tokens"),
    "another step": (["--step", "3"], 1, "does not hold the model at step 3"),
}


@pytest.mark.parametrize(("arguments", "code", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_input_gets_one_clear_error(cli: Cli, folder: Path, arguments: list[str], code: int, says: str):
    found, out, err = cli("generate", str(folder), *arguments, "--json")
    assert (found, out) == (code, "")
    assert says in err
    assert "Traceback" not in err


def test_a_folder_without_a_model_is_refused(cli: Cli, tmp_path: Path):
    code, _, err = cli("generate", str(tmp_path))
    assert code == 1
    assert "holds no trained model" in err


def test_an_assistant_needs_tokens_for_conversations(cli: Cli, folder: Path, tmp_path: Path, tokenizer: Tokenizer):
    plain = Tokenizer.train([TEXT], tokenizer.vocabulary_size)
    assert plain.vocabulary_size == tokenizer.vocabulary_size
    plain.save(tmp_path / "tokenizer.json")
    arguments = ("generate", str(folder), "--tokenizer", str(tmp_path / "tokenizer.json"))
    assert cli(*arguments)[0] == 0
    code, _, err = cli(*arguments, "--chat")
    assert code == 1
    assert "the tokenizer has no tokens for conversations" in err


@pytest.mark.shared_data
def test_a_real_model_tells_the_story_that_numpy_made_it_tell(cli: Cli, tmp_path: Path):
    """The likeliest tokens from the beginning on, of stories260K, by a computation in numpy that shares no code."""
    if not STORIES.exists():
        pytest.skip(f"{STORIES} is not there")
    assert cli("import", "llama", str(STORIES), "--to", str(tmp_path / "stories"))[0] == 0
    golden = json.loads((STORIES / "golden.json").read_text())["greedy_from_bos_ids"][1:]
    arguments = ["--temperature", "0", "--tokens", str(len(golden))]
    [found] = asked(cli, tmp_path / "stories", *arguments)["texts"]
    assert found["tokens"] == golden
