"""Errors of log Ẑ on the Boltzmann machines of section 4, and those of methods there.

`tree` is this section's result, `section` that of section 4. Models are the same. Section 4 has
runs of several lengths at its largest d alone; at the other d its methods took all transitions,
and so many more evaluations than ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr

from steinis_lib.companion.intervals import Array, Estimate, bootstrap
from steinis_lib.companion.sections.s4_rbm import statistics as partition
from steinis_lib.companion.sections.s4_rbm.experiment import label
from steinis_lib.companion.sections.s4_rbm.problem import RBMPartition
from steinis_lib.companion.sections.s8_pooled.images import ALLOWED
from steinis_lib.companion.sections.s8_pooled.settings import rbm_label

LEAPFROGS = {"hais-10l": 10}
"""Leapfrogs of a transition of annealing, where it is not one."""


@dataclass(frozen=True)
class Errors:
    """Errors of log Ẑ in nats, ``(models,)``, the models' numbers, and what a model costs."""

    values: Array
    models: Array
    transitions: int
    evaluations: int

    def rmse(self) -> Estimate:
        """Return the root mean square error."""
        return Estimate(*map(float, bootstrap(self.values, _rms)))

    def of(self, models: Array) -> Errors:
        """Return the errors on some of the models, in their order."""
        at = [int(np.flatnonzero(self.models == i)[0]) for i in models]
        return Errors(self.values[at], self.models[at], self.transitions, self.evaluations)


def ours(tree: xr.DataTree, condition: str, dim: int, transitions: int) -> Errors:
    """Return errors of SteinIS with a pool from one of the initial distributions."""
    at = tree[rbm_label(condition, dim)].to_dataset().sel(transitions=transitions)
    used = int(at.scores.values[0]) + int(at.size.values[-1])
    return Errors(at.error.values, at.trial.values, transitions, used)


def theirs(
    section: xr.DataTree, condition: str, method: str, dim: int, evaluations: float
) -> Errors:
    """Return errors of a method of section 4 at the evaluations of ours, or the fewest it has.

    That is at the most transitions that take not more than `ALLOWED` × `evaluations`.
    """
    found = section[label(condition, method, dim)].to_dataset()
    p = partition.parameters(section)
    costs = [cost(p, method, int(k)) for k in found.transitions.values]
    at = max(0, sum(c <= ALLOWED * evaluations for c in costs) - 1)
    error = found.error.isel(transitions=at)
    return Errors(error.values, error.trial.values, int(found.transitions.values[at]), costs[at])


def cost(p: RBMPartition, method: str, transitions: int) -> int:
    """Return how many evaluations a model takes with a method of section 4."""
    if method.startswith("steinis"):
        return transitions * p.n_leaders + p.n_followers
    return (LEAPFROGS.get(method, 1) * transitions + 1) * p.n_followers


def has(section: xr.DataTree, condition: str, method: str, dim: int) -> bool:
    """Return whether section 4 has a method under a condition at this d."""
    return label(condition, method, dim) in section.children


def rmse_ratio(*pairs: tuple[Errors, Errors]) -> Estimate:
    """Return RMSE(ours)/RMSE(theirs), the geometric mean over pairs; models are resampled."""
    both = [np.intersect1d(mine.models, other.models) for mine, other in pairs]
    common = both[0]
    for models in both[1:]:
        common = np.intersect1d(common, models)
    values = np.stack(
        [np.stack([e.of(common).values for e in pair], -1) for pair in pairs], 1
    )  # (models, pairs, 2)

    def summary(x: Array) -> Array:
        log_rms = np.log(np.square(x).mean(0)) / 2
        return np.asarray(np.exp((log_rms[:, 0] - log_rms[:, 1]).mean()))

    return Estimate(*map(float, bootstrap(values, summary)))


def _rms(values: Array) -> Array:
    return np.asarray(np.sqrt(np.square(values).mean(0)))
