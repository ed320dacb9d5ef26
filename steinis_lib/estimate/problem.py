"""log_prob as `find` sees it: counted, in batches, and zero where it has no value.

A density is taken to be zero where log_prob is NaN or raises an exception, as it is where log_prob
is -inf; and where it is +inf, by an overflow that a climb met. `Problem.n_invalid` counts such
points, and `cut_doubt` looks whether they touch the mass.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from steinis_lib.estimate.doubts import Doubt
from steinis_lib.estimate.stated import LogProbError
from steinis_lib.importance import ImportanceSample

FAILURES = (ValueError, ArithmeticError, RuntimeError)
"""What log_prob may raise where it has no value; a RuntimeError is what LAPACK and Stan raise."""
JITTERED, JITTER, TOUCHING = 1000, 0.5, 0.005
"""Draws that look for the region where log_prob fails, how far each is moved, in standard
deviations, and the share of them in that region that is reported."""


class Problem:
    """A target that survives what log_prob does.

    Parameters
    ----------
    function
        log p̄, ``(n, d)`` → ``(n,)``.
    anchor
        A point ``(d,)`` that stands in for points that are not finite; those have density zero.
    spend
        Called with the number of points before each call of `function`.
    max_points
        The most points in one call; None for any number.
    """

    def __init__(
        self,
        function: Callable[[Tensor], Tensor],
        anchor: Tensor,
        spend: Callable[[int], None],
        max_points: int | None = None,
    ) -> None:
        self.function, self.anchor, self.spend = function, anchor, spend
        self.max_points = max_points
        self.refuses_infinite = True  # as long as points are draws of q0
        self.n_invalid: Counter[str] = Counter()
        self.last_error: Exception | None = None

    @property
    def dim(self) -> int:
        """The dimension d."""
        return len(self.anchor)

    def log_prob(self, x: Tensor) -> Tensor:
        """Return log p̄(x), ``(*batch, n)``, -inf where log_prob has no value.

        Raises
        ------
        FloatingPointError
            If it is +inf and `refuses_infinite`, naming the point.
        LogProbError
            If log_prob does not return ``(n,)`` numbers.
        """
        return self._everywhere(x, scored=False)[0]

    def score(self, x: Tensor) -> Tensor:
        """Return ∇ log p̄(x), ``(*batch, n, d)``, zero where log_prob has no value or gradient."""
        return self.log_prob_and_score(x)[1]

    def log_prob_and_score(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return both from one call; raises what `log_prob` does."""
        return self._everywhere(x.detach(), scored=True)

    def is_invalid(self, x: Tensor) -> Tensor:
        """Say at which points ``(n, d)`` log_prob is NaN, +inf or raises an exception."""
        value = self.raw(x, scored=False)[0]
        return value.isnan() | (value == math.inf)

    def parts(self, x: Tensor) -> Iterable[Tensor]:
        """Return points ``(n, d)`` in parts for one call each."""
        return x.split(self.max_points or max(len(x), 1))

    def _everywhere(self, x: Tensor, scored: bool) -> tuple[Tensor, Tensor]:
        flat = x.reshape(-1, self.dim)
        inside = torch.isfinite(flat).all(-1)
        if not bool(inside.all()):
            flat = torch.where(inside.unsqueeze(-1), flat, self.anchor)
        raised = self.n_invalid["exception"]
        value, score = self.raw(flat, scored)
        good = inside & torch.isfinite(value)
        if scored:
            good &= torch.isfinite(score).all(-1)
        if not bool(good.all()):
            raised = self.n_invalid["exception"] - raised
            value, score = self._zeroed(flat, value, score, inside, raised)
        return value.reshape(x.shape[:-1]), score.reshape(x.shape)

    def _zeroed(
        self, x: Tensor, value: Tensor, score: Tensor, inside: Tensor, raised: int
    ) -> tuple[Tensor, Tensor]:
        """Return values and scores where p̄ is zero if they are not finite, and count those."""
        if self.refuses_infinite:
            self._refuse_infinite(value, x)
        self.n_invalid["+inf"] += int((value == math.inf).sum())
        self.n_invalid["nan"] += int(value.isnan().sum()) - raised
        self.n_invalid["-inf"] += int((value == -math.inf).sum())
        known = inside & torch.isfinite(value)
        smooth = torch.isfinite(score).all(-1)
        self.n_invalid["gradient"] += int((known & ~smooth).sum())
        score = torch.where((known & smooth).unsqueeze(-1), score, 0.0)
        return torch.where(known, value, -math.inf), score

    def raw(self, x: Tensor, scored: bool) -> tuple[Tensor, Tensor]:
        """Return what log_prob and autograd give at ``(n, d)``, NaN where they raise."""
        if self.max_points is None or len(x) <= self.max_points:
            return self._part(x, scored)
        return _joined(self._part(part, scored) for part in self.parts(x))

    def _part(self, x: Tensor, scored: bool) -> tuple[Tensor, Tensor]:
        """Return the same from one call; if it raises, from eighths, down to single points."""
        self.spend(len(x))
        try:
            return self.call(x, scored)
        except (LogProbError, torch.OutOfMemoryError):
            raise
        except FAILURES as error:
            self.last_error = error
            if len(x) == 1:
                self.n_invalid["exception"] += 1
                return torch.full_like(x[:, 0], math.nan), torch.zeros_like(x)
        return _joined(self._part(part, scored) for part in x.tensor_split(min(8, len(x))))

    def call(self, x: Tensor, scored: bool) -> tuple[Tensor, Tensor]:
        """Return log_prob and its gradient as they are, zeros if the gradient is not wanted.

        Raises
        ------
        LogProbError
            If log_prob does not depend on the points by operations that autograd can follow.
        """
        if not scored:
            return self.function(x), x.new_zeros(()).expand_as(x)
        with torch.enable_grad():
            x = x.detach().requires_grad_(True)
            value = self.function(x)
            gradient = None
            if value.requires_grad:
                (gradient,) = torch.autograd.grad(value.sum(), x, allow_unused=True)
        if gradient is None:
            raise LogProbError(_without_gradient(value))
        return value.detach(), gradient

    def _refuse_infinite(self, value: Tensor, x: Tensor) -> None:
        bad = value == math.inf
        if bool(bad.any()):
            point = [round(number, 6) for number in x[bad][0].tolist()]
            raise FloatingPointError(
                f"log_prob is +inf at the point {point} ({int(bad.sum())} of {bad.numel()} points "
                "affected), and no density is infinite on a region: check its sign, and divisions "
                "by zero or overflow near that point"
            )


