"""`ledger`: facts that only training can teach, the negative control.

Source: our own, in the spirit of the capacity studies of Allen-Zhu and Li (Physics of Language Models 3.3, arXiv
2404.05405): knowledge is counted in bits.

One table for each seed maps (subject, relation) to an object, every entry independent and uniform. A row is facts
[subject, relation, object] with uniform subject and relation; at the relation the object is asked for, and it follows
as the next token. Rows of training and of evaluation share the table of their seed: nothing in a row tells the answer,
and what a model knows of it, it stored. Each fact is one document; what is left of the row is padding.

Chance: ln objects. Floor 0. Shortcuts, in expectation over tables: what the relation alone, or the subject alone, says
of the object once their frequencies are learned, E ln(n / c) with n keys behind one symbol and c = 1 + Binomial(n - 1,
1 / objects) of them with the same object; and repeating the object of a key that came before in the same row while
knowing nothing else, which is ln objects times the share of new keys (0.7 % below chance at 16 facts among 1,024 keys).
One slice, `fact`.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from paribus.data.tasks.carry import expected_entropy_nats
from paribus.data.tasks.contract import Learnt, Levels, Rows, Task, uniform_nats
from paribus.data.tasks.hashing import Draws
from paribus.data.tasks.padding import refuse_short

_TABLE_STEP = -1
"""no batch has this step: the table's numbers belong to no row"""


class Ledger(Task):
    """Storing a table of facts."""

    name = "ledger"
    title = "storing facts"
    sentence = "Facts [subject, relation, object] of a table that is fixed for the seed: name the object."
    slices = ("fact",)
    primary = "fact"
    tiny: ClassVar[Mapping[str, Any]] = {"subjects": 3, "relations": 2, "objects": 3}
    tiny_row_length = 9

    subjects: Annotated[int, Field(ge=1, le=65536)] = 64
    """how many subjects, 1 to 65,536"""
    relations: Annotated[int, Field(ge=1, le=4096)] = 16
    """how many relations, 1 to 4,096"""
    objects: Annotated[int, Field(ge=2, le=4096)] = 32
    """how many objects, 2 to 4,096"""

    @property
    def vocabulary_size(self) -> int:
        """Subjects, relations, objects, in this order."""
        return self.subjects + self.relations + self.objects

    @property
    def least_row_length(self) -> int:
        return 3

    def table(self, seed: int) -> NDArray[np.int64]:
        """The object of each key, counted from 0, `[subject relation]`: a function of the seed alone."""
        draws = Draws.of(seed, np.array([_TABLE_STEP]), np.array([0]))
        return draws.integers("table", self.objects, self.subjects, self.relations)[0]

    def rows(self, seed: int, step: NDArray[np.int64], row: NDArray[np.int64], row_length: int) -> Rows:
        refuse_short(self, row_length)
        draws, facts = self.draws(seed, step, row), row_length // 3
        subject = draws.integers("subjects", self.subjects, facts)
        relation = draws.integers("relations", self.relations, facts)
        first_object = self.subjects + self.relations
        object_ = first_object + self.table(seed)[subject, relation]

        shape = (len(subject), row_length)
        tokens, targets, asked = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.bool_)
        end = 3 * facts
        tokens[:, 0:end:3], tokens[:, 1:end:3], tokens[:, 2:end:3] = subject, self.subjects + relation, object_
        targets[:, 1:end:3], asked[:, 1:end:3] = object_, True
        return Rows(
            tokens=tokens,
            targets=targets,
            asked=asked,
            slice=np.zeros(shape, np.int16),
            floor_nats=np.zeros(shape),
            answer=np.full(shape, -1, np.int64),
            document=np.broadcast_to((np.arange(row_length) // 3).astype(np.int32), shape).copy(),
        )

    def levels(self, row_length: int) -> Mapping[str, Levels]:
        refuse_short(self, row_length)
        chance, facts = uniform_nats(self.objects), row_length // 3
        new = 1.0 - 1.0 / (self.subjects * self.relations)
        shortcuts = {
            "the relation alone": expected_entropy_nats(self.subjects, self.objects),
            "the subject alone": expected_entropy_nats(self.relations, self.objects),
            "repeating facts of the row": chance * math.fsum(new**before for before in range(facts)) / facts,
        }
        return {"fact": Levels(chance=chance, floor=0.0, shortcuts=shortcuts)}

    def learnt(self) -> Mapping[str, Learnt]:
        """Bits of the table: keys * (log2 objects - loss / ln 2)."""
        keys = self.subjects * self.relations
        return {"fact": Learnt("bits of the table", keys * math.log2(self.objects), keys / math.log(2.0))}

    def oracle(self, tokens: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
        probability = np.zeros((*tokens.shape, self.vocabulary_size))
        table = self.table(seed).tolist()
        for r, row in enumerate(tokens.tolist()):
            for t in range(1, len(row) - len(row) % 3, 3):
                object_ = table[row[t - 1]][row[t] - self.subjects]
                probability[r, t, self.subjects + self.relations + object_] = 1.0
        return probability
