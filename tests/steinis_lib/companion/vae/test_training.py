import json
import math

import pytest
import torch
from pydantic import ValidationError
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from steinis_lib.companion.vae import networks as vae
from steinis_lib.companion.vae import training as vae_training
from steinis_lib.companion.vae.training import CheckpointError, TrainingSettings, train

PIXELS = 12
SMALL = {"latent_dim": 2, "n_hidden": 8, "batch_size": 16, "held_out": 40, "max_epochs": 4}


def settings(**changes):
    return TrainingSettings(**(SMALL | changes))


def stripes(n=200, noise=0.05, seed=0):
    """Binary images with one hidden cause: which half is lit, up to noise. float32."""
    generator = torch.Generator().manual_seed(seed)
    left = torch.rand(n, 1, generator=generator) < 0.5
    halves = torch.arange(PIXELS) < PIXELS // 2
    flips = torch.rand(n, PIXELS, generator=generator) < noise
    return ((left == halves) ^ flips).to(torch.float32)


def timeless(log):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in log]


def same(a, b):
    return all(
        torch.equal(getattr(x, name), getattr(y, name))
        for x, y in ((a.vae.decoder, b.vae.decoder), (a.vae.encoder, b.vae.encoder))
        for name in x.__dataclass_fields__
    ) and timeless(a.log) == timeless(b.log)


def rows(*values):
    return [{"epoch": i + 1, "held_out_elbo": v} for i, v in enumerate(values)]


# ----------------------------------------------------------------------------------- learning


@pytest.mark.slow
def test_independent_pixels_are_learnt_to_their_entropy():
    p = torch.linspace(0.1, 0.9, PIXELS)
    u = torch.rand(3000, PIXELS, generator=torch.Generator().manual_seed(0))
    images = (u < p).to(torch.float32)
    s = settings(held_out=1000, batch_size=50, learning_rate=0.01, max_epochs=25)
    result = train(images, s)
    x = images[-1000:].double()
    best_possible = (x * p.log() + (1 - x) * (1 - p).log()).sum(-1).mean()
    # The frequencies of 2000 images cost 1/2 * 1/2000 nats a pixel; the rest is the optimiser's.
    assert result.vae.held_out_elbo == pytest.approx(float(best_possible), abs=0.1)


def test_a_hidden_cause_is_found():
    images, noise = stripes(2000), 0.05
    s = settings(held_out=500, batch_size=50, learning_rate=0.01, max_epochs=30)
    found = train(images, s)
    entropy = -PIXELS * (noise * math.log(noise) + (1 - noise) * math.log(1 - noise))
    true_log_p = -math.log(2) - entropy
    independent = -PIXELS * math.log(2)
    assert independent + 3 < found.vae.held_out_elbo < true_log_p + 0.3
    assert found.vae.held_out_elbo > true_log_p - 0.7  # q is Gaussian, z one of two


def test_the_returned_weights_are_the_best_and_their_elbo_is_the_logs():
    images = stripes(60, noise=0.4)
    result = train(images, settings(learning_rate=0.05, max_epochs=30, patience=30))
    best = max(result.log, key=lambda row: row["held_out_elbo"])
    assert best is not result.log[-1]  # the run overfits
    assert (result.vae.epochs, result.vae.held_out_elbo) == (best["epoch"], best["held_out_elbo"])
    generator = torch.Generator().manual_seed(vae_training.HELD_OUT_SEED)
    values = vae.elbo(result.vae.decoder, result.vae.encoder, images[-40:], generator)
    assert values.double().mean().item() == best["held_out_elbo"]


def test_held_out_images_do_not_influence_the_weights():
    a, b = stripes(), stripes()
    b[-40:] = 1 - b[-40:]
    one, two = (train(x, settings(max_epochs=1)).vae for x in (a, b))
    assert torch.equal(one.decoder.output_weight, two.decoder.output_weight)
    assert one.held_out_elbo != two.held_out_elbo


def test_the_seed_alone_decides():
    images = stripes()
    one, again, other = (train(images, settings(seed=seed)) for seed in (1, 1, 2))
    assert same(one, again)
    assert not torch.equal(one.vae.decoder.output_weight, other.vae.decoder.output_weight)
    assert one.vae.seed == 1 and other.vae.seed == 2