def _joined(results: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    values, scores = zip(*results, strict=True)
    return torch.cat(values), torch.cat(scores)


def _without_gradient(value: Tensor) -> str:
    if len(value) > 1 and bool((value == value[0]).all()):
        return (
            "log_prob does not depend on its input: it returned the same number for different "
            "points, without a gradient"
        )
    return (
        "log_prob has no gradient: its values depend on the points, but something on the way left "
        "PyTorch's graph, such as .detach(), .item(), .numpy(), torch.tensor(…) or no_grad. Keep "
        "to torch operations, or wrap a function that returns values and gradients in "
        "from_value_and_grad"
    )


def cut_doubt(
    problem: Problem, sample: ImportanceSample, generator: torch.Generator
) -> tuple[Doubt, ...]:
    """Doubt a density that ends, by NaN or exceptions, where there is mass.

    Draws of p are moved by `JITTER` standard deviations. Where a Gaussian is cut off 1, 2 or 3
    standard deviations from its mean, log Z loses 2.4, 1.1 or 0.5 times the share of them that
    falls beyond the cut; twice that share is what is reported.
    """
    if not any(problem.n_invalid[kind] for kind in ("nan", "+inf", "exception")):
        return ()
    before = problem.n_invalid.copy()  # what is asked here is not counted as invalid
    moved = _jittered(sample, generator)
    share = float(problem.is_invalid(moved).double().mean())
    problem.n_invalid = before
    if share < TOUCHING:
        return ()
    damage = -math.log1p(-min(2 * share, 0.99))
    kinds = [f"NaN at {before['nan']} points"] * (before["nan"] > before["exception"])
    kinds += [f"+inf at {before['+inf']} points"] * (before["+inf"] > 0)
    if before["exception"]:
        kinds.append(f"an exception at {before['exception']} ({_words(problem.last_error)})")
    message = (
        f"log_prob had no value ({', '.join(kinds)}), which counts as a density of zero there, and "
        f"{share:.1%} of draws that were moved by half a standard deviation came to such points: "
        f"if the density goes on there, log Z is too small by about {damage:.2f} nats. Name "
        "the bounds of parameters by parameters=, or mend the formula, such as by logarithms"
    )
    return (Doubt("no value", message, damage),)


def _jittered(sample: ImportanceSample, generator: torch.Generator) -> Tensor:
    """Return draws by weight, each moved by `JITTER` standard deviations of all draws."""
    x = sample.particles
    w = sample.log_w.softmax(-1).to(x.dtype)
    index = torch.multinomial(w, JITTERED, replacement=True, generator=generator)
    centred = x - w @ x
    variances, axes = torch.linalg.eigh(centred.mT @ (w.unsqueeze(-1) * centred))
    noise = torch.randn(JITTERED, len(axes), generator=generator, dtype=x.dtype, device=x.device)
    return x[index] + JITTER * noise * variances.clamp(min=0).sqrt() @ axes.mT


def _words(error: Exception | None) -> str:
    """Return the kind of an exception and the first 80 letters of what it says."""
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words[:80]}{'…' if len(words) > 80 else ''}"
