"""The experiment at tiny sizes, the method without its parts, and the skewed target."""

import math

import numpy as np
import pytest
import torch
from cells import Cells

from steinis_lib.companion.parameters import ParameterError
from steinis_lib.companion.sections.s8_pooled.experiment import EXPERIMENT, WITHOUT
from steinis_lib.companion.sections.s8_pooled.settings import Pooled
from steinis_lib.companion.sections.s8_pooled.without import (
    NotWhitened,
    PrintedBandwidth,
    SkewedProduct,
)
from steinis_lib.extensions.pooled import PooledSteinIS
from steinis_lib.stein.kernels import median_bandwidth
from steinis_lib.targets.base import Gaussian

TINY = {
    "n_leaders": 60, "leaders_per_step": 20, "image_transitions": (1, 2, 3), "long_from": 3,
    "image_followers": (5, 10), "rbm_transitions": (1, 2), "rbm_followers": 20,
    "mixture_transitions": (1, 2), "plane_transitions": (1, 2), "plane_followers": 20,
    "floor_leaders": (20, 40), "floor_fixed_up_to": 20, "floor_dims": (1, 5),
    "answer_transitions": (1, 2, 3), "answer_leaders": (40,), "answer_followers": 20,
}  # fmt: skip


@pytest.fixture(scope="module")
def cells():
    return Cells(EXPERIMENT, Pooled.of_profile("quick", TINY))


def test_every_kind_of_problem_has_its_cells():
    labels = [cell.label for cell in EXPERIMENT.cells(Pooled.of_profile("paper"))]
    assert len(labels) == len(set(labels))
    for label in (
        "mixtures-easy", "mixtures-hard", "bent", "rbm-matched-100", "images-50", "product-50",
        "without-pool-20", "answer-50-10000", "floor-bent-pool-20000", "floor-easy-sobol-1000",
    ):  # fmt: skip
        assert label in labels
    assert "floor-bent-pool-100" not in labels  # a map takes more leaders
    assert "floor-bent-fixed-2000" not in labels


@pytest.mark.slow
def test_images_beyond_the_first_ones_stop_early(cells):
    found = cells.whole("images-10")
    assert dict(found.log_z.sizes) == {"trial": 4, "transitions": 3, "size": 2}
    late = found.log_z.sel(transitions=3).values
    assert np.isfinite(late[:2]).all() and np.isnan(late[2:]).all()
    assert np.isfinite(found.log_z.sel(transitions=[1, 2]).values).all()
    assert found.scores.sel(transitions=2).values.tolist() == [40] * 4


@pytest.mark.slow
def test_parts_left_out_go_as_long_as_all_images_and_change_the_result(cells):
    found = {part: cells.whole(f"without-{part}-10") for part in WITHOUT}
    first = {part: x.log_z.sel(transitions=2).values.ravel()[0] for part, x in found.items()}
    assert len(set(first.values())) == len(WITHOUT)
    for x in found.values():
        assert x.transitions.values.tolist() == [1, 2] and x.log_z.notnull().all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("label", "variables"),
    [
        ("mixtures-easy", {"error", "error_all", "log_z", "kl", "ess"}),
        ("bent", {"kl", "kl_error", "ess"}),
        ("rbm-standard-10", {"error", "log_z", "mean_log_w"}),
        ("rbm-matched-10", {"error", "log_z", "mean_log_w"}),
        ("floor-bent-fixed-20", {"kl"}),
        ("floor-bent-sobol-20", {"kl"}),
        ("floor-easy-pool-40", {"kl"}),
        ("answer-1-40", {"kl"}),
        ("product-5", {"kl"}),
    ],
)
def test_numbers_are_there_at_each_number_of_transitions(cells, label, variables):
    found = cells.run(label)
    assert variables <= set(found.data_vars)
    for name in variables:
        assert found[name].dims[:2] in {("trial", "transitions"), ("transitions", "trial")}
        assert np.isfinite(found[name].values).all(), name


