"""Made-up results of the paper's experiments whose verdicts are known."""

import json

import numpy as np
import xarray as xr

from steinis_lib.companion import results
from steinis_lib.companion.obtain import stored_path
from steinis_lib.companion.registry import EXPERIMENTS

TIME = np.linspace(0, 60, 61)
N_TRIALS = 40


def trials(curve, second=None, n_second=0):
    """The same curve in all trials, but for the last `n_second`."""
    rows = np.tile(curve, (N_TRIALS, 1))
    if n_second:
        rows[-n_second:] = second
    return rows


def exponential():
    return trials(np.exp(-0.2 * TIME))


def power_law():
    return trials(1 / (1 + TIME))


def gmm_convergence(kl=None, ksd2=None, mean_field_kl=None, mismatch=0.0):
    """A result in which all conditions have the same curves; dKL/dt = -(1 + mismatch) KSD²."""
    kl = exponential() if kl is None else kl
    ksd2 = exponential() if ksd2 is None else ksd2
    p = EXPERIMENTS["gmm-convergence"].parameters.of_profile("paper")

    def group(curve):
        variables = {
            "kl": curve,
            "kl_rate": -(1 + mismatch) * ksd2,
            "ksd2": ksd2,
            "ksd2_leaders": ksd2,
        }
        return xr.Dataset(
            {name: (("trial", "time"), values) for name, values in variables.items()},
            coords={"trial": range(N_TRIALS), "time": TIME},
        )

    names = [f"{method}{kernel}" for method in ("steinis", "svgd") for kernel in ("", "-wide")]
    names += [f"leaders-{m}" for m in p.leader_counts]
    groups = {name: group(kl) for name in names}
    for name in ("mean-field", "mean-field-wide"):
        groups[name] = group(kl if mean_field_kl is None else mean_field_kl)
    return _finish(groups, p)


def algorithm_checks(bias=0.0, power=2.0, difference=0.0, within=0.954):
    p = EXPERIMENTS["algorithm-checks"].parameters.of_profile("paper")
    n = 2000
    z = 1 + bias + np.tile([0.05, -0.05], n // 2)
    epsilon = np.array(p.epsilons)
    score = np.where(np.arange(n) < within * n, 1.0, 3.0)
    trial = {"trial": range(n)}
    groups = {
        "unbiased-exact": xr.Dataset({"log_z": ("trial", np.log(z))}, trial),
        "unbiased-first-order": xr.Dataset({"log_z": ("trial", np.log(z) + 0.01)}, trial),
        "determinant": xr.Dataset(
            {"error": (("trial", "epsilon"), np.tile(epsilon**power, (n, 1)))},
            trial | {"epsilon": epsilon},
        ),
        "continuing": xr.Dataset(
            {"difference": ("trial", [0.0, difference, 0.0])}, {"trial": range(3)}
        ),
        "stopping": xr.Dataset(
            {
                "ess": ("trial", np.full(n, 0.85)),
                "log_z": ("trial", 0.1 * score),
                "log_z_se": ("trial", np.full(n, 0.1)),
            },
            trial,
        ),
    }
    return _finish(groups, p)


def _finish(groups, parameters):
    tree = xr.DataTree.from_dict(groups)
    tree.attrs["parameters"] = parameters.model_dump_json()
    chunk = results.provenance(0.0) | {"run": "2026-01-01T00:00:00.000+00:00"}
    tree.attrs["provenance"] = json.dumps(results.parts([chunk]))
    return tree


def store(**trees):
    """Keep results where claims are judged from; call with `results.RESULTS` patched."""
    for name, tree in trees.items():
        experiment = name.replace("_", "-")
        paper = EXPERIMENTS[experiment].parameters.of_profile("paper")
        results.store(tree, stored_path(experiment, paper))
