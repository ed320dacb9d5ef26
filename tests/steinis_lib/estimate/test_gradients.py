import numpy as np
import pytest
import torch

from steinis_lib import estimate_log_z, from_value_and_grad
from steinis_lib.estimate import log_z


def many(x):
    return -(x**4).sum(1), -4 * x**3


def one(x):
    return -float((x**4).sum()), -4 * x**3


@pytest.mark.parametrize(("function", "vectorized"), [(many, True), (one, False)])
def test_values_and_gradients_are_those_of_the_function(function, vectorized):
    log_prob = from_value_and_grad(function, vectorized=vectorized)
    x = torch.randn(5, 3, requires_grad=True)
    torch.testing.assert_close(log_prob(x), -(x**4).sum(1))
    assert torch.autograd.gradcheck(log_prob, x)
    wrong = from_value_and_grad(lambda x: (many(x)[0], x))
    assert not torch.autograd.gradcheck(wrong, x, raise_exception=False)


def test_the_dtype_is_that_of_the_points():
    log_prob = from_value_and_grad(many)
    x = torch.randn(5, 3, dtype=torch.float32, requires_grad=True)
    (gradient,) = torch.autograd.grad(log_prob(x).sum(), x)
    assert gradient.dtype == log_prob(x).dtype == torch.float32


def test_where_a_function_of_one_point_raises_the_density_is_zero(monkeypatch):
    """As BridgeStan's does: by a RuntimeError."""

    def failing(x):
        if x[0] > 1.5:
            raise RuntimeError("lub: scale is 0")
        return one(x)

    class Seen(Exception):
        pass

    def find(target, *_):
        value, score = target.log_prob_and_score(torch.tensor([[1.0, 0.0], [2.0, 0.0]]))
        assert value.tolist() == [-1.0, -torch.inf]
        assert score.tolist() == [[-4.0, 0.0], [0.0, 0.0]]
        raise Seen

    monkeypatch.setattr(log_z, "find", find)
    with pytest.raises(Seen):
        estimate_log_z(from_value_and_grad(failing, vectorized=False), 2)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: many(x)[0], "must return values and gradients, two arrays; got a ndarray"),
        (lambda x: (many(x)[0], x[0]), r"values \(5,\) and gradients \(5, 3\).*got \(5,\) and \(3"),
        (lambda x: (many(x)[0].sum(), x), "takes one point at a time, pass vectorized=False"),
        (lambda x: tuple(map(np.float32, many(x))), "32-bit numbers.*jax_enable_x64"),
    ],
)
def test_functions_that_return_something_else_are_refused(function, message):
    with pytest.raises(TypeError, match=message):
        from_value_and_grad(function)(torch.zeros(5, 3))
