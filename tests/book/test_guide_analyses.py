"""The guide's analyses: their results agree with truths that are computed in other ways."""

import csv
import math
from typing import Any

import numpy as np
import pytest
from examples import guide
from guide_checks import z_score
from scipy import special, stats


@pytest.fixture(scope="module")
def analyses() -> dict[str, Any]:
    return guide.run_page("guide/analyses")[1]


def column(name: str, field: str) -> np.ndarray:
    with (guide.DATA / f"{name}.csv").open(encoding="utf-8") as file:
        return np.array([float(row[field]) for row in csv.DictReader(file)])


def log_evidence_of_a_regression(y: np.ndarray, x: np.ndarray) -> float:
    """Return log Z by sufficient statistics, which are independent, on a grid of log σ²."""
    n, centred = len(y), x - x.mean()
    sxx = float(centred @ centred)
    slope = float(centred @ y) / sxx
    rest = y - y.mean() - slope * centred
    grid = np.linspace(9, 15, 4001)
    v = np.exp(grid)
    log_p = stats.norm(3000, np.sqrt(1000**2 + v / n)).logpdf(y.mean())
    log_p += stats.norm(185, np.sqrt(100**2 + v / sxx)).logpdf(slope)
    log_p -= 0.5 * (n - 2) * np.log(2 * np.pi * v) + float(rest @ rest) / (2 * v)
    log_p -= 0.5 * math.log(n * sxx)
    log_p += stats.invgamma(3, scale=180000).logpdf(v) + grid
    return float(special.logsumexp(log_p)) + math.log(grid[1] - grid[0])


@pytest.mark.slow
def test_radiata_pine(analyses: dict[str, Any]) -> None:
    y = column("radiata_pine", "strength")
    exact = [
        log_evidence_of_a_regression(y, column("radiata_pine", name))
        for name in ("density", "adjusted_density")
    ]
    assert analyses["truths"] == pytest.approx(exact, abs=1e-4)
    assert round(math.exp(exact[1] - exact[0])) == 4862  # as published
    for found, truth in zip(analyses["models"], exact, strict=True):
        assert found.warnings == ()
        assert abs(z_score(found, truth)) < 4
    assert abs(math.log(analyses["factor"]) - (exact[1] - exact[0])) < 4 * analyses["log_error"]
    assert 1000 < analyses["factor"] < 10000  # "several thousand"


def log_evidence_of_schools() -> float:
    """Return log Z on a grid of μ and log τ, with only the effects integrated out."""
    y, s = column("eight_schools", "effect"), column("eight_schools", "standard_error")
    mu, log_tau = np.linspace(-40, 40, 801)[:, None], np.linspace(-20, 12, 1601)
    tau = np.exp(log_tau)
    log_p = stats.norm(0, 5).logpdf(mu) + stats.halfcauchy(scale=5).logpdf(tau) + log_tau
    for effect, error in zip(y, s, strict=True):
        log_p = log_p + stats.norm(mu, np.hypot(error, tau)).logpdf(effect)
    return float(special.logsumexp(log_p)) + math.log(0.1 * 0.02)


@pytest.mark.slow
def test_eight_schools(analyses: dict[str, Any]) -> None:
    exact = log_evidence_of_schools()
    assert analyses["truth"] == pytest.approx(exact, abs=1e-4)
    forms = ("centred", "non_centred", "integrated")
    centred, non_centred, integrated = (analyses[f"schools_{form}"] for form in forms)
    for found in (centred, non_centred, integrated):
        assert abs(z_score(found, exact)) < 4
    assert {doubt.cause for doubt in centred.doubts} <= {"tail"}  # "large weights can remain"
    assert non_centred.warnings == integrated.warnings == ()
    assert (centred.route, non_centred.route) == (("map",), ("mixture",))
    assert centred.n_evaluations > 2 * non_centred.n_evaluations  # "several times as often"
    assert non_centred.n_evaluations > integrated.n_evaluations
    assert integrated.log_z_se < non_centred.log_z_se


def log_evidence_of_coal() -> tuple[float, np.ndarray]:
    """Return log Z of one rate, and the terms of each year, by quadrature over rates."""
    counts = column("coal_mining", "disasters")
    rates = np.linspace(1e-4, 12, 12000)
    log_step = math.log(rates[1] - rates[0])
    log_pmf = stats.poisson.logpmf(counts[:, None], rates)
    prior = stats.gamma(2).logpdf(rates)

    def integral(rows: np.ndarray) -> float:
        return float(special.logsumexp(rows.sum(0) + prior)) + log_step

    pairs = [integral(log_pmf[:s]) + integral(log_pmf[s:]) for s in range(1, len(counts))]
    return integral(log_pmf), np.array(pairs) - math.log(len(counts) - 1)


@pytest.mark.slow
def test_coal_mining(analyses: dict[str, Any]) -> None:
    assert column("coal_mining", "year").tolist() == list(range(1851, 1963))
    assert column("coal_mining", "disasters").sum() == 191
    one, terms = log_evidence_of_coal()
    two = float(special.logsumexp(terms))
    assert analyses["truth_constant"] == pytest.approx(one, abs=1e-4)
    assert analyses["truth_change"] == pytest.approx(two, abs=1e-4)
    for name, truth in (("constant_rate", one), ("change", two)):
        assert analyses[name].warnings == ()
        assert abs(z_score(analyses[name], truth)) < 4
    shares, errors = analyses["shares"].numpy(), analyses["share_errors"].numpy()
    assert shares.sum() == pytest.approx(1)
    exact = special.softmax(terms)
    top = exact.argsort()[-3:]
    assert (abs(shares - exact)[top] < 4 * errors[top]).all()
    z = np.array(analyses["z"])
    assert stats.chi2(len(z)).ppf(1e-4) < (z**2).sum() < stats.chi2(len(z)).ppf(1 - 1e-4)
