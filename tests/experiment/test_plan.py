import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import paribus
from paribus.errors import ParibusError
from paribus.experiment import code
from paribus.experiment.plan import ArmAtScale, Cell, cells
from paribus.experiment.spec import Experiment

Digests = dict[tuple[str, str], str]
SEED = "count = 3"


def laid_out(resolved: tuple[Experiment, dict[tuple[str, str], ArmAtScale]], corpus: str = "corpus") -> list[Cell]:
    return cells(*resolved, corpus)


@pytest.fixture
def digests(resolve) -> Callable[..., Digests]:
    """Digest of the first seed's cells, by (scale, arm)."""

    def of(text: str, corpus: str = "corpus") -> Digests:
        found = laid_out(resolve(text), corpus)
        return {(cell.scale, cell.arm): cell.digest for cell in found if cell.seed == 0 and not cell.variant}

    return of


def test_the_cells_are_every_arm_at_every_seed_with_the_repeats_of_the_primary_baseline(resolve, tiny: str):
    found = [cell.name for cell in laid_out(resolve(tiny))]
    first = ["tiny/standard/0", "tiny/standard/0 (repeat)", "tiny/xsa/0", "tiny/block/0", "tiny/rd/0"]
    rest = [f"tiny/{arm}/{seed}" for seed in (1, 2) for arm in ("standard", "xsa", "block", "rd")]
    assert found == first + rest, "seed by seed, so that pairs complete early"


def test_seeds_have_different_digests_and_a_repeat_has_its_originals(resolve, tiny: str):
    found = laid_out(resolve(tiny))
    digest = {(cell.arm, cell.seed, cell.variant): cell.digest for cell in found}
    assert digest["standard", 0, "repeat"] == digest["standard", 0, ""]
    assert len({d for (_, _, variant), d in digest.items() if not variant}) == 12


REUSED = {
    "an arm": ("[arms.xsa]", '[arms.half]\noutput_map = { name = "xsa", strength = 0.5 }\n[arms.xsa]'),
    "a seed": (SEED, "count = 4"),
    "the repeats": ("repeats = 1", "repeats = 2"),
    "a contrast": (
        "[seeds]",
        '[contrasts.more]\ntreatment = "rd"\nbaseline = "standard"\n'
        "smallest_effect = 0.01\ndesign_effect = 0.03\n[seeds]",
    ),
    "the rule": ("smallest_effect = 0.01", "smallest_effect = 0.02"),
    "the question": ("Does it hold?", "Does it?"),
    "the number of workers": ("[execution]", "[execution]\nworkers = 3"),
    "the checkpoint interval": ("[execution]", "[execution]\ncheckpoint_steps = 3"),
    "another scale": (
        "[arms.standard]",
        "[scales.wide]\nlayers = 2\nwidth = 64\nmlp_width = 48\nbudget_tokens = 10_000\n[arms.standard]",
    ),
    "what a default says": ("[execution]", '[execution]\nmode = "proof"'),
}


@pytest.mark.parametrize("what", REUSED)
def test_cells_are_reused_when_what_they_do_not_depend_on_changes(digests, tiny: str, what: str):
    old, new = REUSED[what]
    changed = tiny.replace(old, new)
    if what == "another scale":
        changed = changed.replace("treatment =", 'scale = "tiny"\ntreatment =')
    assert changed != tiny
    before = digests(tiny)
    assert digests(changed).items() >= before.items()


