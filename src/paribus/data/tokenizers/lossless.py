"""A tokenizer's JSON without the parts that lose, add or reinterpret text, or a refusal that names the part.

Removed, because they are no property of the tokens: truncation, padding, templates that add special tokens, dropout,
a space put before a text, and composition to NFC (a text that is composed already, as nearly all are, gets the same
ids; any other keeps its bytes). Everything else that does not keep each character is refused with a text that shows
it. The layout is that of the `tokenizers` library; https://huggingface.co/docs/tokenizers describes the parts.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import tokenizers

from paribus.data.tokenizers import patterns
from paribus.errors import CorpusError

Json = dict[str, Any]

_EXAMPLES = (" A  \u00c9\n", "e\u0301 \ufb01", "\x00\t\ufffe", "\u2581a", "1,2 \u4e2d\u6587", "<s>")
_BYTE_LEVEL_DECODER = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
_MODEL = {
    "type": "BPE",
    "dropout": None,
    "unk_token": None,
    "continuing_subword_prefix": None,
    "end_of_word_suffix": None,
    "fuse_unk": False,
    "byte_fallback": False,
    "ignore_merges": False,
}
_LOSSY_MODELS = {
    "WordPiece": "white space is dropped and a word without known pieces becomes one unknown token",
    "Unigram": "its special tokens are pieces like any other, so that a text which spells one becomes it",
    "WordLevel": "a word outside the vocabulary becomes one unknown token",
}


def lossless(definition: Json) -> Json:
    """The same tokenizer as a canonical JSON object in which every text keeps all its bytes.

    Raises CorpusError naming the part that loses text. Whether the vocabulary spells every byte is not looked at here
    (`spelling` does).
    """
    model: Json = definition["model"]
    kind = model.get("type", "BPE" if "merges" in model else "unknown")
    if kind != "BPE":
        raise _lossy(f"a {kind} model", _LOSSY_MODELS.get(kind, "it is not known to keep every byte"), "byte-level BPE")
    for part in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(part):
            raise _lossy(f"{part} {model[part]!r}", "its characters stand for no text", "a model without it")
    stages = [_pre_tokenizer(stage) for stage in _flat(definition.get("pre_tokenizer"), "pretokenizers")]
    byte_level = [stage["type"] for stage in stages].count("ByteLevel")
    if byte_level > 1:
        raise _lossy("two ByteLevel pre-tokenizers", "bytes would be spelled twice", "one of them")
    normalizers = [
        stage
        for stage in _flat(definition.get("normalizer"), "normalizers")
        if _keeps_text(stage, byte_level=byte_level == 1)
    ]
    merges = [merge.split(" ") if isinstance(merge, str) else list(merge) for merge in model["merges"]]
    declared = {name: model.get(name) or default for name, default in _MODEL.items()} | {"type": "BPE", "dropout": None}
    if byte_level:
        declared |= {"unk_token": None, "fuse_unk": False, "byte_fallback": False}
    vocabulary = dict(sorted(model["vocab"].items(), key=lambda entry: entry[1]))
    learnt = {"".join(merge) for merge in merges}
    return {
        "version": definition.get("version", "1.0"),
        "truncation": None,
        "padding": None,
        # An added token that merges spell too is an ordinary one; any other is kept from the text, flagged or not.
        "added_tokens": [
            token | {"special": True}
            for token in definition.get("added_tokens") or []
            if token.get("special") or token["content"] not in learnt
        ],
        "normalizer": _joined(normalizers, "normalizers"),
        "pre_tokenizer": _joined(stages, "pretokenizers"),
        "post_processor": None,
        "decoder": _BYTE_LEVEL_DECODER if byte_level else definition.get("decoder"),
        "model": declared | {"vocab": vocabulary, "merges": merges},
    }


def stages_of(definition: Json) -> list[Json]:
    """The pre-tokenizers in the order in which they are applied."""
    return _flat(definition.get("pre_tokenizer"), "pretokenizers")


def space_of(definition: Json) -> str | None:
    """The character that spells a space in tokens (sentencepiece's U+2581); None where nothing replaces spaces."""
    for stage in _flat(definition.get("normalizer"), "normalizers"):
        if stage["type"] == "Replace":
            return stage["content"]
    for stage in stages_of(definition):
        if stage["type"] == "Metaspace":
            return stage["replacement"]
    return None


def _flat(part: Json | None, members: str) -> list[Json]:
    if part is None:
        return []
    if part["type"] == "Sequence":
        return [stage for member in part[members] for stage in _flat(member, members)]
    return [part]


def _joined(stages: list[Json], members: str) -> Json | None:
    if len(stages) <= 1:
        return stages[0] if stages else None
    return {"type": "Sequence", members: stages}


def _keeps_text(stage: Json, *, byte_level: bool) -> bool:
    """Whether the normalizer stays; False where it is left out. Raises CorpusError where it loses text."""
    match stage:
        case {"type": "NFC"} | {"type": "Prepend"}:
            return False
        case {"type": "Replace", "pattern": {"String": " "}, "content": str(content)}:
            if not byte_level and len(content) == 1:
                return True
    raise _lossy(f"the normalizer {_named(stage)}", _change("normalizer", stage), "a tokenizer without it")


def _pre_tokenizer(stage: Json) -> Json:
    match stage:
        case {"type": "ByteLevel"}:
            # What the library fills in itself, so that equal tokenizers have equal files.
            declared = {"add_prefix_space": False, "trim_offsets": True, "use_regex": True}
            return {"type": "ByteLevel"} | declared | {"use_regex": stage.get("use_regex", True)}
        case {"type": "Metaspace"}:
            return {
                "type": "Metaspace",
                "replacement": stage.get("replacement", "\u2581"),
                "prepend_scheme": "never",
                "split": stage.get("split", True),
            }
        case {"type": "Split" | "Punctuation", "behavior": str(behavior)} if behavior != "Removed":
            return stage
        case {"type": "Split", "pattern": {"Regex": str(pattern)}, "invert": True} if pattern in patterns.KNOWN:
            return stage  # what is between the matches goes, and nothing is
        case {"type": "Digits"}:
            return stage
    raise _lossy(f"the pre-tokenizer {_named(stage)}", _change("pre_tokenizer", stage), "a tokenizer without it")


def _named(stage: Mapping[str, Any]) -> str:
    return json.dumps({name: value for name, value in stage.items() if name != "precompiled_charsmap"})[:120]


def _change(part: str, stage: Json) -> str:
    """What the part makes of an example text, in words."""
    empty = {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}, part: stage}
    backend = tokenizers.Tokenizer.from_str(json.dumps(empty))
    for text in _EXAMPLES:
        if part == "normalizer":
            after = backend.normalizer.normalize_str(text) if backend.normalizer else text
        else:
            pieces: Iterable[tuple[str, Any]] = (
                backend.pre_tokenizer.pre_tokenize_str(text) if backend.pre_tokenizer else []
            )
            after = "".join(piece for piece, _ in pieces)
        if after != text:
            return f"it turns {text!r} into {after!r}"
    return "it is not known to keep every character"


def _lossy(part: str, how: str, remedy: str) -> CorpusError:
    return CorpusError(
        f"the tokenizer does not keep every byte of a text: {part}",
        expected="tokens from which each text can be restored exactly, so that bits per byte is exact",
        received=how,
        remedy=f"use {remedy}, or let one be learnt",
    )
