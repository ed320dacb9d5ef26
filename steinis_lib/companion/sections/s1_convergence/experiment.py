"""How KL(q_t‖p) and KSD² fall with time on 1-D mixtures (section 5.1, Figure 2).

In one dimension q_ℓ can be followed exactly: a fine grid of points under q_0 is pushed through
the maps as followers, and expectations under q_ℓ are sums over that grid with q_0's weights. So
KL and KSD² of the followers' density are exact given the leaders, with no Monte Carlo noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

import torch
import xarray as xr
from pydantic import Field, model_validator
from torch import Tensor

from steinis_lib.companion.parameters import Parameters
from steinis_lib.companion.runner.experiment import Cell, Chunk, Experiment
from steinis_lib.stein.kernels import RBF, Kernel
from steinis_lib.stein.ksd import cross_ksd_squared, ksd_squared
from steinis_lib.steinis import SteinIS, SteinISState
from steinis_lib.targets.base import Gaussian
from steinis_lib.targets.mixtures import GaussianMixture, random_mixture


class GMMConvergence(Parameters):
    """Sizes and settings; the defaults are the paper's where it states them."""

    QUICK: ClassVar[dict[str, Any]] = {
        "n_trials": 4,
        "leader_counts": (25, 50),
        "n_leaders": 100,
        "n_followers": 200,
        "n_svgd": 150,
        "n_mean_field": 200,
        "step_size": 0.2,
        "end_time": 30.0,
        "n_times": 51,
        "n_grid": 401,
    }

    n_trials: int = Field(40, ge=2, le=10_000, description="independent mixtures and particles")
    trials_per_chunk: int = Field(1, ge=1, description="trials computed and stored together")
    n_components: int = Field(10, ge=1, le=1000, description="components of the mixture")
    spread: float = Field(3.0, ge=0, le=100, description="means are uniform on ±spread")
    component_scale: float = Field(1.0, gt=0, le=100, description="σ of each component")
    q0_scale: float = Field(1.0, gt=0, le=100, description="σ of the Gaussian q0, centred at 0")
    n_leaders: int = Field(200, ge=2, le=5000, description="|A| of SteinIS")
    n_followers: int = Field(500, ge=2, le=100_000, description="|B| of SteinIS")
    n_svgd: int = Field(500, ge=2, le=5000, description="particles of SVGD")
    n_mean_field: int = Field(
        500,
        ge=10,
        le=5000,
        description="leaders at q0's quantiles, standing in for infinitely many",
    )
    leader_counts: tuple[Annotated[int, Field(ge=2, le=5000)], ...] = Field(
        (25, 50, 100, 400), description="further |A| for the followers' KL"
    )
    wide_multiplier: float = Field(
        10.0, gt=0, le=1000, description="bandwidth multiplier of the conditions named wide"
    )
    step_size: float = Field(0.1, gt=0, le=1, description="ε, small: it stands in for dt")
    end_time: float = Field(60.0, gt=0, le=1000, description="t at the end, where t is ε ℓ")
    n_times: int = Field(61, ge=3, le=1000, description="times at which curves are recorded")
    n_grid: int = Field(801, ge=101, le=10_001, description="points of the quadrature under q0")

    @model_validator(mode="after")
    def _times_fit_the_steps(self) -> GMMConvergence:
        steps = self.end_time / self.step_size
        if abs(steps - round(steps)) > 1e-6:
            raise ValueError(
                "end_time: must be a multiple of step_size, "
                f"got {self.end_time} and {self.step_size}"
            )
        if self.n_times > round(steps) + 1:
            raise ValueError(
                f"n_times: at most {round(steps) + 1} for end_time / step_size = {steps:g} steps, "
                f"got {self.n_times}"
            )
        return self


def cells(p: GMMConvergence) -> list[Cell]:
    """Return a cell for each condition: SteinIS, SVGD, the mean field, and variations of them.

    All conditions have the same mixtures and the same followers, and leaders from one stream.
    """
    conditions = {
        "steinis": Condition(p.n_leaders),
        "svgd": Condition(p.n_svgd),
        "mean-field": Condition(p.n_mean_field, at_quantiles=True),
        "steinis-wide": Condition(p.n_leaders, p.wide_multiplier),
        "svgd-wide": Condition(p.n_svgd, p.wide_multiplier),
        "mean-field-wide": Condition(p.n_mean_field, p.wide_multiplier, at_quantiles=True),
        "steinis-half-step": Condition(p.n_leaders, step_factor=0.5),
    }
    found = [_cell(p, label, condition) for label, condition in conditions.items()]
    for m in p.leader_counts:
        found.append(_cell(p, leaders_label(m), Condition(m), method="leaders"))
    return found


def leaders_label(m: int) -> str:
    """Return the label of the cell that has m leaders and is else like "steinis"."""
    return f"leaders-{m}"


@dataclass(frozen=True)
class Condition:
    """What a cell varies.

    Parameters
    ----------
    n_leaders
        The particles that build the maps.
    multiplier
        Of the paper's bandwidth.
    step_factor
        Factor on the step ε.
    at_quantiles
        Leaders start at q0's quantiles; else they are drawn from q0.
    """

    n_leaders: int
    multiplier: float = 1.0
    step_factor: float = 1.0
    at_quantiles: bool = False


