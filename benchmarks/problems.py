"""The targets that all libraries are given, and their particles."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from timing import peer
from torch import Tensor

from steinis_lib import LogProb
from steinis_lib.companion.problems.decoder import DecoderPosterior
from steinis_lib.companion.vae.networks import Decoder, bundled

BEND, WIDTH = 0.3, 2.0


@dataclass(frozen=True)
class Banana:
    """log p̄(x) = -x₁²/(2·2²) - ½ Σ_{i>1} ((x_i - 0.3 x₁²)/σ_i)², σ_i from 0.5 to 2, d ≥ 2.

    Bent and anisotropic, and cheap: what is timed are the algorithms. Z is known.
    """

    dim: int

    @property
    def scales(self) -> np.ndarray:
        """σ_i for i > 1, ``(d - 1,)``, evenly spaced on a logarithmic scale."""
        return np.geomspace(0.5, 2.0, self.dim - 1) if self.dim > 2 else np.array([0.5])

    @property
    def log_z(self) -> float:
        """log Z."""
        log_widths = float(np.log(self.scales).sum()) + math.log(WIDTH)
        return log_widths + 0.5 * self.dim * math.log(2 * math.pi)

    def torch(self, like: Tensor) -> LogProb:
        """Return the target for us and for Pyro, differentiated by PyTorch."""
        inverse = torch.as_tensor(1 / self.scales).to(like)

        def log_prob(x: Tensor) -> Tensor:
            first = x[..., :1]
            rest = (x[..., 1:] - BEND * first.square()) * inverse
            return -0.5 * ((first[..., 0] / WIDTH).square() + rest.square().sum(-1))

        return LogProb(log_prob, self.dim)

    def jax(self, x: Any) -> Any:
        """Return log p̄ of JAX's particles ``(*batch, d)``, ``(*batch,)``."""
        jnp = peer("jax.numpy")
        first = x[..., :1]
        rest = (x[..., 1:] - BEND * first**2) * jnp.asarray(1 / self.scales, x.dtype)
        return -0.5 * ((first[..., 0] / WIDTH) ** 2 + (rest**2).sum(-1))


def particles(n: int, dim: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return n draws from N(0, 1.5² I), the same for every dtype and device."""
    g = torch.Generator().manual_seed(0)
    return (1.5 * torch.randn(n, dim, generator=g, dtype=torch.float64)).to(device, dtype)


def use_jax(dtype: str, device: torch.device) -> None:
    """Have JAX work in this precision, on this device."""
    jax = peer("jax")
    jax.config.update("jax_enable_x64", dtype == "float64")
    platform = "cuda" if device.type == "cuda" else "cpu"
    try:
        jax.config.update("jax_default_device", jax.devices(platform)[0])
    except RuntimeError as error:
        raise SystemExit(f'JAX finds no {platform} device: pip install "jax[cuda12]"') from error


def to_jax(x: Tensor) -> Any:
    """Copy particles to JAX."""
    return peer("jax.numpy").asarray(x.cpu().numpy())


def decoder_posterior(
    dim: int, n_images: int, n_particles: int, dtype: torch.dtype, device: torch.device
) -> tuple[DecoderPosterior, Tensor]:
    """Return the trained decoder's posterior for images drawn from it, and latents N(0, I)."""
    trained, g = bundled(dim).decoder, torch.Generator().manual_seed(0)
    names = Decoder.__dataclass_fields__
    net = Decoder(**{name: getattr(trained, name).to(device, dtype) for name in names})
    cpu = Decoder(**{name: getattr(trained, name).float().cpu() for name in names})
    images = cpu.sample(torch.randn(n_images, 1, dim, generator=g), g).squeeze(-2)
    z = torch.randn(n_images, n_particles, dim, generator=g)
    return DecoderPosterior(net, images.to(device, dtype)), z.to(device, dtype)


def drawn_decoder_posterior(
    dim: int, n_images: int, n_particles: int, dtype: torch.dtype, device: torch.device
) -> tuple[DecoderPosterior, Tensor]:
    """Return the same for a decoder of the same sizes with random weights, for other dimensions."""
    g, like = torch.Generator().manual_seed(0), bundled(20).decoder
    hidden, pixels = like.output_weight.shape
    net = Decoder(
        (torch.randn(dim, hidden, generator=g) / dim**0.5).to(device, dtype),
        torch.zeros(hidden, dtype=dtype, device=device),
        (torch.randn(hidden, pixels, generator=g) / hidden**0.5).to(device, dtype),
        torch.zeros(pixels, dtype=dtype, device=device),
    )
    images = (torch.rand(n_images, pixels, generator=g) < 0.5).to(device, dtype)
    z = torch.randn(n_images, n_particles, dim, generator=g)
    return DecoderPosterior(net, images), z.to(device, dtype)
