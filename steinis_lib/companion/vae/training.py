"""Training of the variational autoencoders of section 5.4, interruptible and repeatable."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from steinis_lib.companion.results import provenance
from steinis_lib.companion.vae.networks import VAE, elbo, networks, save, shapes
from steinis_lib.core.files import replacing

DROP = 0.3
"""What the learning rate is multiplied by when the held-out ELBO stalls."""
DROPS = 2
"""After so many drops, the next stall ends the training."""
HELD_OUT_SEED = 0
"""The held-out ELBO has the same noise in each epoch, so that epochs compare well."""

Row = dict[str, float]
Tensors = dict[str, Tensor]


class TrainingSettings(BaseModel):
    """What a training depends on, besides the images."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    latent_dim: int = Field(ge=1, description="the dimension d of z")
    seed: int = Field(1, ge=0, lt=2**63, description="of initial weights, order and noise")
    n_hidden: int = Field(500, ge=1, description="tanh units of either network")
    batch_size: int = Field(100, ge=1, description="images a step")
    learning_rate: float = Field(1e-3, gt=0, description="Adam's, at first")
    patience: int = Field(4, ge=1, description="epochs without progress that are a stall")
    max_epochs: int = Field(130, ge=1, description="passes over the training images at most")
    held_out: int = Field(5000, ge=1, description="last images, kept from the training")


@dataclass(frozen=True)
class Trained:
    """The best weights of a training, how it went, and why it ended."""

    vae: VAE
    log: list[Row]
    stopped_by: Literal["patience", "max_epochs"]


class CheckpointError(RuntimeError):
    """A checkpoint is damaged."""


@dataclass
class _State:
    """All that the next epoch depends on."""

    weights: Tensors
    best: Tensors
    adam: torch.optim.Adam
    generator: torch.Generator
    log: list[Row]


def train(
    images: Tensor,
    settings: TrainingSettings,
    *,
    checkpoint: Path | None = None,
    on_epoch: Callable[[Row], None] = lambda row: None,
) -> Trained:
    """Maximise the mean ELBO with Adam; return the weights that were best on held-out images.

    Parameters
    ----------
    images
        Binary images as float32, ``(n, pixels)``.
    checkpoint
        Written after each epoch. If it exists, the training goes on from there and ends, bit for
        bit, as if it had not been interrupted, provided torch computes with as many threads;
        `max_epochs` alone may differ.
    on_epoch
        Called after each epoch, those of the checkpoint included, with the log's new row.

    Raises
    ------
    CheckpointError
        If the checkpoint is damaged.
    FloatingPointError
        If the ELBO is no longer finite.
    ValueError
        If the checkpoint is of other images or settings, or if there are too few images.
    """
    if images.ndim != 2 or images.dtype != torch.float32:
        raise ValueError(
            f"expected binary images (n, pixels) as float32, got {tuple(images.shape)} "
            f"{images.dtype}; see steinis_lib.companion.vae.mnist.binarise"
        )
    if len(images) <= settings.held_out:
        raise ValueError(
            f"{len(images)} images are too few: {settings.held_out} of them are held out"
        )
    digest = hashlib.sha256(images.numpy().tobytes()).hexdigest()
    training, held_out = images[: -settings.held_out], images[-settings.held_out :]
    state = _start(images.shape[1], settings)
    if checkpoint is not None and checkpoint.exists():
        _resume(state, checkpoint, settings, digest)
        for row in state.log:
            on_epoch(row)
    while (rate := _rate(state.log, settings)) is not None and len(state.log) < settings.max_epochs:
        started = time.perf_counter()
        train_elbo = _epoch(state, training, settings.batch_size, rate)
        row = {
            "epoch": len(state.log) + 1,
            "train_elbo": train_elbo,
            "held_out_elbo": _evaluate(state.weights, held_out),
            "learning_rate": rate,
            "seconds": round(time.perf_counter() - started, 2),
        }
        if not math.isfinite(row["train_elbo"]) or not math.isfinite(row["held_out_elbo"]):
            raise FloatingPointError(
                f"the training diverged in epoch {row['epoch']}: ELBO {train_elbo} on training, "
                f"{row['held_out_elbo']} on held-out images; try a smaller learning_rate"
            )
        state.log.append(row)
        if _best(state.log) is row:
            state.best = {name: w.detach().clone() for name, w in state.weights.items()}
        if checkpoint is not None:
            _save(state, checkpoint, settings, digest)
        on_epoch(row)
    best = _best(state.log)
    vae = VAE(*networks(state.best), settings.seed, int(best["epoch"]), best["held_out_elbo"])
    return Trained(vae, state.log, "patience" if rate is None else "max_epochs")


