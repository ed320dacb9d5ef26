"""The exact curves against routes that share nothing with them but the mixture and the maps."""

import numpy as np
import pytest
import torch
import xarray as xr
from cells import Cells
from scipy import integrate, stats

from steinis_lib import RBF
from steinis_lib.companion.sections.s1_convergence import experiment as gmm
from steinis_lib.stein.maps import build

TINY = {
    "n_trials": 3,
    "trials_per_chunk": 2,
    "n_components": 4,
    "n_leaders": 8,
    "n_followers": 6,
    "n_svgd": 9,
    "n_mean_field": 12,
    "leader_counts": [5],
    "step_size": 0.2,
    "end_time": 3.0,
    "n_times": 4,
    "n_grid": 401,
    "component_scale": 0.8,
    "q0_scale": 1.3,
}


def tiny(**changes):
    return gmm.GMMConvergence.of_profile("quick", TINY | changes)


def run(label="steinis", number=0, **changes):
    return Cells(gmm.EXPERIMENT, tiny(**changes)).run(label, number)


class Trial:
    """One trial in numpy: its mixture, its leaders, and the Stein kernel written out."""

    def __init__(self, target, q0, leaders, i):
        self.means = target.means[i, :, 0].numpy()
        self.scales = target.scales[i, :, 0].numpy()
        self.weights = target.log_weights[i].exp().numpy()
        self.sigma = float(q0.scale_tril)
        self.leaders = leaders[i, :, 0].numpy()
        gaps = np.abs(np.subtract.outer(self.leaders, self.leaders))
        median = np.median(gaps[np.triu_indices(len(gaps), 1)])
        self.h = median**2 / (2 * np.log(len(gaps) + 1))  # the paper's rule

    def p(self, x):
        x = np.asarray(x)[..., None]
        return (self.weights * stats.norm.pdf(x, self.means, self.scales)).sum(-1)

    def score(self, x):
        x = np.asarray(x)[..., None]
        parts = self.weights * stats.norm.pdf(x, self.means, self.scales)
        return (parts * (self.means - x) / self.scales**2).sum(-1) / parts.sum(-1)

    def q0(self, x):
        return stats.norm.pdf(x, 0, self.sigma)

    def kappa(self, x, y):
        """s(x) s(y) k + s(x) ∂k/∂y + s(y) ∂k/∂x + ∂²k/∂x∂y for k = exp(-(x - y)²/h)."""
        sx, sy, gap, h = self.score(x), self.score(y), x - y, self.h
        bracket = sx * sy + 2 * gap / h * (sx - sy) + 2 / h - 4 * gap**2 / h**2
        return bracket * np.exp(-(gap**2) / h)


@pytest.fixture
def recorded(monkeypatch):
    """Run a chunk and return its curves with the trials that it handed to `follow`."""

    def record(label="steinis", number=0, **changes):
        seen = {}

        def spy(target, q0, leaders, followers, **settings):
            seen.update(target=target, q0=q0, leaders=leaders, followers=followers)
            return follow(target, q0, leaders, followers, **settings)

        follow = gmm.follow
        monkeypatch.setattr(gmm, "follow", spy)
        data = run(label, number, **changes)
        monkeypatch.setattr(gmm, "follow", follow)
        trials = [
            Trial(seen["target"], seen["q0"], seen["leaders"], i) for i in range(len(data.trial))
        ]
        return data, trials, seen

    return record


def test_kl_at_the_start_is_that_of_q0(recorded):
    data, trials, _ = recorded()
    for i, trial in enumerate(trials):
        kl, error = integrate.quad(
            lambda x, t=trial: t.q0(x) * np.log(t.q0(x) / t.p(x)), -10, 10, epsabs=1e-12, limit=200
        )
        assert error < 1e-8
        assert float(data.kl[i, 0]) == pytest.approx(kl, abs=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["steinis", "svgd", "mean-field", "leaders-5"])
