import json
import math
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import paribus as package
from paribus.draining import train_missing
from paribus.experiment import code, loading
from paribus.reading.evidence import verdicts_of
from paribus.reading.study import read_study
from paribus.reporting.assemble import report_content
from paribus.runs.folder import CellFolder
from paribus.stats.rule import Word
from paribus.study import open_study, prepare_process

ARMS = ("standard", "xsa", "block", "rd")
Cli = Callable[..., tuple[int, str, str]]


def cells(folder: Path, arm: str = "*") -> dict[str, CellFolder]:
    """Cell folders by "arm/seed"; the repeat's name ends in "-repeat"."""
    found = sorted((folder / "runs" / "tiny" / "tiny").glob(f"{arm}/*"))
    return {
        f"{path.parent.name}/{path.name.split('-')[0]}{'-repeat' * path.name.endswith('-repeat')}": CellFolder(path)
        for path in found
    }


def looks(folder: Path) -> list[dict]:
    path = folder / "runs" / "tiny" / "looks.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_one_command_trains_every_cell_and_leaves_a_report(finished: Path):
    states = {name: cell.state for name, cell in cells(finished).items()}
    expected = [*(f"{arm}/{seed}" for arm in ARMS for seed in range(3)), "standard/0-repeat"]
    assert states == dict.fromkeys(expected, "complete")
    printed = (finished / "run.txt").read_text(encoding="utf-8")
    assert "training 13 of 13 cells" in printed
    assert printed.count(" trained in ") == 13
    assert "report: runs/tiny/report.html" in printed
    assert (finished / "runs" / "tiny" / "report.html").read_text(encoding="utf-8").startswith("<!")


def test_the_verdicts_are_three_contrasts_with_interval_p_wins_and_word(finished: Path):
    data = json.loads((finished / "runs" / "tiny" / "report.json").read_text(encoding="utf-8"))
    verdicts = {verdict["name"]: verdict for verdict in data["verdicts"]}
    assert list(verdicts) == ["block", "xsa", "rd"], "the primary first"
    for verdict in verdicts.values():
        low, high = verdict["interval"]
        assert low < verdict["mean"] < high
        assert 0 <= verdict["wins"] <= verdict["seeds"] == 3
        assert verdict["word"] in {word.value for word in Word}
        # A secondary is tested, and has a p value, only behind a primary that is decided.
        gated = verdict["word"] == Word.NOT_TESTED.value
        assert gated or 0.25 <= verdict["p_sign_flip"] <= 1
    assert verdicts["block"]["p_sign_flip"] is not None


def test_the_verdicts_are_recomputed_from_the_documents_rows(finished: Path):
    data = json.loads((finished / "runs" / "tiny" / "report.json").read_text(encoding="utf-8"))
    loss = {}
    for name, cell in cells(finished).items():
        rows = cell.rows("likelihood/test-00000020").to_pydict()
        loss[name] = math.fsum(rows["nats"]) / sum(rows["tokens"])
    differences = [loss[f"block/{seed}"] - loss[f"standard/{seed}"] for seed in range(3)]
    verdict = next(verdict for verdict in data["verdicts"] if verdict["name"] == "block")
    assert verdict["differences"] == pytest.approx(differences, rel=1e-9)
    assert verdict["mean"] == pytest.approx(math.fsum(differences) / 3, rel=1e-9)


def test_a_second_run_trains_nothing_and_says_so(study: Path, cli: Cli, contents):
    before = contents(study / "runs")
    status, out, _ = cli("run", "study.toml")
    assert status == 0
    assert out.startswith("nothing to train: all 13 cells are finished\n")
    assert "report: runs/tiny/report.html" in out
    assert contents(study / "runs") == before


def test_the_arms_of_a_seed_read_the_same_batches_and_start_from_the_same_tensors(finished: Path):
    found = cells(finished)
    for seed in range(3):
        batches = {found[f"{arm}/{seed}"].summary()["batch_digest"] for arm in ARMS}
        assert len(batches) == 1
        initial = {arm: found[f"{arm}/{seed}"].record()["initial_digests"].items() for arm in ARMS}
        assert all(initial["standard"] <= initial[arm] for arm in ARMS)
        assert initial["block"] < initial["rd"]
    assert len({cell.summary()["batch_digest"] for cell in found.values()}) == 3, "seeds differ in their order"
    gains = "layers.0.mlp_norm.gain"
    initial = [found[f"standard/{seed}"].record()["initial_digests"] for seed in (0, 1)]
    assert [name for name in initial[0] if initial[0][name] == initial[1][name] and "gain" not in name] == []
    assert initial[0][gains] == initial[1][gains], "gains start at 1 whatever the seed"


