from dataclasses import replace

import pytest
import torch
from annealing_checks import grid_expectation

from steinis_lib import IMQ, RBF, Gaussian, NotInvertibleError, SteinIS, Target
from steinis_lib.baselines import HAIS, linear_schedule
from steinis_lib.companion.sections.s7_extensions.affine import Linear, Sum
from steinis_lib.extensions import PulledBack, Whitened
from steinis_lib.stein.maps import StepMap
from steinis_lib.targets.mixtures import random_mixture

KERNELS = {
    "RBF": RBF(multiplier=2.0),
    "IMQ": IMQ(),
    "whitened": Whitened(Sum((Linear(), RBF(multiplier=4.0)), (0.5, 1.0))),
}


def record(target, q0, kernel, sizes, n_transitions, generator, batch=(), step_size=0.05):
    """Run SteinIS with (leaders, followers).

    Return its first and last states, its log-weights, and the target in z.
    """
    maps, (n_leaders, n_followers) = [], sizes
    settings = {"n_leaders": n_leaders, "n_followers": n_followers, "step_size": step_size}
    sampler = SteinIS(target, q0, kernel=kernel, **settings)
    first = sampler.init(generator, batch_shape=batch)
    last = sampler.run(first, n_transitions, on_step=lambda _, info: maps.append(info.step_map))
    assert int(last.n_folds.sum()) == 0
    return first, last, sampler.importance_sample(last).log_w, PulledBack(target, tuple(maps))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_weights_are_those_of_steinis(skewed, wide, kernel, batch, generator):
    first, last, log_w, target = record(
        skewed, wide, KERNELS[kernel], (20, 9), 12, generator, batch, 0.02
    )
    z = first.followers
    log_p, _ = target.log_prob_and_score(z)
    for value in (log_p, target.log_prob(z)):
        torch.testing.assert_close(value - wide.log_prob(z), log_w, atol=1e-10, rtol=0)
    torch.testing.assert_close(target.to_x(z), last.followers, atol=1e-10, rtol=0)
    assert (last.followers - z).abs().mean() > 0.03
    assert isinstance(target, Target)
    assert target.dim == 2


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("d", "n_leaders"), [(1, 8), (2, 12), (5, 16)])
def test_score_against_differences(d, n_leaders, kernel, generator):
    target = random_mixture(3, d, generator, spread=1.5)
    q0 = Gaussian.isotropic(torch.full((d,), 0.3), 1.5)
    _, _, _, pulled = record(target, q0, KERNELS[kernel], (n_leaders, 2), 4, generator)
    check_score(pulled, torch.randn(4, d, generator=generator))


def test_score_where_determinants_are_taken_by_the_series(generator):
    """d = 20 with a short step is where log det(I + E) is summed as a series."""
    leaders, scores = torch.randn(2, 30, 20, generator=generator)
    t = StepMap(leaders, scores, RBF(bandwidth=30.0), 1e-3)
    target = random_mixture(3, 20, generator, spread=1.5)
    check_score(PulledBack(target, (t, t)), torch.randn(3, 20, generator=generator))


def check_score(target, z, h=1e-5):
    score = target.score(z)
    for k in range(z.shape[-1]):
        step = torch.zeros(z.shape[-1]).index_fill(0, torch.tensor([k]), h)
        slope = (target.log_prob(z + step) - target.log_prob(z - step)) / (2 * h)
        torch.testing.assert_close(score[..., k], slope, atol=1e-6, rtol=1e-6)


@pytest.mark.slow
def test_z_is_unchanged_by_quadrature(skewed, wide, generator):
    _, _, _, target = record(skewed, wide, KERNELS["RBF"], (20, 2), 20, generator)
    z = torch.cartesian_prod(torch.linspace(-9, 9, 301), torch.linspace(-9, 10, 301))
    mass = target.log_prob(z).exp().sum() * (18 / 300) * (19 / 300)
    torch.testing.assert_close(mass, skewed.log_z.exp(), atol=1e-5, rtol=0)


