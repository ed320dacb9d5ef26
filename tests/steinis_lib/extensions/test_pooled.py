from dataclasses import replace

import pytest
import torch
from annealing_checks import same

from steinis_lib import Gaussian, GaussianMixture, LogProb, PushForward, load_state, save_state
from steinis_lib.extensions import PooledSteinIS, PooledSteinISState
from steinis_lib.extensions.affine_part import affine_part
from steinis_lib.extensions.pooled import STEEPEST


def pooled(target, q0, n_leaders, leaders_per_step, n_followers, **settings):
    sizes = {"n_leaders": n_leaders, "n_followers": n_followers}
    return PooledSteinIS(target, q0, leaders_per_step=leaders_per_step, **sizes, **settings)


def maps_of(sampler, state, n_transitions):
    maps = []
    end = sampler.run(state, n_transitions, on_step=lambda _, info: maps.append(info.step_map))
    return end, tuple(maps)


@pytest.mark.parametrize("affine", [True, False])
def test_the_tracked_density_is_that_of_the_maps(skewed, wide, affine, generator):
    """Against inverse maps, and against autograd through all maps from where followers began."""
    sampler = pooled(skewed, wide, 60, 20, 6, affine=affine)
    start = sampler.init(generator)
    end, maps = maps_of(sampler, start, 8)
    assert (end.followers - start.followers).abs().amax() > 0.3
    q = PushForward(wide, maps)
    torch.testing.assert_close(q.log_prob(end.followers), end.log_q)

    def forward(y):
        for step_map in maps:
            y = step_map(y)
        return y

    for start_at, end_at, log_q in zip(start.followers, end.followers, end.log_q, strict=True):
        jacobian = torch.autograd.functional.jacobian(
            lambda y: forward(y.unsqueeze(0)).squeeze(0), start_at
        )
        torch.testing.assert_close(forward(start_at.unsqueeze(0)).squeeze(0), end_at)
        sign, log_det = torch.linalg.slogdet(jacobian)
        assert sign == 1
        torch.testing.assert_close(wide.log_prob(start_at.unsqueeze(0))[0] - log_det, log_q)


@pytest.mark.slow
def test_z_is_unbiased(skewed, wide, generator):
    sampler = pooled(skewed, wide, 40, 12, 50)
    state = sampler.run(sampler.init(generator, batch_shape=(1500,)), 8)
    ratio = (sampler.importance_sample(state).log_z - skewed.log_z).exp()
    error = ratio.std() / len(ratio) ** 0.5
    assert error < 0.01
    assert abs(ratio.mean() - 1) < 4 * error


@pytest.mark.slow
def test_followers_come_near_the_target(skewed, generator):
    """From an ill-placed q0: the divergence falls, and weights become useful."""
    q0 = Gaussian.isotropic(torch.tensor([-3.0, 4.0]))
    sampler = pooled(skewed, q0, 400, 60, 500)
    start = sampler.init(generator)
    end = sampler.run(start, 120)
    before, after = (sampler.importance_sample(s) for s in (start, end))
    assert before.ess < 50
    assert after.ess > 250
    assert skewed.log_z - after.log_w.mean() < 0.3
    assert abs(after.log_z - skewed.log_z) < 5 * after.log_z_se


def test_no_map_is_steeper_than_the_bound_from_a_nasty_start(generator):
    """Scores are in the thousands at first; nowhere does any map fold, and steps grow later."""
    target = Gaussian(torch.tensor([4.0, -3.0]), torch.tensor([[0.05, 0.0], [0.04, 0.01]]))
    q0 = Gaussian.isotropic(torch.zeros(2))
    sampler = pooled(target, q0, 200, 30, 50)
    state = sampler.init(generator)
    steps = []
    far = 4 * torch.randn(400, 2, generator=generator)
    for _ in range(60):
        state, info = sampler.step(state)
        steps.append(float(info.step_size))
        kernel = info.step_map.kernel
        inner = kernel.kernel
        u, s = kernel.whiten(info.step_map.leaders), kernel.whiten_scores(info.step_map.scores)
        _, jacobian = inner.field(torch.cat([u, far]), u, s, "full")
        _, diagonal = inner.field(torch.cat([u, far]), u, s, "diagonal")
        torch.testing.assert_close(diagonal, jacobian.diagonal(dim1=-2, dim2=-1))
        steepest = torch.linalg.matrix_norm(jacobian, 2).amax()
        assert steepest <= inner.steepness(s) * (1 + 1e-9)
        assert info.step_size * steepest <= STEEPEST * (1 + 1e-9)
    assert steps[0] < 0.01
    assert max(steps) > 10 * steps[0]
    sample = sampler.importance_sample(state)
    assert abs(sample.log_z) < 5 * sample.log_z_se + 0.05


