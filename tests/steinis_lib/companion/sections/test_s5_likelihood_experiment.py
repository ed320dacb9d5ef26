import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from cells import Cells

from steinis_lib.companion.parameters import ParameterError
from steinis_lib.companion.problems.decoder import DecoderPosterior
from steinis_lib.companion.search import PATIENCE
from steinis_lib.companion.sections.s5_likelihood import problem as problems
from steinis_lib.companion.sections.s5_likelihood.experiment import (
    EXPERIMENT,
    EXTRA,
    FROM_ENCODER,
    images_of,
    methods,
)
from steinis_lib.companion.sections.s5_likelihood.problem import (
    CONDITIONS,
    VAELikelihood,
    initial,
    label,
    model_of,
    problem,
)
from steinis_lib.companion.sections.s5_likelihood.truth import rough_log_z
from steinis_lib.companion.settings import METHODS, TUNED
from steinis_lib.companion.tuning_records import chosen
from steinis_lib.companion.vae.networks import VAE, Decoder, Encoder

F64 = torch.float64
TINY = {
    "latent_dims": (20,),
    "n_images": 4,
    "n_images_extra": 3,
    "n_images_long": 3,
    "n_images_encoder": 2,
    "n_simulated": 2,
    "images_per_chunk": 3,
    "n_leaders": 6,
    "n_followers": 5,
    "transitions": (2, 5),
    "n_candidates": 12,
    "tuning_transitions": 20,
    "tuning_images": 2,
    "truth_chains": 10,
    "truth_transitions": 3,
    "bridge_draws": 20,
    "bridge_chains": 10,
    "bridge_transitions": 3,
    "bound_chains": 4,
    "bound_transitions": 3,
}


@pytest.fixture(scope="module")
def tiny():
    return Cells(EXPERIMENT, VAELikelihood.of_profile("paper", TINY))


@pytest.mark.slow
def test_pilots_meet_the_last_images_and_scores_are_near_the_truth(tiny):
    """A score is the mean log-weight less a rough log p(x), so that it is about -KL."""
    record = tiny.whole("encoder-tuning-hais-1l-20")
    model = model_of(20)
    pilots, _ = problem(tiny.parameters, model, "encoder", range(998, 1000))
    used, _ = problem(tiny.parameters, model, "encoder", range(4))
    assert not any(torch.equal(a, b) for a in pilots for b in used)
    rough = rough_log_z(DecoderPosterior(model.decoder, pilots), torch.Generator().manual_seed(0))
    assert float(rough.mean()) < -40
    assert -60 < float(record.score.max()) < 5
    assert chosen(record).refresh in (None, 1.0)


@pytest.mark.slow
def test_cells_cover_all_images_once(tiny):
    first, rest = EXPERIMENT.stages(tiny.parameters)
    assert len(first) == len(TUNED) + len([m for m in TUNED if m in FROM_ENCODER])
    expected = {"truth-20", "bridge-20", "bounds-20"}
    expected |= {f"{c}-{m}-20" for c in CONDITIONS for m in methods(c)}
    assert {cell.label for cell in rest} == expected
    assert {cell.method for cell in rest} >= {"truth", "bridge", "bounds", "prior-ais"}
    for name, count in (
        ("prior-is", 4), ("prior-hais-10l", 3), ("prior-ais-unadjusted", 3), ("encoder-ais", 2),
        ("simulated-ais", 2), ("truth", 4), ("bridge", 4), ("bounds", 2),
    ):  # fmt: skip
        assert tiny.trials(f"{name}-20") == list(range(count)), name


def test_the_published_sizes():
    p = VAELikelihood()
    assert {images_of(p, "prior", m) for m in METHODS if m not in (*EXTRA, "hais-10l")} == {100}
    assert images_of(p, "prior", "hais-10l") == 20
    assert {images_of(p, "encoder", m) for m in FROM_ENCODER} == {9}
    leaders = p.tuning_transitions * p.n_leaders
    particles = (p.tuning_transitions + 1) * p.n_followers
    assert abs(leaders / particles - 1) < 0.01  # so that all methods have the same budget


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_transitions_and_costs_are_stored(tiny, method):
    first = tiny.run(label("prior", method, 20))
    assert np.isfinite(first.log_z.values).all()
    points = [0] if method == "is" else [2, 5]
    assert first.transitions.values.tolist() == points
    cost = [5] if method == "is" else [k * 6 + 5 for k in points]
    if method == "steinis-leaders":
        cost = [k * 6 + 6 for k in points]
    if method.startswith(("hais", "ais")):
        cost = [(k * (10 if "10l" in method else 1) + 1) * 5 for k in points]
    assert first.evaluations.values[0].tolist() == cost


