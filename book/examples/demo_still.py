"""The still figure and the table that stand on the demo's page where scripts are off.

The run has the settings of the demo's first example. Its random numbers are others.
"""

from __future__ import annotations

import math

import matplotlib as mpl
import torch
from matplotlib.figure import Figure

from steinis_lib.companion.figures import COLOURS, svg, use_style
from steinis_lib.stein.kernels import RBF
from steinis_lib.stein.ksd import ksd_squared
from steinis_lib.steinis import SteinIS, SteinISState
from steinis_lib.targets.base import Gaussian
from steinis_lib.targets.mixtures import GaussianMixture

TARGET = GaussianMixture(
    torch.tensor([0.3, 0.7], dtype=torch.float64).log(),
    torch.tensor([[-2.0], [1.5]], dtype=torch.float64),
    torch.tensor([[0.7], [0.8]], dtype=torch.float64),
)
Q0 = Gaussian.isotropic(torch.zeros(1, dtype=torch.float64))
KERNEL = RBF(multiplier=4.0)
SAMPLER = SteinIS(TARGET, Q0, n_leaders=100, n_followers=300, kernel=KERNEL, step_size=0.2)
TIMES = (0, 5, 20, 50)
GRID = torch.linspace(-8, 8, 801, dtype=torch.float64).unsqueeze(-1)


def run() -> list[tuple[SteinISState, SteinISState]]:
    """Return followers and a grid of points pushed along, both at each of `TIMES`."""
    state = SAMPLER.init(torch.Generator().manual_seed(1))
    grid = SAMPLER.start(state.leaders, GRID, Q0.log_prob(GRID))
    found = []
    for transition in range(TIMES[-1] + 1):
        if transition in TIMES:
            found.append((state, grid))
        state, grid = SAMPLER.step(state)[0], SAMPLER.step(grid)[0]
    return found


def figure(states: list[tuple[SteinISState, SteinISState]]) -> str:
    """Return the densities of target, start and proposal at each of `TIMES` as SVG."""
    drawn = Figure(figsize=(7.5, 5.0))
    panels = drawn.subplots(2, 2, sharex=True, sharey=True)
    x = torch.linspace(-4.5, 4.5, 400, dtype=torch.float64).unsqueeze(-1)
    for axes, time, (state, grid) in zip(panels.flat, TIMES, states, strict=True):
        axes.plot(
            x[:, 0], TARGET.log_prob(x).exp(), color=mpl.rcParams["text.color"], label="target p"
        )
        axes.plot(x[:, 0], Q0.log_prob(x).exp(), ":", color=COLOURS["grey"], label="start q0")
        axes.plot(
            grid.followers[:, 0], grid.log_q.exp(), "--", color=COLOURS["blue"], label="proposal q"
        )
        leaders, followers = state.leaders[:, 0], state.followers[:, 0]
        level = torch.full_like(leaders, -0.05)
        axes.plot(leaders, level, "^", ms=4, color=COLOURS["orange"], label="leaders")
        level = torch.full_like(followers, -0.12)
        axes.plot(followers, level, "|", ms=7, color=COLOURS["purple"], label="followers")
        axes.set(title=f"after {time} transitions", xlim=(-4.5, 4.5), ylim=(-0.18, 0.72))
    handles, labels = panels.flat[0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside upper center", ncols=5, fontsize="small")
    alt = (
        "Four panels, after 0, 5, 20 and 50 transitions. The proposal starts as one bump around 0 "
        "and ends close to the target, which has a mode at -2 and a larger one at 1.5. Leaders and "
        "followers are marked below the curves."
    )
    return f'<div class="steinis-figure">{svg(drawn, alt)}</div>'


def table(states: list[tuple[SteinISState, SteinISState]]) -> str:
    """Return the demo's readings at each of `TIMES` as a table."""
    weights = Q0.log_prob(GRID).softmax(-1)
    rows = [
        "| Transition | KL(q‖p) | KSD² | ESS/\\|B\\| | k̂ | log Ẑ | folds met |",
        "|---|---|---|---|---|---|---|",
    ]
    for time, (state, grid) in zip(TIMES, states, strict=True):
        sample = SAMPLER.importance_sample(state)
        kl = float((weights * (grid.log_q - TARGET.log_prob(grid.followers))).sum())
        ksd = float(ksd_squared(TARGET, state.followers, KERNEL.fit(state.leaders)))
        ess, k = float(sample.ess) / sample.n, float(sample.pareto_k)
        error = float(sample.log_z_se)
        decimals = max(0, 1 - math.floor(math.log10(error)))
        log_z = f"{float(sample.log_z):.{decimals}f} ± {error:.{decimals}f}".replace("-", "−")
        tail = f"{k:.2f}".replace("-", "−")
        rows.append(
            f"| {time} | {kl:.2g} | {ksd:.2g} | {ess:.2g} | {tail} | {log_z} "
            f"| {int(state.n_folds)} |"
        )
    return "\n".join(rows)


def fragment() -> str:
    """Return what the page includes: the figure and the table."""
    states = run()
    with mpl.rc_context():
        use_style()
        return f"{figure(states)}\n\n{table(states)}\n"
