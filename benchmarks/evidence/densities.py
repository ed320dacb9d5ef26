"""Log-densities that many targets are made of, as functions of tensors that broadcast.

Scales and rates that a model keeps positive are here in logarithms, the coordinates in which
targets are given; their densities have the factor of the change of variables.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

LOG_2PI = math.log(2 * math.pi)
Real = Tensor | float


def normal(x: Real, mean: Real, scale: Real) -> Tensor:
    """log N(x; mean, scale²)."""
    z, log_scale = (x - mean) / scale, torch.as_tensor(scale).log()
    return -0.5 * torch.as_tensor(z).square() - log_scale - 0.5 * LOG_2PI


def half_normal_log(t: Tensor, scale: float) -> Tensor:
    """The density of t = log σ, σ half-normal."""
    return normal(t.exp(), 0.0, scale) + math.log(2) + t


def half_cauchy_log(t: Tensor, scale: float) -> Tensor:
    """The density of t = log σ, σ half-Cauchy."""
    return math.log(2 / (math.pi * scale)) - ((t.exp() / scale).square()).log1p() + t


def gamma_log(t: Tensor, shape: Real, rate: Real) -> Tensor:
    """The density of t = log λ, λ ~ Gamma(shape, rate)."""
    a, b = torch.as_tensor(shape).to(t), torch.as_tensor(rate).to(t)
    return a * b.log() - torch.lgamma(a) + a * t - b * t.exp()


def logit_uniform(t: Tensor) -> Tensor:
    """The density of t = logit p, p uniform on (0, 1)."""
    return logsigmoid(t) + logsigmoid(-t)


def bernoulli_logit(y: Tensor, logits: Tensor) -> Tensor:
    """log P(y) for y of 0 and 1."""
    return logsigmoid((2 * y - 1) * logits)


def poisson_log(y: Tensor, log_rate: Tensor) -> Tensor:
    """log P(y) for counts y."""
    return y * log_rate - log_rate.exp() - torch.lgamma(y + 1)
