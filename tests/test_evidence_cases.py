"""The targets of benchmarks/evidence: what each returns, and its truth by a second route.

Routes share nothing with the truths but the density itself. Where a route draws, its distance from
the truth is taken in standard errors.
"""

import math
from collections import Counter

import drawn_routes
import numpy as np
import pytest
import routes
import torch
from evidence import curved, datasets, regressions
from evidence.case import GROUPS
from evidence.cases import CASES
from evidence.cube import unit_cube
from evidence.truths import on_grid

D = torch.float64


def name(case):
    return case.name


def particles(case, n=6):
    return case.start.sample((n,), torch.Generator().manual_seed(1))


def test_there_are_enough_cases_in_every_class():
    counts = Counter(case.group for case in CASES.values())
    assert set(counts) == set(GROUPS)
    assert sum(counts.values()) >= 60 and min(counts.values()) >= 5
    assert {case.dim for case in CASES.values()} >= {1, 2, 10, 20, 50, 100}
    assert any(case.dtype == torch.float32 for case in CASES.values())


def test_every_case_is_named_once():
    from evidence import cases

    modules = [getattr(cases, key) for key in dir(cases) if hasattr(getattr(cases, key), "CASES")]
    assert sum(len(module.CASES) for module in modules) == len(CASES)


@pytest.mark.parametrize("case", CASES.values(), ids=name)
def test_a_density_is_a_function_of_each_particle_alone(case):
    x = particles(case).requires_grad_(True)
    value = case.log_prob(x)
    assert value.shape == (len(x),) and value.dtype == case.dtype == x.dtype
    assert torch.isfinite(value).all()
    (gradient,) = torch.autograd.grad(value.sum(), x)
    assert gradient.shape == x.shape and torch.isfinite(gradient).all()
    alone = torch.cat([case.log_prob(row[None]) for row in x.detach()])
    close = 1e-12 if case.dtype == D else 1e-5
    assert torch.allclose(alone, value.detach(), rtol=close, atol=close)


@pytest.mark.parametrize("case", CASES.values(), ids=name)
def test_the_unit_cube_integrates_to_the_same(case):
    """The likelihood and the prior of the cube make up the density, at points of the cube."""
    cube = unit_cube(case)
    u = np.random.default_rng(0).uniform(0.02, 0.98, (5, case.dim))
    x = cube.transform(u)
    assert x.shape == u.shape and np.allclose(cube.transform(u[0]), x[0])
    points = torch.as_tensor(x).to(case.dtype)
    both = torch.as_tensor(cube.log_likelihood(x)) + cube.prior.log_prob(points)
    close = 1e-9 if case.dtype == D else 1e-4
    assert torch.allclose(both.double(), case.log_prob(points).double(), rtol=close, atol=close)
    assert cube.n_evaluations == 5
    # The prior's density is that of its transform: by the Jacobian at one point.
    u0 = torch.as_tensor(u[:1]).to(case.dtype)
    transform = cube.prior.transform
    jacobian = torch.autograd.functional.jacobian(lambda v: transform(v[None])[0], u0[0])
    expected = -float(torch.linalg.slogdet(jacobian.double()).logabsdet)
    assert float(cube.prior.log_prob(transform(u0))) == pytest.approx(expected, rel=1e-4, abs=1e-3)


def test_a_likelihood_that_is_not_a_number_is_a_density_of_zero():
    from dataclasses import replace

    case = replace(CASES["gaussian-1"], log_prob=lambda x: x[:, 0].log())
    assert unit_cube(case).log_likelihood(np.array([[-1.0], [1.0]])).tolist()[0] == -1e100


