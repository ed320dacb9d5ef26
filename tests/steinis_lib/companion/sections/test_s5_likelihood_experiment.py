import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from cells import Cells

from steinis_lib.companion.methods import METHODS, TUNED
from steinis_lib.companion.parameters import ParameterError
from steinis_lib.companion.problems.decoder import DecoderPosterior
from steinis_lib.companion.sections.s5_likelihood import problem as problems
from steinis_lib.companion.sections.s5_likelihood.experiment import EXPERIMENT, candidates
from steinis_lib.companion.sections.s5_likelihood.problem import (
    CONDITIONS,
    VAELikelihood,
    initial,
    label,
    model_of,
    problem,
)
from steinis_lib.companion.vae.networks import VAE, Decoder, Encoder

F64 = torch.float64
TINY = {
    "latent_dims": (20,),
    "n_images": 3,
    "n_images_long": 2,
    "n_simulated": 2,
    "images_per_chunk": 2,
    "n_leaders": 6,
    "n_followers": 5,
    "transitions": (2, 5),
    "transitions_long": (2,),
    "tuning_transitions": 20,
    "tuning_images": 2,
    "truth_chains": 10,
    "truth_transitions": 3,
    "truth_leapfrogs": 2,
}


@pytest.fixture(scope="module")
def tiny():
    return Cells(EXPERIMENT, VAELikelihood.of_profile("paper", TINY))


@pytest.mark.slow
def test_every_tuned_method_has_the_same_budget(tiny):
    records = tiny.all_pilots()
    assert {len(set(candidates(method))) for method in TUNED} == {12}
    assert {name.split("-tuning-")[0] for name in records} == {"prior", "encoder"}
    for name, record in records.items():
        # Two images for each candidate: 20 transitions of 6 leaders, or of 5 particles, each with a
        # first evaluation; HAIS-10L spends its ten leapfrogs in two transitions.
        cost = 20 * 6 if "steinis" in name else (20 + 1) * 5
        assert set(record.gradients.values.ravel()) == {2 * cost}, name


@pytest.mark.slow
def test_cells_cover_all_images_once(tiny):
    first, rest = EXPERIMENT.stages(tiny.parameters)
    assert len(first) == len(TUNED) * 2
    expected = {"truth-20", "bounds-20"} | {f"{c}-{m}-20" for c in CONDITIONS for m in METHODS}
    assert {cell.label for cell in rest} == expected
    for name, count in (
        ("prior-is", 3), ("prior-hais-10l", 2), ("simulated-ais", 2), ("truth", 3), ("bounds", 2)
    ):  # fmt: skip
        assert tiny.trials(f"{name}-20") == list(range(count)), name


@pytest.mark.parametrize("method", METHODS)
def test_transitions_and_costs_are_stored(tiny, method):
    first = tiny.run(label("prior", method, 20))
    assert np.isfinite(first.log_z.values).all()
    points = [0] if method == "is" else [2] if method == "hais-10l" else [2, 5]
    assert first.transitions.values.tolist() == points
    cost = [5] if method == "is" else [k * 6 + 5 for k in points]
    if method.startswith(("hais", "ais")):
        cost = [(k * (10 if "10l" in method else 1) + 1) * 5 for k in points]
    assert first.evaluations.values[0].tolist() == cost


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
    assert (by_encoder > by_prior + 10).all()  # five draws from the prior find nothing


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
        "latent_dims": (1,), "n_images": 40, "n_images_long": 40, "n_simulated": 40,
        "images_per_chunk": 40, "n_leaders": 30, "n_followers": 50, "transitions": (40,),
        "transitions_long": (10,), "truth_chains": 100, "truth_transitions": 100,
    }  # fmt: skip
    p = VAELikelihood.of_profile("paper", TINY | sizes)
    return Cells(EXPERIMENT, p), model


@pytest.mark.parametrize(
    "method", ["is", "steinis", "hais-1l", "hais-1l-partial", "hais-10l", "ais"]
)
def test_estimates_are_unbiased(one_latent, method):
    """The mean of Ẑ/Z over images and particles is 1, in sigma units, for every unbiased method."""
    cells, model = one_latent
    images, _ = problem(cells.parameters, model, "prior", range(40))
    found = cells.run(label("prior", method, 1))
    ratio = np.exp(found.log_z.values[:, -1] - quadrature(model, images).numpy())
    assert abs(ratio.mean() - 1) < 4 * ratio.std(ddof=1) / math.sqrt(40)
    assert ratio.std() < 0.5


@pytest.mark.slow
def test_long_runs_and_bounds_enclose_the_truth(one_latent):
    cells, model = one_latent
    images, _ = problem(cells.parameters, model, "prior", range(40))
    truth = cells.run("truth-1")
    error = truth.log_z.values - quadrature(model, images).numpy()
    assert np.abs(error / np.maximum(truth.standard_error.values, 1e-4)).max() < 4.5
    drawn, _ = problem(cells.parameters, model, "simulated", range(40))
    exact = quadrature(model, drawn).numpy()
    bounds = cells.run("bounds-1")
    for gap in (exact - bounds.lower.values, bounds.upper.values - exact):
        assert gap.mean() > -4 * gap.std(ddof=1) / math.sqrt(40)
        assert gap.mean() < 0.05


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"latent_dims": [20, 10]}, "latent_dims: must rise strictly"),
        ({"latent_dims": [12]}, r"trained models are \(10, 20, 50\), none for \[12\]"),
        ({"transitions": [5, 5]}, "transitions: must rise strictly"),
        ({"n_images_long": 99}, "n_images_long: at most n_images = 4"),
    ],
)
def test_nonsense_is_refused(given, message):
    with pytest.raises(ParameterError, match=message):
        VAELikelihood.of_profile("quick", given)
