"""SVGD with path integration, Algorithm 2: KL(q_0‖p) and log Z without weights.

Along SVGD's path dKL/dt = -KSD², so KL(q_0‖p) = ∫ KSD² dt if the path ends at p. The listing
printed in the paper omits ε in the particles' update, and names D̂ where K̂ is meant. Here as in its
derivation (section 4), KSD² is evaluated before each move.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field

import torch
from torch import Tensor

from steinis_lib.core.algorithm import Algorithm
from steinis_lib.core.checks import (
    check_at_least,
    check_finite,
    check_log_density,
    check_particles,
    check_q0,
    check_step_size,
)
from steinis_lib.schedules import StepSchedule, step_at
from steinis_lib.stein.kernels import RBF, Kernel
from steinis_lib.stein.ksd import v_and_u
from steinis_lib.stein.maps import build
from steinis_lib.targets.base import Proposal, Target


@dataclass(frozen=True)
class PathIntegrationState:
    """SVGD's particles and the integral so far.

    Parameters
    ----------
    particles
        ``(*batch, n, d)``.
    kl
        K̂ = Σ ε KSD², in nats, ``(*batch,)``, by the V-statistic; see `PathEstimate`.
    kl_u
        The same by the U-statistic.
    log_ratio
        Mean of log(q_0/p̄) over the initial particles, ``(*batch,)``.
    transition
        ℓ, an int64 scalar.
    """

    particles: Tensor
    kl: Tensor
    kl_u: Tensor
    log_ratio: Tensor
    transition: Tensor


@dataclass(frozen=True)
class PathIntegrationInfo:
    """What one transition did: ε, and KSD² before the move by both statistics, ``(*batch,)``."""

    step_size: float
    ksd_squared: Tensor
    ksd_squared_u: Tensor


@dataclass(frozen=True)
class PathEstimate:
    """Estimates of KL(q_0‖p) and log Z, ``(*batch,)`` each; biased while KSD² is not zero.

    Parameters
    ----------
    kl
        K̂ = Σ ε KSD², in nats, by the paper's V-statistic (eq. 19). With few particles that stays
        positive where they have come to rest, and adds up over transitions.
    log_z
        log Ẑ = K̂ - E_{q0}[log(q_0/p̄)].
    kl_u, log_z_u
        The same by the U-statistic. As SVGD's particles depend on one another, it is not unbiased:
        it gets negative where few particles have come to rest.
    """

    kl: Tensor
    log_z: Tensor
    kl_u: Tensor
    log_z_u: Tensor


@dataclass(frozen=True)
class PathIntegration(Algorithm[PathIntegrationState, PathIntegrationInfo]):
    """Algorithm 2; settings and what is refused are as for `SVGD`."""

    target: Target
    q0: Proposal
    _: KW_ONLY
    n_particles: int = 100
    kernel: Kernel = field(default_factory=RBF)
    step_size: float | StepSchedule = 0.1

    def __post_init__(self) -> None:
        check_q0(self.target, self.q0)
        check_at_least(self.n_particles, 2, "n_particles")
        check_step_size(self.step_size)

    def init(
        self, generator: torch.Generator, *, batch_shape: tuple[int, ...] = ()
    ) -> PathIntegrationState:
        """Draw particles from q_0 and estimate E_{q0}[log(q_0/p̄)] from them.

        Raises
        ------
        FloatingPointError
            If log p̄ is NaN or +inf at a particle, naming it.
        """
        particles = self.q0.sample((*batch_shape, self.n_particles), generator)
        check_particles(particles, "particles", self.target.dim)
        log_p = self.target.log_prob(particles)
        check_log_density(log_p, "the target's log_prob")
        log_ratio = (self.q0.log_prob(particles) - log_p).mean(-1)
        zero = torch.zeros_like(log_ratio)
        return PathIntegrationState(particles, zero, zero, log_ratio, torch.tensor(0))

    def step(self, state: PathIntegrationState) -> tuple[PathIntegrationState, PathIntegrationInfo]:
        """Add ε KSD² at the particles, then move them as SVGD does."""
        epsilon = step_at(self.step_size, int(state.transition))
        step_map = build(self.target, state.particles, self.kernel, epsilon)
        x, scores = step_map.leaders, step_map.scores
        v, u = v_and_u(step_map.kernel.stein(x, scores, x, scores))
        particles = step_map(x)
        check_finite(particles, "a particle")
        new = PathIntegrationState(
            particles=particles,
            kl=state.kl + epsilon * v,
            kl_u=state.kl_u + epsilon * u,
            log_ratio=state.log_ratio,
            transition=state.transition + 1,
        )
        return new, PathIntegrationInfo(epsilon, v, u)

    def estimate(self, state: PathIntegrationState) -> PathEstimate:
        """Return K̂ and log Ẑ from the integral so far."""
        return PathEstimate(
            kl=state.kl,
            log_z=state.kl - state.log_ratio,
            kl_u=state.kl_u,
            log_z_u=state.kl_u - state.log_ratio,
        )

    def n_evaluations(self, n_transitions: int) -> int:
        """Return at how many particles of one problem p̄ or its score is asked for."""
        return (n_transitions + 1) * self.n_particles
