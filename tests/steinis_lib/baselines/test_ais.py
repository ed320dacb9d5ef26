import pytest
import torch
from annealing_checks import chi_squared, holed, moment_deviations, same, z_ratio
from torch import distributions as D

from steinis_lib import Gaussian, LogProb, load_state, save_state
from steinis_lib.baselines.ais import AIS, AISState, log_metropolis_ratio
from steinis_lib.baselines.annealing import linear_schedule, sigmoidal_schedule

UNBIASED = ["metropolis", "kernel-ratio"]
ALL = [*UNBIASED, "unadjusted"]


@pytest.mark.parametrize("langevin", UNBIASED)
@pytest.mark.parametrize("schedule", [linear_schedule(10), sigmoidal_schedule(10)])
def test_z_is_unbiased_on_a_skewed_target(skewed, wide, langevin, schedule, generator):
    sampler = AIS(skewed, wide, schedule, 0.05, langevin)
    mean, error = z_ratio(sampler, skewed, generator)
    assert error < 0.01
    assert abs(mean - 1) < 4 * error


@pytest.mark.parametrize("langevin", UNBIASED)
def test_expectations_are_right_on_a_skewed_target(skewed, wide, langevin, generator):
    sampler = AIS(skewed, wide, linear_schedule(15), 0.05, langevin)
    state = sampler.run(sampler.init(20_000, generator))
    mean, error = sampler.importance_sample(state).expectation(lambda x: x)
    grid = torch.linspace(-8, 8, 801)
    x = torch.cartesian_prod(grid, grid)
    p = (skewed.log_prob(x) - skewed.log_z).exp() * 0.02**2
    assert ((mean - p @ x).abs() < 4 * error).all()
    assert (error < 0.02).all()


def test_the_bias_of_unadjusted_langevin_is_detected_at_a_large_step(skewed, wide, generator):
    """At ε = 0.05, where the other two pass, Ẑ is off by more than 4 standard errors."""
    mean, error = z_ratio(
        AIS(skewed, wide, linear_schedule(10), 0.05, "unadjusted"), skewed, generator
    )
    assert error < 0.01
    assert abs(mean - 1) > 4 * error


def test_annealing_makes_weights_less_variable(skewed, wide, generator):
    def ess(n):
        sampler = AIS(skewed, wide, linear_schedule(n), 0.1)
        return sampler.importance_sample(sampler.run(sampler.init(5000, generator))).ess

    assert ess(40) > 1.5 * ess(1)


@pytest.mark.parametrize("langevin", ALL)
def test_weights_are_the_ratio_of_the_joint_laws_by_brute_force(skewed, wide, langevin, generator):
    """Write down both joint densities of the whole path of a particle, kernel by kernel."""
    sampler = AIS(skewed, wide, sigmoidal_schedule(6), 0.07, langevin)
    states = [sampler.init(50, generator)]
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
    epsilon = torch.tensor(0.3)[..., None, None]
    s = path.at(0.4).score
    y = x + 0.3 * s(x) + 0.6**0.5 * xi
    got = log_metropolis_ratio(path.evaluate(x), path.evaluate(y), 0.4, epsilon, xi)
    forward = D.Normal(x + 0.3 * s(x), 0.6**0.5).log_prob(y).sum(-1)
    backward = D.Normal(y + 0.3 * s(y), 0.6**0.5).log_prob(x).sum(-1)
    log_f = path.at(0.4).log_prob
    torch.testing.assert_close(got, log_f(y) - log_f(x) + backward - forward)


@pytest.mark.parametrize(("langevin", "holds"), [("metropolis", True), ("unadjusted", False)])
def test_only_metropolis_leaves_the_target_invariant(lopsided, langevin, holds, generator):
    """From exact samples, along a path that is the target throughout."""
    sampler = AIS(lopsided, lopsided, linear_schedule(20), 0.4, langevin)
    rates = []
    start = sampler.init(40_000, generator)
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


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_metropolis_enters_no_hole_and_z_is_that_outside(lopsided, value, generator):
    target, log_z = holed(lopsided, value)
    sampler = AIS(target, Gaussian.isotropic(torch.tensor([-0.8]), 0.5), linear_schedule(40), 0.15)
    start = sampler.init(20_000, generator)
    end = sampler.run(start)
    assert (end.particles <= 1.5).all()
    assert end.is_finite().all()
    sample = sampler.importance_sample(end)
    assert sample.log_z_se < 0.01
    assert abs(sample.log_z - log_z) < 4 * sample.log_z_se
    assert abs(sample.log_z) > 8 * sample.log_z_se  # the hole's mass is missing, and seen to be


def test_particles_that_start_where_the_density_is_zero_count_as_zero(lopsided, generator):
    target, log_z = holed(lopsided, -torch.inf)
    sampler = AIS(target, Gaussian.isotropic(torch.tensor([1.0]), 1.5), linear_schedule(10), 0.05)
    sample = sampler.importance_sample(sampler.run(sampler.init(40_000, generator)))
    assert 0.1 < (sample.log_w == -torch.inf).double().mean() < 0.9
    assert sample.log_z_se < 0.01
    assert abs(sample.log_z - log_z) < 4 * sample.log_z_se


