"""Stein variational gradient descent (Liu & Wang 2016; the paper's eqs. 8 and 9)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field

import torch
from torch import Tensor

from steinis_lib.core.algorithm import Algorithm
from steinis_lib.core.checks import (
    check_at_least,
    check_finite,
    check_particles,
    check_q0,
    check_step_size,
)
from steinis_lib.schedules import StepSchedule, step_at
from steinis_lib.stein.kernels import RBF, Kernel
from steinis_lib.stein.maps import build
from steinis_lib.targets.base import Proposal, Target


@dataclass(frozen=True)
class SVGDState:
    """Particles ``(*batch, n, d)`` after `transition` transitions (an int64 scalar)."""

    particles: Tensor
    transition: Tensor


@dataclass(frozen=True)
class SVGDInfo:
    """What one transition did: ε, and the root mean square of φ at the particles, ``(*batch,)``."""

    step_size: float
    velocity: Tensor


@dataclass(frozen=True)
class SVGD(Algorithm[SVGDState, SVGDInfo]):
    """SVGD: all particles build the map, and it moves them all.

    The particles depend on one another and their density is not known: there is no log Z here and
    no importance weight. `SteinIS` has both.

    Parameters
    ----------
    target
        p̄, through `score`.
    q0
        Where particles start.
    n_particles
        Of each problem, at least 2.
    kernel
        Default: RBF with the paper's bandwidth rule, fitted to the particles at each transition.
    step_size
        ε, or a schedule ℓ → ε such as `StepSize`.

    Raises
    ------
    ValueError
        If a setting is out of range, or q_0 and the target have different dimensions.
    """

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

    def init(self, generator: torch.Generator, *, batch_shape: tuple[int, ...] = ()) -> SVGDState:
        """Draw particles from q_0."""
        particles = self.q0.sample((*batch_shape, self.n_particles), generator)
        check_particles(particles, "particles", self.target.dim)
        return SVGDState(particles, torch.tensor(0))

    def step(self, state: SVGDState) -> tuple[SVGDState, SVGDInfo]:
        """Move every particle by x + ε φ(x).

        Raises
        ------
        FloatingPointError
            If a score or a moved particle is not finite, naming the particle.
        """
        epsilon = step_at(self.step_size, int(state.transition))
        step_map = build(self.target, state.particles, self.kernel, epsilon)
        moved = step_map(state.particles)
        check_finite(moved, "a particle")
        velocity = ((moved - state.particles) / epsilon).square().mean((-2, -1)).sqrt()
        return SVGDState(moved, state.transition + 1), SVGDInfo(epsilon, velocity)

    def n_evaluations(self, n_transitions: int) -> int:
        """Return at how many particles of one problem p̄'s score is asked for."""
        return n_transitions * self.n_particles
