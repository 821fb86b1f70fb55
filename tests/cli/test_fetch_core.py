"""paribus data fetch core: what it prints, and what it says where there is no network."""

import functools
import hashlib
import io
import json
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

import pytest
from huggingface_hub import close_session, constants

from paribus.downstream.core.downloading import Source

Cli = Callable[..., tuple[int, str, str]]
TASK = {"label": "copa", "dataset_uri": "group/copa.jsonl", "num_fewshot": [0], "icl_task_type": "multiple_choice"}


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        del format, args


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An archive of one task where the real one is thought to lie; the working folder is empty."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as opened:
        opened.writestr("eval_bundle/core.yaml", json.dumps({"icl_tasks": [TASK]}))
        opened.writestr("eval_bundle/eval_meta_data.csv", "Eval Task,Random baseline\ncopa,50\n")
        opened.writestr("eval_bundle/eval_data/group/copa.jsonl", '{"query": "q", "choices": ["a", "b"], "gold": 0}\n')
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "eval_bundle.zip").write_bytes(stream.getvalue())
    server = HTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(tmp_path / "served")))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    source = functools.partial(
        Source,
        f"http://127.0.0.1:{server.server_port}/eval_bundle.zip",
        hashlib.sha256(stream.getvalue()).hexdigest(),
    )
    monkeypatch.setattr("paribus.downstream.core.fetching.Source", source)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("NO_PROXY", "*")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    close_session()
    yield
    close_session()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.usefixtures("archive")
def test_the_bundle_is_fetched_once_and_what_it_lacks_is_said(cli: Cli):
    code, out, err = cli("data", "fetch", "core")
    assert code == 0, err
    assert "eval_bundle: fetched" in out
    assert "1 tasks, 1 items" in out
    assert "v1 from eval_meta_data.csv; v2 unavailable: no copy of it was given" in out
    assert "incomplete, so that no CORE comes of it: copa 1 of 100 items" in out
    assert "paribus evaluate CELL --core eval_bundle" in out
    code, out, _ = cli("data", "fetch", "core")
    assert (code, "eval_bundle: is there already, unchanged" in out) == (0, True)


@pytest.mark.usefixtures("archive")
def test_the_place_may_be_named_and_the_outcome_had_as_json(cli: Cli):
    code, out, err = cli("data", "fetch", "core", "--to", "tasks/core", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["folder"], found["new"], found["baselines_v2"]) == ("tasks/core", True, None)
    assert found["missing"]["squad"] == "is not in core.yaml"
    assert (Path("tasks/core") / "core.yaml").exists()


@pytest.mark.usefixtures("archive")
def test_without_a_network_the_command_ends_in_one_error(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    code, _, err = cli("data", "fetch", "core")
    assert code == 1
    assert err.startswith("error: the bundle of CORE tasks could not be fetched")
    assert "Traceback" not in err
    assert not Path("eval_bundle").exists()
