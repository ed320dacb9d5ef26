"""SVGD with path integration, Algorithm 2: KL(q_0‖p) and log Z without weights.

Along SVGD's path dKL/dt = -KSD², so KL(q_0‖p) = ∫ KSD² dt if the path ends at p. The listing
printed in the paper omits ε in the particles' update and names D̂ where K̂ is meant; this
follows its derivation (section 4), with KSD² evaluated before each move.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from steinis_lib.core.checks import check_finite, check_log_density, check_particles
from steinis_lib.core.loop import iterate
from steinis_lib.schedules import StepSize
from steinis_lib.stein.kernels import RBF, Kernel
from steinis_lib.stein.ksd import v_and_u
from steinis_lib.stein.maps import build
from steinis_lib.targets.base import Proposal, Target


@dataclass(frozen=True)
class PathState:
    """SVGD's particles and the integral so far.

    Parameters
    ----------
    particles
        ``(*batch, n, d)``.
    kl
        K̂ = Σ ε KSD², in nats, ``(*batch,)``, by the paper's V-statistic (eq. 19), whose positive
        floor adds up over transitions.
    kl_u
        The same by the U-statistic, which has no such floor; but SVGD's particles are not
        independent, so that it is not unbiased either.
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

    @property
    def log_z(self) -> Tensor:
        """log Ẑ = K̂ - E_{q0}[log(q_0/p̄)], ``(*batch,)``; biased while KSD² has not vanished."""
        return self.kl - self.log_ratio

    @property
    def log_z_u(self) -> Tensor:
        """The same from the U-statistic's integral."""
        return self.kl_u - self.log_ratio


@dataclass(frozen=True)
class PathInfo:
    """What one transition did: ε, and KSD² before the move by both statistics, ``(*batch,)``."""

    step_size: float
    ksd_squared: Tensor
    ksd_squared_u: Tensor


@dataclass(frozen=True)
class PathIntegration:
    """Algorithm 2: the settings of a run, and its `init`, `step` and `run`."""

    target: Target
    kernel: Kernel = field(default_factory=RBF)
    step_size: Callable[[int], float] = field(default_factory=StepSize)

    def init(
        self,
        q0: Proposal,
        n_particles: int,
        generator: torch.Generator,
        batch_shape: tuple[int, ...] = (),
    ) -> PathState:
        """Draw particles from q_0 and estimate E_{q0}[log(q_0/p̄)] from them."""
        particles = q0.sample((*batch_shape, n_particles), generator)
        check_particles(particles, "particles", self.target.dim, at_least=2)
        log_p = self.target.log_prob(particles)
        check_log_density(log_p, "the target's log_prob")
        log_ratio = (q0.log_prob(particles) - log_p).mean(-1)
        zero = torch.zeros_like(log_ratio)
        return PathState(particles, zero, zero.clone(), log_ratio, torch.tensor(0))

    def step(self, state: PathState) -> tuple[PathState, PathInfo]:
        """Add ε KSD² at the particles, then move them as SVGD does."""
        epsilon = self.step_size(int(state.transition))
        step_map = build(self.target, state.particles, self.kernel, epsilon)
        x, scores = step_map.leaders, step_map.scores
        v, u = v_and_u(step_map.kernel.stein(x, scores, x, scores))
        particles = step_map(x)
        check_finite(particles, "a particle")
        new = PathState(
            particles,
            state.kl + epsilon * v,
            state.kl_u + epsilon * u,
            state.log_ratio,
            state.transition + 1,
        )
        return new, PathInfo(epsilon, v, u)

    def run(
        self,
        state: PathState,
        n_transitions: int,
        on_step: Callable[[PathState, PathInfo], None] | None = None,
    ) -> PathState:
        """Take `n_transitions` steps; `on_step` sees each new state."""
        return iterate(self.step, state, n_transitions, on_step)