def _cell(p: GMMConvergence, label: str, condition: Condition, method: str = "") -> Cell:
    compute = partial(curves_of, condition=condition)
    return Cell(label, p.n_trials, compute, p.trials_per_chunk, method=method)


def curves_of(p: GMMConvergence, chunk: Chunk, condition: Condition) -> xr.Dataset:
    """Compute one chunk of one condition."""
    n = chunk.n_trials
    target = random_mixture(
        p.n_components, 1, chunk.stream("mixtures"), batch_shape=(n,), spread=p.spread,
        scale=p.component_scale,
    )  # fmt: skip
    q0 = Gaussian.isotropic(torch.zeros(1, dtype=torch.float64), p.q0_scale)
    m = condition.n_leaders
    if condition.at_quantiles:
        u = (torch.arange(m, dtype=torch.float64) + 0.5) / m
        leaders = (p.q0_scale * torch.special.ndtri(u)).unsqueeze(-1).expand(n, m, 1)
    else:
        leaders = torch.stack([q0.sample((m,), chunk.stream("leaders", i)) for i in chunk.trials])
    followers = q0.sample((n, p.n_followers), chunk.stream("followers"))
    step = p.step_size * condition.step_factor
    curves = follow(
        target, q0, leaders, followers, kernel=RBF(multiplier=condition.multiplier), step=step,
        n_steps=round(p.end_time / step), n_times=p.n_times, n_grid=p.n_grid,
    )  # fmt: skip
    time = curves.pop("time")
    return xr.Dataset(
        {name: (("trial", "time"), values.numpy()) for name, values in curves.items()},
        coords={"time": time.numpy()},
    )


def follow(
    target: GaussianMixture,
    q0: Gaussian,
    leaders: Tensor,
    followers: Tensor,
    *,
    kernel: Kernel,
    step: float,
    n_steps: int,
    n_times: int,
    n_grid: int,
) -> dict[str, Tensor]:
    """Run SteinIS with a quadrature grid among its followers and record curves.

    Returns
    -------
    dict
        `time` ``(n_times,)`` and, each ``(trials, n_times)`` and in nats or nats per unit time:
        `kl`, exact KL(q_t‖p); `kl_rate`, its time derivative by central difference; `ksd2`, exact
        KSD²(q_t, p); `ksd2_cross`, the mean of κ_p over leaders × q_t; `ksd2_leaders`, the
        V-statistic of the leaders; `kl_followers` and `ksd2_followers`, Monte Carlo estimates
        from the followers (mean of log q/p; U-statistic); `log_z`, `ess` (a fraction), and
        `folds`.
    """
    y = torch.linspace(-8, 8, n_grid, dtype=q0.mean.dtype).unsqueeze(-1) * q0.scale_tril
    weights = q0.log_prob(y).softmax(-1)  # the trapezoidal rule: both ends are negligible
    trials, n = followers.shape[:2]
    points = torch.cat([y.expand(trials, n_grid, 1), followers], dim=1)
    sampler = SteinIS(target, q0, kernel=kernel, step_size=step)
    state = sampler.start(leaders, points, q0.log_prob(points))

    def log_ratio(state: SteinISState) -> Tensor:
        return state.log_q - target.log_prob(state.followers)

    def exact_kl(state: SteinISState) -> Tensor:
        return (log_ratio(state)[:, :n_grid] * weights).sum(-1)

    record_at = torch.linspace(0, n_steps, n_times).round().int().tolist()
    rows: list[dict[str, Tensor]] = []
    before = None
    for transition in range(n_steps + 1):
        after, _ = sampler.step(state)
        if transition in record_at:
            kl, ahead = exact_kl(state), exact_kl(after)
            behind = exact_kl(before) if before is not None else None
            fitted = kernel.fit(state.leaders)
            grid, moved = state.followers[:, :n_grid], state.followers[:, n_grid:]
            log_w = -log_ratio(state)[:, n_grid:]
            thin = weights[::2] / weights[::2].sum()
            rows.append({
                "kl": kl,
                "kl_rate": (ahead - kl) / step if behind is None else (ahead - behind) / (2 * step),
                "ksd2": ksd_squared(target, grid[:, ::2], fitted, weights=thin),
                "ksd2_cross": cross_ksd_squared(
                    target, state.leaders, grid, fitted, weights=weights
                ),
                "ksd2_leaders": ksd_squared(target, state.leaders, fitted),
                "ksd2_followers": ksd_squared(target, moved, fitted, statistic="u"),
                "kl_followers": -log_w.mean(-1),
                "log_z": log_w.logsumexp(-1) - math.log(n),
                "ess": (2 * log_w.logsumexp(-1) - (2 * log_w).logsumexp(-1)).exp() / n,
                "folds": state.n_folds.double(),
            })  # fmt: skip
        before, state = state, after
    curves = {name: torch.stack([row[name] for row in rows], -1) for name in rows[0]}
    return curves | {"time": torch.tensor(record_at, dtype=torch.float64) * step}


EXPERIMENT = Experiment("gmm-convergence", GMMConvergence, cells)
