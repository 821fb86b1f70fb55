"""The recipe of the update in numbers. Torch-free."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Rate = Annotated[float, Field(gt=0.0)]
Decay = Annotated[float, Field(ge=0.0)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Momentum = Annotated[float, Field(ge=0.0, lt=1.0)]
Betas = Annotated[tuple[Momentum, Momentum], Field(strict=False)]

NOT_READ: Mapping[str, tuple[str, ...]] = {
    "muon": ("matrix_variance_beta2", "matrix_row_equilibration", "matrix_unit_norm"),
    "nanochat": (),
    "adamw": (
        "matrix_momentum",
        "matrix_scale",
        "matrix_compute",
        "matrix_variance_beta2",
        "matrix_row_equilibration",
        "matrix_unit_norm",
    ),
}
"""fields that a `matrix_update` takes no notice of"""


class OptimiserConfig(BaseModel):
    """How hidden matrices are updated, AdamW for everything else, and rate, decay and betas for each role."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    matrix_update: Literal["muon", "nanochat", "adamw"] = "muon"
    """of hidden matrices: Muon with five Newton-Schulz steps (Jordan et al. 2024); nanochat's Muon (Polar Express,
    NorMuon variance, cautious decay); or AdamW, whose best rates are far smaller"""
    matrix_learning_rate: Rate = 0.02
    """of hidden matrices; Muon's before the shape factor that `matrix_scale` names"""
    matrix_momentum: Momentum = 0.95
    """Muon's Nesterov momentum; the one between warm-up and decay where the schedule changes it"""
    matrix_weight_decay: Decay = 0.0
    """decoupled: w <- w (1 - learning rate * decay), before the shape factor; nanochat's Muon decays only where the
    update has the weight's sign, and after it"""
    matrix_scale: Literal["keller", "moonshot"] = "keller"
    """shape factor of Muon's step: "keller" is sqrt(max(1, rows / columns)) (Jordan et al. 2024), "moonshot" is
    0.2 sqrt(max(rows, columns)), about the size of an AdamW step (Liu et al. 2502.16982)"""
    matrix_compute: Literal["float32", "bfloat16"] = "float32"
    """type in which either Muon orthogonalises; momentum, variance and weights are the parameters' own in any case"""
    matrix_variance_beta2: Momentum = 0.9
    """nanochat's Muon: decay of NorMuon's mean square per row, per column where the matrix is wide (Li et al.
    2510.05491); no bias correction"""
    matrix_row_equilibration: bool = False
    """nanochat's Muon, since July 2026: rows are given equal norms before the orthogonalisation (MuonEq,
    2603.28254)"""
    matrix_unit_norm: bool = False
    """nanochat's Muon, since July 2026: the orthogonalised update is rescaled to the Frobenius norm of an exact polar
    factor, sqrt(min(rows, columns)) (Muon+, Zhang et al. 2602.21545)"""

    embedding_learning_rate: Rate = 0.04
    """AdamW; the optimum of the plain arm at the demo's size lies between 0.04 and 0.08 (docs/results/LOG.md)"""
    embedding_weight_decay: Decay = 0.0
    """AdamW's, decoupled"""
    embedding_betas: Betas | None = None
    """AdamW's two decays for this role; none takes adam_beta1 and adam_beta2"""
    value_embedding_learning_rate: Rate = 0.15
    """AdamW; nanochat's at width 768 and a batch of 2^19 tokens, half of its rate of the embedding"""
    value_embedding_weight_decay: Decay = 0.0
    """AdamW's, decoupled"""
    value_embedding_betas: Betas | None = None
    """AdamW's two decays for this role; none takes adam_beta1 and adam_beta2"""
    head_learning_rate: Rate = 0.008
    """AdamW, an output head that is not tied; nanochat's at width 768 and a batch of 2^19 tokens"""
    head_weight_decay: Decay = 0.0
    """AdamW's, decoupled"""
    head_betas: Betas | None = None
    """AdamW's two decays for this role; none takes adam_beta1 and adam_beta2"""
    gain_learning_rate: Rate = 0.01
    """AdamW, norm gains of the backbone"""
    gain_weight_decay: Decay = 0.0
    """AdamW's, decoupled"""
    gain_betas: Betas | None = None
    """AdamW's two decays for this role; none takes adam_beta1 and adam_beta2"""
    stream_scale_learning_rate: Rate = 0.005
    """AdamW, factors of the stream before each layer; nanochat's at a batch of 2^19 tokens"""
    stream_scale_weight_decay: Decay = 0.0
    """AdamW's, decoupled"""
    stream_scale_betas: Betas | None = None
    """AdamW's two decays for this role; none takes adam_beta1 and adam_beta2"""
    embedding_scale_learning_rate: Rate = 0.5
    """AdamW, shares of the embedding that enter before each layer; nanochat's at a batch of 2^19 tokens"""
    embedding_scale_weight_decay: Decay = 0.0
    """AdamW's, decoupled"""
    embedding_scale_betas: Betas | None = None
    """AdamW's two decays for this role; none takes adam_beta1 and adam_beta2"""
    shortcut_learning_rate: Rate = 0.2
    """AdamW, the backbone's other shortcuts; nanochat's at any width and batch"""
    shortcut_weight_decay: Decay = 0.0
    """AdamW's, decoupled"""
    shortcut_betas: Betas | None = None
    """AdamW's two decays for this role; none takes adam_beta1 and adam_beta2"""
    depth_read_learning_rate: Rate = 0.005
    """AdamW, pseudo-queries and key gains. Untuned: prototypes show that it can matter more than the mechanism, so a
    verdict at the default says so"""
    depth_read_weight_decay: Decay = 0.0
    """AdamW's, decoupled"""
    depth_read_betas: Betas | None = None
    """AdamW's two decays for this role; none takes adam_beta1 and adam_beta2"""
    scalar_learning_rate: Rate = 0.01
    """AdamW, learned scalars of a mechanism such as strengths. Untuned, like the rate of depth reads"""
    scalar_weight_decay: Decay = 0.0
    """AdamW's, decoupled"""
    scalar_betas: Betas | None = None
    """AdamW's two decays for this role; none takes adam_beta1 and adam_beta2"""

    adam_beta1: Momentum = 0.9
    """decay of AdamW's first moment where a role says nothing else"""
    adam_beta2: Momentum = 0.95
    """decay of AdamW's second moment where a role says nothing else"""
    adam_eps: Annotated[float, Field(gt=0.0)] = 1e-10
    """added outside AdamW's root"""
    gradient_clip_norm: Annotated[float, Field(gt=0.0)] | None = None
    """largest norm of the gradient over all trained parameters together; a longer one is shortened to it before the
    update. By default the gradient is taken as it is, as in nanochat"""

    @model_validator(mode="after")
    def _every_field_is_read(self) -> "OptimiserConfig":
        for name in NOT_READ[self.matrix_update]:
            value, default = getattr(self, name), type(self).model_fields[name].default
            if value != default:
                readers = [update for update, unread in NOT_READ.items() if name not in unread]
                raise ValueError(
                    f"{name} = {_written(value)} does nothing beside matrix_update = {_written(self.matrix_update)}; "
                    f"only {' and '.join(map(_written, readers))} read it: leave it at {_written(default)}, "
                    "or choose one of them"
                )
        return self