def test_initial_weights_are_glorots_and_biases_zero():
    weights = vae_training._start(784, settings(latent_dim=20, n_hidden=500)).weights
    assert {n: tuple(w.shape) for n, w in weights.items()} == vae.shapes(20, 500, 784)
    for w in weights.values():
        assert w.dtype == torch.float32
        if w.ndim == 1:
            assert (w == 0).all()
            continue
        bound = math.sqrt(6 / sum(w.shape))
        assert w.abs().max() < bound
        # A uniform variable's mean has a standard deviation of bound / sqrt(3 n).
        assert w.mean().abs() < 5 * bound / math.sqrt(3 * w.numel())
        assert w.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.03)


def test_the_log_has_a_row_an_epoch_and_the_hook_sees_each():
    seen = []
    result = train(stripes(), settings(), on_epoch=seen.append)
    assert seen == result.log and result.stopped_by == "max_epochs"
    assert [row["epoch"] for row in seen] == [1, 2, 3, 4]
    assert set(seen[0]) == {"epoch", "train_elbo", "held_out_elbo", "learning_rate", "seconds"}


# ----------------------------------------------------------------------------------- schedule


def test_a_stall_lowers_the_rate_and_the_last_one_ends_the_training():
    s = settings(patience=2, learning_rate=1.0)
    drop = vae_training.DROP
    values = [-9, -8, -8, -8.5, -7, -7.5, -7.5, -7.2, -7.1]
    expected = [1, 1, 1, 1, drop, drop, drop, drop**2, drop**2, None]
    for n, rate in enumerate(expected):
        found = vae_training._rate(rows(*values[:n]), s)
        assert found == (rate if rate is None else pytest.approx(rate))


def test_a_training_without_progress_stops_by_patience():
    noise = (torch.rand(60, PIXELS) < 0.5).to(torch.float32)
    s = settings(learning_rate=0.05, patience=2, max_epochs=1000, held_out=20)
    result = train(noise, s)
    assert result.stopped_by == "patience"
    rates = [row["learning_rate"] for row in result.log]
    assert sorted(set(rates), reverse=True) == pytest.approx(
        [0.05 * vae_training.DROP**k for k in range(vae_training.DROPS + 1)]
    )
    assert rates == sorted(rates, reverse=True)


# ---------------------------------------------------------------------------------- interrupt


class Killed(Exception):
    pass


def killed_after(epoch):
    def hook(row):
        if row["epoch"] == epoch:
            raise Killed

    return hook


