import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray as xr
from cells import Cells
from scipy.stats import gaussian_kde

from steinis_lib.companion.methods import build_steinis
from steinis_lib.companion.parameters import ParameterError
from steinis_lib.companion.search import PATIENCE, Failure
from steinis_lib.companion.sections.s3_adaptive_is.divergences import PlaneGrid
from steinis_lib.companion.sections.s3_adaptive_is.experiment import EXPERIMENT
from steinis_lib.companion.sections.s3_adaptive_is.methods import (
    AdaptiveSetting,
    adapt,
    around,
    backward_kl,
    best,
    density,
    density_estimates,
    follow,
    place,
    population,
    q0_grid,
)
from steinis_lib.companion.sections.s3_adaptive_is.pilots import summary
from steinis_lib.companion.sections.s3_adaptive_is.problem import (
    ELSEWHERE,
    KINDS,
    RATES,
    REFINED,
    AdaptiveComparison,
    box,
    chosen_adaptive,
    exact_draws,
    fitted,
    label,
    pilot_label,
    placement,
    refinement,
    start,
    together,
    warped,
)
from steinis_lib.companion.sections.s3_adaptive_is.statistics import best_curve
from steinis_lib.companion.settings import FAMILIES, Setting, axes_of
from steinis_lib.companion.tuning_records import chosen, ends, trials_of

TINY = {
    "n_repeats": 6,
    "n_runs": 3,
    "leaders": (12, 16),
    "checkpoints": (0, 3, 8),
    "n_followers": 20,
    "n_exact": 20,
    "n_components": 15,
    "component_scales": (0.8, 1.2),
    "adaptive_checkpoints": (0, 5, 20),
    "adaptive_samples": 10,
    "optimum_scales": (0.8, 1.2, 1.5),
    "n_placements": 2,
    "pmc_components": (4, 12),
    "pmc_samples": 200,
    "pmc_checkpoints": (1, 4),
    "refine_checkpoints": (0, 2, 5),
    "n_candidates": 16,
    "tuning_repeats": 2,
    "kde_samples": (50, 150),
    "kde_runs": 2,
    "kde_followers": 60,
    "kde_factors": (0.5, 1.0),
    "panel_points": 40,
}
PANELS = ("steinis", "steinis-wide", "adaptive")
REFINEMENTS = [(which, family) for which, families in REFINED.items() for family in families]
SMALL = Setting(0.2, 0.0, 5.0)
HUGE = Setting(50.0, 0.0, 1.0)


@pytest.fixture(scope="module")
def tiny():
    return AdaptiveComparison.of_profile("paper", TINY)


@pytest.fixture(scope="module")
def cells(tiny):
    return Cells(EXPERIMENT, tiny)


@pytest.fixture(scope="module")
def target(tiny):
    return warped(tiny, "main")


@pytest.fixture(scope="module")
def wide_plane():
    """A grid that holds the target and what is near it."""
    return PlaneGrid.over((-8.0, -9.0), (8.0, 14.0), 0.2)


def within(difference, error, sigmas=4.0):
    """Whether a difference is noise, and the noise is small enough to tell."""
    return bool(abs(difference) < sigmas * error)


# ------------------------------------------------------------------------------ parameters


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"checkpoints": (1, 5)}, "checkpoints: must rise strictly from 0"),
        ({"adaptive_checkpoints": (0, 5, 5)}, "adaptive_checkpoints: must rise strictly from 0"),
        ({"refine_checkpoints": (0, 9, 5)}, "refine_checkpoints: must rise strictly from 0"),
        ({"pmc_checkpoints": (5, 2)}, "pmc_checkpoints: must rise strictly"),
        ({"weights": (0.5, 0.4, 0.2)}, "weights: must sum to 1"),
        ({"weights": (0.5, 0.5, 0.0)}, "greater than 0"),
        ({"a1": 0}, "must not be 0, or T has no inverse"),
        ({"a3": 0}, "must not be 0, or T has no inverse"),
        ({"leaders": (1,)}, "greater than or equal to 2"),
        ({"optimum_scales": (0.5,)}, r"optimum_scales: must have all component_scales"),
        ({"n_candidates": 15}, "greater than or equal to 16"),
    ],
)
def test_parameters_that_cannot_be_are_refused(wrong, message):
    with pytest.raises(ParameterError, match=message):
        AdaptiveComparison.of_profile("quick", wrong)


