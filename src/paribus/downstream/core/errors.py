"""What goes wrong with a bundle of CORE tasks."""

from paribus.errors import ParibusError


class CoreBundleError(ParibusError):
    """A bundle, its list of tasks, a table of baselines or a file of a task cannot be used, or cannot be fetched."""
