"""Explore, climb, choose, fit, weigh: each alone, and all against exact normalising constants."""

import math

import pytest
import torch
from annealing_checks import z_ratio

from steinis_lib import Gaussian, GaussianMixture, ImportanceSample, LogProb
from steinis_lib.baselines.annealing import linear_schedule
from steinis_lib.baselines.hais import HAIS
from steinis_lib.extensions.mode_fits import SAME, SHARE, climb, distinct, explore, fit, weigh
from steinis_lib.targets.mixtures import FullCovarianceMixture
from steinis_lib.targets.rbm import random_rbm


@pytest.fixture
def badly_scaled():
    """Three components far apart, whose variances differ up to a hundredfold within each."""
    return GaussianMixture(
        torch.tensor([0.3, 0.5, 0.2]).log(),
        torch.tensor([[-6.0, 0, 2, 1, 0], [5, 3, -4, 0, 1], [0, -8, 0, 3, -3]]),
        torch.tensor([[0.1, 0.3, 1, 1, 0.5], [1, 0.5, 0.2, 2, 1], [2, 0.2, 0.4, 1, 0.6]]),
    )


@pytest.fixture
def separated():
    """Four unequal components in five dimensions."""
    return GaussianMixture(
        torch.tensor([0.4, 0.3, 0.2, 0.1]).log(),
        torch.tensor([[-4.0, 0, 2, 1, 0], [4, 3, -3, 0, 1], [0, -5, 0, 3, -3], [1, 4, 3, -3, 2]]),
        torch.tensor(
            [
                [0.5, 1, 1, 1, 0.5],
                [1, 0.5, 0.7, 0.8, 1],
                [1, 0.6, 0.8, 1, 0.6],
                [0.7, 0.7, 1, 0.6, 1],
            ]
        ),
    )


def components(target, scale=1.0):
    """A mixture's components as full Gaussians, somewhat too wide or narrow if asked for."""
    return Gaussian(target.means, torch.diag_embed(scale * target.scales))


def shared(weights):
    """The fixed point of the steps of `weigh` for components that do not overlap."""
    return (weights + SHARE / len(weights)) / (1 + SHARE)


def chain(target, q0, n_leaders, generator, n_explorers=80):
    x = explore(target, q0, n_explorers, 150, generator)
    x, log_p, epsilon = climb(target, x)
    chosen = distinct(x, log_p, epsilon, 20)
    fits, elbo = fit(target, x[chosen], epsilon[chosen].sqrt(), n_leaders, 30, generator)
    return weigh(target, fits, elbo, 2000, 5, generator), fits, elbo


def test_explorers_come_to_all_modes_and_the_same_again_for_the_same_seed(separated):
    q0 = Gaussian.isotropic(torch.zeros(5), 4.0)
    x, again = (explore(separated, q0, 60, 100, torch.Generator().manual_seed(3)) for _ in range(2))
    assert x.shape == (60, 5) and torch.equal(x, again)
    away = ((x.unsqueeze(1) - separated.means) / separated.scales).norm(dim=-1)
    assert set(away.argmin(-1).tolist()) == {0, 1, 2, 3}
    assert away.amin(-1).median() < 3  # sqrt(5) = 2.2 is typical of a draw


