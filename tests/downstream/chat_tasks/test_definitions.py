"""ChatCORE of six tasks and of five."""

import pytest

from paribus.downstream.chat.definitions import CHANCE, CHATCORE, ROWS, ChatScore, chat_score, chat_shares
from paribus.downstream.core.scoring import Incomplete
from paribus.errors import ParibusError

PUBLISHED = {
    "arc_easy": 0.6065,
    "arc_challenge": 0.5085,
    "mmlu": 0.3682,
    "gsm8k": 0.0849,
    "humaneval": 0.1280,
    "spelling_bee": 0.9922,
}
"""of nanochat's d24, April 2026"""


def of(definition: str, accuracies: dict[str, float]) -> dict[str, float]:
    return {task: accuracies[task] for task in CHATCORE[definition]}


def score(definition: str, accuracies: dict[str, float]) -> ChatScore:
    found = chat_score(definition, of(definition, accuracies), items=ROWS, code_ran=True)
    assert isinstance(found, ChatScore)
    return found


@pytest.mark.parametrize(("definition", "chatcore"), [("chatcore-6", 0.3638), ("chatcore-5", 0.2381)])
def test_published_accuracies_give_the_published_mean(definition: str, chatcore: float) -> None:
    # Both sides are rounded to four places; accuracies' rounding moves a mean by less than 1e-4.
    assert score(definition, PUBLISHED).chatcore == pytest.approx(chatcore, abs=1e-4)


def test_chance_is_zero_and_perfection_one_under_both() -> None:
    for definition in CHATCORE:
        assert score(definition, dict(CHANCE)).chatcore == 0.0
        assert score(definition, dict.fromkeys(ROWS, 1.0)).chatcore == 1.0


@pytest.mark.parametrize(
    ("change", "task", "reason"),
    [
        ({"drop": "mmlu"}, "mmlu", "was not asked"),
        ({"items": {**ROWS, "gsm8k": 24}}, "gsm8k", "24 of 1,319 items"),
        ({"code_ran": False}, "humaneval", "its programs were not allowed to run"),
        ({"missing": {"arc_easy": "1 malformed"}}, "arc_easy", "1 malformed"),
    ],
)
def test_what_is_not_asked_in_full_is_no_chatcore(change: dict, task: str, reason: str) -> None:
    accuracies = of("chatcore-5", PUBLISHED)
    accuracies.pop(change.get("drop", ""), None)
    found = chat_score(
        "chatcore-5",
        accuracies,
        items=change.get("items", ROWS),
        code_ran=change.get("code_ran", True),
        missing=change.get("missing"),
    )
    assert isinstance(found, Incomplete)
    assert found.reasons == {task: reason}
    assert set(found.centred) == set(accuracies)


def test_definitions_are_never_mixed() -> None:
    with pytest.raises(ParibusError, match="chatcore-5 has no task spelling_bee"):
        chat_score("chatcore-5", PUBLISHED, items=ROWS, code_ran=True)
    with pytest.raises(ParibusError, match="two definitions cannot be compared"):
        chat_shares(score("chatcore-6", PUBLISHED), score("chatcore-5", PUBLISHED))
    with pytest.raises(ParibusError, match="chatcore-6 or chatcore-5"):
        chat_score("chatcore-7", {}, items={}, code_ran=True)


def test_shares_sum_to_the_difference() -> None:
    better = score("chatcore-6", {task: min(1.0, value + 0.005) for task, value in PUBLISHED.items()})
    baseline = score("chatcore-6", PUBLISHED)
    shares = chat_shares(better, baseline)
    assert sum(shares.values()) == pytest.approx(better.chatcore - baseline.chatcore, abs=1e-12)
    # Six tasks; those with a baseline of 1/4 weigh 4/3.
    assert shares["arc_easy"] == pytest.approx(0.005 / 0.75 / 6, abs=1e-12)
    assert shares["gsm8k"] == pytest.approx(0.005 / 6, abs=1e-12)
