"""What a study leaves on the disk says nothing of the environment it was made in: real runs with secrets planted."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Cli = Callable[..., tuple[int, str, str]]
SECRETS = {
    "HF_TOKEN": "hf_plantedTokenOfTheHub4711",
    "AWS_SECRET_ACCESS_KEY": "plantedKey/Of+TheCloud4711",
    "WANDB_API_KEY": "plantedkeyofatracker4711",
    "HTTPS_PROXY": "http://planteduser:plantedPassword4711@proxy.planted.example:3128",
    "PGPASSWORD": "plantedPassword0815",
    "NOTHING_SPECIAL": "planted-value-of-a-plain-variable",
}
# Passes every gate, which are checked by the command's own process, and in a worker fails with an error that quotes
# what no error should, or stops being finite.
TELLTALE = '''
"""Maps that change nothing, and that no worker can train."""

import multiprocessing
import os
from typing import Literal

from torch import nn

from paribus.mechanisms.contract import MechanismConfig, Seam


class Telltale(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how = how

    def forward(self, y, values, document):
        if multiprocessing.parent_process() is None or y.device.type == "meta":
            return y
        if self.how == "nan":
            return y * float("nan")
        names = ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "HTTPS_PROXY", "PGPASSWORD")
        raise RuntimeError("401 with " + " ".join(os.environ[name] for name in names))


class TelltaleConfig(MechanismConfig):
    name = "telltale"
    seam = Seam.OUTPUT_MAP
    how: Literal["nan", "raise"] = "raise"
    """what goes wrong"""

    def build(self, geometry, layer):
        return Telltale(self.how)
'''


def planted_in(folder: Path) -> list[str]:
    """Each planted text that a file below the folder holds, or a file's name, with the file."""
    texts = {
        *SECRETS.values(),
        *("planteduser", "plantedPassword4711", "proxy.planted.example", "planted-place"),
    } - {SECRETS["HTTPS_PROXY"]}
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 20
    return [
        f"{path.relative_to(folder)}: {text}"
        for path in files
        for text in sorted(texts)
        if text.encode() in path.read_bytes() or text in str(path.relative_to(folder))
    ]


def test_no_value_of_the_environment_and_no_place_is_in_any_file_of_a_run_folder(
    fresh: Path, text: Callable[..., str], cli: Cli, monkeypatch: pytest.MonkeyPatch
):
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    place = fresh / "planted-place"
    place.mkdir()
    (fresh / "runs").rename(place / "runs")
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "path", [str(place), *sys.path])
    maps = {how: f'output_map = {{ name = "telltale:telltale", how = "{how}" }}' for how in ("nan", "raise")}
    broken = "".join(f"[arms.{how}]\n{table}\n" for how, table in maps.items())
    declared = text(arms=("standard", "xsa"), seeds=1, execution="workers = 1\nattempts = 1\ncost_rounds = 0")
    (place / "study.toml").write_text(declared.replace("[seeds]", f"{broken}[seeds]"), encoding="utf-8")
    (place / "telltale.py").write_text(TELLTALE, encoding="utf-8")
    code, _, err = cli("run", "study.toml")
    assert code == 1
    assert "1 cell is parked" in err
    assert not [text for text in SECRETS.values() if text in err], "the screen is recorded by others"
    study = place / "runs" / "tiny"
    marker = next(study.glob("tiny/raise/*/PARKED"))
    assert "[HF_TOKEN] [AWS_SECRET_ACCESS_KEY]" in json.loads(marker.read_text())["reasons"][0]["reason"]
    assert list(study.glob("tiny/nan/*/DIVERGED"))
    assert (study / "report.html").exists()
    assert planted_in(place / "runs" / "tiny") == []
