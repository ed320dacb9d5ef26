import numpy as np
import pytest
import torch
from cells import Cells

from steinis_lib import GaussianMixture
from steinis_lib.companion.parameters import ParameterError
from steinis_lib.companion.runner.experiment import stream
from steinis_lib.companion.sections.s2_mixtures.experiment import (
    EXPERIMENT,
    NAME,
    TUNED,
    GMMEstimation,
    candidates,
    exact_values,
    functions_of,
    interacting_trials,
    label,
    mixtures,
    problems,
    tuning_label,
)
from steinis_lib.companion.tuning import chosen

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
    return Cells(EXPERIMENT, GMMEstimation.of_profile("paper", TINY))


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


@pytest.mark.slow
def test_every_tuned_method_has_the_same_budget(tiny):
    assert {len(candidates(method)) for method in TUNED} == {12}
    assert len({c for method in TUNED for c in candidates(method)}) >= 59
    spent = {}
    for method in TUNED:
        record = tiny.all_pilots()[tuning_label("easy", method)]
        tried, best = record.isel(trial=0), chosen(record)
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


def test_cells_have_their_trials(tiny):
    counts = {cell.label: cell.n_trials for cell in tiny.cells.values()}
    methods = ("direct", *TUNED, "ais-unadjusted")
    for mixture in ("easy", "hard"):
        assert {counts[label(mixture, method)] for method in methods} == {6}
        assert counts[label(mixture, "is")] == 8
        assert {counts[tuning_label(mixture, method)] for method in TUNED} == {1}
        assert [counts[label(mixture, "svgd", n)] for n in (10, 20)] == [6, 2]
    assert len(counts) == 2 * (len(methods) + 1 + len(TUNED) + 2)
    assert interacting_trials(GMMEstimation(), 200) == 125  # a quarter of 500
    assert tiny.run("easy-direct", 1).trial.values.tolist() == [4, 5]


@pytest.mark.parametrize("method", ["is", *TUNED, "ais-unadjusted", "svgd-20"])
def test_errors_are_finite_and_the_mixtures_differ(tiny, method):
    easy, hard = (tiny.run(f"{mixture}-{method}") for mixture in ("easy", "hard"))
    assert np.isfinite(easy.error.values).all()
    assert not np.allclose(easy.error.values, hard.error.values)


def test_problems_are_those_of_their_streams(tiny):
    """The published numbers hang on these names, and on the order of the draws."""
    p = tiny.parameters
    target, functions, exact = problems(p, "hard", 3, 7)
    assert torch.equal(
        target.means, mixtures(p, "hard", 3, stream(p.seed, NAME, "hard-targets", 7)).means
    )
    generator = stream(p.seed, NAME, "functions", 7)
    w = torch.randn(3, 1, 1, generator=generator, dtype=torch.float64)
    b = torch.rand(3, 1, 1, generator=generator, dtype=torch.float64)
    assert torch.equal(exact, exact_values(target, w, b))
    x = torch.linspace(-2, 2, 12, dtype=torch.float64).reshape(3, 2, 2)
    assert torch.equal(functions(x), functions_of(w, b)(x))


def test_weights_are_used(tiny):
    """Weights matter for draws from q0, and not at all for exact draws."""
    weighted = tiny.run("easy-steinis")
    assert not np.allclose(weighted.error, weighted.error_unweighted)
    direct = tiny.run("easy-direct")
    np.testing.assert_allclose(direct.log_z, 0, atol=1e-12)
    np.testing.assert_allclose(direct.ess, 1)


@pytest.mark.parametrize("name", ["sizes", "interacting_sizes"])
@pytest.mark.parametrize("values", [[100, 10], [10, 10]])
def test_sizes_must_rise(name, values):
    with pytest.raises(ParameterError, match=f"^{name}: must rise strictly"):
        GMMEstimation.of_profile("quick", {name: values})
