"""Parameters by role in closed form: what a configuration and its mechanisms hold, without building anything.

A backbone's tensors are listed here as its own file declares them; a mechanism lists its own (`parameters`).
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import singledispatch

from paribus.errors import MechanismError
from paribus.mechanisms import IDENTITY
from paribus.mechanisms.contract import MechanismConfig, Seam, Tensors
from paribus.model.backbone import Backbone, geometry_of
from paribus.model.config import ModelConfig, NanochatConfig, PrenormConfig
from paribus.roles import Role, declarations

Mechanisms = Mapping[Seam, MechanismConfig]


def plain_residuals(mechanisms: Mechanisms) -> bool:
    """Whether the backbone's own residual path is used, parameters and all, and no routing that takes its place."""
    return mechanisms[Seam.ROUTING].name == IDENTITY[Seam.ROUTING]


@singledispatch
def backbone_tensors(config: ModelConfig, *, residual_path: bool = True) -> Iterator[Tensors]:
    """The backbone's own parameters, with those of its residual path or without."""
    del residual_path
    raise NotImplementedError(f"the parameters of the backbone '{config.backbone}' have no closed form")


@backbone_tensors.register
def prenorm_tensors(config: PrenormConfig, *, residual_path: bool = True) -> Iterator[Tensors]:
    """Tied embedding, norm gains, and seven matrices a layer; its residual path has no parameters."""
    del residual_path
    yield Tensors(Role.EMBEDDING, (config.vocabulary_size, config.width))
    yield Tensors(Role.GAIN, (config.width,), 2 * config.layers + 1)
    yield from _attention(config)
    yield Tensors(Role.MATRIX, (config.mlp_width, config.width), 2 * config.layers)
    yield Tensors(Role.MATRIX, (config.width, config.mlp_width), config.layers)


@backbone_tensors.register
def nanochat_tensors(config: NanochatConfig, *, residual_path: bool = True) -> Iterator[Tensors]:
    """Embedding and head, six matrices a layer, a gated table in some layers, smear, and the residual path's
    scalars."""
    layers, embedded = config.layers, len(config.value_embedding_layers)
    yield Tensors(Role.EMBEDDING, (config.table_rows, config.width))
    yield Tensors(Role.HEAD, (config.table_rows, config.width))
    yield Tensors(Role.SHORTCUT, (1, config.smear_channels))
    yield Tensors(Role.SHORTCUT, (1,))
    yield from _attention(config)
    yield Tensors(Role.VALUE_EMBEDDING, (config.table_rows, config.kv_heads * config.head_width), embedded)
    yield Tensors(Role.MATRIX, (config.kv_heads, config.value_gate_channels), embedded)
    yield Tensors(Role.MATRIX, (config.mlp_width, config.width), layers)
    yield Tensors(Role.MATRIX, (config.width, config.mlp_width), layers)
    if residual_path:
        yield Tensors(Role.STREAM_SCALE, (layers,))
        yield Tensors(Role.EMBEDDING_SCALE, (layers,))
        yield Tensors(Role.SHORTCUT, (1,))


def _attention(config: ModelConfig) -> Iterator[Tensors]:
    """Query, key, value and output matrices."""
    queries, values = config.heads * config.head_width, config.kv_heads * config.head_width
    yield Tensors(Role.MATRIX, (queries, config.width), config.layers)
    yield Tensors(Role.MATRIX, (values, config.width), 2 * config.layers)
    yield Tensors(Role.MATRIX, (config.width, queries), config.layers)


def tensors(config: ModelConfig, mechanisms: Mechanisms) -> Iterator[Tensors]:
    """Every parameter of an arm by role and shape, the backbone's first."""
    geometry = geometry_of(config, mechanisms)
    yield from backbone_tensors(config, residual_path=plain_residuals(mechanisms))
    for mechanism in mechanisms.values():
        yield from mechanism.parameters(geometry)


def parameters_by_role(config: ModelConfig, mechanisms: Mechanisms) -> dict[Role, int]:
    """Parameters of an arm by role, FIXED ones among them; roles without any are left out."""
    return _by_role(tensors(config, mechanisms))


def _by_role(listed: Iterable[Tensors]) -> dict[Role, int]:
    counts: Counter[Role] = Counter()
    for role, shape, copies in listed:
        counts[role] += copies * math.prod(shape)
    return dict(+counts)


def scaling_parameters(config: ModelConfig) -> int:
    """Weights that a token is multiplied with: hidden matrices and the output head, which is the embedding where the
    two are tied. nanochat sizes budgets by this number ("scaling params"); it is the backbone's, equal in all arms."""
    counts = _by_role(backbone_tensors(config))
    return counts[Role.MATRIX] + counts.get(Role.HEAD, counts[Role.EMBEDDING])


def counted_parameters(model: Backbone) -> dict[Role, int]:
    """Parameters of a model, which may be abstract, by role."""
    return _by_role(
        Tensors(declaration.role, tuple(model.get_parameter(name).shape))
        for name, declaration in declarations(model).items()
    )


def checked_parameters(model: Backbone, mechanisms: Mechanisms) -> dict[Role, int]:
    """`parameters_by_role` of a model's configuration. MechanismError where the model does not hold just these."""
    declared, counted = parameters_by_role(model.config, mechanisms), counted_parameters(model)
    if declared != counted:
        wrong = [role for role in Role if declared.get(role, 0) != counted.get(role, 0)]
        raise MechanismError(
            f"{', '.join(mechanism.name for mechanism in mechanisms.values())}: parameters are counted wrongly",
            expected=", ".join(f"{counted.get(role, 0):,} of role '{role}'" for role in wrong),
            received=", ".join(f"{declared.get(role, 0):,} of role '{role}'" for role in wrong),
            remedy="mend the method `parameters` of the mechanism that is not part of paribus, or leave it out",
        )
    return declared
