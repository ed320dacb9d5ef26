import hashlib
import json
import math
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from steinis_lib.companion.vae import mnist
from steinis_lib.companion.vae import networks as vae
from steinis_lib.companion.vae.networks import VAE, Decoder, Encoder, elbo

PIXELS = 6


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def random_vae(d=1, hidden=4, pixels=PIXELS, scale=1.0, dtype=torch.float64, seed=3):
    generator = gen(seed)
    tensors = {
        name: scale * torch.randn(shape, generator=generator, dtype=dtype)
        for name, shape in vae.shapes(d, hidden, pixels).items()
    }
    return VAE(*vae.networks(tensors), seed=5, epochs=7, held_out_elbo=-1.25)


def all_images(pixels=PIXELS):
    """Every binary image, (2^pixels, pixels)."""
    k = torch.arange(2**pixels)
    return ((k.unsqueeze(-1) >> torch.arange(pixels)) & 1).double()


def same(a, b):
    return all(
        torch.equal(getattr(x, name), getattr(y, name))
        for x, y in ((a.decoder, b.decoder), (a.encoder, b.encoder))
        for name in x.__dataclass_fields__
    )


# ----------------------------------------------------------------------------------- networks


def test_the_decoder_is_the_stated_network_whatever_the_batch():
    decoder = random_vae(d=3).decoder
    z = torch.randn(2, 5, 3, generator=gen())
    logits = decoder.logits(z)
    assert logits.shape == (2, 5, PIXELS) and decoder.latent_dim == 3
    for i in range(2):
        for j in range(5):
            hidden = [
                math.tanh(sum(z[i, j, a] * decoder.hidden_weight[a, b] for a in range(3)) + bias)
                for b, bias in enumerate(decoder.hidden_bias)
            ]
            for k in range(PIXELS):
                value = sum(h * decoder.output_weight[b, k] for b, h in enumerate(hidden))
                assert logits[i, j, k] == pytest.approx(float(value + decoder.output_bias[k]))


def test_the_likelihood_is_torchs_bernoulli_and_sums_to_one():
    decoder, x, z = random_vae(d=2).decoder, all_images(), torch.randn(1, 2, generator=gen())
    log_p = decoder.log_likelihood(x, z)
    expected = torch.distributions.Bernoulli(logits=decoder.logits(z)).log_prob(x).sum(-1)
    torch.testing.assert_close(log_p, expected)
    torch.testing.assert_close(log_p.logsumexp(0), torch.tensor(0.0))


def test_the_likelihood_is_finite_for_extreme_logits():
    decoder = random_vae(scale=1e4).decoder
    log_p = decoder.log_likelihood(all_images(), torch.ones(1, 1))
    assert torch.isfinite(log_p).all() and (log_p <= 0).all()


def test_samples_of_the_decoder_are_binary_with_the_stated_frequencies():
    decoder, n = random_vae(d=2).decoder, 20_000
    z = torch.randn(1, 2, generator=gen())
    x = decoder.sample(z.expand(n, 2), gen(1))
    assert ((x == 0) | (x == 1)).all()
    p = decoder.logits(z)[0].sigmoid()
    sigma = (p * (1 - p) / n).sqrt()
    assert ((x.mean(0) - p).abs() < 5 * sigma).all()
    assert torch.equal(x, decoder.sample(z.expand(n, 2), gen(1)))


@pytest.mark.parametrize("name", ["hidden_weight", "hidden_bias", "output_weight", "output_bias"])
def test_a_decoder_whose_shapes_do_not_fit_is_refused(name):
    decoder = random_vae(d=2).decoder
    longer = torch.cat([getattr(decoder, name)] * 2, dim=-1)
    with pytest.raises(ValueError, match=r"Decoder\.\w+: expected shape \(.*\), got \("):
        replace(decoder, **{name: longer})


@pytest.mark.parametrize("name", ["hidden_weight", "mean_bias", "log_var_weight", "log_var_bias"])
def test_an_encoder_whose_shapes_do_not_fit_is_refused(name):
    encoder = random_vae(d=2).encoder
    longer = torch.cat([getattr(encoder, name)] * 2, dim=-1)
    with pytest.raises(ValueError, match=r"Encoder\.\w+: expected shape \(.*\), got \("):
        replace(encoder, **{name: longer})


# --------------------------------------------------------------------------------------- elbo


