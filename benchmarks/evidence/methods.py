"""The methods that are compared: `estimate_log_z`, and other libraries at their defaults."""

from __future__ import annotations

import importlib
import importlib.metadata
import math
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import torch

from evidence.case import Case
from evidence.cube import unit_cube
from steinis_lib import estimate_log_z


@dataclass(frozen=True)
class Found:
    """What a method says.

    Parameters
    ----------
    log_z, se
        log Ẑ and its claimed standard error; NaN where the method has none.
    evaluations
        At how many points the density was asked for, with or without a gradient.
    warnings
        Why the method says that its result should not be trusted.
    """

    log_z: float
    se: float
    evaluations: int
    warnings: tuple[str, ...] = ()


Method = Callable[[Case, int], Found]

PEERS = {"dynesty": "dynesty", "nautilus": "nautilus-sampler", "pocomc": "pocomc"}
"""Other libraries: the module, and the package that it is in."""


def steinis(case: Case, seed: int) -> Found:
    """`estimate_log_z` with the case's q0."""
    generator = torch.Generator().manual_seed(seed)
    q0 = case.q0 if case.dtype == torch.float64 else case.start
    found = estimate_log_z(case.log_prob, case.dim, q0=q0, generator=generator)
    return Found(found.log_z, found.log_z_se, found.n_evaluations, found.warnings)


def dynesty(case: Case, seed: int) -> Found:
    """Static nested sampling."""
    cube = unit_cube(case)
    sampler = _module("dynesty").NestedSampler(
        cube.log_likelihood, cube.transform, case.dim, rstate=np.random.default_rng(seed)
    )
    sampler.run_nested(print_progress=False)
    result = sampler.results
    return Found(float(result.logz[-1]), float(result.logzerr[-1]), cube.n_evaluations)


def nautilus(case: Case, seed: int) -> Found:
    """Importance nested sampling; it claims an error of 1 / √n_eff."""
    cube = unit_cube(case)
    sampler = _module("nautilus").Sampler(
        cube.transform, cube.log_likelihood, n_dim=case.dim, vectorized=True, seed=seed
    )
    sampler.run(verbose=False)
    return Found(float(sampler.log_z), 1 / math.sqrt(float(sampler.n_eff)), cube.n_evaluations)


def pocomc(case: Case, seed: int) -> Found:
    """Preconditioned Monte Carlo, on the unit cube, which it maps to R^d by Φ⁻¹ of its own."""
    cube = unit_cube(case)
    module = _module("pocomc")
    stats = importlib.import_module("scipy.stats")
    sampler = module.Sampler(
        prior=module.Prior(case.dim * [stats.uniform(0.0, 1.0)]),
        likelihood=lambda u: cube.log_likelihood(cube.transform(u)),
        vectorize=True,
        random_state=seed,
    )
    sampler.run(progress=False)
    log_z, se = sampler.evidence()
    return Found(float(log_z), float(se), cube.n_evaluations)


METHODS: dict[str, Method] = {
    "steinis": steinis,
    "dynesty": dynesty,
    "nautilus": nautilus,
    "pocomc": pocomc,
}
"""By name."""


def version(name: str) -> str:
    """Return the version of a peer, or stop and say how to install it.

    Raises
    ------
    SystemExit
        If it is not installed.
    """
    _module(name)
    return importlib.metadata.version(PEERS[name])


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise SystemExit(
            f"the benchmark compares with {name}, and {error.name} is not installed: "
            "pip install -e .[evidence]"
        ) from error