def test_targets_are_bent_as_named(tiny):
    z = torch.tensor([[1.7, 0.4]])
    for name, a2 in (("main", 0.35), ("easy", 0.1), ("hard", 0.8)):
        expected = torch.tensor([[1.7, a2 * 1.7**2 + 0.4 - 1.5]])
        torch.testing.assert_close(warped(tiny, name).forward(z), expected)
    assert list(tiny.targets)[0] == "main"


@pytest.mark.parametrize("name", ["main", "hard"])
def test_the_box_holds_999_of_1000_draws(tiny, name, generator):
    n, rare = 200_000, 5e-4
    low, high = map(torch.tensor, box(tiny, name))
    x = warped(tiny, name).sample((n,), generator)
    error = math.sqrt(rare * (1 / n + 1 / 100_000))  # of this share, and of the box itself
    for outside in (x < low, x > high):
        shares = outside.double().mean(0)
        assert ((shares - rare).abs() < 4 * error).all()


# --------------------------------------------------------------------------- searches, cells


def test_every_tuned_method_has_its_search(tiny, cells):
    first, _ = EXPERIMENT.stages(tiny)
    tuned = {pilot_label(family) for family in FAMILIES}
    tuned |= {pilot_label(family, target=name) for name in ("easy", "hard") for family in ELSEWHERE}
    tuned |= {pilot_label(refinement(*pair)) for pair in REFINEMENTS}
    adaptive = {"main-pilot-adaptive-0.8", "main-pilot-adaptive-1.2"}
    assert {cell.label for cell in first} == tuned | adaptive
    for cell in first:
        n = 4 if cell.label in adaptive else 1
        assert len(EXPERIMENT.chunks(tiny, cell)) == cell.n_trials == n


def test_cells_have_their_trials(tiny, cells):
    counts = {name: cell.n_trials for name, cell in cells.cells.items()}
    assert counts["main-steinis-wide-16"] == counts["hard-steinis-12"] == 3
    assert counts["easy-pmc-12"] == counts["main-adaptive-0.8"] == 6
    assert counts["main-refine-good-steinis-wide"] == counts["main-refine-poor-steinis"] == 6
    assert counts["main-optimum-1.5"] == counts["easy-optimum-0.8"] == counts["main-kde"] == 2
    assert counts["main-kde-steinis-adagrad"] == 2
    assert counts["main-cost"] == 5
    assert counts["main-panels-adaptive"] == 1
    assert not {"easy-steinis-16", "easy-pmc-4", "hard-steinis-double-12"} & set(counts)
    assert not {"main-refine-fair-steinis"} & set(counts)
    together = {name: cell.trials_per_chunk for name, cell in cells.cells.items()}
    assert {name: n for name, n in together.items() if n > 1} == {
        "main-adaptive-0.8": 5, "main-adaptive-1.2": 5, "main-cost": 5,
    }  # fmt: skip
    assert {cell.label for cell in cells.cells.values() if cell.method == "main-panels"} == {
        f"main-panels-{kind}" for kind in PANELS
    }


def test_labels_are_those_of_the_published_results():
    """They are part of the seeds."""
    names = {cell.label for cell in EXPERIMENT.cells(AdaptiveComparison())}
    for name in ("main-steinis-wide-200", "easy-pmc-20", "hard-optimum-0.6", "main-adaptive-1"):
        assert name in names
    assert label("easy", "pmc", 20) == "easy-pmc-20"
    assert label("main", "steinis", 1_234_567) == "main-steinis-1234567"
    assert pilot_label("adaptive", 1.0) == "main-pilot-adaptive-1"
    assert pilot_label("steinis", target="easy") == "easy-pilot-steinis"
    assert refinement("poor", "steinis") == "refine-poor-steinis"