@pytest.mark.parametrize("epoch", [1, 3])
def test_an_interrupted_training_ends_as_an_uninterrupted_one(tmp_path, epoch):
    images, path = stripes(), tmp_path / "c" / "x.checkpoint"
    s = settings(patience=1, learning_rate=0.05, max_epochs=8)  # rates drop on the way
    whole = train(images, s)
    with pytest.raises(Killed):
        train(images, s, checkpoint=path, on_epoch=killed_after(epoch))
    seen = []
    resumed = train(images, s, checkpoint=path, on_epoch=seen.append)
    assert same(resumed, whole)
    assert seen == resumed.log  # the hook is told of the epochs done before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_training_killed_within_an_epoch_repeats_that_epoch(tmp_path, monkeypatch):
    images, path = stripes(), tmp_path / "x.checkpoint"
    whole = train(images, settings())
    calls = []

    def elbo(*arguments):
        calls.append(1)
        if len(calls) == 25:  # ten batches and one evaluation an epoch
            raise Killed
        return vae.elbo(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(vae_training, "elbo", elbo)
        with pytest.raises(Killed):
            train(images, settings(), checkpoint=path)
    assert same(train(images, settings(), checkpoint=path), whole)


def test_a_training_can_be_made_longer(tmp_path):
    images, path = stripes(), tmp_path / "x.checkpoint"
    train(images, settings(max_epochs=2), checkpoint=path)
    longer = train(images, settings(max_epochs=4), checkpoint=path)
    assert same(longer, train(images, settings(max_epochs=4)))


def test_a_checkpoint_of_another_training_is_refused(tmp_path):
    images, path = stripes(), tmp_path / "x.checkpoint"
    train(images, settings(), checkpoint=path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"x\.checkpoint .*: seed, batch_size differ"):
        train(images, settings(seed=2, batch_size=10), checkpoint=path)
    with pytest.raises(ValueError, match="latent_dim differ"):
        train(images, settings(latent_dim=3), checkpoint=path)
    with pytest.raises(ValueError, match="images differ"):
        train(1 - images, settings(), checkpoint=path)
    assert path.read_bytes() == before


def test_a_damaged_checkpoint_is_refused(tmp_path):
    images, path = stripes(), tmp_path / "x.checkpoint"
    train(images, settings(), checkpoint=path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"x\.checkpoint is no complete .* delete it"):
        train(images, settings(), checkpoint=path)
    save_file({"x": torch.ones(1)}, path)
    with pytest.raises(CheckpointError, match="is no complete checkpoint"):
        train(images, settings(), checkpoint=path)


def test_a_checkpoint_without_a_tensor_is_refused(tmp_path):
    images, path = stripes(), tmp_path / "x.checkpoint"
    train(images, settings(), checkpoint=path)
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    del tensors["adam.step.decoder.hidden_bias"]
    save_file(tensors, path, metadata=metadata)
    with pytest.raises(CheckpointError, match=r"adam\.step\.decoder\.hidden_bias"):
        train(images, settings(), checkpoint=path)


# ----------------------------------------------------------------------------------- nonsense


def test_a_diverging_training_is_an_error_and_spoils_no_checkpoint(tmp_path):
    images, path = stripes(), tmp_path / "x.checkpoint"
    with pytest.raises(FloatingPointError, match=r"diverged in epoch 1: .*smaller learning_rate"):
        train(images, settings(learning_rate=1e30), checkpoint=path)
    assert not path.exists()


def test_images_of_a_wrong_kind_are_refused():
    with pytest.raises(ValueError, match="as float32, got .*float64"):
        train(stripes().double(), settings())
    with pytest.raises(ValueError, match="float32"):
        train(stripes().reshape(-1, 3, 4), settings())
    with pytest.raises(ValueError, match="40 images are too few: 40 of them are held out"):
        train(stripes(40), settings())


@pytest.mark.parametrize(
    "wrong",
    [{"latent_dim": 0}, {"learning_rate": 0}, {"learning_rate": math.nan}, {"max_epochs": 0},
     {"seed": -1}, {"nonsense": 1}],
)  # fmt: skip
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        settings(**wrong)


# ------------------------------------------------------------------------------------ publish


def test_what_is_published_is_the_model_and_its_record(tmp_path):
    images, s = stripes(), settings()
    result = train(images, s)
    path = tmp_path / "new" / "d2.safetensors"
    vae_training.publish(result, s, stripes(300, seed=5), path)
    assert sorted(p.name for p in path.parent.iterdir()) == ["d2.json", "d2.safetensors"]
    loaded = vae.load(path)
    assert torch.equal(loaded.decoder.output_weight, result.vae.decoder.output_weight)
    record = json.loads(path.with_suffix(".json").read_text("utf-8"))
    assert TrainingSettings(**record["settings"]) == s
    assert record["log"] == result.log and record["stopped_by"] == "max_epochs"
    assert record["held_out_elbo"] == loaded.held_out_elbo
    assert record["test_images"] == 300
    seconds = sum(row["seconds"] for row in result.log)
    assert record["provenance"]["seconds"] == pytest.approx(seconds, abs=1)
    draws = torch.stack(
        [vae.elbo(loaded.decoder, loaded.encoder, stripes(300, seed=5), generator).mean()
         for generator in [torch.Generator().manual_seed(9)] * 200]
    ).double()  # fmt: skip
    sigma = math.hypot(draws.std().item() / math.sqrt(200), record["test_elbo_standard_error"])
    assert record["test_elbo"] == pytest.approx(draws.mean().item(), abs=5 * sigma)
    # A hundred draws an image; ten averages tell their own spread to about a quarter.
    assert record["test_elbo_standard_error"] == pytest.approx(draws.std().item() / 10, rel=0.8)
