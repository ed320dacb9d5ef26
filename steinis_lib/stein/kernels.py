"""Kernels, and the Stein expressions that are linear in them.

A kernel k enters SVGD, SteinIS and KSD through three expressions, each linear in k:

* the velocity field φ(y) = (1/m) Σ_j [k(x_j, y) s_j + ∇_{x_j} k(x_j, y)]   (eq. 8),
* its Jacobian ∇φ(y), whole or only its diagonal                             (Proposition 1),
* the Stein kernel κ_p(x, y)                                                 (eq. 7).

A `Kernel` gives these three, so sums of kernels, affine parts, and kernels in whitened coordinates
are classes with the same methods. `fit` takes what depends on the data (a bandwidth, a metric) from
the leaders alone: followers must not influence the map that they are pushed through.

For radial kernels k(x, y) = f(‖x - y‖²) all three are matrix products.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, Protocol, Self

import torch
from torch import Tensor

from steinis_lib.stein.determinants import OuterSum, problems

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

    def jacobians(
        self, y: Tensor, leaders: Tensor, scores: Tensor, at_once: int
    ) -> tuple[Tensor, Iterator[Tensor]]:
        """Return φ(y), and ∇φ(y) in pieces of `at_once` problems: ``(at_once, n, d, d)`` each.

        Pieces follow the batch of φ(y), with its axes flattened to one; the last may be shorter.
        Where ∇φ is the same at all points, n may be 1. The caller may overwrite the pieces.
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
    i, j = torch.triu_indices(n, n, 1, device=x.device)
    r, pairs = r.flatten(-2).index_select(-1, n * i + j), n * (n - 1) // 2
    lower = r.topk(pairs // 2 + 1, largest=False, sorted=False).values
    middle = lower.topk(2 - pairs % 2).values
    return middle.sqrt().mean(-1)


def median_bandwidth(x: Tensor) -> Tensor:
    """Return the paper's h = med² / (2 log(m + 1)), ``(*batch,)``, for leaders ``(*batch, m, d)``.

    `med` is `median_distance`. Where it is zero, as half of the pairs coincide, h is 1.
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

        It may overwrite r.
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
        phi, gradient = self._field(y, leaders, scores, jacobian != "none")
        if gradient is None:
            return phi, None
        return phi, gradient.diagonal() if jacobian == "diagonal" else gradient.full()

    def jacobians(
        self, y: Tensor, leaders: Tensor, scores: Tensor, at_once: int
    ) -> tuple[Tensor, Iterator[Tensor]]:
        """Return φ(y) and ∇φ(y) of `at_once` problems at a time; see `Kernel.jacobians`."""
        phi, gradient = self._field(y, leaders, scores, True)
        assert gradient is not None
        pieces = (problems(t, phi.shape[:-2]).split(at_once) for t in gradient)
        return phi, (OuterSum(*tensors).full() for tensors in zip(*pieces, strict=True))

    def _field(
        self, y: Tensor, leaders: Tensor, scores: Tensor, want_gradient: bool
    ) -> tuple[Tensor, OuterSum | None]:
        """Return φ(y), and ∇φ(y) not yet multiplied out."""
        centre = leaders.mean(-2, keepdim=True)  # φ is translation invariant; round-off is not
        s, x, y = scores, leaders - centre, y - centre
        f, ratio1, ratio2 = self.profile(squared_distances(y, x), self._h(y))
        f, one = f / leaders.shape[-2], torch.ones_like(x[..., :1])
        if ratio2.shape[-2:] == (1, 1):  # f' and f'' are multiples of f: its sums give all
            f_s, f_x, f_1 = _product(f, s, x, one)
            d_s, d_x, d_1 = ratio1 * f_s, ratio1 * f_x, ratio1 * f_1
            dd_x, dd_1 = ratio2 * d_x, ratio2 * d_1
        else:
            d, dd, f_s = f * ratio1, f * ratio1 * ratio2, f @ s
            d_s, d_x, d_1 = _product(d, s, x, one)
            dd_x, dd_1 = _product(dd, x, one)
        phi = f_s + 2 * (d_x - d_1 * y)
        if not want_gradient:
            return phi, None
        if ratio2.shape[-2:] == (1, 1):
            weights, a, b = f, -2 * ratio1 * (s + 2 * ratio2 * x), x
        else:
            weights, b = torch.cat([d, dd], -1), torch.cat([x, x], -2)
            a = torch.cat([-2 * s, -4 * x], -2)
        return phi, OuterSum(weights, a, b, 2 * d_s + 4 * dd_x, 4 * (dd_x - dd_1 * y), y, -2 * d_1)

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
