"""Hamiltonian moves along the geometric path: leapfrog steps and their Metropolis test."""

from __future__ import annotations

from torch import Tensor

from steinis_lib.baselines.geometric_path import Evaluated, GeometricPath


def propose(
    path: GeometricPath,
    start: Evaluated,
    v: Tensor,
    log_u: Tensor,
    beta: float,
    step_size: Tensor,
    n: int,
) -> tuple[Tensor, Evaluated, Tensor]:
    """Take n leapfrog steps from (x, v) at f_β, and say which particles accept them.

    A particle accepts with probability min(1, exp(H - H')), H = -log f_β(x) + ‖v‖²/2. A proposal
    with a number that is not finite is rejected.

    Parameters
    ----------
    start
        The particles x, ``(*batch, n, d)``, with what was evaluated at them.
    v
        Velocities, ``(*batch, n, d)``.
    log_u
        Logs of uniform draws, ``(*batch, n)``.
    step_size
        ε, ``(*batch,)``.

    Returns
    -------
    accept, end, v_end
        ``(*batch, n)``; the proposed particles; and their velocities, ``(*batch, n, d)``.
    """
    end, v_end = leapfrog(path, start, v, beta, step_size, n)
    log_a = end.log_prob(beta) - start.log_prob(beta)
    log_a = log_a + 0.5 * (v.square() - v_end.square()).sum(-1)
    return end.is_finite() & (log_u < log_a), end, v_end


def leapfrog(
    path: GeometricPath, start: Evaluated, v: Tensor, beta: float, step_size: Tensor, n: int
) -> tuple[Evaluated, Tensor]:
    """Take n steps of half a kick, a drift, half a kick from (start, v), with ε ``(*batch,)``.

    Costs n scores of each particle: the first score comes with `start`, and densities are asked
    for at the end alone.
    """
    e = step_size[..., None, None]
    half, x, score = 0.5 * e, start.particles, start.score(beta)
    for _ in range(n - 1):
        v = v + half * score
        x = x + e * v
        score = path.score(x, beta)
        v = v + half * score
    v = v + half * score
    end = path.evaluate(x + e * v)
    return end, v + half * end.score(beta)
