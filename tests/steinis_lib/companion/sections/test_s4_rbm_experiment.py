from dataclasses import replace

import numpy as np
import pytest
import torch
from cells import Cells

from steinis_lib import ImportanceSample
from steinis_lib.companion.method_readings import Reading
from steinis_lib.companion.methods import build_steinis
from steinis_lib.companion.parameters import ParameterError
from steinis_lib.companion.problems.rbm import random_rbm
from steinis_lib.companion.runner.experiment import stream
from steinis_lib.companion.search import PATIENCE
from steinis_lib.companion.sections.s4_rbm import experiment as rbm
from steinis_lib.companion.sections.s4_rbm.determinants import CHECK_MULTIPLIER
from steinis_lib.companion.sections.s4_rbm.experiment import EXPERIMENT, label, trials
from steinis_lib.companion.sections.s4_rbm.problem import NAME, RBMPartition, initial, models
from steinis_lib.companion.settings import FAMILIES, METHODS, TUNED, Setting

TINY = {
    "n_trials": 5,
    "n_trials_extra": 4,
    "n_trials_other": 3,
    "n_trials_starts": 2,
    "n_trials_between": 2,
    "n_trials_long": 3,
    "trials_per_chunk": 3,
    "dims": (2, 4),
    "dims_between": (3,),
    "n_hidden": 3,
    "n_leaders": 15,
    "n_followers": 10,
    "transitions": (3, 10),
    "n_candidates": 12,
    "tuning_repeats": 2,
    "determinant_steps": (0.02, 0.2),
    "determinant_transitions": 4,
    "determinant_trials": 2,
}


@pytest.fixture(scope="module")
def tiny():
    return Cells(EXPERIMENT, RBMPartition.of_profile("paper", TINY))


@pytest.mark.slow
def test_every_tuned_method_has_the_same_budget(tiny):
    records = tiny.all_pilots()
    assert {name.split("-tuning-")[0] for name in records} == {
        "standard", "matched", "wide", "bias",
    }  # fmt: skip
    for name, record in records.items():
        # Two models for each candidate: 10 transitions with 15 leaders' scores, or one score of
        # each of 10 particles a transition and one more at the start. HAIS-10L has a single
        # transition, with ten scores of each particle.
        cost = 10 * 15 if "steinis" in name else (10 + 1) * 10
        assert set(record.gradients.values.ravel()) == {2 * cost}, name
        assert 12 <= record.sizes["candidate"] <= 12 * PATIENCE, name
    default = RBMPartition.of_profile("paper")
    leaders = default.transitions[-1] * default.n_leaders
    particles = (default.transitions[-1] + 1) * default.n_followers
    assert abs(leaders / particles - 1) < 0.01  # equal at the sizes that are published
    assert default.transitions[-1] % 10 == 0  # and HAIS-10L spends no less


def test_pilots_are_measured_against_the_exact_log_z(tiny):
    """At q0 with the target's own moments a mean log-weight is near log Z, which varies by nats."""
    record = tiny.whole(rbm.tuning_label("matched", "hais-1l", 4))
    assert -1.5 < float(record.score.max()) < 0.5
    assert abs(random_log_z(4)) > 5


def random_log_z(dim):
    pilots = stream(1, NAME, f"pilot-models-{dim}", 0)
    return float(random_rbm(dim, 3, pilots, batch_shape=(2,)).log_z.mean())


def test_leaders_are_tuned_by_the_error(tiny):
    record = tiny.whole(rbm.tuning_label("standard", "steinis-leaders", 2))
    assert (record.score.values <= 0).all()  # -|log Ẑ - log Z|


