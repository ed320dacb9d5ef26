"""q0 as its owner has it: a Gaussian, a distribution, draws of a former run, or a prior."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, MultivariateNormal, Normal

from steinis_lib.core.checks import check_finite
from steinis_lib.estimate.constraints import Parameters
from steinis_lib.targets.base import Gaussian

N_PRIOR = 10_000
"""Draws of a prior, whose moments are taken."""
EXPECTED = (
    "expected a Gaussian, a Normal or MultivariateNormal of torch.distributions, draws (n, d) of "
    "a former run, or with parameters a prior: a mapping from each name to a distribution or to "
    "draws (n, *shape)"
)


def as_gaussian(q0: object, dim: int | None, parameters: Parameters | None) -> Gaussian:
    """Return q0 as a Gaussian of u; by moments where it is none.

    Parameters
    ----------
    q0, dim, parameters
        As for `estimate_log_z`, where `dim` is already that of the parameters.

    Raises
    ------
    TypeError, ValueError
        If it is none of what is expected, its dimension is wrong, or draws are too few.
    """
    if q0 is None:
        if dim is None:
            raise ValueError("dim is missing: pass the number of coordinates, or parameters=")
        return Gaussian.isotropic(torch.zeros(dim, dtype=torch.float64))
    start = _gaussian(q0, parameters)
    d = start.dim if dim is None else dim
    if start.mean.shape != (d,) or start.scale_tril.shape != (d, d):
        raise ValueError(
            f"q0 must have a mean ({d},) and a scale_tril ({d}, {d}), got "
            f"{tuple(start.mean.shape)} and {tuple(start.scale_tril.shape)}"
        )
    if not start.mean.is_floating_point() or start.mean.dtype != start.scale_tril.dtype:
        raise TypeError(
            "the mean and the scale_tril of q0 must have one floating-point dtype, got "
            f"{start.mean.dtype} and {start.scale_tril.dtype}"
        )
    return start


def _gaussian(q0: object, parameters: Parameters | None) -> Gaussian:
    if isinstance(q0, Gaussian):
        return q0
    if isinstance(q0, Mapping):
        if parameters is None:
            raise TypeError("a q0 by names needs parameters=, which say what the names are")
        parameters.check_names(q0)
        return from_draws(parameters.unconstrain(_draws_by_name(q0)))
    if isinstance(q0, Independent) and isinstance(q0.base_dist, Normal):
        q0 = q0.base_dist
    if isinstance(q0, Normal):
        return Gaussian(q0.loc, torch.diag_embed(q0.scale))
    if isinstance(q0, MultivariateNormal):
        return Gaussian(q0.loc, q0.scale_tril)
    if isinstance(q0, Distribution):
        return from_draws(_sample(q0))
    if hasattr(q0, "__array__") or isinstance(q0, list):
        return from_draws(torch.as_tensor(q0))
    raise TypeError(f"q0 is a {type(q0).__name__}; {EXPECTED}")


def from_draws(x: Tensor) -> Gaussian:
    """Return the Gaussian with the mean and covariance of draws ``(…, d)``, in float64.

    Raises
    ------
    ValueError
        If they do not spread in d directions.
    """
    if x.ndim < 2:
        raise ValueError(f"draws for q0 must be (n, d), got {tuple(x.shape)}")
    x = x.detach().reshape(-1, x.shape[-1]).double()
    check_finite(x, "draws for q0")
    covariance = torch.atleast_2d(x.mT.cov())
    scale_tril, failed = torch.linalg.cholesky_ex(covariance)
    if len(x) <= x.shape[-1] or bool(failed):
        raise ValueError(
            f"{len(x)} draws for q0 have no covariance of full rank in d = {x.shape[-1]}: pass "
            "more draws, none of whose coordinates is constant"
        )
    return Gaussian(x.mean(0), scale_tril)


def _draws_by_name(q0: Mapping[str, Any]) -> dict[str, Tensor]:
    draws = {
        name: _sample(given) if isinstance(given, Distribution) else torch.as_tensor(given)
        for name, given in q0.items()
    }
    fewest = min(len(values) for values in draws.values())
    return {name: values[:fewest].double() for name, values in draws.items()}


def _sample(distribution: Distribution) -> Tensor:
    """Return draws that are the same each time, and leave PyTorch's own generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return distribution.sample((N_PRIOR,))
