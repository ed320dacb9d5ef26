"""Bridge sampling against exact draws, its closed forms, quadrature, and plain weighing."""

import math

import numpy as np
import pytest
import torch
from annealing_checks import grid_expectation, same
from scipy.special import logsumexp

from steinis_lib import Gaussian, LogProb, load_state, save_state
from steinis_lib.extensions import BridgeSampling, BridgeSamplingState, bridge_estimate
from steinis_lib.targets.whitened import WhitenedTarget

LOG_Z = 1.7
SETTINGS = {"step_size": 0.5, "n_leapfrog": 2}


def ratios(lopsided, q, n, chains, t, batch, generator):
    """log r at exact draws of q and of p, where Z = exp(LOG_Z)."""

    def log_r(x):
        return lopsided.log_prob(x) + LOG_Z - q.log_prob(x)

    at_p = lopsided.sample((*batch, chains * t), generator)
    return log_r(q.sample((*batch, n), generator)), log_r(at_p).unflatten(-1, (chains, t))


@pytest.fixture
def narrow():
    """Too narrow for `lopsided`, off to a side: E_q[r²] is large."""
    return Gaussian.isotropic(torch.tensor([-0.9]), 0.9)


def test_exact_draws_give_log_z_with_the_error_that_is_said(lopsided, narrow, generator):
    found = bridge_estimate(*ratios(lopsided, narrow, 300, 50, 4, (600,), generator))
    scores = (found.log_z - LOG_Z) / found.log_z_se
    assert abs(float(scores.mean())) < 4 / math.sqrt(600)
    assert abs(float(scores.std()) - 1) < 4 / math.sqrt(1200)


def test_the_variance_is_that_of_meng_and_wong(lopsided, narrow, generator):
    """(1/n_q + 1/n_p)(1/overlap - 1), by quadrature, for independent draws of both."""
    x = torch.linspace(-9, 9, 40001).unsqueeze(-1)
    p, q = lopsided.log_prob(x).exp(), narrow.log_prob(x).exp()
    for n, chains, t in ((300, 50, 4), (100, 200, 3)):
        m = chains * t
        overlap = torch.trapezoid(p * q / ((n * q + m * p) / (n + m)), x.squeeze(-1))
        found = bridge_estimate(*ratios(lopsided, narrow, n, chains, t, (400,), generator))
        error = found.overlap.std() / math.sqrt(400)
        assert abs(float(found.overlap.mean() - overlap)) < 4 * error + 1e-3
        expected = float(((1 / n + 1 / m) * (1 / overlap - 1)).sqrt())
        assert float(found.log_z.std()) == pytest.approx(expected, rel=4 / math.sqrt(800))


def test_it_solves_the_fixed_point_of_meng_and_wong(lopsided, narrow, generator):
    """Their iteration, in NumPy, from another start."""
    draws, chains = ratios(lopsided, narrow, 40, 30, 3, (), generator)
    a, b = draws.numpy(), chains.flatten().numpy()
    log_z, n, m = 20.0, len(a), len(b)
    for _ in range(2000):
        top = logsumexp(a - np.logaddexp(math.log(n) + log_z, math.log(m) + a)) - math.log(n)
        bottom = logsumexp(-np.logaddexp(math.log(n) + log_z, math.log(m) + b)) - math.log(m)
        log_z = top - bottom
    assert float(bridge_estimate(draws, chains).log_z) == pytest.approx(log_z, abs=1e-9)


def test_it_beats_weighing_where_weights_have_a_tail(lopsided, narrow, generator):
    """With as many draws in all: nearer to log Z in more of 500 repeats than a coin would be."""
    found = bridge_estimate(*ratios(lopsided, narrow, 300, 50, 4, (500,), generator)).log_z
    x = narrow.sample((500, 500), generator)
    log_w = lopsided.log_prob(x) + LOG_Z - narrow.log_prob(x)
    plain = log_w.logsumexp(-1) - math.log(500)
    nearer = ((found - LOG_Z).abs() < (plain - LOG_Z).abs()).double()
    assert float(nearer.mean()) > 0.5 + 4 * 0.5 / math.sqrt(500)


def test_equal_densities_are_bridged_exactly(narrow, generator):
    found = bridge_estimate(torch.full((3, 10), LOG_Z), torch.full((3, 4, 5), LOG_Z))
    assert torch.allclose(found.log_z, torch.tensor(LOG_Z), atol=1e-12)
    assert torch.allclose(found.overlap, torch.tensor(1.0))
    assert torch.equal(found.log_z_se, torch.zeros(3))


