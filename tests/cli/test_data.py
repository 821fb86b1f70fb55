"""`paribus data`, from the command line to the files."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from filelock import FileLock

from paribus.data.progress import Advance
from paribus.preparing import running
from paribus.seeds import generator

Cli = Callable[..., tuple[int, str, str]]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
OPTIONS = ("--vocabulary", "300", "--test-fraction", "0.1", "--validation-fraction", "0.1", "--workers", "1")

LOADED = """
import sys
from paribus.cli import main

sys.argv = ["paribus", *sys.argv[1:]]
try:
    main()
except SystemExit as ended:
    code = ended.code
heavy = {"torch", "tokenizers", "pyarrow", "matplotlib", "huggingface_hub"} & sys.modules.keys()
sys.stderr.write(f"{code} {sorted(heavy)}")
"""


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 documents of two sources in a Parquet file, two of them equal, one that is null."""
    draw = generator("tests", "cli", "data")
    words = ["".join(draw.choice(list("abcdefgh"), size=draw.integers(2, 7))) for _ in range(300)]
    found: list[str | None] = [" ".join(draw.choice(words, size=int(draw.integers(3, 120)))) for _ in range(198)]
    found += [found[0], None]
    table = pa.table({"text": found, "source": [("ash", "birch")[row % 2] for row in range(200)]})
    folder = tmp_path_factory.mktemp("data") / "texts"
    folder.mkdir()
    pq.write_table(table, folder / "shard.parquet", row_group_size=50)
    return folder


