"""log Z of any density, without settings to tune: `estimate_log_z`.

It turns the problem as its owner has it into one density on R^d (`stated`, `constraints`,
`starts`), looks for what is wrong with it (`probe`), lets `find` search and weigh, within budgets
(`control`), and returns `Evidence`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from steinis_lib.core.checks import check_at_least
from steinis_lib.estimate.constraints import Parameters
from steinis_lib.estimate.control import BudgetSpent, Callback, Control
from steinis_lib.estimate.evidence import Evidence
from steinis_lib.estimate.find import Found, find
from steinis_lib.estimate.probe import points_of, probe
from steinis_lib.estimate.problem import Problem, cut_doubt
from steinis_lib.estimate.progress import progress_line
from steinis_lib.estimate.starts import as_gaussian
from steinis_lib.estimate.stated import Stated, as_function
from steinis_lib.importance import ImportanceSample
from steinis_lib.targets.base import Gaussian


def estimate_log_z(
    log_prob: Callable[..., Any],
    dim: int | None = None,
    *,
    q0: Gaussian | Distribution | Tensor | Mapping[str, Any] | None = None,
    n_samples: int = 4000,
    generator: torch.Generator | None = None,
    parameters: Mapping[str, Any] | None = None,
    vectorized: bool = True,
    max_points: int | None = None,
    max_evaluations: int | None = None,
    max_seconds: float | None = None,
    progress: bool | None = None,
    callback: Callback | None = None,
) -> Evidence:
    """Estimate log ∫ exp(log_prob), with draws of the density and reasons to doubt them.

    Climbs from q0 look for modes, a mixture is fitted to the density, behind a map if need be, and
    fresh draws of it are weighed; `find` has the steps. Easy densities need some ten thousand
    evaluations, with or without a gradient, hard ones some hundred thousand.

    A density is taken to be zero where log_prob is ±inf or NaN, or raises an exception; such points
    are counted, and NaN, +inf and exceptions are doubts if they come near the mass.

    The same arguments give the same result on one machine. With another number of threads, sums are
    rounded differently: log Z agrees to 1e-6, unless that tips a decision of the search; then it
    agrees as it does with another seed.

    Parameters
    ----------
    log_prob
        log p̄, up to a constant: a PyTorch function ``(n, d)`` → ``(n,)`` of each point alone. With
        `parameters`, it gets a dict of tensors ``(n, *shape)`` by name. `from_value_and_grad` makes
        one of a function from elsewhere.
    dim
        d. It can be left out where `parameters` or `q0` say it.
    q0
        Where the search begins: it should be at least as wide as p. A `Gaussian`; a Normal or
        MultivariateNormal of ``torch.distributions``; draws ``(n, d)`` of a former run, whose
        moments are taken; with `parameters` also a prior, a mapping from each name to a
        distribution or to draws ``(n, *shape)``. Default: N(0, I), in float64. With `parameters`,
        it is a density of the unconstrained coordinates, unless it is a mapping. Its dtype and
        device are those of everything.
    n_samples
        Weighted particles in the end, an even number, at least 200. Where the proposal is far from
        p, there are up to 8 times as many.
    generator
        Makes all random draws; on the device of `q0`. Default: a new one, seeded with 0.
    parameters
        Name → constraint: "real", "positive", "unit interval", bounds such as ``(0, 10)`` or
        ``(2, math.inf)``, or a constraint of ``torch.distributions``; or a pair of one of these and
        a shape, such as ``("positive", 3)``; or ``("simplex", K)``, ``("ordered", K)``, or
        ``("correlation", K)`` for the Cholesky factor of a K × K correlation matrix. log_prob is
        the density of these parameters; the log of the Jacobian determinant is added to it.
    vectorized
        If False, log_prob takes one point ``(d,)``, or a dict of tensors ``(*shape)``, and returns
        a number. It goes through ``torch.func.vmap``, or where that fails through a loop.
    max_points
        The most points in one call of log_prob, for densities that need much memory.
    max_evaluations, max_seconds
        A budget: when it is spent, the best answer so far is returned, with a doubt. Ctrl-C does
        the same. Time is looked at between calls of log_prob.
    progress
        Show a line of progress on stderr, by rich. Default: if stderr is a terminal.
    callback
        Called at each stage with its name, the evaluations so far, and the best `ImportanceSample`
        so far, or None.

    Raises
    ------
    ValueError
        If an argument is wrong, or log_prob is no function that gives one number for each point;
        the message says what to write instead.
    FloatingPointError
        If log_prob has no finite value where q0 is, is +inf there, or rises without end.
    BudgetSpent
        If a budget is spent before there is any answer.
    """
    _check_sizes(dim, n_samples, max_points, max_evaluations, max_seconds)
    named = None if parameters is None else Parameters(parameters)
    if named is not None and dim not in (None, named.dim):
        raise ValueError(f"dim is {dim}, but parameters have {named.dim} coordinates: leave it out")
    start = as_gaussian(q0, dim if named is None else named.dim, named)
    if generator is None:
        generator = torch.Generator(start.mean.device).manual_seed(0)
    with torch.no_grad(), progress_line(progress) as show:
        control = Control(max_evaluations, max_seconds, callback, show)
        points = points_of(start)[:max_points]
        control.spend(0 if vectorized else 2 * len(points))
        stated = Stated(log_prob, named, vectorized)
        problem = Problem(as_function(stated, points), start.mean, control.spend, max_points)
        return _answer(problem, stated, start, n_samples, generator, control)


def _answer(
    problem: Problem,
    stated: Stated,
    q0: Gaussian,
    n_samples: int,
    generator: torch.Generator,
    control: Control,
) -> Evidence:
    """Look at log_prob, search and weigh, as far as budgets go, and collect what was found."""
    try:
        probe(problem, q0, stated)
        problem.refuses_infinite = False
        found = find(problem, q0, n_samples, generator, control.report)
        sample = _both(found)
        control.finish(sample)
        doubts = found.doubts + cut_doubt(problem, sample, generator)
    except (BudgetSpent, KeyboardInterrupt) as stop:
        found = control.so_far(stop)
        sample, doubts = _both(found), found.doubts
    except FloatingPointError as error:
        if any(problem.n_invalid.values()):
            error.add_note(
                f"log_prob had no value at some points, by kind: {dict(+problem.n_invalid)}. If "
                "parameters are bounded, name the bounds by parameters="
            )
        raise
    return Evidence(
        sample=sample,
        log_z_runs=torch.stack([s.log_z for s in found.samples]),
        doubts=doubts,
        route=found.route,
        n_evaluations=control.n_evaluations,
        n_invalid=dict(+problem.n_invalid),
        parameters=stated.parameters,
    )


def _both(found: Found) -> ImportanceSample:
    return ImportanceSample(
        torch.cat([s.particles for s in found.samples]), torch.cat([s.log_w for s in found.samples])
    )


def _check_sizes(
    dim: int | None,
    n_samples: int,
    max_points: int | None,
    max_evaluations: int | None,
    max_seconds: float | None,
) -> None:
    if dim is not None:
        check_at_least(dim, 1, "dim")
    if n_samples < 200 or n_samples % 2:
        raise ValueError(f"n_samples must be even and at least 200, got {n_samples}")
    if max_points is not None:
        check_at_least(max_points, 1, "max_points")
    if max_evaluations is not None:
        check_at_least(max_evaluations, 1, "max_evaluations")
    if max_seconds is not None and not max_seconds > 0:
        raise ValueError(f"max_seconds must be positive, got {max_seconds}")
