"""Long importance runs for the targets whose log Z nothing else gives, kept in `long_runs.json`.

    python -m evidence.long_runs

The proposal is a multivariate t at the highest maximum, with the inverse of the Hessian as its
first scale and moments of weighted draws as later ones. It shares no code with `estimate_log_z`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from evidence.case import Case, LogDensity
from evidence.cases import CASES
from evidence.truths import store

DRAWS = {
    "garch-simulated-4": 100_000,
    "pima-8": 50_000,
    "wells-4": 30_000,
    "faithful-5": 50_000,
    "logistic-regression-6": 20_000,
    "poisson-regression-4": 20_000,
}
"""The cases, and how many draws each takes for a standard error well below `ENOUGH`."""
DF, ROUNDS, PILOT, CHUNK = 10.0, 4, 2000, 1000
CLIMBS = 3
"""Maxima are sought from the mean of q0 and from so many draws of it."""
ENOUGH = 0.005
"""The largest standard error that is accepted."""


def importance_run(
    case: Case, draws: int, seed: int = 0, enough: float = ENOUGH
) -> dict[str, float | int | str]:
    """Return log Ẑ, its standard error, and how they were found.

    Raises
    ------
    RuntimeError
        If the standard error is above `enough`.
    """
    g = torch.Generator().manual_seed(seed)
    mean, scale = laplace(case, g)
    for _ in range(ROUNDS):
        x, log_w = weighed(case.log_prob, mean, scale, PILOT, g)
        share = log_w.softmax(0)
        mean = share @ x
        covariance = (share[:, None] * (x - mean)).mT @ (x - mean)
        scale = torch.linalg.cholesky(covariance)
    _, log_w = weighed(case.log_prob, mean, scale, draws, g)
    w = (log_w - log_w.max()).exp()
    se = float(w.std() / w.mean()) / math.sqrt(draws)
    if not se <= enough:
        raise RuntimeError(f"{case.name}: standard error {se:.2g} is above {enough}: more draws")
    log_z = float(log_w.logsumexp(0)) - math.log(draws)
    how = f"importance sampling from a t with {DF:g} degrees of freedom, seed {seed}"
    return {"log_z": log_z, "se": se, "draws": draws, "how": how}


def laplace(case: Case, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return the highest maximum that climbs find, and a factor of minus the inverse Hessian."""
    starts = torch.cat([case.start.mean[None], case.start.sample((CLIMBS,), generator)])
    found = [_climb(case.log_prob, x.double()) for x in starts]
    best = max(found, key=lambda x: float(case.log_prob(x[None])))
    hessian = torch.autograd.functional.hessian(lambda x: case.log_prob(x[None])[0], best)
    return best, torch.linalg.cholesky(torch.linalg.inv(-hessian))


def _climb(log_prob: LogDensity, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_(True)
    search = torch.optim.LBFGS([x], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        search.zero_grad()
        value = -log_prob(x[None])[0]
        value.backward()
        return value

    search.step(loss)
    return x.detach().nan_to_num()


def weighed(
    log_prob: LogDensity, mean: Tensor, scale: Tensor, n: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return n draws of the t with this mean and scale, and their log-weights."""
    d = len(mean)
    z = torch.randn(n, d, generator=generator, dtype=mean.dtype)
    halves = torch.randn(n, int(DF), generator=generator, dtype=mean.dtype)
    z = z * (DF / halves.square().sum(-1, keepdim=True)).sqrt()
    log_q = -0.5 * (DF + d) * (z.square().sum(-1) / DF).log1p() - scale.diagonal().log().sum()
    log_q += math.lgamma((DF + d) / 2) - math.lgamma(DF / 2) - 0.5 * d * math.log(DF * math.pi)
    x = mean + z @ scale.mT
    return x, torch.cat([log_prob(piece) for piece in x.split(CHUNK)]) - log_q


def main() -> None:
    """Run them all, and keep what they find."""
    for name, draws in DRAWS.items():
        found = importance_run(CASES[name], draws)
        store(name, found)
        print(f"{name}: {found['log_z']:.4f} ± {found['se']:.4f}", flush=True)


if __name__ == "__main__":
    main()
