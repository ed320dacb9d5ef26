import doctest
import math
import re
from pathlib import Path

import arviz
import pytest
import torch
from torch.distributions import Normal

from steinis_lib import Gaussian, GaussianMixture, ImportanceSample, estimate_log_z
from steinis_lib.estimate import explore
from steinis_lib.estimate.evidence import weight_warnings

ROOT = Path(__file__).resolve().parents[3]


def banana(x):
    return -(x[:, 0] ** 4) / 4 - (x[:, 1] - x[:, 0] ** 2) ** 2


def funnel(x):
    neck = Normal(0.0, 3.0).log_prob(x[:, 0])
    return neck + Normal(0.0, (x[:, :1] / 2).exp()).log_prob(x[:, 1:]).sum(-1)


def separated(seed, dim, spread, scale):
    """Three unequal components, log Z = 0."""
    g = torch.Generator().manual_seed(seed)
    means = spread * torch.randn(3, dim, generator=g)
    return GaussianMixture(
        torch.tensor([0.5, 0.3, 0.2]).log(), means, torch.full((3, dim), float(scale))
    )


def near(found, log_z):
    return abs(found.log_z - log_z) < 4 * found.log_z_se


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def mentions(found, words):
    return any(words in warning for warning in found.warnings)


@pytest.fixture(scope="module")
def bent():
    """One result on the banana, and how often its density was called."""
    calls = []

    def counting(x):
        calls.append(len(x))
        return banana(x)

    return estimate_log_z(counting, 2, n_samples=2000), sum(calls)


@pytest.mark.slow
def test_a_bent_density_is_estimated_within_its_error(bent):
    found, calls = bent
    grid = torch.linspace(-5, 12, 1701)
    log_z = banana(torch.cartesian_prod(grid, grid)).logsumexp(0) + 2 * math.log(0.01)
    assert near(found, log_z)
    assert found.log_z_se < 0.05
    assert found.n_evaluations == calls
    assert found.sample.particles.shape == (2000, 2)
    halves = [ImportanceSample(h.unsqueeze(-1), h) for h in found.sample.log_w.chunk(2)]
    torch.testing.assert_close(found.log_z_runs, torch.stack([half.log_z for half in halves]))
    torch.testing.assert_close(
        found.log_z_runs.exp().mean(), torch.tensor(found.log_z).exp()
    )  # Ẑ, not its log, is averaged
    assert (found.ess, found.pareto_k) == (found.sample.ess, found.sample.pareto_k)


@pytest.mark.slow
def test_expectations_and_draws_for_arviz_agree(bent):
    found, _ = bent
    mean, error = found.expectation(lambda x: torch.cat([x, x.square()], -1))
    data = found.to_arviz()
    x = torch.as_tensor(data.posterior["x"].values)
    assert x.shape == (2, 1000, 2)
    # Each run is a chain of its own, so runs count alike; resampling adds noise to the weights'.
    drawn = torch.cat([x, x.square()], -1).mean((0, 1))
    assert ((drawn - mean).abs() < 4 * error).all()
    assert (error < 0.2).all()
    assert data.sample_stats["log_weight"].shape == (2, 1000)
    torch.testing.assert_close(
        torch.as_tensor(data.sample_stats["log_weight"].values).amax(), found.sample.log_w.amax()
    )
    for name in ("log_z", "log_z_se", "ess", "pareto_k"):
        assert data.sample_stats.attrs[name] == getattr(found, name)
    summary = arviz.summary(data)
    assert list(summary.index) == ["x[0]", "x[1]"]
    assert summary["mean"].to_numpy() == pytest.approx(drawn[:2].numpy(), abs=0.001)


def test_badly_scaled_dimensions_need_no_tuning():
    scales = 10 ** torch.linspace(-1.5, 1.5, 20)
    found = estimate_log_z(lambda x: -0.5 * (x / scales).square().sum(-1), 20, n_samples=2000)
    assert near(found, 10 * math.log(2 * math.pi) + scales.log().sum())
    assert found.route == ("mixture",)
    assert found.log_z_se < 0.03
    assert found.warnings == ()


def test_separated_modes_are_found_from_a_wide_start():
    target = separated(1, 5, 3.0, 0.6)
    q0 = Gaussian.isotropic(torch.zeros(5), 5.0)
    found = estimate_log_z(target.log_prob, 5, q0=q0, n_samples=2000)
    assert near(found, 0.0)
    assert found.log_z_se < 0.03
    assert found.warnings == ()
    mean, error = found.expectation(lambda x: x)
    assert ((mean - target.mean).abs() < 4 * error).all()


@pytest.mark.slow
def test_z_is_unbiased_over_seeds(monkeypatch):
    """A skewed density in 1-D, log-gamma, with all choices made anew each time."""
    monkeypatch.setattr(explore, "EXPLORERS", (4, 4))
    monkeypatch.setattr(explore, "VERIFYING", 200)

    def log_gamma(x):
        return (2 * x - x.exp()).sum(-1)

    found = [estimate_log_z(log_gamma, 1, n_samples=200, generator=seeded(i)) for i in range(40)]
    ratio = torch.tensor([f.log_z - math.lgamma(2.0) for f in found]).exp()
    error = ratio.std() / 40**0.5
    assert error < 0.02
    assert abs(ratio.mean() - 1) < 4 * error
    # And the stated standard errors are those seen, within 4 times the 11 % that 40 repeats give.
    stated = torch.tensor([f.log_z_se for f in found]).square().mean().sqrt()
    assert 0.56 < stated / ratio.std() < 1.44


