"""Pareto-k̂: how heavy the tail of the largest importance weights is (Vehtari et al. 2024).

The largest min(n/5, 3√n) weights, less the largest of the others, are fitted by a generalised
Pareto distribution of shape k. Its moments of order 1/k and above are infinite. The fit is the
empirical Bayes estimate of Zhang & Stephens (2009), with the weak prior of Vehtari et al. on k.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

FEWEST = 5
"""A tail of fewer weights is not fitted."""
PRIOR_WEIGHT, PRIOR_SHAPE = 10, 0.5
"""The prior counts as so many observations of a tail of that shape."""


def pareto_k(log_w: Tensor) -> Tensor:
    """Return k̂ of log-weights ``(*batch, n)``, ``(*batch,)``, computed in float64 on the CPU.

    It is +inf where the tail is too short to fit, and -inf where all weights are equal.
    """
    rows = log_w.detach().double().cpu().reshape(-1, log_w.shape[-1])
    k = torch.tensor([_of_one_problem(row) for row in rows], dtype=torch.float64)
    return k.reshape(log_w.shape[:-1]).to(log_w)


def _of_one_problem(log_w: Tensor) -> float:
    n = len(log_w)
    ordered = (log_w - log_w.amax()).sort().values
    if ordered[0] == ordered[-1]:
        return -math.inf
    largest_of_others = float(ordered[-math.ceil(min(n / 5, 3 * math.sqrt(n))) - 1])
    threshold = max(largest_of_others, math.log(torch.finfo(torch.float64).tiny))
    tail = ordered[ordered > threshold]
    if len(tail) < FEWEST:
        return math.inf
    return pareto_shape(tail.exp() - math.exp(threshold))


def pareto_shape(x: Tensor) -> float:
    """Return the shape k of a generalised Pareto distribution fitted to x ``(n,)``.

    x is float64, positive, and in ascending order. With θ = -k/σ the profile likelihood is known
    in closed form; θ̂ is its mean over a grid that Zhang & Stephens choose from the data.
    """
    n = len(x)
    m = 30 + math.isqrt(n)
    place = torch.arange(1, m + 1, dtype=x.dtype) - 0.5
    quartile = x[int(n / 4 + 0.5) - 1]
    theta = 1 / x[-1] + (1 - (m / place).sqrt()) / (3 * quartile)
    k = torch.log1p(-theta.unsqueeze(-1) * x).mean(-1)
    weight = (n * ((-theta / k).log() - k - 1)).softmax(0)
    weight = weight.where(weight >= 10 * torch.finfo(x.dtype).eps, 0.0)
    best = (weight * theta).sum() / weight.sum()
    shape = float(torch.log1p(-best * x).mean())
    return (n * shape + PRIOR_WEIGHT * PRIOR_SHAPE) / (n + PRIOR_WEIGHT)
