"""Importance samples: log Z, expectations and diagnostics; all in log space."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from steinis_lib.core.checks import check_log_density, check_particles, check_q0
from steinis_lib.core.pareto import pareto_k
from steinis_lib.targets.base import Proposal, Target


@dataclass(frozen=True)
class ImportanceSample:
    """Independent particles with unnormalised log-weights log w = log p̄ - log q.

    Parameters
    ----------
    particles
        ``(*batch, n, d)``, n ≥ 2.
    log_w
        ``(*batch, n)``; -inf is a zero weight, NaN and +inf are refused.

    Raises
    ------
    FloatingPointError
        If a log-weight is NaN or +inf, or all weights of a problem are zero.
    """

    particles: Tensor
    log_w: Tensor

    def __post_init__(self) -> None:
        check_particles(self.particles, "particles", at_least=2)
        if self.log_w.shape != self.particles.shape[:-1]:
            raise ValueError(
                f"log_w must be (*batch, n) = {tuple(self.particles.shape[:-1])}, "
                f"got {tuple(self.log_w.shape)}"
            )
        check_log_density(self.log_w, "log_w")
        if bool((self.log_w == -torch.inf).all(-1).any()):
            raise FloatingPointError(
                "all weights of a problem are zero: no particle lies where p̄ > 0; "
                "move q0 towards the target's support"
            )

    @property
    def n(self) -> int:
        """The number of particles."""
        return self.log_w.shape[-1]

    @property
    def log_z(self) -> Tensor:
        """log Ẑ = log((1/n) Σ w_i), ``(*batch,)``; Ẑ, not its log, is unbiased."""
        return self.log_w.logsumexp(-1) - math.log(self.n)

    @property
    def log_z_se(self) -> Tensor:
        """Standard error of log Ẑ by the delta method, sd(w)/(√n w̄), ``(*batch,)``.

        It is too small if the weights' variance is infinite, or if no draw has one of the large
        weights. `pareto_k` can warn of the first case.
        """
        relative = (self.log_w - self.log_z.unsqueeze(-1)).exp()  # w / w̄
        return relative.std(-1) / math.sqrt(self.n)

    @property
    def ess(self) -> Tensor:
        """Effective sample size (Σw)²/Σw², between 1 and n (Kong 1992), ``(*batch,)``."""
        return (2 * self.log_w.logsumexp(-1) - (2 * self.log_w).logsumexp(-1)).exp()

    @property
    def pareto_k(self) -> Tensor:
        """Pareto-k̂ of the weights' tail, ``(*batch,)``; see `steinis_lib.core.pareto`.

        Above 0.7 neither estimates nor their standard errors can be trusted. +inf where the tail
        is too short to fit (fewer than about 25 particles), -inf where all weights are equal.
        """
        return pareto_k(self.log_w)

    def expectation(self, f: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """Return the self-normalised estimate of E_p[f] and its standard error.

        Parameters
        ----------
        f
            Maps ``(*batch, n, d)`` to ``(*batch, n, k)``.

        Returns
        -------
        mean, standard_error
            Both ``(*batch, k)``; the error is √Σ w̃²(f - mean)², the delta method's
            (Owen 2013, section 9.2).
        """
        values = f(self.particles)
        if values.shape[:-1] != self.log_w.shape:
            raise ValueError(
                f"f must return (*batch, n, k) = {(*self.log_w.shape, 'k')}, "
                f"got {tuple(values.shape)}"
            )
        w = self.log_w.softmax(-1).unsqueeze(-1)
        mean = (w * values).sum(-2)
        error = (w * (values - mean.unsqueeze(-2))).square().sum(-2).sqrt()
        return mean, error


def importance_sampling(
    target: Target, q0: Proposal, shape: tuple[int, ...], generator: torch.Generator
) -> ImportanceSample:
    """Draw ``shape = (*batch, n)`` particles from q_0 and weight them, log w = log p̄ - log q_0.

    Raises
    ------
    ValueError
        If q_0 and the target have different dimensions.
    FloatingPointError
        If log p̄ is NaN or +inf, naming the particle, or all weights of a problem are zero.
    """
    check_q0(target, q0)
    particles = q0.sample(shape, generator)
    log_p = target.log_prob(particles)
    check_log_density(log_p, "the target's log_prob")
    return ImportanceSample(particles, log_p - q0.log_prob(particles))
