"""Everything that the next update depends on, and its form on disk: safetensors and JSON, no pickles."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.optim import Optimizer

from paribus.disk import sealed, unsealed
from paribus.errors import StudyFolderError
from paribus.optim.config import OptimiserConfig
from paribus.optim.groups import build_optimisers, load_state_tensors, state_tensors

TENSORS, META = "state.safetensors", "state.json"


@dataclass
class TrainState:
    """Model, optimisers, finished updates, and the running digest of the batches consumed (int64, wrapping sum)."""

    model: nn.Module
    optimisers: list[Optimizer]
    step: int
    digest: Tensor
    gradient_clip_norm: float | None = None
    """of the recipe that the optimisers were built from; it is no part of the files"""

    @classmethod
    def fresh(cls, model: nn.Module, config: OptimiserConfig) -> "TrainState":
        digest = torch.zeros((), dtype=torch.int64)
        return cls(model, build_optimisers(model, config), 0, digest, config.gradient_clip_norm)

    def to_files(self) -> dict[str, bytes]:
        """The state as file contents by file name."""
        tensors = {f"model/{name}": p.detach() for name, p in self.model.named_parameters()}
        tensors |= {f"optimiser/{name}": t for name, t in state_tensors(self.model, self.optimisers).items()}
        tensors["digest"] = self.digest
        contiguous = {name: tensor.contiguous().cpu() for name, tensor in tensors.items()}
        return {TENSORS: save(contiguous), META: sealed({"format": 1, "step": self.step})}

    def restore(self, files: dict[str, bytes]) -> None:
        """Inverse of `to_files`, into a state built for the same arm.

        StudyFolderError, before anything is changed, where files are damaged or tensors do not match.
        """
        step, tensors = _content_of(files)
        parameters = dict(self.model.named_parameters())
        own = {(name, parameter.shape) for name, parameter in parameters.items()}
        saved = {(n.removeprefix("model/"), tensor.shape) for n, tensor in tensors.items() if n.startswith("model/")}
        if saved != own:
            raise StudyFolderError(
                "a checkpoint does not hold this arm's parameters",
                expected=f"{len(own)} parameters",
                received=f"{len(saved)}; first difference: {min(saved ^ own)[0]}",
                remedy="delete the cell's folder to train it again",
            )
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(tensors[f"model/{name}"])
        optimiser = {n.removeprefix("optimiser/"): t for n, t in tensors.items() if n.startswith("optimiser/")}
        load_state_tensors(self.model, self.optimisers, optimiser)
        self.digest = tensors["digest"]
        self.step = step

    def digest_hex(self) -> str:
        """The running batch digest as 16 hexadecimal digits."""
        return digest_hex(self.digest)


def digest_hex(digest: Tensor) -> str:
    """A digest of batches as 16 hexadecimal digits."""
    return f"{int(digest) & (1 << 64) - 1:016x}"


def _content_of(files: Mapping[str, bytes]) -> tuple[int, dict[str, Tensor]]:
    """(finished updates, tensors by name). What an earlier version wrote has no checksum in its record."""
    try:
        return int(unsealed(files[META])[0]["step"]), load(files[TENSORS])
    except (ValueError, KeyError, TypeError, SafetensorError) as error:
        raise StudyFolderError(
            "the state in a checkpoint is damaged",
            expected=f"{TENSORS} and {META} as training wrote them",
            received=f"{type(error).__name__}: {error}",
            remedy="delete the checkpoint: `paribus run` goes on from the one before",
        ) from error