def test_climbs_reach_the_modes_of_a_badly_scaled_mixture(badly_scaled, generator):
    means, scales = (t.repeat_interleave(6, 0) for t in (badly_scaled.means, badly_scaled.scales))
    x = means + 1.5 * scales * torch.randn(18, 5, generator=generator)
    top, log_p, epsilon = climb(badly_scaled, x, 800)
    assert (((top - means) / scales).norm(dim=-1) < 0.01).all()
    torch.testing.assert_close(log_p, badly_scaled.log_prob(top))
    ratio = epsilon / scales.square().amin(-1)  # the inverse of the largest curvature
    assert (ratio > 0.3).all() and (ratio < 12).all()
    chosen = distinct(top, log_p, epsilon, 10)
    assert {int(i) // 6 for i in chosen} == {0, 1, 2} and len(chosen) == 3


def test_the_last_step_of_a_climb_is_not_lost_to_rounding(separated, generator):
    """Climbs that have long arrived: rises of a size that rounding makes do not count as steps."""
    x = separated.means.repeat_interleave(20, 0) + 0.5 * torch.randn(80, 5, generator=generator)
    narrow = separated.scales.square().amin(-1).repeat_interleave(20)
    for n in (60, 1000):
        ratio = climb(separated, x, n)[2] / narrow
        assert (ratio > 0.3).all() and (ratio < 12).all()


def test_climbs_only_rise(skewed, generator):
    """More steps never end lower, and the point and its log-density belong together."""
    x = 2 * torch.randn(50, 2, generator=generator)
    before = skewed.log_prob(x)
    assert torch.equal(climb(skewed, x, 0)[0], x)
    for n in (1, 5, 20, 80):
        y, log_p, _ = climb(skewed, x, n)
        torch.testing.assert_close(log_p, skewed.log_prob(y))
        assert (log_p >= before).all()
        before = log_p
    assert (skewed.score(climb(skewed, x, 300)[0]).norm(dim=-1) < 1e-3).all()


@pytest.mark.parametrize("beyond", [torch.nan, torch.inf, -torch.inf])
def test_climbs_do_not_step_to_where_log_p_is_not_finite(beyond):
    """A slope that rises up to an edge: beyond it there is nothing to stand on."""

    def function(x):
        return torch.where(x[:, 0] > 1, beyond, 3 * x[:, 0] - x[:, 0] ** 2 / 4)

    y, log_p, _ = climb(LogProb(function, 1), torch.tensor([[-2.0], [0.9]]))
    assert torch.isfinite(log_p).all() and (y <= 1).all()
    assert (y > 0.99).all()


def test_distinct_takes_the_highest_and_none_near_a_higher_one():
    """Near is within sqrt(d ε)/2 of the higher one: here 1 for the first, 0.1 for the others."""
    x = torch.tensor([[5.0, 0.0], [0.0, 0.0], [0.0, 0.9], [0.0, 1.1], [5.0, 0.11], [5.0, 0.09]])
    log_p = torch.tensor([1.0, 3.0, 2.5, 2.0, 0.5, 0.7])
    epsilon = torch.tensor([0.02, 2.0, 9.0, 0.02, 0.02, 0.02])
    assert distinct(x, log_p, epsilon, 10).tolist() == [1, 3, 0, 4]
    assert distinct(x, log_p, epsilon, 2).tolist() == [1, 3]
    assert distinct(x, log_p, epsilon, 1).tolist() == [1]


def test_fits_that_meet_are_one_and_neighbours_are_kept(generator):
    """Two components sqrt(d) = 6 standard deviations apart, three starts each."""
    means = torch.zeros(2, 36)
    means[1, 3] = 6.0
    target = GaussianMixture(torch.tensor([0.7, 0.3]).log(), means, torch.ones(2, 36))
    starts = means.repeat(3, 1) + 0.3 * torch.randn(6, 36, generator=generator)
    fits, elbo = fit(target, starts, torch.full((6,), 0.8), 72, 30, generator)
    assert fits.mean.shape == (2, 36) and fits.scale_tril.shape == (2, 36, 36)
    torch.testing.assert_close(fits.mean, means, atol=0.2, rtol=0)  # each feels the other's tail
    torch.testing.assert_close(elbo, target.log_weights, atol=0.2, rtol=0)
    assert elbo[0] > elbo[1]


def test_fits_are_as_near_as_documented(generator):
    """Exact fits of a Gaussian coincide; a fit kept is more than SAME sqrt(d) from the others."""
    target = Gaussian(torch.tensor([3.0, -1.0]), torch.tensor([[2.0, 0.0], [0.5, 0.3]]))
    starts = target.mean + 0.4 * torch.randn(5, 2, generator=generator)
    fits, elbo = fit(target, starts, torch.full((5,), 0.6), 5, 30, generator)
    assert fits.mean.shape == (1, 2)
    torch.testing.assert_close(fits.mean[0], target.mean)
    torch.testing.assert_close(fits.scale_tril[0], target.scale_tril)
    torch.testing.assert_close(elbo, torch.zeros(1), atol=1e-9, rtol=0)
    for scale in (0.1, 0.5):  # of the better fit; the wider of the two decides
        target = Gaussian.isotropic(torch.zeros(2), scale)
        for factor, n in ((0.9, 1), (1.1, 2)):  # no transitions: starts are the fits
            x = torch.tensor([[0.0, 0.0], [0.0, factor * SAME * math.sqrt(2) * 0.5]])
            kept, elbo = fit(target, x, torch.tensor([0.1, 0.5]), 50, 0, generator)
            assert len(kept.mean) == n
            assert float(kept.scale_tril[0, 0, 0]) == scale


def test_weights_are_those_of_separated_components(separated, generator):
    """From a start that gives one component next to nothing, with fits too wide by a tenth."""
    start = torch.tensor([0.0, -3.0, 2.0, -60.0])
    found = torch.stack(
        [
            weigh(separated, components(separated, 1.1), start, 500, 8, generator).log_weights
            for _ in range(40)
        ]
    ).exp()
    expected = shared(separated.log_weights.exp())
    error = found.std(0) / math.sqrt(40)
    assert (error < 0.005).all()
    # the ratio of two averages is off by O(1/n) of its spread
    assert ((found.mean(0) - expected).abs() < 4 * error + 1e-3).all()
    torch.testing.assert_close(found.sum(-1), torch.ones(40))


def test_a_component_without_mass_keeps_the_share(separated, generator):
    """A fit where there is nothing, and no steps: what `weigh` starts from."""
    fits = components(separated)
    lost = Gaussian(
        torch.cat([fits.mean, torch.full((1, 5), 60.0)]),
        torch.cat([fits.scale_tril, torch.eye(5)[None]]),
    )
    mixture = weigh(separated, lost, torch.zeros(5), 500, 8, generator)
    assert float(mixture.log_weights[4].exp()) == pytest.approx(SHARE / 5 / (1 + SHARE))
    start = torch.tensor([0.0, 1.0, -torch.inf, 2.0])
    mixture = weigh(separated, fits, start + 100, 500, 0, generator)
    torch.testing.assert_close(mixture.log_weights.exp(), shared(start.softmax(-1)))


def test_a_single_component_costs_nothing(separated, generator):
    def untouchable(x):
        raise AssertionError("the target was asked")

    one = Gaussian(separated.means[:1], torch.eye(5)[None])
    mixture = weigh(LogProb(untouchable, 5), one, torch.tensor([-7.0]), 500, 8, generator)
    assert isinstance(mixture, FullCovarianceMixture)
    torch.testing.assert_close(mixture.log_weights, torch.zeros(1))


def test_the_whole_chain_finds_a_mixture(separated, generator):
    q0 = Gaussian.isotropic(torch.zeros(5), 4.0)
    mixture, fits, elbo = chain(separated, q0, 40, generator)
    away = (fits.mean.unsqueeze(1) - separated.means).norm(dim=-1)
    assert away.argmin(-1).tolist() == [0, 1, 2, 3]  # best first
    torch.testing.assert_close(fits.mean, separated.means, atol=0.05, rtol=0)
    torch.testing.assert_close(elbo, separated.log_weights, atol=0.01, rtol=0)
    expected = shared(separated.log_weights.exp())
    torch.testing.assert_close(mixture.log_weights.exp(), expected, atol=0.02, rtol=0)
    x = mixture.sample((10_000,), generator)
    sample = ImportanceSample(x, separated.log_prob(x) - mixture.log_prob(x))
    assert abs(sample.log_z) < 4 * sample.log_z_se
    assert sample.log_z_se < 2e-3
    mean, error = sample.expectation(lambda x: x)
    assert ((mean - separated.mean).abs() < 4 * error).all()


def test_the_whole_chain_on_a_boltzmann_machine_and_annealing_from_it():
    """log Z of a mixture of 2⁴ Gaussians in 30 dimensions, two of which have all but 1e-4 of it."""
    generator = torch.Generator().manual_seed(1)
    rbm = random_rbm(30, 4, generator)
    q0 = Gaussian.isotropic(rbm.bias_x, 2.0)
    mixture, fits, elbo = chain(rbm, q0, 60, generator)
    expected = shared(rbm.state_log_probs.exp().topk(2).values)
    torch.testing.assert_close(mixture.log_weights.exp(), expected, atol=0.03, rtol=0)
    assert (elbo < rbm.log_z).all()
    x = mixture.sample((200, 50), generator)
    ratio = (rbm.log_prob(x) - mixture.log_prob(x) - rbm.log_z).exp().mean(-1)
    assert abs(ratio.mean() - 1) < 4 * ratio.std() / math.sqrt(200)
    assert ratio.std() < 0.2
    mean, error = z_ratio(HAIS(rbm, mixture, linear_schedule(10), 0.3), rbm, generator, 50, 100)
    assert abs(mean - 1) < 4 * error
    assert error < 0.02


def test_annealing_from_a_fitted_mixture_is_unbiased(lopsided, generator):
    """With two components moved and narrowed, so that the mixture alone is a poor proposal."""
    fits = Gaussian(lopsided.means[:2] + 0.4, torch.diag_embed(0.8 * lopsided.scales[:2]))
    mixture = weigh(lopsided, fits, torch.zeros(2), 200, 3, generator)
    sampler = HAIS(lopsided, mixture, linear_schedule(40), 0.4, 2)
    mean, error = z_ratio(sampler, lopsided, generator, 100, 100)
    assert abs(mean - 1) < 4 * error
    assert error < 0.05


def test_float32_in_float32_out(separated, generator):
    target = GaussianMixture(
        separated.log_weights.float(), separated.means.float(), separated.scales.float()
    )
    mixture, fits, elbo = chain(
        target, Gaussian.isotropic(torch.zeros(5, dtype=torch.float32), 4.0), 40, generator
    )
    tensors = (mixture.log_weights, mixture.means, mixture.scale_trils, fits.mean, elbo)
    assert {t.dtype for t in tensors} == {torch.float32}
    torch.testing.assert_close(fits.mean, target.means, atol=0.1, rtol=0)


def test_batches_and_wrong_shapes_are_refused(separated, generator):
    x, ones = torch.zeros(2, 3, 5), torch.ones(3)
    one_at_a_time = r"must be \(n, d\), one problem at a time, got \(2, 3, 5\); loop over a batch"
    with pytest.raises(ValueError, match="explorers " + one_at_a_time):
        explore(separated, Gaussian.isotropic(torch.zeros(2, 5)), 3, 2, generator)
    with pytest.raises(ValueError, match="x " + one_at_a_time):
        climb(separated, x)
    with pytest.raises(ValueError, match="x has dimension d=4, but the target has d=5"):
        climb(separated, torch.zeros(3, 4))
    with pytest.raises(ValueError, match=r"no batch; got \(2, 3, 5\), \(3,\), \(3,\)"):
        distinct(x, ones, ones, 3)
    with pytest.raises(ValueError, match=r"no batch; got \(3, 5\), \(2,\), \(3,\)"):
        distinct(x[0], ones[:2], ones, 3)
    with pytest.raises(ValueError, match="most must be at least 1, got 0"):
        distinct(x[0], ones, ones, 0)
    with pytest.raises(ValueError, match="starts " + one_at_a_time):
        fit(separated, x, ones, 9, 2, generator)
    with pytest.raises(ValueError, match=r"positive scale for each start, \(3,\); got \(2,\)"):
        fit(separated, x[0], ones[:2], 9, 2, generator)
    with pytest.raises(ValueError, match=r"positive scale for each start, .*0\.0"):
        fit(separated, x[0], torch.tensor([1.0, 0.0, 1.0]), 9, 2, generator)
    with pytest.raises(ValueError, match="n_leaders must be more than d = 5"):
        fit(separated, x[0], ones, 5, 2, generator)
    fits = components(separated)
    with pytest.raises(ValueError, match=r"no batch; got \(4, 5\), \(3,\)"):
        weigh(separated, fits, ones, 100, 2, generator)
    batch = Gaussian(fits.mean.expand(2, 4, 5), fits.scale_tril)
    with pytest.raises(ValueError, match=r"no batch; got \(2, 4, 5\), \(4,\)"):
        weigh(separated, batch, torch.zeros(4), 100, 2, generator)
    with pytest.raises(ValueError, match="log_weights must have a finite sum"):
        weigh(separated, fits, torch.full((4,), -torch.inf), 100, 2, generator)


def test_broken_targets_are_refused(separated, generator):
    broken = LogProb(lambda x: x.sum(-1) * torch.nan, 5)
    nowhere = LogProb(lambda x: x.sum(-1) * 0 - torch.inf, 5)
    x = torch.zeros(3, 5)
    for target in (broken, nowhere):
        with pytest.raises(FloatingPointError, match=r"log_prob is .* at particle 0 \(3 of 3"):
            climb(target, x)
    with pytest.raises(FloatingPointError, match="log_p is nan at particle 1"):
        distinct(x, torch.tensor([0.0, torch.nan, 0.0]), torch.ones(3), 2)
    with pytest.raises(FloatingPointError, match=r"score is \[nan, .*\] at particle \(0, 0\)"):
        fit(broken, x, torch.ones(3), 9, 1, generator)
    with pytest.raises(FloatingPointError, match=r"log_prob is nan at particle \(0, 0\)"):
        fit(broken, x, torch.ones(3), 9, 0, generator)
    with pytest.raises(FloatingPointError, match="log_prob is nan at particle 0"):
        weigh(broken, components(separated), torch.zeros(4), 100, 1, generator)
    with pytest.raises(FloatingPointError, match="all weights of a problem are zero"):
        weigh(nowhere, components(separated), torch.zeros(4), 100, 1, generator)
