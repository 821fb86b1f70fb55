"""The real shards that lie beside the project, and one document of 100 MB."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paribus.data.sources.contract import RawDocument

PRETRAIN = Path(__file__).parents[4] / "shared" / "data" / "pretrain"

# documents, bytes of text where their README states it, pieces are row groups
REAL = {"textmix": (26_785, 96_219_010), "fineweb_edu_sample": (5, None), "default_corpus": (3_521, None)}


@pytest.mark.shared_data
@pytest.mark.parametrize("name", REAL)
def test_real_shards_hold_the_documents_that_their_page_states(name: str, read_folder):
    if not (PRETRAIN / name).is_dir():
        pytest.skip(f"the real data are not here: {PRETRAIN / name}")
    judged = read_folder(PRETRAIN / name)
    documents, text_bytes = REAL[name]
    assert len(judged) == documents
    assert all(isinstance(entry, RawDocument) for entry in judged)
    assert text_bytes in (None, sum(len(entry.utf8) for entry in judged))
    expected = [
        text.encode()
        for path in sorted((PRETRAIN / name).glob("*.parquet"))
        for text in pq.read_table(path, columns=["text"])["text"].to_pylist()
    ]
    assert [entry.utf8 for entry in judged] == expected


MEASURE = """
import sys
from pathlib import Path
from paribus.data.config import CorpusConfig
from paribus.data.sources import open_source
source = open_source(CorpusConfig(kind="folder", folder=Path(sys.argv[1])))
sizes = [len(entry.utf8) for piece in source.pieces() for entry in source.read(piece)]
# Of this program alone: getrusage would count the parent's memory, inherited until the program was loaded.
(peak,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(max(sizes), len(sizes), int(peak) // 1024)
"""


@pytest.mark.parametrize("kind", ["parquet", "jsonl.zst"])
def test_a_document_of_100_mb_is_read_in_under_450_mib(kind: str, tmp_path: Path):
    """The text has a character beyond the basic plane: as one Python string it would take 400 MB."""
    if not Path("/proc/self/status").exists():
        pytest.skip("the peak of a process is read from /proc/self/status")
    line = "words, a \\ slash, a\nline 🙂 "
    text = line * (100_000_000 // len(line.encode()))
    short = ["short"] * 40
    if kind == "parquet":
        table = pa.table({"text": [*short, text, *short]})
        pq.write_table(table, tmp_path / "a.parquet", compression="zstd", use_dictionary=False)
        del table
    else:
        with pa.CompressedOutputStream(str(tmp_path / "a.jsonl.zst"), "zstd") as stream:
            for value in [*short, text, *short]:
                stream.write(json.dumps({"text": value}, ensure_ascii=False).encode() + b"\n")
    expected = len(text.encode())
    del text
    done = subprocess.run([sys.executable, "-c", MEASURE, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    longest, documents, peak_mib = map(int, done.stdout.split())
    assert (longest, documents) == (expected, 81)
    assert peak_mib < 450