def _written(value: float | bool | str) -> str:
    """As a TOML file would hold it."""
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else f"{value:g}"


def at_rates(config: OptimiserConfig, factor: float) -> OptimiserConfig:
    """The recipe with every learning rate multiplied by `factor`."""
    rates = {name: value * factor for name, value in config.model_dump().items() if name.endswith("_learning_rate")}
    return config.model_copy(update=rates)


class ScheduleConfig(BaseModel):
    """What changes during a run, as shares of the run: the learning rate of every group, and momentum and weight decay
    of the hidden matrices.

    Warm-ups and decay may overlap: the learning rate is the lower of the two ramps, and the momentum moves from its
    warm-up's to the final value over the decay, so that a run of any length has no jump.
    """

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    warmup: Share = 0.05
    """share of the run in which the multiplier rises linearly from 0 to 1"""
    decay: Share = 0.4
    """share of the run, at its end, in which the multiplier falls linearly from 1 to `final`"""
    final: Share = 0.0
    """multiplier that the decay ends at"""
    place: Literal["middle", "ends"] = "middle"
    """where an update stands in the run: "middle" is its middle; "ends" is its end for the learning rate's warm-up and
    its start for everything else, as nanochat counts"""
    momentum_initial: Momentum | None = None
    """Muon's momentum at the start of `momentum_warmup`"""
    momentum_warmup: Share = 0.0
    """share of the run in which Muon's momentum goes linearly from `momentum_initial` to the optimiser's"""
    momentum_final: Momentum | None = None
    """Muon's momentum at the end of the run, reached linearly over `decay`"""
    weight_decay: Literal["constant", "cosine"] = "constant"
    """of hidden matrices: "cosine" falls as half a cosine from the optimiser's decay to 0 over the run"""

    @model_validator(mode="after")
    def _momentum_is_complete(self) -> "ScheduleConfig":
        if self.momentum_initial is not None and self.momentum_warmup == 0.0:
            raise ValueError(
                f"momentum_initial = {self.momentum_initial:g} needs the share of the run over which it is left "
                "behind: momentum_warmup, greater than 0"
            )
        if self.momentum_initial is None and self.momentum_warmup > 0.0:
            raise ValueError(
                f"momentum_warmup = {self.momentum_warmup:g} needs the momentum that it starts at: momentum_initial"
            )
        if self.momentum_final is not None and self.decay == 0.0:
            raise ValueError(
                f"momentum_final = {self.momentum_final:g} is reached over the decay of the learning rate, and "
                "decay = 0: give decay a share of the run, or leave momentum_final out"
            )
        return self