@pytest.mark.slow
def test_a_seed_gives_the_same_result_whatever_the_global_state():
    target = separated(1, 6, 2.0, 0.5)
    runs = []
    for global_seed, generator in ((1, None), (2, seeded(0))):
        torch.manual_seed(global_seed)
        runs.append(estimate_log_z(target.log_prob, 6, n_samples=200, generator=generator))
    assert torch.equal(runs[0].sample.log_w, runs[1].sample.log_w)
    further = estimate_log_z(target.log_prob, 6, n_samples=200, generator=generator)
    assert further.log_z != runs[0].log_z  # the generator has moved on


@pytest.mark.slow
def test_dtype_follows_q0_and_is_float64_without():
    target = separated(1, 2, 2.0, 0.5)
    q0 = Gaussian.isotropic(torch.zeros(2, dtype=torch.float32), 3.0)
    single = GaussianMixture(*(t.float() for t in vars(target).values()))
    found = estimate_log_z(single.log_prob, 2, q0=q0, n_samples=1000)
    assert found.sample.particles.dtype == torch.float32
    assert near(found, 0.0)
    assert found.to_arviz().posterior["x"].dtype == "float32"


def test_weights_of_either_run_can_give_warnings(generator):
    """Pooled with a good run, a bad one may look well."""
    log_w = 0.1 * torch.randn(2, 500, generator=generator)
    good = [ImportanceSample(row.unsqueeze(-1), row) for row in log_w]
    both = ImportanceSample(log_w.reshape(-1, 1), log_w.reshape(-1))
    tail = -1.5 * torch.rand(500, generator=generator).log()  # weights are Pareto with k = 1.5
    heavy = ImportanceSample(tail.unsqueeze(-1), tail + good[1].log_z - tail.logsumexp(-1))
    found = weight_warnings(both, [good[0], heavy])
    assert any("Pareto-k̂ is" in warning for warning in found)
    wide = torch.where(torch.arange(500) < 450, -9.0, torch.rand(500, generator=generator))
    wide = ImportanceSample(wide.unsqueeze(-1), wide - wide.logsumexp(-1) + math.log(500))
    (warning,) = weight_warnings(both, [good[0], wide])
    assert "of a run is 9% of its draws, where pilots had 50%" in warning


def test_weights_that_say_nothing_against_it_give_no_warnings(generator):
    log_w = 0.1 * torch.randn(2, 500, generator=generator)
    runs = [ImportanceSample(row.unsqueeze(-1), row) for row in log_w]
    both = ImportanceSample(log_w.reshape(-1, 1), log_w.reshape(-1))
    assert weight_warnings(both, runs) == []
    apart = [runs[0], ImportanceSample(runs[1].particles, runs[1].log_w + 1)]
    (warning,) = weight_warnings(both, apart)
    assert "two independent runs disagree" in warning
    few = ImportanceSample(log_w[0, :50].unsqueeze(-1), log_w[0, :50])
    (warning,) = weight_warnings(few, runs)
    assert "effective sample size is 50, below 100" in warning


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dim": 0}, "dim must be at least 1, got 0"),
        ({"n_samples": 1001}, "n_samples must be even and at least 200, got 1001"),
        ({"n_samples": 100}, "n_samples must be even and at least 200, got 100"),
        ({"q0": Gaussian.isotropic(torch.zeros(3))}, r"q0 must have a mean \(2,\)"),
        ({"q0": Gaussian.isotropic(torch.zeros(4, 2))}, r"got \(4, 2\)"),
        ({"log_prob": lambda x: -x.square()}, "log_prob must map"),
        ({"log_prob": lambda x: -x.square().sum()}, "log_prob must map"),
        ({"log_prob": lambda x: 0.0}, "it returned float"),
        ({"log_prob": lambda x: torch.zeros(len(x))}, "does not depend on its input"),
    ],
)
def test_wrong_sizes_and_functions_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        estimate_log_z(**{"log_prob": banana, "dim": 2} | arguments)


def test_parameters_that_ask_for_gradients_are_left_alone():
    scale = torch.nn.Parameter(torch.tensor(2.0))
    found = estimate_log_z(lambda x: -0.5 * (x / scale).square().sum(-1), 1, n_samples=200)
    assert near(found, 0.5 * math.log(2 * math.pi) + math.log(2))
    assert not found.sample.log_w.requires_grad
    assert scale.grad is None


@pytest.mark.slow
def test_the_example_of_the_readme_prints_what_it_says():
    (text,) = re.findall(r"```pycon\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    test = doctest.DocTestParser().get_doctest(text, {}, "README.md", None, None)
    assert len(test.examples) > 3
    said = []
    result = doctest.DocTestRunner().run(test, out=said.append)
    assert result.failed == 0, "".join(said)


@pytest.mark.parametrize("power", [1, 2])
def test_a_density_that_rises_without_end_is_refused(power):
    with pytest.raises(FloatingPointError, match="rises without end.*check its sign"):
        estimate_log_z(lambda x: x.abs().pow(power).sum(-1), 2, n_samples=200)
