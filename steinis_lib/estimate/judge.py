"""Reasons to doubt a result of `find`: each with its cause, its size in nats, and what to do."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from steinis_lib.core.pareto import pareto_k
from steinis_lib.estimate.climb import climb
from steinis_lib.estimate.doubts import Doubt
from steinis_lib.estimate.explore import Explored
from steinis_lib.estimate.noise import rounding_noise
from steinis_lib.estimate.pool import Round, ess_of
from steinis_lib.estimate.space import Space

TOLERANCE = 0.05
"""Nats that do not matter."""
TAIL, HOPELESS = 0.7, 1.0
"""k̂ above which the mean of the weights converges slowly, and not at all."""
ENOUGH = 150
"""Draws that the weighted ones must be worth."""
NOISE, NOISE_FATAL = 0.03, 1.0
"""Nats of rounding noise that are flagged, and that are too much."""
FAR, LOWER, WIDE = 10, 3.0, 2.0
"""Climbs start 2¹⁰ deviations away, if p is so many times wider than q0; a ridge without an end is
at most so many nats lower than draws of p."""
FARTHEST_RAY, OCTAVES, RAYS, COUNTS = 40, 8, 12, 40.0
"""Rays end 2⁴⁰ deviations away; p̄ is looked at in their last octaves; rays beside the axes. Mass
out there counts if it is at most so many nats below p̄ at draws: where transforms to constrained
parameters end at the smallest float, p̄ falls no more, at hundreds of nats below."""


def doubts_of(
    space: Space, explored: Explored, runs: list[Round], generator: torch.Generator
) -> tuple[Doubt, ...]:
    """Return all reasons for doubt that pilots and final draws give."""
    log_w = torch.cat([run.log_w for run in runs])
    if not bool(torch.isfinite(log_w).any()):
        return (Doubt("nothing", "p̄ is zero at all draws", math.inf, fatal=True),)
    u = torch.cat([run.u for run in runs])
    found = [
        improper(space, u, log_w.softmax(0), generator),
        tail(log_w),
        few(log_w),
        disagreement(runs),
        modes(explored),
        noise(space, u, log_w.softmax(0), generator),
    ]
    return tuple(doubt for doubt in found if doubt is not None)


def tail(log_w: Tensor) -> Doubt | None:
    """Doubt weights whose largest ones carry what matters, with a tail so heavy that more may come.

    What the largest weights exceed the others by is a part of Ẑ. With k̂ above .7 that part is known
    to no better than a factor.
    """
    k = float(pareto_k(log_w))
    if not k > TAIL:
        return None
    damage = excess(log_w) * (1.0 if k < HOPELESS else 2.0)
    if damage < TOLERANCE:
        return None
    return Doubt(
        "tail",
        f"a few draws have very large weights (Pareto-k̂ {k:.2f}), and such draws may be missing: "
        f"log Z may be off by {damage:.2f} nats or more, most likely too low; raise n_samples, or "
        "state the model so that scales and what they scale are independent (a non-centred form)",
        damage,
        fatal=k > 1.5,
    )


def excess(log_w: Tensor) -> float:
    """Return which part of Ẑ the largest min(n/5, 3√n) weights have above the next largest."""
    n = len(log_w)
    m = math.ceil(min(n / 5, 3 * math.sqrt(n)))
    w = log_w.softmax(0).sort().values
    return float((w[-m:] - w[-m - 1]).sum())


def few(log_w: Tensor) -> Doubt | None:
    """Doubt an estimate that rests on few draws."""
    ess = ess_of(log_w)
    if ess >= ENOUGH:
        return None
    return Doubt(
        "ess",
        f"the weighted draws are worth {ess:.0f} independent ones, below {ENOUGH}: log Z may be "
        f"off by {3 / math.sqrt(max(ess, 1)):.2f} nats or more; raise n_samples",
        3 / math.sqrt(max(ess, 1.0)),
        fatal=ess < 10,
    )


def disagreement(runs: list[Round]) -> Doubt | None:
    """Doubt two runs whose estimates are too far apart for their errors."""
    apart = abs(runs[0].log_z - runs[1].log_z)
    se = math.hypot(*(run.log_z_se for run in runs))
    if apart <= 4 * se + 1e-9:
        return None
    return Doubt(
        "disagreement",
        f"two independent runs disagree: log Z is {runs[0].log_z:.4g} and {runs[1].log_z:.4g}, "
        f"{apart / max(se, 1e-300):.1f} standard errors apart; raise n_samples",
        apart,
    )


def modes(explored: Explored) -> Doubt | None:
    """Doubt that all modes were found, if the last climbs still found new ones."""
    if explored.missed == 0:
        return None
    damage = -math.log1p(-min(explored.missed, 0.99))
    return Doubt(
        "modes",
        f"of the last climbs {explored.missed:.1%} still found new modes: log Z may be too low, by "
        f"about {damage:.2f} nats; give a q0 that covers the modes",
        damage,
    )


def noise(space: Space, u: Tensor, w: Tensor, generator: torch.Generator) -> Doubt | None:
    """Doubt log-densities that jump from float to float."""
    sd = rounding_noise(space, u, w, generator)
    if sd < NOISE:
        return None
    return Doubt(
        "rounding",
        f"log_prob has rounding noise of {sd:.2g} nats, and log Z is off by about as much: compute "
        "it in float64, subtract constants before summing, avoid differences of large numbers",
        sd,
        fatal=sd > NOISE_FATAL,
    )


def improper(space: Space, u: Tensor, w: Tensor, generator: torch.Generator) -> Doubt | None:
    """Doubt that Z is finite, if p̄ falls too slowly on a ray, or has a ridge without an end.

    Too slowly is as 1/r along an axis, since lines beside it are like it, or as r⁻ᵈ on another ray.
    """
    d, mean = space.dim, w @ u
    spread = (w @ (u - mean).square()).sqrt()
    factor = ((u - mean) * w.unsqueeze(-1).sqrt()).T
    axes, scales, _ = torch.linalg.svd(factor, full_matrices=False)
    lines = torch.cat([(axes * scales)[:, :RAYS].T, torch.diag(spread)[: 2 * RAYS]])
    lines = torch.cat([lines, -lines])
    random = torch.randn(RAYS, d, generator=generator, dtype=u.dtype, device=u.device)
    least = float(space.log_prob(u[w.topk(RAYS).indices]).max()) - COUNTS
    try:
        found = (
            _falls_slowly(space, mean, lines, 1, least)
            or _falls_slowly(space, mean, random * spread / d**0.5, d, least)
            or (float(scales[0]) > WIDE and _goes_on(space, u, w, lines))
        )
    except FloatingPointError:  # an overflow so far away says nothing about the mass
        return None
    if not found:
        return None
    return Doubt(
        "improper",
        "far away the density does not fall off fast enough for a finite integral: log Z is "
        "infinite, or depends on where the search began; give all parameters proper priors",
        math.inf,
        fatal=True,
    )


def _falls_slowly(
    space: Space, centre: Tensor, directions: Tensor, power: int, least: float
) -> bool:
    """Say whether log(r^power p̄) does not fall at the end of some ray, and is above `least`."""
    octaves = torch.arange(FARTHEST_RAY - OCTAVES, FARTHEST_RAY + 1, device=centre.device)
    points = centre + directions[:, None] * (2.0 ** octaves.to(centre))[:, None]
    log_p = space.log_prob(points.flatten(0, 1)).unflatten(0, points.shape[:2])
    mass = log_p + power * math.log(2) * octaves
    rising = torch.isfinite(log_p).all(-1) & (mass[:, -1] - mass[:, 0] > -0.1 * OCTAVES)
    return bool((rising & (mass[:, -1] > least)).any())


def _goes_on(space: Space, u: Tensor, w: Tensor, directions: Tensor) -> bool:
    """Say whether climbs from far away stay far away, and nearly as high as draws of p."""
    centre = w @ u
    ends = climb(space, centre + 2.0**FAR * directions)
    far = (ends.x - centre).norm(dim=-1) > 2.0 ** (FAR - 3) * directions.norm(dim=-1)
    high = ends.log_p > w @ space.log_prob(u).clamp(min=-1e300) - LOWER
    return bool((far & high).any())
