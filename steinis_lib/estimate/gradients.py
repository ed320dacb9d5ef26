"""Functions from outside PyTorch that return values and gradients: NumPy, JAX, BridgeStan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

ValueAndGrad = Callable[[np.ndarray[Any, Any]], tuple[Any, Any]]


def from_value_and_grad(
    function: ValueAndGrad, *, vectorized: bool = True
) -> Callable[[Tensor], Tensor]:
    """Make a log_prob of a function that returns log p̄ and its gradient as arrays.

    A wrong gradient does not bias log Z, since weights use values only; it makes proposals worse.
    `torch.autograd.gradcheck` compares it with finite differences.

    Parameters
    ----------
    function
        Maps a NumPy array ``(n, d)`` to values ``(n,)`` and gradients ``(n, d)``: arrays of any
        library that NumPy can read.
    vectorized
        If False, `function` maps one point ``(d,)`` to a number and a gradient ``(d,)``, and is
        called once for each point.

    Returns
    -------
    log_prob
        For `estimate_log_z`, which asks it for many points at once, in either case.
    """
    many = function if vectorized else _of_many(function)

    def log_prob(x: Tensor) -> Tensor:
        return _Outside.apply(x, many)  # type: ignore[no-untyped-call]

    return log_prob


def _of_many(one: ValueAndGrad) -> ValueAndGrad:
    def many(x: np.ndarray[Any, Any]) -> tuple[Any, Any]:
        values, gradients = zip(*(one(row) for row in x), strict=True)
        return np.array(values), np.stack([np.asarray(gradient) for gradient in gradients])

    return many


class _Outside(torch.autograd.Function):
    """Values go forward, gradients backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, function: ValueAndGrad) -> Tensor:
        result = function(x.detach().cpu().numpy())
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise TypeError(
                "the function must return values and gradients, two arrays; got a "
                f"{type(result).__name__}"
            )
        values, gradients = map(np.asarray, result)
        n, d = x.shape
        if values.shape != (n,) or gradients.shape != (n, d):
            raise TypeError(
                f"the function must return values ({n},) and gradients ({n}, {d}) for points "
                f"({n}, {d}); got {values.shape} and {gradients.shape}. If it takes one point at a "
                "time, pass vectorized=False to from_value_and_grad"
            )
        if x.dtype == torch.float64 and values.dtype == np.float32:
            raise TypeError(
                "the function returned 32-bit numbers for 64-bit points, whose rounding errors can "
                'be whole nats. In JAX, call jax.config.update("jax_enable_x64", True) first'
            )
        ctx.save_for_backward(torch.tensor(gradients).to(x))
        return torch.tensor(values).to(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        (gradients,) = ctx.saved_tensors
        return upstream[:, None] * gradients, None