def publish(trained: Trained, settings: TrainingSettings, test: Tensor, path: Path) -> None:
    """Write the model to `path`, and beside it a JSON file with all that is known about it.

    Parameters
    ----------
    test
        Binary test images, ``(n, pixels)``, whose mean ELBO is recorded with the standard error
        that comes from the draws of z.
    """
    vae, generator = trained.vae, torch.Generator().manual_seed(HELD_OUT_SEED)
    with torch.no_grad():
        means = torch.stack(
            [elbo(vae.decoder, vae.encoder, test, generator, 10).mean() for _ in range(10)]
        )
    record = {
        "settings": settings.model_dump(),
        "stopped_by": trained.stopped_by,
        "epochs": vae.epochs,
        "epochs_trained": len(trained.log),
        "held_out_elbo": vae.held_out_elbo,
        "test_elbo": means.mean().item(),
        "test_elbo_standard_error": means.std().item() / math.sqrt(len(means)),
        "test_images": len(test),
        "provenance": provenance(time.time() - sum(row["seconds"] for row in trained.log)),
        "log": trained.log,
    }
    with replacing(path.with_suffix(".json")) as scratch:
        scratch.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    save(vae, path)  # last: where the model is, its record is too


def _start(pixels: int, settings: TrainingSettings) -> _State:
    """Glorot's uniform initial weights, and biases of zero."""
    generator = torch.Generator().manual_seed(settings.seed)
    sizes = (settings.latent_dim, settings.n_hidden, pixels)
    weights = {}
    for name, shape in shapes(*sizes).items():
        bound = math.sqrt(6 / sum(shape)) if len(shape) == 2 else 0.0
        u = torch.rand(shape, generator=generator, dtype=torch.float32)
        weights[name] = (bound * (2 * u - 1)).requires_grad_()
    adam = torch.optim.Adam(weights.values(), lr=settings.learning_rate, fused=True)
    return _State(weights, {}, adam, generator, [])


def _epoch(state: _State, images: Tensor, batch_size: int, rate: float) -> float:
    """Go once through the images in random order; return their mean ELBO on the way."""
    state.adam.param_groups[0]["lr"] = rate
    decoder, encoder = networks(state.weights)
    total = 0.0
    for index in torch.randperm(len(images), generator=state.generator).split(batch_size):
        mean = elbo(decoder, encoder, images[index], state.generator).mean()
        state.adam.zero_grad()
        (-mean).backward()
        state.adam.step()
        total += mean.item() * len(index)
    return total / len(images)


@torch.no_grad()
def _evaluate(weights: Tensors, images: Tensor) -> float:
    """Return the mean ELBO, one draw of z an image."""
    generator = torch.Generator().manual_seed(HELD_OUT_SEED)
    decoder, encoder = networks(weights)
    values = [elbo(decoder, encoder, x, generator) for x in images.split(1000)]
    return torch.cat(values).double().mean().item()


def _best(log: list[Row]) -> Row:
    return max(log, key=lambda row: row["held_out_elbo"])  # the first of equals


def _rate(log: list[Row], settings: TrainingSettings) -> float | None:
    """Return the learning rate of the next epoch, which the log determines; None is the end."""
    best, since, drops = -math.inf, 0, 0
    for row in log:
        if row["held_out_elbo"] > best:
            best, since = row["held_out_elbo"], 0
        else:
            since += 1
        if since == settings.patience:
            since, drops = 0, drops + 1
    return None if drops > DROPS else settings.learning_rate * DROP**drops


def _save(state: _State, path: Path, settings: TrainingSettings, digest: str) -> None:
    tensors = {"generator": state.generator.get_state()}
    for name, weight in state.weights.items():
        tensors[f"weights.{name}"] = weight.detach()
        tensors[f"best.{name}"] = state.best[name]
        for key, value in state.adam.state[weight].items():
            tensors[f"adam.{key}.{name}"] = value
    about = {"settings": settings.model_dump(), "images": digest, "log": state.log}
    with replacing(path) as scratch:
        save_file(tensors, scratch, metadata={"checkpoint": json.dumps(about)})


def _resume(state: _State, path: Path, settings: TrainingSettings, digest: str) -> None:
    """Put what the checkpoint holds into `state`."""
    try:
        with safe_open(path, framework="pt") as file:
            about: dict[str, Any] = json.loads((file.metadata() or {})["checkpoint"])
            found = about["settings"] | {"images": about["images"]}
            wanted = settings.model_dump() | {"images": digest}
            if differ := [n for n in wanted if n != "max_epochs" and found.get(n) != wanted[n]]:
                raise ValueError(
                    f"{path} is of another training: {', '.join(differ)} differ; give the same as "
                    "then, or delete it to begin anew"
                )
            state.log = about["log"]
            state.generator.set_state(file.get_tensor("generator"))
            for name, weight in state.weights.items():
                weight.detach().copy_(file.get_tensor(f"weights.{name}"))
                state.best[name] = file.get_tensor(f"best.{name}")
                state.adam.state[weight] = {
                    key: file.get_tensor(f"adam.{key}.{name}")
                    for key in ("step", "exp_avg", "exp_avg_sq")
                }
    except (SafetensorError, KeyError) as error:
        raise CheckpointError(
            f"{path} is no complete checkpoint ({error}); delete it to begin anew"
        ) from error
