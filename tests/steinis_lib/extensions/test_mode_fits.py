"""Fit and weigh, each alone, and all steps against exact normalising constants."""

import math

import pytest
import torch
from annealing_checks import z_ratio

from steinis_lib import Gaussian, GaussianMixture, LogProb, importance_sampling
from steinis_lib.baselines import HAIS, linear_schedule
from steinis_lib.companion.problems.rbm import random_rbm
from steinis_lib.extensions import fit_modes
from steinis_lib.extensions.mode_fits import SAME, SHARE, fit, weigh
from steinis_lib.targets.mixtures import FullCovarianceMixture


def components(target, scale=1.0):
    """A mixture's components as full Gaussians, somewhat too wide or narrow if asked for."""
    return Gaussian(target.means, torch.diag_embed(scale * target.scales))


def shared(weights):
    """The fixed point of the steps of `weigh` for components that do not overlap."""
    return (weights + SHARE / len(weights)) / (1 + SHARE)


def whole(target, q0, n_leaders, generator, **settings):
    sizes = {"n_explorers": 80, "n_exploring": 150, "n_modes": 20, "n_transitions": 30}
    sizes |= {"n_draws": 2000, "n_weighings": 5}
    return fit_modes(target, q0, generator, n_leaders=n_leaders, **sizes | settings)


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
    found = whole(separated, q0, 40, generator)
    mixture, fits, elbo = found.mixture, found.fits, found.elbo
    away = (fits.mean.unsqueeze(1) - separated.means).norm(dim=-1)
    assert away.argmin(-1).tolist() == [0, 1, 2, 3]  # best first
    torch.testing.assert_close(fits.mean, separated.means, atol=0.05, rtol=0)
    torch.testing.assert_close(elbo, separated.log_weights, atol=0.01, rtol=0)
    expected = shared(separated.log_weights.exp())
    torch.testing.assert_close(mixture.log_weights.exp(), expected, atol=0.02, rtol=0)
    sample = importance_sampling(separated, mixture, (10_000,), generator)
    assert abs(sample.log_z) < 4 * sample.log_z_se
    assert sample.log_z_se < 2e-3
    mean, error = sample.expectation(lambda x: x)
    assert ((mean - separated.mean).abs() < 4 * error).all()
    assert found.settled is None


def test_stages_are_told_in_turn_and_looking_whether_a_fit_has_settled_comes_last(separated):
    """The extra transitions draw after the fits, which stay the same."""
    stages = []
    q0 = Gaussian.isotropic(torch.zeros(5), 4.0)
    plain, looked = (
        whole(separated, q0, 40, torch.Generator().manual_seed(3), **settings)
        for settings in ({"on_stage": stages.append}, {"n_settling": 5})
    )
    assert stages == ["exploring", "climbing", "fitting", "weighing"]
    assert torch.equal(plain.fits.mean, looked.fits.mean)
    assert torch.equal(plain.elbo, looked.elbo)
    assert not torch.equal(plain.mixture.log_weights, looked.mixture.log_weights)
    assert looked.settled


def test_a_fit_that_has_not_settled_is_said_to_be_so(generator):
    """Scales a million apart, in fewer transitions than the trust region asks for."""
    scales = torch.tensor([1e-3, 1e3])
    target = LogProb(lambda x: -0.5 * ((x - 5) / scales).square().sum(-1), 2)
    found = whole(
        target, Gaussian.isotropic(torch.zeros(2)), 60, generator, n_settling=5, n_transitions=10
    )
    assert found.settled is False


