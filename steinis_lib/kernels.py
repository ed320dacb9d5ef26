"""Kernels, and everything Stein that is linear in them.

A kernel k enters SVGD, SteinIS and KSD through three expressions, each linear in k:

* the velocity field φ(y) = (1/m) Σ_j [k(x_j, y) s_j + ∇_{x_j} k(x_j, y)]   (eq. 8),
* its Jacobian ∇φ(y), whole or only its diagonal                             (Proposition 1),
* the Stein kernel κ_p(x, y)                                                 (eq. 7).

`Kernel` asks for just these, so that sums of kernels, affine parts, and kernels in whitened
coordinates are further classes with the same three methods. `fit` lets a kernel take what
depends on the data (a bandwidth, a metric) from the leaders, and from them alone: the
followers must not influence the map they are pushed through.

For radial kernels k(x, y) = f(‖x - y‖²) all three are matrix products.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, Protocol, Self

import torch
from torch import Tensor

JacobianForm = Literal["none", "diagonal", "full"]


class Kernel(Protocol):
    """A positive definite kernel, through the expressions that are linear in it."""

    def fit(self, leaders: Tensor) -> Self:
        """Return the kernel with its data-dependent settings taken from the leaders."""
        ...

    def field(
        self, y: Tensor, leaders: Tensor, scores: Tensor, jacobian: JacobianForm = "none"
    ) -> tuple[Tensor, Tensor | None]:
        """Return φ(y) ``(*batch, n, d)`` and ∇φ(y): ``(*batch, n, d, d)``, its diagonal, or None.

        ``∇φ[..., i, a, b] = ∂φ_a/∂y_b`` at particle i.
        """
        ...

    def stein(self, x: Tensor, score_x: Tensor, y: Tensor, score_y: Tensor) -> Tensor:
        """Return κ_p(x_i, y_j), ``(*batch, n, m)``, eq. 7."""
        ...


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """Return ‖x_i - y_j‖², ``(*batch, n, m)``, never negative, by one matrix product."""
    xx, yy = x.square().sum(-1, keepdim=True), y.square().sum(-1, keepdim=True)
    left = torch.cat([x, xx, torch.ones_like(xx)], -1)
    right = torch.cat([-2 * y, torch.ones_like(yy), yy], -1)
    return (left @ right.mT).clamp_min_(0.0)


def median_distance(x: Tensor) -> Tensor:
    """Return the median Euclidean distance between different particles, ``(*batch,)``.

    Our convention, where libraries differ: distances are not squared; each of the n(n-1)/2
    unordered pairs counts once, so the zero diagonal does not; an even number of pairs gives the
    mean of the two middle values.
    """
    n = x.shape[-2]
    if n < 2:
        raise ValueError(f"a median distance needs at least 2 particles, got {n}")
    x = x - x.mean(-2, keepdim=True)
    r = squared_distances(x, x)
    r = torch.maximum(r, r.mT)  # round-off must not tell a pair from its mirror image
    r.diagonal(dim1=-2, dim2=-1).zero_()
    # Sorted, r is the n zeros of the diagonal and then each pair twice: select, do not sort.
    r, pairs = r.flatten(-2), n * (n - 1) // 2
    low = r.kthvalue(n + 2 * ((pairs - 1) // 2) + 1, dim=-1).values
    if pairs % 2:
        return low.sqrt()
    above = r > low.unsqueeze(-1)
    next_up = r.masked_fill(~above, torch.inf).amin(-1)
    tied = (~above).sum(-1) > n + 2 * (pairs // 2)
    return (low.sqrt() + torch.where(tied, low, next_up).sqrt()) / 2


def median_bandwidth(x: Tensor) -> Tensor:
    """Return the paper's h = med² / (2 log(m + 1)), ``(*batch,)``, for leaders ``(*batch, m, d)``.

    `med` is `median_distance`. Where it is zero (half of the pairs coincide) the rule says
    nothing, and h = 1 is returned.
    """
    h = median_distance(x).square() / (2 * math.log(x.shape[-2] + 1))
    return torch.where(h > 0, h, torch.ones_like(h))


@dataclass(frozen=True)
class Radial:
    """A kernel f(‖x - y‖²); a subclass gives f and its derivatives in `profile`.

    Parameters
    ----------
    bandwidth
        h, a number or ``(*batch,)``. None: `median_bandwidth` of the leaders, anew at each fit.
    multiplier
        Factor on the bandwidth rule; has no effect on a given `bandwidth`.
    """

    bandwidth: Tensor | float | None = None
    multiplier: float = 1.0

    def __post_init__(self) -> None:
        if self.bandwidth is not None and not bool((torch.as_tensor(self.bandwidth) > 0).all()):
            raise ValueError(f"bandwidth must be positive, got {self.bandwidth}")
        if not self.multiplier > 0:
            raise ValueError(f"multiplier must be positive, got {self.multiplier}")

    def profile(self, r: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return f(r) and the ratios f'/f and f''/f', which may broadcast against r.

        It owns r, and may overwrite it.
        """
        raise NotImplementedError

    def fit(self, leaders: Tensor) -> Self:
        """Return the kernel with a bandwidth from the leaders, unless it has one already."""
        if self.bandwidth is not None:
            return self
        return replace(self, bandwidth=self.multiplier * median_bandwidth(leaders))

    def gram(self, x: Tensor, y: Tensor) -> Tensor:
        """Return k(x_i, y_j), ``(*batch, n, m)``."""
        return self.profile(squared_distances(x, y), self._h(x))[0]

    def field(
        self, y: Tensor, leaders: Tensor, scores: Tensor, jacobian: JacobianForm = "none"
    ) -> tuple[Tensor, Tensor | None]:
        """Return φ(y) and its Jacobian; see `Kernel.field`.

        With f, f' and f'' at r_j = ‖x_j - y‖²,
        φ(y) = (1/m) Σ_j [f s_j + 2 f' (x_j - y)] and
        ∇φ(y) = -(2/m) Σ_j [f' s_j (x_j - y)ᵀ + 2 f'' (x_j - y)(x_j - y)ᵀ + f' I],
        multiplied out, so that sums over leaders are matrix products of weights (n, m) with
        what depends on leaders alone.
        """
        m = leaders.shape[-2]
        centre = leaders.mean(-2, keepdim=True)  # φ is translation invariant; round-off is not
        s, x, y = scores, leaders - centre, y - centre
        f, ratio1, ratio2 = self.profile(squared_distances(y, x), self._h(y))
        one = torch.ones_like(x[..., :1])
        if ratio2.shape[-2:] == (1, 1):  # f' and f'' are multiples of f: one product does it all
            f_s, f_x, f_1, f_o = _product(f, s, x, one, _outer(s + 2 * ratio2 * x, x, jacobian))
            d_s, d_x, d_1, outer = (ratio1 * sums for sums in (f_s, f_x, f_1, f_o))
            dd_x, dd_1 = ratio2 * d_x, ratio2 * d_1
        else:
            f1 = f * ratio1
            (f_s,) = _product(f, s)
            d_s, d_x, d_1, d_o = _product(f1, s, x, one, _outer(s, x, jacobian))
            dd_x, dd_1, dd_o = _product(f1 * ratio2, x, one, _outer(x, x, jacobian))
            outer = d_o + 2 * dd_o
        phi = (f_s + 2 * (d_x - d_1 * y)) / m
        if jacobian == "none":
            return phi, None
        if jacobian == "diagonal":
            diagonal = outer - (d_s + 2 * dd_x) * y - 2 * y * (dd_x - dd_1 * y) + d_1
            return phi, diagonal * (-2 / m)
        full = outer.unflatten(-1, (x.shape[-1], x.shape[-1]))
        full = full - (d_s + 2 * dd_x).unsqueeze(-1) * y.unsqueeze(-2)
        full -= 2 * y.unsqueeze(-1) * (dd_x - dd_1 * y).unsqueeze(-2)
        full.diagonal(dim1=-2, dim2=-1).add_(d_1)
        return phi, full.mul_(-2 / m)

    def stein(self, x: Tensor, score_x: Tensor, y: Tensor, score_y: Tensor) -> Tensor:
        """Return κ_p(x_i, y_j) = f s·s' - 2f'(s - s')·(x - y) - 2d f' - 4 r f'', eq. 7."""
        centre = y.mean(-2, keepdim=True)
        x, y = x - centre, y - centre
        r = squared_distances(x, y)
        f, ratio1, ratio2 = self.profile(r.clone(), self._h(x))
        along = (
            (score_x * x).sum(-1).unsqueeze(-1)
            + (score_y * y).sum(-1).unsqueeze(-2)
            - score_x @ y.mT
            - x @ score_y.mT
        )
        pull = 2 * along + 2 * x.shape[-1] + 4 * r * ratio2
        return f * (score_x @ score_y.mT - ratio1 * pull)

    def _h(self, like: Tensor) -> Tensor:
        if self.bandwidth is None:
            raise ValueError("the kernel has no bandwidth yet: call kernel.fit(leaders) first")
        h = torch.as_tensor(self.bandwidth, dtype=like.dtype, device=like.device)
        return h[..., None, None]


