"""How a preparation is shown while it lasts: a line now and then where nobody watches, bars where somebody does."""

import io

import pytest
from rich.console import Console

from paribus import terminal
from paribus.data.progress import Advance
from paribus.terminal import steps_of_preparation


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that the display believes in."""
    now = [100.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    return now


def test_a_phase_of_thousands_of_advances_is_few_lines_with_speed_and_time_left(clock: list[float]):
    out = io.StringIO()
    with steps_of_preparation(Console(file=out, width=200)) as show:
        for done in range(0, 10_001):
            # 10 kB of text and 2.5 kB of the file, 3,000 tokens and one document every 10 ms: 100 seconds.
            show(Advance("encode", done * 2500, 25_000_000, done, done * 10_000, done * 3000))
            clock[0] += 0.01
        show(Advance("write train", 0, 0))
        clock[0] += 2.0
        show(Advance("write train", 4_000_000, 0))
    lines = out.getvalue().splitlines()
    assert lines[0] == "  encode: 30 %, 3,000 documents, 30.0 MB, 1.0 MB/s, 9,000,000 tokens, about 1.2 min left"
    assert [line[:9] for line in lines[:3]] == ["  encode:"] * 3
    assert lines[3] == "encode: 10,000 documents, 100.0 MB, 1.0 MB/s, 30,000,000 tokens, 100.0 s"
    assert lines[4:] == ["write train: 4.0 MB, 2.0 MB/s, 2.0 s"]


def test_work_that_was_finished_before_says_nothing_of_the_speed(clock: list[float]):
    out = io.StringIO()
    with steps_of_preparation(Console(file=out, width=200)) as show:
        show(Advance("encode", 0, 100_000_000))
        for done in (40_000_000, 80_000_000):
            show(Advance("encode", done, 100_000_000, 1, done, 1))
        for second in range(1, 71):
            clock[0] += 1.0
            show(Advance("encode", 80_000_000 + second * 100_000, 100_000_000, 1, 80_000_000 + second * 100_000, 1))
    lines = out.getvalue().splitlines()
    assert lines[1] == "  encode: 86 %, 1 documents, 86.0 MB, 0.1 MB/s, 1 tokens, about 2.3 min left"


def test_phases_that_count_nothing_are_a_name_and_a_time(clock: list[float]):
    out = io.StringIO()
    with steps_of_preparation(Console(file=out, width=200)) as show:
        show(Advance("tokenizer", 0, 1))
        clock[0] += 45.0
        show(Advance("tokenizer", 1, 1))
        show(Advance("compare documents", 3, 4, documents=3))
        show(Advance("fetch files", 1000, 2000, documents=2))
        show(Advance("timing tiny", 23, 23))
    assert out.getvalue().splitlines() == [
        "tokenizer: 45.0 s",
        "compare documents: 3 documents, 0.0 s",
        "fetch files: 2 files, 1.0 kB, 0.0 s",
        "timing tiny: 0.0 s",
    ]


def test_a_terminal_of_80_characters_shows_documents_speed_tokens_and_time_left(clock: list[float]):
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=True, color_system=None, legacy_windows=False)
    with steps_of_preparation(console) as show:
        for done in range(10):
            clock[0] += 4.0
            show(Advance("read documents", done * 10**9, 10**10, done * 900_000, done * 3 * 10**9))
        for done in range(10):
            clock[0] += 4.0
            show(Advance("encode", done * 10**9, 10**10, done * 1_000_000, done * 3 * 10**9, done * 10**9))
        # What a bar shows of the clock is the library's own; half a second later it draws again.
        shown = out.getvalue()
    lines = (shown + out.getvalue()).replace("\r", "\n").splitlines()
    (last,) = [line for line in lines if "encode:" in line][-1:]
    assert "90 %" in last
    assert "encode: 9,000,000 documents, 750.0 MB/s, 9,000.0M tokens" in last
    assert len(last.rstrip()) <= 80
    assert any("8,100,000 documents, 27.0 GB, 750.0 MB/s" in line for line in lines)


def test_in_a_terminal_each_phase_is_a_bar_that_ends_full():
    out = io.StringIO()
    console = Console(file=out, width=160, force_terminal=True, color_system=None, legacy_windows=False)
    with steps_of_preparation(console) as show:
        for done in (0, 50, 100):
            show(Advance("read documents", done, 100, done, done * 1000, 0))
        show(Advance("write train", 0, 0))
        show(Advance("write train", 2_000_000, 0))
    shown = out.getvalue().replace("\r", "\n").splitlines()
    for phase, told in (("read documents", "100 documents, 100.0 kB"), ("write train", "2.0 MB")):
        last = [line for line in shown if phase in line][-1]
        assert "100 %" in last
        assert told in last
