"""A radial kernel's field with an affine part, which is a regression of scores on particles."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from steinis_lib.stein.determinants import problems
from steinis_lib.stein.kernels import RBF, JacobianForm, Kernel


@dataclass(frozen=True)
class WithAffinePart(Kernel):
    """A kernel's field plus a + G u, whose a ``(*batch, 1, d)`` and G ``(*batch, d, d)`` are given.

    They come from leaders that were whitened, so `fit` leaves all as it is.
    """

    kernel: RBF
    shift: Tensor
    gain: Tensor

    def fit(self, leaders: Tensor) -> Self:
        """Return this kernel."""
        return self

    def field(
        self, y: Tensor, leaders: Tensor, scores: Tensor, jacobian: JacobianForm = "none"
    ) -> tuple[Tensor, Tensor | None]:
        """Return φ(y) and ∇φ(y); see `Kernel.field`."""
        phi, d = self.kernel.field(y, leaders, scores, jacobian)
        gain = self.gain.unsqueeze(-3)
        if d is not None:
            d = d + (gain if jacobian == "full" else gain.diagonal(dim1=-2, dim2=-1))
        return phi + self.shift + y @ self.gain.mT, d

    def jacobians(
        self, y: Tensor, leaders: Tensor, scores: Tensor, at_once: int
    ) -> tuple[Tensor, Iterator[Tensor]]:
        """Return φ(y) and ∇φ(y) of `at_once` problems at a time; see `Kernel.jacobians`."""
        phi, jacobians = self.kernel.jacobians(y, leaders, scores, at_once)
        gains = problems(self.gain, phi.shape[:-2]).split(at_once)
        pieces = (j.add_(g.unsqueeze(-3)) for j, g in zip(jacobians, gains, strict=True))
        return phi + self.shift + y @ self.gain.mT, pieces

    def stein(self, x: Tensor, score_x: Tensor, y: Tensor, score_y: Tensor) -> Tensor:
        """Refuse: the affine part is a fitted field, which belongs to no kernel."""
        raise NotImplementedError("the affine part has no Stein kernel: ask that of `kernel`")

    def steepness(self, scores: Tensor) -> Tensor:
        """Return Λ ≥ ‖∇φ(y)‖ for all y, ``(*batch,)``.

        ‖∇k‖ is at most √(2/(e h)), and the mixed second derivatives of k have norm at most 2/h.
        """
        h = torch.as_tensor(self.kernel.bandwidth, dtype=scores.dtype, device=scores.device)
        of_scores = torch.linalg.vector_norm(scores, dim=-1).mean(-1) * (2 / (math.e * h)).sqrt()
        return of_scores + 2 / h + torch.linalg.matrix_norm(self.gain, 2)


def affine_part(u: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return a, G, and the share of ‖a‖² + ‖G‖² that exceeds the noise of the regression.

    The noise of a coefficient has the variance σ²/m of m leaders, where the residuals' σ² has
    m - d - 1 degrees of freedom. Taking the symmetric part halves that off the diagonal.
    """
    m, d = u.shape[-2:]
    with_one = torch.cat([torch.ones_like(u[..., :1]), u], -1)
    found = torch.linalg.solve(with_one.mT @ with_one, with_one.mT @ s)  # u is whitened
    shift, slope = found[..., :1, :], found[..., 1:, :]
    gain = (slope + slope.mT) / 2 + torch.eye(d, dtype=u.dtype, device=u.device)
    residual = (s - with_one @ found).square().sum((-2, -1)) / (m - d - 1)
    noise = residual / m * (1 + (d + 1) / 2)
    total = shift.square().sum((-2, -1)) + gain.square().sum((-2, -1))
    share = 1 - noise / total.clamp(min=torch.finfo(total.dtype).tiny)
    return shift, gain, share.clamp(min=0.0)
