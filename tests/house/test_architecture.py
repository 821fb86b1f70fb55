"""The house rules that reading cannot keep: who may import whom, and where a mechanism may be named."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import paribus
from paribus.mechanisms import mechanisms
from paribus.mechanisms.contract import Seam

PACKAGE = Path(paribus.__file__).parent
GROUND = {"disk", "errors", "seeds", "refusal"}
ALLOWED = {
    # branch: what else of paribus it may import
    "errors": set(),
    "disk": {"errors"},
    "seeds": set(),
    "refusal": {"errors"},
    "shapes": set(),
    "roles": GROUND,
    "kernels": {*GROUND, "shapes"},
    "mechanisms": {*GROUND, "shapes", "roles", "kernels"},
    "model": {*GROUND, "shapes", "roles", "kernels", "mechanisms"},
    "data": GROUND,
    "optim": {*GROUND, "shapes", "roles"},
    "train": {*GROUND, "shapes", "roles", "data", "optim"},
    "measure": {*GROUND, "shapes", "downstream", "mechanisms", "model", "train", "stats"},
    "published": GROUND,
    "recipes": GROUND,
    "experiment": {*GROUND, "data", "mechanisms", "model", "optim", "published", "recipes", "roles", "train"},
    "measuring": {*GROUND, "data", "experiment", "measure", "mechanisms", "runs", "train"},
    "diverging": {*GROUND, "runs", "train"},
    "training": {"mechanisms", "diverging", *GROUND, "experiment", "measuring", "model", "runs", "study", "train"},
    "runs": {*GROUND, "kernels"},
    "stats": GROUND,
    "report": {*GROUND, "stats"},
    "draining": {*GROUND, "experiment", "runs", "study", "training"},
    "launch": {*GROUND, "draining", "experiment", "runs", "study", "training"},
    "reading": {*GROUND, "data", "experiment", "report", "runs", "stats"},
    "reporting": {*GROUND, "data", "experiment", "optim", "published", "reading", "report", "stats", "tuning"},
    "sample_update": {*GROUND, "data", "experiment", "model", "optim", "train"},
    "probing": {*GROUND, "experiment", "runs", "sample_update"},
    "costing": {
        *GROUND,
        "data",
        "experiment",
        "kernels",
        "model",
        "probing",
        "reading",
        "runs",
        "sample_update",
        "stats",
        "study",
        "terminal",
    },
    "adopting": {*GROUND, "report", "stats", "terminal"},
    "comparing": {*GROUND, "report", "runs", "stats", "terminal"},
    "calibrating": {*GROUND, "checking", "experiment", "launch", "reading", "stats", "study", "terminal"},
    "tuning": {*GROUND, "experiment", "launch", "optim", "reading", "report", "stats", "study", "terminal"},
    "running": {
        *GROUND,
        "checking",
        "costing",
        "evaluating",
        "experiment",
        "launch",
        "runs",
        "study",
        "terminal",
        "tuning",
    },
    "publishing": {*GROUND, "experiment", "reading", "report", "reporting", "stats", "tuning"},
    "powering": {*GROUND, "experiment", "stats", "terminal"},
    "tunnel": {
        *GROUND,
        "checking",
        "costing",
        "data",
        "experiment",
        "launch",
        "mechanisms",
        "publishing",
        "reading",
        "report",
        "reporting",
        "runs",
        "stats",
        "study",
        "terminal",
        "tuning",
    },
    "checking": {*GROUND, "experiment", "mechanisms", "model", "study", "terminal"},
    "trying": {
        *GROUND,
        "checking",
        "data",
        "experiment",
        "measure",
        "measuring",
        "mechanisms",
        "model",
        "runs",
        "study",
        "terminal",
        "texts",
        "train",
    },
    "listing": {*GROUND, "data", "terminal"},
    "interop": {*GROUND, "data", "mechanisms", "model", "recipes", "runs"},
    "diagnosing": {
        *GROUND,
        "data",
        "interop",
        "measure",
        "measuring",
        "mechanisms",
        "model",
        "runs",
        "stats",
        "terminal",
        "train",
        "trained",
    },
    "downstream": {*GROUND, "data"},
    "trained": {*GROUND, "data", "interop", "mechanisms", "model", "runs", "train"},
    "evaluating": {
        *GROUND,
        "data",
        "downstream",
        "experiment",
        "measure",
        "model",
        "reading",
        "runs",
        "terminal",
        "trained",
        "tuning",
    },
    "finetuning": {
        *GROUND,
        "data",
        "downstream",
        "measure",
        "measuring",
        "model",
        "optim",
        "runs",
        "study",
        "terminal",
        "train",
        "trained",
    },
    "keeping": {*GROUND, "data", "experiment", "reading", "report", "runs", "terminal"},
    "replaying": {
        *GROUND,
        "data",
        "experiment",
        "mechanisms",
        "model",
        "optim",
        "runs",
        "terminal",
        "texts",
        "train",
    },
    "generating": {*GROUND, "data", "downstream", "model", "terminal", "trained"},
    "preparing": {*GROUND, "data", "terminal"},
    "inspecting": {*GROUND, "data", "report", "stats"},
    "planning": {
        *GROUND,
        "data",
        "experiment",
        "model",
        "powering",
        "reading",
        "recipes",
        "runs",
        "stats",
        "terminal",
        "texts",
        "tuning",
    },
    "terminal": {*GROUND, "data"},
    "texts": {*GROUND, "data", "experiment", "preparing", "runs"},
}
"""`study` and `cli` join the branches and may import any of them. Nobody may import `cli`."""
WITHOUT_TORCH = (
    "paribus.adopting",
    "paribus.calibrating.reading",
    "paribus.calibrating.showing",
    "paribus.comparing",
    "paribus.experiment.calibration",
    "paribus.inspecting",
    "paribus.keeping",
    "paribus.listing",
    "paribus.powering",
    "paribus.preparing",
    "paribus.publishing",
    "paribus.stats",
    "paribus.report",
    "paribus.runs",
    "paribus.data",
    "paribus.downstream",
    "paribus.reporting",
    "paribus.published",
    "paribus.recipes",
)


def source_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def branch_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of_paribus(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found.update(name.split(".")[1] for name in names if name.startswith("paribus.") and len(name.split(".")) > 1)
    return found


@pytest.mark.parametrize("path", source_files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down_the_house(path: Path) -> None:
    branch = branch_of(path)
    if branch in ("study", "cli", "__init__", "__main__"):
        return
    assert branch in ALLOWED, f"a new branch '{branch}' needs its place in the house"
    upwards = imports_of_paribus(path) - ALLOWED[branch] - {branch, "__version__"}
    assert not upwards, f"{path.name} imports {sorted(upwards)}"


def test_the_direction_check_sees_an_upward_import(tmp_path: Path) -> None:
    bad = tmp_path / "kernel.py"
    bad.write_text("from paribus.model.config import ModelConfig\nimport paribus.study\n")
    assert imports_of_paribus(bad) - ALLOWED["kernels"] == {"model", "study"}


@pytest.mark.parametrize("module", WITHOUT_TORCH)
def test_branches_that_read_and_report_never_load_torch(module: str) -> None:
    code = (
        "import importlib, pkgutil, sys\n"
        f"package = importlib.import_module({module!r})\n"
        "for found in pkgutil.walk_packages(getattr(package, '__path__', []), package.__name__ + '.'):\n"
        "    importlib.import_module(found.name)\n"
        "sys.exit('torch was loaded' if 'torch' in sys.modules else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def mechanism_names() -> set[str]:
    """Names and class names of mechanisms that are not a seam's identity."""
    from paribus.mechanisms import IDENTITY

    found = set()
    for seam in Seam:
        for name, config in mechanisms(seam).items():
            if name != IDENTITY[seam] and name != "document":
                found.update({name, config.__name__, config.__module__.rpartition(".")[2]})
    return found


