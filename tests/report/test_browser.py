"""The page in a real browser: nothing asked for, nothing complained about, something to see and to hear.

Where there is no chromium these tests are skipped by name; PARIBUS_REQUIRE_BROWSER=1 makes that a failure instead.
"""

import os
import re
import shutil
import subprocess
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from numpy.typing import NDArray

from paribus.report import page
from paribus.report.content import ReportContent

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
REQUIRED = os.environ.get("PARIBUS_REQUIRE_BROWSER") == "1"
QUIET = ("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync")
SCHEMES = {"dark": 0, "light": 1}
"""values of the browser's own setting of the reader's preference"""
pytestmark = pytest.mark.skipif(BROWSER is None and not REQUIRED, reason="needs chromium on PATH")


def browse(opened: Path, folder: Path, *flags: str, scheme: str = "light") -> tuple[str, list[str]]:
    """What a browser prints on opening a page from disk, and what its console said."""
    assert BROWSER is not None, "PARIBUS_REQUIRE_BROWSER=1 and no chromium on PATH"
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", *QUIET, f"--user-data-dir={folder}/profile"]
    command += [f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}", "--enable-logging=stderr", *flags]
    done = subprocess.run([*command, opened.as_uri()], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def shoot(
    opened: Path, folder: Path, width: int = 1000, scheme: str = "light"
) -> tuple[NDArray[np.float32], list[str]]:
    """A screenshot [row column channel], 0 to 1, and what the console said."""
    picture = folder / "page.png"
    flags = (f"--window-size={width},1400", "--hide-scrollbars", f"--screenshot={picture}")
    console = browse(opened, folder, *flags, scheme=scheme)[1]
    return imread(picture)[..., :3], console


def brightness_of_paper(pixels: NDArray[np.float32]) -> float:
    """Brightness of the commonest colour, 0 to 1."""
    counts, edges = np.histogram(pixels.mean(-1), bins=50, range=(0, 1))
    return float(edges[counts.argmax()])


@pytest.mark.parametrize(("scheme", "width"), [("light", 1000), ("dark", 1000), ("light", 500)])
def test_a_browser_shows_the_page_in_the_readers_scheme_and_complains_of_nothing(
    scheme: str, width: int, written: Path, tmp_path: Path
) -> None:
    pixels, console = shoot(written / "report.html", tmp_path, width, scheme)
    assert console == []
    assert len(np.unique(pixels, axis=0)) > 300, "an empty page has few rows of pixels that differ"
    paper = brightness_of_paper(pixels)
    assert paper > 0.9 if scheme == "light" else paper < 0.2


def test_whatever_the_page_would_fetch_is_refused(bare_study: ReportContent, tmp_path: Path) -> None:
    """The page forbids itself every request, so a request would be an error in the console: shown on one that tries."""
    opened = tmp_path / "tries.html"
    tries = '<img src="https://example.invalid/x.png"><script src="https://example.invalid/x.js"></script><main'
    opened.write_text(page.render(bare_study, refresh_seconds=600).replace("<main", tries, 1), encoding="utf-8")
    refused = [line for line in browse(opened, tmp_path, "--dump-dom")[1] if "Content Security Policy" in line]
    assert [any(name in line for line in refused) for name in ("x.png", "x.js")] == [True, True]


def test_what_the_browser_makes_of_the_page_speaks(written: Path, tmp_path: Path) -> None:
    dom, console = browse(written / "report.html", tmp_path, "--dump-dom")
    assert console == []
    figures = re.findall(r"<svg [^>]*>.*?</svg>", dom, flags=re.S)
    assert len(figures) > 10
    for figure in figures:
        head = figure.partition(">")[0]
        (name,) = re.findall(r' id="([^"]+)"', head)
        assert 'role="img"' in head
        assert f'aria-labelledby="{name}-title {name}-desc"' in head
        title, words = (re.findall(rf'<{tag} id="{name}-{tag}">(.+?)</{tag}>', figure) for tag in ("title", "desc"))
        assert len(title[0]) > 5
        assert len(words[0]) > 20
    tables = re.findall(r"<table.*?</table>", dom, flags=re.S)
    assert len(tables) > 20
    for table in tables:
        assert len(re.findall(r"<caption[^>]*>.+?</caption>", table)) == 1
        assert len(re.findall(r"<th\b", table)) == len(re.findall(r'<th\b[^>]* scope="(?:col|row)"', table)) > 1
    levels = [int(level) for level in re.findall(r"<h([1-6])\b", dom)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert dom.index('class="skip"') < dom.index("<header")


def test_on_paper_what_is_folded_is_open(bare_study: ReportContent, tmp_path: Path) -> None:
    """A page whose one folded table is long prints on more sheets than the same page without it."""
    sheets = []
    for name, count in (("folded", 400), ("none", 0)):
        gates = tuple(entry for entry in bare_study.held_equal if entry.gate) * count
        shared = tuple(entry for entry in bare_study.held_equal if not entry.gate)
        opened = tmp_path / f"{name}.html"
        opened.write_text(page.render(replace(bare_study, held_equal=(*shared, *gates))), encoding="utf-8")
        browse(opened, tmp_path, f"--print-to-pdf={tmp_path / name}.pdf", "--no-pdf-header-footer")
        sheets.append(len(re.findall(rb"/Type\s*/Page\b", (tmp_path / f"{name}.pdf").read_bytes())))
    assert sheets[0] >= sheets[1] + 5  # 400 rows, fewer than 60 on a sheet