@pytest.mark.slow
def test_other_conditions_have_fewer_points(tiny):
    found = {
        (c, m): tiny.run(label(c, m, 20)).transitions.values.tolist()
        for c in ("encoder", "simulated")
        for m in ("hais-1l", "hais-10l")
    }
    assert found == {
        ("encoder", "hais-1l"): [2, 5], ("encoder", "hais-10l"): [2],
        ("simulated", "hais-1l"): [5], ("simulated", "hais-10l"): [2],
    }  # fmt: skip


def test_arithmetic_is_in_64_bits(tiny):
    model = model_of(20)
    for condition in CONDITIONS:
        images, _ = problem(tiny.parameters, model, condition, [0])
        q0 = initial(model, condition, images)
        score = DecoderPosterior(model.decoder, images).score(q0.mean.unsqueeze(-2))
        assert images.dtype == q0.scale_tril.dtype == score.dtype == torch.float64


def test_conditions_differ_in_what_they_say(tiny):
    model, p = model_of(20), tiny.parameters
    images, latents = problem(p, model, "prior", [0, 2])
    assert latents is None
    assert torch.equal(images, problem(p, model, "encoder", [0, 2])[0])
    assert torch.equal(images[1:], problem(p, model, "prior", [2])[0])
    drawn, latents = problem(p, model, "simulated", [1])
    assert drawn.shape == (1, 784) and latents.shape == (1, 20)
    assert set(drawn.unique().tolist()) == {0.0, 1.0}
    prior, encoder = (initial(model, name, images) for name in ("prior", "encoder"))
    assert torch.equal(prior.scale_tril, torch.eye(20, dtype=F64))
    mean, log_var = model.encoder(images)
    assert torch.equal(encoder.mean, mean)
    variances = (encoder.scale_tril @ encoder.scale_tril.mT).diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(variances, log_var.exp())
    by_prior, by_encoder = (tiny.run(label(name, "is", 20)).log_z.values for name in CONDITIONS[:2])
    assert (by_encoder > by_prior[:2] + 10).all()  # five draws from the prior find nothing


def test_the_latent_of_a_drawn_image_explains_it():
    """Each drawn image is likelier under its own latent than under another's."""
    p = VAELikelihood.of_profile("paper", TINY | {"n_simulated": 12})
    model = model_of(20)
    images, latents = problem(p, model, "simulated", range(12))
    scores = DecoderPosterior(model.decoder, images).log_prob(latents.expand(12, 12, 20))
    own = scores.diagonal()
    assert (own > scores.median(-1).values + 20).all()


def small_model(seed):
    """A decoder with one latent, seven pixels, and log p(x) by quadrature."""
    g = torch.Generator().manual_seed(seed)
    decoder = Decoder(
        *(torch.randn(s, generator=g, dtype=F64) for s in ((1, 4), (4,), (4, 7), (7,)))
    )
    encoder = Encoder(
        *(torch.zeros(s, dtype=F64) for s in ((7, 4), (4,), (4, 1), (1,), (4, 1), (1,)))
    )
    return VAE(decoder, encoder, 1, 1, 0.0)


def quadrature(model, images):
    z = torch.linspace(-10, 10, 4001, dtype=F64).reshape(-1, 1).expand(len(images), -1, 1)
    log_prob = DecoderPosterior(model.decoder, images).log_prob(z).double()
    return log_prob.logsumexp(-1) + math.log(20 / 4000)


