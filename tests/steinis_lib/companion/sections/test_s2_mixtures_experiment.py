import numpy as np
import pytest
import torch

from steinis_lib import GaussianMixture
from steinis_lib.companion.candidates import chosen
from steinis_lib.companion.parameters import ParameterError
from steinis_lib.companion.runner.engine import Task
from steinis_lib.companion.sections.s2_mixtures.experiment import (
    TUNED,
    GMMEstimation,
    candidates,
    exact_values,
    functions_of,
    interacting_trials,
    pilots,
    run_task,
    tasks,
)

TINY = {
    "n_trials": 6,
    "n_trials_is": 8,
    "trials_per_chunk": 4,
    "n_leaders": 15,
    "n_transitions": 15,
    "sizes": (10, 40),
    "interacting_sizes": (10, 20),
    "interacting_work": 10,
    "tuning_repeats": 2,
    "tuning_particles": 10,
}


@pytest.fixture(scope="module")
def tiny():
    return GMMEstimation.of_profile("paper", TINY)


@pytest.fixture(scope="module")
def records(tiny):
    return {task.method: run_task(tiny, task) for task in pilots(tiny)}


def test_exact_expectations_against_quadrature():
    target = GaussianMixture(
        torch.tensor([[0.7, 0.3]]).log(),
        torch.tensor([[[-1.0, 2.0], [1.5, 0.3]]]),
        torch.tensor([[[0.6, 1.1], [0.9, 0.4]]]),
    )
    w, b = torch.tensor([[[1.7]]]), torch.tensor([[[0.4]]])
    grid = torch.linspace(-8, 9, 681)
    points = torch.cartesian_prod(grid, grid).unsqueeze(0)
    weights = target.log_prob(points).exp() * (grid[1] - grid[0]) ** 2
    by_sums = (weights.unsqueeze(-1) * functions_of(w, b)(points)).sum(1)
    torch.testing.assert_close(exact_values(target, w, b), by_sums, atol=1e-6, rtol=1e-6)


def test_every_tuned_method_has_the_same_budget(records):
    assert {len(candidates(method)) for method in TUNED} == {12}
    assert len({c for method in TUNED for c in candidates(method)}) >= 59
    spent = {}
    for method in TUNED:
        tried = records[f"easy-tuning-{method}"].isel(trial=0)
        best = chosen(records[f"easy-tuning-{method}"])
        index = candidates(method).index(best)
        assert tried.score.values[index] == tried.score.values.max()
        assert tried.alpha.values[index] == best.alpha
        spent[method] = set(tried.gradients.values.tolist())
    # 15 leaders and 10 particles: a run of SteinIS costs 15 × 15, of the others 16 × 10 scores.
    assert spent["hais-full"] == spent["hais-partial"] == spent["ais"] == {2 * 2 * 160}
    assert spent["steinis"] == spent["steinis-wide"] == {2 * 2 * 225}
    default = GMMEstimation.of_profile("paper")
    leaders = default.n_transitions * default.n_leaders
    particles = (default.n_transitions + 1) * default.tuning_particles
    assert abs(leaders / particles - 1) < 0.01  # equal at the sizes that are published


def test_tasks_cover_all_trials_once(tiny, records):
    found = tasks(tiny)
    assert len(set(found)) == len(found)
    assert [t.chunk for t in found if t.method == "hard-is"] == [0, 1]
    assert interacting_trials(tiny, 10) == 6
    assert interacting_trials(tiny, 20) == 2
    last = run_task(tiny, Task("easy-direct", 1), records)
    assert last.trial.values.tolist() == [4, 5]


@pytest.mark.parametrize("method", ["is", *TUNED, "ais-unadjusted", "svgd-20"])
def test_a_chunk_is_a_function_of_its_name(tiny, records, method):
    first, again = (run_task(tiny, Task(f"easy-{method}", 0), records) for _ in "ab")
    assert first.identical(again)
    assert np.isfinite(first.error.values).all()
    other = run_task(tiny, Task(f"hard-{method}", 0), records)
    assert not np.allclose(first.error.values, other.error.values)


def test_weights_are_used(tiny, records):
    """Weights matter for draws from q0, and not at all for exact draws."""
    weighted = run_task(tiny, Task("easy-steinis", 0), records)
    assert not np.allclose(weighted.error, weighted.error_unweighted)
    direct = run_task(tiny, Task("easy-direct", 0), records)
    np.testing.assert_allclose(direct.log_z, 0, atol=1e-12)
    np.testing.assert_allclose(direct.ess, 1)


def test_sizes_must_rise():
    with pytest.raises(ParameterError, match="sizes: must rise strictly"):
        GMMEstimation.of_profile("quick", {"sizes": [100, 10]})