def test_affine_coordinates_do_not_matter(skewed, wide, generator):
    """In x = b + A z the same run gives the same weights and the mapped particles."""
    a, b = torch.tensor([[3.0, -0.5], [0.2, 0.01]]), torch.tensor([5.0, -100.0])

    def there(x):
        return skewed.function(torch.linalg.solve(a, (x - b).mT).mT) - torch.linalg.slogdet(a)[1]

    sampler = pooled(skewed, wide, 50, 20, 7)
    other = replace(sampler, target=LogProb(there, 2))
    start = sampler.init(generator)
    mapped = replace(
        start,
        leaders=start.leaders @ a.mT + b,
        followers=start.followers @ a.mT + b,
        log_q=start.log_q - torch.linalg.slogdet(a)[1],
    )
    end, end_there = sampler.run(start, 6), other.run(mapped, 6)
    torch.testing.assert_close(end.followers @ a.mT + b, end_there.followers, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(
        sampler.importance_sample(end).log_w,
        other.importance_sample(end_there).log_w,
        rtol=1e-6,
        atol=1e-6,
    )


def test_one_problem_of_a_batch_is_as_if_alone(generator):
    """With all leaders in each map, as which leaders are drawn depends on the batch."""
    target = GaussianMixture(
        torch.tensor([[0.3, 0.7], [0.6, 0.4]]).log(),
        torch.tensor([[[-1.0, 0.5], [2.0, 0.0]], [[0.0, 3.0], [1.0, -1.0]]]),
        torch.tensor([[[1.0, 0.5], [0.7, 1.0]], [[0.4, 0.5], [1.0, 1.0]]]),
    )
    sampler = pooled(target, Gaussian.isotropic(torch.zeros(2)), 20, 20, 5)
    start = sampler.init(generator, batch_shape=(2,))
    together = sampler.run(start, 5)
    for i in range(2):
        parts = (target.log_weights[i], target.means[i], target.scales[i])
        alone = replace(sampler, target=GaussianMixture(*parts)).run(
            replace(
                start, leaders=start.leaders[i], followers=start.followers[i], log_q=start.log_q[i]
            ),
            5,
        )
        for name in ("leaders", "followers", "log_q"):
            torch.testing.assert_close(getattr(together, name)[i], getattr(alone, name))


def test_a_saved_run_continues_bit_for_bit(skewed, wide, generator, tmp_path):
    sampler = pooled(skewed, wide, 20, 8, 9)
    start = sampler.init(generator, batch_shape=(2,))
    middle = sampler.run(start, 3)
    save_state(middle, tmp_path / "run.safetensors")
    restored = load_state(PooledSteinISState, tmp_path / "run.safetensors")
    assert same(sampler.run(restored, 4), sampler.run(start, 7))


def test_followers_steer_nothing_and_pieces_of_them_are_the_whole(
    skewed, wide, generator, monkeypatch
):
    sampler = pooled(skewed, wide, 20, 8, 9)
    start = sampler.init(generator)
    few = replace(start, followers=start.followers[:4], log_q=start.log_q[:4])
    end, other = sampler.run(start, 4), sampler.run(few, 4)
    assert torch.equal(end.leaders, other.leaders)
    monkeypatch.setattr("steinis_lib.extensions.pooled.NUMBERS", 2 * 4)
    pieces = sampler.run(start, 4)
    torch.testing.assert_close(pieces.followers, end.followers)
    torch.testing.assert_close(pieces.log_q, end.log_q)


def test_the_affine_part_of_linear_scores_is_exact_and_of_noise_nothing(generator):
    u = torch.randn(4000, 3, generator=generator)
    slope = torch.tensor([[-2.0, 0.3, 0.0], [0.3, -1.0, 0.1], [0.0, 0.1, -0.5]])
    a, g, share = affine_part(u[:20], u[:20] @ slope + torch.tensor([1.0, 0.0, -2.0]))
    torch.testing.assert_close(a, torch.tensor([[1.0, 0.0, -2.0]]))
    torch.testing.assert_close(g, slope + torch.eye(3))
    torch.testing.assert_close(share, torch.tensor(1.0))
    noise = -u + torch.randn(4000, 3, generator=generator)
    batches = u.view(200, 20, 3), noise.view(200, 20, 3)
    _, _, share = affine_part(*batches)
    assert share.mean() < 0.35
    assert (share == 0).double().mean() > 0.25


def test_the_affine_part_has_no_stein_kernel(skewed, wide, generator):
    sampler = pooled(skewed, wide, 20, 8, 3)
    _, info = sampler.step(sampler.init(generator))
    x = torch.zeros(1, 2)
    with pytest.raises(NotImplementedError, match="no Stein kernel"):
        info.step_map.kernel.stein(x, x, x, x)


def test_dtype_follows_the_input(skewed, generator):
    q0 = Gaussian.isotropic(torch.zeros(2, dtype=torch.float32))
    sampler = pooled(skewed, q0, 20, 10, 5)
    state, info = sampler.step(sampler.init(generator))
    tensors = (state.leaders, state.followers, state.log_q, info.step_size, info.affine_share)
    assert {t.dtype for t in tensors} == {torch.float32}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"leaders_per_step": 4}, "leaders_per_step must be at least 5, got 4"),
        ({"n_leaders": 100}, "n_leaders must be at least 200, got 100"),
        ({"n_followers": 0}, "n_followers must be at least 1, got 0"),
        ({"q0": Gaussian.isotropic(torch.zeros(3))}, "q0 has d=3, but the target has d=2"),
    ],
)
def test_settings_out_of_range_are_refused(skewed, wide, settings, message):
    with pytest.raises(ValueError, match=message):
        PooledSteinIS(**{"target": skewed, "q0": wide} | settings)


def test_bad_numbers_are_refused_with_the_particle(skewed, wide, generator):
    def hole(x):
        return skewed.function(x) * torch.where(x[:, 0] > 2.5, torch.nan, 1.0)

    sampler = pooled(LogProb(hole, 2), wide, 8, 8, 4)
    start = sampler.init(generator)
    x = torch.zeros(8, 2)
    x[3, 0] = 3.0
    x[:, 1] = torch.arange(8.0)
    with pytest.raises(FloatingPointError, match=r"score is .* \(1 of 8"):
        sampler.step(replace(start, leaders=x))
    with pytest.raises(FloatingPointError, match="log_prob is nan at particle 3"):
        sampler.importance_sample(replace(start, followers=x, log_q=x[:, 0]))
    with pytest.raises(ValueError, match="covariance is singular"):
        sampler.step(replace(start, leaders=torch.zeros(8, 2)))
