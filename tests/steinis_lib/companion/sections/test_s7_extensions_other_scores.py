import math
from dataclasses import dataclass, field, replace

import pytest
import torch

from steinis_lib import RBF, Gaussian, LogProb, SteinIS, SteinISState, load_state, save_state
from steinis_lib.baselines.geometric_path import GeometricPath, linear_schedule, sigmoidal_schedule
from steinis_lib.baselines.hais import HAIS
from steinis_lib.companion.sections.s7_extensions.other_scores import (
    LowPrecision,
    OtherScores,
    Taken,
    Tempered,
    run_annealed,
    run_reusing_scores,
)


def same(a, b):
    return all(torch.equal(getattr(a, f), getattr(b, f)) for f in a.__dataclass_fields__)


def steinis(target, q0, n_leaders=12, n_followers=5, **settings):
    return SteinIS(
        target, q0, n_leaders=n_leaders, n_followers=n_followers, kernel=RBF(multiplier=2.0),
        step_size=0.1, **settings,
    )  # fmt: skip


def steps_of(run, sampler, start, *arguments, **settings):
    """Run, and return what happened in each transition: the state before, info, state after."""
    seen = []
    run(
        sampler, start, *arguments, on_step=lambda state, info: seen.append((state, info)),
        **settings,
    )  # fmt: skip
    befores = [start, *(state for state, _ in seen)]
    return [(before, info, after) for before, (after, info) in zip(befores, seen, strict=False)]


@dataclass(frozen=True)
class Counting:
    """`skewed` with its calls on record: the shapes and dtypes of particles."""

    target: LogProb
    scores: list = field(default_factory=list)
    dim: int = 2

    def log_prob(self, x):
        return self.target.log_prob(x)

    def score(self, x):
        self.scores.append((tuple(x.shape), x.dtype))
        return self.target.score(x)

    def log_prob_and_score(self, x):
        return self.log_prob(x), self.score(x)


def run_plainly(sampler, state, n_transitions):
    return sampler.run(state, n_transitions)


def run_halfway(sampler, state, n_transitions):
    return run_annealed(sampler, state, n_transitions, linear_schedule(20))


def check_unbiased(target, skewed, wide, generator, run=run_plainly, trials=400, **settings):
    sampler = steinis(target, wide, 30, 40, **settings)
    state = run(sampler, sampler.init(generator, batch_shape=(trials,)), 25)
    ratio = (sampler.importance_sample(state).log_z - skewed.log_z).exp()
    error = ratio.std() / trials**0.5
    assert int(state.n_folds.sum()) == 0
    assert error < 0.02
    assert abs(ratio.mean() - 1) < 4 * error


# ------------------------------------------------------------------- scores in low precision


def low_precision(skewed):
    return OtherScores(skewed, LowPrecision(skewed, torch.bfloat16))


@pytest.mark.slow
def test_z_is_unbiased_with_scores_in_low_precision(skewed, wide, generator):
    check_unbiased(low_precision(skewed), skewed, wide, generator)


@pytest.mark.slow
def test_z_is_unbiased_with_the_score_of_another_density(skewed, wide, generator):
    other = Gaussian(torch.tensor([0.8, 0.9]), torch.tensor([[1.0, 0.0], [0.4, 0.8]]))
    check_unbiased(OtherScores(skewed, other), skewed, wide, generator)


def test_low_precision_is_that_of_the_score_alone(skewed, wide, generator):
    rounded = Counting(skewed)
    target = OtherScores(skewed, LowPrecision(rounded, torch.bfloat16))
    x = wide.sample((2, 50), generator)
    score = target.score(x)
    assert rounded.scores == [((2, 50, 2), torch.bfloat16)]
    assert score.dtype == torch.float64
    assert torch.equal(target.log_prob(x), skewed.log_prob(x))
    error = (score - skewed.score(x)).norm() / skewed.score(x).norm()
    assert 1e-4 < error < 0.05
    assert torch.equal(OtherScores(skewed, skewed).score(x), skewed.score(x))
    assert target.dim == 2


def test_annealing_is_refused_its_pair(skewed, wide, generator):
    sampler = HAIS(low_precision(skewed), wide, n_particles=5)
    with pytest.raises(TypeError, match="building maps alone; .* give annealing the exact target"):
        sampler.init(generator)


@pytest.mark.parametrize("kind", [lambda x: x, lambda x: Tempered(GeometricPath(x, x), 0.5)])
def test_different_dimensions_are_refused(skewed, kind):
    three = Gaussian.isotropic(torch.zeros(3))
    with pytest.raises(ValueError, match="other scores have d=3, but the target has d=2"):
        OtherScores(skewed, kind(three))


# ----------------------------------------------------------------------- scores used again