def test_kl_later_is_that_of_the_density_pushed_by_finite_differences(recorded, method):
    """Compose the maps on a fine grid, differentiate numerically, integrate over q_t's space."""
    data, trials, seen = recorded(method, n_grid=3201, n_times=3, n_trials=2)
    x = torch.linspace(-9 * 1.3, 9 * 1.3, 40_001, dtype=torch.float64)
    leaders, moved = seen["leaders"], x.expand(len(trials), -1).unsqueeze(-1)
    end = round(float(data.time[-1]) / 0.2)
    assert end == 15
    for _ in range(end):
        step_map = build(seen["target"], leaders, RBF(), 0.2)
        leaders, moved = step_map(leaders), step_map(moved)
    for i, trial in enumerate(trials):
        y = moved[i, :, 0].numpy()
        slope = np.gradient(y, x.numpy())
        assert slope.min() > 0  # one-to-one
        q = trial.q0(x.numpy()) / slope
        integrand = q * np.log(q / trial.p(y))
        kl = np.trapezoid(integrand, y)
        assert np.trapezoid(q, y) == pytest.approx(1, abs=1e-7)
        assert float(data.kl[i, -1]) == pytest.approx(kl, abs=1e-5)
        assert abs(kl - float(data.kl[i, 0])) > 1e-2  # the maps did something


def test_the_discrepancies_at_the_start_are_integrals_over_q0(recorded):
    data, trials, _ = recorded()
    x = np.linspace(-9 * 1.3, 9 * 1.3, 1501)
    for i, trial in enumerate(trials):
        weight = trial.q0(x) * (x[1] - x[0])
        assert weight.sum() == pytest.approx(1)
        double = weight @ trial.kappa(x[:, None], x[None]) @ weight
        assert float(data.ksd2[i, 0]) == pytest.approx(double, rel=1e-6)
        cross = np.mean([weight @ trial.kappa(leader, x) for leader in trial.leaders])
        assert float(data.ksd2_cross[i, 0]) == pytest.approx(cross, rel=1e-6)
        own = trial.kappa(trial.leaders[:, None], trial.leaders[None]).mean()
        assert float(data.ksd2_leaders[i, 0]) == pytest.approx(own, rel=1e-9)


def test_kl_falls_at_the_rate_of_the_cross_form_and_not_of_ksd2():
    data = run(step_size=0.01, end_time=0.4, n_times=5)
    rate, cross = data.kl_rate.values, data.ksd2_cross.values
    # A transition is one Euler step: its slope is that of the flow up to O(ε).
    np.testing.assert_allclose(rate, -cross, rtol=0.05, atol=0.01)
    assert np.abs(rate + data.ksd2.values).max() > 10 * np.abs(rate + cross).max()


def test_the_recorded_slope_is_that_of_the_recorded_curve():
    data = run(step_size=0.02, end_time=0.4, n_times=21)
    kl, t = data.kl.values, data.time.values
    np.testing.assert_allclose(t, 0.02 * np.arange(21))
    np.testing.assert_allclose(data.kl_rate[:, 0], (kl[:, 1] - kl[:, 0]) / 0.02, rtol=1e-9)
    central = (kl[:, 2:] - kl[:, :-2]) / 0.04
    np.testing.assert_allclose(data.kl_rate[:, 1:-1], central, rtol=1e-9)


@pytest.mark.slow
def test_estimates_from_followers_agree_with_the_exact_curves():
    n = 2000
    data = run(n_followers=n, n_trials=2, end_time=1.0, n_times=3, n_grid=201)
    assert abs(data.kl_followers - data.kl).max() < 0.1
    np.testing.assert_allclose(data.ksd2_followers, data.ksd2, rtol=0.25, atol=0.02)
    # Z = 1; the error of log Ẑ is about sqrt((1/ESS - 1)/n).
    error = np.sqrt((1 / data.ess - 1) / n)
    assert bool((abs(data.log_z) < 5 * error + 1e-9).all())
    assert bool(((data.ess > 0) & (data.ess <= 1)).all())


def test_a_chunk_does_not_depend_on_the_callers_random_state():
    first = run()
    torch.manual_seed(5)
    torch.rand(7)
    np.random.seed(5)  # noqa: NPY002
    xr.testing.assert_identical(first, run())


