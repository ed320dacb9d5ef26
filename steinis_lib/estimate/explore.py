"""Exploration of p̄: climbs, Laplace fits at their ends, and rounds of pilots that refine them.

New climbs are started until they find nothing that the mixture does not explain already: no end at
which p̄ is farther above the mixture than at any pilot, with mass that counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from steinis_lib.estimate.climb import MANY, Ends, Modes, climb, modes
from steinis_lib.estimate.flows import flown
from steinis_lib.estimate.pool import Pool, Round, ess_of
from steinis_lib.estimate.refine import grown, pruned, refit, usable
from steinis_lib.estimate.space import Space
from steinis_lib.estimate.student import StudentMixture
from steinis_lib.estimate.warp import Triangular, Warped

EXPLORERS, WIDTHS = (32, 32, 64, 128, 256, 512), (1.0, 3.0)
"""How many climbs start, time after time, from Gaussians so many times as wide as q0."""
FARTHEST_UP = 1e9
"""A climb that goes on above this log p̄ has no mode to come to."""
SURE = 5
"""Climbs for each known mode that must find nothing new, before no more are started."""
CHEAP, MOST_CHEAP = 4000, 900
"""Climbs that cost so many points together must find nothing new, or so many climbs."""
MOST_MODES, MOST_NEW, FALL = 32, 100, 15.0
"""Modes that are fitted at most, at first and later on, and nats of mass below the largest at which
one is dropped."""
WIDER, CLOUD = 1.1, 1.2
"""Factors on Laplace's standard deviations and on those of the ends."""
BROAD_SHARE = 0.4
"""The weight of all broad components in the first round."""
MARGIN, COUNTS, NEW_SHARE = 0.5, 5.0, 0.3
"""p̄/q must be so many nats larger than at any pilot to be news; modes whose mass is so many nats
below log Ẑ do not count as missed; the share of new modes, before the next refit."""
ROUNDS, FEWEST, GROWTH = 6, 3, 1.4
"""The most and fewest rounds of pilots; a round has so many times the draws of the last one."""
GOOD, TAIL, VERIFYING = 0.4, 0.7, 2000
"""With that effective share of the draws, and that k̂, rounds end, if so many more draws agree."""
FLOW_FROM, MOST_FLOWN = 6, 20
"""From so many dimensions on, a Gaussian flow is tried, too, unless there are many modes."""
NEW = 3
"""New components in a round at most."""
DEFENCE, DEFENCE_WIDER, DEFENCE_FREEDOM = 0.05, 1.5, 1.0
"""The weight of a component that covers all others, its width, and its degrees of freedom."""


@dataclass(frozen=True)
class Explored:
    """What exploration found.

    Parameters
    ----------
    q
        The proposal.
    pool, last
        Its pilots, and the last round of them.
    missed
        The share of the last climbs that ended where the mixture did not explain p̄.
    """

    q: Warped
    pool: Pool
    last: Round
    missed: float


def n_pilots(dim: int) -> int:
    """Return how many draws the first round has."""
    return 400 + 30 * dim


