"""The page of an adopted folder claims no more about its pairs than was recorded of them."""

import re

from paribus.adopting import page
from paribus.report.page import render


def test_a_page_of_foreign_results_never_says_that_two_arms_shared_weights_or_batches(foreign) -> None:
    records = [
        foreign.record(arm, seed, 0.85 + 0.001 * seed - gain)
        for arm, gain in (("plain", 0.0), ("trick", 0.003))
        for seed in range(5)
    ]
    content = page.content(foreign.adopt(records))
    assert content.verdicts
    assert not content.pairing_proven
    words = re.sub(r"<[^>]*>", " ", render(content))
    assert "the two arms shared initial weights" not in words
    assert "what sharing initial weights and batches leaves" not in words
    assert "What was held equal, and how it was proven" not in words
    for said in ("joined by their recorded seed", "What is recorded as held equal", "were not made by paribus"):
        assert said in words
    assert "No cell has trained yet" not in words