@pytest.mark.parametrize("langevin", ["kernel-ratio", "unadjusted"])
def test_what_cannot_reject_stops_at_a_hole_but_not_for_divergence(
    lopsided, skewed, wide, langevin, generator
):
    """Killing at a hole would bias "kernel-ratio": its reverse paths do go through holes."""
    target, _ = holed(lopsided, -torch.inf)
    inside = AIS(
        target, Gaussian.isotropic(torch.tensor([-0.8]), 0.5), linear_schedule(40), 0.15, langevin
    )
    start = inside.init(20_000, generator)
    with pytest.raises(FloatingPointError, match=r"particle \d+ met .* use langevin='metropolis'"):
        inside.run(start)
    around = AIS(
        target, Gaussian.isotropic(torch.tensor([1.0]), 1.5), linear_schedule(10), 0.05, langevin
    )
    with pytest.raises(FloatingPointError, match=r"particle \(0, \d+\) met"):
        around.init(1000, generator, (2,))
    steep = AIS(skewed, wide, linear_schedule(20), 0.2, langevin)  # explodes where x₁⁴ is steep
    log_w = steep.importance_sample(steep.run(steep.init(2000, generator))).log_w
    assert (log_w == -torch.inf).any()
    assert (log_w > -10).double().mean() > 0.5


@pytest.mark.parametrize("langevin", ALL)
def test_continuing_equals_one_long_run_also_from_disk(skewed, wide, langevin, generator, tmp_path):
    sampler = AIS(skewed, wide, linear_schedule(12), 0.1, langevin)
    start = sampler.init(7, generator, (2,))
    middle = sampler.run(start, 5)
    save_state(middle, tmp_path / "run.safetensors")
    whole = sampler.run(start)
    assert same(sampler.run(middle), whole)
    assert same(sampler.run(load_state(AISState, tmp_path / "run.safetensors")), whole)
    assert same(sampler.step(start)[0], sampler.step(start)[0])
    assert not torch.equal(sampler.init(7, generator).rng, sampler.init(7, generator).rng)


def test_batches_are_independent_problems_with_a_step_each(skewed, wide, generator):
    steps = torch.tensor([0.05, 0.1, 0.2])
    sampler = AIS(skewed, wide, linear_schedule(12), steps)
    start = sampler.init(6, generator, (3,))
    end = sampler.run(start)
    moved = start.particles.clone()
    moved[0] += 0.3
    other = AISState(
        **vars(sampler.path.evaluate(moved)),
        log_w=start.log_w,
        transition=start.transition,
        rng=start.rng,
    )
    other = sampler.run(other)
    one = AIS(skewed, wide, linear_schedule(12), 0.1).run(start)
    assert not torch.equal(other.log_w[0], end.log_w[0])
    assert torch.equal(other.log_w[1:], end.log_w[1:])
    torch.testing.assert_close(one.particles[1], end.particles[1])
    assert not torch.equal(one.particles[2], end.particles[2])


def test_one_evaluation_a_transition(skewed, wide, generator):
    class Counting(LogProb):
        calls = 0

        def log_prob_and_score(self, x):
            Counting.calls += 1
            return super().log_prob_and_score(x)

    sampler = AIS(Counting(skewed.function, 2), wide, linear_schedule(9))
    sampler.run(sampler.init(4, generator))
    assert Counting.calls == sampler.gradients == 10


def test_dtype_follows_the_input(skewed, generator):
    sampler = AIS(
        skewed, Gaussian.isotropic(torch.zeros(2, dtype=torch.float32)), linear_schedule(3)
    )
    state = sampler.run(sampler.init(10, generator))
    assert state.log_w.dtype == state.particles.dtype == state.score_p.dtype == torch.float32


def test_nonsense_is_refused(skewed, wide, generator):
    sampler = AIS(skewed, wide, linear_schedule(4))
    state = sampler.run(sampler.init(5, generator), 3)
    with pytest.raises(ValueError, match=r"only at β = 1: the run is at β = 0.75 with 1 "):
        sampler.importance_sample(state)
    with pytest.raises(ValueError, match="2 transitions asked for, but 1 of the schedule's 4"):
        sampler.run(state, 2)
    with pytest.raises(ValueError, match="cannot be extended"):
        sampler.step(sampler.run(state))
    with pytest.raises(ValueError, match="langevin must be one of"):
        AIS(skewed, wide, langevin="mala")
    with pytest.raises(ValueError, match="from exactly 0"):
        AIS(skewed, wide, linear_schedule(4)[1:])
    for step_size in (0.0, -1.0, torch.tensor([0.1, torch.nan]), float("inf")):
        with pytest.raises(ValueError, match="step_size must be positive"):
            AIS(skewed, wide, step_size=step_size)
    with pytest.raises(FloatingPointError, match="log_prob is nan at particle 0"):
        AIS(LogProb(lambda x: x.sum(-1) * torch.nan, 2), wide).init(5, generator)
    kink = LogProb(lambda x: (x - x.detach()).sum(-1).abs().sqrt(), 2)  # value 0, gradient NaN
    with pytest.raises(FloatingPointError, match="score is .*nan.* at particle 0"):
        AIS(kink, wide).init(5, generator)
    batch = AIS(skewed, wide, step_size=torch.tensor([0.1, 0.2]))
    with pytest.raises(ValueError, match=r"\(\*batch,\) = \(3,\), got \(2,\)"):
        batch.run(batch.init(5, generator, (3,)), 1)
