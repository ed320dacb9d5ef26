import numpy as np
import pytest
import torch
from cells import Cells

from steinis_lib import GaussianMixture
from steinis_lib.companion.parameters import ParameterError
from steinis_lib.companion.runner.experiment import stream
from steinis_lib.companion.search import PATIENCE
from steinis_lib.companion.sections.s2_mixtures.experiment import (
    EXPERIMENT,
    METHODS,
    ON_EXTRA,
    TUNED,
    interacting_trials,
    label,
    svgd_sizes,
    trials,
    tuning_label,
)
from steinis_lib.companion.sections.s2_mixtures.problem import (
    EXTRA,
    MIXTURES,
    NAME,
    GMMEstimation,
    exact_values,
    functions_of,
    mixtures,
    problems,
)
from steinis_lib.companion.settings import FAMILIES, axes_of
from steinis_lib.companion.tuning_records import chosen, ends, trials_of

TINY = {
    "n_trials": 6,
    "n_trials_is": 8,
    "n_trials_extra": 5,
    "trials_per_chunk": 4,
    "n_leaders": 15,
    "n_transitions": 15,
    "sizes": (10, 40),
    "interacting_sizes": (10, 20),
    "interacting_work": 10,
    "n_candidates": 10,
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
    spent = {}
    for method in TUNED:
        record = tiny.all_pilots()[tuning_label("easy", method)]
        tried = trials_of(record)
        assert len({trial.candidate for trial in tried}) == len(tried)
        assert 10 <= len(tried) <= 10 * PATIENCE  # more than 10 while the best has an untried side
        assert max(tried, key=lambda trial: trial.score).candidate == chosen(record)
        assert ends(record, axes_of(method))  # the axes are those that the search was given
        spent[method] = {trial.gradients for trial in tried}
    # 15 leaders and 10 particles: a run of SteinIS costs 15 × 15, of the others 16 × 10 scores.
    assert spent == {m: {2 * 2 * (225 if m in FAMILIES else 160)} for m in TUNED}
    default = GMMEstimation.of_profile("paper")
    leaders = default.n_transitions * default.n_leaders
    particles = (default.n_transitions + 1) * default.tuning_particles
    assert abs(leaders / particles - 1) < 0.01  # equal at the sizes that are published


def test_cells_have_their_trials(tiny):
    counts = {cell.label: cell.n_trials for cell in tiny.cells.values()}
    few_on_hard = {*FAMILIES, "ais", "ais-unadjusted"} - {"steinis-wide"}
    full = {"direct", *TUNED, "ais-unadjusted"}
    expected = {label("easy", m): 5 if m == "steinis-double" else 6 for m in full}
    expected |= {label("hard", m): 5 if m in few_on_hard else 6 for m in full}
    expected |= {"easy-is": 8, "hard-is": 8}
    expected |= {label(mixture, m): 5 for mixture in EXTRA for m in ON_EXTRA}
    expected |= {tuning_label(mixture, m): 1 for mixture in MIXTURES for m in TUNED}
    tuned_on_extra = (*FAMILIES, "hais-full")
    expected |= {tuning_label(mixture, m): 1 for mixture in EXTRA for m in tuned_on_extra}
    expected |= {"easy-svgd-10": 6, "hard-svgd-10": 5}
    expected |= {label(mixture, "svgd", 20): 2 for mixture in MIXTURES}
    expected |= {label(mixture, "svgd", 10): 5 for mixture in EXTRA} | {"easy-svgd-rule-10": 5}
    assert counts == expected
    assert tiny.run("easy-direct", 1).trial.values.tolist() == [4, 5]


def test_trials_at_the_published_sizes():
    p = GMMEstimation()
    assert {trials(p, "easy", m) for m in METHODS if m not in ("is", "steinis-double")} == {500}
    needed_by_section_7 = ("direct", "steinis-wide", "hais-full", "hais-partial")
    assert {trials(p, "hard", m) for m in needed_by_section_7} == {500}
    assert {trials(p, "fixed", m) for m in ON_EXTRA} == {100}
    assert interacting_trials(p, 200) == 125  # a quarter of 500
    assert interacting_trials(p, 50, "easy", "svgd-rule") == 100
    assert interacting_trials(p, 200, "hard") == 25
    assert svgd_sizes(p, "hard", "svgd") == (10, 20, 50, 100, 200)
    assert svgd_sizes(p, "mild", "svgd") == svgd_sizes(p, "easy", "svgd-rule") == (10, 20, 50, 100)
    assert svgd_sizes(p, "hard", "svgd-rule") == ()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["is", *TUNED, "ais-unadjusted", "svgd-20"])
def test_errors_are_finite_and_the_mixtures_differ(tiny, method):
    easy, hard = (tiny.run(f"{mixture}-{method}") for mixture in MIXTURES)
    assert np.isfinite(easy.error.values).all()
    assert not np.allclose(easy.error.values, hard.error.values)


@pytest.mark.slow
def test_svgd_takes_the_setting_of_its_variant(tiny):
    wide, rule = tiny.run("easy-svgd-10"), tiny.run("easy-svgd-rule-10")
    settings = [chosen(tiny.pilots[f"easy-tuning-{m}"]) for m in ("steinis-wide", "steinis")]
    assert settings[0] != settings[1]
    assert not np.allclose(wide.error.values, rule.error.values)


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


def test_the_fixed_mixture_is_one_easy_mixture_in_all_trials(tiny):
    p = tiny.parameters
    first, later = (problems(p, "fixed", 3, number)[0] for number in (0, 5))
    assert torch.equal(first.means, later.means)
    assert (first.means == first.means[0]).all()
    pilots = mixtures(p, "fixed", 2, torch.Generator())
    assert torch.equal(pilots.means, first.means[:2])
    assert first.means.abs().max() <= p.easy_spread
    assert len(first.means[0].unique(dim=0)) == p.n_components
    assert first.sample((3, 10), torch.Generator().manual_seed(0)).shape == (3, 10, 2)


def test_mild_mixtures_are_narrower_than_easy_ones(tiny):
    easy, mild = (problems(tiny.parameters, kind, 50, 0)[0] for kind in ("easy", "mild"))
    assert mild.means.abs().max() <= 1 < easy.means.abs().max()
    assert not torch.equal(mild.means[0], mild.means[1])


@pytest.mark.slow
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
