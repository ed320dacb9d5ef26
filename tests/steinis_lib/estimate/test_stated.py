import math

import pytest
import torch

from steinis_lib.estimate.constraints import Parameters
from steinis_lib.estimate.stated import LogProbError, Stated, as_function, checked


def points(n=6, d=2):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def one_point(x):
    return -x @ x - x[0] ** 4


def many_points(x):
    return -x.square().sum(-1) - x[:, 0] ** 4


def test_a_function_of_one_point_is_called_once_for_all_through_vmap():
    calls = []

    def one(x):
        calls.append(x.shape)
        return one_point(x)

    x = points()
    function = as_function(Stated(one, vectorized=False), x)
    calls.clear()
    torch.testing.assert_close(function(x), many_points(x))
    assert calls == [(2,)]


def with_branch(x):
    return one_point(x) if x[0] > 0 else -x @ x - x[0] ** 4


def with_item(x):
    return one_point(x) * (2.0 if x[0].item() > 100 else 1.0)


@pytest.mark.parametrize("one", [with_branch, with_item])
def test_where_vmap_cannot_follow_a_loop_does(one):
    x = points().requires_grad_()
    value = as_function(Stated(one, vectorized=False), x)(x)
    torch.testing.assert_close(value, many_points(x))
    (gradient,) = torch.autograd.grad(value.sum(), x)
    expected = -2 * x - torch.stack([4 * x[:, 0] ** 3, torch.zeros(6)], -1)
    torch.testing.assert_close(gradient, expected.detach())


def test_a_loop_takes_over_where_vmap_gives_something_else():
    """The seventh call, which is that of vmap, gives another value than the loop before."""
    calls = []

    def one(x):
        calls.append(x.shape)
        return one_point(x) + (1.0 if len(calls) == 7 else 0.0)

    x = points()
    function = as_function(Stated(one, vectorized=False), x)
    assert len(calls) == 7
    torch.testing.assert_close(function(x), many_points(x))
    assert len(calls) == 7 + len(x)


@pytest.mark.parametrize("vectorized", [True, False])
def test_named_parameters_come_as_a_dict_and_the_jacobian_is_added(vectorized):
    named = Parameters({"s": "positive", "b": ("real", 2)})
    shapes = []

    def log_prob(p):
        shapes.append((p["s"].ndim, p["b"].ndim))
        return -p["s"] - p["b"].square().sum(-1)

    u = points(d=3)
    value = as_function(Stated(log_prob, named, vectorized), u)(u)
    torch.testing.assert_close(value, -u[:, 0].exp() - u[:, 1:].square().sum(-1) + u[:, 0])
    assert set(shapes) == ({(1, 2)} if vectorized else {(0, 1)})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (torch.zeros(6, 1), r"returned \(6, 1\); it has an axis too many: end with .squeeze"),
        (torch.zeros(6, 2), r"a number for each coordinate: sum over coordinates, .sum\(-1\)"),
        (torch.zeros(2), r"sums over points instead of over coordinates: write .sum\(-1\)"),
        (torch.zeros(()), "sums over points: .* one point at a time, pass vectorized=False"),
        (torch.zeros(5), "for .6, 2. it returned .5,.; sum over coordinates, not over points"),
        (torch.zeros(6).float(), "returned torch.float32 numbers for torch.float64 points"),
        (torch.zeros(6, dtype=torch.int64), "returned torch.int64 numbers, expected torch.float64"),
        ([0.0] * 6, r"must return a tensor \(6,\) for 6 points, got a list"),
        (points().numpy(), "got a ndarray: .* from_value_and_grad"),
        (0.0, "got a float"),
    ],
)
def test_what_is_not_a_number_for_each_point_is_refused(value, message):
    with pytest.raises(LogProbError, match=message):
        checked(value, points(), points())


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (torch.zeros(1), r"a tensor of shape \(\), for one point; got a tensor \(1,\): end with"),
        (0.0, "got float: use torch operations"),
    ],
)
def test_a_function_of_one_point_must_return_one_number(value, message):
    x = points()
    with pytest.raises(LogProbError, match=message):
        as_function(Stated(lambda x: value, vectorized=False), x)(x)


def test_more_digits_than_asked_for_are_rounded():
    x = points().float()
    assert checked(torch.full((6,), math.pi, dtype=torch.float64), x, x).dtype == torch.float32


def test_an_error_of_parameters_names_their_shapes():
    named = Parameters({"s": "positive", "b": ("real", 2)})
    u = points(d=3)
    with pytest.raises(LogProbError, match=r"for s \(6,\), b \(6, 2\) it returned \(6, 2\)"):
        as_function(Stated(lambda p: p["b"], named), u)(u)