def test_a_constant_on_log_r_is_a_constant_on_log_z(lopsided, narrow, generator):
    draws, chains = ratios(lopsided, narrow, 40, 30, 3, (2,), generator)
    at, shifted = bridge_estimate(draws, chains), bridge_estimate(draws + 700, chains + 700)
    assert torch.allclose(shifted.log_z, at.log_z + 700, atol=1e-9)
    assert torch.allclose(shifted.log_z_se, at.log_z_se, rtol=1e-9)


def test_each_problem_of_a_batch_is_as_alone(lopsided, narrow, generator):
    draws, chains = ratios(lopsided, narrow, 40, 30, 3, (2, 3), generator)
    found = bridge_estimate(draws, chains)
    for i in np.ndindex(2, 3):
        assert torch.allclose(
            found.log_z[i], bridge_estimate(draws[i], chains[i]).log_z, atol=1e-12
        )


@pytest.mark.parametrize("far", [30.0, -30.0])
def test_ends_that_hardly_meet_are_still_solved(far):
    """Draws that all have log r = far - 5, and chains far + 5: Z is between, at their middle."""
    found = bridge_estimate(torch.full((20,), far - 5), torch.full((4, 5), far + 5))
    assert float(found.log_z) == pytest.approx(far, abs=1e-9)
    assert float(found.overlap) < 0.02


def test_draws_where_p_is_zero_count(generator):
    """p is q cut to a half-line: Z is the mass there, and log r is 0 or -inf."""
    q = Gaussian.isotropic(torch.tensor([0.4]))
    mass = 0.5 * math.erfc(-0.4 / math.sqrt(2))
    x = q.sample((500, 200), generator).squeeze(-1)
    log_r = torch.where(x > 0, 0.0, -torch.inf)
    found = bridge_estimate(log_r, torch.zeros(500, 10, 20))
    scores = (found.log_z - math.log(mass)) / found.log_z_se
    assert abs(float(scores.mean())) < 4 / math.sqrt(500) + 0.1  # and a bias of O(1/n)
    assert abs(float(scores.std()) - 1) < 4 / math.sqrt(1000)


def test_resample_move_and_bridge_find_z_of_a_skewed_target(skewed, generator):
    """And the standard error is that of the whole chain, resampling included."""
    q = Gaussian.isotropic(torch.tensor([0.4, 0.6]), 0.8)
    sampler = BridgeSampling(skewed, q, n_draws=400, **SETTINGS)
    state = sampler.run(sampler.init(generator, batch_shape=(150,)), 12)
    found = sampler.estimate(state)
    errors = found.log_z - skewed.log_z
    assert abs(float(errors.mean())) < 4 * float(errors.std()) / math.sqrt(150)
    assert 0.8 < float((errors / found.log_z_se).std()) < 1.35


def test_chains_have_the_law_of_p(skewed, generator):
    q = Gaussian.isotropic(torch.tensor([0.4, 0.6]), 0.8)
    sampler = BridgeSampling(skewed, q, n_draws=2000, n_chains=400, **SETTINGS)
    x = sampler.run(sampler.init(generator, batch_shape=(40,)), 25).particles
    for power in (1, 2):
        means = x.pow(power).mean(1)
        error = means.std(0) / math.sqrt(40)
        exact = grid_expectation(skewed, lambda x, power=power: x.pow(power))
        assert ((means.mean(0) - exact).abs() < 4 * error).all()


def test_what_is_visited_is_what_is_bridged(skewed, wide, generator):
    sampler = BridgeSampling(skewed, wide, n_draws=50, n_chains=6, **SETTINGS)
    seen = []
    start = sampler.init(generator, batch_shape=(2,))
    state = sampler.run(start, 3, on_step=lambda s, _: seen.append(s))
    assert state.log_r_chains.shape == (2, 6, 3)
    for t, after in enumerate(seen):
        log_r = skewed.log_prob(after.particles) - wide.log_prob(after.particles)
        assert torch.allclose(state.log_r_chains[..., t], log_r, atol=1e-12)
    assert len({float(s.particles.sum()) for s in seen}) == 3


def test_it_makes_the_evaluations_that_it_says(skewed, wide, generator):
    calls = []

    class Counting(LogProb):
        def log_prob_and_score(self, x):
            calls.append(x[..., 0].numel())
            return super().log_prob_and_score(x)

        def score(self, x):
            calls.append(x[..., 0].numel())
            return LogProb.log_prob_and_score(self, x)[1]

    target = Counting(skewed.function, 2)
    sampler = BridgeSampling(target, wide, n_draws=50, n_chains=6, step_size=0.4, n_leapfrog=3)
    sampler.run(sampler.init(generator), 5)
    assert sum(calls) == sampler.n_evaluations(5) == 50 + 6 * 5 * 3


