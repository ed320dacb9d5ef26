"""What first-order determinants cost: their bias, and the time that exact ones take."""

from __future__ import annotations

import time
from dataclasses import replace

import torch
import xarray as xr

from steinis_lib.companion.methods import build_steinis
from steinis_lib.companion.runner.experiment import Chunk
from steinis_lib.companion.sections.s4_rbm.problem import RBMPartition, initial, models
from steinis_lib.companion.settings import Setting
from steinis_lib.importance import ImportanceSample
from steinis_lib.stein.maps import Determinant

DETERMINANT: Determinant = "first-order"
"""Of all runs of SteinIS. Exact determinants take about eight times as long at d = 100."""
CHECK_MULTIPLIER = 20.0
"""Factor on the bandwidth where determinants are compared. Wide kernels have the largest ∇φ."""


def compare_determinants(p: RBMPartition, chunk: Chunk) -> xr.Dataset:
    """Track one run with exact and with first-order determinants, at each step size."""
    target = models(p, "standard", p.dims[-1], 1, chunk.number)
    generator = chunk.generator()
    found: dict[str, list[float]] = {}
    for epsilon in p.determinant_steps:
        sampler = build_steinis(
            target, initial("standard", target), Setting(epsilon, 0.0, CHECK_MULTIPLIER),
            n_leaders=p.n_leaders, n_followers=p.n_followers, determinant=DETERMINANT,
        )  # fmt: skip
        state = sampler.init(generator, batch_shape=(1,))
        total, seconds = torch.zeros_like(state.log_q), {"exact": 0.0, "first_order": 0.0}
        for _ in range(p.determinant_transitions):
            started = time.perf_counter()
            new, first_order = sampler.step(state)
            between = time.perf_counter()
            _, exact = replace(sampler, determinant="exact").step(state)
            seconds["first_order"] += between - started
            seconds["exact"] += time.perf_counter() - between
            total = total + first_order.log_abs_det - exact.log_abs_det
            state = new
        sample = sampler.importance_sample(state)
        exact_sample = ImportanceSample(sample.particles, sample.log_w - total)
        values = {
            "log_w_bias": float(total.mean()),
            "log_z_bias": float(sample.log_z - exact_sample.log_z),
            "error": float(sample.log_z - target.log_z),
        } | {f"seconds_{kind}": s / p.determinant_transitions for kind, s in seconds.items()}
        for name, value in values.items():
            found.setdefault(name, []).append(value)
    return xr.Dataset(
        {
            name: (
                ("trial", "step_size"), [row], {"units": "s"} if "seconds" in name else {}
            )
            for name, row in found.items()
        },
        coords={"step_size": list(p.determinant_steps)},
    )  # fmt: skip
