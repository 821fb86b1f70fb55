"""Learning byte-level BPE from texts: Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units"
(2016), over bytes.

Two layouts. `gpt2`: special tokens, bytes, merges; letters, digits and other marks never share a token. `nanochat`:
bytes, merges, special tokens; as GPT-4 cuts text, but digits in groups of at most two.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

from paribus.data.config import TokenizerConfig
from paribus.data.tokenizers import patterns
from paribus.errors import CorpusError


def split_by_pattern(pattern: str) -> Any:
    """The pre-tokenizer that isolates each match of the pattern and spells it in the byte-level alphabet."""
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def learn(texts: Iterable[str], config: TokenizerConfig) -> dict[str, Any]:
    """The JSON object of a tokenizer learnt from the texts, of which the first `train_characters` are read.

    The vocabulary is smaller than asked where the texts offer fewer merges.
    Raises CorpusError for a vocabulary that cannot hold the 256 bytes and the special tokens.
    """
    special = list(config.special_tokens)
    if not special or len(set(special)) != len(special) or not all(special):
        raise CorpusError(
            "the special tokens are not distinct names",
            expected="at least one, each once, none empty; the first marks where a document begins",
            received=repr(config.special_tokens),
        )
    smallest = 256 + len(special)
    if config.vocabulary_size < smallest:
        raise CorpusError(
            "the vocabulary is too small for a byte-level tokenizer",
            expected=f"at least {smallest} (256 bytes and {', '.join(special)})",
            received=str(config.vocabulary_size),
        )
    at_the_end = config.pre_tokenizer == "nanochat"
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = (
        split_by_pattern(patterns.NANOCHAT)
        if at_the_end
        else pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocabulary_size - (len(special) if at_the_end else 0),
        special_tokens=[] if at_the_end else special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(read_texts(texts, config), trainer)
    if at_the_end:
        backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return json.loads(backend.to_str())


def read_texts(texts: Iterable[str], config: TokenizerConfig) -> Iterator[str]:
    """The beginning of each text as far as `train_document_characters` allows, `train_characters` in all."""
    left = config.train_characters
    for text in texts:
        shortened = text[: config.train_document_characters]
        if left is None:
            yield shortened
            continue
        if left <= 0:
            return
        yield shortened[:left]
        left -= len(shortened)
