"""Projections onto the mixture weights π ≥ floor with Σ_k π_k = 1."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def project_kl(log_y: Tensor, floor: float) -> Tensor:
    """Return log π, ``(*batch, K)``, for the π with the smallest KL(π ‖ y).

    π_k = max(floor, c y_k), and c is found by sorting; without a floor π ∝ y. y need not be
    normalised.
    """
    log_y, rank = log_y.log_softmax(-1), _ranks(log_y)
    if floor == 0:
        return log_y
    ordered = log_y.sort(-1, descending=True).values
    log_c = (1 - (rank[-1] - rank) * floor).log() - ordered.logcumsumexp(-1)
    above = (log_c + ordered > math.log(floor)).sum(-1, keepdim=True)
    return (log_c.gather(-1, above - 1) + log_y).clamp(min=math.log(floor))


def project_euclidean(y: Tensor, floor: float) -> Tensor:
    """Return the π nearest to y in Euclidean distance, ``(*batch, K)``.

    π_k = floor + max(0, y_k - θ), and θ is found by sorting (Held, Wolfe & Crowder 1974).
    """
    y, rank = y - y.amax(-1, keepdim=True), _ranks(y)  # a huge y would swallow the 1
    ordered = y.sort(-1, descending=True).values
    theta = (ordered.cumsum(-1) - (1 - rank[-1] * floor)) / rank
    above = (ordered > theta).sum(-1, keepdim=True)
    return floor + (y - theta.gather(-1, above - 1)).clamp(min=0)


def _ranks(y: Tensor) -> Tensor:
    return torch.arange(1, y.shape[-1] + 1, dtype=y.dtype, device=y.device)