def _outer(a: Tensor, b: Tensor, form: JacobianForm) -> Tensor:
    """Rows a_j b_jᵀ flattened, ``(*batch, m, d²)``; only their diagonals, or nothing, as needed."""
    if form == "none":
        return a[..., :0]
    return a * b if form == "diagonal" else (a.unsqueeze(-1) * b.unsqueeze(-2)).flatten(-2)


def _product(weights: Tensor, *columns: Tensor) -> tuple[Tensor, ...]:
    """``weights @ c`` for each c of `columns`, as one matrix product."""
    sums = weights @ torch.cat(columns, -1)
    return sums.split([c.shape[-1] for c in columns], -1)


@dataclass(frozen=True)
class RBF(Radial):
    """k(x, y) = exp(-‖x - y‖²/h), the paper's kernel (section 5)."""

    def profile(self, r: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return f, f'/f = -1/h, and f''/f' = -1/h."""
        return r.mul_(-1 / h).exp_(), -1 / h, -1 / h


@dataclass(frozen=True)
class IMQ(Radial):
    """k(x, y) = (1 + ‖x - y‖²/h)^(-1/2), the inverse multiquadric (Gorham & Mackey 2017)."""

    def profile(self, r: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return f, f'/f = -f²/(2h), and f''/f' = -3 f²/(2h)."""
        f = (1 + r / h).rsqrt()
        ratio = f.square() * (-0.5 / h)
        return f, ratio, 3 * ratio