@pytest.mark.slow
def test_searches_spend_the_same_and_keep_all_curves(cells):
    for name, records in cells.all_pilots().items():
        adaptive = "adaptive" in name and "steinis" not in name
        n_kinds, n = (4, 4) if adaptive else (1, 16)
        assert records.sizes["trial"] == n_kinds
        assert records.kl.dims == ("trial", "candidate", "checkpoint")
        for kind in range(n_kinds):
            record = records.isel(trial=kind).dropna("candidate", subset=["score"])
            assert n <= record.sizes["candidate"] <= PATIENCE * n
            out = record.failure.values > 0
            assert (np.isinf(record.kl.values).all(-1) == out).all()
            assert not out.all()
            steps = 5 if "refine" in name else 8
            assert (record.gradients == (20 * 10 * 2 if adaptive else steps * 12 * 2)).all()
            kl = record.kl.values
            at = kl[:, 1:].min(-1) if "refine" in name else kl[:, -1]
            np.testing.assert_allclose(record.score.values, -at, rtol=1e-5)
    for family in FAMILIES:
        record = cells.pilots[pilot_label(family)]
        tried = trials_of(record)
        assert len({trial.candidate for trial in tried}) == len(tried)
        assert ends(record, axes_of(family))  # the axes are those that the search was given
    start_kl = {
        which: best_curve(cells.pilots[pilot_label(refinement(which, "steinis-wide"))])[0]
        for which in REFINED
    }
    assert start_kl["good"] < start_kl["fair"] < start_kl["poor"]


@pytest.mark.slow
def test_candidates_share_their_random_numbers(cells):
    """They begin at the same particles, or components. (Means leave out pilots that fold.)"""
    for name, record in cells.all_pilots().items():
        starts = record.kl.values[..., 0][np.isfinite(record.standard_error.values)]
        assert len(starts) > 2
        np.testing.assert_allclose(starts, starts[0], err_msg=name)


def adaptive_record(score):
    """A search over four rates for each kind; scores ``(4, 4)``."""
    rates = [list(RATES[update].start) for _, update in KINDS]
    columns = {"alpha": rates, "score": score}
    nothing = dict.fromkeys(("beta", "multiplier", "refresh"), np.full((4, 4), np.nan))
    zero = dict.fromkeys(("standard_error", "gradients", "failure"), np.zeros((4, 4)))
    return xr.Dataset(
        {name: (("trial", "candidate"), x) for name, x in (columns | nothing | zero).items()}
    )


def test_adaptive_is_takes_the_best_rate_of_the_best_kind():
    score = np.full((4, 4), -2.0)
    score[2] = [-1.5, -0.5, -1.0, -0.9]
    assert chosen_adaptive(adaptive_record(score)) == AdaptiveSetting(
        "cross-entropy", "mirror", 0.0316228
    )
    score[3, 0] = -0.4
    assert chosen_adaptive(adaptive_record(score)) == AdaptiveSetting(
        "cross-entropy", "projected", 3.16228e-4
    )


def test_folded_pilots_do_not_count_and_a_majority_puts_a_candidate_out():
    inf = math.inf
    kl = torch.tensor([[3.0, 1.0], [1.0, 2.0], [9.0, 0.0], [9.0, 0.0]])
    curve, kept, failure = summary(kl, torch.tensor([False, False, True, True]))
    assert curve.tolist() == [2.0, 1.5]
    assert kept.tolist() == kl[:2].tolist()
    assert failure == Failure.NONE
    curve, _, failure = summary(kl, torch.tensor([True, False, True, True]))
    assert curve.tolist() == [inf, inf]
    assert failure == Failure.FOLDED
    kl[3] = torch.tensor([9.0, inf])
    curve, _, failure = summary(kl, torch.tensor([False, False, True, False]))
    assert curve.tolist() == [inf, inf]
    assert failure == Failure.DIVERGED


