"""What can be wrong with log_prob, found at a few points before anything else is done.

Each finding is an error that says what was seen, and what to write instead.
"""

from __future__ import annotations

import math
import re

import torch
from torch import Tensor

from steinis_lib.estimate.control import BudgetSpent
from steinis_lib.estimate.problem import FAILURES, Problem
from steinis_lib.estimate.stated import LogProbError, Stated
from steinis_lib.targets.base import Gaussian

N_POINTS = 8
"""Points that are tried."""
FAR = (1e3, 1e5)
"""Radii, in standard deviations of q0, at which a density should have begun to fall."""

ON_COPIES = "work on a copy, x = x.clone(), or build a new tensor by torch.cat or torch.stack"
ADVICE = (
    (r"in-place|inplace", ON_COPIES),
    (
        r"numpy\(\)|__array__|ndarray",
        "autograd cannot follow NumPy: write it with torch operations, or wrap a function that "
        "returns values and gradients in from_value_and_grad",
    ),
    (
        r"same dtype|scalar type|Double|dtype mismatch",
        "points are {dtype}, as q0 is, and something that log_prob uses is not: convert it, such "
        "as model.to({dtype}) or data.to({dtype}), or pass a q0 of its dtype",
    ),
    (
        r"same device|on device|cuda",
        "points are on {device}, as q0 is: move what log_prob uses there, or pass a q0 on its "
        "device",
    ),
    (
        r"support|to satisfy the constraint",
        "a distribution got a value or an argument that it does not allow: name the bounds of "
        'parameters, as in parameters={{"sigma": "positive"}}, or move q0',
    ),
    (
        r"out of bounds|out of range|cannot be multiplied|size mismatch|must match|not broadcast"
        r"|invalid for input|1D tensors expected|inconsistent tensor size|too many values"
        r"|not enough values|doesn't match the broadcast|sum to"
        r"|mismatch in its core dimension|could not be broadcast",
        "shapes do not fit: log_prob gets {argument}, where d = {d}: are dim and vectorized right?",
    ),
    (r"^'\w+'$", "log_prob gets {argument}"),
)
"""What the message of an exception tells, and what to write instead."""


def probe(problem: Problem, q0: Gaussian, stated: Stated) -> None:
    """Refuse a log_prob that is no log density, a function of each point alone.

    Raises
    ------
    LogProbError
        If it fails at all points, or for some points alone, returns something else than a number
        for each point, changes its input, has no gradient, or depends on chance or other points.
    FloatingPointError
        If it has no finite value at any of the points, or rises in all directions.
    """
    x = points_of(q0)
    original = x.clone()
    _first_call(problem, x, stated)
    if not torch.equal(x, original):
        raise LogProbError(f"log_prob changes the tensor that it is given: {ON_COPIES}")
    values = problem.log_prob(x)
    _check_values(problem, values)
    x, values = x[torch.isfinite(values)], values[torch.isfinite(values)]
    _check_alone(problem, x, values)
    score = _first_score(problem, x, stated)
    _check_all_coordinates(problem, q0, x, score, stated)
    _check_sign(problem, q0)
    problem.anchor = x[0]
    problem.n_invalid.clear()


def points_of(q0: Gaussian) -> Tensor:
    """Return the mean of q0 and some draws, ``(n, d)`` with n ≠ d."""
    n = N_POINTS + (q0.dim == N_POINTS)
    generator = torch.Generator(q0.mean.device).manual_seed(0)
    return torch.cat([q0.sample((n - 1,), generator), q0.mean.unsqueeze(0)])


def _first_call(problem: Problem, x: Tensor, stated: Stated) -> None:
    """Call log_prob at all points; refuse what fails at each one of them alone, too."""
    problem.spend(len(x))
    try:
        for part in problem.parts(x):
            problem.function(part)
    except LogProbError:
        raise
    except Exception as error:
        if isinstance(error, FAILURES):
            for i in range(len(x)):
                problem.raw(x[i : i + 1], scored=False)
            if problem.n_invalid["exception"] < len(x):
                return
        said = f"log_prob failed for points {tuple(x.shape)}: {type(error).__name__}: {error}"
        if stated.vectorized and _takes_one_point(x, stated):
            said = f"{said}; it takes one point at a time: pass vectorized=False"
            raise LogProbError(said) from error
        raise LogProbError(_advised(str(error), said, x, stated)) from error


def _first_score(problem: Problem, x: Tensor, stated: Stated) -> Tensor:
    """Return the gradient; refuse one that cannot be had, or is nowhere finite."""
    problem.spend(len(x))
    try:
        score = torch.cat([problem.call(part, scored=True)[1] for part in problem.parts(x)])
    except LogProbError:
        raise
    except Exception as error:
        said = f"autograd cannot differentiate log_prob: {type(error).__name__}: {error}"
        raise LogProbError(_advised(str(error), said, x, stated)) from error
    if not bool(torch.isfinite(score).all(-1).any()):
        raise FloatingPointError(
            f"the gradient of log_prob is not finite at any of {len(x)} points of q0, where its "
            "values are: torch.where, sqrt and norm can do this, in a branch that is not taken"
        )
    return score


