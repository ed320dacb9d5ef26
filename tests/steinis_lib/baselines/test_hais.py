from dataclasses import replace

import pytest
import torch
from annealing_checks import chi_squared, moment_deviations

from steinis_lib import GaussianMixture
from steinis_lib.baselines import AIS, HAIS, HAISState, linear_schedule, sigmoidal_schedule


def still(target, n_transitions, step_size, **settings):
    """HAIS from exact draws, along a path that is the target throughout."""
    schedule = linear_schedule(n_transitions)
    settings = {"n_particles": 40_000, "schedule": schedule, "step_size": step_size} | settings
    return HAIS(target, target, **settings)


def test_weights_are_neals_whatever_the_velocities(skewed, wide, generator):
    settings = {"step_size": 0.5, "n_leapfrog": 2, "refresh": 0.3}
    sampler = HAIS(skewed, wide, n_particles=50, schedule=sigmoidal_schedule(6), **settings)
    states = [sampler.init(generator)]
    end = sampler.run(states[0], on_step=lambda s, _: states.append(s))
    assert (states[0].log_w == 0).all()
    expected = torch.zeros(50)
    for t in range(6):
        x = states[t].particles  # weighed before it moves
        rise = sampler.schedule[t + 1] - sampler.schedule[t]
        expected += rise * (skewed.log_prob(x) - wide.log_prob(x))
    torch.testing.assert_close(end.log_w, expected)
    torch.testing.assert_close(end.log_p, skewed.log_prob(end.particles))
    torch.testing.assert_close(end.score_p, skewed.score(end.particles))
    torch.testing.assert_close(end.score_q0, wide.score(end.particles))


def forgetful(sampler, state):
    """A wrong HAIS: velocities keep their sign on rejection."""
    new, _ = sampler.step(state)
    stayed = (new.particles == state.particles).all(-1, keepdim=True)
    return replace(new, velocities=torch.where(stayed, -new.velocities, new.velocities))


@pytest.mark.slow
@pytest.mark.parametrize(("n_leapfrog", "refresh"), [(1, 1.0), (1, 0.2), (4, 1.0), (3, 0.4)])
def test_transitions_leave_the_target_invariant(lopsided, n_leapfrog, refresh, generator):
    """From exact samples; velocities included."""
    sampler = still(lopsided, 25, 1.1, n_leapfrog=n_leapfrog, refresh=refresh)
    rates = []
    start = sampler.init(generator)
    end = sampler.run(start, on_step=lambda _, info: rates.append(info.acceptance))
    assert (end.log_w == 0).all()
    assert 0.4 < torch.stack(rates).mean() < 0.92  # rejections matter here
    assert (end.particles != start.particles).double().mean() > 0.99
    assert (moment_deviations(lopsided, end.particles).abs() < 4).all()
    assert chi_squared(lopsided, end.particles) < 21 + 4 * 42**0.5
    normal = GaussianMixture(torch.zeros(1), torch.zeros(1, 1), torch.ones(1, 1))
    assert (moment_deviations(normal, end.velocities).abs() < 4).all()
    score = lopsided.score(end.particles)
    for product in (end.particles * end.velocities, score * end.velocities):
        assert abs(product.mean()) < 4 * product.std() / 200  # x and v stay independent


def test_partial_refresh_without_the_negation_would_be_wrong(lopsided, generator):
    """The same check fails for a sampler that keeps the sign of v on rejection."""
    sampler = still(lopsided, 25, 1.1, refresh=0.2)
    state = sampler.init(generator)
    for _ in range(25):
        state = forgetful(sampler, state)
    assert chi_squared(lopsided, state.particles) > 3 * 21


def test_refresh_replaces_the_stated_share_of_the_variance(lopsided, generator):
    """With a tiny step nothing but the refresh changes v: corr(v, v') = √(1 - γ)."""
    for refresh in (0.25, 0.8, 1.0):
        sampler = still(lopsided, 2, 1e-6, refresh=refresh)
        start = sampler.init(generator)
        v, w = start.velocities, sampler.step(start)[0].velocities
        assert abs((v * w).mean() - (1 - refresh) ** 0.5) < 4 * 2**0.5 / 200
        assert abs(w.square().mean() - 1) < 4 * 2**0.5 / 200


def test_one_leapfrog_with_full_refresh_is_metropolis_ais(skewed, wide, generator):
    """HAIS at ε and MALA at ε²/2, given the same noise: the same moves, one by one."""
    hais = HAIS(skewed, wide, schedule=sigmoidal_schedule(20), step_size=0.6)
    mala = AIS(skewed, wide, n_particles=500, schedule=sigmoidal_schedule(20), step_size=0.18)
    a = mala.init(generator)
    b = HAISState(**vars(a), velocities=torch.zeros_like(a.particles))
    rates = []
    for _ in range(20):
        (a, info_a), (b, info_b) = mala.step(a), hais.step(b)
        assert torch.equal(info_a.acceptance, info_b.acceptance)
        rates.append(info_a.acceptance)
    assert torch.stack(rates).mean() < 0.95
    torch.testing.assert_close(a.particles, b.particles)
    torch.testing.assert_close(a.log_w, b.log_w)


def test_an_exploding_trajectory_is_rejected(skewed, wide, generator):
    """Far too large a step on a quartic target: overflow to inf and NaN, and nothing moves."""
    settings = {"schedule": linear_schedule(3), "step_size": 50.0, "n_leapfrog": 10}
    sampler = HAIS(skewed, wide, n_particles=100, **settings)
    start = sampler.init(generator)
    end = sampler.run(start)
    assert torch.equal(end.particles, start.particles)
    assert torch.isfinite(end.log_w).all()
    torch.testing.assert_close(end.log_w, start.log_p - start.log_q0)  # plain importance sampling


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"refresh": 0.0}, r"refresh must be in \(0, 1\]"),
        ({"refresh": 1.5}, r"refresh must be in \(0, 1\]"),
        ({"refresh": -0.1}, r"refresh must be in \(0, 1\]"),
        ({"n_leapfrog": 0}, "n_leapfrog must be at least 1, got 0"),
    ],
)
def test_settings_out_of_range_are_refused(skewed, wide, settings, message):
    with pytest.raises(ValueError, match=message):
        HAIS(skewed, wide, **settings)