def test_a_pilot_that_most_runs_fold_in_ends_at_once(target, generator):
    """Its curves go on as if it had diverged; with few folds it ends as without the option."""
    stages = (0, 8, 40)
    args = (target, start(), Setting(3.0, 0.0, 1.0), 20, 40, stages)
    long, _ = follow(*args, torch.Generator().manual_seed(1), batch_shape=(3,))
    short, maps = follow(*args, torch.Generator().manual_seed(1), batch_shape=(3,), give_up=True)
    assert len(maps) < 40
    assert 2 * (short["folds"] > 0).sum() > 3
    assert (short["kl"][:, -1] == math.inf).all()
    assert long["kl"][:, 0].equal(short["kl"][:, 0])
    gentle = (target, start(), SMALL, 20, 40, stages)
    one, _ = follow(*gentle, torch.Generator().manual_seed(1), batch_shape=(3,))
    other, _ = follow(*gentle, torch.Generator().manual_seed(1), batch_shape=(3,), give_up=True)
    assert one["kl"].equal(other["kl"])


def test_adagrad_is_followed_with_its_own_steps(target, wide_plane):
    """And its maps, whose steps are tensors, are inverted."""
    setting, stages = Setting(0.3, None, 5.0), (0, 6)
    curves, maps = follow(
        target, start(), setting, 15, 400, stages, torch.Generator().manual_seed(3),
        method="steinis-adagrad", grid=q0_grid(),
    )  # fmt: skip
    plain, _ = follow(
        target, start(), setting, 15, 400, stages, torch.Generator().manual_seed(3), grid=q0_grid()
    )
    assert not torch.allclose(curves["kl_grid"][1], plain["kl_grid"][1], rtol=1e-3)
    log_q = density(start(), maps, 6, wide_plane.points)
    exact = wide_plane.kl(log_q, target.log_prob(wide_plane.points))
    torch.testing.assert_close(curves["kl_grid"][1], exact, rtol=0, atol=2e-4)


def test_what_is_kept_can_be_computed_again(tiny):
    """A chunk must not depend on what was computed before it."""

    def kept():
        return box(tiny, "hard"), *(fitted(tiny, which).log_weights.tolist() for which in REFINED)

    before = kept()
    box.cache_clear()
    fitted.cache_clear()
    assert kept() == before


LABELS = [cell.label for cell in EXPERIMENT.stages(AdaptiveComparison.of_profile("paper", TINY))[1]]


@pytest.mark.slow
@pytest.mark.parametrize("name", LABELS)
def test_every_number_is_finite_and_repeats_differ(cells, name):
    first = cells.run(name)
    for variable in first.data_vars.values():
        assert variable.dims[0] == "trial"
        assert np.isfinite(variable.values).all()
    timed = [key for key, v in first.data_vars.items() if v.attrs.get("units") == "s"]
    assert timed == (["run"] if name == "main-cost" else [])
    if timed:
        assert (first.run > 0).all()
    if len(EXPERIMENT.chunks(cells.parameters, cells.cells[name])) > 1:
        other = cells.run(name, 1)
        for key in ("kl", "by_grid"):
            same = key in first and np.allclose(first[key].values[:1], other[key].values[:1])
            assert not same


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "pilot"),
    [
        ("easy-steinis-wide-12", "easy-pilot-steinis-wide"),
        ("main-steinis-adagrad-16", "main-pilot-steinis-adagrad"),
        ("main-refine-poor-steinis-double", "main-pilot-refine-poor-steinis-double"),
        ("main-refine-close-steinis-wide", "main-pilot-refine-close-steinis-wide"),
        ("main-adaptive-0.8", "main-pilot-adaptive-0.8"),
        ("main-panels-steinis", "main-pilot-steinis"),
        ("main-kde-steinis-wide", "main-pilot-steinis-wide"),
    ],
)
def test_runs_take_the_setting_that_their_search_chose(tiny, cells, name, pilot):
    assert cells.cells[name].pilots == (pilot,)
    if pilot not in cells.pilots:
        cells.pilots[pilot] = cells.whole(pilot)
    record, found = cells.pilots[pilot], [cells.run(name)]
    other = record.copy(deep=True)
    other["score"] = other.score.where(other.score != other.score.max(), -99.0)
    found.append(Cells(EXPERIMENT, tiny, {pilot: other}).run(name))
    if "adaptive" in pilot:
        assert chosen_adaptive(record) != chosen_adaptive(other)
    else:
        assert chosen(record) != chosen(other)
    variable = "density" if "density" in found[0] else "kl"
    assert not np.allclose(found[0][variable], found[1][variable])


