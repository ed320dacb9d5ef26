"""Ends from a Gaussian q_K and from one bent by maps: costs, estimates, errors."""

import numpy as np
import pytest
import xarray as xr

from steinis_lib.companion.counting import Counted
from steinis_lib.companion.problems.decoder import DecoderPosterior
from steinis_lib.companion.runner.experiment import compute_chunk
from steinis_lib.companion.sections.s5_likelihood import problem as vae_likelihood
from steinis_lib.companion.sections.s5_likelihood.problem import bridge_label, truth_label
from steinis_lib.companion.sections.s8_pooled import ends
from steinis_lib.companion.sections.s8_pooled import ends_statistics as statistics

QUICK = ends.Ends.of_profile("quick")
CELLS = {cell.label: cell for cell in ends.EXPERIMENT.cells(QUICK)}


def test_each_end_starts_from_both_proposals_in_each_dimension():
    paper = ends.EXPERIMENT.cells(ends.Ends.of_profile("paper"))
    assert len(paper) == 2 * len(ends.STARTS) * len(ends.ENDS)
    assert {cell.n_trials for cell in paper} == {9}


def test_a_dimension_without_a_model_is_refused():
    with pytest.raises(ValueError, match=r"there are models for .*, not for \[7\]"):
        ends.cells(ends.Ends(latent_dims=(7,)))


@pytest.mark.slow
@pytest.mark.parametrize("name", CELLS)
def test_estimates_agree_and_stay_within_their_evaluations(name, monkeypatch):
    made = []

    def counted(decoder, images):
        made.append(Counted(DecoderPosterior(decoder, images)))
        return made[-1]

    monkeypatch.setattr(ends, "DecoderPosterior", counted)
    monkeypatch.setattr(Counted, "images", property(lambda self: self.target.images), raising=False)
    monkeypatch.setattr(Counted, "prior", lambda self: self.target.prior(), raising=False)
    cell = CELLS[name]
    found = compute_chunk(cell, QUICK, ends.EXPERIMENT.chunks(QUICK, cell)[0])
    problems = QUICK.n_images * QUICK.repeats
    assert 0.95 * QUICK.evaluations <= made[0].n / problems <= QUICK.evaluations
    assert found.log_z.dims == ("trial", "repeat") and found.log_z.dtype == np.float64
    # Two images of test data, whose log p(x) at d = 10 long runs put near these.
    assert np.abs(found.log_z.mean("repeat") - [-79.64, -76.79]).max() < 0.4


def test_errors_are_against_the_truth_of_the_same_images_and_ratios_are_paired():
    trials = [0, 1, 2]
    exact = xr.Dataset(
        {"log_z": ("trial", [-80.0, -70.0, -90.0]), "standard_error": ("trial", [0.1, 0.1, 0.1])},
        {"trial": trials},
    )
    vae = xr.DataTree.from_dict({truth_label(20): exact, bridge_label(20): exact})
    own = {"trial": trials, "repeat": [0, 1]}
    off = np.array([[0.1, -0.1], [0.2, 0.2], [0.4, -0.4]])
    plain = xr.Dataset(
        {"log_z": (("trial", "repeat"), exact.log_z.values[:, None] + off)}, own
    ).isel(trial=[2, 0, 1])
    bent = plain.assign(log_z=2 * (plain.log_z - exact.log_z) + exact.log_z)
    tree = xr.DataTree.from_dict(
        {ends.label("flow", "hais", 20): plain, ends.label("maps", "hais", 20): bent}
    )
    ours, theirs = (statistics.errors(tree, vae, s, "hais", 20) for s in ("maps", "flow"))
    np.testing.assert_allclose(theirs, off[[2, 0, 1]], atol=1e-12)
    assert statistics.rmse(theirs).value == pytest.approx(np.sqrt(np.mean(off**2)))
    ratio = statistics.rmse_ratio(ours, theirs)
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((2, 2, 2))


def test_the_images_are_those_of_section_5_in_64_bits():
    model = vae_likelihood.model_of(10)
    images, _ = vae_likelihood.problem(vae_likelihood.VAELikelihood(), model, "prior", range(2))
    assert images.dtype == model.decoder.output_bias.dtype