@pytest.mark.slow
def test_the_whole_chain_on_a_boltzmann_machine_and_annealing_from_it():
    """log Z of a mixture of 2⁴ Gaussians in 30 dimensions, two of which have all but 1e-4 of it."""
    generator = torch.Generator().manual_seed(1)
    rbm = random_rbm(30, 4, generator)
    q0 = Gaussian.isotropic(rbm.bias_x, 2.0)
    found = whole(rbm, q0, 60, generator)
    mixture = found.mixture
    expected = shared(rbm.state_log_probs.exp().topk(2).values)
    torch.testing.assert_close(mixture.log_weights.exp(), expected, atol=0.03, rtol=0)
    assert (found.elbo < rbm.log_z).all()
    x = mixture.sample((200, 50), generator)
    ratio = (rbm.log_prob(x) - mixture.log_prob(x) - rbm.log_z).exp().mean(-1)
    assert abs(ratio.mean() - 1) < 4 * ratio.std() / math.sqrt(200)
    assert ratio.std() < 0.2
    sampler = HAIS(rbm, mixture, schedule=linear_schedule(10))
    mean, error = z_ratio(sampler, rbm, generator, 50, 100)
    assert abs(mean - 1) < 4 * error
    assert error < 0.02


def test_annealing_from_a_fitted_mixture_is_unbiased(lopsided, generator):
    """With two components moved and narrowed, so that the mixture alone is a poor proposal."""
    fits = Gaussian(lopsided.means[:2] + 0.4, torch.diag_embed(0.8 * lopsided.scales[:2]))
    mixture = weigh(lopsided, fits, torch.zeros(2), 200, 3, generator)
    sampler = HAIS(lopsided, mixture, schedule=linear_schedule(40), step_size=0.4, n_leapfrog=2)
    mean, error = z_ratio(sampler, lopsided, generator, 100, 100)
    assert abs(mean - 1) < 4 * error
    assert error < 0.05


def test_float32_in_float32_out(separated, generator):
    target = GaussianMixture(
        separated.log_weights.float(), separated.means.float(), separated.scales.float()
    )
    q0 = Gaussian.isotropic(torch.zeros(5, dtype=torch.float32), 4.0)
    found = whole(target, q0, 40, generator, n_settling=5)
    tensors = (*vars(found.mixture).values(), *vars(found.fits).values(), found.elbo)
    assert {t.dtype for t in tensors if isinstance(t, torch.Tensor)} == {torch.float32}
    torch.testing.assert_close(found.fits.mean, target.means, atol=0.1, rtol=0)


def test_batches_and_wrong_shapes_are_refused(separated, generator):
    x, ones = torch.zeros(2, 3, 5), torch.ones(3)
    with pytest.raises(ValueError, match=r"starts must be \(n, d\), one problem at a time"):
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
    with pytest.raises(FloatingPointError, match=r"score is \[nan, .*\] at particle \(0, 0\)"):
        fit(broken, x, torch.ones(3), 9, 1, generator)
    with pytest.raises(FloatingPointError, match=r"log_prob is nan at particle \(0, 0\)"):
        fit(broken, x, torch.ones(3), 9, 0, generator)
    with pytest.raises(FloatingPointError, match="log_prob is nan at particle 0"):
        weigh(broken, components(separated), torch.zeros(4), 100, 1, generator)
    with pytest.raises(FloatingPointError, match="all weights of a problem are zero"):
        weigh(nowhere, components(separated), torch.zeros(4), 100, 1, generator)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x.sum(-1) * 0 - torch.inf, "log_prob is -inf at particle 0 .* on all of R"),
        (lambda x: x.abs().sum(-1), "rises without end.*check its sign"),
        # Its peak is 0.05 from an edge, beyond which it is zero: a fit reaches across.
        (
            lambda x: torch.where(x[:, 0] < 0, -torch.inf, -(x - 0.05).square().sum(-1)),
            r"the mean of log_prob is -inf at fit 0 \(1 of 1 fits affected\)",
        ),
    ],
)
def test_densities_that_cannot_be_fitted_are_refused(function, message):
    q0 = Gaussian.isotropic(torch.tensor([4.0, 0.0]), 0.5)
    generator = torch.Generator().manual_seed(1)
    with pytest.raises(FloatingPointError, match=message):
        whole(LogProb(function, 2), q0, 9, generator, n_exploring=20)
