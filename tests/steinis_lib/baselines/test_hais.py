from dataclasses import replace

import pytest
import torch
from annealing_checks import chi_squared, holed, moment_deviations, same, z_ratio

from steinis_lib import Gaussian, GaussianMixture, LogProb, load_state, save_state
from steinis_lib.baselines.ais import AIS
from steinis_lib.baselines.annealing import GeometricPath, linear_schedule, sigmoidal_schedule
from steinis_lib.baselines.hais import HAIS, HAISState, leapfrog

SETTINGS = [(1, 1.0), (1, 0.2), (4, 1.0), (3, 0.4)]


def crossed():
    """A path between a Gaussian and a mixture, both without symmetry and with analytic scores."""
    means = torch.tensor([[1.0, -0.4], [-0.6, 0.9]])
    scales = torch.tensor([[0.7, 1.1], [0.5, 0.8]])
    target = GaussianMixture(torch.tensor([0.3, 0.7]).log(), means, scales)
    return GeometricPath(Gaussian.isotropic(torch.tensor([0.2, 0.1]), 1.3), target)


@pytest.mark.parametrize(("n_leapfrog", "refresh"), SETTINGS)
def test_z_is_unbiased_on_a_skewed_target(skewed, wide, n_leapfrog, refresh, generator):
    for schedule in (linear_schedule(8), sigmoidal_schedule(8)):
        sampler = HAIS(skewed, wide, schedule, 0.35, n_leapfrog, refresh)
        mean, error = z_ratio(sampler, skewed, generator)
        assert error < 0.01
        assert abs(mean - 1) < 4 * error


@pytest.mark.parametrize(("n_leapfrog", "refresh"), [(1, 0.2), (4, 1.0)])
def test_expectations_are_right_on_a_skewed_target(skewed, wide, n_leapfrog, refresh, generator):
    sampler = HAIS(skewed, wide, linear_schedule(15), 0.4, n_leapfrog, refresh)
    state = sampler.run(sampler.init(20_000, generator))
    mean, error = sampler.importance_sample(state).expectation(lambda x: x)
    grid = torch.linspace(-8, 8, 801)
    x = torch.cartesian_prod(grid, grid)
    p = (skewed.log_prob(x) - skewed.log_z).exp() * 0.02**2
    assert ((mean - p @ x).abs() < 4 * error).all()
    assert (error < 0.02).all()


def test_weights_are_neals_whatever_the_velocities(skewed, wide, generator):
    sampler = HAIS(skewed, wide, sigmoidal_schedule(6), 0.5, 2, 0.3)
    states = [sampler.init(50, generator)]
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


def test_leapfrog_runs_back_when_the_velocity_is_negated(generator):
    path, step_size = crossed(), torch.tensor([0.3, 0.1, 0.5])
    x, v = torch.randn(2, 3, 20, 2, generator=generator)
    start = path.evaluate(x)
    there, v_there = leapfrog(path, start, v, 0.6, step_size, 25)
    back, v_back = leapfrog(path, there, -v_there, 0.6, step_size, 25)
    assert (there.particles - x).abs().mean() > 0.3
    torch.testing.assert_close(back.particles, x, atol=1e-10, rtol=0)
    torch.testing.assert_close(-v_back, v, atol=1e-10, rtol=0)


def test_leapfrog_preserves_volume_and_nearly_energy(generator):
    path = crossed()

    def move(z, h, n):
        point, v = leapfrog(path, path.evaluate(z[None, :2]), z[None, 2:], 0.6, torch.tensor(h), n)
        return torch.cat([point.particles[0], v[0]])

    def energy(z):
        return 0.5 * z[2:].square().sum() - path.at(0.6).log_prob(z[None, :2])[0]

    for z in torch.randn(5, 4, generator=generator):
        jacobian = torch.func.jacrev(move)(z, 0.6, 3)
        torch.testing.assert_close(torch.linalg.det(jacobian), torch.tensor(1.0))
        assert (jacobian - torch.eye(4)).abs().max() > 0.5
        coarse, fine = (energy(move(z, h, n)) - energy(z) for h, n in ((0.04, 25), (0.02, 50)))
        torch.testing.assert_close(coarse / fine, torch.tensor(4.0), rtol=0.05, atol=0)


def forgetful(sampler, state):
    """A wrong HAIS: velocities keep their sign on rejection."""
    new, _ = sampler.step(state)
    stayed = (new.particles == state.particles).all(-1, keepdim=True)
    return replace(new, velocities=torch.where(stayed, -new.velocities, new.velocities))


