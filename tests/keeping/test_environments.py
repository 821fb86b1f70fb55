"""An upgrade in mid-study is told: by status and by the report, with the cells, the update and both versions."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from paribus.experiment import loading
from paribus.reading.environments import environment_sentences
from paribus.reading.evidence import verdicts_of
from paribus.reading.study import read_study
from paribus.reporting.assemble import report_content
from paribus.runs.folder import CellFolder
from paribus.runs.records import write_json

OLD = {"python": "3.11.7", "torch": "2.11.0", "numpy": "2.4.0", "cores": "8"}
NEW = OLD | {"torch": "2.13.0", "cores": "16"}
Cli = Callable[..., tuple[int, str, str]]


def resumed(*environments: dict[str, str]) -> dict:
    """cell.json of a cell that began in the first environment and went on in each further one."""
    lines = [{"step": 10 * i, "environment": e, "host": f"host-{i}", "token": i} for i, e in enumerate(environments)]
    return {"environment": environments[0], "resumed": lines[1:]}


def test_cells_of_one_environment_say_nothing():
    assert environment_sentences({"a": resumed(OLD), "b": resumed(OLD, OLD, OLD)}) == []
    assert environment_sentences({}) == []


def test_a_cell_that_went_on_under_another_version_is_named_with_the_update_and_both_versions():
    told, mixed = environment_sentences({"S/a/0": resumed(OLD, NEW)})
    assert told.startswith("Cell S/a/0 went on under another environment at update 10 (on host-1): ")
    assert "torch 2.11.0 before, 2.13.0 after; cores 8 before, 16 after" in told
    assert mixed == ("The cells were not all trained with one version of torch (2.11.0: S/a/0; 2.13.0: S/a/0)."), (
        "and counts for both versions"
    )


def test_each_change_of_a_cell_is_told_against_the_one_before():
    first, second, _ = environment_sentences({"S/a/0": resumed(OLD, NEW, NEW, OLD)})
    assert "at update 10 (on host-1): torch 2.11.0 before, 2.13.0 after" in first
    assert "at update 30 (on host-3): torch 2.13.0 before, 2.11.0 after" in second


@pytest.mark.parametrize("package", ["python", "torch", "numpy"])
def test_cells_that_differ_among_each_other_are_told_by_package_with_their_cells(package: str):
    records = {f"S/a/{seed}": resumed(OLD if seed < 5 else OLD | {package: "9.9"}) for seed in range(6)}
    (told,) = environment_sentences(records)
    assert told == (
        f"The cells were not all trained with one version of {package} "
        f"({OLD[package]}: S/a/0, S/a/1, S/a/2 and 2 more; 9.9: S/a/5)."
    )


def test_other_machines_are_no_other_version():
    assert environment_sentences({"a": resumed(OLD), "b": resumed(OLD | {"cores": "64"})}) == []


@pytest.mark.parametrize(
    "broken", [{"resumed": "x"}, {"resumed": [1]}, {"environment": 3}, {"resumed": [{"step": 1}]}, {}]
)
def test_records_that_are_not_as_they_were_written_stop_nothing(broken: dict):
    environment_sentences({"a": broken, "b": resumed(OLD)})


def test_a_record_of_the_beginning_that_was_lost_is_told():
    record = {"environment": OLD, "resumed": [{"step": 5, "environment": OLD, "earlier_record": "not readable"}]}
    assert environment_sentences({"a": record}) == ["Cell a went on at update 5; its earlier record: not readable."]


def test_status_and_report_of_a_study_whose_torch_was_upgraded_say_so(here: Path, cli: Cli):
    (path,) = (here / "runs" / "tiny" / "tiny" / "xsa").iterdir()
    record = CellFolder(path).record()
    now = record["environment"] | {"torch": "9.9.9"}
    write_json(path / "cell.json", {**record, "resumed": [{"step": 5, "environment": now, "host": "h", "token": 2}]})
    said = "Cell tiny/xsa/0 went on under another environment at update 5 (on h): torch "
    _, out, _ = cli("status", "study.toml")
    assert f"environment  {said}" in out
    assert "The cells were not all trained with one version of torch" in out
    found = json.loads(cli("status", "study.toml", "--json")[1])["environments"]
    assert [text.startswith(said) for text in found] == [True, False]
    study = read_study(loading.load(here / "study.toml"), here / "runs")
    caveats = report_content(study, verdicts_of(study), "paribus run study.toml").caveats
    assert [text for text in caveats if text in found] == found
    assert "9.9.9: tiny/xsa/0" in found[1]
