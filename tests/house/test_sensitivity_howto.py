"""What docs/howto/how-large-is-it.md writes is what a file may hold, and stands for the arms that it says."""

import re
import tomllib
from pathlib import Path

from paribus.experiment import loading

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "how-large-is-it.md").read_text(encoding="utf-8")


def test_the_files_of_the_how_to_stand_for_the_arms_that_it_names(study_text, tmp_path: Path) -> None:
    control, sweep = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    table = sweep.partition("\n")[2]
    assert tomllib.loads(sweep)["arms"] == {"removal": tomllib.loads(table)}
    file = tmp_path / "study.toml"
    file.write_text(study_text("removal", table, more=control), encoding="utf-8")
    experiment = loading.load(file)
    derived = experiment.robustness.derived
    assert list(derived) == [
        "schedule-sensitivity",
        *(f"removal.strength-{value}" for value in ("0.25", "0.5")),
        *(f"removal.matrix_learning_rate-{value}" for value in ("0.01", "0.04")),
    ]
    for name in ("schedule-sensitivity", "removal.strength-0.25", "removal.matrix_learning_rate-0.01"):
        assert f"`{name}`" in PAGE
    decay = experiment.arm("schedule-sensitivity").schedule.decay
    assert f"schedule.decay {decay} in place of\n0.4" in PAGE
