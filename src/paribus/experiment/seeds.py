"""Seeds, looks, A/A, tuning, calibration and execution: how often and how a study is run."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from paribus.experiment.table import Effect, Name, Positive, Table


class Extension(Table):
    """A second stage that may follow the first, declared before any cell has run (Lehmacher and Wassmer 1999)."""

    stage_1_seeds: Annotated[int, Field(ge=3)]
    """pairs of the first stage; `count` is raised above it to extend"""
    stage_1_alpha: Annotated[float, Field(gt=0.0, lt=0.05)] = 0.01
    """level at which the first stage is tested; the rest of 5 % is left for both stages together"""


class Seeds(Table):
    """The units of replication."""

    count: Positive
    """planned pairs; before them, or a look declared below, no verdict words are printed"""
    first: Annotated[int, Field(ge=0)] = 0
    """seeds are first, first + 1, ..."""
    looks: Annotated[tuple[Positive, ...], Field(strict=False)] = ()
    """numbers of pairs at which words may be shown, paid for by stricter levels; the last is count"""
    extension: Extension | None = None
    """a second stage of seeds, declared beforehand"""

    @model_validator(mode="after")
    def _stages_fit(self) -> Self:
        if self.looks and (list(self.looks) != sorted(set(self.looks)) or self.looks[-1] != self.count):
            raise ValueError(f"looks must increase and end at count = {self.count}")
        if self.looks and self.looks[0] < 3:
            raise ValueError("a look needs at least 3 pairs")
        if self.looks and self.extension is not None:
            raise ValueError("declare looks or an extension, not both")
        if self.extension is not None:
            more = self.count - self.extension.stage_1_seeds
            if more < 0 or more in (1, 2):
                raise ValueError(
                    f"count must be extension.stage_1_seeds = {self.extension.stage_1_seeds}, or at least 3 more"
                )
        return self

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(range(self.first, self.first + self.count))


class Noise(Table):
    """A/A: the primary's baseline against itself, in three kinds that must not be confused; and in fast mode every arm
    against itself in proof mode."""

    repeats: Annotated[int, Field(ge=0)] = 0
    """so many of its cells are trained a second time: kernel noise, exactly 0 in proof mode; at least one in fast
    mode"""
    twins: Annotated[int, Field(ge=0)] = 0
    """so many of its cells are trained again with one tensor changed by a millionth: the floor of sd_D"""
    proof_seeds: Annotated[int, Field(ge=0)] = 0
    """in fast mode: at so many seeds every arm is trained in proof mode as well, which it must equal in the mean within
    a quarter of the smallest effect"""
    other_seeds: Annotated[int, Field(ge=0)] = 0
    """so many more of its cells at the seeds behind the planned ones: unpaired noise"""


class DerivedArm(Table):
    """An arm that is another one with one field changed, to show how far that moves a difference."""

    of: Name
    """the arm that it is otherwise equal to"""
    knob: str
    """path of the field, such as optimiser.matrix_learning_rate"""


def written(value: bool | int | float | str) -> str:
    """A value of a field in as few characters as tell it from every other one."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    return str(value)


class Robustness(Table):
    """The same arms under another recipe: whether a difference, or its sign, depends on what nobody asked about.

    Cells of their own, which no verdict uses. An arm's `sweep = { "optimiser.matrix_learning_rate" = [0.01, 0.04] }`
    adds further ones: the arm at other values of one of its fields.
    """

    rate_factors: Annotated[tuple[Effect, ...], Field(strict=False)] = ()
    """multiples of every learning rate of every arm, such as [0.5, 2.0]"""
    schedule: bool = False
    """trains the primary's baseline with schedule.decay half as long again, or as long as the warm-up leaves, as the
    arm `schedule-sensitivity`: what changing the schedule by that much moves"""
    seeds: Annotated[int, Field(ge=3)] = 3
    """so many of the planned seeds, from the first, for all of these cells"""
    derived: dict[Name, DerivedArm] = Field(default_factory=dict)
    """the arms that `schedule` and every `sweep` stand for, by name; filled in by paribus, never written in a file"""

    @model_validator(mode="after")
    def _factors_differ(self) -> Self:
        if len({1.0, *self.rate_factors}) <= len(self.rate_factors):
            raise ValueError("rate_factors must differ from each other and from 1")
        return self