def test_a_repeated_cell_is_bit_identical_to_its_original(finished: Path, trained):
    found = cells(finished)
    assert trained(found["standard/0-repeat"].path) == trained(found["standard/0"].path)
    assert trained(found["standard/1"].path) != trained(found["standard/0"].path)


def test_a_cells_metrics_have_each_update_once_with_its_tokens(finished: Path):
    for cell in cells(finished).values():
        lines = cell.metrics()
        assert [line["step"] for line in lines] == list(range(1, 21))
        assert [line["tokens_seen"] for line in lines] == [512 * step for step in range(1, 21)]
        assert all(math.isfinite(line["loss_nats_per_token"]) for line in lines)
        assert lines[-1]["loss_nats_per_token"] < lines[0]["loss_nats_per_token"]


def test_every_held_out_document_is_scored_at_every_milestone(finished: Path):
    (manifest_file,) = (finished / "runs" / "corpora").glob("*/manifest.json")
    manifest = json.loads(manifest_file.read_text(encoding="utf-8"))
    for cell in cells(finished).values():
        names = [f"likelihood/{split}-{step:08d}" for split in ("test", "validation") for step in (10, 20)]
        assert cell.row_files("likelihood") == names
        for name in names:
            rows = cell.rows(name).to_pydict()
            limit = 1500 if "test" in name else 800
            assert sum(rows["tokens"]) >= limit or len(rows["tokens"]) == manifest["counts"]["validation"]["documents"]
            assert sum(rows["tokens"][:-1]) < limit, "whole documents until the number is reached"
            assert len(set(rows["document"])) == len(rows["document"])
            assert set(rows["mid_schedule"]) == {name.endswith("10")}
            assert set(rows["tokens_seen"]) == {512 * int(name[-2:])}


def test_nothing_on_disk_is_a_pickle(finished: Path):
    files = [path for path in (finished / "runs").rglob("*") if path.is_file()]
    endings = {path.suffix for path in files if not path.name.startswith(".")}
    shown = {".html", ".svg", ".md", ".csv", ".tex", ".pdf"}
    assert endings <= {"", ".json", ".jsonl", ".parquet", ".released", ".safetensors", ".tokens", *shown}


def test_a_deleted_cell_is_trained_again_alone_with_the_same_numbers(study: Path, paribus, trained, contents):
    lost = cells(study)["rd/1"].path
    expected = trained(lost)
    shutil.rmtree(lost)
    kept = contents(study / "runs")
    process: subprocess.Popen[str] = paribus(study, "run", "study.toml")
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    assert "training 1 of 13 cells with 1 workers of 1 thread\n" in out
    assert trained(lost) == expected
    assert contents(study / "runs").items() >= kept.items(), "no other cell is touched"


