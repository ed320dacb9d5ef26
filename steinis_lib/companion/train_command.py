"""The command ``steinis train-vae``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from steinis_lib.companion.checkout import ROOT
from steinis_lib.companion.terminal import err, fail, out, progress_bar
from steinis_lib.companion.vae import mnist, training


def train_vae(
    latent_dim: Annotated[int, typer.Option(min=1, help="the dimension of z")],
    data: Annotated[
        Path | None, typer.Option(help="folder with the MNIST files [default: fetch them]")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="folder to write to")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1)] = 1,
    max_epochs: Annotated[int, typer.Option(min=1, help="passes over the images at most")] = 130,
) -> None:
    """Train a variational autoencoder of section 5.4; after an interruption, continue."""
    path = (output or ROOT / "outputs" / "vae") / f"d{latent_dim}.safetensors"
    checkpoint = path.with_suffix(".checkpoint")
    settings = training.TrainingSettings(latent_dim=latent_dim, seed=seed, max_epochs=max_epochs)
    if path.exists():
        raise fail(f"{path} exists; remove it, or name another folder with --output", 2)
    if path.parent.is_file():
        raise fail(f"--output {path.parent}: expected a folder, this is a file", 2)
    if checkpoint.exists():
        err.print(f"resuming from {checkpoint}", soft_wrap=True)
    try:
        images = mnist.binarise(mnist.images(data, "train"))
        with progress_bar("epochs") as bar:
            row = bar.add_task("training", total=max_epochs)

            def on_epoch(log: dict[str, float]) -> None:
                text = f"held-out ELBO {log['held_out_elbo']:.2f}"
                bar.update(row, completed=log["epoch"], description=text)

            trained = training.train(images, settings, checkpoint=checkpoint, on_epoch=on_epoch)
        training.publish(trained, settings, mnist.binarise(mnist.bundled()), path)
    except (OSError, ValueError) as error:
        raise fail(str(error), 2) from error
    except (mnist.DataError, training.CheckpointError, FloatingPointError) as error:
        raise fail(str(error), 1) from error
    except KeyboardInterrupt as error:
        raise fail(f"interrupted; the same command continues from {checkpoint}", 130) from error
    checkpoint.unlink()
    out.print(f"stopped by {trained.stopped_by}; the model: {path}", soft_wrap=True)
