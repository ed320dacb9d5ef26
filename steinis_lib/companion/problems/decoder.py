"""The posterior over latents of a deep generative model, the targets of section 5.4.

p(z) = N(0, I) in R^d, and given z the D pixels are Bernoulli with logits l = Vᵀ tanh(Wᵀz + b) + c.
For an image x the unnormalised density p̄(z) = p(x, z) has Z = p(x). A score takes two matrix
products forward and two back. As xᵀl = tanh(·)ᵀ(V x) + cᵀx, V x is computed once for each image,
and the only product with pixels that is left is V σ(l).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from steinis_lib.targets.base import Gaussian

ROWS = 1024
"""Particles that go through the network at once; their pixels fit a cache (3 MB in 32 bits)."""


@dataclass(frozen=True)
class DecoderPosterior:
    """p̄(z) = p(x | z) N(z; 0, I) for many images at once, with Z = p(x).

    Memory is bounded: hidden units and pixels of at most `ROWS` particles exist at a time.

    Parameters
    ----------
    decoder
        The network: any object with the tensors `hidden_weight` W ``(d, h)``, `hidden_bias` b
        ``(h,)``, `output_weight` V ``(h, D)`` and `output_bias` c ``(D,)``, of the dtype and on the
        device of the target.
    images
        Binary x, ``(*batch, D)``; particles are then ``(*batch, n, d)``.

    Raises
    ------
    ValueError
        If shapes or dtypes do not fit, a weight is not finite, or a pixel is not 0 or 1.
    """

    decoder: Any
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
        return self._evaluate(z, True, False)[0]

    def score(self, z: Tensor) -> Tensor:
        """Return ∇_z log p(x, z), ``(*batch, n, d)``."""
        return self._evaluate(z, False, True)[1]

    def log_prob_and_score(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return both from the same logits."""
        return self._evaluate(z, True, True)

    def _evaluate(self, z: Tensor, want_log_p: bool, want_score: bool) -> tuple[Tensor, Tensor]:
        """Return log p(x, z) and the score, each left unset where it is not wanted."""
        w, b, v, c = self._weights
        batch = torch.broadcast_shapes(z.shape[:-2], self.images.shape[:-1])
        z = z.expand(*batch, *z.shape[-2:])
        shape, n = z.shape, z.shape[-2]
        flat = z.reshape(-1, n, self.dim)
        pulled = self._pulled.expand(*batch, 1, len(b)).reshape(-1, 1, len(b))
        at_bias = (self.images @ c).expand(batch).reshape(-1, 1)
        log_p, score = flat.new_empty(flat.shape[:2]), flat.new_empty(flat.shape)
        for at in _pieces(len(flat), n):
            part, own = flat[at], pulled[at[0]]
            rows = part.reshape(-1, self.dim)
            hidden = torch.addmm(b, rows, w).mul_(2).sigmoid_().mul_(2).sub_(1)  # tanh, but faster
            by_image = hidden.view(*part.shape[:2], -1)
            pixels = torch.addmm(c, hidden, v)
            if want_log_p:
                # softplus(l) = max(l, 0) - log σ(|l|), and σ(|l|) is the larger of σ(l), 1 - σ(l)
                total = pixels.clamp(min=0).sum(-1)
                pixels.sigmoid_()
                total -= torch.maximum(pixels, 1 - pixels).log_().sum(-1)
                prior = -0.5 * (part.square().sum(-1) + self.dim * math.log(2 * math.pi))
                along = (by_image @ own.mT).squeeze(-1) + at_bias[at[0]]
                log_p[at] = along + prior - total.view(part.shape[:2])
            else:
                pixels.sigmoid_()
            if want_score:
                back = torch.mm(pixels, v.mT).view(by_image.shape)
                back.sub_(own).mul_(by_image.square_().sub_(1))
                score[at] = (back.view(len(rows), -1) @ w.mT).view(part.shape).sub_(part)
        return log_p.view(shape[:-1]), score.view(shape)

    @cached_property
    def _pulled(self) -> Tensor:
        """V x, ``(*batch, 1, h)``."""
        return (self.images @ self.decoder.output_weight.mT).unsqueeze(-2)

    @property
    def _weights(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        net = self.decoder
        return net.hidden_weight, net.hidden_bias, net.output_weight, net.output_bias


def _pieces(n_images: int, n: int) -> Iterator[tuple[slice, slice]]:
    """Cut (images, particles) into pieces of at most `ROWS` particles: whole images if they fit."""
    images, particles = max(1, ROWS // max(1, n)), max(1, min(n, ROWS))
    for i in range(0, n_images, images):
        for j in range(0, n, particles):
            yield slice(i, i + images), slice(j, j + particles)
