import pytest
import torch

from steinis_lib import (
    RBF,
    Gaussian,
    LogProb,
    SteinIS,
    SteinISState,
    StepSize,
    load_state,
    save_state,
)
from steinis_lib.baselines.annealing import GeometricPath, linear_schedule, sigmoidal_schedule
from steinis_lib.companion.sections.s7_extensions.cheap_score import CheapScore
from steinis_lib.schedules import Tempering


def same(a, b):
    return all(torch.equal(getattr(a, f), getattr(b, f)) for f in a.__dataclass_fields__)


def steinis(target, tempering=None, **settings):
    return SteinIS(target, RBF(multiplier=2.0), StepSize(0.1), score_target=tempering, **settings)


def tempered_score(x, q0, target, beta):
    """∇ log(q_0^(1-β) p̄^β) by differentiating the two densities, at x ``(*batch, n, d)``."""
    x = x.detach().clone().requires_grad_(True)
    log_f = (1 - beta) * q0.log_prob(x) + beta * target.log_prob(x)
    return torch.autograd.grad(log_f.sum(), x)[0]


@pytest.mark.parametrize("per_step", [None, 7])
@pytest.mark.parametrize("schedule", [linear_schedule(4), sigmoidal_schedule(5)])
def test_leaders_take_the_score_of_the_tempered_density(
    skewed, wide, schedule, per_step, generator
):
    sampler = steinis(
        skewed, Tempering(GeometricPath(wide, skewed), schedule), leaders_per_step=per_step
    )
    state = sampler.init(wide, 12, 5, generator, (2,))
    betas = [*schedule[1:].tolist(), 1.0, 1.0]
    for beta in betas:
        before = state
        state, info = sampler.step(before)
        used = info.step_map.leaders
        torch.testing.assert_close(info.step_map.scores, tempered_score(used, wide, skewed, beta))
        if beta < 0.9:  # and not the score of p̄
            assert (info.step_map.scores - skewed.score(used)).norm() > 0.1
        torch.testing.assert_close(state.leaders, info.step_map(before.leaders))
        torch.testing.assert_close(state.followers, info.step_map(before.followers))


def test_kept_scores_stay_those_of_the_density_they_were_taken_from(skewed, wide, generator):
    schedule = linear_schedule(6)
    sampler = steinis(skewed, Tempering(GeometricPath(wide, skewed), schedule), score_every=3)
    state = sampler.init(wide, 12, 5, generator)
    for t in range(8):
        if t % 3 == 0:
            expected = tempered_score(state.leaders, wide, skewed, float(schedule[min(t + 1, 6)]))
        state, info = sampler.step(state)
        torch.testing.assert_close(info.step_map.scores, expected)


@pytest.mark.parametrize("settings", [{}, {"leaders_per_step": 10}, {"score_every": 2}])
def test_z_is_unbiased_whatever_the_temperature(skewed, wide, settings, generator):
    """After the first half of the schedule, and after all of it: within 4 standard errors of Z."""
    sampler = steinis(
        skewed, Tempering(GeometricPath(wide, skewed), linear_schedule(20)), **settings
    )
    state = sampler.init(wide, 30, 40, generator, (600,))
    for _ in range(2):
        state = sampler.run(state, 12)
        ratio = (sampler.importance_sample(state).log_z - skewed.log_z).exp()
        error = ratio.std() / 600**0.5
        assert int(state.n_folds.sum()) == 0
        assert error < 0.015
        assert abs(ratio.mean() - 1) < 4 * error


def test_expectations_are_those_of_the_target_itself(skewed, wide, generator):
    """In the middle of the schedule, where leaders follow another density."""
    sampler = steinis(skewed, Tempering(GeometricPath(wide, skewed), linear_schedule(40)))
    state = sampler.run(sampler.init(wide, 100, 20_000, generator), 20)
    mean, error = sampler.importance_sample(state).expectation(lambda x: x)
    grid = torch.linspace(-8, 8, 801)
    x = torch.cartesian_prod(grid, grid)
    p = (skewed.log_prob(x) - skewed.log_z).exp() * 0.02**2
    assert ((mean - p @ x).abs() < 4 * error).all()
    assert (error < 0.02).all()


