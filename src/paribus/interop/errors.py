"""What goes wrong with a model, a checkpoint or a tokenizer that comes from elsewhere."""

from paribus.errors import ParibusError


class ForeignModelError(ParibusError):
    """A checkpoint or tokenizer of another program, or the folder that it was imported into, cannot be used."""
