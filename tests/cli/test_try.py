"""`paribus try`: an arm beside its baseline, and nothing written into a study."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paribus import trying
from paribus.data.frozen import FrozenCorpus
from paribus.data.order import Order
from paribus.data.store import CORPORA
from paribus.errors import DivergenceError
from paribus.experiment import trial as trials
from paribus.experiment.trial import Trial, trial
from paribus.model.build import build_model
from paribus.runs.study_folder import StudyFolder
from paribus.seeds import generator
from paribus.texts import corpus_of
from paribus.train.loop import RunLength, StepFinished, train
from paribus.train.state import TrainState
from paribus.trying import run_trial, trial_corpus

Cli = Callable[..., tuple[int, str, str]]

STUDY = """\
study = "tiny"
question = "Does it hold?"

[base]
context_length = 32
batch_tokens = 512
corpus = { path = "texts", test_fraction = 0.1, validation_fraction = 0.1 }
tokenizer = { vocabulary_size = 300 }
model = { head_width = 16 }
evaluation = { probe_tokens = 400 }

[scales.tiny]
layers = 2
width = 32
mlp_width = 48
budget_tokens = 10_000

[arms.plain]

[arms.same]
output_map = { name = "xsa", strength = 0.0 }

[arms.masked]
mask = { name = "document" }

[arms.block]
routing = { name = "block-attnres", blocks = 2 }

[contrasts.only]
primary = true
treatment = "masked"
baseline = "plain"
smallest_effect = 0.01
design_effect = 0.03

[seeds]
first = 3
count = 4
"""

PEEK = """
from torch import nn

from paribus.mechanisms.contract import MechanismConfig, Seam


class Peek(nn.Module):
    def forward(self, y, values, document):
        return y + values.aggregated.roll(-1, dims=1)


class PeekConfig(MechanismConfig):
    name = "peek"
    seam = Seam.OUTPUT_MAP

    def build(self, geometry, layer):
        return Peek()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: study.toml and its corpus of generated words."""
    draw = generator("tests", "try", "corpus")
    words = ["".join(draw.choice(["ka", "lo", "mi", "ne", "ru", "so"], size=3)) for _ in range(200)]
    texts = [" ".join(draw.choice(words, size=draw.integers(20, 120))) for _ in range(150)]
    (tmp_path / "texts").mkdir()
    pq.write_table(pa.table({"text": texts}), tmp_path / "texts" / "texts.parquet")
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def small_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The built-in setting without its corpus of installed documentation, which takes a while to prepare."""
    base = {**trials.SETTING["base"], "corpus": {"path": "texts"}, "context_length": 32, "batch_tokens": 128}
    scales = {"tiny": {"layers": 2, "width": 32, "mlp_width": 48, "budget_tokens": 10_000}}
    monkeypatch.setattr(trials, "SETTING", {**trials.SETTING, "base": base, "scales": scales})


def of_file(arm: str, *, steps: int = 4, against: str | None = None, seed: int | None = None) -> Trial:
    return trial(arm, Path("study.toml"), against=against, scale=None, seed=seed, steps=steps)


def text_corpus(chosen: Trial, runs: Path) -> FrozenCorpus:
    found = trial_corpus(chosen, runs)
    assert isinstance(found, FrozenCorpus)
    return found


def ignore(step: trying.Step) -> None:
    del step


