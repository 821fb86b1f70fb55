"""The projection of Exclusive Self-Attention, switched off in a model that was trained with it and on in one without.

What the rest of the network relies on shows in the NLL: a model trained with the projection may have learned to do
without the removed part (off costs little) or to lean on its absence; a standard model may carry what the projection
would remove as a nuisance (on costs little) or as content.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from torch import nn

from paribus.kernels.exclude_self import exclude_self
from paribus.mechanisms.contract import Intervention, Seam, Values
from paribus.mechanisms.exclusion.maps import ExcludeSelf, ExcludeSelfByLearnedStrength
from paribus.mechanisms.standard import UnchangedOutput
from paribus.shapes import Documents, GroupedHeads


def _unchanged(y: GroupedHeads, values: Values, document: Documents) -> GroupedHeads:
    del values, document
    return y


def _fully_excluded(y: GroupedHeads, values: Values, document: Documents) -> GroupedHeads:
    del document
    return exclude_self(y, values.aggregated, 1.0)


@contextmanager
def replaced_forward(modules: Sequence[nn.Module], forward: Callable[..., GroupedHeads]) -> Iterator[None]:
    """`forward` in place of each module's own, which is found again when the context ends however it ends."""
    before = [vars(module).get("forward") for module in modules]
    try:
        for module in modules:
            vars(module)["forward"] = forward
        yield
    finally:
        for module, own in zip(modules, before, strict=True):
            if own is None:
                vars(module).pop("forward", None)
            else:
                vars(module)["forward"] = own


def _variants(model: nn.Module) -> Mapping[str, Callable[[], AbstractContextManager[None]]]:
    maps = [module for name, module in model.named_modules() if name.rpartition(".")[2] == Seam.OUTPUT_MAP]
    excluding = [module for module in maps if isinstance(module, ExcludeSelf | ExcludeSelfByLearnedStrength)]
    if excluding:
        return {"off": lambda: replaced_forward(excluding, _unchanged)}
    if maps and all(isinstance(module, UnchangedOutput) for module in maps):
        return {"on": lambda: replaced_forward(maps, _fully_excluded)}
    return {}


PROJECTION_SWITCHED = Intervention(
    name="projection_switched",
    title="Projection switched at evaluation",
    sentence="Change in NLL when the projection is switched off in a model trained with it, or on (strength 1, "
    "aggregated value, every layer) in a model whose output map is the identity. A rise says that the trained network "
    "depends on the state that it was trained in; no change, that the removed part carries nothing it uses.",
    variants=_variants,
)