@pytest.mark.slow
@pytest.mark.parametrize("every", [1, 2, 3])
@pytest.mark.parametrize("target_of", [lambda skewed: skewed, low_precision])
def test_z_is_unbiased_with_scores_used_again(skewed, wide, every, target_of, generator):
    def run(sampler, state, n_transitions):
        return run_reusing_scores(sampler, state, n_transitions, every=every)

    check_unbiased(target_of(skewed), skewed, wide, generator, run)


@pytest.mark.parametrize(("every", "calls"), [(1, 7), (2, 4), (3, 3), (10, 1)])
def test_scores_are_taken_once_in_so_many_transitions(skewed, wide, every, calls, generator):
    target = Counting(skewed)
    sampler = steinis(target, wide)
    steps = steps_of(run_reusing_scores, sampler, sampler.init(generator), 7, every=every)
    assert len(steps) == 7 and len(target.scores) == calls == math.ceil(7 / every)
    for t, (before, info, after) in enumerate(steps):
        taken_at = before.leaders if t % every == 0 else taken_at  # noqa: F821
        assert torch.equal(info.step_map.scores, skewed.score(taken_at))
        assert torch.equal(info.step_map.leaders, before.leaders)
        torch.testing.assert_close(after.followers, info.step_map(before.followers))
        torch.testing.assert_close(after.leaders, info.step_map(before.leaders))


def test_with_a_score_at_every_transition_it_is_the_plain_run_bit_for_bit(skewed, wide, generator):
    sampler = steinis(skewed, wide)
    start = sampler.init(generator, batch_shape=(2,))
    plain = sampler.run(start, 6)
    assert same(run_reusing_scores(sampler, start, 6, every=1), plain)
    assert not same(run_reusing_scores(sampler, start, 6), plain)


def test_a_run_that_goes_on_takes_scores_first(skewed, wide, generator):
    """At a transition where they would be reused, they are taken, as there are none."""
    sampler = steinis(skewed, wide)
    state = sampler.run(sampler.init(generator), 3)
    ((before, info, _),) = steps_of(run_reusing_scores, sampler, state, 1)
    assert torch.equal(info.step_map.scores, skewed.score(before.leaders))


def test_a_run_between_two_scores_resumes_bit_for_bit(skewed, wide, generator, tmp_path):
    """From a file, just before a score is taken: nothing else is kept between transitions."""
    sampler = steinis(skewed, wide)
    start = sampler.init(generator, batch_shape=(2,))
    whole = run_reusing_scores(sampler, start, 7)
    save_state(run_reusing_scores(sampler, start, 4), tmp_path / "state.safetensors")
    restored = load_state(SteinISState, tmp_path / "state.safetensors")
    assert same(run_reusing_scores(sampler, restored, 3), whole)


def test_taken_scores_do_not_look_at_particles():
    scores = torch.randn(2, 3, 4)
    taken = Taken(scores)
    assert taken.dim == 4 and taken.score(torch.zeros(2, 3, 4)) is scores


def test_scores_of_other_leaders_are_refused(skewed, wide, generator):
    sampler = steinis(skewed, wide)
    start = sampler.init(generator)
    with pytest.raises(ValueError, match="every must be at least 1, got 0"):
        run_reusing_scores(sampler, start, 3, every=0)
    with pytest.raises(ValueError, match="leaders_per_step=None, got 5"):
        run_reusing_scores(replace(sampler, leaders_per_step=5), start, 3)


# ------------------------------------------------------------------------- annealed leaders


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
    sampler = steinis(skewed, wide, leaders_per_step=per_step)
    betas = [*schedule[1:].tolist(), 1.0, 1.0]
    start = sampler.init(generator, batch_shape=(2,))
    steps = steps_of(run_annealed, sampler, start, len(betas), schedule)
    for beta, (before, info, after) in zip(betas, steps, strict=True):
        used = info.step_map.leaders
        torch.testing.assert_close(info.step_map.scores, tempered_score(used, wide, skewed, beta))
        if beta < 0.9:  # and not the score of p̄
            assert (info.step_map.scores - skewed.score(used)).norm() > 0.1
        torch.testing.assert_close(after.leaders, info.step_map(before.leaders))
        torch.testing.assert_close(after.followers, info.step_map(before.followers))


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"leaders_per_step": 10}])
def test_z_is_unbiased_whatever_the_temperature(skewed, wide, settings, generator):
    """After the first half of the schedule, and after all of it: within 4 standard errors of Z."""
    sampler = steinis(skewed, wide, 30, 40, **settings)
    state = sampler.init(generator, batch_shape=(600,))
    for _ in range(2):
        state = run_halfway(sampler, state, 12)
        ratio = (sampler.importance_sample(state).log_z - skewed.log_z).exp()
        error = ratio.std() / 600**0.5
        assert int(state.n_folds.sum()) == 0
        assert error < 0.015
        assert abs(ratio.mean() - 1) < 4 * error


