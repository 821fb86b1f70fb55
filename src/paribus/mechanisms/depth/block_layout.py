"""How sublayers form blocks, and which sources each depth read therefore mixes (Block Attention Residuals, 2603.15031).

b_0 is the embedding and b_n the sum of block n's sublayer outputs. A sublayer reads every finished b, and the running
sum of its own block once that holds something; the output reads all of them. A sublayer is an attention or an MLP.

Implementations count blocks in three units (the paper's listing: sublayers in a block; Kimi K3 and Megatron: layers in
a block; the paper's text: number of blocks), which is how two "block size 6" differ by a factor of two. So a
configuration names its unit, and `BlockLayout.source_lists` is what goes on record. A number of blocks N gives each
floor(sublayers / N) sublayers and the remainder to the last; a size gives a shorter last block.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from paribus.mechanisms.contract import Geometry, MechanismConfig, Site

EMBEDDING = "embedding"
LARGEST_EPS = 1e-6
"""of a norm, beside the mean square of a stream"""


@dataclass(frozen=True)
class BlockLayout:
    """Sublayers of each block, in order."""

    sizes: tuple[int, ...]

    @classmethod
    def of_blocks(cls, sublayers: int, blocks: int) -> "BlockLayout":
        """N blocks of floor(sublayers / N); the remainder goes to the last."""
        size = sublayers // blocks
        return cls((*[size] * (blocks - 1), sublayers - size * (blocks - 1)))

    @classmethod
    def of_size(cls, sublayers: int, size: int) -> "BlockLayout":
        """Blocks of `size` sublayers; a remainder forms a shorter last block."""
        whole, rest = divmod(sublayers, size)
        return cls((*[size] * whole, *([rest] if rest else [])))

    @property
    def sublayers(self) -> int:
        return len(self._blocks)

    @cached_property
    def _blocks(self) -> tuple[int, ...]:
        return tuple(block for block, size in enumerate(self.sizes) for _ in range(size))

    def block_of(self, sublayer: int) -> int:
        """Block (from 0) of a sublayer (from 0)."""
        return self._blocks[sublayer]

    def ends_block(self, sublayer: int) -> bool:
        """Is this sublayer the last of its block?"""
        return sublayer + 1 == self.sublayers or self._blocks[sublayer + 1] != self._blocks[sublayer]

    def sources(self, sublayer: int) -> tuple[str, ...]:
        """Names of the sources that a sublayer reads, oldest first; `sublayer == sublayers` is the output read."""
        if sublayer == self.sublayers:
            return (EMBEDDING, *(f"block {n}" for n in range(1, len(self.sizes) + 1)))
        block = self.block_of(sublayer)
        running = sublayer > 0 and not self.ends_block(sublayer - 1)
        finished = [f"block {n}" for n in range(1, block + 1)]
        return (EMBEDDING, *finished, *([f"running block {block + 1}"] if running else []))

    def reads(self) -> list[tuple[int, Site, tuple[str, ...]]]:
        """(layer, site, sources) of every read in order."""
        sites = [(s // 2, Site.MLP if s % 2 else Site.ATTENTION) for s in range(self.sublayers)]
        return [
            (layer, site, self.sources(sublayer))
            for sublayer, (layer, site) in enumerate([*sites, (self.sublayers // 2, Site.OUTPUT)])
        ]

    def source_lists(self) -> list[dict[str, Any]]:
        """The reads as they go on record."""
        return [{"layer": layer, "site": str(site), "sources": list(sources)} for layer, site, sources in self.reads()]


class BlockedConfig(MechanismConfig):
    """A routing over blocks: exactly one field says how large they are."""

    example: ClassVar[Mapping[str, Any]] = {"blocks": 3}

    blocks: Annotated[int, Field(ge=1)] | Literal["full"] | None = None
    """number of blocks N, 1 to 2 * layers, the remainder goes to the last; "full" makes every sublayer a block"""
    block_sublayers: Annotated[int, Field(ge=1)] | None = None
    """sublayers (attention or MLP) in a block, 1 to 2 * layers; a remainder forms a shorter last block"""
    block_layers: Annotated[int, Field(ge=1)] | None = None
    """Transformer layers in a block, 1 to layers: twice as many sublayers; a remainder forms a shorter last block"""

    @field_validator("blocks", mode="before")
    @classmethod
    def _number_or_full(cls, value: object) -> object:
        if value is not None and value != "full" and (type(value) is not int or value < 1):
            raise ValueError(f"not a number of blocks: {value!r} (valid: 1 to 2 * layers, or 'full')")
        return value

    @model_validator(mode="after")
    def _one_unit(self) -> "BlockedConfig":
        given = list(self.block_fields())
        if len(given) != 1:
            raise ValueError(
                "give the blocks in exactly one of 'blocks' (their number, or 'full'), 'block_sublayers' or "
                f"'block_layers' (their size); received {' and '.join(given) or 'none'}"
            )
        return self

    def block_fields(self) -> dict[str, int | str]:
        """The one field that says how large blocks are, as a table."""
        fields = {name: getattr(self, name) for name in ("blocks", "block_sublayers", "block_layers")}
        return {name: value for name, value in fields.items() if value is not None}

    def layout(self, geometry: Geometry) -> BlockLayout:
        """The blocks of this geometry."""
        if self.block_sublayers is not None:
            return BlockLayout.of_size(geometry.sublayers, self.block_sublayers)
        if self.block_layers is not None:
            return BlockLayout.of_size(geometry.sublayers, 2 * self.block_layers)
        blocks = geometry.sublayers if self.blocks in ("full", None) else self.blocks
        return BlockLayout.of_blocks(geometry.sublayers, int(blocks))

    def validate_for(self, geometry: Geometry) -> str | None:
        [(name, value)] = self.block_fields().items()
        unit, largest = ("layers", geometry.layers) if name == "block_layers" else ("sublayers", geometry.sublayers)
        if isinstance(value, int) and value > largest:
            return f"{name} = {value} exceeds the {largest} {unit}: valid are 1 to {largest}"
        if geometry.norm_eps > LARGEST_EPS:
            # A mean of K sources is the stream over K: an eps that counts beside it makes step 0 another model's.
            return f"norm_eps = {geometry.norm_eps:g} exceeds {LARGEST_EPS:g}, with which step-0 parity would break"
        return None