def test_a_run_goes_on_bit_for_bit_from_a_file(skewed, wide, generator, tmp_path):
    sampler = BridgeSampling(skewed, wide, n_draws=50, n_chains=6, **SETTINGS)
    start = sampler.init(generator, batch_shape=(2,))
    save_state(sampler.run(start, 2), tmp_path / "state")
    resumed = sampler.run(load_state(BridgeSamplingState, tmp_path / "state"), 3)
    assert same(resumed, sampler.run(start, 5))


def test_coordinates_leave_z_as_it_is(skewed, generator):
    """In u = L⁻¹(x - m) draws, chains and Ẑ are those of x, with velocities of covariance LLᵀ."""
    q = Gaussian(torch.tensor([0.4, 0.6]), torch.tensor([[0.8, 0.0], [0.3, 0.7]]))
    inside = WhitenedTarget(skewed, q)
    sampler = BridgeSampling(inside, inside.base(), n_draws=400, **SETTINGS)
    state = sampler.run(sampler.init(generator, batch_shape=(100,)), 10)
    errors = sampler.estimate(state).log_z - skewed.log_z
    assert abs(float(errors.mean())) < 4 * float(errors.std()) / 10


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_is_that_of_q(dtype, generator):
    target = LogProb(lambda x: -0.5 * (x**2).sum(-1) - 0.1 * (x**4).sum(-1), 2)
    q = Gaussian.isotropic(torch.zeros(2, dtype=dtype))
    sampler = BridgeSampling(target, q, n_draws=60, n_chains=10, **SETTINGS)
    state = sampler.run(sampler.init(generator), 3)
    found = sampler.estimate(state)
    assert state.particles.dtype == found.log_z.dtype == found.log_z_se.dtype == dtype


@pytest.mark.parametrize(
    ("draws", "chains", "message"),
    [
        (torch.zeros(1), torch.zeros(2, 1), "at least 2 draws"),
        (torch.zeros(4), torch.zeros(1, 5), "at least 2 draws"),
        (torch.zeros(4), torch.zeros(3, 0), "run some transitions first"),
        (torch.zeros(4), torch.zeros(4), "expected draws"),
        (torch.zeros(2, 4), torch.zeros(3, 5, 6), r"got \(2, 4\) and \(3, 5, 6\)"),
        (torch.zeros(4), torch.zeros(2, 5, 6), "expected draws"),
    ],
)
def test_too_little_to_bridge_is_refused(draws, chains, message):
    with pytest.raises(ValueError, match=message):
        bridge_estimate(draws, chains)


@pytest.mark.parametrize(
    ("draws", "chains", "message"),
    [
        (torch.tensor([0.0, torch.nan]), torch.zeros(2, 1), "of the draws is nan"),
        (torch.tensor([0.0, torch.inf]), torch.zeros(2, 1), "of the draws is inf"),
        (torch.zeros(2), torch.tensor([[0.0], [-torch.inf]]), "of a chain is"),
        (torch.full((2,), -torch.inf), torch.zeros(2, 1), "-inf at all draws"),
    ],
)
def test_numbers_that_are_none_are_refused(draws, chains, message):
    with pytest.raises(FloatingPointError, match=message):
        bridge_estimate(draws, chains)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_leapfrog": 0}, "n_leapfrog must be at least 1, got 0"),
        ({"step_size": -1.0}, "step_size must be positive"),
        ({"n_draws": 1}, "n_draws must be at least 2, got 1"),
        ({"n_chains": 1}, "n_chains must be at least 2, got 1"),
        ({"q0": Gaussian.isotropic(torch.zeros(3))}, "q0 has d=3, but the target has d=2"),
    ],
)
def test_settings_out_of_range_are_refused(skewed, wide, settings, message):
    with pytest.raises(ValueError, match=message):
        BridgeSampling(**{"target": skewed, "q0": wide} | settings)


def test_there_is_no_estimate_before_the_first_transition(skewed, wide, generator):
    sampler = BridgeSampling(skewed, wide)
    with pytest.raises(ValueError, match="run some transitions first"):
        sampler.estimate(sampler.init(generator))


def test_a_density_that_is_zero_at_all_draws_is_refused(wide, generator):
    target = LogProb(lambda x: torch.where(x[:, 0] > 1e6, x[:, 0], -torch.inf), 2)
    with pytest.raises(FloatingPointError, match="all weights of a problem are zero"):
        BridgeSampling(target, wide).init(generator)


def test_a_move_to_no_number_is_rejected(wide, generator):
    """p̄ is NaN on half the plane beyond 6: no chain goes there, and none of it is NaN."""
    target = LogProb(lambda x: torch.where(x[:, 0] > 6, torch.nan, -0.5 * (x**2).sum(-1)), 2)
    sampler = BridgeSampling(target, wide, n_draws=200, step_size=3.0, n_leapfrog=4)
    state = sampler.run(sampler.init(generator), 10)
    assert bool(torch.isfinite(state.log_r_chains).all())
