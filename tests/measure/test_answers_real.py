"""A real trained model on real tasks: the engine's answers are those of one example after the other."""

from pathlib import Path

import pytest

from paribus.downstream.core.bundle import read_bundle
from paribus.downstream.core.items import core_items
from paribus.downstream.core.settings import CoreSettings
from paribus.interop.llama import import_llama
from paribus.measure.answers import answer
from paribus.measure.answers_reference import naive_answer
from paribus.measure.answers_rounding import measured_rounding
from paribus.trained import Trained, open_model

SHARED = Path(__file__).parents[3] / "shared" / "data"
MODEL, BUNDLE = SHARED / "models" / "stories260K", SHARED / "core_eval_bundle"
ITEMS = {
    "choices": {"arc_easy": 12, "piqa": 12, "copa": 24},
    "passages": {"lambada_openai": 24, "squad": 12, "bigbench_repeat_copy_logic": 24},
    "schemas": {"winograd": 24, "winogrande": 24},
}
pytestmark = pytest.mark.shared_data


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    if not MODEL.exists() or not BUNDLE.exists():
        pytest.skip("real data is absent: expected ../shared/data/models/stories260K and core_eval_bundle")
    folder = tmp_path_factory.mktemp("imported") / "stories260K"
    import_llama(MODEL, to=folder)
    return open_model(folder)


@pytest.mark.parametrize(("task", "count"), [pair for tasks in ITEMS.values() for pair in tasks.items()])
def test_scores_equal_those_of_one_example_at_a_time(trained: Trained, task: str, count: int):
    [found] = [entry for entry in read_bundle(BUNDLE, "core_available.yaml").tasks if entry.label == task]
    length = trained.model.config.context_length
    items = list(core_items(found, trained.tokenizer, context_length=length, settings=CoreSettings(max_items=count)))
    decode, model = trained.tokenizer.decode, trained.model
    answers = list(answer(model, items, decode, batch_tokens=4096))
    rounding = measured_rounding(model, [row.tokens for item in items for row in item.rows])
    assert rounding < 1e-3
    for item, one in zip(items, answers, strict=True):
        other = naive_answer(model, item, decode)
        assert (one.problem, one.tokens, one.gold_bytes) == ("", other.tokens, other.gold_bytes)
        # Each of the two is within a rounding a token of the exact value.
        for left, right, tokens in zip(one.nats, other.nats, one.tokens, strict=True):
            assert abs(left - right) <= 2.0 * rounding * tokens
        assert one.near_tie or (one.prediction, one.correct) == (other.prediction, other.correct)
        assert one.margin is not None
        assert other.margin is not None
        assert abs(one.margin - other.margin) <= 4.0 * rounding
    assert sum(one.near_tie for one in answers) <= 1