@pytest.fixture
def one_latent(monkeypatch):
    """The experiment on a small model, whose likelihoods are known."""
    model = small_model(3)
    images = (torch.rand(1000, 7, generator=torch.Generator().manual_seed(0)) > 0.4).to(F64)
    monkeypatch.setattr(problems.vae, "bundled", lambda d: model)
    monkeypatch.setattr(
        problems, "mnist", SimpleNamespace(bundled=lambda: images, binarise=lambda x: x)
    )
    monkeypatch.setattr(problems.vae, "BUNDLED", (1,))
    sizes = {
        "latent_dims": (1,), "n_images": 40, "n_images_extra": 40, "n_images_long": 40,
        "n_images_encoder": 40, "n_simulated": 40, "images_per_chunk": 40, "n_leaders": 30,
        "n_followers": 50, "transitions": (40,), "truth_chains": 100, "truth_transitions": 30,
        "bridge_draws": 2000, "bridge_chains": 50, "bridge_transitions": 20, "bound_chains": 50,
        "bound_transitions": 40,
    }  # fmt: skip
    p = VAELikelihood.of_profile("paper", TINY | sizes)
    return Cells(EXPERIMENT, p), model


@pytest.mark.slow
def test_every_tuned_method_has_the_same_budget(one_latent):
    cells, _ = one_latent
    records = cells.all_pilots()
    assert len(records) == len(TUNED) + len([m for m in TUNED if m in FROM_ENCODER])
    for name, record in records.items():
        # Two images for each candidate: 20 transitions of 30 leaders, or of 50 particles, each with
        # a first evaluation; HAIS-10L spends its ten leapfrogs in two transitions.
        cost = 20 * 30 if "steinis" in name else (20 + 1) * 50
        assert set(record.gradients.values.ravel()) == {2 * cost}, name
        assert 12 <= record.sizes["candidate"] <= 12 * PATIENCE, name


@pytest.mark.parametrize(
    "method",
    [
        "is", "steinis", "steinis-double", "steinis-wide", "steinis-adagrad", "hais-1l",
        "hais-1l-partial", "hais-10l", "ais",
    ],
)  # fmt: skip
def test_estimates_are_unbiased(one_latent, method):
    """The mean of Ẑ/Z over images and particles is 1, in sigma units, for every unbiased method."""
    cells, model = one_latent
    images, _ = problem(cells.parameters, model, "prior", range(40))
    found = cells.whole(label("prior", method, 1))
    ratio = np.exp(found.log_z.values[:, -1] - quadrature(model, images).numpy())
    assert abs(ratio.mean() - 1) < 4 * ratio.std(ddof=1) / math.sqrt(40)
    assert ratio.std() < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("route", ["truth", "bridge"])
def test_each_route_has_the_truth_within_its_error(one_latent, route):
    cells, model = one_latent
    images, _ = problem(cells.parameters, model, "prior", range(40))
    found = cells.run(f"{route}-1")
    error = found.log_z.values - quadrature(model, images).numpy()
    in_sigma = error / np.maximum(found.standard_error.values, 1e-5)
    assert np.abs(in_sigma).max() < 4.5
    assert np.sqrt(np.square(in_sigma).mean()) > 0.3  # so that the errors are not too large
    assert found.standard_error.values.max() < 0.05


@pytest.mark.slow
def test_bounds_enclose_the_truth(one_latent):
    cells, model = one_latent
    drawn, _ = problem(cells.parameters, model, "simulated", range(40))
    exact = quadrature(model, drawn).numpy()
    bounds = cells.run("bounds-1")
    for gap in (exact - bounds.lower.values, bounds.upper.values - exact):
        assert gap.mean() > -4 * gap.std(ddof=1) / math.sqrt(40)
        assert gap.mean() < 0.05


@pytest.mark.slow
def test_routes_share_no_random_numbers(tiny):
    """The same images, another fit and another estimate, and both are near one another."""
    ours, theirs = tiny.run("truth-20"), tiny.run("bridge-20")
    assert ours.trial.values.tolist() == theirs.trial.values.tolist()
    difference = np.abs(ours.log_z.values - theirs.log_z.values)
    assert (difference > 0).all() and (difference < 3).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"latent_dims": [20, 10]}, "latent_dims: must rise strictly"),
        ({"latent_dims": [12]}, r"trained models are \(10, 20, 50\), none for \[12\]"),
        ({"transitions": [5, 5]}, "transitions: must rise strictly"),
        ({"n_images_long": 99}, "n_images_long: at most n_images = 4"),
        ({"n_images_encoder": 5}, "n_images_encoder: at most n_images = 4"),
        ({"n_images": 999}, "1000 images are at hand for both together"),
    ],
)
def test_nonsense_is_refused(given, message):
    with pytest.raises(ParameterError, match=message):
        VAELikelihood.of_profile("quick", given)
