import math
from dataclasses import replace

import pytest
import torch
from annealing_checks import same
from pypmc.density.mixture import create_gaussian_mixture
from pypmc.mix_adapt.pmc import gaussian_pmc

from steinis_lib import ImportanceSample, LogProb, load_state, save_state
from steinis_lib.baselines import MixturePMC, MixturePMCState
from steinis_lib.targets.mixtures import FullCovarianceMixture


@pytest.fixture
def start():
    """Four correlated components around `skewed`, with unequal weights."""
    means = torch.tensor([[1.5, 1.0], [-1.2, 0.8], [0.2, -0.3], [0.5, 1.5]])
    trils = (
        torch.tensor([[0.9, 0.0], [0.3, 0.8]]) * torch.tensor([1.0, 0.8, 1.2, 2.0])[:, None, None]
    )
    return FullCovarianceMixture(torch.tensor([0.2, 0.3, 0.1, 0.4]).log(), means, trils)


def sample_of(info):
    return ImportanceSample(info.particles, info.log_w)


def test_an_update_is_that_of_pypmc(skewed, start, generator):
    sampler = MixturePMC(skewed, start, n_particles=300)
    before = sampler.init(generator, batch_shape=(3,))
    for _ in range(2):  # the second starts from mixtures that differ along the batch
        after, info = sampler.step(before)
        for b in range(3):
            covariances = before.scale_trils[b] @ before.scale_trils[b].mT
            old = create_gaussian_mixture(
                before.means[b].numpy(), covariances.numpy(), before.log_weights[b].exp().numpy()
            )
            w = info.log_w[b].exp().numpy()
            new = gaussian_pmc(info.particles[b].contiguous().numpy(), old, w, rb=True)
            sigma = after.scale_trils[b] @ after.scale_trils[b].mT
            close = {"atol": 1e-11, "rtol": 1e-10}
            torch.testing.assert_close(
                after.log_weights[b].exp(), torch.tensor(new.weights), **close
            )
            for k, component in enumerate(new.components):
                torch.testing.assert_close(after.means[b, k], torch.tensor(component.mu), **close)
                torch.testing.assert_close(sigma[k], torch.tensor(component.sigma), **close)
        before = after
    assert not torch.allclose(after.means[0], after.means[1])


def test_a_gaussian_mixture_is_recovered(generator):
    truth = FullCovarianceMixture(
        torch.tensor([0.5, 0.2, 0.3]).log(),
        torch.tensor([[-2.0, 0.5], [1.0, 2.0], [1.5, -1.5]]),
        torch.tensor(
            [[[0.6, 0.0], [0.4, 0.5]], [[0.5, 0.0], [-0.3, 0.8]], [[1.0, 0.0], [0.2, 0.4]]]
        ),
    )
    means = torch.tensor([[-2.0, -2.0], [0.0, 0.0], [2.0, 2.0], [2.0, -1.0], [-1.0, 2.0]])
    start = FullCovarianceMixture(
        torch.full((5,), 0.2).log(), means, 1.5 * torch.eye(2).expand(5, 2, 2)
    )
    sampler = MixturePMC(truth, start, n_particles=4000)
    samples = []
    first = sampler.init(generator, batch_shape=(2,))
    end = sampler.run(first, 30, on_step=lambda _, info: samples.append(sample_of(info)))
    grid = torch.linspace(-8, 8, 321)
    x = torch.cartesian_prod(grid, grid)
    log_p = truth.log_prob(x)

    def kl(q):
        return (log_p.exp() * (log_p - q.log_prob(x))).sum(-1) * 0.05**2

    assert kl(start) > 0.5
    assert (kl(sampler.proposal(end)) < 0.01).all()
    assert (samples[0].ess < 2500).all()
    assert (samples[-1].ess > 3900).all()
    assert ((samples[-1].log_z).abs() < 4 * samples[-1].log_z_se).all()


def test_z_is_unbiased_at_each_step_and_expectations_are_right(skewed, start, generator):
    """Ẑ of the first and the fourth step, over 500 independent runs of 100 draws a step."""
    sampler = MixturePMC(skewed, start, n_particles=100)
    ratios, spread = [], []

    def watch(_, info):
        ratios.append((sample_of(info).log_z - skewed.log_z).exp())
        spread.append(ratios[-1].std())

    state = sampler.run(sampler.init(generator, batch_shape=(500,)), 4, on_step=watch)
    for t in (0, 3):
        error = spread[t] / 500**0.5
        assert error < 0.01
        assert abs(ratios[t].mean() - 1) < 4 * error
    assert spread[3] < 0.8 * spread[0]
    assert state.transition == 4


def test_a_component_too_few_draws_count_for_keeps_its_covariance(start, generator):
    """Of 50 draws one has all the weight: means go there, and nothing collapses."""
    needle = LogProb(lambda x: -1e6 * (x - 0.7).square().sum(-1), 2)
    sampler = MixturePMC(needle, start, n_particles=50)
    before = sampler.init(generator)
    after, info = sampler.step(before)
    assert sample_of(info).ess < 1 + 1e-6
    heaviest = info.particles[info.log_w.argmax()]
    torch.testing.assert_close(after.means, heaviest.expand(4, 2))
    assert torch.equal(after.scale_trils, before.scale_trils)
    posterior = (start.log_components(heaviest[None]) + start.log_weights).softmax(-1)[0]
    torch.testing.assert_close(after.log_weights.exp(), posterior)


