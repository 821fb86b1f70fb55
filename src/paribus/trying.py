"""`paribus try`: the loop while writing an idea. Gates, a few steps beside the baseline, speed, and what taps show.

Both arms share initial values and batches. Their steps alternate, so that a slow moment of the machine hits both.
Nothing is written into a study: its corpus is read where it has one, and the declared one is prepared in the store
otherwise. Losses of a trial are no evidence: one seed, a few steps.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any

from rich.console import Console

from paribus import mechanisms
from paribus.checking import gate_table, require_gates, run_jobs
from paribus.data.frozen import FrozenCorpus
from paribus.data.material import Material, batches_of
from paribus.data.progress import Progress, silent
from paribus.errors import DivergenceError, ParibusError
from paribus.experiment.gate import Gate
from paribus.experiment.gates import arm_gates
from paribus.experiment.plan import ArmAtScale, device_of
from paribus.experiment.trial import Trial
from paribus.measure.probes import ALL, Reading, probe
from paribus.measuring import probing_batches
from paribus.model.build import build_model
from paribus.runs.study_folder import StudyFolder
from paribus.study import held_out_for, prepare_process, task_corpus
from paribus.terminal import live_trial, steps_of_preparation, table
from paribus.texts import prepared, recorded, require_declared, require_texts
from paribus.train.loop import RunLength, StepFinished, train
from paribus.train.state import TrainState

UNTIMED_STEPS = 3
"""first steps of each arm that warm caches and are left out of the tokens per second"""
GROUPS_SHOWN = 2
"""rows of a diagnostic; "(+3)" behind the last counts those that only --json has"""
INTERRUPTED = "interrupted"
NO_EVIDENCE = "no evidence: one seed, few steps, training batches"


@dataclass(frozen=True)
class Step:
    """One update of each arm: loss in nats per token before it, and its duration."""

    step: int
    loss: float
    baseline_loss: float
    seconds: float
    baseline_seconds: float


@dataclass
class Outcome:
    """What a trial found; `ended` says why it has fewer steps than asked for."""

    arm: str
    baseline: str
    seed: int
    batch_tokens: tuple[int, int]
    steps: list[Step] = field(default_factory=list)
    ended: str = ""
    readings: dict[str, list[Reading]] = field(default_factory=dict)
    """of the arm's mechanisms' diagnostics, by arm"""

    def tokens_per_second(self) -> tuple[float, float]:
        """Of the arm and of the baseline: the median step, without the first ones where there are enough."""
        timed = self.steps[UNTIMED_STEPS:] or self.steps
        seconds = (median(s.seconds for s in timed), median(s.baseline_seconds for s in timed))
        return self.batch_tokens[0] / seconds[0], self.batch_tokens[1] / seconds[1]

    def last_losses(self) -> tuple[float, float]:
        """Mean loss of the arm and of the baseline over the last fifth of the steps."""
        last = self.steps[-max(1, len(self.steps) // 5) :]
        return fmean(s.loss for s in last), fmean(s.baseline_loss for s in last)


def try_arm(trial: Trial, runs: Path, console: Console) -> tuple[list[Gate], Outcome]:
    """The gates of the arm, which must pass, then the trial. Says on the console what it does while it does it."""
    found = run_jobs(_gates(trial), console)
    if not all(gate.passed for gate in found):
        console.print(gate_table(found))
    require_gates(found, trial.arm.arm)
    console.print(f"all {len(found)} gates of {trial.arm.arm} passed", highlight=False)
    with steps_of_preparation(console) as progress:
        corpus = trial_corpus(trial, runs, progress)
    where = f"corpus: {corpus.folder}" if isinstance(corpus, FrozenCorpus) else f"task: {corpus.task.sentence}"
    console.print(where, highlight=False, soft_wrap=True)
    with live_trial(console, trial.steps, (trial.arm.arm, trial.baseline.arm)) as show:
        return found, run_trial(trial, corpus, lambda step: show(step.step, step.loss, step.baseline_loss))


def _gates(trial: Trial) -> list[Callable[[], Gate]]:
    prepare_process(trial.experiment.execution)
    return arm_gates(trial.experiment, {(trial.arm.scale, trial.arm.arm): trial.arm})


def trial_corpus(trial: Trial, runs: Path, progress: Progress = silent) -> Material:
    """The task; or the corpus that the study was planned with; or the declared one, prepared where it is missing."""
    base = trial.experiment.base
    if base.task is not None:
        return task_corpus(base)
    try:
        frozen = recorded(runs, StudyFolder(runs / trial.experiment.study))
        if frozen is not None:
            require_declared(frozen, base, trial.folder, runs)
            return frozen
    except ParibusError:
        pass  # none that can be used: the study itself will say so
    require_texts(base, trial.folder)  # a wrong path is an error before anything is written
    return prepared(base, trial.folder, runs, progress)


def run_trial(trial: Trial, corpus: Material, on_step: Callable[[Step], None]) -> Outcome:
    """Train both arms step by step, then read the arm's diagnostics on validation documents.

    An interrupt or a divergence ends the training; what there is until then is returned.
    """
    prepare_process(trial.experiment.execution)
    arms = (trial.arm, trial.baseline)
    batch_tokens = (trial.arm.base.batch_tokens, trial.baseline.base.batch_tokens)
    outcome = Outcome(trial.arm.arm, trial.baseline.arm, trial.seed, batch_tokens)
    states = [_fresh(trial, arm) for arm in arms]
    updates = [_updates(trial, arm, state, corpus) for arm, state in zip(arms, states, strict=True)]
    try:
        for number in range(1, trial.steps + 1):
            first = number % 2  # neither arm always runs on the caches that the other left
            done = {which: next(updates[which]) for which in (first, 1 - first)}
            step = Step(
                number,
                done[0].loss_nats_per_token,
                done[1].loss_nats_per_token,
                done[0].wall_seconds,
                done[1].wall_seconds,
            )
            outcome.steps.append(step)
            on_step(step)
        for arm, state in zip(arms, states, strict=True):
            outcome.readings[arm.arm] = _readings(trial, state, corpus)
    except KeyboardInterrupt:
        outcome.ended = INTERRUPTED
    except DivergenceError as error:
        which = next(arm.arm for arm, state in zip(arms, states, strict=True) if state.step > len(outcome.steps))
        outcome.ended = f"{which}: {error.what}"
    return outcome


def _fresh(trial: Trial, arm: ArmAtScale) -> TrainState:
    model = build_model(arm.model, arm.seam_configs, (trial.experiment.study, arm.scale, trial.seed))
    return TrainState.fresh(model.to(device_of(trial.experiment.execution)), arm.base.optimiser)


def _updates(trial: Trial, arm: ArmAtScale, state: TrainState, corpus: Material) -> Iterator[StepFinished]:
    rows = arm.base.batch_tokens // arm.base.context_length
    study = trial.experiment.study
    order = batches_of(corpus, arm.base.context_length, rows, study=study, scale=arm.scale, seed=trial.seed)
    order.require(trial.steps)
    # A whole schedule in a few steps: the first steps of a long run would be all warm-up.
    length = RunLength(trial.steps * arm.base.batch_tokens, arm.base.batch_tokens)
    micro_batch_rows = trial.experiment.execution.declared_rows or rows
    for event in train(state, order, length, arm.base.schedule, micro_batch_rows):
        if isinstance(event, StepFinished):
            yield event


def _readings(trial: Trial, state: TrainState, corpus: Material) -> list[Reading]:
    held_out = held_out_for(corpus, trial.arm, trial.experiment.study, trial.arm.scale, trial.seed)
    probed = held_out("validation", trial.arm.base.evaluation.probe_tokens)
    batches = probing_batches(probed, next(state.model.parameters()).device)
    return [r for r in probe(state.model, batches, mechanisms.all_diagnostics()) if r.bucket == ALL]


def show_outcome(outcome: Outcome, trial: Trial, console: Console) -> None:
    """Losses side by side, tokens per second, and the diagnostics."""
    if outcome.ended:
        console.print(f"ended after {len(outcome.steps)} of {trial.steps} steps: {outcome.ended}", highlight=False)
    if not outcome.steps:
        return
    arm, baseline = outcome.arm, outcome.baseline
    last, baseline_last = outcome.last_losses()
    rows = [_loss_row(str(s.step), s.loss, s.baseline_loss) for s in _some(outcome.steps)]
    rows.append(_loss_row("last fifth, mean", last, baseline_last))
    console.print(table("Training loss, nats per token", ("step", arm, baseline, "difference"), rows, right=(1, 2, 3)))
    console.print(f"seed {outcome.seed}; {NO_EVIDENCE}", highlight=False)
    speed, baseline_speed = outcome.tokens_per_second()
    console.print(
        f"tokens per second: {speed:,.0f} {arm}, {baseline_speed:,.0f} {baseline} "
        f"({baseline_speed / speed:.2f} times the baseline's time per token; steps alternated)",
        highlight=False,
    )
    if any(outcome.readings.values()):
        console.print()
        rows = _reading_rows(outcome)
        title = "What the taps show on validation documents, mean over layers"
        console.print(table(title, ("diagnostic", "of", arm, baseline, "unit"), rows, right=(2, 3)))


def outcome_as_json(outcome: Outcome, found: Sequence[Gate]) -> dict[str, Any]:
    speed, baseline_speed = outcome.tokens_per_second() if outcome.steps else (None, None)
    return {
        "warning": NO_EVIDENCE,
        "gates": [asdict(gate) for gate in found],
        "arm": outcome.arm,
        "baseline": outcome.baseline,
        "seed": outcome.seed,
        "ended": outcome.ended,
        "steps": [asdict(step) for step in outcome.steps],
        "tokens_per_second": speed,
        "baseline_tokens_per_second": baseline_speed,
        "readings": [
            {"arm": arm, "diagnostic": r.diagnostic, "layer": r.layer, "group": r.group, "value": r.value}
            for arm, readings in outcome.readings.items()
            for r in readings
        ],
    }


def _loss_row(step: str, loss: float, baseline_loss: float) -> tuple[str, ...]:
    return step, f"{loss:.4f}", f"{baseline_loss:.4f}", f"{loss - baseline_loss:+.4f}"


def _some(steps: list[Step]) -> list[Step]:
    """The first step, the last, and about eight between them at equal distances."""
    stride = max(1, len(steps) // 8)
    return [s for s in steps if s.step in (1, len(steps)) or s.step % stride == 0]


def _reading_rows(outcome: Outcome) -> list[tuple[str, ...]]:
    means: dict[tuple[str, str], dict[str, float]] = {}
    for arm, readings in outcome.readings.items():
        by_group: dict[tuple[str, str], list[float]] = {}
        for reading in readings:
            by_group.setdefault((reading.diagnostic, reading.group), []).append(reading.value)
        for key, values in by_group.items():
            means.setdefault(key, {})[arm] = fmean(values)
    rows: list[tuple[str, ...]] = []
    for diagnostic in mechanisms.all_diagnostics():
        groups = [(group, of_arm) for (name, group), of_arm in means.items() if name == diagnostic.name]
        title = diagnostic.name + (" (a check)" if diagnostic.correctness_only else "")
        for index, (group, of_arm) in enumerate(groups[:GROUPS_SHOWN]):
            numbers = (f"{of_arm[a]:.4g}" if a in of_arm else "" for a in (outcome.arm, outcome.baseline))
            more = f" (+{len(groups) - GROUPS_SHOWN})" if index + 1 == GROUPS_SHOWN < len(groups) else ""
            rows.append((title if index == 0 else "", group + more, *numbers, diagnostic.unit))
    return rows
