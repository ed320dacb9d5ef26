import math

import pytest
import torch

from steinis_lib import RBF, SteinIS
from steinis_lib.companion.adagrad import AdaGradSteinIS
from steinis_lib.schedules import StepSize
from steinis_lib.stein.maps import build
from steinis_lib.targets.base import Gaussian


def sampler(target, q0, alpha=0.3, **options):
    sizes = {"n_leaders": 8, "n_followers": 9} | options
    return AdaGradSteinIS(target, q0, kernel=RBF(multiplier=3.0), step_size=alpha, **sizes)


def test_the_step_is_alpha_over_the_root_of_all_squares_so_far(skewed, wide, generator):
    run = sampler(skewed, wide, delta=0.01)
    state = run.init(generator, batch_shape=(4,))
    squares = torch.zeros(4)
    for _ in range(5):
        phi = build(skewed, state.leaders, run.kernel, 1.0)(state.leaders) - state.leaders
        squares = squares + phi.square().flatten(1).mean(-1)
        epsilon = 0.3 / (0.01 + squares).sqrt()
        before, (state, info) = state, run.step(state)
        assert torch.allclose(info.step_map.step_size, epsilon)
        assert info.step_size == pytest.approx(float(epsilon.mean()))
        assert torch.allclose(state.leaders, before.leaders + epsilon[:, None, None] * phi)
        assert torch.allclose(state.squares, squares)
    assert len(set(epsilon.tolist())) == 4  # one for each problem
    assert int(state.transition) == 5


def test_a_transition_is_a_map_whose_jacobian_is_that_of_autograd(skewed, wide, generator):
    run = sampler(skewed, wide)
    before = run.run(run.init(generator), 3)
    after, info = run.step(before)
    assert torch.equal(info.step_map(before.leaders), after.leaders)
    for y, moved, log_det in zip(before.followers, after.followers, info.log_abs_det, strict=True):
        jacobian = torch.autograd.functional.jacobian(lambda one: info.step_map(one[None])[0], y)
        assert torch.allclose(info.step_map(y[None])[0], moved)
        assert float(jacobian.det().abs().log()) == pytest.approx(float(log_det))
    assert torch.equal(after.log_q, before.log_q - info.log_abs_det)


def test_followers_do_not_influence_the_step(skewed, wide, generator):
    run = sampler(skewed, wide)
    state = run.init(generator)
    other = run.start(state.leaders, state.followers + 1.0, state.log_q)
    assert torch.equal(run.run(state, 4).leaders, run.run(other, 4).leaders)


@pytest.mark.slow
def test_z_is_unbiased_on_a_mixture_without_symmetry(lopsided):
    q0 = Gaussian.isotropic(torch.zeros(1), 2.0)
    run = AdaGradSteinIS(
        lopsided, q0, kernel=RBF(multiplier=8.0), step_size=0.1, n_leaders=12, n_followers=10
    )
    state = run.init(torch.Generator().manual_seed(5), batch_shape=(4000,))
    end = run.run(state, 12)
    assert int(end.n_folds.sum()) == 0
    z = run.importance_sample(end).log_z.exp()
    error = float(z.std() / math.sqrt(len(z)))
    assert error < 0.01
    assert abs(float(z.mean()) - 1) < 4 * error
    moved = run.importance_sample(end).log_w.mean()
    assert float(moved) > float(run.importance_sample(state).log_w.mean()) + 0.02


def test_what_does_not_fit_is_refused(skewed, wide, generator):
    with pytest.raises(ValueError, match="makes its own schedule"):
        sampler(skewed, wide, alpha=StepSize(0.1, 0.3))
    with pytest.raises(ValueError, match="delta must be positive, got 0"):
        sampler(skewed, wide, delta=0.0)
    with pytest.raises(ValueError, match="leaders_per_step=None, got 4"):
        sampler(skewed, wide, leaders_per_step=4)
    plain = SteinIS(skewed, wide, n_leaders=8, n_followers=9).init(generator)
    with pytest.raises(TypeError, match="no sum of squares"):
        sampler(skewed, wide).step(plain)
