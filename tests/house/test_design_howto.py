"""What docs/howto/design-a-study.md writes is what the schema takes."""

import re
import tomllib
from pathlib import Path

from paribus.experiment import spec
from paribus.published import PublishedFigure, read

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(
    r"```toml\n(.*?)```", (ROOT / "docs" / "howto" / "design-a-study.md").read_text(encoding="utf-8"), re.DOTALL
)


def test_every_block_of_the_how_to_is_one_that_the_schema_takes() -> None:
    kinds = {"seeds": spec.Seeds, "noise": spec.Noise, "scales": spec.Scale, "contrasts": PublishedFigure}
    met = []
    for block in BLOCKS:
        ((table, held),) = tomllib.loads(block).items()
        if table == "scales":
            held = {"layers": 2, "width": 32, "mlp_width": 48, **held["tiny"]}
        elif table == "contrasts":
            held = held["main"]["published"]
            read(PublishedFigure.model_validate(held), ROOT / "experiments")
        kinds[table].model_validate(held)
        met.append(table)
    assert met == ["seeds", "seeds", "noise", "scales", "contrasts"]
