"""One tuner for all methods: equal budgets of score evaluations, one search, one rule on failures.

`tune_sampler` scores a candidate by its mean log-weight in pilot runs. For a method with unbiased
Ẑ its expectation is log Z - KL(q_ext‖p_ext), between the joint law of all that the method draws and
the law that it is weighted against; for SteinIS it is log Z - KL(q_ℓ‖p). Where Ẑ is biased
("unadjusted" AIS) it is no such bound, and can reward the bias.

Cost is counted in scores at one particle: leaders of SteinIS (followers need none), and every
particle of AIS and HAIS, at each leapfrog step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from steinis_lib.companion.methods import Sampler
from steinis_lib.companion.search import Evaluation, Failure, Trial, search
from steinis_lib.companion.settings import Axis as Axis
from steinis_lib.companion.settings import Setting
from steinis_lib.importance import ImportanceSample
from steinis_lib.steinis import SteinIS, SteinISState

Merit = Literal["mean-log-w", "error"]


def tune_sampler(
    axes: Sequence[Axis],
    make: Callable[[Setting], Sampler],
    n_transitions: int,
    generator: torch.Generator,
    *,
    n_candidates: int,
    repeats: int,
    batch_shape: tuple[int, ...] = (),
    reference: Tensor | None = None,
    merit: Merit = "mean-log-w",
) -> list[Trial[Setting]]:
    """Search for a setting of SteinIS, AIS or HAIS with pilot runs, as many for each candidate.

    All candidates meet the same problems, and draw from the same state of the generator, which
    stays where it is. A candidate is out if it diverges in any run (a FloatingPointError, or a
    figure that is not finite), or if its maps fold in more than half of the runs. If they fold in
    at most half, these runs are left out, because their weights are not valid. Followers of SteinIS
    take no part in the maps, so that they are held out.

    Parameters
    ----------
    axes
        What is searched; see `axes_of`.
    make
        Builds the sampler from a candidate.
    n_transitions
        Of each run.
    repeats, batch_shape
        There are runs ``(repeats, *batch_shape)``. A target with batch axes has one problem for
        each run, or for each along the last axes. A candidate's score is the mean over runs.
    reference
        What is taken off the mean log-weight of each run, ``(repeats, *batch_shape)`` or a shape
        that broadcasts to it: log Z where it is known, so that problems can be compared. Default 0.
    merit
        "mean-log-w" (default), or "error": -|log Ẑ - reference|, where the mean log-weight is no
        bound.

    Raises
    ------
    ValueError
        As for `search`.
    """
    shape, start = (repeats, *batch_shape), generator.get_state()

    def evaluate(setting: Setting) -> Evaluation:
        run: Any = make(setting)  # the samplers have the same methods, each with a state of its own
        used = _scores(run, n_transitions) * math.prod(shape)
        again = torch.Generator(device=generator.device)
        again.set_state(start)
        try:
            state = run.run(run.init(again, batch_shape=shape), n_transitions)
            sample = run.importance_sample(state)
        except FloatingPointError:
            return -math.inf, math.inf, used, Failure.DIVERGED
        values = _merits(sample, reference, merit)
        folded = torch.zeros(shape, dtype=torch.bool)
        if isinstance(state, SteinISState):
            folded = (state.n_folds > 0).to(folded.device)
        return _summary(values, folded, used)

    return search(axes, evaluate, n_candidates)


def _merits(sample: ImportanceSample, reference: Tensor | None, merit: Merit) -> Tensor:
    """Return the figure of merit of each run, ``(repeats, *batch_shape)``."""
    log_z = torch.zeros((), dtype=sample.log_w.dtype) if reference is None else reference
    if merit == "error":
        return -(sample.log_z - log_z).abs()
    return sample.log_w.mean(-1) - log_z


def _summary(values: Tensor, folded: Tensor, used: int) -> Evaluation:
    """Return the mean over the runs that did not fold, or why the candidate is out."""
    if not bool(torch.isfinite(values).all()):
        return -math.inf, math.inf, used, Failure.DIVERGED
    if 2 * int(folded.sum()) > folded.numel():
        return -math.inf, math.inf, used, Failure.FOLDED
    kept = values[~folded]
    error = float(kept.std() / math.sqrt(len(kept))) if len(kept) > 1 else math.inf
    return float(kept.mean()), error, used, Failure.NONE


def _scores(sampler: Sampler, n_transitions: int) -> int:
    """Scores of one problem: followers of SteinIS need none."""
    if isinstance(sampler, SteinIS):
        return n_transitions * sampler.n_leaders
    return sampler.n_evaluations(n_transitions)
