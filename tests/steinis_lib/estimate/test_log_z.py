import doctest
import math
import re
from dataclasses import replace
from pathlib import Path

import arviz
import pytest
import torch
from torch.distributions import Normal, StudentT

from steinis_lib import Gaussian, GaussianMixture, ImportanceSample, estimate_log_z
from steinis_lib.estimate import log_z as module
from steinis_lib.estimate import routes
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
    assert "maps" in found.route
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
    assert found.route == ("mixture", "mixture")
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


def test_a_mode_out_of_reach_makes_two_runs_disagree():
    target = separated(0, 10, 3.0, 0.5)
    found = estimate_log_z(target.log_prob, 10, n_samples=4000)
    assert mentions(found, "two independent runs disagree")
    assert (found.log_z_runs < 0.1).all()
    assert found.log_z_runs.min() < -0.3


def test_tails_of_a_student_are_warned_of():
    found = estimate_log_z(lambda x: StudentT(1.5).log_prob(x).sum(-1), 2, n_samples=4000)
    assert found.pareto_k > 0.7
    assert mentions(found, "Pareto-k̂ is")


@pytest.mark.slow
def test_annealing_takes_over_where_a_mixture_is_a_bad_proposal(monkeypatch):
    """A skewed density in 8-D: coordinates are independent and log-gamma, so log Z is known."""
    monkeypatch.setattr(routes, "LENGTHS", (10, 40))
    shape = 0.5

    def log_gamma(x):
        return (shape * x - x.exp()).sum(-1)

    found = estimate_log_z(log_gamma, 8, n_samples=1000)
    assert found.route == ("annealing", "annealing")
    assert near(found, 8 * math.lgamma(shape))
    assert found.log_z_se < 0.2


@pytest.mark.slow
def test_z_is_unbiased_over_seeds(monkeypatch):
    """A skewed density in 1-D, log-gamma, with all choices made anew each time."""
    monkeypatch.setattr(module, "EXPLORERS", 30)
    monkeypatch.setattr(module, "EXPLORING", 20)
    monkeypatch.setattr(module, "FLOW", 8)

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
    assert found.sample.log_w.dtype == found.sample.particles.dtype == torch.float32
    assert near(found, 0.0)
    assert found.to_arviz().posterior["x"].dtype == "float32"


@pytest.mark.slow
def test_proposals_that_leave_the_numbers_do_not_reach_a_validating_density(monkeypatch):
    """torch.distributions refuses NaN as an argument; the funnel's scores send proposals there."""
    monkeypatch.setattr(routes, "LENGTHS", (10, 40))
    monkeypatch.setattr(module, "FEW_DIMENSIONS", 0)
    seen = []

    def watched(x):
        seen.append(bool(torch.isfinite(x).all()))
        return funnel(x)

    found = estimate_log_z(watched, 3, n_samples=400)
    assert all(seen)
    assert math.isfinite(found.log_z)
    counted = module._Counted(funnel)
    value = counted(torch.tensor([[0.0, 1.0], [torch.nan, 0.0], [0.0, torch.inf]]))
    assert torch.isfinite(value).tolist() == [True, False, False]
    assert counted.n == 3


def test_a_fit_that_has_not_settled_is_warned_of_and_one_that_has_is_not(generator):
    wide = torch.tensor([1e-3, 1e3])
    target = module.LogProb(lambda x: -0.5 * ((x - 5) / wide).square().sum(-1), 2)
    q0 = Gaussian.isotropic(torch.zeros(2))
    _, warnings = module._mixture(target, q0, generator)
    assert any("had not settled" in warning for warning in warnings)
    for log_prob in (banana, lambda x: -0.5 * ((x - 5) / wide.sqrt()).square().sum(-1)):
        _, warnings = module._mixture(module.LogProb(log_prob, 2), q0, generator)
        assert warnings == []


@pytest.fixture
def to_maps(monkeypatch):
    """The route is forced to maps: the mixture's pilots are called bad, and those of maps good."""
    monkeypatch.setattr(module, "good", lambda _: False)
    monkeypatch.setattr(routes, "good", lambda _: True)


def test_folds_of_maps_are_reported(to_maps, monkeypatch):
    """The run pretends that a follower met a fold."""

    def folded(_, state, n, on_step):
        return replace(state, n_folds=state.n_folds + 1)

    monkeypatch.setattr(routes.HeldOutSteinIS, "run", folded)
    found = estimate_log_z(banana, 2, n_samples=400)
    assert found.route == ("maps", "maps")
    assert mentions(found, "not one-to-one")


@pytest.mark.parametrize(
    ("transitions", "falls"), [(4, True), pytest.param(60, False, marks=pytest.mark.slow)]
)
def test_a_held_out_divergence_that_still_falls_is_reported(
    to_maps, monkeypatch, transitions, falls
):
    """Four maps are too few for this density, and sixty enough."""
    monkeypatch.setattr(routes, "REFINE", transitions)
    found = estimate_log_z(banana, 2, n_samples=400)
    assert found.route == ("maps", "maps")
    assert mentions(found, "held-out KL was still falling") == falls


@pytest.mark.slow
def test_the_longest_annealing_path_is_no_proof_that_it_is_enough(monkeypatch):
    monkeypatch.setattr(routes, "LENGTHS", (3, 6))
    monkeypatch.setattr(routes, "REFINE", 1)
    found = estimate_log_z(funnel, 3, n_samples=400)
    assert "annealing" in found.route
    assert mentions(found, "longest path, 6 transitions")


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


@pytest.mark.parametrize(
    ("log_prob", "message"),
    [
        (lambda x: x.sum(-1) * torch.nan, "log_prob is nan at particle 0"),
        (lambda x: x.sum(-1) + torch.inf, "log_prob is inf at particle 0"),
        (lambda x: banana(x) - torch.inf, "positive on all of"),
        (lambda x: torch.where(x[:, 0] > 0, -x.sum(-1), -torch.inf), "positive on all of"),
    ],
)
def test_densities_that_are_none_are_refused(log_prob, message):
    with pytest.raises(FloatingPointError, match=message):
        estimate_log_z(log_prob, 2)


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
