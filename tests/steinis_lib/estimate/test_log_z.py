import doctest
import math
import re
from functools import partial
from pathlib import Path

import arviz
import pytest
import torch

from steinis_lib import Gaussian, GaussianMixture, ImportanceSample, estimate_log_z

ROOT = Path(__file__).resolve().parents[3]


def banana(x):
    return -(x[:, 0] ** 4) / 4 - (x[:, 1] - x[:, 0] ** 2) ** 2


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dim": 0}, "dim must be at least 1, got 0"),
        ({"dim": None}, "dim is missing: pass the number of coordinates"),
        ({"dim": 2, "parameters": {"a": ("real", 3)}}, "dim is 2, but parameters have 3"),
        ({"n_samples": 1001}, "n_samples must be even and at least 200, got 1001"),
        ({"n_samples": 100}, "n_samples must be even and at least 200, got 100"),
        ({"q0": Gaussian.isotropic(torch.zeros(3))}, r"q0 must have a mean \(2,\)"),
        ({"q0": Gaussian.isotropic(torch.zeros(4, 2))}, r"got \(4, 2\)"),
        ({"max_points": 0}, "max_points must be at least 1, got 0"),
        ({"max_evaluations": 0}, "max_evaluations must be at least 1, got 0"),
        ({"max_seconds": 0.0}, "max_seconds must be positive, got 0.0"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
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


@pytest.mark.slow
def test_sums_in_another_order_change_no_more_than_rounding_errors(generator):
    """As another number of threads has them, unless a decision of the search tips over."""
    design = torch.randn(2000, 10, generator=generator)
    labels = torch.rand(2000, generator=generator).round()

    def log_prob(x, rows):
        logits = x @ design[rows].mT
        loss = torch.nn.functional.softplus(logits) - labels[rows] * logits
        return -loss.sum(-1) - 0.5 * x.square().sum(-1)

    orders = torch.arange(2000), torch.arange(2000).flip(0)
    forth, back = (
        estimate_log_z(partial(log_prob, rows=rows), 10, n_samples=400).log_z for rows in orders
    )
    assert abs(forth - back) < 1e-6