def test_cells_cover_all_trials_once(tiny):
    p = tiny.parameters
    first, rest = EXPERIMENT.stages(p)
    assert len(first) == len(TUNED) * 3 + 3 * 2
    assert len(rest) == 1 + len(METHODS) * 4 + len(rbm.BETWEEN) + len(rbm.OTHER_STARTS) * 2
    for method in ("is", "steinis-adagrad", "hais-10l"):
        n = {"is": 5, "steinis-adagrad": 4, "hais-10l": 3}[method]
        assert tiny.trials(label("standard", method, 2)) == list(range(n))
    assert trials(p, "fixed", "hais-10l", 4) == 3
    assert trials(p, "bias", "ais", 4) == 2
    assert trials(p, "standard", "steinis", 3) == 2
    few = RBMPartition.of_profile("paper", {"n_trials": 10})
    assert trials(few, "standard", "steinis-double", 10) == 10  # no more than the main methods


def test_a_dimension_between_takes_the_settings_of_the_nearest_tuned_one(tiny):
    p = RBMPartition.of_profile("paper")
    assert rbm.all_dims(p) == list(range(10, 101, 10))
    tuned_at = {
        d: int(rbm.tuning_of(p, "standard", "ais-unadjusted", d).rsplit("-", 1)[1])
        for d in rbm.all_dims(p)
    }
    assert tuned_at == {
        10: 10, 20: 20, 30: 20, 40: 50, 50: 50, 60: 50, 70: 50, 80: 100, 90: 100, 100: 100,
    }  # fmt: skip
    assert rbm.tuning_of(p, "fixed", "ais", 100) == rbm.tuning_label("standard", "ais", 100)
    assert tiny.run(label("standard", "steinis-double", 3)).transitions.values.tolist() == [3, 10]


def test_dimensions_between_stay_between():
    p = RBMPartition.of_profile("paper", {"dims": (5, 20), "dims_between": (2, 5, 10, 30)})
    assert rbm.all_dims(p) == [5, 10, 20]


@pytest.mark.parametrize("method", METHODS)
def test_transitions_are_all_at_the_largest_dimension_and_else_the_last(tiny, method):
    largest = tiny.run(label("standard", method, 4))
    assert np.isfinite(largest.error.values).all()
    expected = [0] if method == "is" else [3, 10]
    assert largest.transitions.values.tolist() == expected
    small = tiny.run(label("standard", method, 2))
    assert small.transitions.values.tolist() == ([3, 10] if "steinis" in method else expected[-1:])


def test_all_methods_meet_the_same_models(tiny):
    def log_z(condition, method):
        return tiny.run(label(condition, method, 4)).log_z.values

    redrawn = log_z("standard", "is")
    assert len(set(redrawn)) == 3
    for condition, method in (("standard", "steinis"), ("standard", "ais"), ("matched", "is")):
        np.testing.assert_array_equal(log_z(condition, method), redrawn)
    for condition in ("wide", "bias"):  # two trials, where the others have three in a chunk
        np.testing.assert_array_equal(log_z(condition, "ais"), redrawn[:2])
    fixed = tiny.run(label("fixed", "is", 4))
    assert len(set(fixed.log_z.values)) == 1
    assert fixed.model.values.tolist() == [0, 0, 0]
    assert len(set(fixed.error.values.ravel())) == 3  # other particles in each trial
    second = tiny.run(label("standard", "is", 4), 1)
    assert second.model.values.tolist() == [3, 4]
    assert not set(second.log_z.values) & set(redrawn)


def test_matched_q0_has_the_models_moments():
    target = random_rbm(3, 4, torch.Generator().manual_seed(2), batch_shape=(2,))
    q0 = initial("matched", target)
    x = target.sample((2, 200_000), torch.Generator().manual_seed(3))
    error = x.std(-2) / 200_000**0.5
    assert ((x.mean(-2) - q0.mean) / error).abs().max() < 4
    by_hand = (x.mT @ x) / 200_000 - x.mean(-2).unsqueeze(-1) * x.mean(-2).unsqueeze(-2)
    torch.testing.assert_close(q0.scale_tril @ q0.scale_tril.mT, by_hand, rtol=0.05, atol=0.05)


def test_other_initial_distributions():
    target = random_rbm(3, 4, torch.Generator().manual_seed(2), batch_shape=(2,))
    for condition, mean, scale in (
        ("standard", torch.zeros(3), 1.0),
        ("fixed", torch.zeros(3), 1.0),
        ("wide", torch.zeros(3), 2.0),
        ("bias", target.bias_x, 1.0),
    ):
        q0 = initial(condition, target)
        assert torch.equal(q0.mean, mean.double())
        assert torch.equal(q0.scale_tril, scale * torch.eye(3).double())


