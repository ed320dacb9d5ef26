import math
from dataclasses import dataclass, field

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
from steinis_lib.baselines.hais import HAIS
from steinis_lib.companion.sections.s7_extensions.cheap_score import CheapScore


def same(a, b):
    return all(torch.equal(getattr(a, f), getattr(b, f)) for f in a.__dataclass_fields__)


def steinis(target, **settings):
    return SteinIS(target, RBF(multiplier=2.0), StepSize(0.1), **settings)


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


def check_unbiased(sampler, skewed, wide, generator):
    state = sampler.run(sampler.init(wide, 30, 40, generator, (400,)), 25)
    ratio = (sampler.importance_sample(state).log_z - skewed.log_z).exp()
    error = ratio.std() / 20
    assert int(state.n_folds.sum()) == 0
    assert error < 0.02
    assert abs(ratio.mean() - 1) < 4 * error


@pytest.mark.parametrize("score_every", [1, 2, 3])
@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_z_is_unbiased_with_cheap_scores(skewed, wide, score_every, dtype, generator):
    target = CheapScore(skewed, skewed, dtype)
    check_unbiased(steinis(target, score_every=score_every), skewed, wide, generator)


def test_z_is_unbiased_with_the_score_of_another_density(skewed, wide, generator):
    cheap = Gaussian(torch.tensor([0.8, 0.9]), torch.tensor([[1.0, 0.0], [0.4, 0.8]]))
    check_unbiased(steinis(CheapScore(skewed, cheap)), skewed, wide, generator)


def test_low_precision_is_that_of_the_score_alone(skewed, wide, generator):
    cheap = Counting(skewed)
    target = CheapScore(skewed, cheap, torch.bfloat16)
    x = wide.sample((2, 50), generator)
    score = target.score(x)
    assert cheap.scores == [((2, 50, 2), torch.bfloat16)]
    assert score.dtype == torch.float64
    assert torch.equal(target.log_prob(x), skewed.log_prob(x))
    error = (score - skewed.score(x)).norm() / skewed.score(x).norm()
    assert 1e-4 < error < 0.05
    assert torch.equal(CheapScore(skewed, skewed).score(x), skewed.score(x))
    assert target.dim == 2


def test_annealing_is_refused_its_pair(skewed, wide, generator):
    sampler = HAIS(CheapScore(skewed, skewed), wide)
    with pytest.raises(TypeError, match="SteinIS alone; .* give annealing the exact target"):
        sampler.init(5, generator)


def test_different_dimensions_are_refused(skewed):
    with pytest.raises(ValueError, match="cheap target has d=3, but the target has d=2"):
        CheapScore(skewed, Gaussian.isotropic(torch.zeros(3)))


@pytest.mark.parametrize(("score_every", "calls"), [(1, 7), (2, 4), (3, 3), (10, 1)])
def test_scores_are_taken_once_in_so_many_transitions(skewed, wide, score_every, calls, generator):
    target = Counting(skewed)
    sampler = steinis(target, score_every=score_every)
    state = sampler.init(wide, 12, 5, generator)
    for t in range(7):
        before = state
        state, info = sampler.step(before)
        taken_at = before.leaders if t % score_every == 0 else taken_at  # noqa: F821
        assert torch.equal(info.step_map.scores, skewed.score(taken_at))
        assert torch.equal(info.step_map.leaders, before.leaders)
        torch.testing.assert_close(state.followers, info.step_map(before.followers))
    assert len(target.scores) == calls == math.ceil(7 / score_every)
    assert state.scores.numel() == (0 if score_every == 1 else 24)


@pytest.mark.parametrize("done", [2, 3])
def test_a_run_with_kept_scores_resumes_bit_for_bit(skewed, wide, done, generator, tmp_path):
    """From a file, in the middle between two scores or just before one."""
    target = Counting(skewed)
    sampler = steinis(target, score_every=2)
    start = sampler.init(wide, 12, 5, generator, (2,))
    whole = sampler.run(start, 7)
    half = sampler.run(start, done)
    save_state(half, tmp_path / "state.safetensors")
    restored = load_state(SteinISState, tmp_path / "state.safetensors")
    assert same(restored, half)
    assert restored.scores.shape == (2, 12, 2)
    target.scores.clear()
    assert same(sampler.run(restored, 7 - done), whole)
    assert len(target.scores) == (3 if done == 2 else 2)


def test_a_state_without_scores_can_be_continued_with_fewer(skewed, wide, generator):
    """At a transition where they would be reused, they are taken, as there are none."""
    state = steinis(skewed).run(steinis(skewed).init(wide, 12, 5, generator), 3)
    assert state.scores.numel() == 0
    _, info = steinis(skewed, score_every=2).step(state)
    assert torch.equal(info.step_map.scores, skewed.score(state.leaders))
    back, _ = steinis(skewed).step(steinis(skewed, score_every=2).step(state)[0])
    assert back.scores.numel() == 0


def test_nonsense_is_refused(skewed):
    with pytest.raises(ValueError, match="score_every must be at least 1, .*got 0"):
        steinis(skewed, score_every=0)
    with pytest.raises(ValueError, match="1 with leaders_per_step .*got 2"):
        steinis(skewed, score_every=2, leaders_per_step=5)
    assert steinis(skewed, leaders_per_step=5).score_every == 1
