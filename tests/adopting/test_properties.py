"""Whatever lies in a folder: one clear error or a complete answer, and never a win that the rule does not give."""

import io
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from paribus.adopting.conclude import conclude
from paribus.adopting.findings import Severity
from paribus.adopting.page import content
from paribus.adopting.showing import describe, describe_json
from paribus.errors import ParibusError

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.5, 0.51, float("nan"), float("inf"), -1e308, 1e308, 5e-324]),
    st.sampled_from(["", "plain", "trick", "0.5", "nan", "[red]"]),
)
LOSSES = st.one_of(st.floats(0.5, 1.0), st.sampled_from([0.75, float("nan"), float("inf"), None, "n/a"]))
PAIRS = st.lists(st.tuples(LOSSES, LOSSES), max_size=5)
ODD_FIELDS = st.dictionaries(st.sampled_from(["lr", "host", "model", "train.wall", "other"]), VALUES, max_size=1)
ODD = st.one_of(VALUES, st.dictionaries(st.sampled_from(["arm", "seed", "val_bpb", "train"]), VALUES))


@st.composite
def foreign_records(draw: st.DrawFn) -> list[Any]:
    """Pairs by seed, now and then with a field that is odd, and records that are no runs at all."""
    pairs = draw(PAIRS)
    found: list[Any] = []
    for seed, losses in enumerate(pairs):
        for arm, loss in zip(("plain", "trick"), losses, strict=True):
            odd = draw(ODD_FIELDS) if draw(st.integers(0, 9)) == 0 else {}
            found.append({"arm": arm, "seed": seed, "val_bpb": loss, "lr": 0.1, **odd})
    return found + draw(st.lists(ODD, max_size=2))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(foreign_records(), st.sampled_from([None, 1, 3]), st.booleans())
def test_any_records_give_an_answer_or_one_error(foreign, records: list[Any], planned: int | None, noisy: bool) -> None:
    noise = {"noise_sd": 0.01, "noise_source": "somewhere"} if noisy else {}
    changes: dict[str, Any] = {"metrics": {"loss": noise}}
    if planned is not None:
        changes["planned_seeds"] = planned
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "runs.json").write_text(json.dumps(records), encoding="utf-8")
        try:
            adopted = conclude(Path(folder), foreign.mapping(changes, without=["columns.scale"]))
        except ParibusError:
            return
    describe(adopted, Console(file=io.StringIO(), width=120))
    json.dumps(describe_json(adopted), allow_nan=False)
    content(adopted)
    assert len(adopted.runs) + len(adopted.left) == len(records), "every record is a run or is named"
    for outcome in adopted.outcomes:
        blocking = [
            f for f in adopted.findings if f.contrast == outcome.compared.name and f.severity is Severity.NOTHING
        ]
        assert (outcome.verdict is None) == bool(blocking)
        assert [f.sentence for f in blocking] == list(outcome.reasons)
        if outcome.verdict is not None and outcome.differences.pairs <= 2:
            assert not outcome.verdict.word.not_zero
