"""Log-likelihoods are those of lm-evaluation-harness on the same prompts: `pip install "paribus[lm-eval]"` to run this.

Its class for Hugging Face models is handed `stories260K` as transformers loads it, and asked once for tokens and once
for texts, the way its tasks do.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers.processors import TemplateProcessing

from paribus.downstream.core.bundle import read_bundle
from paribus.downstream.core.items import core_items
from paribus.downstream.core.settings import CoreSettings
from paribus.downstream.items import Item
from paribus.interop.llama import import_llama
from paribus.measure.answers import answer
from paribus.measure.answers_rounding import measured_rounding
from paribus.trained import Trained, open_model

SHARED = Path(__file__).parents[3] / "shared" / "data"
MODEL, BUNDLE = SHARED / "models" / "stories260K", SHARED / "core_eval_bundle"
ITEMS = 40
pytestmark = [
    pytest.mark.shared_data,
    pytest.mark.filterwarnings("ignore"),  # of packages that are none of ours
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    if not MODEL.exists() or not BUNDLE.exists():
        pytest.skip("real data is absent: expected ../shared/data/models/stories260K and core_eval_bundle")
    folder = tmp_path_factory.mktemp("imported") / "stories260K"
    import_llama(MODEL, to=folder)
    return open_model(folder)


@pytest.fixture(scope="module")
def harness(trained: Trained) -> Any:
    """lm-evaluation-harness' model, with a tokenizer that gives our ids and begins every text with ours."""
    found = pytest.importorskip(
        "lm_eval.models.huggingface",
        reason="lm-evaluation-harness is not installed: pip install paribus[lm-eval]",
        exc_type=ImportError,
    )
    transformers = pytest.importorskip("transformers")

    backend = tokenizers.Tokenizer.from_str((trained.folder / "tokenizer.json").read_text())
    backend.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", trained.tokenizer.bos_id)])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    model = transformers.LlamaForCausalLM.from_pretrained(MODEL)
    return found.HFLM(pretrained=model, tokenizer=fast, add_bos_token=True, device="cpu", batch_size=8)


def items_of(task: str, trained: Trained) -> list[Item]:
    [found] = [entry for entry in read_bundle(BUNDLE, "core_available.yaml").tasks if entry.label == task]
    length = trained.model.config.context_length
    return list(core_items(found, trained.tokenizer, context_length=length, settings=CoreSettings(max_items=ITEMS)))


@pytest.mark.parametrize("task", ["arc_easy", "piqa", "hellaswag", "hellaswag_zeroshot", "lambada_openai"])
def test_log_likelihoods_agree_item_by_item_with_the_harness(
    trained: Trained, harness: Any, task: str, record_property: Callable[[str, object], None]
):
    items = items_of(task, trained)
    answers = list(answer(trained.model, items, trained.tokenizer.decode))
    asked = [(item, row) for item in items for row in item.rows]
    ours = [nats for found in answers for nats in found.nats]
    requests = [
        (("", ""), row.tokens[: row.start].tolist(), [int(token) for token in row.tokens[row.start :]])
        for _, row in asked
    ]
    theirs = harness._loglikelihood_tokens(requests, disable_tqdm=True)
    # Both are within a rounding of the exact value, a token.
    rounding = measured_rounding(trained.model, [row.tokens for _, row in asked])
    bounds = [2.0 * rounding * (len(row.tokens) - row.start) for _, row in asked]
    differences = [abs(nats + found[0]) for nats, found in zip(ours, theirs, strict=True)]
    record_property("largest_difference_nats", max(differences))
    record_property("largest_share_of_bound", max(d / bound for d, bound in zip(differences, bounds, strict=True)))
    assert all(difference <= bound for difference, bound in zip(differences, bounds, strict=True))
    assert len(differences) >= ITEMS
    if items[0].kind == "exact":
        assert [found.correct for found in answers] == [greedy for _, greedy in theirs]


@pytest.mark.parametrize("task", ["arc_easy", "piqa", "hellaswag"])
def test_texts_give_the_harness_the_same_tokens_and_log_likelihoods(trained: Trained, harness: Any, task: str):
    instance = pytest.importorskip("lm_eval.api.instance")

    items = items_of(task, trained)[:10]
    answers = list(answer(trained.model, items, trained.tokenizer.decode))
    decode = trained.tokenizer.decode
    asked = [
        (row, nats)
        for item, found in zip(items, answers, strict=True)
        for row, nats in zip(item.rows, found.nats, strict=True)
    ]
    texts = [(decode(row.tokens[1 : row.start]), decode(row.tokens[row.start :])) for row, _ in asked]
    requests = [instance.Instance("loglikelihood", {}, pair, number) for number, pair in enumerate(texts)]
    theirs = harness.loglikelihood(requests, disable_tqdm=True)
    same = [
        (nats, found[0], len(row.tokens) - row.start)
        for (row, nats), pair, found in zip(asked, texts, theirs, strict=True)
        if harness._encode_pair(*pair) == (row.tokens[: row.start].tolist(), row.tokens[row.start :].tolist())
    ]
    # A prompt that was cut in the middle of a token's text has other tokens when it is read again.
    assert len(same) >= 0.9 * len(asked)
    rounding = measured_rounding(trained.model, [row.tokens for row, _ in asked])
    assert all(abs(nats + found) <= 2.0 * rounding * tokens for nats, found, tokens in same)
