"""Hamiltonian moves along the geometric path: leapfrog steps and their Metropolis test."""

from __future__ import annotations

import torch
from torch import Tensor

from steinis_lib.baselines.geometric_path import Evaluated, GeometricPath


def propose(
    path: GeometricPath,
    start: Evaluated,
    v: Tensor,
    log_u: Tensor,
    beta: float,
    step_size: float | Tensor,
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
        ε, a number or ``(*batch,)``.

    Returns
    -------
    accept, end, v_end
        ``(*batch, n)``; the proposed particles; and their velocities, ``(*batch, n, d)``.
    """
    end, v_end = leapfrog(path, start, v, beta, step_size, n)
    return log_u < log_metropolis_ratio(start, end, v, v_end, beta), end, v_end


def log_metropolis_ratio(
    start: Evaluated, end: Evaluated, v: Tensor, v_end: Tensor, beta: float
) -> Tensor:
    """Return H - H', ``(*batch, n)``, for a move from (x, v) to (x', v') at f_β.

    It is NaN or -∞, which accepts nothing, if a number is not finite at the end. Where that is a
    score or a coordinate, v' is not finite either; of log-densities, 0 times both is added.
    """
    kinetic = 0.5 * torch.addcmul(v.square(), v_end, v_end, value=-1).sum(-1)
    log_a = torch.add(kinetic, end.log_q0 - start.log_q0, alpha=1 - beta)
    log_a = torch.add(log_a, end.log_p - start.log_p, alpha=beta)
    return torch.addcmul(log_a, end.log_q0, end.log_p, value=0)


def leapfrog(
    path: GeometricPath, start: Evaluated, v: Tensor, beta: float, step_size: float | Tensor, n: int
) -> tuple[Evaluated, Tensor]:
    """Take n steps of half a kick, a drift, half a kick from (start, v), with ε as above.

    Costs n scores of each particle: the first score comes with `start`, and densities are asked
    for at the end alone.
    """
    e = step_size[..., None, None] if isinstance(step_size, Tensor) else step_size
    half, x = 0.5 * e, start.particles
    v = _moved(v, half, start.score(beta))
    for _ in range(n - 1):
        x = _moved(x, e, v)
        v = _moved(v, e, path.score(x, beta))  # half a kick of this step, and half of the next
    end = path.evaluate(_moved(x, e, v))
    return end, _moved(v, half, end.score(beta))


def _moved(x: Tensor, step: float | Tensor, direction: Tensor) -> Tensor:
    """Return x + step · direction in one operation."""
    if isinstance(step, Tensor):
        return torch.addcmul(x, step, direction)
    return torch.add(x, direction, alpha=step)
