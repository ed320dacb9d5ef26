import math

import pytest
import torch

from steinis_lib import RBF, Gaussian, GaussianMixture, SteinIS
from steinis_lib.companion.methods import build_sampler
from steinis_lib.companion.search import Failure, best
from steinis_lib.companion.settings import axes_of
from steinis_lib.companion.tuning import Axis, tune_sampler
from steinis_lib.companion.tuning_records import ends, tuning_record

FIRST = (0.05, 0.2, 0.8)


def seeded():
    return torch.Generator().manual_seed(3)


def a_mixture():
    means = torch.tensor([[1.0, -0.4], [-0.6, 0.9]])
    return GaussianMixture(torch.tensor([0.3, 0.7]).log(), means, 0.6 + means.abs() / 2)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["steinis-wide", "steinis-adagrad", "hais-1l", "ais"])
def test_the_chosen_setting_is_inside_and_its_score_below_log_z(method):
    q0 = Gaussian.isotropic(torch.tensor([2.0, 1.5]))

    def make(setting):
        return build_sampler(method, a_mixture(), q0, setting, 20, n_leaders=30, n_followers=30)

    trials = tune_sampler(axes_of(method), make, 20, seeded(), n_candidates=24, repeats=20)
    top = best(trials)
    worst = min(trial.score for trial in trials if trial.failure == Failure.NONE)
    assert top.score > worst + 4 * top.standard_error
    assert top.score < 4 * top.standard_error  # log Z = 0
    found = ends(tuning_record(trials), axes_of(method))
    assert "end of the range" not in found.values()


@pytest.mark.parametrize("method", ["steinis", "steinis-leaders", "hais-10l", "ais"])
@pytest.mark.parametrize("batch_shape", [(), (3,)])
def test_candidates_meet_the_same_draws_at_the_same_cost(skewed, wide, method, batch_shape):
    def make(setting):
        return build_sampler(method, skewed, wide, setting, 4, n_leaders=6, n_followers=5)

    stream = seeded()
    axes = (Axis("alpha", FIRST, 2.0),)
    trials = tune_sampler(axes, make, 4, stream, n_candidates=4, repeats=7, batch_shape=batch_shape)
    each = {"hais-10l": (4 * 10 + 1) * 5, "ais": (4 + 1) * 5}.get(method, 4 * 6)
    assert [trial.gradients for trial in trials] == [7 * each * math.prod(batch_shape)] * 4
    assert torch.equal(stream.get_state(), seeded().get_state())
    for trial in trials:
        run = make(trial.candidate)
        state = run.run(run.init(seeded(), batch_shape=(7, *batch_shape)), 4)
        values = run.importance_sample(state).log_w.mean(-1)
        if trial.failure == Failure.NONE and not (
            method.startswith("steinis") and bool((state.n_folds > 0).any())
        ):
            assert trial.score == pytest.approx(float(values.mean()), rel=1e-5)
            error = float(values.std() / math.sqrt(values.numel()))
            assert trial.standard_error == pytest.approx(error)


def test_a_reference_makes_problems_comparable_and_errors_can_count(skewed, wide):
    def make(setting):
        return build_sampler("hais-1l", skewed, wide, setting, 4, n_leaders=6, n_followers=50)

    reference = skewed.log_z.expand(7)

    def tuned(**options):
        axes = (Axis("alpha", FIRST, 2.0, low=FIRST[0], high=FIRST[-1]),)
        return tune_sampler(axes, make, 4, seeded(), n_candidates=3, repeats=7, **options)

    for plain, less, error in zip(
        tuned(), tuned(reference=reference), tuned(reference=reference, merit="error"), strict=True
    ):
        assert less.score == pytest.approx(plain.score - float(skewed.log_z), abs=1e-5)
        run = make(plain.candidate)
        state = run.run(run.init(seeded(), batch_shape=(7,)), 4)
        log_z = run.importance_sample(state).log_z
        assert error.score == pytest.approx(-float((log_z - skewed.log_z).abs().mean()), rel=1e-5)
        assert error.score < 0


def lopsided_run(lopsided, alphas):
    """Pilots of one transition with a narrow kernel: steps of 1.5 fold in about half of them."""
    q0 = Gaussian.isotropic(torch.zeros(1), 2.0)

    def make(setting):
        return SteinIS(
            lopsided, q0, kernel=RBF(bandwidth=0.3), step_size=setting.alpha, n_leaders=20,
            n_followers=20,
        )  # fmt: skip

    axes = (Axis("alpha", alphas, 2.0, low=alphas[0], high=alphas[-1]),)
    trials = tune_sampler(axes, make, 1, seeded(), n_candidates=len(alphas), repeats=50)
    folds = []
    for trial in trials:
        run = make(trial.candidate)
        state = run.run(run.init(seeded(), batch_shape=(50,)), 1)
        folds.append((run.importance_sample(state).log_w.mean(-1), state.n_folds > 0))
    return trials, folds


def test_maps_that_fold_in_most_runs_are_out_and_in_a_few_are_left_out(lopsided):
    trials, runs = lopsided_run(lopsided, (0.1, 1.3, 20.0))
    shares = [float(folded.double().mean()) for _, folded in runs]
    assert shares[0] == 0 < shares[1] <= 0.5 < shares[2]
    assert [trial.failure for trial in trials] == [Failure.NONE, Failure.NONE, Failure.FOLDED]
    values, folded = runs[1]
    assert trials[1].score == pytest.approx(float(values[~folded].mean()), rel=1e-5)
    assert trials[1].score != pytest.approx(float(values.mean()), rel=1e-5)
    assert trials[2].score == -math.inf and trials[2].standard_error == math.inf


@pytest.mark.parametrize("n_folded", [4, 5])
def test_half_of_the_runs_may_fold_and_no_more(skewed, wide, n_folded):
    folds = torch.tensor([1] * n_folded + [0] * (8 - n_folded))

    class Folding(SteinIS):
        def run(self, state, n_transitions, **options):
            state = super().run(state, n_transitions, **options)
            object.__setattr__(state, "n_folds", folds)
            return state

    def make(setting):
        return Folding(skewed, wide, step_size=setting.alpha, n_leaders=6, n_followers=6)

    def tuned():
        axes = (Axis("alpha", (0.05,), 2.0),)
        return tune_sampler(axes, make, 2, seeded(), n_candidates=1, repeats=8)

    if n_folded <= 4:
        assert tuned()[0].failure == Failure.NONE
    else:
        with pytest.raises(ValueError, match="no candidate has a finite score"):
            tuned()


def test_a_run_that_diverges_rules_its_setting_out(skewed, wide):
    def make(setting):
        return build_sampler("steinis", skewed, wide, setting, 60, n_leaders=6, n_followers=6)

    axes = (Axis("alpha", (0.01, 1e6), 10.0, low=0.01, high=1e6),)
    trials = tune_sampler(axes, make, 60, seeded(), n_candidates=2, repeats=3)
    assert [trial.failure for trial in trials] == [Failure.NONE, Failure.DIVERGED]
    assert trials[0].gradients == trials[1].gradients == 60 * 6 * 3
    assert best(trials).candidate.alpha == 0.01
