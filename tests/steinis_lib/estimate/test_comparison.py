import math

import pytest
import torch

from steinis_lib import Evidence, ImportanceSample, compare
from steinis_lib.estimate import Doubt


def evidence(log_z, se, doubts=(), seed=0):
    """Return what has this log Z and standard error."""
    w = 1 + se * 20 * torch.tensor([-1.0, 1.0]).repeat(200) * math.sqrt(399 / 400)
    log_w = w.log() - w.log().logsumexp(0) + math.log(400) + log_z
    sample = ImportanceSample(torch.zeros(400, 1), log_w)
    return Evidence(sample, log_w[:2], tuple(doubts), ("q0", "q0"), 400)


def test_factors_and_probabilities_have_joint_errors():
    found = compare({"H0": evidence(-3.0, 0.01), "H1": evidence(-2.0, 0.02)})
    assert found.best == "H1"
    factor, se = found.log_bayes_factor("H1", "H0")
    assert factor == pytest.approx(1.0)
    assert se == pytest.approx(math.hypot(0.01, 0.02), rel=1e-6)
    assert found.log_bayes_factor("H0", "H0") == (0.0, 0.0)
    p = 1 / (1 + math.exp(-1))
    assert found.probabilities == pytest.approx({"H0": 1 - p, "H1": p})
    # With two models, both errors are that of the factor times p (1 - p).
    assert found.probability_errors == pytest.approx(dict.fromkeys(["H0", "H1"], p * (1 - p) * se))


def test_errors_of_probabilities_are_those_of_random_log_z(generator):
    models = {"a": evidence(0.0, 0.02), "b": evidence(0.7, 0.04), "c": evidence(-0.4, 0.03)}
    found = compare(models, {"a": 1, "b": 1, "c": 2})
    se = torch.tensor([0.02, 0.04, 0.03])
    log_p = torch.tensor([0.0, 0.7, -0.4 + math.log(2)])
    noisy = (log_p + se * torch.randn(100_000, 3, generator=generator)).softmax(-1)
    assert list(found.probability_errors.values()) == pytest.approx(noisy.std(0).tolist(), rel=0.03)


def test_prior_weights_count_in_proportion():
    models = {"a": evidence(0.0, 0.01), "b": evidence(0.0, 0.01)}
    found = compare(models, {"a": 6, "b": 2})
    assert found.prior == {"a": 0.75, "b": 0.25}
    assert found.probabilities == pytest.approx({"a": 0.75, "b": 0.25})
    assert found.log_bayes_factor("a", "b")[0] == pytest.approx(0.0)


def test_functions_get_generators_of_their_own():
    seeds = []

    def model(generator):
        seeds.append(float(torch.rand((), generator=generator)))
        return evidence(0.0, 0.01)

    compare({"a": model, "b": model})
    compare({"a": evidence(0.0, 0.01), "b": model})
    compare({"a": model}, generator=torch.Generator().manual_seed(1))
    assert seeds[0] != seeds[1]
    assert seeds[2] == seeds[1]  # whatever the others are
    assert seeds[3] not in seeds[:2]


def test_it_prints_the_best_model_first_and_each_verdict():
    doubt = Doubt("tail", "…", 1.0)
    found = compare({"H0": evidence(-3.0, 0.01, [doubt]), "H1": evidence(-2.0, 0.02)})
    assert repr(found) == str(found)
    header, first, second, note = str(found).splitlines()
    assert header.split() == ["model", "log", "Z", "log", "factor", "probability", "verdict"]
    assert note == "log factor: log Bayes factor against H1"
    assert " ".join(first.split()) == "H1 -2.000 ± 0.020 0 0.7311 ± 0.0044 trusted"
    assert " ".join(second.split()) == ("H0 -3.000 ± 0.010 -1.000 ± 0.022 0.2689 ± 0.0044 doubtful")


@pytest.mark.parametrize(
    ("models", "prior", "kind", "message"),
    [
        ({}, None, ValueError, "there is no model to compare"),
        ({"a": 1.0}, None, TypeError, "model 'a' must be Evidence, .* got a float"),
        ({"a": lambda g: 1.0}, None, TypeError, "model 'a' must be Evidence"),
        ({"a": evidence(0.0, 0.01)}, {"b": 1}, ValueError, "a positive weight for each of a; got"),
        ({"a": evidence(0.0, 0.01)}, {"a": 0}, ValueError, "a positive weight for each of a; got"),
    ],
)
def test_what_cannot_be_compared_is_refused(models, prior, kind, message):
    with pytest.raises(kind, match=message):
        compare(models, prior)


def test_unknown_models_are_refused():
    found = compare({"a": evidence(0.0, 0.01)})
    with pytest.raises(KeyError, match="there is no model 'b'; there are a"):
        found.log_bayes_factor("a", "b")
