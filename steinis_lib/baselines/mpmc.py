"""Mixture population Monte Carlo (M-PMC; Cappé, Douc, Guillin, Marin & Robert 2008).

Their Rao-Blackwellised update uses draws x_i from the mixture q_t, normalised weights w̃_i ∝ p̄/q_t
and posterior probabilities ρ_k(x) = α_k N_k(x)/q_t(x):

    α_k ← Σ_i w̃_i ρ_k(x_i),  μ_k ← Σ_i w̃_i ρ_k(x_i) x_i / α_k,
    Σ_k ← Σ_i w̃_i ρ_k(x_i) (x_i - μ_k)(x_i - μ_k)ᵀ / α_k,

This is one step of EM for the cross-entropy -∫ p log q, with integrals estimated from the draws.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from steinis_lib.core.algorithm import Algorithm
from steinis_lib.core.checks import check_at_least, check_log_density, check_q0
from steinis_lib.core.generators import fork, resume
from steinis_lib.importance import ImportanceSample
from steinis_lib.targets.base import Target
from steinis_lib.targets.mixtures import FullCovarianceMixture


@dataclass(frozen=True)
class MixturePMCState:
    """Where a run stands.

    Parameters
    ----------
    log_weights, means, scale_trils
        The mixture that the next step draws from: ``(*batch, K)``, ``(*batch, K, d)`` and
        ``(*batch, K, d, d)``; see `FullCovarianceMixture`.
    transition
        t, an int64 scalar.
    rng
        The state of the run's own random generator, uint8; `step` draws from nothing else.
    """

    log_weights: Tensor
    means: Tensor
    scale_trils: Tensor
    transition: Tensor
    rng: Tensor


@dataclass(frozen=True)
class MixturePMCInfo:
    """What one step did.

    Parameters
    ----------
    particles
        The draws from the mixture, ``(*batch, n, d)``.
    log_w
        log p̄ - log q_t at them, ``(*batch, n)``.
    """

    particles: Tensor
    log_w: Tensor


@dataclass(frozen=True)
class MixturePMC(Algorithm[MixturePMCState, MixturePMCInfo]):
    """M-PMC with Gaussian components.

    A component for which too few draws count keeps its old covariance, if an eigenvalue of the new
    one would be `min_scale`² or less; its weight and mean are updated all the same. Components that
    die are not replaced: their weights go to zero.

    Parameters
    ----------
    target
        p̄, through `log_prob`.
    q0
        The mixture that the first step draws from.
    n_particles
        Draws in each step, at least 2.
    min_scale
        The smallest standard deviation, in any direction, that an update may give to a component.

    Raises
    ------
    ValueError
        If a setting is out of range, or dimensions differ.
    """

    target: Target
    q0: FullCovarianceMixture
    _: KW_ONLY
    n_particles: int
    min_scale: float = 1e-3

    def __post_init__(self) -> None:
        check_q0(self.target, self.q0, FullCovarianceMixture)
        check_at_least(self.n_particles, 2, "n_particles")
        if not self.min_scale > 0:
            raise ValueError(f"min_scale must be positive, got {self.min_scale}")

    def init(
        self, generator: torch.Generator, *, batch_shape: tuple[int, ...] = ()
    ) -> MixturePMCState:
        """Start at q_0, repeated along `batch_shape`; `generator` seeds the run's stream."""
        k, d = self.q0.means.shape[-2:]
        batch = torch.broadcast_shapes(batch_shape, self.q0.log_z.shape)
        return MixturePMCState(
            self.q0.log_weights.expand(*batch, k),
            self.q0.means.expand(*batch, k, d),
            self.q0.scale_trils.expand(*batch, k, d, d),
            torch.tensor(0),
            fork(generator),
        )

    def step(self, state: MixturePMCState) -> tuple[MixturePMCState, MixturePMCInfo]:
        """Draw from the mixture, weight the draws, and fit the mixture to them.

        The mixture depends on earlier draws alone. So the mean of a step's weights is an unbiased
        Ẑ, and so is the mean of Ẑ over steps; ``ImportanceSample(info.particles, info.log_w)``
        has log Ẑ.

        Raises
        ------
        FloatingPointError
            If log p̄ is NaN or +inf at a draw, or all weights of a problem are zero.
        """
        q = self.proposal(state)
        generator = resume(state.rng, state.means.device)
        x = q.sample((*state.means.shape[:-2], self.n_particles), generator)
        joint = q.log_components(x) + q.log_weights.unsqueeze(-2)
        log_q = joint.logsumexp(-1)
        log_p = self.target.log_prob(x)
        check_log_density(log_p, "the target's log_prob")
        sample = ImportanceSample(x, log_p - log_q)
        log_r = joint + (sample.log_w.log_softmax(-1) - log_q).unsqueeze(-1)  # log w̃ ρ
        new = MixturePMCState(
            *fit_components(x, log_r, q, self.min_scale),
            transition=state.transition + 1,
            rng=generator.get_state(),
        )
        return new, MixturePMCInfo(x, sample.log_w)

    def proposal(self, state: MixturePMCState) -> FullCovarianceMixture:
        """Return the mixture that the next step draws from."""
        return FullCovarianceMixture(state.log_weights, state.means, state.scale_trils)

    def n_evaluations(self, n_transitions: int) -> int:
        """Return how many particles of a problem p̄ is asked for at."""
        return n_transitions * self.n_particles


def fit_components(
    x: Tensor, log_r: Tensor, old: FullCovarianceMixture, min_scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return log α, μ and the Cholesky factor of Σ from draws and log w̃ρ, ``(*batch, n, K)``."""
    log_alpha = log_r.logsumexp(-2)
    dead = log_alpha == -torch.inf
    share = (log_r - log_alpha.masked_fill(dead, 0.0).unsqueeze(-2)).exp()  # sums to 1 over draws
    centre = log_alpha.exp().unsqueeze(-2) @ (share.mT @ x)  # keeps the moments accurate
    y = x - centre
    mean = share.mT @ y
    squares = (y.unsqueeze(-1) * y.unsqueeze(-2)).flatten(-2)
    second = (share.mT @ squares).unflatten(-1, (x.shape[-1], x.shape[-1]))
    covariance = second - mean.unsqueeze(-1) * mean.unsqueeze(-2)

    eye = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    thin = torch.linalg.cholesky_ex(covariance - min_scale**2 * eye).info > 0
    keep = thin[..., None, None]
    factor = torch.linalg.cholesky(torch.where(keep, eye, covariance))
    return (
        log_alpha.log_softmax(-1),
        torch.where(dead.unsqueeze(-1), old.means, centre + mean),
        torch.where(keep, old.scale_trils, factor),
    )