@pytest.fixture
def copied_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package from which code digests are taken."""
    real, original = code.module_path, Path(package.__file__).parent
    copied = tmp_path / "copy"
    shutil.copytree(original, copied, ignore=shutil.ignore_patterns("__pycache__"))

    def in_copy(name: str) -> Path | None:
        path = real(name)
        return None if path is None else copied / path.relative_to(original)

    monkeypatch.setattr(code, "module_path", in_copy)
    return copied


def test_every_changed_field_of_stale_cells_is_named_with_both_values(study: Path):
    file = study / "study.toml"
    text = file.read_text(encoding="utf-8").replace('name = "xsa"', 'name = "xsa", strength = 0.5')
    assert "strength = 0.5" in text
    file.write_text(text, encoding="utf-8")
    found = open_study(loading.load(file), study, study / "runs").stale_folders()
    assert found == {"tiny/xsa": (3, ("mechanisms.output_map.strength: 1.0, now 0.5",))}


def test_an_edited_mechanism_makes_its_cells_stale_and_no_others(study: Path, cli: Cli, copied_sources: Path, contents):
    before = contents(study / "runs")
    with (copied_sources / "mechanisms" / "attention_residuals.py").open("a", encoding="utf-8") as source:
        source.write("# edited\n")
    _, out, _ = cli("status", "study.toml", "--json")
    states = {(cell["arm"], cell["state"]) for cell in json.loads(out)["cells"]}
    assert states == {("standard", "complete"), ("xsa", "complete"), ("block", "stale"), ("rd", "stale")}
    opened = open_study(loading.load(study / "study.toml"), study, study / "runs")
    assert sorted({cell.arm for cell in opened.missing}) == ["block", "rd"]
    stale = opened.stale_folders()
    assert {arm: count for arm, (count, _) in stale.items()} == {"tiny/block": 3, "tiny/rd": 3}
    assert all(len(changed) == 1 and changed[0].startswith("code: ") for _, changed in stale.values())
    _, out, _ = cli("report", "study.toml", "--json")
    assert {verdict["word"] for verdict in json.loads(out)["verdicts"]} == {Word.WAITING.value}
    assert contents(study / "runs") == before, "stale work is kept"


@pytest.mark.parametrize(
    ("old", "new", "stale"),
    [
        ("checkpoint_steps = 5", "checkpoint_steps = 4\nworkers = 1", set()),
        ("smallest_effect = 0.01", "smallest_effect = 0.02", set()),
        ("checkpoint_steps = 5", "checkpoint_steps = 5\nthreads = 2", set(ARMS)),
        ('name = "xsa"', 'name = "xsa", strength = 0.5', {"xsa"}),
        ("budget_tokens = 10_000", "budget_tokens = 9_000", set(ARMS)),
    ],
)
def test_status_and_report_notice_a_changed_file_without_resolving_it(
    study: Path, cli: Cli, old: str, new: str, stale: set[str]
):
    change(study / "study.toml", old, new)
    _, out, _ = cli("status", "study.toml", "--json")
    assert {cell["arm"] for cell in json.loads(out)["cells"] if cell["state"] != "complete"} == stale
    opened = open_study(loading.load(study / "study.toml"), study, study / "runs")
    assert {cell.arm for cell in opened.missing} == stale, "and say what a run would do"


def test_adding_an_arm_trains_the_new_cells_only(study: Path):
    change(study / "study.toml", "[arms.xsa]", '[arms.half]\noutput_map = { name = "xsa", strength = 0.5 }\n[arms.xsa]')
    opened = open_study(loading.load(study / "study.toml"), study, study / "runs")
    assert [cell.name for cell in opened.missing] == [f"tiny/half/{seed}" for seed in range(3)]


def test_before_the_planned_seeds_a_report_shows_no_outcome_and_is_a_look_without_words(study: Path, cli: Cli):
    seen = len(looks(study))
    for name, cell in cells(study).items():
        if name.endswith("/2"):
            shutil.rmtree(cell.path)
    status, out, _ = cli("report", "study.toml", "--json")
    assert status == 0
    for verdict in json.loads(out)["verdicts"]:
        assert verdict["word"] == Word.WAITING.value
        shown = ("mean", "median", "sd", "interval", "p_t", "p_sign_flip", "p_holm", "wins", "worst_difference")
        assert [verdict[field] for field in shown] == [None] * len(shown)
        assert verdict["differences"] == []
    assert len(looks(study)) == seen + 1
    assert looks(study)[-1]["words"] == {}
    assert looks(study)[-1]["pairs"] == {"block": 2, "xsa": 2, "rd": 2}
    assert looks(study)[-1]["command"] == "report"


def test_the_first_run_recorded_a_look_with_its_words(finished: Path):
    (look,) = looks(finished)
    data = json.loads((finished / "runs" / "tiny" / "report.json").read_text(encoding="utf-8"))
    assert look["command"] == "run"
    assert look["words"] == {verdict["name"]: verdict["word"] for verdict in data["verdicts"]}
    assert look["pairs"] == {"block": 3, "xsa": 3, "rd": 3}


def test_status_shows_no_outcome_and_is_no_look(study: Path, cli: Cli):
    before = looks(study)
    status, out, _ = cli("status", "study.toml")
    _, as_json, _ = cli("status", "study.toml", "--json")
    assert status == 0
    assert "13 complete" in out
    assert looks(study) == before
    assert not (set(json.loads(as_json)["cells"][0]) - {"scale", "arm", "seed", "variant", "state", "digest"})
    losses = [f"{cell.rows('likelihood/test-00000020')['nats'][0].as_py():.3f}" for cell in cells(study).values()]
    assert not any(loss in out + as_json for loss in losses)


def test_seeds_added_after_a_verdict_was_seen_are_an_exploratory_extension(study: Path):
    change(study / "study.toml", "count = 3", "count = 4")
    experiment = loading.load(study / "study.toml")
    opened = open_study(experiment, study, study / "runs")
    assert [cell.name for cell in opened.missing] == [f"tiny/{arm}/3" for arm in ARMS], "the others are reused"
    prepare_process(experiment.execution)
    from paribus.study import write_plan

    write_plan(opened, None)
    train_missing(opened, lambda _: None, lambda: False)
    read = read_study(experiment, study / "runs")
    verdicts = verdicts_of(read)
    assert {verdict.word for verdict in verdicts} == {Word.EXPLORATORY_EXTENSION}
    assert any("rule" in caveat and "changed" in caveat for caveat in report_content(read, verdicts, "").caveats)


def test_a_margin_changed_after_words_were_seen_is_said_beside_every_word(study: Path, cli: Cli):
    assert "changed after words had been seen" not in cli("report", "study.toml")[1]
    change(study / "study.toml", "smallest_effect = 0.01", "smallest_effect = 0.012")
    _, out, _ = cli("report", "study.toml")
    assert "changed after words had been seen" in " ".join(out.split())
    for shown in ("report.html", "report.json", "verdict.md"):
        assert "changed after words had been seen" in (study / "runs" / "tiny" / shown).read_text(encoding="utf-8")


def test_few_held_out_documents_are_a_caveat(study: Path):
    read = read_study(loading.load(study / "study.toml"), study / "runs")
    assert any(
        "documents of the test split were scored" in c for c in report_content(read, verdicts_of(read), "").caveats
    )


def test_a_contrast_that_mixes_code_versions_gets_a_caveat(study: Path):
    experiment = loading.load(study / "study.toml")

    def caveats() -> list[str]:
        read = read_study(experiment, study / "runs")
        return [c for c in report_content(read, verdicts_of(read), "").caveats if " mixes cells " in c]

    assert caveats() == []
    cell = cells(study)["xsa/1"]
    cell.write_record(cell.record() | {"code_version": "0123456789ab"})
    (caveat,) = caveats()
    assert caveat.startswith("Contrast xsa mixes cells")
    assert "0123456789ab" in caveat
    cell.write_record(cell.record() | {"environment": cell.record()["environment"] | {"torch": "2.0"}})
    assert any("torch: 2.0, " in caveat for caveat in caveats())


def test_a_difference_in_what_was_held_equal_is_shown(study: Path):
    experiment = loading.load(study / "study.toml")

    def caveats() -> tuple[str, ...]:
        read = read_study(experiment, study / "runs")
        return report_content(read, verdicts_of(read), "").caveats

    def broken() -> list[str]:
        read = read_study(experiment, study / "runs")
        return [held.what for held in report_content(read, verdicts_of(read), "").held_equal if not held.holds]

    assert broken() == []
    assert not any(caveat.startswith("Not held equal") for caveat in caveats())
    cell = cells(study)["xsa/1"]
    cell.finish(cell.summary() | {"batch_digest": "0" * 16})
    repeat = cells(study)["standard/0-repeat"]
    repeat.finish(repeat.summary() | {"final_tensors_digest": "0" * 32})
    assert sum(caveat.startswith("Not held equal") for caveat in caveats()) == 2
    assert broken() == ["xsa: training batches, in order", "A/A repeat of tiny/standard/0"]


def test_the_run_folder_of_another_study_is_refused_naming_both(study: Path, cli: Cli):
    change(study / "study.toml", 'study = "tiny"', 'study = "other"')
    (study / "runs" / "tiny").rename(study / "runs" / "other")
    for command in ("run", "status", "report"):
        status, _, err = cli(command, "study.toml")
        assert status == 1
        assert "another study" in err
        assert "'tiny'" in err
        assert "'other'" in err
    assert (study / "runs" / "other" / "tiny").is_dir()


def test_a_truncated_row_file_costs_its_pair_and_the_report_says_so(study: Path, cli: Cli):
    cell = cells(study)["xsa/1"].path
    path = cell / "likelihood" / "test-00000020.parquet"
    path.write_bytes(path.read_bytes()[:100])
    status, out, err = cli("report", "study.toml")
    assert (status, err) == (0, "")
    assert "1 cells are not complete" in out
    assert "xsa: " in out
    page = (study / "runs" / "tiny" / "report.html").read_text(encoding="utf-8")
    assert "Cell tiny/xsa/1 is not used: likelihood/test-00000020.parquet was changed after the cell had ended" in page
    assert "Delete its folder to train it again" in page
    verdicts = json.loads((study / "runs" / "tiny" / "report.json").read_text(encoding="utf-8"))["verdicts"]
    assert {v["name"]: v["seeds"] for v in verdicts} == {"block": 3, "xsa": 2, "rd": 3}
    assert {v["name"]: v["word"] for v in verdicts}["xsa"] == Word.WAITING.value