def test_mixtures_to_refine_are_optimal_as_said(tiny, target):
    kl, variance = {}, {}
    for which in ("poor", "fair", "close"):
        scale = 0.8 if which == "close" else 1.2
        plane, q = around(*box(tiny, "main"), scale), fitted(tiny, which)
        assert q.scale_trils[0, 0, 0] == pytest.approx(scale)
        log_q, log_p = q.log_prob(plane.points), target.log_prob(plane.points)
        kl[which] = float(plane.kl(log_q, log_p))
        variance[which] = float((2 * log_p - log_q + plane.log_volume).logsumexp(0))
    assert variance["poor"] < variance["fair"]
    assert kl["close"] < kl["fair"] < kl["poor"]


# ----------------------------------------------------------------------------------- SteinIS


@pytest.mark.slow
def test_kl_by_the_grid_is_that_of_followers(target, generator):
    """The mean over many runs, each with leaders of its own."""
    curves, _ = follow(
        target, start(), Setting(0.3, 0.0, 2.0), 15, 1000, (0, 5, 15), generator,
        batch_shape=(40,), grid=q0_grid(),
    )  # fmt: skip
    difference = curves["kl"] - curves["kl_grid"]
    error = difference.std(0) / 40**0.5
    assert (error < 0.01).all()
    assert (difference.mean(0).abs() < 4 * error).all()
    assert curves["kl_grid"][:, 2].mean() < curves["kl_grid"][:, 0].mean() - 0.1
    assert (curves["folds"] == 0).all()
    z = curves["log_z"].exp()  # unbiased, and Z is 1
    assert ((z.mean(0) - 1).abs() < 4 * z.std(0) / 40**0.5).all()
    assert ((curves["ess"] > 0) & (curves["ess"] <= 1)).all()


def test_kl_by_the_grid_is_that_of_the_density(target, wide_plane, generator):
    """At the start by q0's formula; later q_ℓ by inverse maps, summed over another grid."""
    stages = (0, 4, 12)
    curves, maps = follow(target, start(), SMALL, 15, 10, stages, generator, grid=q0_grid())
    log_p = target.log_prob(wide_plane.points)
    for stage, kl in zip(stages, curves["kl_grid"], strict=True):
        log_q = density(start(), maps, stage, wide_plane.points)
        torch.testing.assert_close(kl, wide_plane.kl(log_q, log_p), rtol=0, atol=2e-4)
    normal = -0.5 * wide_plane.points.square().sum(-1) - math.log(2 * math.pi)
    exact = wide_plane.kl(normal, log_p)
    torch.testing.assert_close(curves["kl_grid"][0], exact, rtol=0, atol=2e-4)


def test_backward_kl_is_a_mean_over_exact_draws(target, wide_plane, generator):
    n = 4000
    x = target.sample((n,), generator)
    _, maps = follow(target, start(), SMALL, 15, 10, (0, 12), generator)
    values, exists = backward_kl(target, start(), maps, (0, 12), x)
    assert exists.tolist() == [True, True]
    log_q0 = -0.5 * x.square().sum(-1) - math.log(2 * math.pi)
    torch.testing.assert_close(values[0], (target.log_prob(x) - log_q0).mean())
    log_q = density(start(), maps, 12, wide_plane.points)
    exact = wide_plane.kl(target.log_prob(wide_plane.points), log_q)
    error = (target.log_prob(x) - density(start(), maps, 12, x)).std() / n**0.5
    assert error < 0.1 * exact
    assert within(values[1] - exact, error)


def test_stages_that_a_run_did_not_reach_have_no_density(target, generator):
    x = target.sample((5,), generator)
    _, maps = follow(target, start(), SMALL, 10, 10, (0, 3), generator)
    assert density(start(), maps, 4, x) is None
    values, exists = backward_kl(target, start(), maps, (3, 4), x)
    assert exists.tolist() == [True, False]
    assert values[1] == 0 != values[0]


