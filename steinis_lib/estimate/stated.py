"""Any way of writing log_prob, as a function of points ``(n, d)`` to numbers ``(n,)``.

A function of one point goes through `torch.func.vmap`, or else through a loop. A function of named
parameters gets the parameters of u, and the log of the Jacobian determinant is added to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from steinis_lib.estimate.constraints import Parameters

Points = Tensor | Mapping[str, Tensor]
"""Points ``(n, d)``, or values ``(n, *shape)`` by name."""


class LogProbError(ValueError):
    """log_prob does not return what it should."""


@dataclass(frozen=True)
class Stated:
    """A problem as it was stated; the fields are arguments of `estimate_log_z`."""

    log_prob: Callable[..., Any]
    parameters: Parameters | None = None
    vectorized: bool = True

    def inside(self, u: Tensor) -> tuple[Any, Tensor | float]:
        """Return what log_prob is called with at u ``(*batch, d)``, and the log-determinant."""
        return (u, 0.0) if self.parameters is None else self.parameters.constrain(u)

    def name_at(self, i: int) -> str:
        """Return what the coordinate u_i is called."""
        return f"x[:, {i}]" if self.parameters is None else self.parameters.name_at(i)

    def argument(self) -> str:
        """Say in words what log_prob is called with."""
        what = "points, (n, d)" if self.vectorized else "one point, (d,)"
        if self.parameters is not None:
            names = ", ".join(self.parameters.names)
            return (
                f"a dict of {'many values' if self.vectorized else 'one value'} of each of {names}"
            )
        return what if not self.vectorized else f"many {what}"


def as_function(stated: Stated, u: Tensor) -> Callable[[Tensor], Tensor]:
    """Return log p̄ as a function of u, ``(n, d)`` → ``(n,)``.

    A function of one point is tried out at points u ``(n, d)``.
    """
    many = stated.log_prob
    if not stated.vectorized:
        many = of_many(stated.log_prob, stated.inside(u)[0])

    def function(u: Tensor) -> Tensor:
        points, log_det = stated.inside(u)
        return checked(many(points), points, u) + log_det

    return function


def of_many(one: Callable[..., Any], points: Points) -> Callable[[Points], Tensor]:
    """Make a function of many points of a function of one.

    It uses `torch.func.vmap` if that gives, at these points, what a loop gives; else a loop.
    """

    def loop(points: Points) -> Tensor:
        return torch.stack([_number(one(point), point) for point in _each(points)])

    vmap = torch.func.vmap(one)
    try:
        looped, mapped = loop(points), vmap(points)
        same = looped.shape == mapped.shape and torch.allclose(looped, mapped, equal_nan=True)
    except Exception:  # whatever vmap cannot do; what is wrong with log_prob, the loop will say
        return loop
    return vmap if same else loop


def checked(value: object, points: Points, u: Tensor) -> Tensor:
    """Return what log_prob returned if it is ``(n,)`` floating numbers.

    Raises
    ------
    LogProbError
        If it is not, saying what it is and what to write instead.
    """
    n = len(u)
    if not isinstance(value, Tensor):
        raise LogProbError(
            f"log_prob must return a tensor ({n},) for {n} points, got a {type(value).__name__}: "
            "write it with torch operations, or wrap a function that returns values and gradients "
            "in from_value_and_grad"
        )
    if value.shape != (n,):
        raise LogProbError(
            f"log_prob must map (n, d) to (n,): for {_shapes(points)} it returned "
            f"{tuple(value.shape)}; {_advice(value.shape, points, n)}"
        )
    if not value.is_floating_point():
        raise LogProbError(
            f"log_prob returned {value.dtype} numbers, expected {u.dtype}: begin with floating-"
            "point numbers, and do not round"
        )
    if torch.finfo(value.dtype).eps > torch.finfo(u.dtype).eps:
        raise LogProbError(
            f"log_prob returned {value.dtype} numbers for {u.dtype} points: it computes with fewer "
            "digits, and their rounding errors can be whole nats. Convert what it uses, such as "
            f"model.double() or data.double(), or pass a q0 of {value.dtype}"
        )
    return value.to(u.dtype)


def _advice(shape: torch.Size, points: Points, n: int) -> str:
    one = "if it takes one point at a time, pass vectorized=False"
    if shape == (n, 1):
        return "it has an axis too many: end with .squeeze(-1), or sum over the last axis, .sum(-1)"
    if shape == ():
        return f"it sums over points: sum over coordinates only, .sum(-1); {one}"
    if len(shape) > 1 and shape[0] == n:
        return "it has a number for each coordinate: sum over coordinates, .sum(-1)"
    if isinstance(points, Tensor) and shape == points.shape[1:]:
        return f"it sums over points instead of over coordinates: write .sum(-1); {one}"
    return f"sum over coordinates, not over points; {one}"


def _shapes(points: Points) -> str:
    if isinstance(points, Tensor):
        return str(tuple(points.shape))
    return ", ".join(f"{name} {tuple(value.shape)}" for name, value in points.items())


def _each(points: Points) -> list[Any]:
    if isinstance(points, Tensor):
        return list(points)
    rows = zip(*points.values(), strict=True)
    return [dict(zip(points, row, strict=True)) for row in rows]


def _number(value: object, point: object) -> Tensor:
    """Refuse what is no single number."""
    if isinstance(value, Tensor) and value.shape == ():
        return value
    got = f"a tensor {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
    raise LogProbError(
        f"with vectorized=False, log_prob must return one number, a tensor of shape (), for one "
        f"point; got {got}"
        + (": end with .sum()" if isinstance(value, Tensor) else ": use torch operations")
    )
