"""What goes wrong in a user's hands, said once: what was expected, what came, what to do."""

import difflib
from collections.abc import Iterable


class ParibusError(Exception):
    """An error a user can act on. The command line prints it without a traceback and exits with `exit_code`."""

    exit_code = 1

    def __init__(self, what: str, *, expected: str = "", received: str = "", remedy: str = "") -> None:
        self.what = what
        self.expected = expected
        self.received = received
        self.remedy = remedy
        labelled = (("expected", expected), ("received", received), ("remedy", remedy))
        super().__init__("\n".join([what, *(f"  {label}: {text}" for label, text in labelled if text)]))

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders (worker to parent); keyword-only fields need saying how.
        return (_rebuild, (type(self), self.what, self.expected, self.received, self.remedy))


def _rebuild(kind: type[ParibusError], what: str, expected: str, received: str, remedy: str) -> ParibusError:
    return kind(what, expected=expected, received=received, remedy=remedy)


class ExperimentFileError(ParibusError):
    """The experiment file is wrong: unknown key, wrong type, unknown name."""

    exit_code = 2


class CorpusError(ParibusError):
    """The corpus is empty, unreadable, too small, or not the one the study was frozen with."""


class StudyFolderError(ParibusError):
    """The run folder belongs to another study, or holds something that paribus did not write."""


class PairCheckError(ParibusError):
    """Two cells of a contrast differ in something that the experiment does not declare."""


class GateError(ParibusError):
    """A gate failed before training."""


class DivergenceError(ParibusError):
    """The training loss of a cell became NaN or infinite."""


class StorageError(ParibusError):
    """The disk refused a write."""


class MechanismError(ParibusError):
    """A mechanism cannot be imported, or returns something that its seam does not take."""


class RoleError(ParibusError):
    """A parameter without a declared role, with two, or with a role that no optimiser group takes."""


def nearest(name: str, valid: Iterable[str]) -> str:
    """`did you mean 'x'?` for the closest valid name, or the list of valid names where none is close."""
    names = sorted(valid)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean '{close[0]}'?"
    return "valid: " + ", ".join(names) if names else "none is valid here"