def _advised(text: str, said: str, x: Tensor, stated: Stated) -> str:
    facts = {"dtype": x.dtype, "device": x.device, "d": x.shape[-1], "argument": stated.argument()}
    for pattern, advice in ADVICE:
        if re.search(pattern, text):
            return f"{said}; {advice.format(**facts)}"
    return said


def _takes_one_point(x: Tensor, stated: Stated) -> bool:
    """Say whether log_prob gives one number for one point, without an axis for points."""
    try:
        value = stated.log_prob(stated.inside(x[0].clone())[0])
    except Exception:
        return False
    return isinstance(value, Tensor) and value.shape == ()


def _check_values(problem: Problem, values: Tensor) -> None:
    if bool(torch.isfinite(values).any()):
        return
    n, counts = len(values), problem.n_invalid
    kinds = [
        f"{what} at {counts[kind]}"
        for kind, what in (("nan", "NaN"), ("-inf", "-inf"), ("exception", "an exception"))
        if counts[kind]
    ]
    raise FloatingPointError(
        f"log_prob is {', '.join(kinds)} of {n} points that q0 drew, so that the search cannot "
        "begin: move q0 to where the density is positive, name the bounds of parameters by "
        "parameters=, or write the formula in logarithms if it over- or underflows"
    )


def _check_alone(problem: Problem, x: Tensor, values: Tensor) -> None:
    """Refuse values that change from call to call, or with the other points in a call."""
    tolerance = torch.finfo(x.dtype).eps ** 0.5 * max(1.0, float(values.abs().max()))

    def differs(again: Tensor) -> float:
        return float((again - values[: len(again)]).abs().max())

    if (by := differs(problem.log_prob(x))) > tolerance:
        raise LogProbError(
            f"log_prob gave other values when it was called again at the same points, by up to "
            f"{by:.2g}: it must not depend on chance. Call model.eval() to stop dropout, use all "
            "data instead of minibatches, and draw no random numbers in it"
        )
    order = torch.arange(len(x) - 1, -1, -1, device=x.device)
    permuted = problem.log_prob(x[order])[order]
    alone = torch.cat([problem.log_prob(x[i : i + 1]) for i in range(min(3, len(x)))])
    by = max(differs(permuted), differs(alone))
    if math.isinf(by) and problem.last_error is not None:
        raise LogProbError(
            "log_prob works for all points in one call, and fails for some of them alone: it must "
            f"take any number of points. {type(problem.last_error).__name__}: {problem.last_error}"
        ) from problem.last_error
    if by > tolerance:
        raise LogProbError(
            f"log_prob of a point depends on the other points in the call, by up to {by:.2g}: it "
            "must be a function of each point alone. Call model.eval() to stop batch "
            "normalisation, and take no mean, maximum or sum over the axis of points"
        )


def _far_away(problem: Problem, x: Tensor) -> Tensor:
    """Return log_prob as it is, NaN if it fails: nobody promised that it works that far away."""
    try:
        return problem.raw(x, scored=False)[0]
    except BudgetSpent:
        raise
    except Exception:
        return torch.full_like(x[:, 0], math.nan)


def _check_sign(problem: Problem, q0: Gaussian) -> None:
    """Refuse what rises in all directions as far as one looks."""
    generator = torch.Generator(q0.mean.device).manual_seed(1)
    ray = q0.sample((N_POINTS,), generator) - q0.mean
    rays = torch.cat([ray, -ray])
    before = _far_away(problem, q0.mean.unsqueeze(0))
    for radius in FAR:
        value = _far_away(problem, q0.mean + radius * rays)
        if not bool(((value > before) | (value == math.inf)).all()):
            return
        before = value
    raise FloatingPointError(
        f"log_prob rises without end: in {len(rays)} directions it is larger {FAR[-1]:g} standard "
        "deviations of q0 away than nearer, so that its integral is infinite. Check its sign: "
        "pass the log density, -energy, and not the energy or the loss"
    )


def _check_all_coordinates(
    problem: Problem, q0: Gaussian, x: Tensor, score: Tensor, stated: Stated
) -> None:
    """Refuse what is the same however far one coordinate is moved."""
    for i in (score == 0).all(0).nonzero().flatten().tolist():
        near, far = x[:1], x[:1].clone()
        far[:, i] += FAR[-1] * q0.scale_tril[i].norm()
        pair = _far_away(problem, torch.cat([near, far]))
        if bool(pair[0] == pair[1]):
            raise LogProbError(
                f"log_prob does not depend on {stated.name_at(i)}, so that its integral is "
                f"infinite: it gets {q0.dim} coordinates; is dim right, and has each one a prior?"
            )