def test_what_is_measured_of_exact_draws():
    """For draws from p itself, with log w = log Z: no error, and the exact moments."""
    target = random_rbm(4, 3, torch.Generator().manual_seed(5), batch_shape=(2,))
    n = 100_000
    x = target.sample((2, n), torch.Generator().manual_seed(6))
    sample = ImportanceSample(x, target.log_z[:, None].expand(2, n))
    found = rbm._measured(target, Reading(0, sample, n))
    for name, exact in (("error", 0.0), ("mean_log_w", 0.0), ("ess", 1.0)):
        torch.testing.assert_close(found[name], torch.full_like(found[name], exact))
    exact = target.covariance.diagonal(dim1=-2, dim2=-1).mean(-1)
    torch.testing.assert_close(found["variance"], exact, rtol=0.02, atol=0)
    # The likeliest state by enumeration, and how often sign φ(x) is that state, by its definition.
    states = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 3).double()
    for i in range(2):
        h = states[target.state_log_probs[i].argmax()]
        phi = x[i] @ target.coupling[i] + target.bias_h[i]
        assert float(found["in_likeliest"][i]) == float((phi * h > 0).all(-1).double().mean())


@pytest.mark.parametrize("method", [*FAMILIES, "steinis-leaders"])
def test_steinis_reads_the_curve_off_one_run(tiny, method):
    name = label("standard", method, 4)
    long = tiny.run(name)
    short = RBMPartition.of_profile("paper", TINY | {"transitions": (3,)})
    alone = Cells(EXPERIMENT, short, tiny.pilots).run(name)
    for name in ("error", "ess", "variance", "leader_variance", "kernel_value"):
        np.testing.assert_array_equal(long[name].sel(transitions=3), alone[name].sel(transitions=3))
    assert ((long.kernel_value > 0) & (long.kernel_value < 1)).all()


def test_first_order_determinants_are_off_by_the_square_of_the_step(tiny):
    found = tiny.run(rbm.DETERMINANTS, 1)
    assert found.trial.values.tolist() == [1]
    assert (found.seconds_exact > 0).all() and found.seconds_exact.attrs["units"] == "s"
    bias = np.abs(found.log_w_bias.values[0])
    assert 0 < bias[0] < bias[1] / 15  # ε grows by ten, the bias by its square or so
    assert np.abs(found.log_z_bias.values[0]).argmax() == 1


def test_the_determinants_bias_is_of_the_sign_it_says(tiny):
    """Track the same run twice, apart, and compare log Ẑ."""
    target = models(tiny.parameters, "standard", 4, 1, 0)
    first_order = build_steinis(
        target, initial("standard", target), Setting(0.2, 0.0, CHECK_MULTIPLIER),
        n_leaders=15, n_followers=10, determinant="first-order",
    )  # fmt: skip
    log_z, mean = [], []
    for sampler in (first_order, replace(first_order, determinant="exact")):
        generator = stream(tiny.parameters.seed, NAME, "determinants", 0)
        for _ in tiny.parameters.determinant_steps:  # the last of them is 0.2
            state = sampler.init(generator, batch_shape=(1,))
        sample = sampler.importance_sample(sampler.run(state, 4))
        log_z.append(float(sample.log_z))
        mean.append(float(sample.log_w.mean()))
    found = tiny.run(rbm.DETERMINANTS).sel(trial=0, step_size=0.2)
    assert float(found.log_z_bias) == pytest.approx(log_z[0] - log_z[1], rel=1e-6)
    assert float(found.log_w_bias) == pytest.approx(mean[0] - mean[1], rel=1e-6)


@pytest.mark.parametrize("name", ["dims", "transitions"])
def test_sizes_must_rise(name):
    with pytest.raises(ParameterError, match=f"{name}: must rise strictly"):
        RBMPartition.of_profile("quick", {name: [10, 5]})
