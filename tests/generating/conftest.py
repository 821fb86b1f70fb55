"""A folder that holds a trained model: random values, a context of 48 tokens, a tokenizer for conversations."""

from pathlib import Path

import pytest
import torch

from paribus.data.config import NANOCHAT_SPECIAL_TOKENS, TokenizerConfig
from paribus.data.tokenizer import Tokenizer
from paribus.interop import imported
from paribus.mechanisms import resolve
from paribus.mechanisms.contract import Seam
from paribus.model.build import build_model
from paribus.model.config import PrenormConfig

TEXT = (
    "Whatever follows the beginning of a document is continued until another one begins; a question is answered. "
    "First red, then blue: größer als 12 + 34 = 46. [bold] is no markup here. "
)


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    config = TokenizerConfig(300, pre_tokenizer="nanochat", special_tokens=NANOCHAT_SPECIAL_TOKENS)
    return Tokenizer.train([TEXT * 3], config)


@pytest.fixture(scope="session")
def folder(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    # More tokens than the tokenizer has learnt would be refused of an import, so the model has as many.
    config = PrenormConfig(
        layers=2,
        width=32,
        mlp_width=48,
        head_width=16,
        vocabulary_size=tokenizer.vocabulary_size,
        context_length=48,
    )
    model = build_model(config, {seam: resolve(seam, None, str(seam)) for seam in Seam}, ("generating",))
    with torch.no_grad():
        model.get_parameter("embedding").mul_(6.0)  # logits that differ by more than rounding
    path = tmp_path_factory.mktemp("imported") / "model"
    tensors = {name: parameter.detach() for name, parameter in model.named_parameters()}
    tokenizer.save(path.parent / "tokenizer.json")
    texts = {imported.TOKENIZER: (path.parent / "tokenizer.json").read_bytes()}
    imported.write(path, config, tensors, {"program": "tests", "tag": "tiny", "step": 7}, texts)
    return path
