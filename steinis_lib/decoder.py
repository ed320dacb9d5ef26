"""The posterior over latents of a deep generative model, the targets of section 5.4.

p(z) = N(0, I) in R^d, and given z the D pixels are Bernoulli with logits l = Vᵀ tanh(Wᵀz + b) + c.
For an image x the unnormalised density p̄(z) = p(x, z) has Z = p(x). Everything is two matrix
products forward and two back: xᵀl = tanh(·)ᵀ(V x) + cᵀx with V x taken once for each image, so
that no product with pixels is left but V σ(l).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import softplus

from steinis_lib.targets import Gaussian

ROWS = 1024
"""Particles that go through the pixels at once: 3 MB of 32-bit numbers, what a cache holds."""


class DecoderWeights(Protocol):
    """W ``(d, h)``, b ``(h,)``, V ``(h, D)`` and c ``(D,)``."""

    @property
    def hidden_weight(self) -> Tensor:
        """W."""
        ...

    @property
    def hidden_bias(self) -> Tensor:
        """b."""
        ...

    @property
    def output_weight(self) -> Tensor:
        """V."""
        ...

    @property
    def output_bias(self) -> Tensor:
        """c."""
        ...


@dataclass(frozen=True)
class DecoderPosterior:
    """p̄(z) = p(x | z) N(z; 0, I) for many images at once, with Z = p(x).

    Memory is bounded: pixels of at most `ROWS` particles exist at a time.

    Parameters
    ----------
    decoder
        The network; its dtype and device are the target's.
    images
        Binary x, ``(*batch, D)``; particles are then ``(*batch, n, d)``.

    Raises
    ------
    ValueError
        If shapes or dtypes do not fit, a weight is not finite, or a pixel is not 0 or 1.
    """

    decoder: DecoderWeights
    images: Tensor

    def __post_init__(self) -> None:
        w, b, v, c = self._weights
        if not (w.ndim == v.ndim == 2 and b.shape == w.shape[1:] == v.shape[:1]):
            raise ValueError(
                "expected hidden_weight (d, h), hidden_bias (h,) and output_weight (h, D); got "
                f"{tuple(w.shape)}, {tuple(b.shape)} and {tuple(v.shape)}"
            )
        if c.shape != v.shape[1:] or self.images.shape[-1:] != c.shape:
            raise ValueError(
                f"expected output_bias (D,) and images (*batch, D) with D = {v.shape[1]}; got "
                f"{tuple(c.shape)} and {tuple(self.images.shape)}"
            )
        tensors = (w, b, v, c, self.images)
        if len({t.dtype for t in tensors}) > 1 or not w.is_floating_point():
            dtypes = ", ".join(str(t.dtype) for t in tensors)
            raise ValueError(f"weights and images must have one floating-point dtype, got {dtypes}")
        if not all(bool(torch.isfinite(t).all()) for t in (w, b, v, c)):
            raise ValueError("the decoder's weights must be finite")
        if not bool(((self.images == 0) | (self.images == 1)).all()):
            raise ValueError("pixels must be 0 or 1: binarise the images first")

    @property
    def dim(self) -> int:
        """The dimension d of z."""
        return self.decoder.hidden_weight.shape[0]

    def prior(self) -> Gaussian:
        """Return p(z) = N(0, I)."""
        w = self.decoder.hidden_weight
        return Gaussian.isotropic(torch.zeros(self.dim, dtype=w.dtype, device=w.device))

    def log_prob(self, z: Tensor) -> Tensor:
        """Return log p(x, z), ``(*batch, n)``."""
        hidden = self._hidden(z)
        log_p = self._linear(z, hidden)
        flat = hidden.flatten(0, -2)
        for rows, out in _parts(flat, log_p.view(-1)):
            out -= softplus(self._logits(rows)).sum(-1)
        return log_p

    def score(self, z: Tensor) -> Tensor:
        """Return ∇_z log p(x, z), ``(*batch, n, d)``."""
        hidden = self._hidden(z)
        back = torch.empty_like(hidden)
        for rows, out in _parts(hidden.flatten(0, -2), back.view(-1, back.shape[-1])):
            torch.mm(self._logits(rows).sigmoid_(), self.decoder.output_weight.mT, out=out)
        return self._through(z, hidden, back)

    def log_prob_and_score(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return both from the same logits."""
        hidden = self._hidden(z)
        log_p, back = self._linear(z, hidden), torch.empty_like(hidden)
        flat = zip(
            _parts(hidden.flatten(0, -2), back.view(-1, back.shape[-1])),
            _parts(log_p.view(-1, 1), log_p.view(-1)),
            strict=True,
        )
        for (rows, out), (_, total) in flat:
            logits = self._logits(rows)
            total -= softplus(logits).sum(-1)
            torch.mm(logits.sigmoid_(), self.decoder.output_weight.mT, out=out)
        return log_p, self._through(z, hidden, back)

    @cached_property
    def _pulled(self) -> Tensor:
        """V x, ``(*batch, 1, h)``."""
        return (self.images @ self.decoder.output_weight.mT).unsqueeze(-2)

    @property
    def _weights(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        net = self.decoder
        return net.hidden_weight, net.hidden_bias, net.output_weight, net.output_bias

    def _hidden(self, z: Tensor) -> Tensor:
        w, b, _, _ = self._weights
        return torch.addmm(b, z.reshape(-1, self.dim), w).tanh_().view(*z.shape[:-1], len(b))

    def _logits(self, hidden: Tensor) -> Tensor:
        _, _, v, c = self._weights
        return torch.addmm(c, hidden, v)

    def _linear(self, z: Tensor, hidden: Tensor) -> Tensor:
        """log N(z; 0, I) + xᵀl, all of log p(x, z) but the softplus; contiguous."""
        at_bias = (self.images @ self.decoder.output_bias).unsqueeze(-1)
        along = (hidden @ self._pulled.mT).squeeze(-1)
        prior = -0.5 * (z.square().sum(-1) + self.dim * math.log(2 * math.pi))
        return (along + at_bias + prior).contiguous()

    def _through(self, z: Tensor, hidden: Tensor, back: Tensor) -> Tensor:
        """W (1 - tanh²)(V x - V σ(l)) - z, given V σ(l) in `back`, which is overwritten."""
        back.neg_().add_(self._pulled).mul_(1 - hidden.square())
        return (back.flatten(0, -2) @ self.decoder.hidden_weight.mT).view(z.shape).sub_(z)


def _parts(rows: Tensor, out: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Pair pieces of at most `ROWS` rows."""
    return zip(rows.split(ROWS), out.split(ROWS), strict=True)
