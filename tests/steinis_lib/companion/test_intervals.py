import math

import numpy as np
import pytest
from scipy import stats

from steinis_lib.companion.intervals import (
    Estimate,
    bootstrap,
    mean,
    median,
    resamples,
    resampling,
    share,
)


def sigmas(hits, repeats, level=0.95):
    """How far a simulated coverage is from the nominal one, in its own standard errors."""
    return (hits / repeats - level) / math.sqrt(level * (1 - level) / repeats)


def test_mean_is_the_t_interval_of_scipy_and_of_the_textbook():
    x = np.random.default_rng(0).gamma(2.0, size=23)
    low, high = stats.t.interval(0.95, len(x) - 1, x.mean(), stats.sem(x))
    found = mean(x)
    assert (found.value, found.low, found.high) == pytest.approx((x.mean(), low, high), rel=1e-12)
    five = mean(np.array([1, 2, 3, 4, 5]))
    half = 2.7764451 * math.sqrt(2.5 / 5)
    assert (five.value, five.low, five.high) == pytest.approx((3, 3 - half, 3 + half), rel=1e-7)


def test_mean_covers_as_often_as_it_says_with_few_normal_trials():
    rng = np.random.default_rng(1)
    found = [mean(x) for x in rng.normal(2.0, 3.0, (1500, 5))]
    assert abs(sigmas(sum(e.low <= 2 <= e.high for e in found), len(found))) < 4


def test_mean_covers_nearly_as_often_on_skewed_trials():
    rng = np.random.default_rng(2)
    found = [mean(x) for x in rng.exponential(1.0, (1500, 100))]
    assert -5 < sigmas(sum(e.low <= 1 <= e.high for e in found), len(found)) < 3


@pytest.mark.parametrize(
    ("events", "trials", "low", "high"),
    [(8, 10, 0.4901625, 0.9433178), (0, 10, 0.0, 0.2775328), (50, 100, 0.4038315, 0.5961685)],
)
def test_share_is_the_wilson_interval(events, trials, low, high):
    found = share(np.arange(trials) < events)
    assert found.value == events / trials
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-6)
    z, p = stats.norm.ppf(0.975), events / trials
    centre = (p + z**2 / (2 * trials)) / (1 + z**2 / trials)
    half = z / (1 + z**2 / trials) * math.sqrt(p * (1 - p) / trials + z**2 / (4 * trials**2))
    assert (found.low, found.high) == pytest.approx((centre - half, centre + half), abs=1e-9)


@pytest.mark.parametrize("p", [0.05, 0.3, 0.5, 0.954])
def test_share_covers_as_often_as_it_says(p):
    """Exactly, by the binomial distribution; a discrete one cannot meet 95 % to the digit."""
    n = 60
    intervals = [share(np.arange(n) < k) for k in range(n + 1)]
    covered = sum(stats.binom.pmf(k, n, p) for k, e in enumerate(intervals) if e.low <= p <= e.high)
    assert 0.92 < covered < 0.985


def test_share_of_no_trials_is_refused():
    with pytest.raises(ValueError):
        share(np.array([], dtype=bool))


def test_bootstrap_of_a_mean_has_the_width_that_theory_gives():
    x = np.random.default_rng(3).exponential(size=400)
    value, low, high = bootstrap(x, lambda t: t.mean(0), repeats=4000)
    assert value == x.mean()
    # Two percentiles of 4000 draws: the width is known to about 2 %.
    assert high - low == pytest.approx(2 * 1.95996 * x.std() / 20, rel=0.08)
    assert low < value < high


@pytest.mark.slow
@pytest.mark.parametrize(
    ("summary", "truth"), [(np.mean, 1.0), (np.median, math.log(2))], ids=["mean", "median"]
)
def test_bootstrap_covers_as_often_as_it_says_on_skewed_trials(summary, truth):
    rng, hits, repeats = np.random.default_rng(4), 0, 200
    for i in range(repeats):
        x = rng.exponential(1.0, 100)
        _, low, high = bootstrap(x, lambda t: summary(t, axis=0), repeats=150, seed=i)
        hits += bool(low <= truth <= high)
    assert -4 < sigmas(hits, repeats) < 3


def test_bootstrap_draws_whole_trials():
    x = np.random.default_rng(5).exponential(size=(30, 1))
    value, low, high = bootstrap(x * [1.0, -2.0], lambda t: t.mean(0), repeats=300)
    assert value.shape == low.shape == high.shape == (2,)
    assert value[1] == pytest.approx(-2 * value[0])
    assert (low[1], high[1]) == pytest.approx((-2 * high[0], -2 * low[0]))


def test_bootstrap_is_reproducible_and_its_seed_matters():
    x = np.random.default_rng(6).exponential(size=30)
    first, again, other = (
        bootstrap(x, lambda t: t.mean(0), repeats=100, seed=seed)[1] for seed in (1, 1, 2)
    )
    assert first == again != other


def test_median_is_the_bootstrap_of_the_median():
    x = np.random.default_rng(7).exponential(size=41)
    value, low, high = bootstrap(x, lambda t: np.median(t, axis=0))
    assert median(x) == Estimate(float(value), float(low), float(high))
    assert median(x).value == np.sort(x)[20]
    # The order statistics that the binomial distribution gives as a 95 % interval, give or take.
    assert np.sort(x)[12] <= median(x).low <= np.sort(x)[16]
    assert np.sort(x)[24] <= median(x).high <= np.sort(x)[28]


@pytest.mark.parametrize("statistic", [mean, median])
def test_a_trial_that_is_nan_is_not_hidden(statistic):
    assert math.isnan(statistic(np.array([1.0, 2.0, math.nan])).value)


def test_equal_trials_have_an_interval_of_no_width():
    assert mean(np.full(5, 0.25)) == median(np.full(5, 0.25)) == Estimate(0.25, 0.25, 0.25)


def test_resamples_can_be_fewer_for_a_while():
    seen = []

    def summary(x):
        seen.append(x)
        return x.mean(0)

    with resampling(7):
        assert resamples() == resamples(30) == 7
        bootstrap(np.arange(5.0), summary)
        assert len(seen) == 7 + 1
        bootstrap(np.arange(5.0), summary, repeats=3)
        assert len(seen) == 8 + 3 + 1
    assert (resamples(), resamples(30)) == (2000, 30)
    with pytest.raises(RuntimeError), resampling(7):
        raise RuntimeError
    assert resamples() == 2000