def test_a_mechanism_is_named_in_its_own_files_only() -> None:
    pattern = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in sorted(mechanism_names())), re.IGNORECASE)
    for path in source_files():
        if branch_of(path) in ("mechanisms", "kernels"):
            continue
        found = pattern.search(path.read_text(encoding="utf-8"))
        assert found is None, f"{path.relative_to(PACKAGE)} names the mechanism '{found and found.group()}'"


REGISTRIES = (
    PACKAGE,
    PACKAGE / "cli",
    PACKAGE / "mechanisms",
    PACKAGE / "data" / "sources",
    PACKAGE / "data" / "tasks",
)


def test_packages_hold_no_logic_except_the_registries() -> None:
    for path in source_files():
        if path.name == "__init__.py" and path.parent not in REGISTRIES:
            assert path.read_text(encoding="utf-8").strip() == "", f"{path} holds code"


def test_no_global_seeds_no_pickles_no_prints() -> None:
    forbidden = re.compile(
        r"\btorch\.manual_seed\(|np\.random\.seed\(|random\.seed\(|import pickle|torch\.save\(|"
        r"torch\.load\((?!.*weights_only=True)|(?<![.\w])print\("
    )
    for path in source_files():
        found = forbidden.search(path.read_text(encoding="utf-8"))
        assert found is None, f"{path.relative_to(PACKAGE)}: {found and found.group()}"


def test_every_field_of_a_configuration_is_explained() -> None:
    """A frozen configuration is code with types: each field is followed by a sentence in the source."""
    files = [
        *PACKAGE.rglob("config.py"),
        *(PACKAGE / "data" / "tasks").glob("*.py"),
        *(PACKAGE / "experiment").glob("*.py"),
        *(PACKAGE / "mechanisms").rglob("*.py"),
    ]
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ClassDef):
                continue
            bases = set(map(ast.unparse, node.bases))
            if not node.name.endswith("Config") and not bases & {"MechanismConfig", "Table"}:
                continue
            for statement, after in zip(node.body, [*node.body[1:], None], strict=True):
                if isinstance(statement, ast.AnnAssign) and not ast.unparse(statement.annotation).startswith(
                    "ClassVar"
                ):
                    explained = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                    assert explained, f"{path.name}: {node.name}.{ast.unparse(statement.target)} has no sentence"