def everything_under(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes() if path.is_file() else b"", path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.usefixtures("folder")
def test_try_shows_both_arms_their_speed_and_what_the_taps_show(cli: Cli):
    code, out, err = cli("try", "block", "--file", "study.toml", "--steps", "3")
    assert (code, err) == (0, "")
    assert "gates of block passed" in out
    assert "step" in out
    assert "difference" in out
    assert "no evidence: one seed, few steps" in out
    assert "tokens per second: " in out
    assert "depth_weights_mlp" in out, "the mechanism's own diagnostics"


@pytest.mark.usefixtures("folder")
def test_try_as_json_is_json_and_nothing_else(cli: Cli):
    code, out, _ = cli("try", "masked", "--file", "study.toml", "--steps", "3", "--json")
    assert code == 0
    found = json.loads(out)
    assert [step["step"] for step in found["steps"]] == [1, 2, 3]
    assert found["warning"].startswith("no evidence")
    assert all(gate["passed"] for gate in found["gates"])
    assert (found["arm"], found["baseline"], found["seed"], found["ended"]) == ("masked", "plain", 7, "")
    assert found["tokens_per_second"] > 0


def test_try_writes_nothing_into_a_study_that_has_no_folder_yet(cli: Cli, folder: Path):
    assert cli("try", "masked", "--file", "study.toml", "--steps", "2")[0] == 0
    assert [path.name for path in (folder / "runs").iterdir()] == [CORPORA]


def planned_with_the_declared_corpus() -> FrozenCorpus:
    """The study's folder, planned with what its file declares."""
    study = StudyFolder(Path("runs/tiny"))
    study.claim_for("tiny")
    return corpus_of(of_file("masked").experiment.base, Path(), Path("runs"), study)


def test_a_study_with_a_frozen_corpus_is_read_and_left_as_it_is(cli: Cli, folder: Path):
    frozen = planned_with_the_declared_corpus()
    kept = (folder / "runs" / "tiny", frozen.folder)
    before = [everything_under(path) for path in kept]
    code, out, _ = cli("try", "masked", "--file", "study.toml", "--steps", "2")
    assert code == 0
    assert f"corpus: {frozen.folder}" in out
    assert [everything_under(path) for path in kept] == before
    assert text_corpus(of_file("masked"), Path("runs")).digest == frozen.digest


@pytest.mark.usefixtures("folder")
def test_the_corpus_of_a_study_is_read_where_its_files_are_gone():
    frozen = planned_with_the_declared_corpus()
    shutil.rmtree("texts")
    assert text_corpus(of_file("masked"), Path("runs")).folder == frozen.folder


def test_a_corpus_that_the_study_froze_from_another_declaration_is_not_used(folder: Path):
    frozen = planned_with_the_declared_corpus()
    (folder / "study.toml").write_text(STUDY.replace("test_fraction = 0.1", "test_fraction = 0.2"), encoding="utf-8")
    assert text_corpus(of_file("masked"), Path("runs")).folder != frozen.folder


@pytest.mark.usefixtures("folder")
def test_the_second_trial_finds_the_corpus_of_the_first_and_new_files_make_a_new_one():
    first = text_corpus(of_file("masked"), Path("runs"))
    before = everything_under(first.folder)
    second = text_corpus(of_file("block"), Path("runs"))
    assert (second.folder, everything_under(second.folder)) == (first.folder, before)
    pq.write_table(pa.table({"text": ["other words " * 30 + str(n) for n in range(90)]}), "texts/more.parquet")
    assert text_corpus(of_file("masked"), Path("runs")).folder != first.folder
    assert everything_under(first.folder) == before


@pytest.mark.usefixtures("folder")
def test_an_arm_that_is_the_baseline_has_its_losses_to_the_bit():
    chosen = of_file("same", steps=4)
    outcome = run_trial(chosen, text_corpus(chosen, Path("runs")), ignore)
    assert [step.loss for step in outcome.steps] == [step.baseline_loss for step in outcome.steps]
    assert len({step.loss for step in outcome.steps}) == 4


@pytest.mark.usefixtures("folder")
def test_steps_that_alternate_are_the_steps_of_each_arm_alone():
    chosen = of_file("block", steps=4)
    corpus = text_corpus(chosen, Path("runs"))
    outcome = run_trial(chosen, corpus, ignore)
    for arm, losses in (
        (chosen.arm, [step.loss for step in outcome.steps]),
        (chosen.baseline, [step.baseline_loss for step in outcome.steps]),
    ):
        state = TrainState.fresh(build_model(arm.model, arm.seam_configs, ("tiny", "tiny", 7)), arm.base.optimiser)
        order = Order(corpus, 32, 16, study="tiny", scale="tiny", seed=7)
        events = train(state, order, RunLength(4 * 512, 512), arm.base.schedule, 16)
        assert [event.loss_nats_per_token for event in events if isinstance(event, StepFinished)] == losses


@pytest.mark.usefixtures("folder")
def test_each_arm_goes_first_in_every_other_step(monkeypatch: pytest.MonkeyPatch):
    taken: list[int] = []

    def noting(state: TrainState, *rest: Any) -> Iterator[Any]:
        for event in train(state, *rest):
            if isinstance(event, StepFinished):
                taken.append(sum(parameter.numel() for parameter in state.model.parameters()))
            yield event

    monkeypatch.setattr(trying, "train", noting)
    chosen = of_file("block", steps=4)
    run_trial(chosen, text_corpus(chosen, Path("runs")), ignore)
    firsts, seconds = taken[::2], taken[1::2]
    assert firsts == seconds[::-1] == [min(taken), max(taken)] * 2


@pytest.mark.usefixtures("folder")
def test_the_default_seed_is_the_first_that_the_study_does_not_plan():
    assert of_file("masked").seed == 7
    assert of_file("masked", seed=4).seed == 4


def test_the_baseline_is_the_arm_that_changes_nothing_and_else_the_base(folder: Path):
    assert of_file("block").baseline.arm == "plain"
    assert of_file("block", against="masked").baseline.arm == "masked"
    text = STUDY.replace("[arms.plain]", "[arms.plain]\nmask = { name = 'document' }")
    (folder / "study.toml").write_text(text, encoding="utf-8")
    base = of_file("block").baseline
    assert base.arm == "base"
    assert all(config.name == trials.mechanisms.IDENTITY[seam] for seam, config in base.mechanisms.items())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("blok", "--file", "study.toml"), ("study.toml: no such arm as 'blok'", "did you mean 'block'?")),
        (("block", "--file", "study.toml", "--against", "plane"), ("no such arm as 'plane'", "did you mean 'plain'?")),
        (("plain", "--file", "study.toml"), ("'plain' would be compared with itself", "--against")),
        (("block", "--file", "study.toml", "--scale", "tinny"), ("no such scale", "did you mean 'tiny'?")),
        (("block", "--file", "study.toml", "--steps", "0"), ("--steps: nothing to train", "at least 1")),
        (("block", "--file", "absent.toml"), ("absent.toml: no such file",)),
        (("documnt",), ("'documnt': no such mechanism", "did you mean 'document'?")),
        (("serial",), ("'serial' changes nothing", "document")),
        (("document", "--scale", "L"), ("--scale: no such scale as 'L'", "--file FILE")),
        (("mask = { name = ",), ("not a readable TOML table", "quote the whole table")),
        (("mas = { name = 'document' }",), ("'mas' is not a seam", "did you mean 'mask'?")),
        (("mask = 'document'",), ("ARM.mask: not a valid value",)),
        (("mask = { name = 'document', wide = 1 }",), ("mask.wide: unknown key",)),
        (("mask = { name = 'dokument' }",), ("unknown mechanism", "did you mean 'document'?")),
    ],
    ids=lambda value: " ".join(value) if isinstance(value[0], str) else "",
)
def test_a_wrong_call_says_what_is_wrong_and_what_is_near(
    cli: Cli, folder: Path, arguments: tuple[str, ...], said: tuple[str, ...]
):
    code, out, err = cli("try", *arguments)
    assert (code, out) == (2, "")
    for words in said:
        assert words in err
    assert not (folder / "runs").exists()


