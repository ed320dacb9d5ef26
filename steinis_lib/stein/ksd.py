"""Kernelised Stein discrepancy KSD² = E_{x,x'~q} κ_p(x, x') (eqs. 6, 7 and 19)."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from steinis_lib.core.checks import check_finite, check_particles
from steinis_lib.stein.kernels import Kernel
from steinis_lib.targets.base import Target

Statistic = Literal["v", "u"]


def ksd_squared(
    target: Target,
    particles: Tensor,
    kernel: Kernel,
    *,
    statistic: Statistic = "v",
    weights: Tensor | None = None,
) -> Tensor:
    """Estimate KSD²(q ‖ p), ``(*batch,)``, from particles ``(*batch, n, d)`` of q.

    Parameters
    ----------
    kernel
        Fitted already, or with a given bandwidth; else fitted to `particles`.
    statistic
        "v": the mean of κ_p over all pairs (eq. 19), never negative and biased upwards; "u": over
        pairs of different particles, unbiased for independent particles, and can be negative.
    weights
        Normalised weights ``(*batch, n)`` of the particles: of a quadrature rule, or
        self-normalised importance weights. Only for "v".

    Raises
    ------
    FloatingPointError
        If a score is not finite.
    """
    check_particles(particles, "particles", target.dim, at_least=2)
    scores = target.score(particles)
    check_finite(scores, "the target's score")
    kappa = kernel.fit(particles).stein(particles, scores, particles, scores)
    if statistic not in ("v", "u"):
        raise ValueError(f"statistic must be 'v' or 'u', got {statistic!r}")
    if weights is None:
        v, u = v_and_u(kappa)
        return v if statistic == "v" else u
    if statistic == "u":
        raise ValueError("weights go with the V-statistic only: pass statistic='v'")
    return (weights.unsqueeze(-2) @ kappa @ weights.unsqueeze(-1))[..., 0, 0]


def v_and_u(kappa: Tensor) -> tuple[Tensor, Tensor]:
    """Return V- and U-statistic, ``(*batch,)``, of κ_p over all pairs ``(*batch, n, n)``."""
    n = kappa.shape[-1]
    total = kappa.sum((-2, -1))
    diagonal = kappa.diagonal(dim1=-2, dim2=-1).sum(-1)
    return total / n**2, (total - diagonal) / (n * (n - 1))


def cross_ksd_squared(
    target: Target,
    leaders: Tensor,
    followers: Tensor,
    kernel: Kernel,
    *,
    weights: Tensor | None = None,
) -> Tensor:
    """Mean of κ_p over leader × follower pairs, ``(*batch,)``; the kernel is fitted to leaders.

    With the leaders fixed this is exactly -dKL(q_ℓ‖p)/dt of the followers' q_ℓ as ε → 0. It can
    be negative, unlike KSD²: the followers' KL then rises. `weights` are those of followers.
    """
    check_particles(leaders, "leaders", target.dim, at_least=2)
    check_particles(followers, "followers", target.dim)
    kappa = (
        kernel.fit(leaders)
        .stein(followers, target.score(followers), leaders, target.score(leaders))
        .mean(-1)
    )
    return kappa.mean(-1) if weights is None else (weights * kappa).sum(-1)