def most_components(dim: int, n_modes: int) -> int:
    """Return how many components a mixture may have: fewer in many dimensions, where they cost."""
    return max(min(40, 16_000 // dim**2), 4, min(2 * n_modes, 80_000 // dim**2))


def good(last: Round, share: float = GOOD) -> bool:
    """Say whether pilots show that a proposal can be weighed."""
    return last.share >= share and last.pareto_k < TAIL


def explore(space: Space, generator: torch.Generator, report: Callable[[Round], None]) -> Explored:
    """Climb, fit and refine, until new climbs find nothing new.

    Raises
    ------
    FloatingPointError
        If a climb came beyond `FARTHEST_UP` without an end.
    """
    like = space.q0.mean.double()
    ends = _climbs(space, EXPLORERS[0], generator)
    if bool((~ends.converged & (ends.log_p > FARTHEST_UP)).any()):
        raise FloatingPointError(
            "log_prob rises without end uphill of q0, so that its integral is infinite; expected a "
            "density that falls off in all directions: check its sign"
        )
    found = modes(space, ends, MOST_MODES, FALL)
    q = _first(found, ends.x[torch.isfinite(ends.log_p)])
    flies = space.dim >= FLOW_FROM and len(found.means) < MOST_FLOWN
    if flies and space.dim > MANY and (fits := flown(space, generator)):
        q, flies = q.joined(fits, 0.5), False
    n_modes = len(found.means)
    q, pool, last = refined(
        space, q, Pool.empty(like, space.dim), generator, report, n_modes=n_modes
    )
    if flies and not good(last) and (fits := flown(space, generator)):
        q = q.joined(fits, 0.5)
        q, pool, last = refined(space, q, pool, generator, report, n_modes=n_modes)
    missed = 0.0
    counted, quiet = found.n_heavy(COUNTS), 0
    enough = min(CHEAP / float(ends.asked.mean()), MOST_CHEAP)
    for n in EXPLORERS[1:]:
        new = unexplained(space, _climbs(space, n, generator), q, pool)
        missed = float(new.visits.sum()) / n
        quiet = 0 if len(new.means) else quiet + n
        if quiet and quiet >= max(SURE * counted, enough):
            break
        if quiet:
            continue
        counted += len(new.means)
        n_modes += len(new.means)
        q = q.joined(_fits(new), NEW_SHARE)
        q, pool, last = refined(space, q, pool, generator, report, n_modes=n_modes)
    return Explored(Warped(q), pool, last, missed)


def unexplained(space: Space, ends: Ends, q: StudentMixture, pool: Pool) -> Modes:
    """Return modes with mass that counts where p̄/q is larger than at any pilot."""
    log_w = pool.log_p - q.log_prob(pool.u)
    log_z = pool.log_w.logsumexp(0) - math.log(len(pool.log_w))
    above = ends.log_p - q.log_prob(ends.x) > log_w.max() + MARGIN
    outside = Ends(*(part[above] for part in vars(ends).values()))
    found = modes(space, outside, MOST_NEW, FALL)
    return found.chosen(found.log_mass > log_z - COUNTS)


def refined(
    space: Space,
    q: StudentMixture,
    pool: Pool,
    generator: torch.Generator,
    report: Callable[[Round], None],
    *,
    n_modes: int = 1,
    rounds: int = ROUNDS,
    warp: Triangular | None = None,
    more: float = 1.0,
) -> tuple[StudentMixture, Pool, Round]:
    """Return a mixture refined in rounds of pilots, all pilots, and the last round.

    The mixture is one of T⁻¹(u) for the map T = `warp`.
    """
    rounds = rounds if space.dim <= MANY else min(rounds, FEWEST + 1)
    least, most = 20.0 + 4 * space.dim, most_components(space.dim, n_modes)
    for i in range(rounds):
        n = int(more * n_pilots(space.dim) * GROWTH ** max(i - 2, 0))
        pool, last = pool.drawn(space, Warped(q, warp), n, generator)
        report(last)
        if i + 1 >= min(FEWEST, rounds) and good(last):
            pool, last = pool.drawn(space, Warped(q, warp), VERIFYING, generator)
            report(last)
            if good(last):
                break
        if i == rounds - 1:
            break
        if not ess_of(pool.log_w):
            continue  # p̄ is zero at all pilots: perhaps it is not at more of them
        z, log_p = pool.u, pool.log_p
        if warp is not None:
            z, log_det = warp.to_z(pool.u)
            log_p = log_p + log_det
        w = usable(pool.log_w, least)
        fine = torch.isfinite(z).all(-1)
        z, log_p, w = z[fine], log_p[fine], w[fine]
        if last.share < GOOD / 2 and space.dim <= MANY:
            q = grown(q, z, log_p, NEW)
        q = defended(pruned(refit(q, z, w, generator), most))
    return q, pool, last


def defended(q: StudentMixture) -> StudentMixture:
    """Return q with a component that covers all others."""
    share = q.log_weights.exp()
    mean = share @ q.means
    away = (q.means - mean).unsqueeze(-1)
    within = q.scale_trils @ q.scale_trils.mT + away @ away.mT
    covariance = (share[:, None, None] * within).sum(0)
    scales = covariance.diagonal().sqrt()
    eye = torch.eye(q.dim, dtype=scales.dtype, device=scales.device)
    factor = torch.linalg.cholesky(covariance / (scales * scales[:, None]) + 1e-9 * eye)
    tril = DEFENCE_WIDER * scales[:, None] * factor
    freedom = share.new_tensor([DEFENCE_FREEDOM])
    return q.joined(StudentMixture(share.new_zeros(1), mean[None], tril[None], freedom), DEFENCE)


def _climbs(space: Space, n: int, generator: torch.Generator) -> Ends:
    """Return where n climbs end."""
    like = space.q0.mean.double()
    starts = torch.randn(n, space.dim, generator=generator, dtype=like.dtype, device=like.device)
    widths = like.new_tensor(WIDTHS).repeat_interleave(n // len(WIDTHS))
    return climb(space, widths.unsqueeze(-1) * starts)


def _fits(found: Modes) -> StudentMixture:
    """Return Laplace's fits at modes."""
    mass = found.log_mass
    return StudentMixture(
        mass.clamp(min=float(mass.max()) - 5),
        found.means,
        WIDER * found.scale_trils,
        torch.full_like(mass, 16.0),
    )


def _first(found: Modes, ends: Tensor) -> StudentMixture:
    """Return Laplace's fits, q0 at its widths, and the cloud of all ends."""
    d = ends.shape[-1]
    eye = torch.eye(d, dtype=ends.dtype, device=ends.device)
    means = torch.zeros(3, d, dtype=ends.dtype, device=ends.device)
    spread = torch.ones_like(means[2])
    if len(ends) > 1:
        means[2], spread = ends.mean(0), CLOUD * ends.std(0).clamp(min=1e-12)
    trils = torch.stack([*(w * eye for w in WIDTHS), torch.diag(spread)])
    freedom = torch.full((3,), 8.0).to(ends)
    broad = StudentMixture(torch.zeros(3).to(ends), means, trils, freedom)
    if not len(found.means):
        return broad
    return _fits(found).joined(broad, BROAD_SHARE)
