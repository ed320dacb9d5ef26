"""Variational autoencoders of binary images, the models of section 5.4.

p(z) = N(0, I) and p(x | z) is Bernoulli, its logits a network of z with one tanh layer (the
decoder); q(z | x) = N(z; mean, diag), both from one tanh layer over x (the encoder), as in
Kingma & Welling's "Auto-Encoding Variational Bayes".
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import softplus

from steinis_lib.companion.checkout import DATA, need_checkout
from steinis_lib.core.files import replacing

FOLDER = DATA / "vae"
BUNDLED = (10, 20, 50)
"""The latent dimensions of the trained models in this repository."""


@dataclass(frozen=True)
class Decoder:
    """p(x | z): logits = tanh(z W + b) V + c, independent Bernoulli pixels.

    Parameters
    ----------
    hidden_weight
        W, ``(d, 500)``.
    hidden_bias
        b, ``(500,)``.
    output_weight
        V, ``(500, 784)``.
    output_bias
        c, ``(784,)``.

    (500 hidden units and 784 pixels in the paper's models; any numbers will do.)

    Raises
    ------
    ValueError
        If the shapes do not fit each other.
    """

    hidden_weight: Tensor
    hidden_bias: Tensor
    output_weight: Tensor
    output_bias: Tensor

    def __post_init__(self) -> None:
        d, hidden = self.hidden_weight.shape[0], self.hidden_bias.shape[-1]
        _check_shapes(self, shapes(d, hidden, self.output_bias.shape[-1]))

    @property
    def latent_dim(self) -> int:
        """The dimension d of z."""
        return self.hidden_weight.shape[0]

    @property
    def n_pixels(self) -> int:
        """The number of pixels of x."""
        return self.output_bias.shape[0]

    def logits(self, z: Tensor) -> Tensor:
        """Return the pixels' logits ``(*batch, n, 784)`` at ``z`` ``(*batch, n, d)``."""
        hidden = torch.tanh(z @ self.hidden_weight + self.hidden_bias)
        return hidden @ self.output_weight + self.output_bias

    def log_likelihood(self, x: Tensor, z: Tensor) -> Tensor:
        """Return log p(x | z) ``(*batch, n)`` of binary ``x``, broadcast over ``z``'s batch."""
        logits = self.logits(z)
        return (x * logits - softplus(logits)).sum(-1)

    def sample(self, z: Tensor, generator: torch.Generator) -> Tensor:
        """Draw binary images x ~ p(x | z), ``(*batch, n, 784)``."""
        return torch.bernoulli(self.logits(z).sigmoid(), generator=generator)


@dataclass(frozen=True)
class Encoder:
    """q(z | x) = N(z; mean, diag exp(log_var)), each linear in tanh(x W + b).

    Parameters
    ----------
    hidden_weight, hidden_bias
        W and b, ``(784, 500)`` and ``(500,)``.
    mean_weight, mean_bias
        ``(500, d)`` and ``(d,)``.
    log_var_weight, log_var_bias
        ``(500, d)`` and ``(d,)``.

    Raises
    ------
    ValueError
        If the shapes do not fit each other.
    """

    hidden_weight: Tensor
    hidden_bias: Tensor
    mean_weight: Tensor
    mean_bias: Tensor
    log_var_weight: Tensor
    log_var_bias: Tensor

    def __post_init__(self) -> None:
        pixels, hidden = self.hidden_weight.shape[0], self.hidden_bias.shape[-1]
        _check_shapes(self, shapes(self.mean_bias.shape[-1], hidden, pixels))

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance of z, each ``(n, d)``, for images ``(n, 784)``."""
        hidden = torch.tanh(x @ self.hidden_weight + self.hidden_bias)
        return (
            hidden @ self.mean_weight + self.mean_bias,
            hidden @ self.log_var_weight + self.log_var_bias,
        )


@dataclass(frozen=True)
class VAE:
    """A trained model: the networks, and how they came about.

    Parameters
    ----------
    decoder, encoder
        The networks.
    seed
        Of the training.
    epochs
        Passes over the training images that these weights have seen.
    held_out_elbo
        The mean ELBO, in nats, of images held out from the training.
    """

    decoder: Decoder
    encoder: Encoder
    seed: int
    epochs: int
    held_out_elbo: float

    @property
    def latent_dim(self) -> int:
        """The dimension d of z."""
        return self.decoder.latent_dim

    def double(self) -> VAE:
        """Return the same model in 64-bit floats."""
        named = {
            f"{part}.{f.name}": getattr(network, f.name).double()
            for part, network in (("decoder", self.decoder), ("encoder", self.encoder))
            for f in fields(network)
        }
        decoder, encoder = networks(named)
        return replace(self, decoder=decoder, encoder=encoder)


def shapes(d: int, hidden: int, pixels: int) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of each tensor of a model."""
    return {
        "decoder.hidden_weight": (d, hidden),
        "decoder.hidden_bias": (hidden,),
        "decoder.output_weight": (hidden, pixels),
        "decoder.output_bias": (pixels,),
        "encoder.hidden_weight": (pixels, hidden),
        "encoder.hidden_bias": (hidden,),
        "encoder.mean_weight": (hidden, d),
        "encoder.mean_bias": (d,),
        "encoder.log_var_weight": (hidden, d),
        "encoder.log_var_bias": (d,),
    }


def elbo(
    decoder: Decoder, encoder: Encoder, x: Tensor, generator: torch.Generator, n_samples: int = 1
) -> Tensor:
    """Return an unbiased estimate of each image's lower bound of log p(x), in nats, ``(n,)``.

    The bound is E_q[log p(x | z)] - KL(q(z | x) ‖ p(z)); the expectation is an average over
    `n_samples` draws of z, the divergence is exact.

    Parameters
    ----------
    x
        Binary images, ``(n, 784)``.
    """
    mean, log_var = encoder(x)
    noise = torch.randn(
        (n_samples, *mean.shape), generator=generator, dtype=mean.dtype, device=mean.device
    )
    z = mean + (0.5 * log_var).exp() * noise
    divergence = 0.5 * (mean.square() + log_var.exp() - log_var - 1).sum(-1)
    return decoder.log_likelihood(x, z).mean(0) - divergence


def networks(tensors: dict[str, Tensor]) -> tuple[Decoder, Encoder]:
    """Build both networks from tensors named ``decoder.hidden_weight`` and so on."""
    return (
        Decoder(**{f.name: tensors[f"decoder.{f.name}"] for f in fields(Decoder)}),
        Encoder(**{f.name: tensors[f"encoder.{f.name}"] for f in fields(Encoder)}),
    )


def save(vae: VAE, path: Path) -> None:
    """Write a model to `path` (safetensors), atomically."""
    tensors = {
        f"{part}.{f.name}": getattr(network, f.name).detach().contiguous()
        for part, network in (("decoder", vae.decoder), ("encoder", vae.encoder))
        for f in fields(network)
    }
    about = {
        "latent_dim": vae.latent_dim,
        "seed": vae.seed,
        "epochs": vae.epochs,
        "held_out_elbo": vae.held_out_elbo,
    }
    with replacing(path) as scratch:
        save_file(tensors, scratch, metadata={"vae": json.dumps(about)})


def load(path: Path) -> VAE:
    """Read the model that `save` wrote.

    Raises
    ------
    ValueError
        If the file is damaged, or its tensors are not those of a model.
    """
    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads((file.metadata() or {}).get("vae", "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is no complete model ({error}); get or train it anew") from error
    if about is None:
        raise ValueError(f"{path} was not written by this module's `save`: it has no metadata")
    found = {
        name: tuple(t.shape) if t.is_floating_point() else t.dtype for name, t in tensors.items()
    }
    hidden, pixels = (*tensors.get("decoder.output_weight", torch.empty(0)).shape, 0, 0)[:2]
    expected = shapes(about["latent_dim"], hidden, pixels)
    if wrong := [n for n in expected | found if found.get(n) != expected.get(n)]:
        raise ValueError(
            f"{path} is no model of {about['latent_dim']} latent dimensions: "
            + "; ".join(f"{n}: expected {expected.get(n)}, got {found.get(n)}" for n in wrong)
        )
    return VAE(*networks(tensors), about["seed"], about["epochs"], about["held_out_elbo"])


def check_bundled(latent_dims: Sequence[int]) -> None:
    """Refuse a parameter `latent_dims` for which this repository has no trained model.

    Raises
    ------
    ValueError
        Naming the dimensions that there are, and those that are missing.
    """
    if missing := [d for d in latent_dims if d not in BUNDLED]:
        raise ValueError(f"latent_dims: trained models are {BUNDLED}, none for {missing}")


def bundled(latent_dim: int) -> VAE:
    """Return the trained model of this repository with 10, 20 or 50 latent dimensions.

    Raises
    ------
    ValueError
        If there is none of that dimension, or its file is damaged.
    """
    if latent_dim not in BUNDLED:
        raise ValueError(
            f"there are trained models with latent_dim in {BUNDLED}, got {latent_dim}; train "
            "another with `steinis train-vae`"
        )
    need_checkout("a trained model")
    return load(FOLDER / f"d{latent_dim}.safetensors")


def _check_shapes(network: Decoder | Encoder, expected: dict[str, tuple[int, ...]]) -> None:
    kind = type(network).__name__
    for f in fields(network):
        shape, found = expected[f"{kind.lower()}.{f.name}"], tuple(getattr(network, f.name).shape)
        if found != shape:
            raise ValueError(f"{kind}.{f.name}: expected shape {shape}, got {found}")
