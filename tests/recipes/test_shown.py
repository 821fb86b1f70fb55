"""What `paribus plan` says of a recipe: every derived number with its rule, and a twin beside what it stands for."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from paribus.errors import ExperimentFileError
from paribus.experiment.recipe import derivations, twin_sizes
from paribus.experiment.spec import Experiment

Load = Callable[..., Experiment]
Cli = Callable[..., tuple[int, str, str]]
SMALL = (
    "[scales.one.derive]\ndepth = 12",
    "[scales.one]\nlayers = 12\nwidth = 256\nmlp_width = 512\nbudget_tokens = 10_000_000",
)
TWIN = f'{SMALL[1]}\ntwin_of = {{ file = "larger.toml" }}'


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)


def written(folder: Path, text: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    (folder / "study.toml").write_text(text, encoding="utf-8")
    return str(folder / "study.toml")


def test_every_derived_number_is_the_one_that_is_in_force(load: Load):
    found = load()
    values = {of.key: of.value for of in derivations(found, "one") if of.key}
    base, size = found.base, found.scales["one"]
    for key, value in values.items():
        at = size if "." not in key else base
        for part in key.removeprefix("base.").split("."):
            at = getattr(at, part)
        assert at == value
    assert not any(of.given for of in derivations(found, "one"))


def test_what_the_file_says_instead_is_marked_beside_what_the_rule_gives(load: Load):
    found = load(("preset =", "batch_tokens = 1_048_576\noptimiser = { head_learning_rate = 0.5 }\npreset ="))
    given = {of.name: of.by_rule for of in derivations(found, "one") if of.given}
    assert given == pytest.approx({"batch_tokens": 524_288, "optimiser.head_learning_rate": 0.008 * 2**0.5})


def test_plan_prints_the_preset_its_standing_and_a_rule_for_every_number(cli: Cli, short: str, tmp_path: Path):
    code, shown, error = cli("plan", written(tmp_path, short, ("preset =", "batch_tokens = 1_048_576\npreset =")))
    assert (code, error) == (0, "")
    assert "preset nanochat-2026-04: from reading nanochat" in shown
    rows = [line.split("  ") for line in shown.partition("Derived by the preset")[2].partition("Cells")[0].splitlines()]
    cells = {row[0]: [cell.strip() for cell in row[1:] if cell.strip()] for row in rows if len(row) > 2}
    assert cells["width"] == ["768", "12 x aspect ratio 64, up to a multiple of head width 128"]
    assert cells["batch_tokens"] == ["1,048,576", "by the file; the rule gives 524,288"]
    assert cells["schedule.warmup"] == ["0.031746", "40 of 1,260 updates"]
    assert cells["scaling parameters"][0] == "110,100,912"


def test_plan_as_json_has_the_derivation_and_its_preset(cli: Cli, short: str, tmp_path: Path):
    _, shown, _ = cli("plan", written(tmp_path, short), "--json")
    recipe = json.loads(shown)["recipe"]
    assert recipe["preset"] == "nanochat-2026-04"
    assert recipe["standing"].startswith("from reading")
    derived = {of["name"]: of["value"] for of in recipe["scales"]["one"]["derived"]}
    assert derived["budget_tokens"] == 2520 * 524_288
    assert recipe["scales"]["one"]["twin_of"] == []


def test_a_twin_is_compared_with_what_it_stands_for_number_by_number(load: Load, short: str, tmp_path: Path):
    (tmp_path / "larger.toml").write_text(short, encoding="utf-8")
    found = load((SMALL[0], TWIN), ("preset =", "batch_tokens = 4096\ncontext_length = 256\npreset ="))
    told = {scaled.name: (scaled.larger, scaled.here) for scaled in twin_sizes(found, "one", tmp_path)}
    assert told["layers"] == ("12", "12")
    assert told["width"] == ("768", "256")
    assert told["heads"] == ("6 of 128", "2 of 128")
    assert told["context in tokens"] == ("2,048", "256")
    assert told["short windows"] == ("512 of 2,048", "128 of 256")
    assert told["batch in tokens"] == ("524,288", "4,096")
    assert told["updates"] == ("2,520", "2,442")
    assert "vocabulary" not in told, "what is equal is left out"
    assert not any(name.startswith("optimiser") for name in told)


def test_a_field_of_the_recipe_that_a_twin_changes_is_told_too(load: Load, short: str, tmp_path: Path):
    (tmp_path / "larger.toml").write_text(short, encoding="utf-8")
    found = load((SMALL[0], TWIN), ("preset =", "schedule = { decay = 0.3 }\nmodel = { qk_gain = 1.0 }\npreset ="))
    told = {scaled.name: (scaled.larger, scaled.here) for scaled in twin_sizes(found, "one", tmp_path)}
    assert told["schedule.decay"] == ("0.65", "0.3")
    assert told["model.qk_gain"] == ("1.2", "1")


def test_plan_says_that_a_twin_is_no_replication(cli: Cli, short: str, tmp_path: Path):
    (tmp_path / "larger.toml").write_text(short, encoding="utf-8")
    code, shown, _ = cli("plan", written(tmp_path, short, (SMALL[0], TWIN)))
    assert code == 0
    assert "Scaled down from larger: one" in shown
    assert "A twin is related evidence about larger, never a replication." in shown
    assert "Derived by the preset" not in shown


def test_a_twin_of_a_file_that_is_not_there_is_refused_with_its_key(load: Load, tmp_path: Path):
    found = load((SMALL[0], TWIN))
    with pytest.raises(ExperimentFileError, match=r"scales\.one\.twin_of: .*larger\.toml: no such file"):
        twin_sizes(found, "one", tmp_path)


def test_a_file_without_a_recipe_says_nothing_of_one(cli: Cli, short: str, tmp_path: Path):
    plain = written(
        tmp_path,
        short,
        (SMALL[0], SMALL[1]),
        ('preset = "nanochat-2026-04"', "context_length = 64\nbatch_tokens = 256"),
    )
    _, shown, _ = cli("plan", plain)
    assert "preset" not in shown
    assert json.loads(cli("plan", plain, "--json")[1])["recipe"] is None