@pytest.mark.parametrize("settings", [{}, {"leaders_per_step": 10}, {"score_every": 2}])
def test_at_beta_one_it_is_the_run_without_bit_for_bit(skewed, wide, settings, generator):
    """A schedule of one transition is at β = 1 from the start; an ended one stays there."""
    path = GeometricPath(wide, skewed)
    plain = steinis(skewed, **settings)
    start = plain.init(wide, 12, 5, generator)
    whole = plain.run(start, 6)
    assert same(
        steinis(skewed, Tempering(path, linear_schedule(1)), **settings).run(start, 6), whole
    )
    tempered = steinis(skewed, Tempering(path, linear_schedule(4)), **settings)
    assert not same(tempered.run(start, 6), whole)
    ended = tempered.run(start, 4)
    assert same(tempered.run(ended, 3), plain.run(ended, 3))


@pytest.mark.parametrize("settings", [{}, {"leaders_per_step": 10}, {"score_every": 2}])
@pytest.mark.parametrize("done", [2, 3, 5])
def test_a_tempered_run_resumes_bit_for_bit(skewed, wide, settings, done, generator, tmp_path):
    """From a file, within the schedule and after it; a new sampler goes on at the right β."""

    def make():
        return steinis(
            skewed, Tempering(GeometricPath(wide, skewed), linear_schedule(5)), **settings
        )

    start = make().init(wide, 12, 5, generator, (2,))
    whole = make().run(start, 8)
    save_state(make().run(start, done), tmp_path / "state.safetensors")
    torch.rand(7)
    restored = load_state(SteinISState, tmp_path / "state.safetensors")
    assert same(make().run(restored, 8 - done), whole)


def test_a_schedule_ends_at_the_target_itself(skewed, wide):
    tempering = Tempering(GeometricPath(wide, skewed), linear_schedule(3))
    assert [tempering(t).beta for t in (0, 1)] == pytest.approx([1 / 3, 2 / 3])
    assert all(tempering(t) is skewed for t in (2, 3, 1000))


def test_a_cheap_score_is_tempered_as_well(skewed, wide, generator):
    """The path asks for scores alone, which is all that such a target has."""
    cheap = Gaussian(torch.tensor([0.8, 0.9]), torch.tensor([[1.0, 0.0], [0.4, 0.8]]))
    target = CheapScore(skewed, cheap)
    sampler = steinis(target, Tempering(GeometricPath(wide, target), linear_schedule(4)))
    state = sampler.init(wide, 12, 5, generator)
    _, info = sampler.step(state)
    torch.testing.assert_close(
        info.step_map.scores, tempered_score(state.leaders, wide, cheap, 0.25)
    )


def test_dtype_follows_the_input(skewed, generator):
    q0 = Gaussian.isotropic(torch.zeros(2, dtype=torch.float32))
    sampler = steinis(skewed, Tempering(GeometricPath(q0, skewed), linear_schedule(5)))
    state = sampler.run(sampler.init(q0, 10, 10, generator), 3)
    assert state.log_q.dtype == state.leaders.dtype == torch.float32


def test_a_score_that_is_not_finite_is_refused_with_the_leader(skewed, wide):
    def hole(x):
        return skewed.function(x) * torch.where(x[:, 0] > 2.5, torch.nan, 1.0)

    target = LogProb(hole, 2)
    sampler = steinis(target, Tempering(GeometricPath(wide, target), linear_schedule(4)))
    leaders = torch.zeros(4, 2) + torch.arange(4.0).unsqueeze(-1)
    with pytest.raises(FloatingPointError, match=r"score is .* at particle 3 \(1 of 4"):
        sampler.step(sampler.start(leaders, torch.zeros(2, 2), torch.zeros(2)))


def test_nonsense_is_refused(skewed, wide):
    path = GeometricPath(wide, skewed)
    with pytest.raises(ValueError, match="at least 1 transition, got 0"):
        Tempering(path, linear_schedule(0))
    with pytest.raises(ValueError, match="rises strictly from exactly 0 to exactly 1"):
        Tempering(path, torch.tensor([0.1, 0.5, 1.0]))
    with pytest.raises(ValueError, match="q0 has d=3, but the target has d=2"):
        GeometricPath(Gaussian.isotropic(torch.zeros(3)), skewed)
    three = Gaussian.isotropic(torch.zeros(3))
    with pytest.raises(ValueError, match="score_target has d=3, but the target has d=2"):
        steinis(skewed, Tempering(GeometricPath(three, three), linear_schedule(4)))
