"""The how-to says what the program does."""

import re
from pathlib import Path

from paribus.interop import imported
from paribus.interop.nanochat_names import OF_THE_ERA
from paribus.interop.ranks import CONVERSION

HOWTO = Path(__file__).parents[2] / "docs" / "howto" / "import-a-nanochat-model.md"


def test_the_howtos_conversion_is_the_one_that_the_program_prints():
    assert re.findall(r"```python\n(.*?)```", HOWTO.read_text(encoding="utf-8"), re.DOTALL) == [CONVERSION]


def test_the_howto_names_every_file_and_the_tensors_of_the_era():
    text = HOWTO.read_text(encoding="utf-8")
    for name in (imported.MODEL, imported.WEIGHTS, imported.RECIPE, imported.TOKENIZER, *OF_THE_ERA):
        assert f"`{name}`" in text
