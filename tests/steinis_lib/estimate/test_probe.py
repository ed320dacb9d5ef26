"""Ways to write log_prob wrongly, and what each message says."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Beta, Exponential

from steinis_lib import Gaussian, estimate_log_z, from_value_and_grad
from steinis_lib.estimate import log_z

DATA = torch.linspace(-1, 1, 100)


@pytest.fixture(autouse=True)
def _no_search(monkeypatch):
    """What the tests here expect, happens before the search."""

    def find(*_):
        raise AssertionError("nothing was found wrong")

    monkeypatch.setattr(log_z, "find", find)


def normal(x):
    return -0.5 * x.square().sum(-1)


def write_a_column(x):
    x[:, 0] = x[:, 0].exp()
    return normal(x)


def scale(x):
    x *= 2
    return normal(x)


def overwrite_exp(x):
    y = x.exp()
    y += y.exp().sum(-1, keepdim=True)
    return normal(y)


def minibatch(x):
    return normal(x[:, :1] - DATA[torch.randint(100, (10,))]) + normal(x)


def network(layer=None, dtype=torch.float64):
    body = nn.Sequential(nn.Linear(2, 8), layer or nn.Tanh(), nn.Linear(8, 1)).to(dtype)
    return lambda x: normal(x) + body(x).squeeze(-1).tanh()


def trapped(x):
    return normal(x) + torch.where(x > -1e9, 0.0, (0 * x).sqrt() / (0 * x)).sum(-1)


def with_numpy(x):
    return torch.tensor(-np.square(x.numpy()).sum(-1))


def from_a_table(x):
    if bool((x.abs() > 100).any()):
        raise IndexError("beyond the table")
    return normal(x)


F32, WEIGHT = torch.float32, nn.Parameter(torch.zeros(1))
WRONG = {
    "a last axis": (lambda x: normal(x).unsqueeze(-1), {}, r"\(8, 1\); it has an axis too many"),
    "a sum over all": (lambda x: normal(x).sum(), {}, "sums over points: sum over coordinates"),
    "no sum": (lambda x: -x.square(), {}, r"a number for each coordinate: .* \.sum\(-1\)"),
    "a sum over points": (lambda x: -x.square().sum(0), {}, "sums over points instead of"),
    "too few coordinates": (lambda x: normal(x) - x[:, 2], {}, "IndexError.*d = 2: are dim and"),
    "a matrix of 3": (lambda x: normal(x @ torch.eye(3)), {}, "8x2 and 3x3.*d = 2: are dim and"),
    "a coordinate too many": (lambda x: normal(x[:, :1]), {}, r"not depend on x\[:, 1\].* is dim"),
    "one point": (lambda x: -x @ torch.eye(2) @ x, {}, "one point at a time: pass vectorized=F"),
    "one point's numbers": (lambda x: -(x[0] ** 2) - x[1] ** 2, {}, "pass vectorized=False"),
    "in-place, a column": (write_a_column, {}, r"changes the tensor that it is .*x\.clone\(\)"),
    "in-place, all": (scale, {}, r"changes the tensor that it is given: work on a copy"),
    "in-place, within": (overwrite_exp, {}, r"inplace operation.*; work on a copy"),
    "numpy": (with_numpy, {}, "cannot follow NumPy: .* from_value_and_grad"),
    "numpy out": (lambda x: np.zeros(len(x)), {}, "got a ndarray: .* from_value_and_grad"),
    "a list": (lambda x: list(normal(x)), {}, "for 8 points, got a list: write it with torch"),
    "nothing": (lambda x: None, {}, "got a NoneType"),
    "float32 weights": (
        network(dtype=F32),
        {},
        r"points are torch.float64, as q0 is, .* model.to\(torch.float64\).* or pass a q0",
    ),
    "float64 weights": (
        network(),
        {"q0": Gaussian.isotropic(torch.zeros(2, dtype=F32))},
        r"points are torch.float32, as q0 is, .* model.to\(torch.float32\).* or pass a q0",
    ),
    "float32 inside": (lambda x: normal(x.float()), {}, "float32 numbers for torch.float64 po"),
    "support": (lambda x: Beta(2.0, 2.0).log_prob(x + 9).sum(-1), {}, "name the bounds of param"),
    "dropout": (network(nn.Dropout(0.5)), {}, "called again at the same points.*model.eval()"),
    "minibatches": (minibatch, {}, "depend on chance.*use all data instead of minibatches"),
    "noise": (lambda x: normal(x) + torch.randn(len(x)), {}, "draw no random numbers"),
    "batch normalisation": (network(nn.BatchNorm1d(8)), {}, "fails for some of them alone.*Expec"),
    "a mean over points": (lambda x: normal(x - x.mean(0)), {}, "depends on the other points"),
    "a maximum": (lambda x: normal(x) - normal(x).max(), {}, "of each point alone.* no mean, max"),
    "place in the call": (lambda x: normal(x) + torch.arange(len(x)), {}, "the other points"),
    "a fixed number": (lambda x: normal(x).reshape(8), {}, "must take any number of points"),
    "integers": (lambda x: normal(x).round().long(), {}, "returned torch.int64 numbers, expected"),
    "constant": (lambda x: torch.zeros(len(x)), {}, "does not depend on its input"),
    "detached": (lambda x: normal(x).detach(), {}, r"has no gradient: .* such as \.detach\(\)"),
    "weights only": (lambda x: WEIGHT.expand(len(x)), {}, "does not depend on its input"),
    "too many arguments": (lambda x, y: normal(x), {}, "TypeError: .*missing 1 required"),
    "one point, an axis": (lambda x: -x[:1], {"vectorized": False}, r"got a tensor \(1,\): end "),
    "one point, a float": (lambda x: -float(x @ x), {"vectorized": False}, "use torch operations"),
    "many points": (lambda x: -x.sum(1), {"vectorized": False}, r"gets one point, \(d,\), where"),
    "a name": (lambda p: -p["c"], {"parameters": {"a": "real", "b": "real"}}, "of each of a, b"),
    "a sum of parameters": (
        lambda p: -p["a"].unsqueeze(-1) - p["b"].square(),
        {"parameters": {"a": "real", "b": ("real", 2)}},
        r"for a \(8,\), b \(8, 2\) it returned \(8, 2\); it has a number for each coordinate",
    ),
    "a parameter too many": (
        lambda p: -p["a"].square(),
        {"parameters": {"a": "real", "b": "real"}},
        "does not depend on b, so that its integral is infinite",
    ),
    "no gradient from NumPy": (
        from_value_and_grad(lambda x: -np.square(x).sum(-1)),
        {},
        "must return values and gradients, two arrays; got a ndarray",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_log_prob_is_refused_with_what_to_write_instead(name):
    log_prob, options, message = WRONG[name]
    dim = None if "parameters" in options else 2
    with pytest.raises(ValueError, match=f"(?s){message}"):
        estimate_log_z(log_prob, dim, **options)


SCALES = torch.tensor([1e-3, 1.0])
NO_DENSITY = {
    "energy": (lambda x: -normal(x), "rises without end: in 16 directions.*Check its sign"),
    "exponential energy": (lambda x: x.exp().sum(-1) + x.square().sum(-1), "rises without end"),
    "energy far from q0": (lambda x: -normal(x / SCALES - 500), "pass the log density, -energy"),
    "nan": (lambda x: normal(x) * torch.nan, "NaN at 8 of 8 points that q0 drew"),
    "zero": (lambda x: normal(x) - torch.inf, "-inf at 8 of 8 points .*: move q0"),
    "infinite": (lambda x: normal(x) + torch.inf, r"\+inf at the point \["),
    "gradient": (trapped, "gradient of log_prob is not finite at any of 8 points.* torch.where"),
}


@pytest.mark.parametrize("name", NO_DENSITY)
def test_what_is_no_density_is_refused(name):
    log_prob, message = NO_DENSITY[name]
    with pytest.raises(FloatingPointError, match=f"(?s){message}"):
        estimate_log_z(log_prob, 2)


PROPER = {
    "a normal": normal,
    "far from q0": lambda x: normal(x - 500),
    "narrow": lambda x: normal(1e4 * x),
    "wide": lambda x: normal(1e-4 * x),
    "two modes": lambda x: torch.logaddexp(normal(x - 200), normal(x + 200)),
    "float32 sums": lambda x: normal(x) + 1e7 - 1e7,
    "a box": lambda x: torch.where((x.abs() < 2).all(-1), 0 * x.sum(-1), -torch.inf),
    "half a line": lambda x: Exponential(1.0).log_prob(x).sum(-1),
    "a network": network(),
    "a table": from_a_table,
}


@pytest.mark.parametrize("name", PROPER)
def test_nothing_is_found_wrong_with_a_proper_density(name):
    with pytest.raises(AssertionError, match="nothing was found wrong"):
        estimate_log_z(PROPER[name], 2)


def test_a_density_in_as_many_dimensions_as_points_are_tried_is_no_sum_over_points():
    with pytest.raises(ValueError, match="sums over points instead of over coordinates"):
        estimate_log_z(lambda x: -x.square().sum(0), 8)
