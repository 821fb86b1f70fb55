"""`paribus bench` as a user sees it."""

import io
import json
import math
import re
import statistics
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from paribus.costing import running, showing
from paribus.reading.times import compared
from paribus.runs.layout import COST_FORMAT, cost_fault
from paribus.runs.study_folder import StudyFolder
from paribus.seeds import generator


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, experiment_text: str) -> StudyFolder:
    """The study's run folder, with its file in the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    Path("study.toml").write_text(experiment_text, encoding="utf-8")
    return StudyFolder(Path("runs") / "tiny")


def record(
    treatment: float, blocks: int = 40, *, noise: float = 0.002, again: float = 1.0, **more: Any
) -> dict[str, Any]:
    """Blocks in which the treatment takes so many times the baseline's time."""
    draws = generator("tests", "bench", blocks, f"{noise}")
    times = {"plain/eager": 1.0, "trick/eager": treatment, "plain/eager/again": again}
    seconds = {name: (0.1 * ratio * draws.lognormal(0.0, noise, 2 * blocks)).tolist() for name, ratio in times.items()}
    plain = ["plain/eager", "trick/eager"]
    return {
        "format": COST_FORMAT,
        "identity": {"arms": {}, "code": {}},
        "host": "a made host",
        "columns": {
            name: {"arm": name.split("/")[0], "way": "eager", "again": name.endswith("again")} for name in times
        },
        "ways": ["eager"],
        "comparisons": [["trick/eager", "plain/eager"]],
        "wall_seconds": seconds,
        "cpu_seconds": {name: [0.5 * second for second in values] for name, values in seconds.items()},
        "bytes_for_backward": {"plain/eager": 2**20, "trick/eager": 3 * 2**20},
        "peak_bytes": {"plain/eager": 2 * 2**20, "trick/eager": 5 * 2**20},
        "parts": {name: {"forward: rest": 0.025, "loss": 0.025, "backward": 0.05} for name in plain},
        "part_order": ["forward: rest", "loss", "backward"],
        "parts_in": "processor time",
        "batch_tokens": {"plain": 512, "trick": 512},
        "resolution": 0.01,
        "most_rounds": 2 * blocks,
        **more,
    }


def printed(found: dict[str, Any], target: float | None = None, width: int = 180) -> str:
    assert cost_fault(found) == ""
    console = Console(file=io.StringIO(), width=width)
    showing.show(found, "small", console, target)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def line(text: str, start: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(start))


def test_bench_prints_json_and_puts_the_same_on_record(cli, here: StudyFolder) -> None:
    code, out, _ = cli("bench", "study.toml", "--rounds", "4", "--json")
    assert code == 0
    found = json.loads(out)["small"]
    read = found.pop("read")
    assert {**found, "scale": "small"} == here.cost("small")
    assert cost_fault(found) == ""
    assert {name: len(seconds) for name, seconds in found["wall_seconds"].items()} == dict.fromkeys(
        ("plain/eager", "trick/eager", "plain/eager/again"), 4
    )
    for kind in ("wall_seconds", "cpu_seconds"):
        assert all(second > 0 for seconds in found[kind].values() for second in seconds)
    for memory in ("bytes_for_backward", "peak_bytes"):
        assert found[memory]["trick/eager"] > found[memory]["plain/eager"], "it keeps the values it removes"
    assert found["batch_tokens"] == {"plain": 256, "trick": 256}
    assert found["part_order"][0] == "batch and digest"
    assert [*found["parts"]["plain/eager"]] == sorted(found["part_order"]), "JSON has its own order"
    for shares in read["shares"].values():
        assert math.fsum(shares.values()) == pytest.approx(1.0)
    assert read["compared"][0]["wall"]["reading"] == "not resolved", "two blocks claim nothing"
    assert all(rate > 0 for rate in read["tokens_per_second"].values())


def test_bench_prints_the_baseline_against_itself_first(cli, here: StudyFolder) -> None:
    code, out, err = cli("bench", "study.toml", "--rounds", "10", "--resolution", "0")
    assert (code, err) == (0, "")
    titles = [text for text in out.splitlines() if " / plain" in text]
    assert titles[0].startswith("plain / plain")
    assert "A/A" in titles[0]
    assert titles[1].startswith("trick / plain")
    assert "10 rounds in 5 mirrored blocks" in out
    assert "All 10 rounds that were asked for" in out
    for words in (
        "tokens/s",
        "MiB kept for backward",
        "MiB at the peak",
        "share of the step by part",
        "backward",
        "Muon",
    ):
        assert words in out
    assert out.rstrip().endswith(f"on record in {here.path}")


def test_a_choice_of_arms_is_printed_and_not_put_on_record(cli, here: StudyFolder) -> None:
    code, out, _ = cli("bench", "study.toml", "--rounds", "2", "--arm", "trick", "--baseline", "trick")
    assert code == 0
    assert here.cost("small") is None
    assert "trick / trick" in out
    assert "plain" not in out
    assert "nothing went on record" in out
    code, out, err = cli("bench", "study.toml", "--arm", "trik")
    assert (code, out) == (1, "")
    assert err.startswith("error: no arm 'trik'")
    assert "trick" in err


