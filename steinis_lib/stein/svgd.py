"""Stein variational gradient descent (Liu & Wang 2016; the paper's eqs. 8 and 9)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from steinis_lib.core.checks import check_finite, check_particles
from steinis_lib.core.loop import iterate
from steinis_lib.schedules import StepSize
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
class SVGD:
    """SVGD: every particle is pushed by the map that all particles build.

    The particles depend on each other and have no tracked density, so there is no log Z and no
    importance weight here; see `SteinIS`.
    """

    target: Target
    kernel: Kernel = field(default_factory=RBF)
    step_size: Callable[[int], float] = field(default_factory=StepSize)

    def init(
        self,
        q0: Proposal,
        n_particles: int,
        generator: torch.Generator,
        batch_shape: tuple[int, ...] = (),
    ) -> SVGDState:
        """Draw particles from q_0."""
        particles = q0.sample((*batch_shape, n_particles), generator)
        check_particles(particles, "particles", self.target.dim, at_least=2)
        return SVGDState(particles, torch.tensor(0))

    def step(self, state: SVGDState) -> tuple[SVGDState, SVGDInfo]:
        """Move every particle by x + ε φ(x)."""
        epsilon = self.step_size(int(state.transition))
        step_map = build(self.target, state.particles, self.kernel, epsilon)
        moved = step_map(state.particles)
        check_finite(moved, "a particle")
        velocity = ((moved - state.particles) / epsilon).square().mean((-2, -1)).sqrt()
        return SVGDState(moved, state.transition + 1), SVGDInfo(epsilon, velocity)

    def run(
        self,
        state: SVGDState,
        n_transitions: int,
        on_step: Callable[[SVGDState, SVGDInfo], None] | None = None,
    ) -> SVGDState:
        """Take `n_transitions` steps; `on_step` sees each new state."""
        return iterate(self.step, state, n_transitions, on_step)
