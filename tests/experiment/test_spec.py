import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from paribus import mechanisms
from paribus.cli import main
from paribus.errors import ExperimentFileError
from paribus.experiment import loading, spec
from paribus.experiment.plan import resolve_arms, resolved_fields
from paribus.mechanisms.contract import Seam
from paribus.model.config import ModelConfig, NanochatConstants, PrenormConstants
from paribus.optim.config import OptimiserConfig, ScheduleConfig
from paribus.published import PublishedFigure

DEMO = (Path(__file__).parents[2] / "experiments" / "demo.toml").read_text(encoding="utf-8")
TABLES = (
    spec.Experiment,
    spec.Base,
    spec.Corpus,
    spec.Tokenizer,
    PrenormConstants,
    NanochatConstants,
    spec.Evaluation,
    spec.Scale,
    spec.Margins,
    spec.Contrast,
    spec.Seeds,
    spec.Execution,
    OptimiserConfig,
    ScheduleConfig,
    spec.Noise,
    spec.Tuning,
    spec.Extension,
    PublishedFigure,
    ModelConfig,
)


def edited(*changes: tuple[str, str]) -> str:
    """The demo file with each first occurrence replaced."""
    text = DEMO
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return text


def refusal(path: Path, text: str) -> ExperimentFileError:
    """What the experiment file with this text is refused with."""
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ExperimentFileError) as caught, loading.naming(path):
        resolve_arms(loading.load(path))
    return caught.value


UNKNOWN_KEYS = [
    ("question =", "qestion =", "qestion", "question"),
    ("[seeds]", "[sedes]", "sedes", "seeds"),
    ("context_length", "context_lenght", "base.context_lenght", "context_length"),
    ("vocabulary_size", "vocabularysize", "base.tokenizer.vocabularysize", "vocabulary_size"),
    ("probe_tokens", "probe_token", "base.evaluation.probe_token", "probe_tokens"),
    ("{ name =", "{ nam =", "base.corpus.nam", "name"),
    ("layers = 12", "layer = 12", "scales.tiny.layer", "layers"),
    ("output_map", "outputmap", "arms.xsa.outputmap", "output_map"),
    ("strength", "strenght", "arms.xsa.output_map.strenght", "strength"),
    ("blocks", "block", "arms.block.routing.block", "blocks"),
    ("smallest_effect", "smallest_efect", "contrasts.block.smallest_efect", "smallest_effect"),
    ("repeats", "repeat", "noise.repeat", "repeats"),
    ("[seeds]", "[execution]\nworker = 2\n[seeds]", "execution.worker", "workers"),
    (
        "[arms.standard]",
        "[arms.standard]\noptimiser = { matrix_learning = 0.1 }",
        "arms.standard.optimiser.matrix_learning",
        "matrix_learning_rate",
    ),
    (
        "[arms.standard]",
        "[arms.standard]\nmodel = { qknorm = true }",
        "arms.standard.model.qknorm",
        "qk_norm",
    ),
]


@pytest.mark.parametrize(("old", "new", "where", "nearest"), UNKNOWN_KEYS)
def test_an_unknown_key_is_named_with_file_path_and_nearest_valid_key(
    tmp_path: Path, old: str, new: str, where: str, nearest: str
):
    error = refusal(tmp_path / "study.toml", edited((old, new)))
    assert error.what.startswith(f"{tmp_path / 'study.toml'}: {where}: unknown key")
    assert error.remedy == f"did you mean '{nearest}'?"