def test_the_elbo_is_log_p_where_x_does_not_depend_on_z_and_q_is_the_prior():
    model, x = random_vae(d=2), all_images()
    decoder = replace(model.decoder, hidden_weight=torch.zeros(2, 4))
    encoder = Encoder(*(torch.zeros_like(t) for t in vars(model.encoder).values()))
    log_p = decoder.log_likelihood(x, torch.zeros(1, 2))
    for n_samples in (1, 3):
        torch.testing.assert_close(elbo(decoder, encoder, x, gen(), n_samples), log_p)


@pytest.mark.slow
def test_the_elbo_agrees_with_quadrature_and_falls_short_of_log_p_by_the_divergence():
    model, x = random_vae(), all_images()
    z = torch.linspace(-12, 12, 20_001).unsqueeze(-1)
    step = float(z[1, 0] - z[0, 0])
    prior = torch.distributions.Normal(0, 1).log_prob(z[:, 0])
    mean, log_var = model.encoder(x)
    q = torch.distributions.Normal(mean, (0.5 * log_var).exp()).log_prob(z[:, 0])
    joint = prior + model.decoder.log_likelihood(x.unsqueeze(1), z)
    log_p = (joint.logsumexp(-1) + math.log(step)).squeeze(-1)
    exact = ((joint - q) * q.exp()).sum(-1) * step
    gap = ((q - joint + log_p.unsqueeze(-1)) * q.exp()).sum(-1) * step
    torch.testing.assert_close(log_p.logsumexp(0), torch.tensor(0.0), atol=1e-9, rtol=0)
    draws = torch.stack([elbo(model.decoder, model.encoder, x, gen(i)) for i in range(2000)])
    sigma = draws.std(0) / math.sqrt(len(draws))
    assert ((draws.mean(0) - exact).abs() < 5 * sigma).all()
    assert (exact < log_p).all()
    torch.testing.assert_close(exact + gap, log_p)


def test_more_samples_give_the_same_elbo_with_less_noise():
    model, x = random_vae(d=2), all_images()[:8]
    few, many = (
        torch.stack([elbo(model.decoder, model.encoder, x, gen(i), n) for i in range(1000)])
        for n in (1, 16)
    )
    sigma = (few.var(0) + many.var(0)).div(1000).sqrt()
    assert ((few.mean(0) - many.mean(0)).abs() < 5 * sigma).all()
    # A ratio of two variances from 1000 draws each is off by about 10 % if they were Gaussian.
    assert (few.var(0) / many.var(0)).log().mean() == pytest.approx(math.log(16), abs=0.3)


def test_the_gradient_of_the_elbo_is_that_of_finite_differences():
    model, x = random_vae(d=2), all_images()[:5]
    names, tensors = zip(*vars(model.decoder).items(), strict=True)
    more, encoder_tensors = zip(*vars(model.encoder).items(), strict=True)

    def value(*flat):
        decoder = Decoder(**dict(zip(names, flat[: len(names)], strict=True)))
        encoder = Encoder(**dict(zip(more, flat[len(names) :], strict=True)))
        return elbo(decoder, encoder, x, gen(4), 2)

    leaves = [t.clone().requires_grad_() for t in (*tensors, *encoder_tensors)]
    assert torch.autograd.gradcheck(value, leaves)


# -------------------------------------------------------------------------------------- files


@pytest.fixture
def stored(tmp_path):
    model = random_vae(d=3, dtype=torch.float32)
    path = tmp_path / "new" / "d3.safetensors"
    vae.save(model, path)
    return model, path


def test_a_model_comes_back_bit_for_bit_with_what_is_known_of_it(stored):
    model, path = stored
    loaded = vae.load(path)
    assert same(loaded, model)
    assert (loaded.latent_dim, loaded.seed, loaded.epochs, loaded.held_out_elbo) == (3, 5, 7, -1.25)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_the_same_model_gives_the_same_file(stored):
    model, path = stored
    vae.save(model, path.with_name("again.safetensors"))
    assert path.read_bytes() == path.with_name("again.safetensors").read_bytes()


def test_a_failed_save_leaves_what_was_there(stored, monkeypatch):
    model, path = stored
    before = path.read_bytes()

    def fail(tensors, scratch, metadata):
        scratch.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(vae, "save_file", fail)
    with pytest.raises(OSError, match="disk full"):
        vae.save(model, path)
    assert path.read_bytes() == before and len(list(path.parent.iterdir())) == 1


def test_a_truncated_file_is_refused(stored):
    path = stored[1]
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ValueError, match=r"d3\.safetensors is no complete model .* anew"):
        vae.load(path)
    with pytest.raises(FileNotFoundError):
        vae.load(path.with_name("none.safetensors"))


