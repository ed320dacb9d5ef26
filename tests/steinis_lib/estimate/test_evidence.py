"""What is returned, in the coordinates and names of who asks."""

import math

import pytest
import torch
from quick_find import quick_find
from torch.distributions import Dirichlet, Gamma, Normal

from steinis_lib import Evidence, ImportanceSample, estimate_log_z
from steinis_lib.estimate import Doubt, log_z
from steinis_lib.estimate.summary import summarise, weighted_quantile

SHARES, NEAR = torch.tensor([2.0, 1.0, 3.0]), Normal(torch.tensor([0.8, 1.2]), 0.7)


@pytest.fixture
def named(monkeypatch):
    """Three parameters of different kinds whose posterior is known: log Z and means."""
    monkeypatch.setattr(log_z, "find", quick_find)

    def log_prob(p):
        log_p = Gamma(3.0, 3.0).log_prob(p["sigma"]) + p["mix"].log() @ SHARES
        return log_p + Normal(1.0, 0.5).log_prob(p["b"]).sum(-1)

    return estimate_log_z(
        log_prob,
        parameters={"sigma": "positive", "mix": ("simplex", 3), "b": ("real", 2)},
        q0={"sigma": Gamma(2.0, 2.0), "mix": Dirichlet(torch.tensor([2.0, 2.0, 2.0])), "b": NEAR},
        n_samples=20_000,
    )


def test_log_z_counts_the_jacobian(named):
    truth = math.lgamma(3) + math.lgamma(2) + math.lgamma(4) - math.lgamma(9)
    assert abs(named.log_z - truth) < 4 * named.log_z_se
    assert named.log_z_se < 0.1


def test_expectations_and_summary_have_names_and_agree(named):
    mean, error = named.expectation(lambda p: p["mix"])
    assert ((mean - torch.tensor([3.0, 2.0, 4.0]) / 9).abs() < 4 * error).all()
    one, se = named.expectation(lambda p: p["sigma"])
    assert one.shape == ()
    summary = named.summary()
    assert summary.names == ("sigma", "mix[0]", "mix[1]", "mix[2]", "b[0]", "b[1]")
    assert summary["sigma"]["mean"] == pytest.approx(float(one))
    assert summary["sigma"]["se"] == pytest.approx(float(se))
    assert summary["mix[2]"]["mean"] == pytest.approx(float(mean[2]))
    b = summary["b[1]"]
    assert b["sd"] == pytest.approx(0.5, rel=0.1)
    assert [b[level] for level in ("5%", "50%", "95%")] == pytest.approx(
        [1 - 0.822, 1.0, 1 + 0.822], abs=0.1
    )
    lines = str(summary).splitlines()
    assert lines[0].split() == ["mean", "se", "sd", "5%", "50%", "95%"]
    assert len(lines) == 7
    with pytest.raises(KeyError, match=r"c: there are sigma, mix\[0\]"):
        summary["c"]


@pytest.mark.slow
def test_draws_for_arviz_have_names_and_shapes(named):
    posterior = named.to_arviz().posterior
    assert {name: value.shape for name, value in posterior.items()} == {
        "sigma": (2, 10_000),
        "mix": (2, 10_000, 3),
        "b": (2, 10_000, 2),
    }
    assert posterior["mix"].to_numpy().sum(-1) == pytest.approx(1.0)
    mean, error = named.expectation(lambda p: p["sigma"])
    assert abs(float(posterior["sigma"].mean()) - mean) < 2 * error


def test_without_parameters_the_name_is_x(monkeypatch):
    monkeypatch.setattr(log_z, "find", quick_find)
    found = estimate_log_z(lambda x: -x.square().sum(-1), 2, n_samples=200)
    assert found.draws["x"] is found.sample.particles
    assert found.summary().names == ("x[0]", "x[1]")
    mean, error = found.expectation(lambda x: x)
    assert mean.shape == error.shape == (2,)


def evidence(*doubts, n_invalid=None):
    log_w = torch.linspace(-0.1, 0.1, 400)
    sample = ImportanceSample(torch.zeros(400, 1), log_w)
    return Evidence(sample, log_w[:2], doubts, ("q0",), 12345, n_invalid or {})


def test_it_prints_as_a_short_table():
    found = evidence()
    assert repr(found) == str(found)
    lines = str(found).splitlines()
    assert lines[0].split() == ["log", "Z", f"{found.log_z:.4f}", "±", f"{found.log_z_se:.4f}"]
    assert [line.split()[0] for line in lines[1:]] == [
        *("verdict", "ESS", "Pareto-k", "evaluations", "doubts")
    ]
    assert lines[1].split()[1] == "trusted"
    assert lines[4].split()[1] == "12,345"
    assert lines[5].split()[1] == "none"


def test_doubts_are_told_and_decide_the_verdict():
    light = Doubt("tail", "a few weights carry the estimate " * 5, 1.0)
    found = evidence(light, n_invalid={"nan": 1234})
    assert (found.verdict, found.warnings) == ("doubtful", (light.message,))
    text = str(found)
    assert "no value at  nan 1,234" in text
    assert "  - tail: a few weights" in text
    assert max(map(len, text.splitlines())) <= 79
    assert evidence(light, Doubt("noise", "…", 9.0, fatal=True)).verdict == "failed"


def test_quantiles_are_those_of_repeated_draws(generator):
    x = torch.randn(50, 2, generator=generator)
    counts = torch.randint(0, 4, (50,), generator=generator)
    repeated = x.repeat_interleave(counts, 0)
    w = (counts / counts.sum()).unsqueeze(-1)
    for level in (0.05, 0.5, 0.95):
        exact = repeated.quantile(level, 0, interpolation="higher")
        position = math.ceil(level * len(repeated) - 1e-9) - 1
        exact = repeated.sort(0).values[position]
        torch.testing.assert_close(weighted_quantile(x, w, level), exact)


def test_moments_are_those_of_repeated_draws(generator):
    x = torch.randn(50, 1, generator=generator)
    counts = torch.randint(1, 4, (50,), generator=generator)
    repeated = x.repeat_interleave(counts, 0)
    row = summarise(["a"], x, counts.double().log())["a"]
    assert row["mean"] == pytest.approx(float(repeated.mean()))
    assert row["sd"] == pytest.approx(float(repeated.std(unbiased=False)))