CHANGED = {
    "study": ("question =", 'study = "another"\nquestion ='),
    "context": ("context_length = 32", "context_length = 64"),
    "batch": ("batch_tokens = 512", "batch_tokens = 256"),
    "vocabulary": ("vocabulary_size = 300", "vocabulary_size = 301"),
    "head width": ("head_width = 16", "head_width = 8"),
    "grouped queries": ("head_width = 16", "head_width = 16, query_heads_per_kv_head = 2"),
    "qk norm": ("head_width = 16", "head_width = 16, qk_norm = false"),
    "evaluation": ("test_tokens = 1500", "test_tokens = 1501"),
    "matrix rate": ("matrix_learning_rate = 0.02", "matrix_learning_rate = 0.021"),
    "warm-up": ("warmup = 0.05", "warmup = 0.06"),
    "layers": ("layers = 2", "layers = 3"),
    "MLP": ("mlp_width = 48", "mlp_width = 49"),
    "budget": ("budget_tokens = 10_000", "budget_tokens = 10_001"),
    "milestones": ("milestones_tokens = [5_000]", "milestones_tokens = [5_001]"),
    "threads": ("threads = 1", "threads = 2"),
    "micro-batch": ("micro_batch_rows = 8", "micro_batch_rows = 4"),
    "mask": ("[base]", '[base]\nmask = { name = "document" }'),
    "first seed": (SEED, "first = 5\ncount = 3"),
}


@pytest.mark.parametrize("what", CHANGED)
def test_every_cell_changes_with_a_field_that_affects_it(resolve, tiny: str, what: str):
    old, new = CHANGED[what]
    assert old in tiny
    before, after = ({c.digest for c in laid_out(resolve(text))} for text in (tiny, tiny.replace(old, new)))
    assert len(before) == len(after) == 12
    assert not before & after


def test_every_cell_changes_with_the_corpus(digests, tiny: str):
    before, after = digests(tiny), digests(tiny, "another corpus")
    assert all(before[key] != after[key] for key in before)


@pytest.mark.parametrize(
    ("old", "new", "arms"),
    [
        ("strength = 1.0", "strength = 0.9", {"xsa"}),
        ('"block-attnres", blocks = 2', '"block-attnres", blocks = 3', {"block"}),
        ('"role-decoupled", blocks = 2', '"role-decoupled", blocks = 2, tied = true', {"rd"}),
        # A knob of a role that an arm does not have changes nothing about the arm.
        ("depth_read_learning_rate = 0.005", "depth_read_learning_rate = 0.004", {"block", "rd"}),
    ],
)
def test_only_the_arms_that_a_field_belongs_to_change(digests, tiny: str, old: str, new: str, arms: set[str]):
    assert old in tiny
    before, after = digests(tiny), digests(tiny.replace(old, new))
    assert {arm for (scale, arm) in before if before[scale, arm] != after[scale, arm]} == arms


def test_what_an_arm_is_decides_its_digest_not_what_it_is_called(digests, tiny: str):
    renamed = tiny.replace("[arms.xsa]", "[arms.exclusive]").replace('"xsa"\nbaseline', '"exclusive"\nbaseline')
    assert digests(renamed)["tiny", "exclusive"] == digests(tiny)["tiny", "xsa"]


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package's sources, from which digests are taken."""
    package = Path(paribus.__file__).parent
    copied = tmp_path / "copy" / "paribus"
    shutil.copytree(package, copied, ignore=shutil.ignore_patterns("__pycache__"))
    real = code.module_path

    def in_copy(name: str) -> Path | None:
        path = real(name)
        return None if path is None else copied / path.relative_to(package)

    monkeypatch.setattr(code, "module_path", in_copy)
    return copied


ALL = {"standard", "xsa", "block", "rd"}


