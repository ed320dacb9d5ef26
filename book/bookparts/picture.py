"""The picture that previews of links show: leaders and followers on a mixture in the plane."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import torch

from steinis_lib import RBF, Gaussian, SteinIS
from steinis_lib.companion.figures import COLOURS
from steinis_lib.core.files import replacing
from steinis_lib.targets import random_mixture

TITLE = "Stein Variational\nAdaptive Importance\nSampling"


def draw(path: Path) -> None:
    """Write the picture, 1200 × 630 pixels."""
    generator = torch.Generator().manual_seed(1)
    target = random_mixture(5, 2, generator, spread=2.5, scale=0.7)
    q0 = Gaussian.isotropic(torch.zeros(2, dtype=torch.float64))
    sampler = SteinIS(
        target, q0, kernel=RBF(multiplier=4.0), step_size=0.2, n_leaders=40, n_followers=150
    )
    state = sampler.run(sampler.init(generator), 150)
    grid = torch.linspace(-5, 5, 121, dtype=torch.float64)
    height = target.log_prob(torch.cartesian_prod(grid, grid)).exp().reshape(121, 121).T
    figure = plt.figure(figsize=(12, 6.3), dpi=100, facecolor="white")
    axes = figure.add_axes((0.52, 0.06, 0.46, 0.88), aspect="equal")
    axes.contour(grid, grid, height, levels=7, colors=COLOURS["grey"], linewidths=1)
    axes.scatter(state.followers[:, 0], state.followers[:, 1], s=20, color=COLOURS["blue"])
    axes.scatter(
        state.leaders[:, 0], state.leaders[:, 1], s=70, marker="^", color=COLOURS["orange"]
    )
    axes.set_axis_off()
    figure.text(0.05, 0.5, TITLE, fontsize=38, weight="bold", va="center", color="#1a1a1a")
    figure.text(0.05, 0.2, "A reproducible companion", fontsize=24, color="#444444")
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as scratch:
        figure.savefig(scratch, dpi=100, facecolor="white", metadata={"Software": None})
    plt.close(figure)
