"""Jacobians of many points as sums of outer products, and determinants exact to rounding.

Jacobians I + ε∇φ of short steps are close to diagonal. With D their diagonal, A = D(I + E), and

    log det(I + E) = -tr E²/2 + tr E³/3 - tr E⁴/4 + R,   |R| ≤ (f g²/5 + g³/6)/(1 - g),

where f = ‖E‖_F and g = ‖E²‖_F < 1: tr E = 0, and |tr E^2k| ≤ g^k and |tr E^(2k+1)| ≤ f g^k for
k > 1. The one product E² gives everything here, and costs a third of an LU decomposition.

The series is used where this bound is below √d times the machine precision, which is what d rounded
pivots of an LU decomposition add up to. The sign is then that of det D, as no eigenvalue of E
exceeds √g. All other matrices go through LU with pivoting.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

SERIES_FROM = 16
"""The smallest d for which the series is tried; below it, LU takes a microsecond."""


class OuterSum(NamedTuple):
    """Σ_j w_j a_j b_jᵀ + u yᵀ + y vᵀ + c I at each of n points, the sum over m leaders.

    Parameters
    ----------
    weights
        w, ``(*batch, n, m)``.
    a, b
        Of the leaders, ``(*batch, m, d)``.
    u, v, y, c
        Of the points, ``(*batch, n, d)``, and c ``(*batch, n, 1)``.
    """

    weights: Tensor
    a: Tensor
    b: Tensor
    u: Tensor
    v: Tensor
    y: Tensor
    c: Tensor

    def diagonal(self) -> Tensor:
        """Return the diagonals, ``(*batch, n, d)``."""
        diagonal: Tensor = self.weights @ (self.a * self.b)
        return diagonal + (self.u + self.v) * self.y + self.c

    def full(self) -> Tensor:
        """Return the matrices, ``(*batch, n, d, d)``; the sum over leaders is one product."""
        rows = (self.a.unsqueeze(-1) * self.b.unsqueeze(-2)).flatten(-2)
        full = (self.weights @ rows).unflatten(-1, 2 * self.a.shape[-1:])
        full.addcmul_(self.u.unsqueeze(-1), self.y.unsqueeze(-2))
        full.addcmul_(self.y.unsqueeze(-1), self.v.unsqueeze(-2))
        full.diagonal(dim1=-2, dim2=-1).add_(self.c)
        return full


def problems(t: Tensor, batch: torch.Size) -> Tensor:
    """Expand ``(*, k, l)`` to ``(*batch, k, l)``, and flatten the batch to one axis."""
    return t.expand(*batch, *t.shape[-2:]).flatten(0, -3) if batch else t.unsqueeze(0)


def log_abs_det(a: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sign (1, -1 or 0) and log|det| of matrices ``(*, d, d)``, each ``(*)``.

    A singular matrix has log|det| = -∞, one with a NaN has NaN. For d ≤ 2 this is a closed form, as
    calls of LAPACK would take longer than the work; for larger d, LU or the series of this module.
    """
    d = a.shape[-1]
    if d <= 2:
        det = a[..., 0, 0]
        if d == 2:
            det = det * a[..., 1, 1] - a[..., 0, 1] * a[..., 1, 0]
        return det.sign(), det.abs().log()
    if d < SERIES_FROM:
        return _lu(a)
    diagonal = a.diagonal(dim1=-2, dim2=-1)
    e = a / diagonal.unsqueeze(-1)
    e.diagonal(dim1=-2, dim2=-1).zero_()
    f = torch.linalg.vector_norm(e, dim=(-2, -1))
    rounding = d**0.5 * torch.finfo(a.dtype).eps
    if not bool(f.nanmedian() ** 5 < 5 * d * rounding):
        return _lu(a)  # half would fail even with g = f²/√d, the least of a symmetric E
    series, bound = _series(e, f)
    sign, log_det = diagonal.sign().prod(-1), diagonal.abs().log().sum(-1) + series
    rest = bound >= rounding
    if bool(rest.any()):
        sign[rest], log_det[rest] = _lu(a[rest])
    return sign, log_det


def _lu(a: Tensor) -> tuple[Tensor, Tensor]:
    sign, log_det = torch.linalg.slogdet(a)
    return sign, log_det


def _series(e: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
    """Return log det(I + E) up to tr E⁴, for E with zeros on the diagonal, and the bound on R."""
    square = e.mT @ e.mT  # (E²)ᵀ, as tr E³ is the sum over its product with E entry by entry
    g = torch.linalg.vector_norm(square, dim=(-2, -1))
    second = square.diagonal(dim1=-2, dim2=-1).sum(-1)
    third = (e * square).sum((-2, -1))
    fourth = (square * square.mT).sum((-2, -1))
    bound = torch.where(g < 1, (f / 5 + g / 6) * g.square() / (1 - g), torch.inf)  # NaN: infinity
    return -second / 2 + third / 3 - fourth / 4, bound
