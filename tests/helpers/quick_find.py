"""A stand-in for the search of `estimate_log_z`, for tests of what is around it."""

import torch

from steinis_lib.estimate.find import Found, Report
from steinis_lib.importance import importance_sampling
from steinis_lib.targets.base import Gaussian, Target


def quick_find(
    target: Target, q0: Gaussian, n_samples: int, generator: torch.Generator, report: Report
) -> Found:
    """Weigh draws of q0, after pilots of a tenth of them; one call asks for gradients."""
    pilot = importance_sampling(target, q0, (n_samples // 10,), generator)
    report("weighing", pilot)
    target.score(q0.sample((10,), generator))
    first, second = (
        importance_sampling(target, q0, (n_samples // 2,), generator) for _ in range(2)
    )
    return Found((first, second), (), ("q0", "q0"))
