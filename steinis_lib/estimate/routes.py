"""How `estimate_log_z` improves on a mixture that is a bad proposal: by maps, or by annealing.

Both return n weighted draws, and doubts. All choices are made on pilot draws, which are
thrown away.
"""

from __future__ import annotations

import math

import torch

from steinis_lib.baselines.geometric_path import linear_schedule
from steinis_lib.baselines.hais import HAIS
from steinis_lib.estimate.doubts import Doubt
from steinis_lib.extensions.held_out import HeldOutSteinIS
from steinis_lib.importance import ImportanceSample
from steinis_lib.stein.kernels import RBF
from steinis_lib.targets.base import Gaussian, ScoredProposal, Target
from steinis_lib.targets.mixtures import FullCovarianceMixture
from steinis_lib.targets.whitened import WhitenedTarget

ENOUGH = 0.5
"""A proposal is good enough if the ESS of pilot draws is this share of their number."""
N_PILOT = 500
"""Draws that are thrown away, each time that something is tried."""
REFINE, FALLING = 60, 0.05
"""The most transitions of held-out SteinIS, and nats that the last quarter should not gain."""
LENGTHS, STEPS, LEAPFROGS = (10, 40, 160, 640), (0.15, 0.3, 0.6), 5
"""HAIS: transitions that are tried in turn, leapfrog steps ε, and how many of them."""


def good(sample: ImportanceSample) -> bool:
    """Say whether pilot draws show that a proposal can be weighed."""
    return bool(sample.ess >= ENOUGH * sample.n) and bool(sample.pareto_k < 0.7)


def by_maps(
    target: Target, mixture: FullCovarianceMixture, n: int, generator: torch.Generator
) -> tuple[ImportanceSample | None, list[Doubt]]:
    """Return n draws moved by maps, and doubts; None where held-out weights are not good."""
    sampler = HeldOutSteinIS(
        target,
        mixture,
        n_leaders=2000,
        n_followers=n,
        n_held_out=N_PILOT,
        kernel=RBF(multiplier=4.0),
        leaders_per_step=200,
    )
    gains: list[float] = []
    state = sampler.run(
        sampler.init(generator), REFINE, on_step=lambda _, info: gains.append(float(info.gain))
    )
    sample = sampler.importance_sample(state)
    held_out = ImportanceSample(
        state.held_out, target.log_prob(state.held_out) - state.log_q_held_out
    )
    if not good(held_out):
        return None, []
    doubts = []
    if int(state.n_folds):
        doubts.append(
            Doubt("fold", "some map of SteinIS is not one-to-one: Ẑ may be too large", math.log(2))
        )
    if (late := sum(gains[-REFINE // 4 :])) > FALLING:
        doubts.append(
            Doubt(
                "still falling",
                f"the held-out KL was still falling, by {late:.2f} nats at the end",
                late,
            )
        )
    return sample, doubts


def by_annealing(
    target: Target, mixture: FullCovarianceMixture, n: int, generator: torch.Generator
) -> tuple[ImportanceSample, list[Doubt]]:
    """Return n draws by HAIS from the mixture, as long as pilots ask for, and doubts."""
    coordinates = _round_coordinates(mixture)
    inside = WhitenedTarget(target, coordinates)
    base = _in_coordinates(mixture, coordinates)
    step_size, n_transitions = _annealing_settings(inside, base, generator)
    sample = _anneal(inside, base, n, step_size, n_transitions, generator)
    doubts = []
    if n_transitions == LENGTHS[-1]:
        doubts.append(
            Doubt(
                "long path",
                f"annealing took its longest path, {LENGTHS[-1]} transitions, as shorter ones were "
                "not enough: mass in narrow or far places may be missing",
                math.inf,
            )
        )
    return ImportanceSample(inside.to_x(sample.particles), sample.log_w), doubts


def _round_coordinates(mixture: FullCovarianceMixture) -> Gaussian:
    """Return N(0, C) with C the mean covariance within components."""
    share = mixture.log_weights.exp()[:, None, None]
    within = (share * mixture.scale_trils @ mixture.scale_trils.mT).sum(0)
    return Gaussian(torch.zeros_like(mixture.means[0]), torch.linalg.cholesky(within))


def _in_coordinates(mixture: FullCovarianceMixture, coordinates: Gaussian) -> FullCovarianceMixture:
    """Return the mixture as a density of u = L⁻¹x."""
    scale = coordinates.scale_tril
    means = torch.linalg.solve_triangular(scale, mixture.means.mT, upper=False).mT
    trils = torch.linalg.solve_triangular(scale, mixture.scale_trils, upper=False).tril()
    return FullCovarianceMixture(mixture.log_weights, means, trils)


def _annealing_settings(
    target: Target, base: ScoredProposal, generator: torch.Generator
) -> tuple[float, int]:
    """Return the step with the best mean log-weight on the shortest path, and the length.

    The length is the first of `LENGTHS` at which a pilot's weights are good, or else the last.
    """
    elbo = {
        step: float(_anneal(target, base, N_PILOT, step, LENGTHS[0], generator).log_w.mean())
        for step in STEPS
    }
    best_step = max(STEPS, key=lambda step: elbo[step])
    for length in LENGTHS[:-1]:
        if good(_anneal(target, base, N_PILOT, best_step, length, generator)):
            return best_step, length
    return best_step, LENGTHS[-1]


def _anneal(
    target: Target,
    base: ScoredProposal,
    n: int,
    step_size: float,
    n_transitions: int,
    generator: torch.Generator,
) -> ImportanceSample:
    """Return n weighted draws by HAIS from `base`."""
    sampler = HAIS(
        target,
        base,
        n_particles=n,
        schedule=linear_schedule(n_transitions),
        step_size=step_size,
        n_leapfrog=LEAPFROGS,
    )
    return sampler.importance_sample(sampler.run(sampler.init(generator)))