@pytest.mark.slow
def test_annealing_from_q0_is_unbiased_and_better_than_the_maps_alone(skewed, wide, generator):
    _, _, plain, target = record(skewed, wide, KERNELS["RBF"], (30, 100), 12, generator, (60,))
    settings = {"schedule": linear_schedule(6), "step_size": 0.5, "n_leapfrog": 2}
    sampler = HAIS(target, wide, n_particles=100, **settings)
    state = sampler.run(sampler.init(generator, batch_shape=(60,)))
    sample = sampler.importance_sample(state)
    ratio = (sample.log_z - skewed.log_z).exp()
    error = ratio.std() / 60**0.5
    assert error < 0.01
    assert abs(ratio.mean() - 1) < 4 * error
    assert sample.log_w.var(-1).mean() < 0.5 * plain.var(-1).mean()
    mean = (sample.log_w.softmax(-1).unsqueeze(-1) * target.to_x(sample.particles)).sum(-2)
    exact = grid_expectation(skewed, lambda x: x)
    assert ((mean.mean(0) - exact).abs() < 4 * mean.std(0) / 60**0.5).all()


def test_batches_are_problems_of_their_own(skewed, wide, generator):
    first, _, _, target = record(skewed, wide, KERNELS["RBF"], (20, 6), 5, generator, (3,))
    together = target.score(first.followers)
    alone = []
    for t in target.maps:
        kernel = RBF(bandwidth=t.kernel.bandwidth[1])
        alone.append(StepMap(t.leaders[1], t.scores[1], kernel, t.step_size))
    expected = PulledBack(skewed, tuple(alone)).score(first.followers[1])
    torch.testing.assert_close(together[1], expected)
    shared = first.followers[1]  # the same points for all problems: they are given each its own
    for a, b in zip(
        target.log_prob_and_score(shared),
        target.log_prob_and_score(shared.expand(3, 6, 2)),
        strict=True,
    ):
        torch.testing.assert_close(a, b)
    torch.testing.assert_close(target.log_prob(shared)[1], target.log_prob(first.followers)[1])


def test_a_target_with_more_batch_axes_than_particles_is_refused(generator):
    """Else autograd would add up the scores of its problems."""
    many = random_mixture(2, 2, generator, batch_shape=(3,))
    with pytest.raises(ValueError, match=r"scores \(3, 5, 2\) of particles \(5, 2\); expand z"):
        PulledBack(many, ()).score(torch.zeros(5, 2))
    assert PulledBack(many, ()).score(torch.zeros(3, 5, 2)).shape == (3, 5, 2)


def test_no_maps_leave_the_target(skewed, wide, generator):
    z = wide.sample((5,), generator)
    for a, b in zip(
        PulledBack(skewed, ()).log_prob_and_score(z), skewed.log_prob_and_score(z), strict=True
    ):
        torch.testing.assert_close(a, b)


def test_a_particle_that_is_nan_does_not_spoil_the_others(skewed, wide, generator):
    """HAIS rejects it; it must neither raise nor be mistaken for a fold."""
    first, _, _, target = record(skewed, wide, KERNELS["RBF"], (20, 6), 5, generator)
    z = first.followers.clone()
    expected = target.log_prob_and_score(z)
    z[2] = torch.nan
    log_p, score = target.log_prob_and_score(z)
    others = [0, 1, 3, 4, 5]
    torch.testing.assert_close(log_p[others], expected[0][others])
    torch.testing.assert_close(score[others], expected[1][others])
    assert log_p[2].isnan()
    assert score[2].isnan().all()


def test_a_map_that_folds_is_refused_where_it_is_met(generator):
    leaders = torch.tensor([[-0.1], [0.1]])
    folding = StepMap(leaders, -900 * leaders, RBF(bandwidth=1.0), 0.1)
    good = replace(folding, step_size=0.001)
    pulled = PulledBack(random_mixture(2, 1, generator), (good, folding))
    z = torch.tensor([[3.0], [0.0], [-3.0]])
    assert torch.isfinite(pulled.log_prob(z[::2])).all()
    for method in (pulled.log_prob, pulled.score, pulled.log_prob_and_score):
        with pytest.raises(NotInvertibleError, match="map 1 of 2 is .* at 1 of 3 particles"):
            method(z)


def test_a_wrong_dimension_is_refused(skewed, generator):
    t = StepMap(*torch.randn(2, 4, 3, generator=generator), RBF(bandwidth=1.0), 0.1)
    with pytest.raises(ValueError, match="the target has d=2, but map 0 has d=3"):
        PulledBack(skewed, (t,))
    with pytest.raises(ValueError, match="d=3"):
        PulledBack(skewed, ()).log_prob(torch.zeros(4, 3))
