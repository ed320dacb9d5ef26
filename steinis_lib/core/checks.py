"""Checks at the boundary: what was wrong, what was expected, how to fix it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor


class NotFiniteError(FloatingPointError):
    """Numbers that belong to particles are not finite.

    Attributes
    ----------
    particles
        Which particles, ``(*batch, n)``.
    """

    particles: Tensor | None = None


class HasDim(Protocol):
    """Anything with a dimension d: a target or a proposal."""

    @property
    def dim(self) -> int:
        """The dimension d."""
        ...


def check_q0(target: HasDim, q0: HasDim, kind: type = object) -> None:
    """Refuse a q_0 that is no instance of `kind`, or whose dimension is not the target's.

    Raises
    ------
    TypeError, ValueError
        With both kinds, or both dimensions.
    """
    if not isinstance(q0, kind):
        raise TypeError(f"q0 must be a {kind.__name__}, got a {type(q0).__name__}")
    if q0.dim != target.dim:
        raise ValueError(f"q0 has d={q0.dim}, but the target has d={target.dim}")


def check_at_least(value: int, least: int, name: str) -> None:
    """Refuse a number that is less than `least`.

    Raises
    ------
    ValueError
        With the name and the number.
    """
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")


def check_particles(x: Tensor, name: str, dim: int | None = None, at_least: int = 1) -> None:
    """Refuse anything that is not a floating ``(*batch, n, d)`` tensor.

    Raises
    ------
    ValueError
        If the rank, the dimension ``d``, or the number of particles ``n`` is wrong.
    TypeError
        If `x` is no floating-point tensor.
    """
    if not isinstance(x, Tensor) or not x.is_floating_point():
        kind = f"a {x.dtype} tensor" if isinstance(x, Tensor) else f"a {type(x).__name__}"
        raise TypeError(f"{name} must be a floating-point tensor (*batch, n, d), got {kind}")
    if x.ndim < 2:
        raise ValueError(
            f"{name} must have shape (*batch, n, d), got {tuple(x.shape)}; "
            "for 1-D problems add a last axis of length 1"
        )
    if dim is not None and x.shape[-1] != dim:
        raise ValueError(f"{name} has dimension d={x.shape[-1]}, but the target has d={dim}")
    if x.shape[-2] < at_least:
        raise ValueError(f"{name} needs at least {at_least} particles, got {x.shape[-2]}")


def check_log_density(log_p: Tensor, name: str) -> None:
    """Refuse NaN and +inf, naming the first offending particle; -inf (zero density) is fine.

    Raises
    ------
    FloatingPointError
        With the index of the first particle whose value is NaN or +inf.
    """
    bad = torch.isnan(log_p) | (log_p == torch.inf)
    _raise_at(bad, log_p, name, "a finite number or -inf (zero density)")


def check_finite(values: Tensor, name: str) -> None:
    """Refuse any non-finite entry of particles or scores ``(*batch, n, d)``.

    Raises
    ------
    FloatingPointError
        With the index of the first particle that has a non-finite coordinate.
    """
    bad = ~torch.isfinite(values).all(-1)
    _raise_at(bad, values, name, "finite numbers; try a smaller step size or check the target")


def check_step_size(step_size: float | Tensor | Callable[[int], float]) -> None:
    """Refuse a step size that is not positive and finite; a schedule is left to each transition.

    Raises
    ------
    ValueError
        With the step size.
    """
    if callable(step_size):
        return
    values = torch.as_tensor(step_size)
    if not bool(((values > 0) & torch.isfinite(values)).all()):
        raise ValueError(f"step_size must be positive and finite, got {step_size}")


def _raise_at(bad: Tensor, values: Tensor, name: str, expected: str) -> None:
    if not bool(bad.any()):
        return
    index = tuple(torch.nonzero(bad)[0].tolist())
    where = index[0] if len(index) == 1 else index
    error = NotFiniteError(
        f"{name} is {values[index].tolist()} at particle {where} "
        f"({int(bad.sum())} of {bad.numel()} particles affected); expected {expected}"
    )
    error.particles = bad
    raise error
