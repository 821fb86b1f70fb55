"""No file from a stranger runs code here, and nothing listens: read from the syntax of every source file.

Each rule is a function from a parsed file to what breaks it, in words, so that it can be fed something bad. What is
allowed all the same is listed with its reason, and an entry that is no longer needed is an error.
"""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import paribus

PACKAGE = Path(paribus.__file__).parent
Rule = Callable[[ast.AST], Iterator[str]]

CODE_IN_DATA = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "jsonpickle"}
"""modules whose files, or bytes, are programs"""
LISTENERS = {
    *("http.server", "socketserver", "xmlrpc.server", "wsgiref", "asyncio", "aiohttp", "flask", "fastapi", "uvicorn"),
    *("tornado", "gradio", "multiprocessing.managers", "torch.distributed", "torch.utils.tensorboard"),
}
LISTENING_CALLS = {"bind", "listen", "accept", "create_server", "start_server", "serve_forever", "Listener"}
UNPACKING = {"tarfile", "shutil.unpack_archive"}
ALLOWED = {
    ("interop/nanochat_checkpoint.py", "torch.load"): "weights_only=True: tensors and plain containers, no objects; "
    "nanochat writes nothing else, and what else a file holds is refused",
    ("downstream/sandbox_child.py", "exec"): "the sandbox itself: a process of its own without rights or network",
    ("data/prepare/workers.py", "variables"): "handed on whole to its own worker processes",
    ("data/sources/__init__.py", "variables"): "TIKTOKEN_CACHE_DIR: where a file may lie",
    ("preparing/fetching.py", "variables"): "TIKTOKEN_CACHE_DIR: where a file may lie",
    ("downstream/sandbox.py", "variables"): "HOME: the program that proves the sandbox must not read it",
    ("launch/local.py", "variables"): "sets variables for workers, and puts them back",
    ("running.py", "variables"): "sets CUBLAS_WORKSPACE_CONFIG",
    ("replaying/replay.py", "variables"): "sets CUBLAS_WORKSPACE_CONFIG",
    ("launch/local.py", "network"): "`listen` hears the queue of its own workers; no socket",
    ("costing/allocator.py", "variables"): "GLIBC_TUNABLES: whether the user has set the allocator",
    ("kernels/compiler.py", "variables"): "CC and its own switch: which compiler",
    ("disk.py", "variables"): "XDG_CACHE_HOME: where caches lie",
    ("train/compiling.py", "variables"): "TORCHINDUCTOR_CACHE_DIR: where compiled graphs lie",
    ("costing/ways.py", "variables"): "CXX: which compiler",
    ("sample_update.py", "variables"): "sets KINETO_LOG_LEVEL, so that the profiler is silent",
    ("runs/environment.py", "variables"): "takes their values out of texts",
}
"""by file and rule"""


def dotted(node: ast.AST) -> str:
    """ "a.b.c" of a name or of attributes of one; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return ""


def imported(tree: ast.AST) -> Iterator[str]:
    """Every module, and every name from one, that a file imports or asks importlib for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] in ("import_module", "__import__"):
            yield from (a.value for a in node.args[:1] if isinstance(a, ast.Constant) and isinstance(a.value, str))


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield (
                dotted(node.func) or (node.func.attr if isinstance(node.func, ast.Attribute) else ""),
                node,
            )


def keyword(call: ast.Call, name: str) -> object:
    """The constant that a call is given by name; None where there is none, or no constant."""
    found = next((k.value for k in call.keywords if k.arg == name), None)
    return found.value if isinstance(found, ast.Constant) else None


