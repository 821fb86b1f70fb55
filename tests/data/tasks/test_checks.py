"""The checks pass every task of the tree, and find what was planted."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from paribus.data.tasks import tasks
from paribus.data.tasks.carry import Carry
from paribus.data.tasks.chain import Chain
from paribus.data.tasks.checks import check_causality, check_oracle, check_readers, check_rows, check_task
from paribus.data.tasks.contract import Levels, Rows, Task, uniform_nats
from paribus.data.tasks.cross import Cross
from paribus.data.tasks.hop import Hop
from paribus.data.tasks.levels import check_levels
from paribus.data.tasks.mano import Mano
from paribus.data.tasks.readers import one_token_leak
from paribus.data.tasks.static import Static
from paribus.data.tasks.tally import Tally
from paribus.data.tasks.twin import Twin
from paribus.errors import CorpusError

CLOSED = "at least the lowest loss that `levels` declares"


class Recall(Task):
    """A key and a value, twice; then one of the two keys: its value. Correct, and small enough to plant leaks in."""

    name = "recall"
    title = "one look-up"
    sentence = "Two keys with values, then a key: name its value."
    slices = ("zero", "one")
    primary = "zero-one"
    tiny: ClassVar[Mapping[str, Any]] = {}
    tiny_row_length = 5

    @property
    def vocabulary_size(self) -> int:
        return 2 + 4

    @property
    def least_row_length(self) -> int:
        return 5

    def rows(self, seed: int, step: NDArray[np.int64], row: NDArray[np.int64], row_length: int) -> Rows:
        draws = self.draws(seed, step, row)
        order, values = draws.permutations("order", 2), 2 + draws.integers("values", 4, 2)
        asked_for = draws.integers("asked", 2)
        at = np.arange(len(order))
        shape = (len(order), row_length)
        tokens, targets = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        labels = np.zeros(shape, dtype=np.int16)
        asked, answer = np.zeros(shape, dtype=np.bool_), np.full(shape, -1, dtype=np.int64)
        tokens[:, 0:4:2], tokens[:, 1:4:2], tokens[:, 4] = order, values, order[at, asked_for]
        targets[:, 4], asked[:, 4] = values[at, asked_for], True
        labels[:, 4], answer[:, 4] = tokens[:, 4], 1 + 2 * asked_for
        return Rows(tokens, targets, asked, labels, np.zeros(shape), answer, np.zeros(shape, np.int32))

    def levels(self, row_length: int) -> Mapping[str, Levels]:  # noqa: ARG002 (the same at every length)
        entropy = 0.75 * math.log(2)  # of two values out of four: different in three rows of four
        return dict.fromkeys(self.slices, Levels(uniform_nats(4), 0.0, {"any value of the row": entropy}))

    def oracle(self, tokens: NDArray[np.int64], seed: int) -> NDArray[np.float64]:  # noqa: ARG002 (nothing is stored)
        found = np.zeros((*tokens.shape, 6))
        for r, row in enumerate(tokens.tolist()):
            found[r, 4, row[1] if row[0] == row[4] else row[3]] = 1.0
        return found


Change = Callable[[Rows], Rows]


class Planted(Recall):
    """`Recall` with something done to its rows."""

    name = "planted"
    change: ClassVar[Change] = staticmethod(lambda rows: rows)

    def rows(self, seed: int, step: NDArray[np.int64], row: NDArray[np.int64], row_length: int) -> Rows:
        return type(self).change(super().rows(seed, step, row, row_length))


def planted(change: Change) -> Task:
    return type("Changed", (Planted,), {"change": staticmethod(change), "__module__": __name__})()


def put(rows: Rows, name: str, place: int, values: Any) -> Rows:
    array = getattr(rows, name).copy()
    array[:, place] = values
    return replace(rows, **{name: array})


@pytest.mark.parametrize("name", sorted(tasks()))
def test_every_task_of_the_tree_passes(name: str) -> None:
    task = tasks()[name]()
    check_task(task, task.least_row_length + 24)


def test_the_task_that_the_leaks_are_planted_in_passes() -> None:
    check_task(Recall(), 5)
    check_task(planted(lambda rows: rows), 5)


@pytest.mark.parametrize(
    "task",
    [
        Cross(m=0, digits=4, records=2, contents=8),
        Cross(m=2, digits=3, records=2, contents=3),
        Cross(m=1, digits=3, records=3, contents=3, kind="deep-content"),
        Hop(nodes=4, names=5, hops=3, queries=1),
        Carry(nodes=3, names=3, values=2, hops=2, queries=2, by="hops"),
        Mano(modulus=5, max_operators=2),
    ],
    ids=lambda task: f"{task.name} {task.model_dump()}",
)
def test_other_small_instances_show_nothing_either(task: Task) -> None:
    check_readers(task, task.least_row_length)
    check_causality(task, task.least_row_length)


def test_a_target_that_stands_at_its_own_place_is_found() -> None:
    task = planted(lambda rows: put(rows, "tokens", 4, rows.targets[:, 4]))
    with pytest.raises(
        CorpusError, match=rf"slice '\w+' can be read off the token 0 places back: 0\.0\d nats[\s\S]*{CLOSED}"
    ):
        check_readers(task, 5)


def test_an_answer_that_stands_before_the_query_is_found() -> None:
    with pytest.raises(CorpusError, match=r"can be read off the token at place 3|the token 1 places back"):
        check_task(planted(lambda rows: put(rows, "tokens", 3, rows.targets[:, 4])), 5)


def test_an_answer_at_a_fixed_place_of_one_slice_alone_is_found() -> None:
    def answers_in_front(rows: Rows) -> Rows:
        return put(rows, "tokens", 0, np.where(rows.slice[:, 4] == 1, rows.targets[:, 4], rows.tokens[:, 0]))

    with pytest.raises(CorpusError, match=r"slice 'one' can be read off the token (4 places back|at place 0)"):
        check_readers(planted(answers_in_front), 5)


def test_an_answer_at_one_place_for_questions_at_many_is_found() -> None:
    """No fixed distance leads to it: each sees it from one of the four places only."""

    def one_answer(rows: Rows) -> Rows:
        asked, targets = np.ones_like(rows.asked), np.repeat(rows.targets[:, 4:], 5, axis=1)
        asked[:, 0] = False
        return put(replace(rows, asked=asked, targets=targets), "tokens", 0, targets[:, 0])

    with pytest.raises(CorpusError, match=r"can be read off the token at place 0: 0\.0\d nats"):
        check_readers(planted(one_answer), 5)


def test_an_answer_that_only_a_reader_of_the_slice_understands_is_found() -> None:
    """Place 0 shows the answer in one slice and the next value in the other: a coin toss for who knows no slice."""

    def coded(rows: Rows) -> Rows:
        answer = rows.targets[:, 4]
        return put(rows, "tokens", 0, np.where(rows.slice[:, 4] == 1, answer, 2 + (answer - 1) % 4))

    with pytest.raises(CorpusError, match=r"can be read off the token (4 places back|at place 0): 0\.0\d nats"):
        check_readers(planted(coded), 5)


def test_rows_shifted_by_one_place_are_found() -> None:
    """Targets taken one place late: each is the token that is read."""

    def late(rows: Rows) -> Rows:
        every = replace(rows, asked=np.ones_like(rows.asked))
        return replace(every, targets=rows.tokens.copy(), floor_nats=np.zeros(rows.tokens.shape))

    with pytest.raises(CorpusError, match="can be read off the token 0 places back"):
        check_task(planted(late), 5)


def test_an_undeclared_shortcut_is_found() -> None:
    class Unaware(Mano):
        name = "unaware"

        def levels(self, row_length: int) -> Mapping[str, Levels]:
            return {name: replace(level, shortcuts={}) for name, level in super().levels(row_length).items()}

    with pytest.raises(CorpusError, match="slice 'l0' can be read off the token 1 places back"):
        check_task(Unaware(), 64)

    class UnawareOfTheLastNumber(Mano):
        name = "unaware_of_the_last_number"

        def levels(self, row_length: int) -> Mapping[str, Levels]:
            found = super().levels(row_length)
            return {k: replace(v, shortcuts={"all": 0.0} if k == "l0" else {}) for k, v in found.items()}

    leak = one_token_leak(UnawareOfTheLastNumber(modulus=3, max_operators=1), 8)
    assert leak is not None
    assert leak.slice == "l1"
    assert leak.nats < leak.declared_nats


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: put(rows, "slice", 4, 2), r"slice that `levels` does not name[\s\S]*received: 2"),
        (lambda rows: put(rows, "slice", 4, -1), r"slice that `levels` does not name[\s\S]*received: -1"),
        (lambda rows: put(rows, "targets", 4, 6), r"`targets` lie outside the vocabulary[\s\S]*0 to 5"),
        (lambda rows: put(rows, "tokens", 0, -1), r"`tokens` lie outside the vocabulary"),
        (lambda rows: put(rows, "floor_nats", 4, -0.1), "`floor_nats` is not a loss"),
        (lambda rows: put(rows, "floor_nats", 4, np.nan), "`floor_nats` is not a loss"),
        (lambda rows: put(rows, "answer", 1, 3), "`answer` points behind the place that asks"),
        (lambda rows: put(rows, "document", 0, 1), "`document` falls along a row"),
        (lambda rows: put(rows, "asked", 4, False), "nothing is asked in rows of 5 tokens"),
        (lambda rows: replace(rows, slice=rows.targets), r"`slice` has the wrong shape or type[\s\S]*int16"),
        (lambda rows: replace(rows, tokens=rows.tokens[:, :4]), r"`tokens` has the wrong shape or type"),
        (lambda rows: put(rows, "tokens", 1, 2 + np.arange(len(rows.tokens)) % 4), "on the rows it is drawn with"),
        (lambda rows: put(replace(rows, tokens=0 * rows.tokens), "targets", 4, 0), "do not depend on the step"),
    ],
)  # fmt: skip
def test_rows_that_break_the_contract_are_refused_with_the_reason(change: Change, words: str) -> None:
    with pytest.raises(CorpusError, match=words) as refused:
        check_task(planted(change), 5)
    assert refused.value.remedy


def test_rows_that_differ_from_call_to_call_are_refused() -> None:
    calls = iter(range(10**6))
    task = planted(lambda rows: put(rows, "tokens", 1, 2 + next(calls) % 4))
    with pytest.raises(CorpusError, match=r"`tokens` of the same rows differs from call to call"):
        check_rows(task, 5)


def test_a_task_that_takes_one_step_for_all_its_rows_is_refused() -> None:
    """As it would do when batches are drawn one by one, and never when many are drawn together."""

    class OneStep(Recall):
        name = "one_step"

        def rows(self, seed: int, step: NDArray[np.int64], row: NDArray[np.int64], row_length: int) -> Rows:
            return super().rows(seed, np.broadcast_to(step[:1], step.shape), row, row_length)

    with pytest.raises(CorpusError, match="on the rows it is drawn with"):
        check_task(OneStep(), 5)


def test_a_task_that_forgets_the_seed_is_refused() -> None:
    class Seedless(Recall):
        name = "seedless"

        def rows(self, seed: int, step: NDArray[np.int64], row: NDArray[np.int64], row_length: int) -> Rows:
            return super().rows(seed * 0, step, row, row_length)

    with pytest.raises(CorpusError, match="the rows do not depend on the seed"):
        check_task(Seedless(), 5)


Numbers = NDArray[np.int64]


def renumbered(change: Callable[[Numbers, Numbers], tuple[Numbers, Numbers]]) -> Task:
    """`Recall` that draws by other numbers than those of its step and row."""

    class Renumbered(Recall):
        name = "renumbered"

        def rows(self, seed: int, step: Numbers, row: Numbers, row_length: int) -> Rows:
            return super().rows(seed, *change(step, row), row_length)

    return Renumbered()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda step, row: (step, row * 0), "all rows of step 0 are equal"),
        (lambda step, row: (step % 1000, row), "the rows of training step 1,000 are those of training step 0"),
        (lambda step, row: (step % 999, row), "the rows of training step 999 are those of training step 0"),
        (
            lambda step, row: (step.astype(np.uint32).astype(np.int64), row),
            "the rows of the validation split are those of training step 0",
        ),
        (
            lambda step, row: (np.minimum(step, 1000), row),
            "the rows of training step 1,000,000 are those of training step 1,000",
        ),
        (
            lambda step, row: (np.minimum(step, 2**40), row),
            "the rows of the test split are those of the validation split",
        ),
        (
            lambda step, row: (np.where(step >= 2**41, 1, step), row),
            "the rows of the test split are those of training step 1",
        ),
    ],
    ids=["no row", "modulo 1000", "modulo 999", "32 bits", "up to 1000", "up to 2^40", "test is step 1"],
)
def test_a_task_whose_rows_come_again_is_refused(
    change: Callable[[Numbers, Numbers], tuple[Numbers, Numbers]], what: str
) -> None:
    with pytest.raises(CorpusError, match=what):
        check_task(renumbered(change), 5)


@pytest.mark.parametrize("method", ["rows", "levels", "oracle"])
def test_an_exception_of_a_tasks_own_code_is_a_refusal_that_names_both(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(Recall):
        name = "failing"

    def breaks(*_: Any) -> None:
        raise IndexError("index 7 is out of bounds")

    monkeypatch.setattr(Failing, method, breaks)
    with pytest.raises(CorpusError, match="the task 'failing': its own code raises IndexError in `breaks`") as caught:
        check_task(Failing(), 5)
    assert caught.value.received == "IndexError: index 7 is out of bounds"
    assert isinstance(caught.value.__cause__, IndexError)


def test_a_refusal_of_the_tasks_own_is_passed_on_as_it_is() -> None:
    class Refusing(Recall):
        name = "refusing"

        def levels(self, row_length: int) -> Mapping[str, Levels]:
            raise CorpusError(f"no rows of {row_length} tokens")

    with pytest.raises(CorpusError, match=r"^no rows of 5 tokens"):
        check_task(Refusing(), 5)


def test_a_target_that_only_later_tokens_settle_is_refused() -> None:
    task = planted(lambda rows: put(put(rows, "asked", 0, True), "targets", 0, rows.tokens[:, 1]))
    with pytest.raises(CorpusError, match="target at place 0 is not settled by the tokens up to it"):
        check_causality(task, 5)


def test_asking_that_depends_on_later_tokens_is_refused() -> None:
    with pytest.raises(CorpusError, match="whether place 0 is asked depends on later tokens"):
        check_causality(planted(lambda rows: put(rows, "asked", 0, rows.tokens[:, 1] == 2)), 5)


def test_an_oracle_that_reads_ahead_is_refused() -> None:
    class Ahead(Recall):
        name = "ahead"

        def rows(self, seed: int, step: NDArray[np.int64], row: NDArray[np.int64], row_length: int) -> Rows:
            found = super().rows(seed, step, row, row_length)
            found = put(put(found, "asked", 0, True), "targets", 0, found.tokens[:, 1])
            return put(found, "floor_nats", 0, 1e-12)

        def oracle(self, tokens: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
            found = super().oracle(tokens, seed)
            found[np.arange(len(tokens)), 0, tokens[:, 1]] = 1.0
            return found

    with pytest.raises(CorpusError, match="oracle's answer at place 0 depends on later tokens"):
        check_causality(Ahead(), 5)


def test_an_oracle_that_disagrees_with_the_floor_is_refused() -> None:
    with pytest.raises(CorpusError, match=r"disagree on the target at place 4[\s\S]*0\.606531[\s\S]*received: 1"):
        check_causality(planted(lambda rows: put(rows, "floor_nats", 4, 0.5)), 5)


def test_a_task_without_an_oracle_is_checked_all_the_same() -> None:
    class Blind(Recall):
        name = "blind"

        def oracle(self, tokens: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
            raise NotImplementedError

    check_task(Blind(), 5)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ({"slices": ("zero", "zero")}, "bad names of slices"),
        ({"slices": ("all", "zero")}, "bad names of slices"),
        ({"slices": ("zero", "a-b")}, "bad names of slices"),
        ({"primary": "two"}, r"no such primary[\s\S]*'two'"),
        ({"primary": "zero-two"}, "no such primary"),
        ({"slices": ("one", "zero"), "primary": "one"}, "`levels` names other slices"),
        ({"tiny": {"size": 3}}, "unknown key"),
    ],
)
def test_a_bad_declaration_is_refused_with_the_reason(names: dict[str, Any], words: str) -> None:
    class Declared(Recall):
        name = "declared"

        def levels(self, row_length: int) -> Mapping[str, Levels]:
            return Recall().levels(row_length)

    task = type("Changed", (Declared,), {**names, "__module__": __name__})()
    with pytest.raises(CorpusError, match=words) as refused:
        check_task(task, 5)
    assert refused.value.remedy


def test_a_missing_declaration_is_named() -> None:
    class Unnamed(Task):
        pass

    with pytest.raises(CorpusError, match="no name, title, sentence, slices, primary, tiny, tiny_row_length"):
        check_task(Unnamed(), 5)


class Shift(Task):
    """Say the token that stood `distance` places before: right or wrong by its knobs, while its tiny instance is right.

    A declared shortcut gives the answer away, so nothing but what a test plants is wrong.
    """

    name = "shift"
    title = "say an earlier token"
    sentence = "Tokens are uniform; after each an earlier one is asked."
    slices = ("odd", "even")
    primary = "odd"
    tiny: ClassVar[Mapping[str, Any]] = {"symbols": 2, "distance": 2, "declared_distance": 2}
    tiny_row_length = 5

    symbols: int = 16
    distance: int = 3
    declared_distance: int = 3
    """of the shortcut; with another one the answer stands where nobody declares it"""
    constant: bool = False
    spare: int = 0
    """tokens of the vocabulary that are never used"""
    chance_choices: int = 0
    """answers that chance is declared for; 0 the right number"""
    declared_floor: float = 0.0
    oracle_distance: int = 0
    """where the oracle looks; 0 the right place"""

    @property
    def vocabulary_size(self) -> int:
        return self.symbols + self.spare

    @property
    def least_row_length(self) -> int:
        return self.distance + 1

    def rows(self, seed: int, step: NDArray[np.int64], row: NDArray[np.int64], row_length: int) -> Rows:
        tokens = self.draws(seed, step, row).integers("tokens", self.symbols, row_length)
        asked = np.broadcast_to(np.arange(row_length) >= self.distance, tokens.shape).copy()
        targets = np.where(asked & (not self.constant), np.roll(tokens, self.distance, axis=1), 0)
        labels = np.where(asked, np.arange(row_length) % 2, 0).astype(np.int16)
        nothing = np.full(tokens.shape, -1)
        return Rows(
            tokens, targets, asked, labels, np.zeros(tokens.shape), nothing, np.zeros(tokens.shape, dtype=np.int32)
        )

    def levels(self, row_length: int) -> Mapping[str, Levels]:  # noqa: ARG002 (the same at every length)
        known = {"the one token": 0.0} if self.declared_distance == self.distance else {}
        return dict.fromkeys(
            self.slices, Levels(uniform_nats(self.chance_choices or self.symbols), self.declared_floor, known)
        )

    def oracle(self, tokens: NDArray[np.int64], seed: int) -> NDArray[np.float64]:  # noqa: ARG002 (nothing is stored)
        found = np.zeros((*tokens.shape, self.vocabulary_size))
        back = self.oracle_distance or self.distance
        for t in range(self.distance, tokens.shape[1]):
            found[np.arange(len(tokens)), t, 0 if self.constant else tokens[:, t - back]] = 1.0
        return found


def test_the_task_that_wrong_knobs_are_planted_in_passes() -> None:
    check_task(Shift(), 32)
    check_task(Shift(symbols=512, spare=100), 32)


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"constant": True}, r"every target is the token 0[\s\S]*two different answers"),
        ({"spare": 48, "chance_choices": 64}, r"chance on slice 'odd'[\s\S]*expected: 2\.7\d\d nats[\s\S]*4\.159"),
        ({"chance_choices": 20}, r"chance on slice 'odd'[\s\S]*expected: 2\.7\d\d nats[\s\S]*2\.996"),
        ({"chance_choices": 14}, r"chance on slice 'odd'[\s\S]*expected: 2\.7\d\d nats[\s\S]*2\.639"),
        ({"chance_choices": 1}, r"on slice 'odd' there is nothing to learn"),
        ({"declared_floor": 0.5}, r"the floor of slice 'odd'[\s\S]*expected: 0\.000[\s\S]*received: 0\.500"),
        ({"declared_distance": 2}, r"a target can be read off the token 3 places back: 0\.\d\d nats[\s\S]*2\.77"),
        ({"oracle_distance": 2}, r"oracle and `floor_nats` disagree[\s\S]*probability 1[\s\S]*received: 0"),
    ],
)  # fmt: skip
def test_what_only_the_real_knobs_do_wrong_is_refused_with_both_numbers(knobs: dict[str, Any], words: str) -> None:
    with pytest.raises(CorpusError, match=words) as refused:
        check_task(Shift(**knobs), 32)
    assert refused.value.remedy


def test_a_shortcut_of_one_slice_that_only_the_real_knobs_have_is_found() -> None:
    """The slice is seen by the token before: each is held against its own levels."""

    class UnawareOfRawKeys(Cross):
        name = "unaware_of_raw_keys"

        def levels(self, row_length: int) -> Mapping[str, Levels]:
            found = super().levels(row_length)
            return found if self.m else {**found, "QS": replace(found["QS"], shortcuts={})}

    check_task(UnawareOfRawKeys(m=1), 32)
    with pytest.raises(CorpusError, match=r"slice 'QS' can be read off the token 0 places back: 0\.\d\d nats"):
        check_task(UnawareOfRawKeys(m=0), 24)


def test_a_slice_that_only_many_rows_show_needs_levels_too() -> None:
    """Two rows in a hundred: the two dozen that are looked at first need not hold one."""

    class Rare(Shift):
        name = "rare"
        slices = ("odd", "even", "rare")

        def rows(self, seed: int, step: NDArray[np.int64], row: NDArray[np.int64], row_length: int) -> Rows:
            found = super().rows(seed, step, row, row_length)
            rare = self.draws(seed, step, row).uniform("rare") < 0.02
            return put(found, "slice", row_length - 1, np.where(rare, 2, found.slice[:, -1]))

        def levels(self, row_length: int) -> Mapping[str, Levels]:
            return {name: Shift().levels(row_length)[name] for name in ("odd", "even")}

    with pytest.raises(CorpusError, match=r"slice that `levels` does not name[\s\S]*received: 2 \('rare'\)"):
        check_levels(Rare(), 32)


@pytest.mark.parametrize(
    ("task", "row_length"),
    [
        (Cross(m=0), 24),
        (Cross(m=2, digits=7, records=5, contents=24), 25),
        (Cross(kind="deep-content"), 32),
        (Carry(by="hops"), 36),
        (Chain(order=2, states=6), 128),
        (Hop(names=512), 64),
        (Static(), 16),
        # Slices by the answer: chance is pooled, on the rarest above the logarithm of the vocabulary.
        (Tally(symbols=8, classes=8), 64),
        (Tally(symbols=8), 24),
        (Tally(symbols=128), 64),
        (Tally(anchor=True), 64),
        (Twin(overlap="never"), 64),
        (Twin(overlap="split"), 64),
        (Twin(), 256),
    ],
    ids=lambda value: f"{value.name} {value.model_dump()}" if isinstance(value, Task) else str(value),
)
def test_levels_and_oracle_of_other_knobs_and_lengths_hold(task: Task, row_length: int) -> None:
    check_levels(task, row_length)
    check_oracle(task, row_length)


def test_an_oracle_that_holds_no_probabilities_is_refused() -> None:
    class Sure(Recall):
        name = "sure"

        def oracle(self, tokens: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
            return np.ones_like(super().oracle(tokens, seed))

    with pytest.raises(CorpusError, match=r"no probabilities[\s\S]*received: sums of 6 to 6"):
        check_task(Sure(), 5)


def test_a_method_that_is_missing_is_named() -> None:
    class Half(Recall):
        name = "half"
        rows = Task.rows
        levels = Task.levels

    with pytest.raises(CorpusError, match="no rows, levels"):
        check_task(Half(), 5)
