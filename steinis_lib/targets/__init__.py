"""Targets and proposals.

A *target* is an unnormalised density p̄ on R^d with its score ∇ log p̄; a *proposal* is a normalised
density with a sampler. `LogProb` makes a target of any PyTorch function. The Gaussian and the
mixtures are both. `WhitenedTarget` is a target in the coordinates of a Gaussian. The paper's own
test problems are in `steinis_lib.companion.problems`.

Particles are ``(*batch, n, d)``, log-densities ``(*batch, n)``; parameters may have the same batch
axes, so that each problem of a batch has a target of its own.
"""

from steinis_lib.targets.base import Gaussian, LogProb, Proposal, ScoredProposal, Target
from steinis_lib.targets.mixtures import FullCovarianceMixture, GaussianMixture, random_mixture
from steinis_lib.targets.whitened import WhitenedTarget

__all__ = [
    "FullCovarianceMixture",
    "Gaussian",
    "GaussianMixture",
    "LogProb",
    "Proposal",
    "ScoredProposal",
    "Target",
    "WhitenedTarget",
    "random_mixture",
]
