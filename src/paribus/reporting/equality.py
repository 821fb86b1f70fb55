"""What the arms share, and how that was proven: batches, initial values, updates, A/A repeats, gates."""

from paribus.experiment import spec
from paribus.reading.cell import ReadCell
from paribus.reading.study import ReadStudy
from paribus.report.content import HeldEqual


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
            proof = "trained twice: final tensors " + ("bit-identical" if same else "differ")
            found.append(HeldEqual(f"A/A repeat of {'/'.join(map(str, key[:3]))}", proof, same))
    gates = (
        HeldEqual(f"{gate['subject']}: {gate['name']}", gate["detail"], gate["passed"], gate=True)
        for gate in study.plan["gates"]
    )
    return [*found, *gates]


def complete_groups(study: ReadStudy, contrast: spec.Contrast) -> list[list[ReadCell]]:
    """The cells of the contrast's arms, in the order of its formula, at each seed where all are complete."""
    scale = study.experiment.contrast_scale(contrast)
    groups = [
        [study.cells[scale, arm, seed, spec.STUDY] for arm in contrast.arms] for seed in study.experiment.seeds.numbers
    ]
    return [group for group in groups if all(cell.state == "complete" for cell in group)]
