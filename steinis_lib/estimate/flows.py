"""Gaussians nearest to p in KL(q‖p), by Stein flows from q0: where modes are far from the mass."""

from __future__ import annotations

import math

import torch

from steinis_lib.estimate.space import Space
from steinis_lib.estimate.student import StudentMixture
from steinis_lib.extensions.gaussian_flow import GaussianFlow
from steinis_lib.targets.base import Gaussian

TRANSITIONS, LEADERS = 60, 60
"""Of a flow; it has `LEADERS`, or 20 more than dimensions."""


def flown(space: Space, generator: torch.Generator) -> StudentMixture | None:
    """Return what a flow from q0 ends at, with a wider copy; None if it leaves the floats."""
    d, like = space.dim, space.q0.mean.double()
    flow = GaussianFlow(
        space, Gaussian.isotropic(torch.zeros_like(like)), n_leaders=max(LEADERS, d + 20)
    )
    state = flow.init(generator)
    for _ in range(TRANSITIONS):
        state, _ = flow.step(state)
        fine = torch.isfinite(state.scale_tril).all() & torch.isfinite(state.mean).all()
        if not bool(fine & (state.scale_tril.diagonal() > 0).all()):
            return None
    return StudentMixture(
        like.new_tensor([0.7, 0.3]).log(),
        state.mean.expand(2, d),
        torch.stack([state.scale_tril, 1.3 * state.scale_tril]),
        like.new_tensor([math.inf, 8.0]),
    )
