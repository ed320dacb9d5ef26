"""Targets with tails heavier than a Gaussian's."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from evidence.case import Case, LogDensity, Truth, closed, start
from evidence.cube import cauchy
from evidence.densities import LOG_2PI
from evidence.truths import line


def student(df: float) -> LogDensity:
    """A multivariate t with identity scale, without its constant."""
    return lambda x: -0.5 * (df + x.shape[-1]) * (x.square().sum(-1) / df).log1p()


def student_log_z(df: float, d: int) -> float:
    """log Z of `student`."""
    return 0.5 * d * math.log(df * math.pi) + math.lgamma(df / 2) - math.lgamma((df + d) / 2)


def students(df: float) -> LogDensity:
    """Independent t in each coordinate, without its constant."""
    return lambda x: (-0.5 * (df + 1) * (x.square() / df).log1p()).sum(-1)


def laplace(x: Tensor) -> Tensor:
    """Double exponentials, with a kink at the mode."""
    return -(x - 0.5).abs().sum(-1)


def logistic(x: Tensor) -> Tensor:
    """Independent logistic variables."""
    return (logsigmoid(x) + logsigmoid(-x)).sum(-1)


def stretched(x: Tensor) -> Tensor:
    """Tails as exp(-√|x|)."""
    return -(1 + x[:, 0].square()).pow(0.25)


def contaminated(x: Tensor) -> Tensor:
    """.9 N(0, I) + .1 N(0, 10² I): outliers."""
    half, d = 0.5 * x.square().sum(-1), x.shape[-1]
    inner = math.log(0.9) - half
    outer = math.log(0.1) - half / 100 - d * math.log(10)
    return torch.logaddexp(inner, outer) - 0.5 * d * LOG_2PI


def _stretched_truth() -> Truth:
    def in_sinh(t: Tensor) -> Tensor:
        return stretched(t.sinh().unsqueeze(-1)) + t.cosh().log()

    return Truth(line(in_sinh, -18, 18), 1e-9, "quadrature")


_textbook = "textbook density"
_wide = 3.0

CASES = (
    Case(
        "t5-10", "heavy", 10, student(5), closed(student_log_z(5, 10)), _textbook, prior=cauchy(1.0)
    ),
    Case("t3-2", "heavy", 2, student(3), closed(student_log_z(3, 2)), _textbook, prior=cauchy(1.0)),
    Case(
        "t2-5",
        "heavy",
        5,
        student(2),
        closed(student_log_z(2, 5)),
        _textbook,
        start(0.0, _wide, 5),
        cauchy(1.0),
    ),
    Case(
        "t4-independent-20",
        "heavy",
        20,
        students(4),
        closed(20 * student_log_z(4, 1)),
        _textbook,
        prior=cauchy(1.0),
    ),
    Case(
        "cauchy-1",
        "heavy",
        1,
        student(1),
        closed(math.log(math.pi)),
        _textbook,
        prior=cauchy(2.0),
        notes="no mean; the weights of any Gaussian have no variance",
    ),
    Case(
        "cauchy-independent-2",
        "heavy",
        2,
        students(1),
        closed(2 * math.log(math.pi)),
        _textbook,
        start(0.0, _wide, 2),
        cauchy(2.0),
    ),
    Case(
        "laplace-5",
        "heavy",
        5,
        laplace,
        closed(5 * math.log(2)),
        _textbook,
        prior=cauchy(1.0),
        notes="a kink at the mode",
    ),
    Case("logistic-8", "heavy", 8, logistic, closed(0.0), _textbook, start(0.0, 2.0, 8)),
    Case(
        "stretched-1",
        "heavy",
        1,
        stretched,
        _stretched_truth,
        _textbook,
        start(0.0, _wide, 1),
        cauchy(3.0),
    ),
    Case(
        "contaminated-10",
        "heavy",
        10,
        contaminated,
        closed(0.0),
        "Tukey's contaminated normal",
        start(0.0, 10.0, 10),
        notes="one mode at two scales; the wide part holds a tenth",
    ),
)
