from functools import partial

import pytest
import torch
from annealing_checks import chi_squared, holed, moment_deviations, z_ratio
from torch import distributions as D

from steinis_lib import Gaussian
from steinis_lib.baselines import AIS, linear_schedule, sigmoidal_schedule
from steinis_lib.baselines.hamiltonian import leapfrog, log_metropolis_ratio

ALL = ["metropolis", "kernel-ratio", "unadjusted"]


def test_the_bias_of_unadjusted_langevin_is_detected_at_a_large_step(skewed, wide, generator):
    """At ε = 0.05, where the other two pass, Ẑ is off by more than 4 standard errors."""
    sampler = AIS(skewed, wide, schedule=linear_schedule(10), step_size=0.05, langevin="unadjusted")
    mean, error = z_ratio(sampler, skewed, generator)
    assert error < 0.01
    assert abs(mean - 1) > 4 * error


def test_annealing_makes_weights_less_variable(skewed, wide, generator):
    def ess(n):
        sampler = AIS(skewed, wide, n_particles=5000, schedule=linear_schedule(n))
        return sampler.importance_sample(sampler.run(sampler.init(generator))).ess

    assert ess(40) > 1.5 * ess(1)


@pytest.mark.parametrize("langevin", ALL)
def test_weights_are_the_ratio_of_the_joint_laws_by_brute_force(skewed, wide, langevin, generator):
    """Write down both joint densities of the whole path of a particle, kernel by kernel."""
    settings = {"schedule": sigmoidal_schedule(6), "step_size": 0.07, "langevin": langevin}
    sampler = AIS(skewed, wide, n_particles=50, **settings)
    states = [sampler.init(generator)]
    end = sampler.run(states[0], on_step=lambda s, _: states.append(s))
    expected = torch.zeros(50)
    for t in range(6):
        b0, b1 = sampler.schedule[t], sampler.schedule[t + 1]
        x, y = states[t].particles, states[t + 1].particles

        def log_f(x, beta):
            return (1 - beta) * wide.log_prob(x) + beta * skewed.log_prob(x)

        def log_k(x, y, beta=b1):
            drift = (1 - beta) * wide.score(x) + beta * skewed.score(x)
            return D.Normal(x + 0.07 * drift, 0.14**0.5).log_prob(y).sum(-1)

        if langevin == "kernel-ratio":
            expected += log_f(y, b1) - log_f(x, b0) + log_k(y, x) - log_k(x, y)
        else:
            expected += log_f(x, b1) - log_f(x, b0)
    torch.testing.assert_close(end.log_w, expected)


def test_the_metropolis_ratio_is_that_of_normal_densities(skewed, wide, generator):
    path = AIS(skewed, wide).path
    x, xi = torch.randn(2, 9, 2, generator=generator)

    def log_f(x):
        return 0.6 * wide.log_prob(x) + 0.4 * skewed.log_prob(x)

    def drifted(x):
        return x + 0.3 * (0.6 * wide.score(x) + 0.4 * skewed.score(x))

    y = drifted(x) + 0.6**0.5 * xi
    start = path.evaluate(x)
    end, xi_end = leapfrog(path, start, xi, 0.4, 0.6**0.5, 1)
    torch.testing.assert_close(end.particles, y)
    got = log_metropolis_ratio(start, end, xi, xi_end, 0.4)
    forward = D.Normal(drifted(x), 0.6**0.5).log_prob(y).sum(-1)
    backward = D.Normal(drifted(y), 0.6**0.5).log_prob(x).sum(-1)
    torch.testing.assert_close(got, log_f(y) - log_f(x) + backward - forward)


@pytest.mark.parametrize(("langevin", "holds"), [("metropolis", True), ("unadjusted", False)])
def test_only_metropolis_leaves_the_target_invariant(lopsided, langevin, holds, generator):
    """From exact samples, along a path that is the target throughout."""
    settings = {"schedule": linear_schedule(20), "step_size": 0.4, "langevin": langevin}
    sampler = AIS(lopsided, lopsided, n_particles=40_000, **settings)
    rates = []
    start = sampler.init(generator)
    end = sampler.run(start, on_step=lambda _, info: rates.append(info.acceptance))
    assert (end.log_w == 0).all()
    deviations, histogram = (f(lopsided, end.particles) for f in (moment_deviations, chi_squared))
    if holds:
        assert 0.4 < torch.stack(rates).mean() < 0.9  # rejections matter here
        assert (end.particles != start.particles).double().mean() > 0.99
        assert (deviations.abs() < 4).all()
        assert histogram < 21 + 4 * 42**0.5
    else:
        assert (deviations.abs() > 4).any()
        assert histogram > 10 * 21


def test_particles_that_start_where_the_density_is_zero_count_as_zero(lopsided, generator):
    target, log_z = holed(lopsided, -torch.inf)
    q0 = Gaussian.isotropic(torch.tensor([1.0]), 1.5)
    settings = {"schedule": linear_schedule(10), "step_size": 0.05}
    sampler = AIS(target, q0, n_particles=40_000, **settings)
    sample = sampler.importance_sample(sampler.run(sampler.init(generator)))
    assert 0.1 < (sample.log_w == -torch.inf).double().mean() < 0.9
    assert sample.log_z_se < 0.01
    assert abs(sample.log_z - log_z) < 4 * sample.log_z_se


@pytest.mark.parametrize("langevin", ["kernel-ratio", "unadjusted"])
def test_what_cannot_reject_stops_at_a_hole_but_not_for_divergence(
    lopsided, skewed, wide, langevin, generator
):
    """Killing at a hole would bias "kernel-ratio": its reverse paths do go through holes."""
    target, _ = holed(lopsided, -torch.inf)
    make = partial(AIS, langevin=langevin)
    inside = make(
        target,
        Gaussian.isotropic(torch.tensor([-0.8]), 0.5),
        n_particles=20_000,
        schedule=linear_schedule(40),
        step_size=0.15,
    )
    start = inside.init(generator)
    with pytest.raises(FloatingPointError, match=r"particle \d+ met .* use langevin='metropolis'"):
        inside.run(start)
    around = make(target, Gaussian.isotropic(torch.tensor([1.0]), 1.5))
    with pytest.raises(FloatingPointError, match=r"particle \(0, \d+\) met"):
        around.init(generator, batch_shape=(2,))
    # It explodes where x₁⁴ is steep.
    steep = make(skewed, wide, n_particles=2000, schedule=linear_schedule(20), step_size=0.2)
    log_w = steep.importance_sample(steep.run(steep.init(generator))).log_w
    assert (log_w == -torch.inf).any()
    assert (log_w > -10).double().mean() > 0.5


def test_an_unknown_kind_of_move_is_refused(skewed, wide):
    with pytest.raises(ValueError, match="langevin must be one of"):
        AIS(skewed, wide, langevin="mala")
