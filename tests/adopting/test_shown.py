"""What a reader gets: terminal, JSON, page, the shipped examples, and the how-to's own files."""

import io
import json
import re
import tomllib
from pathlib import Path

import pytest
from rich.console import Console

from paribus.adopting import page
from paribus.adopting.conclude import Adopted, adopt
from paribus.adopting.findings import Severity
from paribus.adopting.showing import concluded, describe, describe_json, not_concluded
from paribus.report.page import render

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "experiments" / "adopt"
PUBLISHED = EXAMPLES / "xsa-under-muon"


def _text(adopted: Adopted) -> str:
    console = Console(file=io.StringIO(), width=160)
    describe(adopted, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture(scope="module")
def published() -> Adopted:
    return adopt(PUBLISHED)


def test_public_numbers_are_exploratory_for_bits_per_byte_and_nothing_for_core(published: Adopted) -> None:
    words = {outcome.compared.name: outcome.word for outcome in published.outcomes}
    assert words == {
        "bits-per-byte@d24": "exploratory",
        "bits-per-byte@d12": "exploratory",
        "core@d12": Severity.NOTHING.value,
        "core@d24": Severity.NOTHING.value,
        "chat-core": Severity.NOTHING.value,
    }


def test_the_reasons_for_nothing_are_noise_and_metrics_that_are_not_comparable(published: Adopted) -> None:
    core = {o.compared.scale: o for o in published.outcomes if o.compared.contrast == "core"}
    assert [o.noise and round(o.noise.in_sd, 2) for o in (core["d12"], core["d24"])] == [1.07, 0.15]
    assert any("precision = fp8 on (launcher) against fp8 off" in reason for reason in core["d24"].reasons)
    across = [text for text in not_concluded(published) if "not one quantity across scales" in text]
    assert any("core_items_per_task is d12: 500, in training; d24: all" in text for text in across)


def test_the_example_holds_the_figures_of_the_published_column(published: Adopted) -> None:
    files = (file.read_text(encoding="utf-8") for file in (ROOT / "experiments").rglob("*.toml"))
    (text,) = [text for text in files if "[xsa_under_muon.d12]" in text]
    figures = tomllib.loads(text)["xsa_under_muon"]
    for run in published.runs:
        assert run.values["bits_per_byte"] == figures[run.scale]["val_bits_per_byte"][run.arm]
        assert run.values["core"] == figures[run.scale]["core"][run.arm]
    assert {(run.scale, run.arm) for run in published.runs} == {
        (d, a) for d in ("d12", "d24") for a in ("baseline", "xsa")
    }


def test_a_newer_recipe_without_its_baseline_shows_nothing() -> None:
    adopted = adopt(EXAMPLES / "bag-of-tricks")
    words = {outcome.compared.name: outcome.word for outcome in adopted.outcomes}
    assert words["exclusive@older"] == words["residuals@older"] == "exploratory"
    assert words["exclusive@newer"] == words["residuals@newer"] == Severity.NOTHING.value
    means = [o.verdict.mean for o in adopted.outcomes if o.verdict is not None]
    assert means == [pytest.approx(-0.0148), pytest.approx(0.0170)]


def test_verdicts_come_first_then_what_can_and_then_what_cannot_be_concluded(published: Adopted) -> None:
    text = _text(published)
    headings = ("Verdicts:", "What can be concluded", "What cannot be concluded", "What limits these conclusions")
    places = [text.index(heading) for heading in headings]
    assert places == sorted(places)
    assert all(caveat in text for caveat in published.mapping.caveats)


def test_every_finding_every_reason_and_everything_left_out_is_printed(foreign) -> None:
    (foreign.folder / "run-99.json").write_text("{")
    records = foreign.study()
    records[1]["lr"] = 1.0
    records[3]["gpus"] = 4
    adopted = foreign.adopt([*records, foreign.record("plain", 0, 0.86)])
    text = " ".join(_text(adopted).split())
    for outcome in adopted.outcomes:
        assert all(reason in text for reason in outcome.reasons)
    for finding in adopted.findings:
        assert " ".join(finding.sentence.split()) in text, finding
    for one in adopted.left:
        assert one.source in text
    shown = describe_json(adopted)
    assert {f["sentence"] for f in shown["findings"]} == {f.sentence for f in adopted.findings}
    assert [one["source"] for one in shown["not_used"]] == ["run-99.json"]


def test_json_is_json_and_holds_no_number_of_a_waiting_study(foreign) -> None:
    adopted = foreign.adopt(foreign.study(3), {"planned_seeds": 5})
    text = json.dumps(describe_json(adopted), allow_nan=False)
    verdict = json.loads(text)["outcomes"][0]["verdict"]
    assert verdict["mean"] is None
    assert verdict["differences"] == []
    assert "-0.003" not in text
    assert "0.00" not in re.sub(r'"(smallest|design)_effect": [0-9.]+', "", text)
    assert "\N{MINUS SIGN}0.003" not in _text(adopted)


def test_markup_in_foreign_names_is_text(foreign) -> None:
    records = [{**r, "arm": "[bold]x[/bold]" if r["arm"] == "trick" else r["arm"]} for r in foreign.study(1)]
    changes = {"contrasts": {"main": {"treatment": "[bold]x[/bold]"}}, "question": "[red]why[/red]?"}
    text = _text(foreign.adopt(records, changes))
    assert "[red]why[/red]?" in text
    assert "[bold]x[/bold] against plain" in text


def test_nothing_is_said_where_nothing_can_be(foreign) -> None:
    adopted = foreign.adopt([r for r in foreign.study() if r["arm"] == "trick"])
    assert concluded(adopted) == ["Nothing."]


def test_the_page_holds_verdicts_and_says_what_is_blocked(published: Adopted, tmp_path: Path) -> None:
    content = page.content(published)
    assert [verdict.name for verdict in content.verdicts] == ["bits-per-byte@d24", "bits-per-byte@d12"]
    assert any(text.startswith("core@d24: nothing can be concluded") for text in content.caveats)
    assert not any(held.holds for held in content.held_equal if held.what == "core@d24: precision")
    assert {cell.arm for cell in content.cells} == {"baseline (seed not recorded)", "xsa (seed not recorded)"}
    path = page.write(published, page.default_folder(tmp_path))
    assert "core@d24: nothing can be concluded" in path.read_text(encoding="utf-8")
    assert json.loads((path.parent / "report.json").read_text(encoding="utf-8"))["study"] == "xsa-under-muon"


def test_the_page_is_the_same_twice(published: Adopted) -> None:
    assert render(page.content(published)) == render(page.content(adopt(PUBLISHED)))


def test_a_folder_in_which_everything_is_blocked_still_has_a_page(foreign) -> None:
    adopted = foreign.adopt([r for r in foreign.study() if r["arm"] == "trick"])
    html = render(page.content(adopted))
    assert "nothing can be concluded" in html
    assert "No run of the baseline" in html


def test_the_page_of_a_diverged_run_and_of_repeats_is_made(foreign) -> None:
    records = foreign.study()
    records[1]["val_bpb"] = float("nan")
    content = page.content(foreign.adopt([*records, foreign.record("plain", 0, 0.8501)]))
    assert [cell.state for cell in content.cells].count("diverged") == 1
    assert content.noise[0].kind == "repeat"
    assert content.pairs[0].difference is None
    assert "withheld: divergence" in render(content)


def test_the_howtos_files_say_what_the_howto_says(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "howto" / "adopt-results.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"```csv\n(.*?)```", text, re.DOTALL)
    (mapping,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "runs.csv").write_text(table, encoding="utf-8")
    (tmp_path / "mapping.toml").write_text(mapping, encoding="utf-8")
    adopted = adopt(tmp_path)
    words = {outcome.compared.name: outcome.word for outcome in adopted.outcomes}
    assert words == {"trick@12": "better by at least the smallest effect", "trick@24": Severity.NOTHING.value}
    assert {f.what for f in adopted.findings if f.contrast == "trick@12"} == {"hosts confounded with arms"}
    for key in re.findall(r"`(\w+)(?: =|`)", text.partition("## More keys")[2]):
        source = (ROOT / "src" / "paribus" / "adopting" / "mapping.py").read_text(encoding="utf-8")
        assert re.search(rf"^    {key}: ", source, re.MULTILINE) or key in ("adopt", "mapping"), key


def test_the_notes_of_a_verdict_are_printed(foreign) -> None:
    adopted = foreign.adopt(foreign.study(4), {"planned_seeds": 3})
    verdict = adopted.outcomes[0].verdict
    assert verdict is not None
    assert verdict.notes
    assert all(note in " ".join(concluded(adopted)) for note in verdict.notes)