BAD_VALUES = [
    ("layers = 12", 'layers = "12"', "scales.tiny.layers"),
    ("layers = 12", "layers = 12.5", "scales.tiny.layers"),
    ("layers = 12", "layers = true", "scales.tiny.layers"),
    ("layers = 12", "layers = 0", "scales.tiny.layers"),
    ("primary = true", "primary = 1", "contrasts.block.primary"),
    ("smallest_effect = 0.010", "smallest_effect = nan", "contrasts.block.smallest_effect"),
    ("design_effect = 0.030", "design_effect = inf", "contrasts.block.design_effect"),
    ("design_effect = 0.030", "design_effect = 0.010", "contrasts.block"),
    ("strength = 1.0", "strength = nan", "arms.xsa.output_map.strength"),
    ("strength = 1.0", "strength = 1.5", "arms.xsa.output_map.strength"),
    ("blocks = 6", "blocks = 6.0", "arms.block.routing.blocks"),
    ("blocks = 6", "blocks = 25", "arms.block.routing"),
    (", blocks = 6", "", "arms.block.routing"),
    ("milestones_tokens = [65_000]", "milestones_tokens = [130_000]", "scales.tiny"),
    ("milestones_tokens = [65_000]", "milestones_tokens = [65_000, 65_001]", "scales.tiny.milestones_tokens"),
    ("batch_tokens = 2048", "batch_tokens = 2049", "base"),
    ("[arms.standard]", "[arms.standard]\nmodel = { query_heads_per_kv_head = 3 }", "scales.tiny"),
    ("[arms.standard]", "[arms.standard]\nmodel = { query_heads_per_kv_head = 0 }", "arms.standard.model"),
    ("width = 64", "width = 65", "scales.tiny"),
    ("[arms.standard]", "[arms.standard]\nmodel = { norm_eps = 2e-5 }", "arms.standard.model.norm_eps"),
    ("[arms.standard]", '[arms.standard]\nrouting = "serial"', "arms.standard.routing"),
    ('"local-docs"', '"lokal-docs"', "base.corpus.name"),
    ('name = "local-docs"', 'name = "local-docs", path = "x"', "base.corpus"),
    ('name = "local-docs"', "near_duplicate_similarity = 0.6", "base.corpus.near_duplicate_similarity"),
    ('"test.nll"', '"test.perplexity"', "contrasts.block.metric"),
    ('baseline = "standard"', 'baseline = "block"', "contrasts.block"),
    ("repeats = 1", "repeats = 6", "noise.repeats"),
    ("[scales.tiny]", "[scales.cost]", "scales.cost"),
    ("[arms.xsa]", '[arms."../xsa"]', "arms"),
    ("[arms.standard]\n\n", "", "contrasts.block.baseline"),
]


@pytest.mark.parametrize(("old", "new", "where"), BAD_VALUES)
def test_a_value_of_the_wrong_type_or_range_is_named_with_file_and_path(tmp_path: Path, old: str, new: str, where: str):
    error = refusal(tmp_path / "study.toml", edited((old, new)))
    assert error.what.startswith(f"{tmp_path / 'study.toml'}: {where}")


NAMES = [
    ('name = "xsa"', 'name = "xsaa"', "arms.xsa.output_map.name", "xsa"),
    ('name = "role-decoupled"', 'name = "role-decupled"', "arms.rd.routing.name", "role-decoupled"),
    ('treatment = "block"', 'treatment = "blok"', "contrasts.block.treatment", "block"),
    ('baseline = "standard"', 'baseline = "standart"', "contrasts.block.baseline", "standard"),
    ('treatment = "block"', 'scale = "tin"\ntreatment = "block"', "contrasts.block.scale", "tiny"),
]


@pytest.mark.parametrize(("old", "new", "where", "nearest"), NAMES)
def test_an_unknown_name_is_refused_with_the_nearest_valid_one(
    tmp_path: Path, old: str, new: str, where: str, nearest: str
):
    error = refusal(tmp_path / "study.toml", edited((old, new)))
    assert error.what.startswith(f"{tmp_path / 'study.toml'}: {where}: ")
    assert error.remedy == f"did you mean '{nearest}'?"


def test_a_mechanism_of_the_base_is_named_under_the_base(tmp_path: Path):
    error = refusal(tmp_path / "study.toml", edited(("[base]", '[base]\nmask = { name = "documents" }')))
    assert error.what.startswith(f"{tmp_path / 'study.toml'}: base.mask.name: ")


@pytest.mark.parametrize("primaries", [0, 2])
def test_exactly_one_contrast_must_be_primary(tmp_path: Path, primaries: int):
    changes = ("primary = true\n", "") if primaries == 0 else ("[contrasts.xsa]", "[contrasts.xsa]\nprimary = true")
    error = refusal(tmp_path / "study.toml", edited(changes))
    assert "exactly one must be primary" in error.what
    assert error.received == ("none" if primaries == 0 else "block, xsa")


