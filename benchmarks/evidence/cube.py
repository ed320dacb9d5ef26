"""The unit cube for nested samplers: a prior, and a likelihood whose mean under it is Z."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from evidence.case import Case, Prior
from steinis_lib import Gaussian

EDGE = 1e-15
"""Points of the cube keep this distance from its faces, which are infinitely far away in R^d."""
NOWHERE = 1e100
"""Minus the log-likelihood of what has none; its square is finite too."""
Array = np.ndarray


@dataclass
class Cube:
    """A case as nested samplers take it, in NumPy, with a count of likelihoods.

    Parameters
    ----------
    case
        The target.
    prior
        What is integrated over.
    """

    case: Case
    prior: Prior
    n_evaluations: int = 0

    def transform(self, u: Array) -> Array:
        """Map points of the unit cube, ``(d,)`` or ``(n, d)``, to particles of the same shape."""
        points = torch.as_tensor(np.atleast_2d(u)).to(self.case.dtype)
        edge = max(EDGE, torch.finfo(self.case.dtype).eps)
        return self.prior.transform(points.clamp(edge, 1 - edge)).numpy().reshape(np.shape(u))

    def log_likelihood(self, x: Array) -> Array | float:
        """Return log p̄(x) - log prior(x) of particles ``(n, d)``, or a number for ``(d,)``.

        What is NaN counts as a density of zero, since these samplers would stop at it.
        """
        points = torch.as_tensor(np.atleast_2d(x)).to(self.case.dtype)
        self.n_evaluations += len(points)
        with torch.no_grad():
            value = self.case.log_prob(points) - self.prior.log_prob(points)
        found = value.double().nan_to_num(-NOWHERE, NOWHERE, -NOWHERE).numpy()
        return found if np.ndim(x) == 2 else float(found[0])


def unit_cube(case: Case) -> Cube:
    """Return the case with its own prior, or else with q0 as the prior."""
    return Cube(case, case.prior or normal(case.start))


def normal(q0: Gaussian) -> Prior:
    """Return N(m, LLᵀ): x = m + L Φ⁻¹(u)."""

    def transform(u: Tensor) -> Tensor:
        return q0.mean + torch.special.ndtri(u) @ q0.scale_tril.mT

    return Prior(transform, q0.log_prob)


def cauchy(scale: float | Tensor) -> Prior:
    """Return independent Cauchy densities around 0, for targets with heavy tails."""

    def transform(u: Tensor) -> Tensor:
        return scale * (math.pi * (u - 0.5)).tan()

    def log_prob(x: Tensor) -> Tensor:
        width = torch.as_tensor(scale).to(x)
        return -((x / width).square().log1p() + (math.pi * width).log()).sum(-1)

    return Prior(transform, log_prob)


def box(low: float | Tensor, high: float | Tensor) -> Prior:
    """Return the uniform density between two corners.

    Outside of it a likelihood is never asked for, so that the target's mass must lie inside.
    """

    def transform(u: Tensor) -> Tensor:
        return low + (high - low) * u

    def log_prob(x: Tensor) -> Tensor:
        width = (torch.as_tensor(high) - low).to(x)
        return -width.log().expand(x.shape).sum(-1)

    return Prior(transform, log_prob)


def logistic(q0: Gaussian) -> Prior:
    """Return independent logistic densities with q0's mean and standard deviations as scales.

    Their tails fall as exp(-|x|), as those of the logarithm of a half-Cauchy or gamma variable do.
    """
    mean, scale = q0.mean, q0.scale_tril.diagonal()

    def transform(u: Tensor) -> Tensor:
        return mean + scale * torch.logit(u)

    def log_prob(x: Tensor) -> Tensor:
        z = (x - mean) / scale
        return (logsigmoid(z) + logsigmoid(-z) - scale.log()).sum(-1)

    return Prior(transform, log_prob)
