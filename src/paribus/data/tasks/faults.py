"""How a task that is not what it says is refused: its name, what was found, and a remedy each time."""

from paribus.data.tasks.contract import ALL, Task
from paribus.data.tasks.readers import Leak
from paribus.errors import CorpusError


def broken(task: Task, what: str, expected: str, *, remedy: str, received: str = "") -> CorpusError:
    """The error to raise of a task that breaks its contract."""
    name = getattr(task, "name", type(task).__name__)
    return CorpusError(f"the task '{name}': {what}", expected=expected, received=received, remedy=remedy)


def refuse_leak(task: Task, leak: Leak | None) -> None:
    """Raise CorpusError where a leak was found."""
    if leak is not None:
        where = "a target" if leak.slice == ALL else f"the target of slice '{leak.slice}'"
        raise broken(
            task,
            f"{where} can be read off {leak.clue}: {leak.nats:.2f} nats",
            f"at least the lowest loss that `levels` declares for it, {leak.declared_nats:.2f} nats",
            remedy="hide it, or declare the shortcut in `levels`",
        )