def test_min_scale_is_the_least_scale_of_an_update(start, generator):
    """Each component would shrink to a standard deviation of 0.1 in one direction."""
    ridge = LogProb(lambda x: -x[:, 0].square() / 2 - (x[:, 1] - x[:, 0]).square() / 0.02, 2)
    for min_scale, shrinks in ((0.03, True), (0.15, False)):
        sampler = MixturePMC(ridge, start, n_particles=20_000, min_scale=min_scale)
        before = sampler.init(generator)
        after, _ = sampler.step(before)
        least = torch.linalg.svdvals(after.scale_trils).min()
        assert torch.equal(after.scale_trils, before.scale_trils) is not shrinks
        assert (0.03 < least < 0.15) == shrinks


def test_components_without_weight_stay_as_they_were(skewed, start, generator):
    weights = torch.tensor([0.5, 0.0, 0.3, 0.2]).log()
    sampler = MixturePMC(skewed, replace(start, log_weights=weights), n_particles=500)
    before = sampler.init(generator, batch_shape=(2,))
    after = sampler.run(before, 3)
    assert (after.log_weights[:, 1] == -torch.inf).all()
    assert torch.equal(after.means[:, 1], before.means[:, 1])
    assert torch.equal(after.scale_trils[:, 1], before.scale_trils[:, 1])
    assert torch.isfinite(after.means).all()
    assert (after.means[:, 0] != before.means[:, 0]).all()
    kept = [0, 2, 3]
    less = FullCovarianceMixture(weights[kept], start.means[kept], start.scale_trils[kept])
    fewer = replace(sampler, q0=less)
    other = fewer.run(replace(fewer.init(generator, batch_shape=(2,)), rng=before.rng), 3)
    torch.testing.assert_close(after.means[:, kept], other.means)


def test_continuing_equals_one_long_run_also_from_disk(skewed, start, generator, tmp_path):
    sampler = MixturePMC(skewed, start, n_particles=60)
    first = sampler.init(generator, batch_shape=(2,))
    whole = sampler.run(first, 6)
    for state in (first, sampler.run(first, 2)):
        save_state(state, tmp_path / "run.safetensors")
        restored = load_state(MixturePMCState, tmp_path / "run.safetensors")
        left = 6 - int(state.transition)
        assert same(sampler.run(state, left), whole)
        assert same(sampler.run(restored, left), whole)
    assert not torch.equal(sampler.init(generator).rng, sampler.init(generator).rng)
    assert sampler.n_evaluations(6) == 360


def test_batches_are_independent_problems(skewed, start, generator):
    sampler = MixturePMC(skewed, start, n_particles=60)
    first = sampler.init(generator, batch_shape=(3,))
    end = sampler.run(first, 3)
    moved = first.means.clone()
    moved[0] += 0.4
    other = sampler.run(replace(first, means=moved), 3)
    assert not torch.equal(other.means[0], end.means[0])
    assert torch.equal(other.means[1:], end.means[1:])
    assert torch.equal(other.scale_trils[1:], end.scale_trils[1:])
    assert not torch.equal(end.means[1], end.means[2])


def test_moments_are_accurate_far_from_the_origin(skewed, start, generator):
    far = LogProb(lambda x: skewed.function(x - 1e4), 2)
    sampler = MixturePMC(skewed, start, n_particles=200)
    distant = replace(sampler, target=far)
    first = sampler.init(generator)
    near = sampler.run(first, 2)
    moved = distant.run(replace(first, means=first.means + 1e4), 2)
    torch.testing.assert_close(moved.means - 1e4, near.means, atol=1e-8, rtol=0)
    torch.testing.assert_close(moved.scale_trils, near.scale_trils, atol=1e-8, rtol=0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_particles": 1}, "n_particles must be at least 2, got 1"),
        ({"min_scale": 0.0}, "min_scale must be positive"),
        ({"min_scale": -1.0}, "min_scale must be positive"),
        ({"min_scale": math.nan}, "min_scale must be positive"),
    ],
)
def test_settings_out_of_range_are_refused(skewed, start, settings, message):
    with pytest.raises(ValueError, match=message):
        MixturePMC(skewed, start, **{"n_particles": 10} | settings)


def test_nonsense_is_refused(lopsided, start, generator):
    with pytest.raises(ValueError, match="q0 has d=2, but the target has d=1"):
        MixturePMC(lopsided, start, n_particles=10)
    broken = MixturePMC(LogProb(lambda x: x.sum(-1) * torch.nan, 2), start, n_particles=10)
    with pytest.raises(FloatingPointError, match=r"log_prob is nan at particle \(0, 0\)"):
        broken.step(broken.init(generator, batch_shape=(2,)))
    nowhere = replace(broken, target=LogProb(lambda x: x.sum(-1) * 0 - torch.inf, 2))
    with pytest.raises(FloatingPointError, match="all weights of a problem are zero"):
        nowhere.step(nowhere.init(generator))
