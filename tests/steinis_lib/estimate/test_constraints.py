import math

import pytest
import torch
from torch.distributions import Dirichlet, HalfNormal, LKJCholesky, constraints

from steinis_lib.estimate.constraints import Parameters

KINDS = {
    "real": "real",
    "positive": ("positive", 3),
    "unit interval": "unit interval",
    "matrix": ((-1, 3), (2, 2)),
    "above": (2, math.inf),
    "below": (-math.inf, 2.5),
    "free": (-math.inf, math.inf),
    "simplex": ("simplex", 4),
    "simplices": ("simplex", (2, 3)),
    "ordered": ("ordered", 3),
    "correlation": ("correlation", 3),
    "of torch": constraints.greater_than(1.0),
}


def coordinates(n, d):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def free_numbers(name, value):
    """Return as many numbers of one value as it has degrees of freedom."""
    if name.startswith("simpl"):
        return value[..., :-1].flatten()
    if name == "correlation":
        return value[*torch.tril_indices(3, 3, -1)]
    return value.flatten()


@pytest.mark.parametrize("name", KINDS)
def test_the_log_determinant_is_that_of_the_jacobian(name):
    named = Parameters({name: KINDS[name]})
    u = coordinates(5, named.dim)
    _, log_det = named.constrain(u)
    for i in range(5):
        jacobian = torch.autograd.functional.jacobian(
            lambda v: free_numbers(name, named.constrain(v)[0][name]), u[i]
        )
        torch.testing.assert_close(log_det[i], torch.linalg.slogdet(jacobian)[1])


def test_values_have_their_shapes_and_bounds_and_lead_back_to_the_coordinates():
    named = Parameters(KINDS)
    u = coordinates(7, named.dim)
    values, log_det = named.constrain(u)
    assert log_det.shape == (7,)
    assert {name: tuple(value.shape[1:]) for name, value in values.items()} == {
        "real": (),
        "positive": (3,),
        "unit interval": (),
        "matrix": (2, 2),
        "above": (),
        "below": (),
        "free": (),
        "simplex": (4,),
        "simplices": (2, 3),
        "ordered": (3,),
        "correlation": (3, 3),
        "of torch": (),
    }
    assert (values["positive"] > 0).all()
    assert ((values["matrix"] > -1) & (values["matrix"] < 3)).all()
    assert (values["above"] > 2).all()
    assert (values["below"] < 2.5).all()
    torch.testing.assert_close(values["simplices"].sum(-1), torch.ones(7, 2).double())
    assert (values["ordered"].diff(dim=-1) > 0).all()
    assert (values["of torch"] > 1).all()
    torch.testing.assert_close(named.unconstrain(values), u)


@pytest.mark.parametrize(
    ("spec", "log_p"),
    [
        ("positive", lambda x: HalfNormal(2.0).log_prob(x)),
        (("simplex", 3), lambda x: Dirichlet(torch.tensor([2.0, 3.0, 1.5])).log_prob(x)),
        (("correlation", 2), lambda x: LKJCholesky(2, 1.5, validate_args=False).log_prob(x)),
        (("ordered", 2), lambda x: math.log(2 / (2 * math.pi)) - 0.5 * x.square().sum(-1)),
    ],
)
def test_a_normalised_density_integrates_to_one(spec, log_p):
    """By a grid in the coordinates."""
    named = Parameters({"x": spec})
    grid = torch.linspace(-15, 15, 1201, dtype=torch.float64)
    u = torch.cartesian_prod(*[grid] * named.dim).reshape(-1, named.dim)
    values, log_det = named.constrain(u)
    log_z = (log_p(values["x"]) + log_det).logsumexp(0) + named.dim * math.log(30 / 1200)
    assert abs(log_z) < 1e-3


def test_each_number_has_a_label_and_each_coordinate_a_name():
    named = Parameters({"a": "real", "mix": ("simplex", 3), "corr": ("correlation", 2)})
    assert named.labels() == [
        *("a", "mix[0]", "mix[1]", "mix[2]"),
        *("corr[0,0]", "corr[0,1]", "corr[1,0]", "corr[1,1]"),
    ]
    assert [named.name_at(i) for i in range(named.dim)] == ["a", "mix", "mix", "corr"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "parameters is empty"),
        ({"a": "postive"}, "parameters.'a'. is 'postive': expected one of \"real\", \"positive\""),
        ({"a": 3}, "parameters.'a'. is 3: expected one of"),
        ({"a": "simplex"}, r'needs a size: write \("simplex", 3\)'),
        ({"a": ("correlation", (3,))}, "needs a shape"),
        ({"a": (2, 1)}, "2.0 is not below 1.0"),
        ({"a": ("real", "3")}, "has the shape '3'"),
    ],
)
def test_constraints_that_are_not_known_are_refused(spec, message):
    with pytest.raises(ValueError, match=message):
        Parameters(spec)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"a": torch.ones(4)}, "expected the names a, b, got a"),
        ({"a": torch.ones(4), "b": torch.ones(4)}, r"b must have the shape \(n, 2\), got \(4,\)"),
        ({"a": torch.zeros(4), "b": torch.ones(4, 2)}, "a has values at or beyond the bounds"),
    ],
)
def test_values_that_do_not_fit_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        Parameters({"a": "positive", "b": ("real", 2)}).unconstrain(values)