def test_a_run_that_folds_has_no_density(target, generator):
    """A step too long, but not so long that numbers run out."""
    curves, maps = follow(target, start(), Setting(3.0, 0.0, 1.0), 20, 40, (0, 8), generator)
    x = target.sample((5,), generator)
    assert len(maps) == 8
    assert curves["folds"] > 0
    assert density(start(), maps, 8, x) is None
    values, exists = backward_kl(target, start(), maps, (0, 8), x)
    assert exists.tolist() == [True, False]
    assert values[1] == 0 != values[0]
    assert values.isfinite().all()


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("alpha", [50.0, 300.0, 1e10])
def test_a_run_that_leaves_the_range_of_numbers_says_so(target, batch, alpha):
    """KL is inf from there on, and nothing is NaN, not even just before."""
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        stages = (0, 1, 2, 3, 4, 5, 6, 20)
        setting = replace(HUGE, alpha=alpha)
        curves, maps = follow(
            target, start(), setting, 20, 40, stages, generator, batch_shape=batch, grid=q0_grid()
        )
        assert len(maps) < 20
        assert not any(values.isnan().any() for values in curves.values())
        assert curves["kl"].shape == (*batch, 8)
        assert curves["kl"][..., 0].isfinite().all()
        lost = curves["kl"] == math.inf
        assert (lost[..., 1:] >= lost[..., :-1]).all()  # there is no way back
        gone = [i for i, stage in enumerate(stages) if stage > len(maps)]
        ends = {"kl": math.inf, "kl_grid": math.inf, "log_z": -math.inf, "ess": 0.0}
        for name, value in ends.items():
            assert (curves[name][..., gone] == value).all()
        assert (curves["folds"] > 0).all()
        if not batch:
            x = target.sample((5,), generator)
            assert density(start(), maps, len(maps), x) is None
            _, exists = backward_kl(target, start(), maps, (0, 1, 20), x)
            assert exists.tolist() == [True, False, False]


# ------------------------------------------------------------------------------ adaptive IS


def test_components_are_spread_over_their_box(generator):
    low, high = (-3.0, 1.0), (-1.0, 8.0)
    q = place(64, 0.7, low, high, generator)
    assert ((q.means > torch.tensor(low)) & (q.means < torch.tensor(high))).all()
    quarters = (q.means[:, 0] > -2).int() * 2 + (q.means[:, 1] > 4.5).int()
    assert torch.bincount(quarters).tolist() == [16] * 4  # as only a Sobol sequence does
    torch.testing.assert_close(
        q.scale_trils @ q.scale_trils.mT, 0.49 * torch.eye(2).expand(64, 2, 2)
    )
    other = place(64, 0.7, low, high, generator)
    assert not torch.allclose(q.means, other.means)


@pytest.mark.parametrize(
    "setting",
    [
        AdaptiveSetting("variance", "mirror", 0.1),
        AdaptiveSetting("cross-entropy", "projected", 1e-3),
    ],
)
def test_kl_of_adaptive_is_by_draws_from_its_proposal(tiny, target, setting, generator):
    scale, n = 0.8, 20_000
    low, high = box(tiny, "main")
    components = together([place(15, scale, low, high, generator) for _ in range(2)])
    plane = around(low, high, scale)
    curves, averages = adapt(
        target, components, setting, 20, (0, 40), plane, generator, batch_shape=(2,)
    )
    assert curves["kl"].shape == curves["kl_last"].shape == (2, 2)
    for i, q in enumerate(averages):
        x = q.sample((2, n), generator)
        ratio = q.log_prob(x) - target.log_prob(x)
        error = ratio.std(-1) / n**0.5
        assert (error < 0.02 * ratio.mean(-1)).all()
        assert ((curves["kl"][:, i] - ratio.mean(-1)).abs() < 4 * error).all()
    torch.testing.assert_close(curves["kl"][:, 0], curves["kl_last"][:, 0])
    assert not torch.allclose(curves["kl"][:, 1], curves["kl_last"][:, 1])
    assert (curves["kl"][:, 1] < curves["kl"][:, 0]).all()  # it adapts


