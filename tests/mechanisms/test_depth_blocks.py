"""Blocks in an explicit unit: their sizes, the sources of every read, and what is refused."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paribus.errors import ExperimentFileError
from paribus.mechanisms import resolve
from paribus.mechanisms.contract import Geometry, Seam
from paribus.mechanisms.depth.block_layout import BlockedConfig, BlockLayout
from paribus.model.backbone import geometry_of as model_geometry
from paribus.model.lawbench import LawBench

ROUTINGS = ["block-attnres", "role-decoupled", "mlp-decoupled"]


SMALL = model_geometry(LawBench().config, {seam: resolve(seam, None, "here") for seam in Seam})


def geometry_of(layers: int) -> Geometry:
    return replace(SMALL, layers=layers)


def routing(name: str = "block-attnres", **unit: Any) -> BlockedConfig:
    config = resolve(Seam.ROUTING, {"name": name, **unit}, "here")
    assert isinstance(config, BlockedConfig)
    return config


def layout(layers: int, **unit: Any) -> BlockLayout:
    return routing(**unit).layout(geometry_of(layers))


def counts(layers: int, **unit: Any) -> dict[str, list[int]]:
    """Number of sources of each read, by site."""
    lists = layout(layers, **unit).source_lists()
    sites = ("attention", "mlp", "output")
    return {site: [len(e["sources"]) for e in lists if e["site"] == site] for site in sites}


@pytest.mark.parametrize("blocks", [0, -1, 2.0, "3", "Full", True, [3]])
def test_a_number_of_blocks_that_is_neither_a_positive_integer_nor_full_is_refused(blocks: object):
    with pytest.raises(ExperimentFileError) as caught:
        routing(blocks=blocks)
    assert caught.value.what == (f"here.blocks: not a number of blocks: {blocks!r} (valid: 1 to 2 * layers, or 'full')")


@pytest.mark.parametrize("unit", ["block_sublayers", "block_layers"])
@pytest.mark.parametrize("size", [0, 2.0, "full", True])
def test_a_size_that_is_no_positive_integer_is_refused(unit: str, size: Any):
    with pytest.raises(ExperimentFileError, match=rf"here\.{unit}"):
        routing(**{unit: size})


@pytest.mark.parametrize("name", ROUTINGS)
@pytest.mark.parametrize(
    ("table", "received"),
    [
        ({}, "none"),
        ({"blocks": None}, "none"),
        ({"blocks": 3, "block_layers": 2}, "blocks and block_layers"),
        ({"blocks": "full", "block_sublayers": 1}, "blocks and block_sublayers"),
        ({"block_sublayers": 2, "block_layers": 1}, "block_sublayers and block_layers"),
    ],
)
def test_blocks_in_no_unit_or_in_two_are_refused_naming_the_units(name: str, table: dict[str, Any], received: str):
    with pytest.raises(ExperimentFileError) as caught:
        routing(name, **table)
    assert caught.value.what == (
        "here: give the blocks in exactly one of 'blocks' (their number, or 'full'), 'block_sublayers' or "
        f"'block_layers' (their size); received {received}"
    )


@pytest.mark.parametrize("name", ROUTINGS)
@pytest.mark.parametrize(
    ("unit", "largest", "what"),
    [("blocks", 8, "sublayers"), ("block_sublayers", 8, "sublayers"), ("block_layers", 4, "layers")],
)
def test_more_than_the_model_has_is_refused_with_the_valid_range(name: str, unit: str, largest: int, what: str):
    assert routing(name, **{unit: largest}).validate_for(geometry_of(4)) is None
    message = routing(name, **{unit: largest + 1}).validate_for(geometry_of(4))
    assert message == f"{unit} = {largest + 1} exceeds the {largest} {what}: valid are 1 to {largest}"


def test_full_is_valid_on_every_model():
    assert routing(blocks="full").validate_for(geometry_of(1)) is None


PAPER = {
    "attention": [1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 6, 7, 7, 7, 8, 8, 8, 9, 9],
    "mlp": [2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 6, 7, 7, 7, 8, 8, 8, 9, 9, 9],
    "output": [9],
}
"""24 layers in blocks of three layers, counted as the paper's listing does"""