@pytest.mark.parametrize("own", ['corpus = { path = "x" }', "tokenizer = { vocabulary_size = 300 }"])
def test_an_arm_cannot_have_a_corpus_or_tokenizer_of_its_own(tmp_path: Path, own: str):
    error = refusal(tmp_path / "study.toml", edited(("[arms.standard]", f"[arms.standard]\n{own}")))
    assert f"arms.standard.{own.split(maxsplit=1)[0]}: an arm cannot have its own" in error.what


def test_a_file_that_cannot_be_read_is_one_clear_error(tmp_path: Path):
    (tmp_path / "latin.toml").write_bytes(b'question = "caf\xe9"')
    (tmp_path / "half.toml").write_text("[base\n", encoding="utf-8")
    for name in ("absent.toml", "latin.toml", "half.toml", "."):
        with pytest.raises(ExperimentFileError, match=re.escape(str(tmp_path / name))):
            loading.load(tmp_path / name)


def test_arms_are_differences_laid_over_the_base(tmp_path: Path):
    path = tmp_path / "study.toml"
    path.write_text(
        edited(
            ("[base]", '[base]\nrouting = { name = "block-attnres", blocks = 3 }\nschedule = { warmup = 0.1 }'),
            ("[arms.standard]", '[arms.standard]\nrouting = { name = "serial" }\nschedule = { decay = 0.2 }'),
        ),
        encoding="utf-8",
    )
    arm = loading.load(path).arm("standard")
    assert arm.routing == {"name": "serial"}, "a mechanism is replaced as a whole"
    assert (arm.schedule.warmup, arm.schedule.decay) == (0.1, 0.2), "other tables merge"


KEY = re.compile(r"(?m)(?<=^\[)(?:base|scales|arms|contrasts|seeds)|\b[a-z_]+(?= = )")
KEYS = [match.span() for match in KEY.finditer(DEMO)]
VALID = (
    {field for table in TABLES for field in table.model_fields}
    | {"name"}
    | {field for seam in Seam for config in mechanisms.mechanisms(seam).values() for field in config.model_fields}
)


@settings(max_examples=60, deadline=None)
@given(key=st.sampled_from(KEYS), data=st.data())
@example(key=KEYS[0], data=None)
def test_a_typo_in_any_key_of_the_demo_file_is_refused(
    tmp_path_factory: pytest.TempPathFactory, key: tuple[int, int], data: st.DataObject | None
):
    start, stop = key
    word = DEMO[start:stop]
    if data is None:
        typo = f"{word}x"
    else:
        place = data.draw(st.integers(0, len(word) - 1))
        letter = data.draw(st.sampled_from("abcdefghijklmnopqrstuvwxyz_"))
        swapped = word[:place] + word[place + 1 : place + 2] + word[place] + word[place + 2 :]
        inserted, replaced = word[:place] + letter + word[place:], word[:place] + letter + word[place + 1 :]
        typo = data.draw(st.sampled_from([inserted, replaced, swapped, word[:place] + word[place + 1 :]]))
    assume(typo and typo not in VALID)
    folder = tmp_path_factory.mktemp("typo")
    error = refusal(folder / "study.toml", DEMO[:start] + typo + DEMO[stop:])
    assert error.what.startswith(f"{folder / 'study.toml'}: ")


def test_the_typo_test_knows_every_level_of_the_file():
    words = {DEMO[start:stop] for start, stop in KEYS}
    assert {"question", "base", "scales", "arms", "contrasts", "seeds", "layers", "strength", "blocks"} <= words
    assert {"vocabulary_size", "probe_tokens", "name", "primary", "repeats"} <= words


