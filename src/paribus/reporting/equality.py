"""What the arms share, and how that was proven: batches, initial values, updates, A/A repeats, gates."""

import math
from collections.abc import Iterator

from paribus.experiment import spec
from paribus.reading.cell import ReadCell
from paribus.reading.study import ReadStudy
from paribus.report.content import HeldEqual
from paribus.stats.paired import t_interval

FEWEST_SEEDS = 3
"""at which a mode is compared with the other"""


def held_equal(study: ReadStudy) -> list[HeldEqual]:
    found = []
    for name, contrast in study.experiment.contrasts.items():
        groups = complete_groups(study, contrast)
        if not groups:
            continue
        of = f"in {{}} of {len(groups)} " + ("pairs" if len(contrast.arms) == 2 else "seeds")
        batches, steps = (
            sum(len({cell.summary.get(what) for cell in group}) == 1 for group in groups)
            for what in ("batch_digest", "steps")
        )
        found.append(
            HeldEqual(
                f"{name}: training batches, in order",
                "digest of every batch as the model consumed it, equal " + of.format(batches),
                batches == len(groups),
            )
        )
        # Every second arm of the formula is what the arm before it is compared with.
        initial = [
            [(t.record["initial_digests"], b.record["initial_digests"]) for t, b in zip(g[::2], g[1::2], strict=True)]
            for g in groups
        ]
        same = sum(all(b.items() <= t.items() for t, b in pairs) for pairs in initial)
        tensors = " and ".join(f"{len(b)}" for _, b in initial[0])
        found.append(
            HeldEqual(
                f"{name}: initial values of the baseline's {tensors} tensors",
                "digest of each tensor at step 0, equal " + of.format(same),
                same == len(groups),
            )
        )
        equal = HeldEqual(f"{name}: optimiser updates", "counted, equal " + of.format(steps), steps == len(groups))
        found.append(equal)
    for key, cell in study.cells.items():
        if key[3] != spec.REPEAT:
            continue
        original = study.cells[(*key[:3], spec.STUDY)]
        if cell.state == original.state == "complete":
            same = cell.summary["final_tensors_digest"] == original.summary["final_tensors_digest"]
            if study.experiment.execution.mode == "fast" and not same:
                continue  # nobody said that they would be; how far they are apart is among the noise
            proof = "trained twice: final tensors " + ("bit-identical" if same else "differ")
            found.append(HeldEqual(f"A/A repeat of {'/'.join(map(str, key[:3]))}", proof, same))
    found += _modes(study)
    gates = (
        HeldEqual(f"{gate['subject']}: {gate['name']}", gate["detail"], gate["passed"], gate=True)
        for gate in study.plan["gates"]
    )
    return [*found, *gates]


def _modes(study: ReadStudy) -> Iterator[HeldEqual]:
    """In fast mode, whether each arm equals itself in proof mode within a quarter of the smallest effect that is asked
    of it (rules, section 4): two one-sided t tests at 5 %, which is the 90 % interval inside the bound."""
    if study.experiment.execution.mode != "fast":
        return
    planned = study.experiment.noise.proof_seeds
    wanted = f"at least {FEWEST_SEEDS} are wanted (noise.proof_seeds)"
    if planned < FEWEST_SEEDS:
        yield HeldEqual("every arm: fast and proof mode", f"trained in both at {planned} seeds, {wanted}", False)
        return
    for (scale, arm, metric), margin in _margins(study).items():
        what, differences = (
            f"{scale}/{arm}: {metric} in fast and proof mode",
            mode_differences(study, scale, arm, metric),
        )
        if len(differences) < FEWEST_SEEDS:
            yield HeldEqual(what, f"complete in both at {len(differences)} seeds, {wanted}", False)
            continue
        same = len(set(differences)) == 1  # of no spread, and so of no t interval
        low, high = (differences[0],) * 2 if same else t_interval(differences, confidence=0.9)
        bound = margin / 4
        proof = (
            f"fast minus proof at {len(differences)} seeds: 90 % interval {low:+.2g} to {high:+.2g}, a quarter of the "
            f"smallest effect is {bound:.2g}"
        )
        yield HeldEqual(what, proof, -bound < low and high < bound)


def _margins(study: ReadStudy) -> dict[tuple[str, str, str], float]:
    """The least of the smallest effects that contrasts ask of an arm, by (scale, arm, metric)."""
    found: dict[tuple[str, str, str], float] = {}
    for contrast in study.experiment.contrasts.values():
        for arm in contrast.arms:
            key = (study.experiment.contrast_scale(contrast), arm, contrast.metric)
            found[key] = min(contrast.smallest_effect, found.get(key, math.inf))
    return found


def mode_differences(study: ReadStudy, scale: str, arm: str, metric: str) -> list[float]:
    """Fast minus proof at each seed where both are complete, in the metric's unit."""
    found = []
    for seed in study.experiment.seeds.numbers:
        proof = study.cells.get((scale, arm, seed, spec.PROOF))
        fast = study.cells.get((scale, arm, seed, spec.STUDY))
        values = [None if cell is None else cell.final(metric) for cell in (fast, proof)]
        if values[0] is not None and values[1] is not None:
            found.append(values[0] - values[1])
    return found


def complete_groups(study: ReadStudy, contrast: spec.Contrast) -> list[list[ReadCell]]:
    """The cells of the contrast's arms, in the order of its formula, at each seed where all are complete."""
    scale = study.experiment.contrast_scale(contrast)
    groups = [
        [study.cells[scale, arm, seed, spec.STUDY] for arm in contrast.arms] for seed in study.experiment.seeds.numbers
    ]
    return [group for group in groups if all(cell.state == "complete" for cell in group)]