@pytest.mark.slow
def test_starts_at_the_answer_are_shorter_beyond_the_plane(cells):
    found = cells.run("answer-5-40")
    assert np.isnan(found.kl.sel(transitions=3).values).all()
    assert np.isfinite(found.kl.sel(transitions=[1, 2]).values).all()


@pytest.mark.slow
def test_a_run_gives_the_same_numbers_again(cells):
    label = "floor-bent-pool-40"
    assert cells.run(label).kl.equals(cells.run(label).kl)


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(ParameterError, match="n_images_long: at most n_images = 4"):
        Pooled.of_profile("quick", {"n_images_long": 5})
    with pytest.raises(ParameterError, match="rbm_trials: a multiple of 5"):
        Pooled.of_profile("quick", {"rbm_trials": 7})


# ---------------------------------------------------------------- without a part


TARGET = Gaussian.isotropic(torch.zeros(3, dtype=torch.float64))
STRETCHED = torch.randn(2, 400, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
STRETCHED = STRETCHED * torch.tensor([0.1, 1.0, 10.0], dtype=torch.float64) + 5


def sampler(kind):
    return kind(TARGET, TARGET, n_leaders=400, n_followers=10, leaders_per_step=50)


def test_without_whitening_coordinates_are_moved_and_scaled_as_a_whole():
    white = sampler(PooledSteinIS)._coordinates(STRETCHED).whiten(STRETCHED)
    whole = sampler(NotWhitened)._coordinates(STRETCHED).whiten(STRETCHED)
    eye = torch.eye(3, dtype=torch.float64).expand(2, 3, 3)
    covariance = torch.stack([x.T.cov() for x in white])
    torch.testing.assert_close(covariance, eye, atol=0.01, rtol=0)
    for x, given in zip(whole, STRETCHED, strict=True):
        ratio = x.std(0) / given.std(0)
        torch.testing.assert_close(ratio, ratio[:1].expand(3))  # one scale for all directions
        assert float(x.var(0).mean()) == pytest.approx(1, abs=0.01)
        torch.testing.assert_close(x.mean(0), torch.zeros(3, dtype=torch.float64))


def test_the_printed_bandwidth_is_the_rule_of_the_leaders_of_a_map():
    u = STRETCHED[:, :50]
    kernel, _ = sampler(PrintedBandwidth)._kernel(STRETCHED, u, -u)
    torch.testing.assert_close(kernel.kernel.bandwidth, median_bandwidth(u))
    whole, _ = sampler(PooledSteinIS)._kernel(STRETCHED, u, -u)
    assert bool((whole.kernel.bandwidth > kernel.kernel.bandwidth).all())


# ---------------------------------------------------------------- the skewed target


def test_the_skewed_density_integrates_to_one_and_is_skewed():
    x = torch.linspace(-15, 6, 20_001, dtype=torch.float64)[:, None]
    p = SkewedProduct(1).log_prob(x).exp()
    step = float(x[1, 0] - x[0, 0])
    assert float(p.sum()) * step == pytest.approx(1, abs=1e-9)
    centre = float((p * x[:, 0]).sum()) * step
    assert float((p * (x[:, 0] - centre) ** 3).sum()) * step < -0.1
    other = SkewedProduct(1, shape=1.0).log_prob(x).exp()
    assert float(other.sum()) * step == pytest.approx(1, abs=1e-5)


def test_its_log_density_is_a_sum_over_coordinates_and_its_score_the_gradient():
    target = SkewedProduct(4)
    x = torch.randn(2, 5, 4, dtype=torch.float64, requires_grad=True)
    log_p, score = target.log_prob_and_score(x)
    each = 3 * x - x.exp() - math.lgamma(3.0)
    torch.testing.assert_close(log_p, each.sum(-1))
    (gradient,) = torch.autograd.grad(log_p.sum(), x)
    torch.testing.assert_close(score, gradient)
