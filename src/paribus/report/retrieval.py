"""The section "Where the answer is fetched": each arm's retrieving layer and what was read in it. Descriptive only."""

from collections.abc import Sequence

from paribus.report.blocks import Absent, PageTable, Section
from paribus.report.evidence import Shown, may_tell
from paribus.report.numbers import significant
from paribus.report.of_retrieval import RetrievalRow
from paribus.report.of_tasks import asked
from paribus.report.tables import Column, Table, without_empty_columns

TITLE = "Where the answer is fetched"
_SENTENCE = (
    "For every target the task knows the token from which it can be read. The retrieving layer of an arm is the one in "
    "which a head attends most to that token from the answering places. These readings describe; none of them carries "
    "a verdict."
)
_NOTE = (
    "Means over seeds; below the layer how many seeds alone point to it, below the mass its range over them. Where the "
    "mass is small no head of the arm fetches the answer from there: it has not learned the task, or it reads a copy "
    "elsewhere. Own share: of what attention gathers, before any projection, the part along the token's own value."
)
_ROUTES = (
    " A uniform route gives the embedding one part in the number of its sources. A divergence of two routes is "
    "evidence only where it exceeds its nulls, which stand among the diagnostics."
)


def due_retrieval(found: Sequence[RetrievalRow], rows: Sequence[Shown]) -> tuple[RetrievalRow, ...]:
    """Rows of the arms whose losses may be told: attention on the answer tells how well an arm does. Their `door`."""
    return tuple(row for row in found if all(may_tell(rows, row.scale, row.arm, seed) for seed in row.seeds))


def retrieval_section(found: Sequence[RetrievalRow]) -> Section | Absent:
    """The section of rows that went through `due_retrieval`."""
    if not found:
        how = (
            "Only a synthetic task knows where its answers stand; nothing of that kind is recorded of this study, or "
            "it is not due before the planned seeds are complete."
        )
        return Absent(TITLE, how)
    table = without_empty_columns(retrieval_table(found), keep=2)
    return Section("retrieval", TITLE, (_SENTENCE,), tables=(PageTable("retrieval-1", table),))


def retrieval_table(found: Sequence[RetrievalRow]) -> Table:
    """A row an arm and slice: its retrieving layer, the mass on the answer there, and what else was read there."""
    several = len({row.scale for row in found}) > 1
    columns = (
        Column("arm"),
        Column("slice"),
        *((Column("scale"),) if several else ()),
        Column("retrieving layer", numeric=True),
        Column("on the answer", "weight of the largest head", numeric=True),
        Column("own share", "of the squared norm", numeric=True),
        Column("own value", "cosine", numeric=True),
        Column("value route", "weight on the embedding", numeric=True),
        Column("value route against query-key route", "JS, nats", numeric=True),
    )
    body = tuple(
        (
            row.arm,
            asked(row.slice),
            *((row.scale,) if several else ()),
            f"{row.layer}\n{_agreeing(row)}",
            f"{significant(row.answer_mass)}\n{_range(row)}",
            significant(row.own_share),
            significant(row.own_cosine),
            significant(row.value_route_on_embedding),
            significant(row.route_divergence_nats),
        )
        for row in found
    )
    has_routes = any(row.value_route_on_embedding is not None for row in found)
    return Table("The retrieving layer of each arm", columns, body, _NOTE + (_ROUTES if has_routes else ""))


def _agreeing(row: RetrievalRow) -> str:
    """How many seeds, each by itself, have their largest mass in the layer."""
    same = sum(layer == row.layer for layer in row.layer_of_seeds)
    return f"{same} of {len(row.layer_of_seeds)} {'seed' if len(row.layer_of_seeds) == 1 else 'seeds'}"


def _range(row: RetrievalRow) -> str:
    low, high = min(row.answer_mass_of_seeds), max(row.answer_mass_of_seeds)
    return f"{significant(low)} to {significant(high)}"