def test_chunks_trials_and_seeds_differ():
    rows = [*run().kl.values, *run(number=1).kl.values, *run(seed=2).kl.values]
    assert len({row.tobytes() for row in rows}) == len(rows) == 5


def test_trials_that_fill_no_chunk_form_a_smaller_one():
    assert [run(number=c).trial.values.tolist() for c in (0, 1)] == [[0, 1], [2]]
    with pytest.raises(IndexError):
        run(number=2)
    assert run(trials_per_chunk=50).trial.values.tolist() == [0, 1, 2]


def test_every_condition_has_its_cell_once():
    cells = gmm.cells(tiny(leader_counts=[5, 6]))
    assert {cell.n_trials for cell in cells} == {3}
    assert sorted(cell.label for cell in cells) == sorted([
        "steinis", "svgd", "mean-field", "steinis-wide", "svgd-wide", "mean-field-wide",
        "steinis-half-step", "leaders-5", "leaders-6",
    ])  # fmt: skip


def test_no_condition_is_run_under_two_names():
    """|A| = n_leaders is `steinis`; running it again as `leaders-…` would give the same curves."""
    for profile in ("quick", "paper"):
        p = gmm.GMMConvergence.of_profile(profile)
        assert p.n_leaders not in p.leader_counts


def test_all_conditions_share_mixtures_and_followers(recorded):
    starts, followers = [], []
    for method in [cell.label for cell in gmm.cells(tiny())]:
        data, _, seen = recorded(method, end_time=0.4, n_times=3)
        starts.append(data.kl.values[:, 0])
        followers.append(seen["followers"])
    for start, particles in zip(starts, followers, strict=True):
        np.testing.assert_array_equal(start, starts[0])
        assert torch.equal(particles, followers[0])


def test_conditions_differ_in_what_they_say(recorded):
    def leaders(method):
        return recorded(method, end_time=0.4, n_times=3)[2]["leaders"][0, :, 0]

    assert len(leaders("svgd")) == 9 and len(leaders("leaders-5")) == 5
    assert torch.equal(leaders("steinis"), leaders("steinis-wide"))
    assert torch.equal(leaders("steinis"), leaders("steinis-half-step"))
    quantiles = stats.norm.ppf((np.arange(12) + 0.5) / 12, scale=1.3)
    for method in ("mean-field", "mean-field-wide"):
        np.testing.assert_allclose(leaders(method), quantiles)


def test_leaders_are_random_draws_of_q0(recorded):
    _, _, seen = recorded(n_leaders=600, end_time=0.4, n_times=3, n_grid=101, n_trials=2)
    for leaders in seen["leaders"][:, :, 0]:
        assert stats.kstest(leaders.numpy(), "norm", (0, 1.3)).pvalue > 1e-3
    assert not torch.equal(seen["leaders"][0], seen["leaders"][1])


def test_half_the_step_ends_at_the_same_time_with_nearly_the_same_curve():
    full, half = (run(m, step_size=0.05) for m in ("steinis", "steinis-half-step"))
    np.testing.assert_allclose(full.time, half.time)
    np.testing.assert_allclose(full.kl, half.kl, rtol=0.03, atol=0.01)
    assert not np.array_equal(full.kl[:, 1:], half.kl[:, 1:])


def test_a_wider_kernel_gives_another_curve():
    assert abs(run("steinis").kl - run("steinis-wide").kl)[:, -1].min() > 1e-3


def test_curves_hardly_depend_on_the_grid():
    coarse, fine = run(n_grid=401), run(n_grid=1201)
    for name in ("kl", "ksd2", "ksd2_cross"):
        np.testing.assert_allclose(coarse[name], fine[name], rtol=1e-3, atol=1e-5)


def test_no_map_folds_at_small_steps_and_folds_are_counted_at_large_ones():
    assert float(run().folds.max()) == 0
    folded = run(step_size=1.0, component_scale=0.1, end_time=5.0)
    assert float(folded.folds.max()) > 0
    assert (np.diff(folded.folds, axis=1) >= 0).all()
