"""In which order the conversations of a mixture come. A pure function of the mixture's parts and, where it is drawn, of
(study, scale, seed): never of the arm, nor of rates, so that two ways to fine-tune a cell are paired as well."""

import random

import numpy as np
from numpy.typing import NDArray

from paribus.downstream.chat.dataset import NANOCHAT_SEED, ChatData
from paribus.downstream.chat.mixture import Mixture
from paribus.seeds import generator


def mixed_order(data: ChatData, mixture: Mixture, *, study: str, scale: str, seed: int) -> NDArray[np.int64]:
    """Numbers of the conversations to train on, one entry for each time that each is in the mixture.

    All chosen rows are put in order, usable or not, and those that are not conversations to train on (held out, left
    out) are taken out of it afterwards: the order of the others does not depend on them.
    """
    numbers = [_by_place(data, part, facts.chosen) for part, facts in enumerate(data.facts)]
    entries = [numbers[place] for place, part in enumerate(mixture.parts) for _ in range(part.epochs)]
    slots = np.concatenate(entries) if entries else np.zeros(0, np.int64)
    if mixture.order == "nanochat":
        shuffled = list(range(len(slots)))
        random.Random(NANOCHAT_SEED).shuffle(shuffled)
        permutation = np.array(shuffled, dtype=np.int64)
    else:
        permutation = generator(study, scale, seed, "finetune", mixture.parts_digest, "order").permutation(len(slots))
    ordered = slots[permutation]
    ordered = ordered[ordered >= 0]
    return ordered[~data.held_out[ordered]]


def _by_place(data: ChatData, part: int, chosen: int) -> NDArray[np.int64]:
    """`[place]`: number of the conversation of each chosen row; -1 where there is none."""
    found = np.full(chosen, -1, dtype=np.int64)
    own = np.flatnonzero(data.part == part)
    found[data.place[own]] = own
    return found
