import pytest
import torch

from steinis_lib import Gaussian, GaussianMixture, LogProb
from steinis_lib.baselines import HAIS
from steinis_lib.extensions import mode_search
from steinis_lib.extensions.mode_search import climb, distinct, explore


@pytest.fixture
def badly_scaled():
    """Three components far apart, whose variances differ up to a hundredfold within each."""
    return GaussianMixture(
        torch.tensor([0.3, 0.5, 0.2]).log(),
        torch.tensor([[-6.0, 0, 2, 1, 0], [5, 3, -4, 0, 1], [0, -8, 0, 3, -3]]),
        torch.tensor([[0.1, 0.3, 1, 1, 0.5], [1, 0.5, 0.2, 2, 1], [2, 0.2, 0.4, 1, 0.6]]),
    )


def test_explorers_come_to_all_modes_and_the_same_again_for_the_same_seed(separated):
    q0 = Gaussian.isotropic(torch.zeros(5), 4.0)
    x, again = (explore(separated, q0, 60, 100, torch.Generator().manual_seed(3)) for _ in range(2))
    assert x.shape == (60, 5) and torch.equal(x, again)
    away = ((x.unsqueeze(1) - separated.means) / separated.scales).norm(dim=-1)
    assert set(away.argmin(-1).tolist()) == {0, 1, 2, 3}
    assert away.amin(-1).median() < 3  # sqrt(5) = 2.2 is typical of a draw


@pytest.mark.parametrize("first", [0.02, 0.49, 1.9e-4])
def test_the_explorers_step_adapts_as_wu_et_al(skewed, wide, generator, monkeypatch, first):
    steps, rates = [], []

    class Watched(HAIS):
        def step(self, state):
            new, info = super().step(state)
            steps.append(float(self.step_size))
            rates.append(float(info.acceptance))
            return new, info

    monkeypatch.setattr(mode_search, "HAIS", Watched)
    explore(skewed, wide, 50, 150, generator, step_size=first, n_leapfrog=1)
    epsilon, average = first, 0.65
    for step, rate in zip(steps, rates, strict=True):
        assert step == pytest.approx(epsilon)
        epsilon = min(max(epsilon * (1.02 if average > 0.65 else 0.98), 1e-4), 0.5)
        average = 0.9 * average + 0.1 * rate
    limits = {0.02: (0.1, 0.5), 0.49: (0.5, 0.5), 1.9e-4: (0, 0.01)}
    assert limits[first][0] <= epsilon <= limits[first][1]


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


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_start_without_a_density_is_refused(value):
    target = LogProb(lambda x: x.sum(-1) * 0 + value, 5)
    with pytest.raises(FloatingPointError, match=r"log_prob is .* at particle 0 \(3 of 3"):
        climb(target, torch.zeros(3, 5))


def test_a_height_that_is_no_number_is_refused():
    with pytest.raises(FloatingPointError, match="log_p is nan at particle 1"):
        distinct(torch.zeros(3, 5), torch.tensor([0.0, torch.nan, 0.0]), torch.ones(3), 2)