@pytest.mark.parametrize("changes", [("layers = 12", "layer = 12"), ('name = "xsa"', 'name = "xsaa"')])
def test_the_command_line_refuses_a_bad_file_with_exit_code_2_and_writes_nothing(
    tmp_path: Path, changes: tuple[str, str]
):
    (tmp_path / "study.toml").write_text(edited(changes), encoding="utf-8")
    command = [sys.executable, "-c", "from paribus.cli import main; main()", "run", "study.toml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == ExperimentFileError.exit_code == 2
    assert done.stderr.startswith("error: study.toml: ")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["study.toml"]


@pytest.mark.parametrize("command", ["plan", "check", "run", "status", "report"])
def test_every_command_refuses_a_bad_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
):
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(edited(("[seeds]", "[sedes]")), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["paribus", command, "study.toml"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("error: study.toml: sedes: unknown key")
    assert [path.name for path in tmp_path.iterdir()] == ["study.toml"]


EXPLAINED = [
    ("mlp_width = 160\n", "", "scales.tiny.mlp_width: missing", "hidden features", "add 'mlp_width' to this table"),
    (
        "strength = 1.0",
        "strength = 1.5",
        "arms.xsa.output_map.strength: not a valid value",
        "less than or equal to 1",
        "",
    ),
    ('"test.nll"', '"test.nl"', "contrasts.block.metric: not a valid value", "'test.nll'", "did you mean 'test.nll'?"),
    ('output_map = { name = "xsa"', 'routing = { name = "xsa"', "belongs to another seam", "", "under 'output_map'"),
]


@pytest.mark.parametrize(("old", "new", "what", "expected", "remedy"), EXPLAINED)
def test_a_refusal_says_what_was_expected_and_what_to_do(
    tmp_path: Path, old: str, new: str, what: str, expected: str, remedy: str
):
    error = refusal(tmp_path / "study.toml", edited((old, new)))
    assert what in error.what
    assert expected in error.expected
    assert remedy in error.remedy
    assert "(and" not in error.what


def test_a_folder_in_place_of_the_file_is_said_to_be_one(tmp_path: Path):
    with pytest.raises(ExperimentFileError, match=r"(?s): a folder.*expected: an experiment file"):
        loading.load(tmp_path)


FULL_RUN = ("base", "seeds", "noise", "execution", "margins")


@pytest.mark.parametrize(
    "change",
    [
        ("layers = 12", "layers = 12\nbudgets_tokens = [50_000, 100_000]"),
        ("layers = 12", 'layers = 12\nbudgets_tokens = [50_000, 100_000]\nbudget_cells = "branches"'),
        ("layers = 12", "layers = 12\nseeds = { count = 7 }"),
        ("layers = 12", "layers = 12\nnoise = { twins = 2 }"),
        ("layers = 12", "layers = 12\nmargins = { smallest_effect = 0.02, design_effect = 0.05 }"),
    ],
)
def test_cells_beside_it_do_not_make_an_arms_full_run_another_one(tmp_path: Path, change: tuple[str, str]):
    (tmp_path / "demo.toml").write_text(DEMO, encoding="utf-8")
    before = loading.load(tmp_path / "demo.toml")
    (tmp_path / "demo.toml").write_text(edited(change), encoding="utf-8")
    after = loading.load(tmp_path / "demo.toml")
    assert after != before
    for arm in before.arms:
        assert spec.declared(before, "tiny", arm) == spec.declared(after, "tiny", arm)
    # What the text leaves out must not be in the fields that a cell's digest is made of either.
    arms = [resolve_arms(experiment)["tiny", "xsa"] for experiment in (before, after)]
    assert resolved_fields(before, arms[0], "corpus") == resolved_fields(after, arms[1], "corpus")


@pytest.mark.parametrize("field", sorted(spec.Scale.model_fields.keys() - spec.BESIDE_THE_FULL_RUN - set(FULL_RUN)))
def test_a_field_of_the_scale_that_the_full_run_depends_on_is_noticed(tmp_path: Path, field: str):
    (tmp_path / "demo.toml").write_text(DEMO, encoding="utf-8")
    before = loading.load(tmp_path / "demo.toml")
    size = before.scales["tiny"]
    other = (17,) if field == "milestones_tokens" else getattr(size, field) + 1
    after = before.model_copy(update={"scales": {"tiny": size.model_copy(update={field: other})}})
    assert spec.declared(before, "tiny", "xsa") != spec.declared(after, "tiny", "xsa")


@pytest.mark.parametrize(
    "name", ["cost", "figures", "tables", "corpus.json", "report.md", "report.json", "looks.jsonl"]
)
def test_a_scale_is_not_named_like_something_else_in_the_run_folder(tmp_path: Path, name: str):
    error = refusal(tmp_path / "study.toml", edited(("[scales.tiny]", f'[scales."{name}"]')))
    assert error.what.endswith(f"scales.{name}: this name is taken inside the run folder")
    assert error.remedy == "rename the scale"