def test_no_weights_are_better_than_the_best(tiny, target, generator):
    scale = 0.8
    components, plane = placement(tiny, "main", scale, 0), around(*box(tiny, "main"), scale)
    log_p = target.log_prob(plane.points)
    q, found, kl = best(target, components, plane, "reverse-kl")
    log_n = components.log_components(plane.points)

    def by_sum(pi):
        return float(plane.kl((log_n.exp() @ pi).log(), log_p))

    assert kl == pytest.approx(by_sum(found.weights), rel=1e-9)
    assert kl == pytest.approx(float(plane.kl(q.log_prob(plane.points), log_p)), rel=1e-9)
    others = [best(target, components, plane, "variance")[0].log_weights.exp()]
    for spread in (0.02, 0.2, 1.0, 5.0):
        for _ in range(10):
            z = spread * torch.randn(15, generator=generator)
            others += [(found.weights.log() + z).softmax(-1), z.softmax(-1)]
    others += list(torch.eye(15) * 0.98 + 0.02 / 15)
    kls = [by_sum(pi) for pi in others]
    assert min(kls) > kl - found.gap
    assert min(kls) < kl + 0.01  # some of them are near it
    assert found.gap <= 1e-6
    x = q.sample((20_000,), generator)
    ratio = q.log_prob(x) - target.log_prob(x)
    assert within(ratio.mean() - kl, ratio.std() / 20_000**0.5)


def test_optima_are_no_worse_than_what_stochastic_steps_reach(tiny, cells):
    for scale in ("0.8", "1.2"):
        reached = cells.run(f"main-adaptive-{scale}")  # the first five repeats
        for chunk in range(tiny.n_placements):
            optimum = cells.run(f"main-optimum-{scale}", chunk)
            assert (optimum.gap >= 0).all() and (optimum.gap <= 1e-6).all()
            kl = optimum.kl.sel(objective="reverse-kl").item()
            assert kl < optimum.kl.sel(objective="variance").item()
            # the same repeat has the same components
            assert (kl <= reached.kl.sel(trial=chunk) + 1e-6).all()
            assert (kl <= reached.kl_last.sel(trial=chunk) + 1e-6).all()


def test_backward_kl_is_for_the_first_number_of_leaders(tiny, cells):
    """KL(p‖q) of folded runs is not there: `invertible` tells."""
    assert "kl_backward" not in cells.run("main-steinis-16")
    assert "kl_backward" not in cells.run("hard-steinis-12")
    for chunk in range(tiny.n_runs):
        record = cells.run("main-steinis-wide-12", chunk)
        assert record.invertible.item() in (0, 1)
        assert (record.kl_backward.item() > 0) == (record.invertible.item() == 1)


def test_backward_kl_of_adaptive_is_starts_at_equal_weights(tiny, cells, target):
    record = cells.whole("main-adaptive-0.8")
    assert record.trial.values.tolist() == list(range(tiny.n_repeats))
    for repeat in range(tiny.n_repeats):
        x = exact_draws(tiny, "main", repeat)
        q = placement(tiny, "main", 0.8, repeat)
        expected = (target.log_prob(x) - q.log_prob(x)).mean()
        assert float(record.kl_backward[repeat, 0]) == pytest.approx(float(expected), rel=1e-9)


# ------------------------------------------------------------------------------------- M-PMC


def test_population_approaches_the_target(target, wide_plane, generator):
    x = target.sample((4000,), generator)
    curves, q = population(target, 8, 1000, (1, 3, 12), generator, x=x)
    log_p, log_q = target.log_prob(wide_plane.points), q.log_prob(wide_plane.points)
    y = q.sample((5000,), generator)
    pairs = {
        "kl": ((q.log_prob(y) - target.log_prob(y)), wide_plane.kl(log_q, log_p)),
        "kl_backward": ((target.log_prob(x) - q.log_prob(x)), wide_plane.kl(log_p, log_q)),
    }
    for name, (ratio, exact) in pairs.items():
        error = ratio.std() / len(ratio) ** 0.5
        assert error < 0.03
        assert within(curves[name][-1] - exact, error)
        assert curves[name][0] > curves[name][-1] + 4 * error
    assert (curves["log_z"].abs() < 0.2).all()
    without, _ = population(target, 8, 1000, (1, 3, 12), generator)
    assert set(without) == {"kl", "log_z"}


# ---------------------------------------------------------------------- the kernel estimate


