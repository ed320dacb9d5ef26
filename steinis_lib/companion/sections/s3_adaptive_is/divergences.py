"""KL divergences in the plane: by quadrature, and by the kernel density estimate of section 5.2."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from steinis_lib.core.checks import check_log_density, check_particles
from steinis_lib.targets.mixtures import FullCovarianceMixture

MASS_TOLERANCE = 1e-3
"""How far a density's sum over a grid may be from 1."""


@dataclass(frozen=True)
class PlaneGrid:
    """A grid of squares, for sums over the plane.

    Parameters
    ----------
    points
        Their centres, ``(G, 2)``, the second coordinate running fastest.
    axes
        The two axes' coordinates.
    log_volume
        The log-area of a square.
    """

    points: Tensor
    axes: tuple[Tensor, Tensor]
    log_volume: float

    @classmethod
    def over(cls, low: tuple[float, float], high: tuple[float, float], spacing: float) -> PlaneGrid:
        """Return a grid over the box from `low` to `high`, in float64."""
        if not spacing > 0 or not (low[0] < high[0] and low[1] < high[1]):
            raise ValueError(f"need low < high and spacing > 0, got {low}, {high} and {spacing}")
        first, second = (
            torch.arange(math.floor((b - a) / spacing + 1e-9) + 1, dtype=torch.float64) * spacing
            + a
            for a, b in zip(low, high, strict=True)
        )
        points = torch.cartesian_prod(first, second)
        return cls(points, (first, second), 2 * math.log(spacing))

    def kl(self, log_q: Tensor, log_p: Tensor) -> Tensor:
        """Return KL(q‖p) = Σ q log(q/p) over the grid, ``(*batch,)``, in nats.

        Parameters
        ----------
        log_q, log_p
            Normalised log-densities at `points`, ``(*batch, G)``; -inf is density zero.

        Raises
        ------
        ValueError
            If q's mass on the grid is not 1 within `MASS_TOLERANCE`: it reaches beyond the grid,
            or is too narrow for it.
        FloatingPointError
            If a log-density is NaN or +inf.
        """
        check_log_density(log_q, "log q")
        check_log_density(log_p, "log p")
        q = (log_q + self.log_volume).exp()
        off = float((q.sum(-1) - 1).abs().max())
        if off > MASS_TOLERANCE:
            raise ValueError(
                f"q's sum over the grid is off 1 by {off:.2g}, more than {MASS_TOLERANCE}: take a "
                "wider grid, or a finer one"
            )
        return torch.where(q > 0, q * (log_q - log_p), torch.zeros_like(q)).sum(-1)


def kernel_density(samples: Tensor, factor: float = 1.0) -> FullCovarianceMixture:
    """Return the Gaussian kernel density estimate from samples ``(n, d)``.

    Its covariance is that of the samples times (factor · n^(-1/(d+4)))²; factor 1 is Scott's rule
    (Scott 1992), as in scipy.stats.gaussian_kde.
    """
    check_particles(samples, "samples", at_least=2)
    if samples.ndim != 2 or not factor > 0:
        raise ValueError(
            f"expected samples (n, d) and a positive factor, got {tuple(samples.shape)}, {factor}"
        )
    n, d = samples.shape
    tril, failed = torch.linalg.cholesky_ex(torch.atleast_2d(samples.T.cov()))
    if failed:
        raise ValueError(
            f"the samples' covariance is singular: {n} samples do not span all {d} dimensions"
        )
    tril = tril * (factor * n ** (-1 / (d + 4)))
    log_weights = torch.full_like(samples[:, 0], -math.log(n))
    return FullCovarianceMixture(log_weights, samples, tril.expand(n, d, d))
