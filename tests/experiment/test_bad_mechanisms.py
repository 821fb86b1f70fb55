"""What a mechanism's table can get wrong is found when the file is planned, with the valid range."""

from pathlib import Path

import pytest

from paribus.errors import ExperimentFileError
from paribus.experiment import loading
from paribus.experiment.plan import resolve_arms

XSA = 'output_map = { name = "xsa", strength = 1.0 }'
BLOCK = 'routing = { name = "block-attnres", blocks = 2 }'
RD = 'routing = { name = "role-decoupled", blocks = 2 }'

CASES = [
    # The small experiment has 2 layers, 4 sublayers.
    ("a layer beyond the last", XSA, "strength = 1.0", "layers = [0, 2]", "arms.xsa.output_map", "0 to 1"),
    ("a negative layer", XSA, "strength = 1.0", "layers = [-1]", "arms.xsa.output_map", "0 to 1"),
    ("more last layers than there are", XSA, "strength = 1.0", 'layers = "last:3"', "arms.xsa.output_map", "0 to 1"),
    (
        "layers without value embeddings, and no layer has any",
        XSA,
        "strength = 1.0",
        'layers = "without-value-embedding"',
        "arms.xsa.output_map",
        "value embedding",
    ),
    ("a fixed negative strength", XSA, "strength = 1.0", "strength = -0.5", "arms.xsa.output_map", "0"),
    ("more blocks than sublayers", BLOCK, "blocks = 2", "blocks = 5", "arms.block.routing", "4"),
    ("no block", BLOCK, "blocks = 2", "blocks = 0", "arms.block.routing", "1"),
    ("blocks of more layers than there are", BLOCK, "blocks = 2", "block_layers = 3", "arms.block.routing", "2"),
    ("two units of blocks", BLOCK, "blocks = 2", "blocks = 2, block_layers = 1", "arms.block.routing", "exactly one"),
    ("tied and frozen", RD, "blocks = 2", "blocks = 2, tied = true, frozen_v = true", "arms.rd.routing", "frozen_v"),
    ("an untying after the end", RD, "blocks = 2", "blocks = 2, untie_at = 1.0", "arms.rd.routing.untie_at", "1"),
    ("routes that are none", RD, "blocks = 2", 'blocks = 2, routes = "qv|k"', "arms.rd.routing.routes", "q|kv"),
    ("a donor that is no arm", RD, "blocks = 2", 'blocks = 2, frozen_v_from = "blok"', "arms.rd.routing", "'block'"),
    (
        "a donor without a route",
        RD,
        "blocks = 2",
        'blocks = 2, frozen_v_from = "standard"',
        "arms.rd.routing",
        "no attention route",
    ),
]


@pytest.mark.parametrize(
    ("table", "old", "new", "where", "said"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_a_mechanism_that_does_not_fit_is_refused_by_file_and_table_with_what_would_be_valid(
    tmp_path: Path, tiny: str, table: str, old: str, new: str, where: str, said: str
):
    path = tmp_path / "study.toml"
    path.write_text(tiny.replace(table, table.replace(old, new)), encoding="utf-8")
    with pytest.raises(ExperimentFileError) as caught, loading.naming(path):
        resolve_arms(loading.load(path))
    assert caught.value.what.startswith(f"{path}: {where}")
    assert said in str(caught.value)
    assert "Traceback" not in str(caught.value)
    assert "pydantic" not in str(caught.value)


def test_a_mechanism_is_checked_at_every_scale_that_the_file_is_planned_at(tmp_path: Path, tiny: str):
    deep = "[scales.deep]\nlayers = 4\nwidth = 32\nmlp_width = 48\nbudget_tokens = 10_000\n[arms.standard]"
    path = tmp_path / "study.toml"
    path.write_text(
        tiny.replace("[arms.standard]", deep, 1).replace("strength = 1.0", 'layers = "last:3"'), encoding="utf-8"
    )
    assert resolve_arms(loading.load(path, "deep"))
    with pytest.raises(ExperimentFileError, match=r"arms\.xsa\.output_map: .*0 to 1"):
        resolve_arms(loading.load(path, "tiny"))