@pytest.mark.slow
def test_kernel_estimates_of_zero_are_above_it_and_fall(tiny, target, generator):
    """KL(estimate‖p) by a grid; both estimates with scipy's kernel density."""
    low, high = box(tiny, "main")
    samples, factors = target.sample((4000,), generator), (0.5, 1.0)
    sizes = (60, 500, 4000)
    estimates = [density_estimates(target, samples[:n], low, high, factors) for n in sizes]
    by_grid = torch.stack([grid for grid, _ in estimates])
    assert (by_grid[-1] > 0.003).all()
    assert (by_grid[1:] < 0.6 * by_grid[:-1]).all()
    some = samples[:500]
    plane = PlaneGrid.over((low[0] - 4, low[1] - 4), (high[0] + 4, high[1] + 4), 0.2)
    for i, factor in enumerate(factors):
        theirs = gaussian_kde(some.T.numpy(), bw_method=factor * 500 ** (-1 / 6))
        log_q = torch.from_numpy(theirs.pdf(plane.points.T.numpy())).log()
        exact = plane.kl(log_q, target.log_prob(plane.points))
        assert float(by_grid[1, i]) == pytest.approx(float(exact), rel=0.02)
        ratio = torch.from_numpy(theirs.logpdf(some.T.numpy())) - target.log_prob(some)
        torch.testing.assert_close(estimates[1][1][i], ratio.mean())


# ------------------------------------------------------------------------------------ panels


@pytest.mark.slow
def test_kernel_estimates_of_proposals_are_of_their_followers(tiny, cells, target):
    """The same run by hand: the last number of leaders, and the followers at the end."""
    record = cells.run("main-kde-steinis-double", 1)
    chunk = EXPERIMENT.chunks(tiny, cells.cells["main-kde-steinis-double"])[1]
    sampler = build_steinis(
        target, start(), chosen(cells.pilots["main-pilot-steinis-double"]),
        method="steinis-double", n_leaders=16, n_followers=60,
    )  # fmt: skip
    state = sampler.run(sampler.init(chunk.generator()), 8)
    estimate = gaussian_kde(state.followers.T.numpy(), bw_method=60 ** (-1 / 6))
    log_q = torch.from_numpy(estimate.logpdf(state.followers.T.numpy()))
    by_samples = float((log_q - target.log_prob(state.followers)).mean())
    assert record.by_samples.sel(factor=1.0).item() == pytest.approx(by_samples, rel=1e-6)
    kl = float((state.log_q - target.log_prob(state.followers)).mean())
    assert record.kl.item() == pytest.approx(kl, rel=1e-9)


@pytest.mark.parametrize("method", PANELS)
def test_panels_show_densities(tiny, cells, target, method):
    panels = cells.run(f"main-panels-{method}")
    stages = tiny.adaptive_checkpoints if method == "adaptive" else tiny.panel_stages
    assert panels.stage.values.tolist() == [-1, *stages]
    assert panels.density.dims == ("trial", "stage", "x1", "x2")
    x1, x2 = panels.x1.values, panels.x2.values
    cell = (x1[1] - x1[0]) * (x2[1] - x2[0])
    mass = panels.density.sum(("x1", "x2")).values[0] * cell
    assert mass[0] == pytest.approx(1, abs=0.01)
    point = torch.tensor([[x1[11], x2[23]]])
    expected = target.log_prob(point).exp().item()
    assert panels.density.values[0, 0, 11, 23] == pytest.approx(expected, rel=1e-5)
    seen = panels.invertible.values[0] > 0
    assert seen[:2].all()  # the target, and the start
    assert (mass[~seen] == 0).all()
    assert (np.abs(mass[seen] - 1) < (0.15 if method == "adaptive" else 0.05)).all()


@pytest.mark.parametrize("name", ["leaders", "component_scales", "kde_samples", "pmc_components"])
def test_repeated_values_are_refused(name):
    with pytest.raises(ParameterError, match=f"{name}: must rise strictly, got"):
        AdaptiveComparison.of_profile("paper", {name: (100, 100)})


def test_panels_are_near_the_papers():
    assert AdaptiveComparison().panel_stages == (0, 50, 200, 2000)
    few = AdaptiveComparison.of_profile("paper", {"checkpoints": (0, 3, 60)})
    assert few.panel_stages == (0, 60)