@pytest.fixture
def cli(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """The entry point in an empty folder, and in a wide terminal that nobody watches."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return cli


@pytest.fixture
def experiment(texts: Path, tmp_path: Path, study_text: Callable[..., str]) -> Path:
    """An experiment file that declares the texts."""
    corpus = f'corpus = {{ path = "{texts}", test_fraction = 0.1, validation_fraction = 0.1 }}'
    text = re.sub(r"(?m)^corpus = .*$", f"{corpus}\ntokenizer = {{ vocabulary_size = 300 }}", study_text(), count=1)
    file = tmp_path / "study.toml"
    file.write_text(text)
    return file


def prepared(cli: Cli, texts: Path, *options: str) -> dict[str, Any]:
    code, out, _ = cli("data", "prepare", str(texts), *OPTIONS, *options, "--json")
    assert code == 0
    return json.loads(out)


@pytest.mark.parametrize("arguments", [["data", "--help"], ["data", "prepare", "--help"], ["data", "list"]])
def test_help_and_list_load_neither_tensors_nor_tables(tmp_path: Path, arguments: list[str]):
    # `list` reads the declaration of hub files, which brings tables with it.
    command = [sys.executable, "-c", LOADED, *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    allowed = "['pyarrow']" if arguments[1] == "list" else "[]"
    assert done.stderr in (f"0 {allowed}", f"None {allowed}")
    assert done.stdout


def test_preparing_a_folder_ends_with_its_splits_what_was_left_out_and_where_it_lies(cli: Cli, texts: Path):
    code, out, err = cli("data", "prepare", str(texts), *OPTIONS)
    assert code == 0
    assert err == ""
    assert re.search(r"read documents: 199 documents, .*(MB|kB)", out)
    assert re.search(r"train +\d+ +[\d,]+ +[\d,]+ +\d\.\d{3}", out)
    assert "left out: 1 exact duplicates, 1 null" in out
    (folder,) = Path("runs/corpora").glob("texts-*")
    assert f"folder: {folder}" in out
    assert f"digest: {json.loads((folder / 'manifest.json').read_text())['digest']}" in out
    assert len(out.splitlines()) < 30
    again = cli("data", "prepare", str(texts), *OPTIONS)[1]
    assert "texts, prepared before" in again
    assert "read documents" not in again


def test_another_vocabulary_or_split_is_another_corpus(cli: Cli, texts: Path):
    first = prepared(cli, texts)
    assert prepared(cli, texts)["folder"] == first["folder"]
    assert prepared(cli, texts, "--vocabulary", "310")["folder"] != first["folder"]
    assert prepared(cli, texts, "--near-duplicates", "0", "--name", "all")["folder"].startswith("runs/corpora/all-")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_a_preparation_that_the_same_command_continues(
    cli: Cli, texts: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
):
    whole = running.prepare

    def interrupted(*arguments: Any, progress: Callable[[Advance], None], **options: Any) -> Any:
        def signalled(advance: Advance) -> None:
            progress(advance)
            if advance.phase == "encode":
                os.kill(os.getpid(), number)

        return whole(*arguments, progress=signalled, **options)

    with monkeypatch.context() as patch:
        patch.setattr(running, "prepare", interrupted)
        found, out, _ = cli("data", "prepare", str(texts), *OPTIONS)
    assert found == code
    assert "stopped; the same command continues: what is finished is kept" in out
    assert re.search(r"texts-\w{12} \(stopped\)", cli("data", "list")[1])
    continued = prepared(cli, texts)
    assert continued["digest"] == prepared(cli, texts, "--runs", "undisturbed")["digest"]
    assert "stopped" not in cli("data", "list")[1]


def test_a_preparation_in_another_process_is_told_of(cli: Cli, texts: Path):
    store = Path("runs/corpora")
    (store / ".texts-0123456789ab.partial").mkdir(parents=True)
    with FileLock(store / ".texts-0123456789ab.lock"):
        out = cli("data", "prepare", str(texts), *OPTIONS)[1]
    assert "another process prepares texts-0123456789ab; if this is the same corpus, this command waits for it" in out


def test_an_experiment_file_is_prepared_as_it_declares_and_takes_no_option(cli: Cli, experiment: Path):
    code, _, err = cli("data", "prepare", str(experiment), "--vocabulary", "300", "--near-duplicates", "0.9")
    assert code == 1
    assert "declares its corpus itself" in err
    assert "--near-duplicates, --vocabulary" in err
    assert "not prepared yet" in cli("data", "inspect", str(experiment))[2]
    code, out, _ = cli("data", "prepare", str(experiment), "--workers", "1")
    assert code == 0
    assert "folder: runs/corpora/texts-" in out
    code, out, _ = cli("data", "inspect", str(experiment), "--json")
    assert code == 0
    found = json.loads(out)
    assert found["name"] == "texts"
    assert {waste["context_length"] for waste in found["waste"]} == {32}  # the file's


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "there is no corpus nowhere"),
        (["climbmx"], "did you mean 'climbmix'?"),
        (["owner/texts"], "add --revision with its commit"),
        (["fineweb-edu"], "git ls-remote"),
        (["fineweb-edu", "--revision", COMMIT, "--held-out", "last-file"], "no validation split by anybody's"),
        (["local-docs", "--revision", COMMIT], "--revision: not for local-docs"),
        (["FOLDER", "--limit", "2"], "--limit: not for the folder"),
        (["FOLDER", "--tokenizer", "nothing.json"], "there is no such tokenizer"),
        (["FOLDER", "--tokenizer", "FOLDER", "--vocabulary", "300"], "either loaded or learnt"),
        (["FOLDER", "--beginning", "<s>"], "belongs to a tokenizer that is loaded"),
        (["FOLDER", "--split-by", "host"], "has no column 'url'"),
        (["climbmix-gpt2", "--revision", COMMIT, "--form", "text"], "form 'gpt2-tokens', or none"),
        (["missing.toml"], "missing.toml"),
    ],
)
def test_a_wrong_target_or_option_is_one_message_and_leaves_nothing(
    cli: Cli, texts: Path, arguments: list[str], said: str
):
    given = [str(texts) if argument == "FOLDER" else argument for argument in arguments]
    code, _, err = cli("data", "prepare", *given, "--workers", "1")
    assert code in (1, 2)
    assert err.startswith("error: ")
    assert said in err
    assert "Traceback" not in err
    assert not list(Path("runs/corpora").glob("[!.]*"))


def test_a_corpus_is_inspected_by_name_by_folder_and_by_the_files_it_was_made_of(cli: Cli, texts: Path):
    assert "no corpus was prepared from the files of" in cli("data", "inspect", str(texts))[2]
    folder = Path(prepared(cli, texts)["folder"])
    shown = [cli("data", "inspect", target) for target in ("texts", folder.name, str(folder), str(texts))]
    assert {code for code, _, _ in shown} == {0}
    assert len({out for _, out, _ in shown}) == 1
    assert "Waste in rows of 1\u202f024 tokens" in shown[0][1]
    content = bytearray((texts / "shard.parquet").read_bytes())
    content[len(content) // 2] ^= 1
    Path("changed").mkdir()
    Path("changed/shard.parquet").write_bytes(content)
    assert "no corpus was prepared from the files of changed" in cli("data", "inspect", "changed")[2]
    prepared(cli, texts, "--vocabulary", "310")
    code, _, err = cli("data", "inspect", str(texts))
    assert code == 1
    assert "several corpora were prepared from the files" in err
    assert f"{folder.name} (tokenizer vocabulary size 300)" in err
    # Any beginning will do where only one corpus has it.
    assert cli("data", "inspect", folder.name[:-6])[0] == 0
    assert "several prepared corpora are called texts" in cli("data", "inspect", "texts")[2]


def test_a_corpus_that_has_changed_is_not_inspected(cli: Cli, texts: Path):
    tokens = Path(prepared(cli, texts)["folder"]) / "train.tokens"
    content = bytearray(tokens.read_bytes())
    content[100] ^= 1
    tokens.chmod(0o644)
    tokens.write_bytes(content)
    code, out, err = cli("data", "inspect", "texts")
    assert code == 1
    assert out == ""
    assert "train.tokens" in err


def test_the_page_is_written_where_it_is_asked_for_and_json_stays_alone_on_stdout(cli: Cli, texts: Path):
    prepared(cli, texts)
    code, out, _ = cli("data", "inspect", "texts", "--html", "pages/texts.html", "--json", "--context-length", "64")
    assert code == 0
    assert json.loads(out)["waste"][0]["context_length"] == 64
    assert "<h1>texts</h1>" in Path("pages/texts.html").read_text(encoding="utf-8")
    assert [path.name for path in Path("pages").iterdir()] == ["texts.html"]


def test_the_list_fits_a_terminal_of_80_characters_and_breaks_no_name(
    cli: Cli, texts: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "80")
    names = [Path(prepared(cli, texts, "--name", name)["folder"]).name for name in ("short", "fineweb_edu_sample")]
    manifest = Path("runs/corpora", names[0], "manifest.json")
    content = json.loads(manifest.read_text())
    content["counts"]["train"] |= {"documents": 9_672_101, "tokens": 10_000_000_000}
    manifest.write_text(json.dumps(content))
    studies = ("a-study-of-a-long-name", "another-of-these", "one-more-of-the-same-corpus")
    for study in studies:
        Path("runs", study).mkdir()
        Path("runs", study, "corpus.json").write_text(json.dumps({"corpus": names[1], "digest": ""}))
    lines = cli("data", "list")[1].splitlines()
    assert max(map(len, lines)) <= 80
    places = {name: [number for number, line in enumerate(lines) if line.endswith(name)] for name in names}
    assert all(len(found) == 1 for found in places.values())
    assert "9,672,1" in lines[places[names[0]][0]]
    below = " ".join(map(str.strip, lines[places[names[1]][0] + 1 :][:2]))
    assert below == "used by " + ", ".join(studies)


def test_gc_says_what_would_go_and_deletes_only_when_told_to(cli: Cli, texts: Path):
    used, unused = (Path(prepared(cli, texts, "--name", name)["folder"]) for name in ("used", "unused"))
    study = Path("runs/study")
    study.mkdir()
    (study / "corpus.json").write_text(json.dumps({"corpus": used.name, "digest": ""}))
    listed = cli("data", "list")[1]
    assert re.search(rf" 198 .* {used.name}\n +used by study\n", listed)
    code, out, _ = cli("data", "gc")
    assert code == 0
    assert f"would delete {unused.name} (prepared, " in out
    assert f"kept {used.name}" in out
    assert unused.exists()
    code, out, _ = cli("data", "gc", "--delete", "--json")
    assert [each["name"] for each in json.loads(out)["going"]] == [unused.name]
    assert (used.exists(), unused.exists()) == (True, False)
    assert "nothing to delete" in cli("data", "gc", "--delete")[1]
    (found,) = json.loads(cli("data", "list", "--json")[1])
    assert (found["name"], found["kind"], found["studies"]) == (used.name, "corpus", ["study"])
    assert (found["documents"], found["being_written"], found["note"]) == (198, False, None)
