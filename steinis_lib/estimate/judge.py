"""Reasons to doubt a result of `find`."""

from __future__ import annotations

import math

import torch

from steinis_lib.estimate.doubts import Doubt
from steinis_lib.estimate.explore import Explored
from steinis_lib.estimate.pool import Round


def doubts_of(explored: Explored, runs: list[Round]) -> tuple[Doubt, ...]:
    doubts = []
    both = Round(torch.cat([r.u for r in runs]), torch.cat([r.log_w for r in runs]))
    if both.pareto_k > 0.7:
        doubts.append(Doubt("tail", f"k {both.pareto_k:.2f}", math.inf))
    n_eff = both.share * len(both.log_w)
    if n_eff < 200:
        doubts.append(Doubt("ess", f"ess {n_eff:.0f}", math.inf))
    se = math.hypot(*(r.log_z_se for r in runs))
    apart = abs(runs[0].log_z - runs[1].log_z)
    if apart > 4 * se + 1e-9:
        doubts.append(Doubt("disagreement", f"{apart:.2f}", apart))
    pilots = explored.pool.log_w.logsumexp(0) - math.log(len(explored.pool.log_w))
    if explored.missed > 0:
        doubts.append(Doubt("modes", f"missed {explored.missed:.3f}", explored.missed))
    return tuple(doubts)
