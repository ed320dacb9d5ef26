"""What AIS and HAIS must both do; their own tests are in `test_ais` and `test_hais`."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from annealing_checks import grid_expectation, holed, same, z_ratio

from steinis_lib import Gaussian, LogProb, StepSize, load_state, save_state
from steinis_lib.baselines import AIS, HAIS, HAISState, linear_schedule, sigmoidal_schedule

UNBIASED = {
    "metropolis": partial(AIS, step_size=0.05),
    "kernel-ratio": partial(AIS, step_size=0.05, langevin="kernel-ratio"),
    "hais": partial(HAIS, step_size=0.35),
    "hais-partial": partial(HAIS, step_size=0.35, refresh=0.2),
    "hais-4l": partial(HAIS, step_size=0.35, n_leapfrog=4),
    "hais-3l-partial": partial(HAIS, step_size=0.35, n_leapfrog=3, refresh=0.4),
}
ALL = UNBIASED | {"unadjusted": partial(AIS, step_size=0.05, langevin="unadjusted")}


@pytest.mark.parametrize("kind", UNBIASED)
@pytest.mark.parametrize("make_schedule", [linear_schedule, sigmoidal_schedule])
def test_z_is_unbiased_on_a_skewed_target(skewed, wide, kind, make_schedule, generator):
    sampler = UNBIASED[kind](skewed, wide, schedule=make_schedule(8 if "hais" in kind else 10))
    mean, error = z_ratio(sampler, skewed, generator)
    assert error < 0.01
    assert abs(mean - 1) < 4 * error


@pytest.mark.parametrize("kind", ["metropolis", "kernel-ratio", "hais-partial", "hais-4l"])
def test_expectations_are_right_on_a_skewed_target(skewed, wide, kind, generator):
    sampler = UNBIASED[kind](skewed, wide, n_particles=20_000, schedule=linear_schedule(15))
    sample = sampler.importance_sample(sampler.run(sampler.init(generator)))
    mean, error = sample.expectation(lambda x: x)
    assert ((mean - grid_expectation(skewed, lambda x: x)).abs() < 4 * error).all()
    assert (error < 0.02).all()


@pytest.mark.parametrize(
    "make",
    [
        partial(AIS, schedule=linear_schedule(40), step_size=0.15),
        partial(HAIS, schedule=linear_schedule(30), step_size=0.5, n_leapfrog=2),
        partial(HAIS, schedule=linear_schedule(30), step_size=0.5, n_leapfrog=2, refresh=0.3),
    ],
    ids=["ais", "hais", "hais-partial"],
)
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_nothing_enters_a_hole_and_z_is_that_outside(lopsided, value, make, generator):
    target, log_z = holed(lopsided, value)
    q0 = Gaussian.isotropic(torch.tensor([-0.8]), 0.5)
    sampler = make(target, q0, n_particles=20_000)
    end = sampler.run(sampler.init(generator))
    assert (end.particles <= 1.5).all()
    assert end.is_finite().all()
    if isinstance(end, HAISState):
        assert torch.isfinite(end.velocities).all()
    sample = sampler.importance_sample(end)
    assert sample.log_z_se < 0.01
    assert abs(sample.log_z - log_z) < 4 * sample.log_z_se
    assert abs(sample.log_z) > 8 * sample.log_z_se  # the hole's mass is missing, and seen to be


@pytest.mark.parametrize("kind", ALL)
def test_continuing_equals_one_long_run_also_from_disk(skewed, wide, kind, generator, tmp_path):
    sampler = ALL[kind](skewed, wide, n_particles=7, schedule=linear_schedule(12))
    start = sampler.init(generator, batch_shape=(2,))
    middle = sampler.run(start, 5)
    save_state(middle, tmp_path / "run.safetensors")
    restored = load_state(type(middle), tmp_path / "run.safetensors")
    whole = sampler.run(start)
    assert same(sampler.run(middle), whole)
    assert same(sampler.run(restored), whole)
    assert same(sampler.step(start)[0], sampler.step(start)[0])
    assert not torch.equal(sampler.init(generator).rng, sampler.init(generator).rng)


@pytest.mark.parametrize(
    "make", [AIS, partial(HAIS, n_leapfrog=2, refresh=0.5)], ids=["ais", "hais"]
)
def test_batches_are_independent_problems_with_a_step_each(skewed, wide, make, generator):
    steps = torch.tensor([0.05, 0.1, 0.2])
    sampler = make(skewed, wide, n_particles=6, schedule=linear_schedule(12), step_size=steps)
    start = sampler.init(generator, batch_shape=(3,))
    end = sampler.run(start)
    moved = start.particles.clone()
    moved[0] += 0.3
    other = sampler.run(replace(start, **vars(sampler.path.evaluate(moved))))
    assert not torch.equal(other.log_w[0], end.log_w[0])
    assert torch.equal(other.log_w[1:], end.log_w[1:])
    assert torch.equal(other.particles[1:], end.particles[1:])
    one = replace(sampler, step_size=0.1).run(start)
    assert torch.equal(one.particles[1], end.particles[1])
    assert not torch.equal(one.particles[2], end.particles[2])


@pytest.mark.parametrize(
    ("make", "calls"), [(AIS, 10), (partial(HAIS, n_leapfrog=3), 28)], ids=["ais", "hais"]
)
def test_one_evaluation_a_move(skewed, wide, make, calls, generator):
    class Counting(LogProb):
        calls = 0

        def log_prob_and_score(self, x):
            Counting.calls += 1
            return super().log_prob_and_score(x)

    sampler = make(Counting(skewed.function, 2), wide, n_particles=4, schedule=linear_schedule(9))
    sampler.run(sampler.init(generator))
    assert Counting.calls == calls
    assert sampler.n_evaluations() == sampler.n_evaluations(9) == 4 * calls
    assert sampler.n_evaluations(0) == 4


@pytest.mark.parametrize("make", [AIS, partial(HAIS, refresh=0.5)], ids=["ais", "hais"])
def test_dtype_follows_the_input(skewed, make, generator):
    q0 = Gaussian.isotropic(torch.zeros(2, dtype=torch.float32))
    sampler = make(skewed, q0, n_particles=10, schedule=linear_schedule(3))
    state = sampler.run(sampler.init(generator))
    whole = {"transition", "rng"}
    assert {v.dtype for name, v in vars(state).items() if name not in whole} == {torch.float32}


@pytest.mark.parametrize("make", [AIS, HAIS])
def test_a_run_ends_where_the_schedule_does(skewed, wide, make, generator):
    sampler = make(skewed, wide, n_particles=5, schedule=linear_schedule(4))
    state = sampler.run(sampler.init(generator), 3)
    with pytest.raises(ValueError, match=r"only at β = 1: the run is at β = 0.75 with 1 "):
        sampler.importance_sample(state)
    with pytest.raises(ValueError, match="2 transitions asked for, but 1 of the schedule's 4"):
        sampler.run(state, 2)
    with pytest.raises(ValueError, match="cannot be extended"):
        sampler.step(sampler.run(state))


@pytest.mark.parametrize("make", [AIS, HAIS])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"schedule": linear_schedule(4)[1:]}, "from exactly 0"),
        ({"n_particles": 1}, "n_particles must be at least 2, got 1"),
        ({"step_size": 0.0}, "step_size must be positive"),
        ({"step_size": -1.0}, "step_size must be positive"),
        ({"step_size": torch.tensor([0.1, torch.nan])}, "step_size must be positive"),
        ({"step_size": float("inf")}, "step_size must be positive"),
        ({"step_size": StepSize(0.1)}, "stay the same throughout a run; got the schedule StepSize"),
        ({"q0": Gaussian.isotropic(torch.zeros(3))}, "q0 has d=3, but the target has d=2"),
        ({"q0": torch.distributions.Normal(0.0, 1.0)}, "log_prob_and_score; Normal has none"),
    ],
)
def test_settings_out_of_range_are_refused(skewed, wide, make, settings, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make(**{"target": skewed, "q0": wide} | settings)


@pytest.mark.parametrize("make", [AIS, HAIS])
def test_bad_numbers_are_refused_with_the_particle(skewed, wide, make, generator):
    with pytest.raises(FloatingPointError, match="log_prob is nan at particle 0"):
        make(LogProb(lambda x: x.sum(-1) * torch.nan, 2), wide).init(generator)
    kink = LogProb(lambda x: (x - x.detach()).sum(-1).abs().sqrt(), 2)  # value 0, gradient NaN
    with pytest.raises(FloatingPointError, match="score is .*nan.* at particle 0"):
        make(kink, wide).init(generator)
    batch = make(skewed, wide, step_size=torch.tensor([0.1, 0.2]))
    with pytest.raises(ValueError, match=r"\(\*batch,\) = \(3,\), got \(2,\)"):
        batch.run(batch.init(generator, batch_shape=(3,)), 1)
