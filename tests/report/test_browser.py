"""The page in a real browser: nothing asked for, nothing complained about, something to see."""

import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

from paribus.report import page
from paribus.report.content import ReportContent

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = ("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync")


def shoot(opened: Path, folder: Path) -> tuple[bytes, list[str]]:
    """A screenshot of a page on disk as PNG bytes, and what its console said."""
    picture = folder / "page.png"
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", *QUIET, f"--user-data-dir={folder}/profile"]
    command += ["--window-size=1000,1400", "--enable-logging=stderr", f"--screenshot={picture}", opened.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return picture.read_bytes(), [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def different_rows(png: bytes) -> int:
    """How many different rows of pixels a PNG holds; an empty page has no more than the five ways to filter a row."""
    data, place, width = b"", 8, 0
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        kind, body = png[place + 4 : place + 8], png[place + 8 : place + 8 + length]
        if kind == b"IHDR":
            width = struct.unpack(">I", body[:4])[0] * (4 if body[9] == 6 else 3) + 1
        data += body if kind == b"IDAT" else b""
        place += length + 12
    raw = zlib.decompress(data)
    return len({raw[i : i + width] for i in range(0, len(raw), width)})


@pytest.mark.skipif(BROWSER is None, reason="needs chromium on PATH")
def test_a_browser_opens_the_page_from_disk_shows_it_and_refuses_whatever_it_would_fetch(
    study: ReportContent, tmp_path: Path
) -> None:
    opened = page.write(study, tmp_path)
    picture, console = shoot(opened, tmp_path)
    assert console == []
    assert different_rows(picture) > 100
    # The page forbids itself every request, so a request would be an error in the console: shown on a page that tries.
    tries = '<img src="https://example.invalid/x.png"><script src="https://example.invalid/x.js"></script><main'
    opened.write_text(opened.read_text().replace("<main", tries, 1))
    refused = [line for line in shoot(opened, tmp_path)[1] if "Content Security Policy" in line]
    assert [any(name in line for line in refused) for name in ("x.png", "x.js")] == [True, True]
