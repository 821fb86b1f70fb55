"""What the arms consist of: parameters by role, what a cell keeps, and which optimiser gets which tensor."""

from collections.abc import Collection, Mapping, Sequence

from rich.console import Console

from paribus.experiment.plan import ArmAtScale
from paribus.experiment.spec import Experiment
from paribus.planning.facts import Arms, activation_bytes, checkpoint_size, parameters
from paribus.terminal import bytes_in_words, families, table


def describe_parameters(scale: str, arms: Mapping[str, ArmAtScale], console: Console) -> None:
    """Each role with its numbers of parameters, and the arms that have so many."""
    roles = dict.fromkeys(role for arm in arms.values() for role in arm.parameters_by_role)
    rows = []
    for role in (*roles, "total"):
        owners: dict[int, list[str]] = {}
        for name, arm in arms.items():
            owners.setdefault(parameters(arm) if role == "total" else arm.parameters_by_role.get(role, 0), []).append(
                name
            )
        rows += [(role, f"{count:,}", _named(names, arms)) for count, names in owners.items()]
    console.print(table(f"Parameters by role: {scale}", ("role", "parameters", "arms"), rows, right=(1,)))
    console.print()


def _named(names: Sequence[str], arms: Collection[str]) -> str:
    return "all" if len(names) == len(arms) else ", ".join(names)


def describe_memory(experiment: Experiment, arms: Arms, console: Console) -> None:
    """What a cell keeps: closed forms, checked against real models for every backbone and mechanism."""
    rows = [
        (
            scale,
            name,
            bytes_in_words(checkpoint_size(arm)),
            bytes_in_words(activation_bytes(arm, experiment)),
            bytes_in_words(activation_bytes(arm, experiment) * arm.base.context_length),
            bytes_in_words(activation_bytes(arm, experiment) * arm.base.context_length * _rows(arm, experiment)),
        )
        for (scale, name), arm in arms.items()
    ]
    columns = ("scale", "arm", "checkpoint", "kept per token", "per row", "per forward pass")
    console.print(
        table("Memory: checkpoints, and what is kept for the backward pass", columns, rows, right=range(2, 6))
    )
    if experiment.execution.micro_batch_rows == "probe":
        console.print(
            "  rows of a forward pass are measured at the first run; shown is the whole batch", highlight=False
        )
    console.print()


def _rows(arm: ArmAtScale, experiment: Experiment) -> int:
    return experiment.execution.declared_rows or arm.base.batch_tokens // arm.base.context_length


def describe_tensors(scale: str, arms: Mapping[str, ArmAtScale], console: Console) -> None:
    """Every family of tensors once, with the arms that have it."""
    owners: dict[tuple[str, ...], list[str]] = {}
    for name, arm in arms.items():
        for pattern, (count, shape, member) in families(arm.shapes).items():
            group, role = arm.groups[member], str(arm.declarations[member].role)
            size = " x ".join(map(str, shape))
            row = (pattern, str(count), size, role, group.optimiser, f"{group.learning_rate:g}")
            owners.setdefault(row, []).append(name)
    rows = [(*row, _named(names, arms)) for row, names in owners.items()]
    columns = ("tensor", "count", "shape", "role", "optimiser", "rate", "arms")
    console.print(table(f"Which optimiser gets which tensor: {scale}", columns, rows, right=(1, 5)))
    console.print()