class Tuning(Table):
    """Fields that are searched before the verdict's cells are trained, arm by arm, on seeds of their own.

    From the declared value in factors of `factor`, until the best value lies inside what was tried; every arm gets as
    many trials as the arm that needed most. Scored on the validation split or, of a task, by the area under the
    learning curve of the primary's slices (rules of evidence, section 5).
    """

    knobs: Annotated[dict[Name, str], Field(min_length=1)]
    """the field of each arm, such as block = "optimiser.depth_read_learning_rate"; a plain arm names the field that it
    depends on most"""
    seeds: Positive = 1
    """tuning seeds; never those of the verdict, whatever their numbers"""
    factor: Annotated[float, Field(ge=1.1)] = 4.0
    """between neighbouring values"""
    max_trials: Annotated[int, Field(ge=3)] = 9
    """values of one arm at which the search gives up, and says so"""


Share = Annotated[float, Field(gt=0.0, le=1.0)]
"""of the budget"""


class Calibration(Table):
    """How hard the task is for the baseline alone, as `paribus calibrate` found it before any treatment was trained.

    Either the three keys that it prints, or the reason why there are none. Nothing about a cell depends on this table.
    """

    seeds: Positive | None = None
    """calibration seeds; never those of the verdict, whatever their numbers"""
    slices: Annotated[dict[str, Annotated[tuple[Share, ...], Field(strict=False)]], Field(min_length=1)] | None = None
    """share of the budget at which the baseline's loss got below the threshold, half-way from chance to the floor or,
    where a shortcut is as low, half-way from that, by slice: one for each calibration seed that got there, such as
    { QD = [0.45, 0.61, 0.7] }"""
    evidence: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")] | None = None
    """of the baseline, task, scale and execution that were calibrated, without the field that tuning chooses: where it
    no longer fits, somebody has changed them since"""
    not_applicable: Annotated[str, Field(min_length=1)] | None = None
    """instead of the other three: why this study's baseline is not to be calibrated, as in a negative control"""

    @model_validator(mode="after")
    def _found_or_not_applicable(self) -> Self:
        found = (self.seeds, self.slices, self.evidence)
        if self.not_applicable is None:
            if None in found:
                raise ValueError(
                    "give seeds, slices and evidence as `paribus calibrate` prints them, or not_applicable"
                )
        elif found != (None, None, None):
            raise ValueError("give either not_applicable or what was found, not both")
        for name, shares in (self.slices or {}).items():
            if len(shares) > (self.seeds or 0):
                raise ValueError(f"slices.{name} holds {len(shares)} shares of {self.seeds} seeds")
        return self


class Execution(Table):
    """How cells run on this machine.

    `mode`, `threads`, `micro_batch_rows` and the device that was found belong to a cell's identity; the rest does not.
    """

    mode: Literal["proof", "fast"] = "proof"
    """"proof": eager, deterministic algorithms, fixed threads; the same cell twice gives identical bits. "fast":
    updates come from one compiled graph of the whole model, the same up to rounding, on a GPU by whatever algorithm is
    fastest; `noise.repeats` measures by how much the same cell then differs from itself"""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """where cells are trained; "auto" takes CUDA where there is one"""
    threads: Positive = 1
    """threads of each worker"""
    workers: Annotated[int, Field(ge=0)] = 0
    """processes that train cells side by side; 0 takes one for each core, divided by threads, or one for each GPU"""
    micro_batch_rows: Annotated[int, Field(ge=0)] | Literal["probe"] = 0
    """rows of one forward pass; 0 takes the whole batch, "probe" what fits: measured once for the study and the kind of
    device on the arm that needs most memory, then frozen, the same for every arm"""
    activation_checkpointing: bool = False
    """keep of each layer what it is given and compute the rest again in the backward pass, depth reads included: less
    memory, more time, the same bits"""
    checkpoint_steps: Positive = 50
    """updates between checkpoints"""
    lease_seconds: Annotated[float, Field(ge=1.0)] = 60.0
    """a worker on another machine that has given no sign for so long is taken to be dead, and its cell is taken over"""
    attempts: Positive = 3
    """a cell that fails so often without a further checkpoint is parked, and the others go on"""
    cost_rounds: Annotated[int, Field(ge=0)] = 20
    """turns of every arm in which their updates are timed against each other after training, two a block; below 10
    nothing is claimed, and 0 measures no time; `paribus bench` measures longer"""

    @property
    def declared_rows(self) -> int:
        """Rows of one forward pass as the file says; 0, the whole batch, where it leaves them to the machine."""
        return 0 if self.micro_batch_rows == "probe" else self.micro_batch_rows
