import numpy as np
import pytest
import torch
from cells import Cells

from steinis_lib import RBF, Gaussian
from steinis_lib.companion.runner.experiment import stream
from steinis_lib.companion.sections.s1_convergence import algorithm_checks as checks
from steinis_lib.stein.maps import build
from steinis_lib.targets.mixtures import random_mixture

TINY = {
    "n_trials": 10,
    "n_stopping_trials": 10,
    "trials_per_chunk": 4,
    "n_components": 4,
    "n_leaders": 12,
    "n_followers": 20,
    "n_transitions": 8,
    "max_transitions": 30,
    "ess_threshold": 0.5,
    "n_long_trials": 2,
    "n_long_transitions": 12,
}


def tiny(**changes):
    return checks.AlgorithmChecks.of_profile("quick", TINY | changes)


def run(label, number=0, **changes):
    return Cells(checks.EXPERIMENT, tiny(**changes)).run(label, number)


def test_every_check_has_its_trials_and_continuing_just_a_few():
    cells = checks.cells(tiny())
    assert {cell.label: cell.n_trials for cell in cells} == {
        "unbiased-exact": 10, "unbiased-first-order": 10, "determinant": 10, "stopping": 10,
        "continuing": 2,
    }  # fmt: skip
    assert {cell.trials_per_chunk for cell in cells} == {4}


@pytest.mark.parametrize(
    ("method", "variables"),
    [
        ("unbiased-exact", {"log_z", "log_z_se", "ess", "folds"}),
        ("unbiased-first-order", {"log_z", "log_z_se", "ess", "folds"}),
        ("determinant", {"error"}),
        ("stopping", {"transition", "log_z", "log_z_se", "ess"}),
        ("continuing", {"difference"}),
    ],
)
def test_each_chunk_has_its_variables_and_its_trials(method, variables):
    data = run(method)
    assert set(data) - {"first_states"} == variables
    assert ("first_states" in data) == (method != "determinant")
    n = 2 if method == "continuing" else 4
    assert data.trial.values.tolist() == list(range(n))
    for name in variables:
        assert data[name].shape == ((n, 5) if method == "determinant" else (n,))
        assert np.isfinite(data[name]).all()
    if method != "continuing":
        assert run(method, 2).trial.values.tolist() == [8, 9]


def test_chunks_differ():
    rows = [run("unbiased-exact", c).log_z.values for c in range(3)]
    assert len(np.unique(np.concatenate(rows))) == 10
    assert not np.array_equal(rows[0], run("unbiased-exact", seed=2).log_z.values)


def test_first_order_and_exact_determinants_differ_on_the_same_particles():
    exact, first = run("unbiased-exact"), run("unbiased-first-order")
    gap = np.abs(exact.log_z - first.log_z)
    assert float(gap.min()) > 0
    # Nearly the same: smaller than what other particles would change.
    assert float(gap.max()) < 0.3 * float(exact.log_z.std())
    few, fewer = (run(m, step_size=0.001) for m in ("unbiased-exact", "unbiased-first-order"))
    np.testing.assert_allclose(few.log_z, fewer.log_z, atol=1e-4)


def test_z_is_one_within_its_errors():
    data = run(
        "unbiased-exact", n_trials=200, trials_per_chunk=200, n_leaders=20, n_followers=40,
        spread=1.5,
    )  # fmt: skip
    ratio = np.exp(data.log_z.values)
    error = ratio.std() / np.sqrt(len(ratio))
    assert error < 0.03
    assert abs(ratio.mean() - 1) < 4 * error
    assert float(data.folds.max()) == 0


def test_the_determinants_errors_are_those_of_brute_force():
    """det(I + εA) - Π(1 + ε a_kk) with A by automatic differentiation, leader by leader."""
    p = tiny()
    found = run("determinant").error.values
    target = random_mixture(
        p.n_components, 5, stream(p.seed, checks.EXPERIMENT.name, "mixtures", 0), batch_shape=(4,),
        spread=p.spread,
    )  # fmt: skip
    generator = stream(p.seed, checks.EXPERIMENT.name, "particles", 0)
    q0 = Gaussian.isotropic(torch.zeros(5), p.q0_scale)
    leaders, followers = (q0.sample((4, n), generator) for n in (p.n_leaders, p.n_followers))
    step_map = build(target, leaders, RBF(multiplier=p.multiplier), 1.0)
    for trial in (0, 3):
        matrices = []
        for i in range(p.n_followers):

            def phi(y, trial=trial):
                points = y.expand(4, 1, 5)
                return (step_map(points) - points)[trial, 0]

            matrices.append(torch.func.jacrev(phi)(followers[trial, i]))
        a = torch.stack(matrices)
        for epsilon, error in zip(p.epsilons, found[trial], strict=True):
            exact = torch.linalg.det(torch.eye(5) + epsilon * a)
            product = (1 + epsilon * a.diagonal(dim1=-2, dim2=-1)).prod(-1)
            expected = (exact - product).square().mean().sqrt()
            assert error == pytest.approx(float(expected), rel=1e-6)


def test_the_determinants_error_is_coordinated_by_the_step_sizes():
    data = run("determinant", epsilons=[0.01, 0.05, 0.2])
    assert data.epsilon.values.tolist() == [0.01, 0.05, 0.2]
    assert (np.diff(data.error, axis=1) > 0).all()


def test_continuing_gives_exactly_what_one_run_gives():
    np.testing.assert_array_equal(run("continuing").difference, 0)


def test_the_continuation_check_can_see_a_difference(monkeypatch):
    """A sampler that forgets something between two calls of `run` is found out."""
    original = checks.SteinIS.run

    def forgetful(self, state, n, **settings):
        end = original(self, state, n, **settings)
        return checks.SteinISState(
            end.leaders, end.followers, end.log_q + 1e-9, end.transition, end.n_folds
        )

    monkeypatch.setattr(checks.SteinIS, "run", forgetful)
    difference = run("continuing").difference.values
    np.testing.assert_allclose(difference, 1e-9, rtol=1e-5)


def test_a_trial_stops_at_the_first_look_at_which_its_own_ess_reaches_the_threshold():
    looks = range(5, 31, 5)
    curves = [run("stopping", ess_threshold=1e-9).ess.values]  # at once, with no transition
    curves += [run("stopping", ess_threshold=1.0, max_transitions=n).ess.values for n in looks]
    curves = np.stack(curves, -1)  # (trials, looks): an ESS of |B| itself is never reached
    found = run("stopping")
    threshold = tiny().ess_threshold
    assert len(set(found.transition.values)) > 1  # each trial for itself
    for ess, stopped, at in zip(curves, found.transition.values, found.ess.values, strict=True):
        reached = np.flatnonzero(ess >= threshold)
        assert stopped == (5 * reached[0] if len(reached) else 30)
        assert at == pytest.approx(ess[int(stopped) // 5])


def test_a_stopped_trial_is_the_same_as_if_run_alone_for_that_long():
    data = run("stopping", ess_threshold=1.0, max_transitions=8)
    other = run("unbiased-exact")  # the same mixtures and particles, 8 transitions
    np.testing.assert_allclose(data.log_z, other.log_z, rtol=1e-9)
    np.testing.assert_allclose(data.ess, other.ess, rtol=1e-9)
    np.testing.assert_allclose(data.log_z_se, other.log_z_se, rtol=1e-9)