@pytest.mark.parametrize(
    ("file", "arms"),
    [
        ("mechanisms/exclusive.py", {"xsa"}),
        ("kernels/exclude_self.py", {"xsa"}),
        ("mechanisms/attention_residuals.py", {"block", "rd"}),
        ("kernels/exclude_self_cpu.c", {"xsa"}),
        ("kernels/depth_read.py", {"block", "rd"}),
        ("kernels/depth_read_cpu.c", {"block", "rd"}),
        ("kernels/depth_read_cpu.py", {"block", "rd"}),
        ("kernels/exclude_self_triton.py", {"xsa"}),
        ("kernels/depth_read_triton.py", {"block", "rd"}),
        ("kernels/gpu.py", {"xsa", "block", "rd"}),
        ("kernels/lanes.h", {"xsa", "block", "rd"}),
        ("mechanisms/role_decoupled.py", {"rd"}),
        ("mechanisms/document_mask.py", set()),
        ("mechanisms/standard.py", ALL),
        ("mechanisms/contract.py", ALL),
        ("model/prenorm.py", ALL),
        ("optim/muon.py", ALL),
        ("train/step.py", ALL),
        ("train/compiling.py", ALL),
        ("data/order.py", ALL),
        ("measure/likelihood.py", ALL),
        ("seeds.py", ALL),
        ("roles.py", ALL),
        ("cli/training.py", set()),
        ("reading/study.py", set()),
        ("report/page.py", set()),
        ("stats/verdict.py", set()),
        ("errors.py", set()),
    ],
)
def test_editing_one_line_changes_the_arms_that_run_it_and_no_other(
    digests, tiny: str, copy: Path, file: str, arms: set[str]
):
    before = digests(tiny)
    with (copy / file).open("a", encoding="utf-8") as source:
        source.write("\n")
    after = digests(tiny)
    assert {arm for (scale, arm) in before if before[scale, arm] != after[scale, arm]} == arms


def test_the_code_of_an_arm_contains_its_kernels_and_its_parents(resolve, tiny: str):
    _, arms = resolve(tiny)
    closure = code.source_closure(arms["tiny", "rd"].code_roots)
    expected = {"mechanisms.role_decoupled", "mechanisms.attention_residuals", "kernels.depth_read", "model.prenorm"}
    assert {f"paribus.{name}" for name in expected} <= closure.keys()
    assert "paribus.mechanisms.exclusive" not in closure
    in_python = {name: path for name, path in closure.items() if path.suffix == ".py"}
    assert all(path.name == f"{name.rpartition('.')[2]}.py" for name, path in in_python.items())
    in_c = {path.name for name, path in closure.items() if name not in in_python}
    assert in_c == {"depth_read_cpu.c", "lanes.h"}


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of somebody else, with a mechanism in its `__init__` and one beside it."""
    package = tmp_path / "somebody"
    (package / "deep").mkdir(parents=True)
    (package / "__init__.py").write_text("from . import helper\n", encoding="utf-8")
    (package / "helper.py").write_text("import numpy\n", encoding="utf-8")
    (package / "deep" / "__init__.py").write_text("", encoding="utf-8")
    (package / "deep" / "mechanism.py").write_text(
        "from .near import a\nfrom ..helper import b\nfrom paribus.kernels.depth_read import depth_read\n",
        encoding="utf-8",
    )
    (package / "deep" / "near.py").write_text("a = 1\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return package


def test_the_code_of_a_mechanism_from_outside_contains_its_relative_imports(outside: Path):
    closure = code.source_closure(["somebody.deep.mechanism"])
    assert {"somebody.deep.mechanism", "somebody.deep.near", "somebody.helper"} <= closure.keys()
    assert "paribus.kernels.depth_read" in closure
    assert not any(name.startswith("numpy") for name in closure)
    before = code.code_digest(["somebody.deep.mechanism"])
    (outside / "deep" / "near.py").write_text("a = 2\n", encoding="utf-8")
    assert code.code_digest(["somebody.deep.mechanism"]) != before


def test_a_mechanism_in_a_packages_init_has_a_digest_of_its_code(outside: Path):
    before = code.code_digest(["somebody"])
    assert code.source_closure(["somebody"]).keys() == {"somebody", "somebody.helper"}
    (outside / "__init__.py").write_text("from . import helper  # edited\n", encoding="utf-8")
    assert code.code_digest(["somebody"]) != before


def test_a_root_without_source_is_refused():
    with pytest.raises(ParibusError, match="is not found"):
        code.code_digest(["paribus.nothing"])