@pytest.mark.parametrize(("n_leapfrog", "refresh"), SETTINGS)
def test_transitions_leave_the_target_invariant(lopsided, n_leapfrog, refresh, generator):
    """From exact samples, along a path that is the target throughout; velocities included."""
    sampler = HAIS(lopsided, lopsided, linear_schedule(25), 1.1, n_leapfrog, refresh)
    rates = []
    start = sampler.init(40_000, generator)
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
    sampler = HAIS(lopsided, lopsided, linear_schedule(25), 1.1, 1, 0.2)
    state = sampler.init(40_000, generator)
    for _ in range(25):
        state = forgetful(sampler, state)
    assert chi_squared(lopsided, state.particles) > 3 * 21


def test_refresh_replaces_the_stated_share_of_the_variance(lopsided, generator):
    """With a tiny step nothing but the refresh changes v: corr(v, v') = √(1 - γ)."""
    for refresh in (0.25, 0.8, 1.0):
        sampler = HAIS(lopsided, lopsided, linear_schedule(2), 1e-6, 1, refresh)
        start = sampler.init(40_000, generator)
        v, w = start.velocities, sampler.step(start)[0].velocities
        assert abs((v * w).mean() - (1 - refresh) ** 0.5) < 4 * 2**0.5 / 200
        assert abs(w.square().mean() - 1) < 4 * 2**0.5 / 200


def test_one_leapfrog_with_full_refresh_is_metropolis_ais(skewed, wide, generator):
    """HAIS at ε and MALA at ε²/2, given the same noise: the same moves, one by one."""
    hais = HAIS(skewed, wide, sigmoidal_schedule(20), 0.6)
    mala = AIS(skewed, wide, sigmoidal_schedule(20), 0.18)
    a = mala.init(500, generator)
    b = HAISState(
        **vars(a),
        velocities=torch.zeros_like(a.particles),
        step_size=torch.tensor(0.6),
        mean_acceptance=torch.tensor(0.65),
    )
    rates = []
    for _ in range(20):
        (a, info_a), (b, info_b) = mala.step(a), hais.step(b)
        assert torch.equal(info_a.acceptance, info_b.acceptance)
        rates.append(info_a.acceptance)
    assert torch.stack(rates).mean() < 0.95
    torch.testing.assert_close(a.particles, b.particles)
    torch.testing.assert_close(a.log_w, b.log_w)


@pytest.mark.parametrize("refresh", [1.0, 0.3])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_nothing_enters_a_hole_and_z_is_that_outside(lopsided, value, refresh, generator):
    target, log_z = holed(lopsided, value)
    q0 = Gaussian.isotropic(torch.tensor([-0.8]), 0.5)
    sampler = HAIS(target, q0, linear_schedule(30), 0.5, 2, refresh)
    end = sampler.run(sampler.init(20_000, generator))
    assert (end.particles <= 1.5).all()
    assert end.is_finite().all()
    assert torch.isfinite(end.velocities).all()
    sample = sampler.importance_sample(end)
    assert sample.log_z_se < 0.01
    assert abs(sample.log_z - log_z) < 4 * sample.log_z_se
    assert abs(sample.log_z) > 8 * sample.log_z_se  # the hole's mass is missing, and seen to be


def test_an_exploding_trajectory_is_rejected(skewed, wide, generator):
    """Far too large a step on a quartic target: overflow to inf and NaN, and nothing moves."""
    sampler = HAIS(skewed, wide, linear_schedule(3), 50.0, 10)
    start = sampler.init(100, generator)
    end = sampler.run(start)
    assert torch.equal(end.particles, start.particles)
    assert torch.isfinite(end.log_w).all()
    torch.testing.assert_close(end.log_w, start.log_p - start.log_q0)  # plain importance sampling


@pytest.mark.parametrize("adapt", [False, True])
def test_continuing_equals_one_long_run_also_from_disk(skewed, wide, adapt, generator, tmp_path):
    sampler = HAIS(skewed, wide, linear_schedule(12), 0.4, 2, 0.3, adapt_biased=adapt)
    start = sampler.init(7, generator, (2,))
    middle = sampler.run(start, 5)
    save_state(middle, tmp_path / "run.safetensors")
    whole = sampler.run(start)
    assert same(sampler.run(middle), whole)
    assert same(sampler.run(load_state(HAISState, tmp_path / "run.safetensors")), whole)
    assert same(sampler.step(start)[0], sampler.step(start)[0])