def within(name: str, modules: set[str]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def pickles(tree: ast.AST) -> Iterator[str]:
    yield from (f"imports {name}" for name in imported(tree) if within(name, CODE_IN_DATA))
    for name, call in calls(tree):
        if name.endswith(("np.load", "numpy.load")) and keyword(call, "allow_pickle") is not False:
            yield f"{name} without allow_pickle=False"
        if name.endswith((".read_pickle", ".to_pickle")) or keyword(call, "allow_pickle") is True:
            yield name


def torch_load(tree: ast.AST) -> Iterator[str]:
    names = {alias.asname or alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
             for alias in node.names if node.module == "torch" and alias.name in ("load", "save")}  # fmt: skip
    yield from (name for name, _ in calls(tree) if name in {"torch.load", "torch.save", "torch.jit.load", *names})


def torch_load_of_objects(tree: ast.AST) -> Iterator[str]:
    """What stays forbidden where torch.load is allowed."""
    for name, call in calls(tree):
        if name == "torch.load" and keyword(call, "weights_only") is not True:
            yield "torch.load without weights_only=True"


def unsafe_yaml(tree: ast.AST) -> Iterator[str]:
    for name, _ in calls(tree):
        if name.startswith("yaml.") and name.partition(".")[2] not in ("safe_load", "safe_load_all", "safe_dump"):
            yield name


def evaluated(tree: ast.AST) -> Iterator[str]:
    """A call of `eval`, `exec` or `compile`: of the built-in functions, not of methods of these names."""
    builtin = {"eval", "exec", "compile"}
    yield from (name for name, _ in calls(tree) if name.removeprefix("builtins.") in builtin)


def shells(tree: ast.AST) -> Iterator[str]:
    for name, call in calls(tree):
        given = next((k.value for k in call.keywords if k.arg == "shell"), None)
        if given is not None and not (isinstance(given, ast.Constant) and given.value is False):
            yield f"{name} with shell"
        if name in ("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"):
            yield name


def unpacking(tree: ast.AST) -> Iterator[str]:
    """Archives are unpacked member by member, judged first (`paribus.downstream.core.archive`)."""
    yield from (f"imports {name}" for name in imported(tree) if within(name, UNPACKING))
    yield from (
        name for name, _ in calls(tree) if name.rpartition(".")[2] in ("extractall", "extract", "unpack_archive")
    )


def listens(tree: ast.AST) -> Iterator[str]:
    yield from (f"imports {name}" for name in imported(tree) if within(name, LISTENERS))
    for name, _ in calls(tree):
        if name.rpartition(".")[2] in LISTENING_CALLS or name == "socket.socket":
            yield name


def variables(tree: ast.AST) -> Iterator[str]:
    """Uses of the process' environment, whose values must never be on record."""
    names = {"os.environ", "os.getenv", "os.environb", "os.putenv"}
    yield from (found for node in ast.walk(tree) if (found := dotted(node)) in names)
    yield from (f"imports {name}" for name in imported(tree) if name in names)


RULES: dict[str, tuple[Rule, tuple[str, ...]]] = {
    "pickle": (
        pickles,
        (
            "import pickle",
            "from pickle import loads",
            "import joblib.memory",
            "importlib.import_module('dill')",
            "import numpy as np\nnp.load(path)",
            "numpy.load(path, allow_pickle=True)",
            "pandas.read_pickle(path)",
        ),
    ),
    "torch.load": (
        torch_load,
        ("torch.load(path)", "torch.load(path, weights_only=True)", "from torch import load as l\nl(path)"),
    ),
    "torch.load of objects": (
        torch_load_of_objects,
        ("torch.load(path)", "torch.load(path, weights_only=False)", "torch.load(path, weights_only=maybe)"),
    ),
    "yaml": (unsafe_yaml, ("yaml.load(text)", "yaml.load(text, Loader=yaml.Loader)", "yaml.unsafe_load(text)")),
    "exec": (evaluated, ("eval(text)", "exec(text)", "builtins.exec(text)", "x = compile(text, '', 'exec')")),
    "shell": (
        shells,
        ("subprocess.run(text, shell=True)", "run(text, shell=maybe)", "os.system(text)", "subprocess.getoutput(text)"),
    ),
    "archive": (
        unpacking,
        ("import tarfile", "archive.extractall(folder)", "zipfile.ZipFile(p).extractall()", "shutil.unpack_archive(p)"),
    ),
    "network": (
        listens,
        (
            "import http.server",
            "from http import server",
            "import socketserver",
            "import asyncio",
            "socket.socket()",
            "s.bind(('', 80))",
            "s.listen()",
            "from multiprocessing.managers import BaseManager",
            "connection.Listener(address)",
        ),
    ),
    "variables": (
        variables,
        ("os.environ", "dict(os.environ)", "os.getenv('A')", "from os import environ", "record(**os.environ)"),
    ),
}


def source_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("rule", RULES)
def test_no_source_file_breaks_the_rule_but_those_that_are_allowed_to(rule: str) -> None:
    breaks, _ = RULES[rule]
    found = {}
    for path in source_files():
        if wrong := list(breaks(ast.parse(path.read_text(encoding="utf-8")))):
            found[str(path.relative_to(PACKAGE))] = wrong
    allowed = {file for file, name in ALLOWED if name == rule}
    assert {file: wrong for file, wrong in found.items() if file not in allowed} == {}
    assert allowed <= found.keys(), "an exception that nobody needs any more"


@pytest.mark.parametrize(("rule", "bad"), [(rule, bad) for rule, (_, snippets) in RULES.items() for bad in snippets])
def test_each_rule_sees_what_breaks_it(rule: str, bad: str) -> None:
    assert list(RULES[rule][0](ast.parse(bad)))


@pytest.mark.parametrize("rule", RULES)
def test_no_rule_forbids_what_is_harmless(rule: str) -> None:
    harmless = """
import json, socket, zipfile, ast, re
import numpy as np
from safetensors.torch import load
np.load(path, allow_pickle=False)
load(content)
model.eval()
re.compile(text)
ast.literal_eval(text)
yaml.safe_load(text)
subprocess.run([program, text], shell=False)
socket.gethostname()
os.cpu_count()
"""
    assert list(RULES[rule][0](ast.parse(harmless))) == []