@pytest.mark.parametrize(("target", "code"), [("1.06", 0), ("1.04", 1)])
def test_a_target_that_is_not_met_is_exit_code_1(
    cli, here: StudyFolder, monkeypatch: pytest.MonkeyPatch, target: str, code: int
) -> None:
    monkeypatch.setattr(running, "measure", lambda *_, **__: record(1.05))
    found, out, _ = cli("bench", "study.toml", "--target", target)
    assert found == code
    assert ("met by every comparison" if code == 0 else "not met by trick / plain, eager") in out
    assert here.cost("small") is not None


def test_run_and_bench_measure_by_the_same_protocol(cli, here: StudyFolder) -> None:
    cli("bench", "study.toml", "--rounds", "2")
    benched = here.cost("small")
    assert benched is not None
    from paribus.costing.running import measure_missing_costs
    from paribus.experiment import loading
    from paribus.experiment.plan import resolve_arms

    experiment = loading.load(Path("study.toml"))
    console = Console(file=io.StringIO())
    measure_missing_costs(experiment, resolve_arms(experiment), here, console)
    assert here.cost("small") == benched, "what bench found holds for run"
    (here.path / "cost" / "small.json").unlink()
    measure_missing_costs(experiment, resolve_arms(experiment), here, console)
    run = here.cost("small")
    assert run is not None
    assert run.keys() == benched.keys()
    for same in ("identity", "columns", "comparisons", "bytes_for_backward", "peak_bytes"):
        assert run[same] == benched[same]


def test_the_table_has_ratios_with_intervals_on_both_clocks() -> None:
    text = printed(record(1.05))
    numbers = re.findall(r"\d\.\d{3}", line(text, "trick / plain"))
    assert len(numbers) == 6
    wall = compared(record(1.05))[0].wall
    assert numbers[:3] == [f"{value:.3f}" for value in (wall.ratio, *(wall.interval() or ()))]
    assert numbers[3:] == numbers[:3], "processor time is half of it in both arms"
    assert line(text, "trick / plain").rstrip().endswith("slower")
    updates = line(text, "trick, eager").split()
    median = statistics.median(record(1.05)["wall_seconds"]["trick/eager"])
    assert updates[2:] == [f"{512 / median:,.0f}", f"{1e3 * median:.1f}", f"{500 * median:.1f}", "3.0", "5.0"]
    assert re.search(r"^forward: rest +25\.0 +25\.0", text, re.MULTILINE)
    narrow = printed(record(1.05), width=80)
    assert line(narrow, "trick / plain") == line(text, "trick / plain"), "a terminal of 80 columns breaks no number"


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (record(1.05), "slower"),
        (record(0.9), "faster"),
        (record(1.0), "not resolved"),
        (record(1.05, again=1.08), "not resolved"),  # the same program differs from itself by more
        (record(1.05, noise=0.3), "not resolved"),
        (record(1.5, blocks=2), "not resolved"),
    ],
)
def test_a_claim_that_the_baseline_against_itself_does_not_support_is_refused(found: dict[str, Any], word: str) -> None:
    assert line(printed(found), "trick / plain").rstrip().endswith(word)


def test_it_is_said_whether_the_resolution_was_reached() -> None:
    assert "Resolution 1.00% reached in 80 rounds" in printed(record(1.05))
    text = printed(record(1.05, noise=0.3))
    assert "Resolution 1.00% NOT reached in 80 rounds, the most that were asked for" in text
    assert "nothing is claimed" in printed(record(1.05, blocks=2))
    assert "All 80 rounds that were asked for" in printed(record(1.05, resolution=None))


def test_a_shared_machine_is_said_to_be_one() -> None:
    found = record(1.05)
    assert "at work for 50% of the wall time: others share this machine" in printed(found)
    assert "share this machine" not in printed({**found, "cpu_seconds": found["wall_seconds"]})
    assert "share this machine" not in printed({**found, "parts_in": "wall time"}), "beside a GPU a processor waits"


def test_a_clock_that_is_too_coarse_claims_nothing() -> None:
    found = record(1.05)
    found["cpu_seconds"] = {name: [0.0] * len(seconds) for name, seconds in found["cpu_seconds"].items()}
    (ratio,) = compared(found)
    assert "0 blocks of times" in ratio.cpu.refusal
    assert "slower" in printed(found)


def test_a_target_is_judged_by_the_upper_end_less_half_the_interval_of_the_baseline_against_itself() -> None:
    found = record(1.05)
    text = printed(found, 1.06)
    assert line(text, "trick / plain").rstrip().endswith("met")
    assert "not met" not in text
    assert showing.misses(found, 1.04) == ["trick / plain, eager"]
    assert "not met by trick / plain, eager" in printed(found, 1.04)
    told = showing.as_json(found, 1.04)["read"]
    assert (told["compared"][0]["met"], told["compared"][0]["target"]) == (False, 1.04)
    assert "met" not in told["against_themselves"][0]
