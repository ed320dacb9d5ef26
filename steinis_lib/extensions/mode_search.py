"""Search for the modes of p̄: short annealed chains from q_0, then uphill steps.

`explore` sends HAIS particles from q_0 towards p̄, with a step that adapts. Their weights are not
used, so they may be biased. `climb` takes each of them uphill. `distinct` keeps the highest ends
that lie apart. Points are ``(n, d)``: one problem at a time, without batch axes.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from steinis_lib.baselines.geometric_path import linear_schedule
from steinis_lib.baselines.hais import HAIS
from steinis_lib.core.checks import check_at_least, check_finite, check_log_density, check_particles
from steinis_lib.targets.base import ScoredProposal, Target

CLIMB_STEPS = 60
ADAPT_TO, ADAPT_MEMORY = 0.65, 0.9
ADAPT_FACTORS, ADAPT_WITHIN = (1.02, 0.98), (1e-4, 0.5)
"""The adaptation of Wu et al. (2016): the acceptance aimed at, the weight of its past, factors on
the step where acceptance is above or below, and limits of the step."""


def explore(
    target: Target,
    q0: ScoredProposal,
    n_explorers: int,
    n_transitions: int,
    generator: torch.Generator,
    *,
    step_size: float = 0.2,
    n_leapfrog: int = 5,
) -> Tensor:
    """Return the ends of HAIS from q_0, ``(n, d)``.

    The step adapts to the particles that it moves, so that weights would be biased: none are kept.

    Costs `n_transitions` · `n_leapfrog` + 1 scores for each explorer. Raises what `HAIS` does.
    """
    sampler = HAIS(
        target,
        q0,
        n_particles=n_explorers,
        schedule=linear_schedule(n_transitions),
        n_leapfrog=n_leapfrog,
        refresh=0.5,
    )
    state = sampler.init(generator)
    check_points(state.particles, "explorers", target)
    epsilon = torch.tensor(step_size).to(state.particles)
    mean_acceptance = torch.full_like(epsilon, ADAPT_TO)
    for _ in range(n_transitions):
        state, info = replace(sampler, step_size=epsilon).step(state)
        factor = torch.where(mean_acceptance > ADAPT_TO, *ADAPT_FACTORS)
        epsilon = (epsilon * factor.to(epsilon)).clamp(*ADAPT_WITHIN)
        mean_acceptance = ADAPT_MEMORY * mean_acceptance + (1 - ADAPT_MEMORY) * info.acceptance
    return state.particles


def climb(target: Target, x: Tensor, n_steps: int = CLIMB_STEPS) -> tuple[Tensor, Tensor, Tensor]:
    """Go uphill from points x ``(n, d)``.

    A step x + ε s(x) is taken if log p̄ rises by more than rounding could make it. ε then grows by
    half, and otherwise falls to a third: in the end it is of the order of 1/(largest curvature).
    The first step is at most 1 long. If the widest direction of a mode has κ times the variance of
    the narrowest, a climb takes some κ steps.

    Returns
    -------
    x, log_p, epsilon
        Where the climbs end, ``(n, d)``, log p̄ there, and the last ε taken, both ``(n,)``. That ε
        has no meaning where no step was taken.

    Raises
    ------
    ValueError
        If x is not ``(n, d)``.
    FloatingPointError
        If log p̄ or the score is not finite at a start, naming the point.
    """
    check_points(x, "x", target)
    log_p, score = target.log_prob_and_score(x)
    check_log_density(log_p, "the target's log_prob")
    refuse_zero(log_p, "the target's log_prob", "particle")
    check_finite(score, "the target's score")
    epsilon = 1 / score.norm(dim=-1).clamp(min=1.0)
    last_taken, eps = epsilon, torch.finfo(x.dtype).eps
    for _ in range(n_steps):
        new = x + epsilon.unsqueeze(-1) * score
        new_log_p, new_score = target.log_prob_and_score(new)
        rounding = math.sqrt(eps) + 8 * eps * log_p.abs()
        finite = torch.isfinite(new_log_p) & torch.isfinite(new_score).all(-1)
        up = finite & (new_log_p > log_p + rounding)
        x = torch.where(up.unsqueeze(-1), new, x)
        score = torch.where(up.unsqueeze(-1), new_score, score)
        log_p = torch.where(up, new_log_p, log_p)
        last_taken = torch.where(up, epsilon, last_taken)
        epsilon = torch.where(up, 1.5 * epsilon, epsilon / 3)
    return x, log_p, last_taken


def distinct(x: Tensor, log_p: Tensor, epsilon: Tensor, most: int) -> Tensor:
    """Return indices of at most `most` ends of climbs, highest first, none near a higher one.

    x ``(n, d)``, log_p and epsilon ``(n,)`` are those of `climb`. Near is within √(dε)/2, with the
    ε of the higher one: a climb's last step is about the variance in the narrowest direction.

    Raises
    ------
    ValueError
        If shapes do not fit, or `most` is less than 1.
    FloatingPointError
        If log_p is NaN or +inf, naming the point.
    """
    if x.ndim != 2 or not log_p.shape == epsilon.shape == x.shape[:1]:
        shapes = ", ".join(str(tuple(t.shape)) for t in (x, log_p, epsilon))
        raise ValueError(f"expected x (n, d), log_p (n,) and epsilon (n,), no batch; got {shapes}")
    check_at_least(most, 1, "most")
    check_log_density(log_p, "log_p")
    chosen: list[int] = []
    for i in log_p.argsort(descending=True).tolist():
        near = 0.5 * (x.shape[-1] * epsilon[chosen]).sqrt()
        if bool(((x[chosen] - x[i]).norm(dim=-1) > near).all()):
            chosen.append(i)
        if len(chosen) == most:
            break
    return torch.tensor(chosen, device=x.device)


def check_points(x: Tensor, name: str, target: Target) -> None:
    """Refuse what is not ``(n, d)``: one problem, with the target's dimension."""
    check_particles(x, name, target.dim)
    if x.ndim != 2:
        raise ValueError(
            f"{name} must be (n, d), one problem at a time, got {tuple(x.shape)}; loop over a batch"
        )


def refuse_zero(log_p: Tensor, name: str, place: str) -> None:
    """Refuse -inf among ``(n,)`` values: no Gaussian can be fitted where p̄ is zero.

    Raises
    ------
    FloatingPointError
        With the first such index, after the word `place`.
    """
    zero = log_p == -torch.inf
    if bool(zero.any()):
        raise FloatingPointError(
            f"{name} is -inf at {place} {int(zero.nonzero()[0])} ({int(zero.sum())} of {len(zero)} "
            f"{place}s affected); expected a density that is positive on all of R^d: change "
            "variables first, such as to the log of a positive parameter, and add the log of the "
            "Jacobian determinant to log_prob"
        )
