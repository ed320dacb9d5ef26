import math

import numpy as np
import pytest
import torch
from torch.distributions import Gamma, HalfNormal, Independent, Laplace, MultivariateNormal, Normal

from steinis_lib import Gaussian
from steinis_lib.estimate.constraints import Parameters
from steinis_lib.estimate.starts import N_PRIOR, as_gaussian

MEAN = torch.tensor([1.0, -2.0])
TRIL = torch.tensor([[2.0, 0.0], [0.5, 0.1]])


def close(q0, mean, tril, **tolerance):
    torch.testing.assert_close(q0.mean, mean, **tolerance)
    torch.testing.assert_close(q0.scale_tril, tril, **tolerance)


def test_without_q0_it_is_standard_normal_in_64_bits():
    q0 = as_gaussian(None, 3, None)
    close(q0, torch.zeros(3, dtype=torch.float64), torch.eye(3, dtype=torch.float64))


def test_a_gaussian_stays_as_it_is():
    q0 = Gaussian(MEAN.float(), TRIL.float())
    assert as_gaussian(q0, None, None) is q0


@pytest.mark.parametrize(
    "q0",
    [
        Normal(MEAN, 0.3),
        Independent(Normal(MEAN, 0.3), 1),
        MultivariateNormal(MEAN, scale_tril=TRIL),
    ],
)
def test_normal_distributions_of_torch_are_taken_exactly(q0):
    tril = TRIL if isinstance(q0, MultivariateNormal) else 0.3 * torch.eye(2)
    close(as_gaussian(q0, 2, None), MEAN, tril)


@pytest.mark.parametrize("form", ["tensor", "numpy", "chains", "float32"])
def test_draws_of_a_former_run_give_their_moments(form, generator):
    x = torch.randn(500, 2, generator=generator)
    x = (x - x.mean(0)) @ torch.linalg.inv(torch.linalg.cholesky(x.mT.cov())).mT  # exact moments
    x = MEAN + x @ TRIL.mT
    given = {"tensor": x, "numpy": x.numpy(), "chains": x.reshape(4, 125, 2), "float32": x.float()}[
        form
    ]
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if form == "float32" else {}
    close(as_gaussian(given, 2, None), MEAN, TRIL, **tolerance)


def test_other_distributions_give_the_moments_of_draws():
    q0 = as_gaussian(Independent(Laplace(MEAN, 1.0), 1), None, None)
    error = math.sqrt(2 / N_PRIOR)
    assert ((q0.mean - MEAN).abs() < 4 * error).all()
    assert (q0.scale_tril.diagonal() / math.sqrt(2) - 1).abs().max() < 0.05


def test_a_prior_by_names_gives_moments_in_the_coordinates():
    """log Gamma(a, 1) has mean digamma(a) and variance trigamma(a)."""
    named = Parameters({"s": "positive", "b": ("real", 2)})
    torch.manual_seed(7)
    prior = {"b": Normal(torch.tensor([3.0, 4.0]), 2.0), "s": Gamma(5.0, 1.0)}
    q0 = as_gaussian(prior, named.dim, named)
    shape = torch.tensor(5.0)
    mean = torch.cat([torch.digamma(shape)[None], torch.tensor([3.0, 4.0])])
    sd = torch.cat([torch.polygamma(1, shape).sqrt()[None], torch.tensor([2.0, 2.0])])
    assert ((q0.mean - mean).abs() < 4 * sd / math.sqrt(N_PRIOR)).all()
    assert (q0.scale_tril.diagonal() / sd - 1).abs().max() < 0.05
    after = torch.rand(1)
    torch.manual_seed(7)
    assert torch.rand(1) == after  # PyTorch's own generator is where it was
    torch.testing.assert_close(as_gaussian(prior, named.dim, named).mean, q0.mean, rtol=0, atol=0)


def test_draws_by_names_go_with_a_prior_of_the_rest():
    named = Parameters({"s": "positive", "b": "real"})
    s = np.exp(np.random.default_rng(0).normal(2.0, 0.1, 1000))
    q0 = as_gaussian({"s": s, "b": HalfNormal(1.0)}, 2, named)
    assert abs(q0.mean[0] - 2) < 0.02
    assert abs(q0.scale_tril[0, 0] - 0.1) < 0.01


@pytest.mark.parametrize(
    ("q0", "kind", "message"),
    [
        (Gaussian.isotropic(torch.zeros(3)), ValueError, r"must have a mean \(2,\)"),
        (Gaussian.isotropic(torch.zeros(4, 2)), ValueError, r"got \(4, 2\)"),
        (Normal(torch.zeros(3), 1.0), ValueError, r"got \(3,\)"),
        (torch.zeros(9, 2), ValueError, "9 draws for q0 have no covariance of full rank in d = 2"),
        (torch.randn(2, 2), ValueError, "2 draws for q0 have no covariance"),
        (torch.zeros(9), ValueError, r"draws for q0 must be \(n, d\), got \(9,\)"),
        (torch.full((9, 2), torch.nan), FloatingPointError, "draws for q0"),
        ("wide", TypeError, "q0 is a str; expected a Gaussian, a Normal or MultivariateNormal"),
        ({"a": Normal(0.0, 1.0)}, TypeError, "a q0 by names needs parameters="),
        (Gaussian(torch.zeros(2).float(), torch.eye(2)), TypeError, "one floating-point dtype"),
    ],
)
def test_what_is_no_start_is_refused(q0, kind, message):
    with pytest.raises(kind, match=message):
        as_gaussian(q0, 2, None)


def test_a_prior_must_have_all_names():
    named = Parameters({"s": "positive", "b": "real"})
    with pytest.raises(ValueError, match="expected the names s, b, got s"):
        as_gaussian({"s": Gamma(1.0, 1.0)}, 2, named)
