"""RMSNorm as a function that a kernel can read: what a sublayer applies to what it reads."""

from dataclasses import dataclass

from torch.nn import functional

from paribus.shapes import Stream, Vector


@dataclass(frozen=True)
class Norm:
    """x / sqrt(mean(x^2) + eps) * gain, by PyTorch's own operator; `depth_read` does the same in the pass of a read."""

    gain: Vector | None
    """[width]; None for ones"""
    eps: float

    def __call__(self, x: Stream) -> Stream:
        return functional.rms_norm(x, x.shape[-1:], self.gain, self.eps)
