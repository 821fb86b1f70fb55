"""docs/laws.md lists the laws that exist. Its numbers are measured by `paribus laws --markdown`, not here."""

import re
from pathlib import Path

from paribus.mechanisms.laws import all_laws

PAGE = Path(__file__).parents[2] / "docs" / "laws.md"


def test_the_page_of_laws_has_every_law_and_no_other():
    rows = [re.split(r"(?<!\\)\|", line) for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
    listed = {tuple(cell.strip().replace("\\|", "|") for cell in row[1:4]) for row in rows[2:]}
    assert listed == {(subject, backbone, law.claim) for subject, law in all_laws() for backbone in law.backbones}