@pytest.mark.slow
@pytest.mark.parametrize("key", routes.EXACT)
def test_a_truth_agrees_with_a_second_integral(key):
    case = CASES[key]
    assert routes.EXACT[key](case) == pytest.approx(case.truth.log_z, abs=2e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")  # vmap's
@pytest.mark.parametrize("key", routes.SLOW)
def test_a_truth_agrees_with_a_second_integral_that_takes_longer(key):
    case = CASES[key]
    assert routes.SLOW[key](case) == pytest.approx(case.truth.log_z, abs=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("key", drawn_routes.DRAWN)
def test_a_truth_agrees_with_weighted_draws(key):
    case = CASES[key]
    log_z, se = drawn_routes.DRAWN[key](case)
    assert se < 0.04
    assert abs(log_z - case.truth.log_z) < 4 * math.hypot(se, case.truth.error)


@pytest.mark.parametrize("key", drawn_routes.NORMALISED)
def test_a_mixture_is_the_density_of_its_components(key):
    case, parts = CASES[key], drawn_routes.NORMALISED[key]
    rng = np.random.default_rng(0)
    x = np.concatenate([part.rvs(4, rng).reshape(4, case.dim) for _, part in parts])
    density = sum(weight * part.pdf(x) for weight, part in parts)
    values = case.log_prob(torch.as_tensor(x)).numpy()
    assert np.allclose(
        values, np.log(density) + case.truth.log_z - drawn_routes.total(parts), atol=1e-9
    )


@pytest.mark.parametrize(
    ("key", "published", "within"),
    [
        ("eggbox-2", 235.856, 0.001),  # Feroz et al. 2009
        ("shells-2", -1.746 + 2 * math.log(12), 0.001),
        ("shells-10", -14.59 + 10 * math.log(12), 0.005),
    ],
)
def test_a_truth_is_the_published_one(key, published, within):
    assert CASES[key].truth.log_z == pytest.approx(published, abs=within)


@pytest.mark.slow
def test_the_published_bayes_factors_are_found():
    def log_z(key):
        return CASES[key].truth.log_z

    radiata = math.exp(log_z("radiata-adjusted-3") - log_z("radiata-density-3"))
    assert radiata == pytest.approx(4862, abs=0.5)  # Green & O'Hagan 1998
    sleep = math.exp(log_z("sleep-t-test-2") - regressions.t_test_null())
    assert sleep == pytest.approx(17.259, abs=0.002)  # Rouder et al. 2009


@pytest.mark.slow
def test_the_chain_of_rosenbrock_is_that_of_its_joint_density():
    truth = on_grid(curved.rosenbrock_chain, [(-1.8, 2.2), (-1.2, 4.2), (-1.5, 14)], [60, 90, 300])
    assert curved.chain_truth(3).log_z == pytest.approx(truth.log_z, abs=2e-4)


@pytest.mark.slow
def test_every_finite_truth_has_a_second_route():
    known = {*routes.EXACT, *routes.SLOW, *drawn_routes.DRAWN, *drawn_routes.NORMALISED}
    published = {"eggbox-2", "shells-2", "shells-10"}
    chains = {"rosenbrock-chain-10", "rosenbrock-chain-20"}
    finite = {case.name for case in CASES.values() if math.isfinite(case.truth.log_z)}
    assert finite == known | published | chains


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=name)
def test_a_truth_says_how_sure_it_is(case):
    if case.truth.how == "closed form":
        assert case.truth.error == 0
    else:
        assert 0 < case.truth.error <= 0.005
    if math.isinf(case.truth.log_z):
        assert case.expected == "flagged"


FOREVER = {
    "constant-1": [1.0],
    "exponential-1": [1.0],
    "ridge-2": [1.0, -1.0],
    "separated-2": [0.0, 1.0],
    "collinear-3": [1.0, 1.0, -1.0],
    "eight-schools-flat-2": [0.0, -1.0],
}
"""Directions in which improper densities never fall, nor near to them."""


@pytest.mark.parametrize("key", FOREVER)
def test_an_improper_density_does_not_fall_in_some_direction(key):
    case, away = CASES[key], torch.tensor([20.0, 100.0, 600.0], dtype=D)[:, None]
    beside = 0.1 * torch.randn(20, 1, case.dim, generator=drawn_routes.generator(), dtype=D)
    x = beside + away * torch.tensor(FOREVER[key], dtype=D)
    value = case.log_prob(x.reshape(-1, case.dim)).reshape(20, 3)
    assert (value.diff(dim=-1) > -1e-6).all() and (value > -200).all()


def test_slow_tails_are_those_of_one_over_x():
    far = torch.tensor([[1e3], [1e6], [-1e9]], dtype=D)
    assert torch.allclose(CASES["slow-tails-1"].log_prob(far), -far[:, 0].abs().log())


@pytest.mark.slow
def test_every_improper_density_is_shown_to_be():
    infinite = {case.name for case in CASES.values() if math.isinf(case.truth.log_z)}
    assert infinite == {*FOREVER, "slow-tails-1"}


def test_data_are_those_of_the_publications():
    assert len(datasets.STRENGTH) == len(datasets.DENSITY) == len(datasets.ADJUSTED) == 42
    means = datasets.DYES.reshape(6, 5).mean(-1).tolist()
    assert means == [1505.0, 1528.0, 1564.0, 1498.0, 1600.0, 1470.0]
    assert float(datasets.column("coal", "disasters")[0].sum()) == 191
    assert len(datasets.column("pima", "diabetes")[0]) == 532
    county = datasets.column("radon", "county")[0]
    assert (len(county), len(county.unique())) == (919, 85)
