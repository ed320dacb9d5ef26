"""The best weights of a mixture with fixed components, by quadrature, with a certificate.

With q_π = Σ_k π_k N_k three objectives are convex in π: ∫ p²/q_π ("variance", 1 + χ²),
-∫ p log q_π ("cross-entropy") and ∫ q_π log(q_π/p) ("reverse-kl"). On a grid each is Σ_g φ_g(s_g)
with s = Aπ, so its gradient is Aᵀφ' and its Hessian Aᵀ diag(φ'') A, and a primal-dual interior
point method (Nocedal & Wright 2006, section 19.2) finds the minimum over the simplex.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor

ExactObjective = Literal["variance", "cross-entropy", "reverse-kl"]
Terms = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]


@dataclass(frozen=True)
class OptimalWeights:
    """Optimal weights, and how far they can be from optimal.

    Parameters
    ----------
    weights
        π, ``(K,)``, positive, of sum 1; unused components keep a negligible weight.
    value
        The objective f(π), for p normalised on the grid.
    gap
        max_k ⟨∇f(π), π - e_k⟩ ≥ f(π) - min f, by convexity.
    """

    weights: Tensor
    value: float
    gap: float


def optimal_weights(
    log_components: Tensor,
    log_p: Tensor,
    log_volume: Tensor | float,
    objective: ExactObjective,
    tolerance: float = 1e-6,
) -> OptimalWeights:
    """Minimise ∫ p²/q, -∫ p log q or KL(q ‖ p) over the weights of q, in float64.

    Parameters
    ----------
    log_components
        log N_k at each grid point, ``(G, K)``.
    log_p
        log p̄ there, ``(G,)``; it is normalised on the grid, so Z does not matter.
    log_volume
        The log-volume of a grid cell, a number or ``(G,)``.
    objective
        "variance", "cross-entropy" or "reverse-kl". For the last the grid must also hold each
        component, and p̄ must be positive on it.
    tolerance
        The largest gap allowed: relative to f for "variance", in nats for the other two.

    Raises
    ------
    FloatingPointError
        If log p̄ or a log-component is NaN or +inf, or ∫ p²/q overflows for every π.
    ValueError
        If shapes do not fit, or the grid does not suit "reverse-kl".
    RuntimeError
        If the gap stays above `tolerance`.
    """
    if objective not in get_args(ExactObjective):
        raise ValueError(f"objective must be one of {get_args(ExactObjective)}, got {objective!r}")
    log_n, log_p = log_components.double(), log_p.double()
    log_v = torch.as_tensor(log_volume, dtype=torch.float64).expand(log_p.shape)
    if log_n.ndim != 2 or log_p.shape != log_n.shape[:1]:
        raise ValueError(
            "expected log_components (G, K) and log_p (G,), got "
            f"{tuple(log_n.shape)} and {tuple(log_p.shape)}"
        )
    if not bool(torch.isfinite(log_n).all() & (log_p < torch.inf).all()):
        raise FloatingPointError(
            "on the grid log-components must be finite, and log p̄ must be finite or -inf"
        )
    log_p = log_p - (log_p + log_v).logsumexp(0)
    peak = log_n.amax(-1)  # q = exp(peak) Aπ, and A has a 1 in each row: nothing underflows
    terms = _terms(peak, log_p, log_v, objective)
    if objective == "reverse-kl":
        _check_grid(log_n, log_p, log_v)
    return _interior_point((log_n - peak.unsqueeze(-1)).exp(), terms, objective, tolerance)


def _terms(peak: Tensor, log_p: Tensor, log_v: Tensor, objective: ExactObjective) -> Terms:
    """Return the map from s = exp(-peak) q to f, φ'(s) and φ''(s)."""
    power = {"variance": 2 * log_p - peak, "cross-entropy": log_p, "reverse-kl": peak}
    c = (log_v + power[objective]).exp()
    if not bool(torch.isfinite(c.sum())):
        raise FloatingPointError(
            f"the {objective} overflows whatever the weights: p has tails that no component covers"
        )

    def terms(s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if objective == "variance":
            return (c / s).sum(), -c / s.square(), 2 * c / s**3
        log_q = s.log() + peak
        if objective == "cross-entropy":
            return -(c * log_q).sum(), -c / s, c / s.square()
        return (c * s * (log_q - log_p)).sum(), c * (log_q - log_p + 1), c / s

    return terms


def _check_grid(log_n: Tensor, log_p: Tensor, log_v: Tensor) -> None:
    mass = (log_n + log_v.unsqueeze(-1)).logsumexp(0).exp()
    worst = int((mass - 1).abs().argmax())
    if not bool((mass[worst] - 1).abs() < 1e-3):
        raise ValueError(
            f"component {worst} has mass {float(mass[worst]):.4g} on the grid, not 1, so KL(q ‖ p) "
            "is not what the sum gives; widen or refine the grid"
        )
    if bool((log_p == -torch.inf).any()):
        raise ValueError("p̄ = 0 at a grid point: KL(q ‖ p) is infinite for any Gaussian q")


def _interior_point(
    a: Tensor, terms: Terms, objective: ExactObjective, tolerance: float
) -> OptimalWeights:
    """Minimise f(Aπ) over the simplex; z are the multipliers of π ≥ 0, and πz → μ → 0."""
    k = a.shape[1]
    pi = a.new_full((k,), 1 / k)
    z: Tensor | None = None
    gap = math.inf
    for _ in range(100):
        value, slope, curvature = terms(a @ pi)
        g = a.mT @ slope
        gap = float(pi @ g - g.min())
        if gap <= tolerance * (float(value) if objective == "variance" else 1):
            return OptimalWeights(pi, float(value), gap)
        z = gap / (k * pi) if z is None else z
        mu = 0.1 * float(pi @ z) / k
        hessian = a.mT @ (a * curvature.unsqueeze(-1)) + torch.diag(z / pi)
        sides = torch.stack([mu / pi - g, torch.ones_like(pi)], -1)
        free, ones = torch.linalg.solve(hessian, sides).unbind(-1)
        step = free - ones * (free.sum() / ones.sum())  # keeps Σπ = 1
        dz = (mu - z * step) / pi - z
        z = z + _to_boundary(z, dz) * dz
        pi = _search(partial(_barrier, terms, a, mu), pi, step, g - mu / pi)
    raise RuntimeError(
        f"the gap of the {objective} is {gap:.3g} after 100 iterations, above the tolerance "
        f"{tolerance:.3g}; allow a larger one"
    )


def _barrier(terms: Terms, a: Tensor, mu: float, pi: Tensor) -> Tensor:
    return terms(a @ pi)[0] - mu * pi.log().sum()


def _to_boundary(x: Tensor, step: Tensor) -> float:
    """The longest step, at most 1, that keeps 1 % of each coordinate of x > 0."""
    return min(1.0, 0.99 / max(float((-step / x).max()), 1e-300))


def _search(f: Callable[[Tensor], Tensor], x: Tensor, step: Tensor, slope: Tensor) -> Tensor:
    """Halve a step until f falls enough (Armijo), or rounding hides the fall."""
    length, start, fall = _to_boundary(x, step), f(x), slope @ step
    for _ in range(40):
        new = x + length * step
        if f(new) <= start + 1e-4 * length * fall + 1e-13 * start.abs():
            break
        length /= 2
    return new / new.sum()