def test_batches_are_independent_problems_with_a_step_each(skewed, wide, generator):
    sampler = HAIS(skewed, wide, linear_schedule(12), torch.tensor([0.2, 0.4, 0.6]), 2, 0.5)
    start = sampler.init(6, generator, (3,))
    end = sampler.run(start)
    moved = start.particles.clone()
    moved[0] += 0.3
    other = sampler.run(replace(start, **vars(sampler.path.evaluate(moved))))
    one = sampler.run(replace(start, step_size=torch.full((3,), 0.4)))
    assert not torch.equal(other.log_w[0], end.log_w[0])
    assert torch.equal(other.log_w[1:], end.log_w[1:])
    assert torch.equal(other.velocities[1:], end.velocities[1:])
    assert torch.equal(one.particles[1], end.particles[1])
    assert not torch.equal(one.particles[2], end.particles[2])


def test_step_sizes_are_frozen_unless_asked_for_and_adapt_as_wu_et_al(skewed, wide, generator):
    steps = torch.tensor([0.02, 0.49, 1.9e-4])
    frozen, adapting = (
        HAIS(skewed, wide, linear_schedule(150), steps, adapt_biased=adapt)
        for adapt in (False, True)
    )
    start = adapting.init(50, generator, (3,))
    assert torch.equal(frozen.run(start, 20).step_size, steps)
    epsilon, average, low = steps, torch.full((3,), 0.65), []
    state = start
    for _ in range(150):
        state, info = adapting.step(state)
        torch.testing.assert_close(info.step_size, epsilon)
        epsilon = (epsilon * torch.where(average > 0.65, 1.02, 0.98)).clamp(1e-4, 0.5)
        average = 0.9 * average + 0.1 * info.acceptance
        low.append(epsilon[2])
    torch.testing.assert_close(state.step_size, epsilon)
    assert state.step_size[0] > 0.1  # from far too small a step
    assert state.step_size[1] == 0.5  # held at the upper limit
    assert state.step_size[2] < 0.01  # ×1.02 a transition and no faster


def test_one_evaluation_a_leapfrog_step(skewed, wide, generator):
    class Counting(LogProb):
        calls = 0

        def log_prob_and_score(self, x):
            Counting.calls += 1
            return super().log_prob_and_score(x)

    sampler = HAIS(Counting(skewed.function, 2), wide, linear_schedule(9), n_leapfrog=3)
    sampler.run(sampler.init(4, generator))
    assert Counting.calls == sampler.gradients == 28


def test_dtype_follows_the_input(skewed, generator):
    q0 = Gaussian.isotropic(torch.zeros(2, dtype=torch.float32))
    sampler = HAIS(skewed, q0, linear_schedule(3), refresh=0.5, adapt_biased=True)
    state = sampler.run(sampler.init(10, generator))
    for name in ("log_w", "particles", "velocities", "step_size", "mean_acceptance"):
        assert getattr(state, name).dtype == torch.float32


def test_nonsense_is_refused(skewed, wide, generator):
    sampler = HAIS(skewed, wide, linear_schedule(4))
    state = sampler.run(sampler.init(5, generator), 3)
    with pytest.raises(ValueError, match=r"only at β = 1: the run is at β = 0.75 with 1 "):
        sampler.importance_sample(state)
    with pytest.raises(ValueError, match="cannot be extended"):
        sampler.step(sampler.run(state))
    for refresh in (0.0, 1.5, -0.1):
        with pytest.raises(ValueError, match=r"refresh must be in \(0, 1\]"):
            HAIS(skewed, wide, refresh=refresh)
    with pytest.raises(ValueError, match="n_leapfrog must be at least 1"):
        HAIS(skewed, wide, n_leapfrog=0)
    with pytest.raises(ValueError, match="step_size must be positive"):
        HAIS(skewed, wide, step_size=-0.1)
    with pytest.raises(FloatingPointError, match="log_prob is nan at particle 0"):
        HAIS(LogProb(lambda x: x.sum(-1) * torch.nan, 2), wide).init(5, generator)
    batch = HAIS(skewed, wide, step_size=torch.tensor([0.1, 0.2]))
    with pytest.raises(ValueError, match=r"\(\*batch,\) = \(3,\), got \(2,\)"):
        batch.run(batch.init(5, generator, (3,)), 1)