@pytest.mark.parametrize("unit", [{"blocks": 8}, {"block_sublayers": 6}, {"block_layers": 3}], ids=str)
def test_24_layers_in_blocks_of_three_read_the_numbers_of_sources_of_the_paper(unit: dict[str, int]):
    assert counts(24, **unit) == PAPER


def test_27_layers_in_blocks_of_six_sublayers_are_ten_sources():
    assert counts(27, block_sublayers=6)["output"] == [10]


@pytest.mark.parametrize(("layers", "size"), [(93, 12), (24, 7), (12, 4), (5, 5), (7, 1)])
def test_a_size_in_layers_gives_the_count_of_sources_floor_of_layers_less_one_over_size_plus_two(
    layers: int, size: int
):
    assert counts(layers, block_layers=size)["output"] == [(layers - 1) // size + 2]


def test_the_sources_of_two_layers_in_two_blocks_by_name():
    assert [(e["layer"], e["site"], e["sources"]) for e in layout(2, blocks=2).source_lists()] == [
        (0, "attention", ["embedding"]),
        (0, "mlp", ["embedding", "running block 1"]),
        (1, "attention", ["embedding", "block 1"]),
        (1, "mlp", ["embedding", "block 1", "running block 2"]),
        (2, "output", ["embedding", "block 1", "block 2"]),
    ]


def test_the_remainder_goes_to_the_last_of_a_number_of_blocks_and_forms_a_shorter_last_block_of_a_size():
    assert layout(5, blocks=4).sizes == (2, 2, 2, 4)
    assert layout(5, block_sublayers=4).sizes == (4, 4, 2)
    assert layout(5, block_layers=2).sizes == (4, 4, 2)
    assert layout(5, block_sublayers=3).sizes == (3, 3, 3, 1)


def test_one_block_reads_the_embedding_and_the_running_sum():
    assert {tuple(e["sources"]) for e in layout(3, blocks=1).source_lists()} == {
        ("embedding",),
        ("embedding", "running block 1"),
        ("embedding", "block 1"),
    }


@pytest.mark.parametrize("unit", [{"blocks": "full"}, {"blocks": 6}, {"block_sublayers": 1}], ids=str)
def test_blocks_of_one_sublayer_read_every_earlier_output_on_its_own(unit: dict[str, Any]):
    assert layout(3, **unit) == BlockLayout((1,) * 6)
    assert [len(e["sources"]) for e in layout(3, **unit).source_lists()] == [1, 2, 3, 4, 5, 6, 7]


def simulated_sources(sizes: tuple[int, ...]) -> list[list[str]]:
    """The sources of every read, from the definition: keep a list, push a running sum when its block is full."""
    finished, found = ["embedding"], []
    for block, size in enumerate(sizes, start=1):
        for held in range(size):
            found.append([*finished, *([f"running block {block}"] if held else [])])
        finished.append(f"block {block}")
    return [*found, finished]


@given(st.integers(1, 40), st.data())
def test_sizes_add_up_and_sources_follow_from_the_definition(layers: int, data: st.DataObject):
    unit, largest = data.draw(st.sampled_from([("blocks", 2), ("block_sublayers", 2), ("block_layers", 1)]))
    found = layout(layers, **{unit: data.draw(st.integers(1, largest * layers))})
    assert sum(found.sizes) == 2 * layers
    assert min(found.sizes) >= 1
    assert [entry["sources"] for entry in found.source_lists()] == simulated_sources(found.sizes)
    reads = [(e["layer"], e["site"]) for e in found.source_lists()]
    assert reads == [*((i, site) for i in range(layers) for site in ("attention", "mlp")), (layers, "output")]


@given(st.integers(1, 40), st.integers(1, 80))
def test_a_number_of_blocks_is_kept_and_a_size_is_exceeded_by_no_block(layers: int, value: int):
    value = min(value, 2 * layers)
    by_number, by_size = layout(layers, blocks=value).sizes, layout(layers, block_sublayers=value).sizes
    assert len(by_number) == value
    assert set(by_number[:-1]) <= {2 * layers // value}
    assert set(by_size[:-1]) <= {value}
    assert by_size[-1] <= value