@pytest.mark.slow
def test_expectations_are_those_of_the_target_itself(skewed, wide, generator):
    """In the middle of the schedule, where leaders follow another density."""
    sampler = steinis(skewed, wide, 100, 20_000)
    state = run_annealed(sampler, sampler.init(generator), 20, linear_schedule(40))
    mean, error = sampler.importance_sample(state).expectation(lambda x: x)
    grid = torch.linspace(-8, 8, 801)
    x = torch.cartesian_prod(grid, grid)
    p = (skewed.log_prob(x) - skewed.log_z).exp() * 0.02**2
    assert ((mean - p @ x).abs() < 4 * error).all()
    assert (error < 0.02).all()


@pytest.mark.parametrize("settings", [{}, {"leaders_per_step": 10}])
def test_at_beta_one_it_is_the_plain_run_bit_for_bit(skewed, wide, settings, generator):
    """A schedule of one transition is at β = 1 from the start; an ended one stays there."""
    sampler = steinis(skewed, wide, **settings)
    start = sampler.init(generator)
    plain = sampler.run(start, 6)
    assert same(run_annealed(sampler, start, 6, linear_schedule(1)), plain)
    schedule = linear_schedule(4)
    assert not same(run_annealed(sampler, start, 6, schedule), plain)
    ended = run_annealed(sampler, start, 4, schedule)
    assert same(run_annealed(sampler, ended, 3, schedule), sampler.run(ended, 3))


@pytest.mark.parametrize("settings", [{}, {"leaders_per_step": 10}])
@pytest.mark.parametrize("done", [2, 3, 5])
def test_an_annealed_run_resumes_bit_for_bit(skewed, wide, settings, done, generator, tmp_path):
    """From a file, within the schedule and after it; a new sampler goes on at the right β."""

    def run(state, n_transitions):
        return run_annealed(
            steinis(skewed, wide, **settings), state, n_transitions, linear_schedule(5)
        )

    start = steinis(skewed, wide, **settings).init(generator, batch_shape=(2,))
    whole = run(start, 8)
    save_state(run(start, done), tmp_path / "state.safetensors")
    torch.rand(7)
    restored = load_state(SteinISState, tmp_path / "state.safetensors")
    assert same(run(restored, 8 - done), whole)


def test_other_scores_are_tempered_as_well(skewed, wide, generator):
    """The path asks for scores alone, which is all that such a target has."""
    other = Gaussian(torch.tensor([0.8, 0.9]), torch.tensor([[1.0, 0.0], [0.4, 0.8]]))
    sampler = steinis(OtherScores(skewed, other), wide)
    start = sampler.init(generator)
    ((before, info, _),) = steps_of(run_annealed, sampler, start, 1, linear_schedule(4))
    torch.testing.assert_close(
        info.step_map.scores, tempered_score(before.leaders, wide, other, 0.25)
    )


def test_dtype_follows_the_input(skewed, generator):
    q0 = Gaussian.isotropic(torch.zeros(2, dtype=torch.float32))
    sampler = steinis(skewed, q0, 10, 10)
    state = run_annealed(sampler, sampler.init(generator), 3, linear_schedule(5))
    assert state.log_q.dtype == state.leaders.dtype == torch.float32


def test_a_score_that_is_not_finite_is_refused_with_the_leader(skewed, wide):
    def hole(x):
        return skewed.function(x) * torch.where(x[:, 0] > 2.5, torch.nan, 1.0)

    sampler = steinis(LogProb(hole, 2), wide)
    leaders = torch.zeros(4, 2) + torch.arange(4.0).unsqueeze(-1)
    start = sampler.start(leaders, torch.zeros(2, 2), torch.zeros(2))
    with pytest.raises(FloatingPointError, match=r"score is .* at particle 3 \(1 of 4"):
        run_annealed(sampler, start, 1, linear_schedule(4))


def test_schedules_and_starts_that_do_not_fit_are_refused(skewed, wide, generator):
    sampler = steinis(skewed, wide)
    start = sampler.init(generator)
    with pytest.raises(ValueError, match="rises strictly from exactly 0 to exactly 1"):
        run_annealed(sampler, start, 3, torch.tensor([0.1, 0.5, 1.0]))

    class Scoreless:
        dim = 2
        log_prob, sample = wide.log_prob, wide.sample

    with pytest.raises(TypeError, match="q0 must have a score"):
        run_annealed(replace(sampler, q0=Scoreless()), start, 3, linear_schedule(4))