def change(path, tensors=None, drop=(), **about):
    """Write the file again with other tensors and metadata."""
    with safe_open(path, framework="pt") as file:
        known = json.loads(file.metadata()["vae"])
    kept = {name: t for name, t in load_file(path).items() if name not in drop}
    save_file(kept | (tensors or {}), path, metadata={"vae": json.dumps(known | about)})


WRONG = {
    "missing": ({"drop": ["decoder.output_bias"]}, r"output_bias: expected \(6,\), got None"),
    "missing weight": ({"drop": ["decoder.output_weight"]}, "output_weight: expected"),
    "extra": ({"tensors": {"more": torch.ones(2)}}, r"more: expected None, got \(2,\)"),
    "shape": (
        {"tensors": {"encoder.mean_weight": torch.ones(4, 2)}},
        r"encoder\.mean_weight: expected \(4, 3\), got \(4, 2\)",
    ),
    "rank": ({"tensors": {"decoder.output_weight": torch.ones(4)}}, "output_weight: expected"),
    "dtype": (
        {"tensors": {"decoder.hidden_bias": torch.ones(4, dtype=torch.int32)}},
        r"hidden_bias: expected \(4,\), got torch\.int32",
    ),
    "dimension": ({"latent_dim": 4}, "is no model of 4 latent dimensions"),
}


@pytest.mark.parametrize(("wrong", "message"), WRONG.values(), ids=WRONG.keys())
def test_wrong_tensors_are_named(stored, wrong, message):
    path = stored[1]
    change(path, **wrong)
    with pytest.raises(ValueError, match=message):
        vae.load(path)


def test_a_safetensors_file_of_another_kind_is_refused(tmp_path):
    save_file({"x": torch.ones(2)}, tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match="not written by this module's `save`"):
        vae.load(tmp_path / "x.safetensors")


# ------------------------------------------------------------------------------------ bundled


def test_there_is_no_bundled_model_of_another_dimension():
    with pytest.raises(ValueError, match=r"\(10, 20, 50\), got 30; train another"):
        vae.bundled(30)


def test_every_bundled_file_has_its_listed_hash():
    lines = (vae.FOLDER / "SHA256SUMS").read_text("utf-8").splitlines()
    listed = dict(reversed(line.split("  ")) for line in lines)
    assert set(listed) == {f"d{d}.{kind}" for d in vae.BUNDLED for kind in ("safetensors", "json")}
    for name, sha256 in listed.items():
        assert hashlib.sha256((vae.FOLDER / name).read_bytes()).hexdigest() == sha256


@pytest.mark.parametrize("d", vae.BUNDLED)
def test_a_bundled_model_is_what_its_record_says(d):
    model = vae.bundled(d)
    record = json.loads((vae.FOLDER / f"d{d}.json").read_text("utf-8"))
    assert model.decoder.hidden_weight.shape == (d, 500)
    assert model.decoder.output_weight.shape == (500, 784)
    assert model.encoder.hidden_weight.shape == (784, 500)
    assert all(t.dtype == torch.float32 for t in vars(model.decoder).values())
    assert record["settings"]["latent_dim"] == d
    assert record["settings"]["seed"] == model.seed
    assert record["held_out_elbo"] == model.held_out_elbo
    best = max(record["log"], key=lambda row: row["held_out_elbo"])
    assert (best["epoch"], best["held_out_elbo"]) == (model.epochs, model.held_out_elbo)
    assert [row["epoch"] for row in record["log"]] == list(range(1, record["epochs_trained"] + 1))
    assert record["stopped_by"] in ("patience", "max_epochs")


@pytest.mark.slow
@pytest.mark.parametrize("d", vae.BUNDLED)
def test_the_recorded_test_elbo_is_found_again(d):
    model, x = vae.bundled(d), mnist.binarise(mnist.bundled())
    record = json.loads((vae.FOLDER / f"d{d}.json").read_text("utf-8"))
    means = torch.stack(
        [elbo(model.decoder, model.encoder, x, gen(100 + i), 2).mean() for i in range(8)]
    ).double()
    # Sixteen draws of z an image here, a hundred there.
    sigma = record["test_elbo_standard_error"] * math.sqrt(1 + 100 / 16)
    assert means.mean().item() == pytest.approx(record["test_elbo"], abs=5 * sigma)
    # Test and held-out images come from the same source: 1000 and 5000 of them.
    spread = elbo(model.decoder, model.encoder, x, gen(7)).double().std().item()
    sigma = spread * math.sqrt(1 / 1000 + 1 / 5000)
    assert record["test_elbo"] == pytest.approx(record["held_out_elbo"], abs=5 * sigma)