@pytest.mark.usefixtures("folder", "small_setting")
@pytest.mark.parametrize(
    ("text", "name", "baseline"),
    [("document", "document", "standard"), ("mask = { name = 'document' }", "tried", "standard")],
)
def test_a_mechanism_is_tried_by_its_name_or_as_a_table(cli: Cli, text: str, name: str, baseline: str):
    code, out, _ = cli("try", text, "--steps", "2", "--json")
    assert code == 0
    found = json.loads(out)
    assert (found["arm"], found["baseline"], len(found["steps"])) == (name, baseline, 2)


def test_the_built_in_setting_is_deep_and_narrow_and_fits_every_mechanisms_example():
    for seam in trials.Seam:
        for name in trials.mechanisms.mechanisms(seam).keys() - {trials.mechanisms.IDENTITY[seam]}:
            arm = trial(name, None, against=None, scale=None, seed=None, steps=1).arm
            assert arm.mechanisms[seam].name == name
            assert (arm.model.layers, arm.model.width) == (12, 64)


def test_an_arm_whose_gate_fails_is_not_trained(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch):
    (folder / "peeking.py").write_text(PEEK, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    registry: Any = trials.mechanisms
    monkeypatch.setattr(registry, "entry_points", lambda **_: [EntryPoint("peeking", "peeking", "paribus.mechanisms")])
    registry.modules.cache_clear()
    registry.mechanisms.cache_clear()
    try:
        text = STUDY.replace('mask = { name = "document" }', 'output_map = { name = "peek" }')
        (folder / "study.toml").write_text(text, encoding="utf-8")
        code, out, err = cli("try", "masked", "--file", "study.toml")
    finally:
        monkeypatch.undo()
        registry.modules.cache_clear()
        registry.mechanisms.cache_clear()
    assert code == 1
    assert out.splitlines()[2].startswith("FAILED  a token changes no earlier")
    assert err.startswith("error: masked: 1 of ")
    assert not (folder / "runs").exists()


@pytest.mark.usefixtures("folder")
def test_an_interrupt_shows_what_there_is(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    @contextmanager
    def interrupting(*arguments: Any) -> Iterator[Callable[[int, float, float], None]]:
        del arguments

        def show(step: int, loss: float, baseline_loss: float) -> None:
            del loss, baseline_loss
            if step == 2:
                raise KeyboardInterrupt

        yield show

    monkeypatch.setattr(trying, "live_trial", interrupting)
    code, out, _ = cli("try", "masked", "--file", "study.toml", "--steps", "9")
    assert code == 130
    assert "ended after 2 of 9 steps: interrupted" in out
    assert "last fifth, mean" in out


@pytest.mark.usefixtures("folder")
def test_a_divergence_names_the_arm_and_shows_the_steps_before(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    def diverging(state: TrainState, *rest: Any) -> Iterator[Any]:
        for event in train(state, *rest):
            if (
                isinstance(event, StepFinished)
                and event.step == 3
                and "routing.output.query" in dict(state.model.named_parameters())
            ):
                raise DivergenceError("the training loss became nan at step 3")
            yield event

    monkeypatch.setattr(trying, "train", diverging)
    code, out, _ = cli("try", "block", "--file", "study.toml", "--steps", "9")
    assert code == 1
    assert "ended after 2 of 9 steps: block: the training loss became nan at step 3" in out
