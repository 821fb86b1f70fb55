"""Arms at sizes: both backbones, every mechanism of the registry, grouped queries, odd and even numbers of layers."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.strategies import DataObject, DrawFn

from paribus.mechanisms import resolve
from paribus.mechanisms.contract import MechanismConfig, Seam
from paribus.model.backbone import geometry_of
from paribus.model.config import CONFIGS, ModelConfig

Drawn = tuple[ModelConfig, dict[Seam, MechanismConfig]]
Variants = Mapping[Seam, tuple[Mapping[str, Any], ...]]
VARIANTS: Variants = {
    Seam.VALUE_MAP: (
        {"name": "own"},
        {"name": "value-embedding"},
        {"name": "value-embedding", "layers": "alternating"},
    ),
    Seam.MASK: (
        {"name": "causal"},
        {"name": "document"},
        {"name": "diagonal-mask"},
    ),
    Seam.OUTPUT_MAP: (
        {"name": "standard"},
        {"name": "xsa"},
        {"name": "xsa", "strength": 0.0},
        {"name": "xsa", "strength": "learned", "layers": "last:1"},
        {"name": "xsa", "layers": "without-value-embedding"},
        {"name": "xsa", "value": "projected", "layers": [1]},
        {"name": "xsa", "value": "embedding", "layers": [1]},
        {"name": "xsa-random-direction"},
        {"name": "xsa-wrong-token", "layers": [0]},
        {"name": "xsa-common-mode"},
        {"name": "xsa-shrink"},
        {"name": "xsa-shrink", "through_factor": False},
    ),
    Seam.ROUTING: (
        {"name": "serial"},
        {"name": "block-attnres", "blocks": 2},
        {"name": "block-attnres", "blocks": "full"},
        {"name": "block-attnres", "block_sublayers": 3},
        {"name": "role-decoupled", "blocks": 2},
        {"name": "role-decoupled", "block_layers": 1, "tied": True},
        {"name": "role-decoupled", "block_layers": 1, "routes": "q|k|v"},
        {"name": "role-decoupled", "block_layers": 1, "average": True},
        {"name": "role-decoupled", "block_layers": 1, "frozen_v": True, "frozen_qk": True},
        {"name": "role-decoupled", "block_layers": 1, "frozen_v_from": "donor"},
        {"name": "role-decoupled", "block_layers": 1, "untie_at": 0.5},
        {"name": "mlp-decoupled", "blocks": 2},
    ),
}


@st.composite
def sizes(draw: DrawFn) -> dict[str, Any]:
    """Fields of a backbone's configuration."""
    backbone = draw(st.sampled_from(["prenorm", "nanochat"]))
    kv_heads, group, head_width = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.sampled_from([4, 6, 8]))
    fields: dict[str, Any] = {
        "backbone": backbone,
        "layers": draw(st.integers(1, 5)),
        "width": kv_heads * group * head_width,
        "head_width": head_width,
        "query_heads_per_kv_head": group,
        "mlp_width": draw(st.integers(1, 30)),
        "vocabulary_size": draw(st.integers(2, 90)),
        "context_length": draw(st.integers(3, 20)),  # of two positions, what smear reads is a view and no copy
        "compute": draw(st.sampled_from(["float32", "bfloat16"])),
    }
    if backbone == "prenorm":
        return fields | {"qk_norm": draw(st.booleans())}
    return fields | {
        "value_embeddings": "none" if fields["layers"] % 2 else draw(st.sampled_from(["alternating", "none"])),
        "value_gate_channels": draw(st.integers(1, 4)),
        "smear_channels": draw(st.integers(1, 3)),
        "window_pattern": draw(st.text("SL", min_size=1, max_size=4)),
        "short_window_multiple": draw(st.integers(1, 5)),
        "vocabulary_multiple": draw(st.sampled_from([1, 8, 64])),
        "table_storage": draw(st.sampled_from(["float32", "bfloat16"])),
    }


SMALL: Mapping[str, Mapping[str, Any]] = {
    "prenorm": {},
    "nanochat": {"value_gate_channels": 4, "smear_channels": 5, "window_pattern": "SSL", "short_window_multiple": 3},
}


def each_mechanism() -> Iterator[ParameterSet]:
    """Every variant on every backbone that has what it needs, alone, at one size; beside value embeddings if it has to
    be."""
    for backbone, constants in SMALL.items():
        fields = {"layers": 4, "width": 24, "head_width": 4, "query_heads_per_kv_head": 3, "mlp_width": 20}
        fields |= {"vocabulary_size": 67, "context_length": 14, **constants}
        config = CONFIGS[backbone].model_validate({"backbone": backbone, **fields})
        for seam, table in ((seam, table) for seam, tables in VARIANTS.items() for table in tables):
            needs = "value" in table or table.get("layers") == "without-value-embedding"
            beside = {Seam.VALUE_MAP: {"name": "value-embedding", "layers": (1, 2)}} if needs else {}
            tables = {**beside, seam: table}
            arm = {s: resolve(s, dict(tables[s]) if s in tables else None, s) for s in Seam}
            if backbone in arm[seam].backbones:
                assert not any(mechanism.validate_for(geometry_of(config, arm)) for mechanism in arm.values())
                label = " ".join([backbone, *(f"{key}={value}" for key, value in table.items())])
                yield pytest.param((config, arm), id=label.replace("name=", ""))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "mechanism_on_a_backbone" in metafunc.fixturenames:
        metafunc.parametrize("mechanism_on_a_backbone", list(each_mechanism()))


TABLES = st.fixed_dictionaries({seam: st.sampled_from(tables) for seam, tables in VARIANTS.items()})


def draw_arm(data: DataObject) -> Drawn:
    """A backbone's configuration and an arm that is valid on it."""
    # Built here and not in a strategy: shapes that are checked at run time draw random numbers, which those may not.
    fields, tables = data.draw(sizes()), data.draw(TABLES)
    config = CONFIGS[fields["backbone"]].model_validate(fields)
    arm = {seam: resolve(seam, dict(table), seam) for seam, table in tables.items()}
    assume(all(config.backbone in mechanism.backbones for mechanism in arm.values()))
    geometry = geometry_of(config, arm)
    assume(not any(mechanism.validate_for(geometry) for mechanism in arm.values()))
    return config, arm


@pytest.fixture(scope="session")
def variants() -> Variants:
    return VARIANTS


@pytest.fixture(scope="session")
def arm_at_a_size() -> Callable[[DataObject], Drawn]:
    return draw_arm
