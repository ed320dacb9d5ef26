"""The variants on the RBM of section 4: Gaussians at modes, and ways to go on from them."""

from __future__ import annotations

import torch

from steinis_lib.companion.counting import Counted
from steinis_lib.companion.sections.s7_extensions.hais_run import HAISRun
from steinis_lib.extensions.bridge_sampling import BridgeEstimate, BridgeSampling
from steinis_lib.extensions.mode_fits import fit_modes
from steinis_lib.targets.base import Gaussian, Target
from steinis_lib.targets.mixtures import FullCovarianceMixture

N_EXPLORERS, N_MODES, N_TRANSITIONS, N_DRAWS, N_WEIGHINGS = 100, 12, 10, 500, 6
"""Of `fit_modes`. A fit has ten leaders more than dimensions."""
N_CHAINS = 100
"""Of annealing and of the bridge."""
ANNEALING = HAISRun(200, 1, 0.3)
BRIDGE_TRANSITIONS, BRIDGE_LEAPFROGS, BRIDGE_STEP = 20, 3, 0.5


def at_modes(
    target: Counted, q0: Gaussian, n_exploring: int, generator: torch.Generator
) -> tuple[FullCovarianceMixture, dict[str, int]]:
    """Fit a Gaussian at each mode that annealed explorers find.

    Returns
    -------
    mixture
        The weighted fits.
    evaluations
        What each stage cost: exploring, climbing, fitting and weighing.
    """
    evaluations: dict[str, int] = {}
    before = target.n

    def count(stage: str) -> None:
        evaluations[stage] = target.n - before - sum(evaluations.values())

    found = fit_modes(
        target, q0, generator, n_explorers=N_EXPLORERS, n_exploring=n_exploring, n_modes=N_MODES,
        n_leaders=target.dim + 10, n_transitions=N_TRANSITIONS, n_draws=N_DRAWS,
        n_weighings=N_WEIGHINGS, on_stage=count,
    )  # fmt: skip
    return found.mixture, evaluations


def bridge(
    target: Target, mixture: FullCovarianceMixture, n_draws: int, generator: torch.Generator
) -> BridgeEstimate:
    """Bridge a mixture at the modes and p̄, from so many draws of the mixture."""
    sampler = BridgeSampling(
        target, mixture, n_draws=n_draws, n_chains=N_CHAINS, step_size=BRIDGE_STEP,
        n_leapfrog=BRIDGE_LEAPFROGS,
    )  # fmt: skip
    return sampler.estimate(sampler.run(sampler.init(generator), BRIDGE_TRANSITIONS))
