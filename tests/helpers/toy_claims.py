"""A small ledger whose verdicts are known: a toy experiment, its statistic, and claims of it."""

import json

import numpy as np
import xarray as xr
from pydantic import Field

from steinis_lib.companion import claims, obtain, results
from steinis_lib.companion.claims import Claim
from steinis_lib.companion.intervals import mean
from steinis_lib.companion.obtain import stored_path
from steinis_lib.companion.parameters import Parameters
from steinis_lib.companion.runner.experiment import Experiment

KERNELS, TARGETS = ("rule", "double", "wide"), ("easy", "hard")


class Sizes(Parameters):
    QUICK = {"n_trials": 4}
    n_trials: int = Field(20, ge=2, description="independent trials")


EXPERIMENTS = {name: Experiment(name, Sizes, lambda p: []) for name in ("toy", "other")}


def statistic(tree, kernel="rule", target="easy"):
    return mean(tree["numbers"].x.sel(kernel=kernel, target=target).values)


STATISTICS = dict.fromkeys(("small", "large", "plain", "later"), statistic)


def tree(shift=0.0, profile="paper", **changes):
    """A result: the mean is `shift` for rule, 1 more for double, 2 for wide, and 4 more if hard."""
    p = Sizes.of_profile(profile, changes)
    noise = np.tile([0.1, -0.1], p.n_trials // 2)[:, None, None]
    x = shift + noise + np.arange(3.0)[:, None] + np.array([0.0, 4.0])
    coords = {"trial": range(p.n_trials), "kernel": list(KERNELS), "target": list(TARGETS)}
    data = xr.Dataset({"x": (("trial", "kernel", "target"), x)}, coords=coords)
    found = xr.DataTree.from_dict({"numbers": data})
    found.attrs["parameters"] = p.model_dump_json()
    chunk = results.provenance(0.0) | {"run": "2026-01-01T00:00:00.000+00:00"}
    found.attrs["provenance"] = json.dumps(results.parts([chunk]))
    return found


def store(found, name="toy"):
    """Keep a result where claims are judged from; call with `results.RESULTS` patched."""
    results.store(found, stored_path(name, Sizes.of_profile("paper")))


def install(patch):
    """Let the ledger know the toys only; `patch` is a MonkeyPatch."""
    for module in (claims, obtain):
        patch.setattr(module, "EXPERIMENTS", EXPERIMENTS)
    patch.setattr(claims, "STATISTICS", STATISTICS)


def reading(name, primary=False, **choices):
    return {"name": name, "primary": primary, "choices": choices, "why": f"An author of {name}."}


ENTRY = {
    "id": "small",
    "where": "5.1",
    "paper": "the mean of |x| is small",
    "paper_value": "about 0",
    "measure": "mean over trials",
    "over": "trials",
    "unit": "nats",
    "experiment": "toy",
    "reproduced": [-0.5, 1.5],
    "partly": [-1, 2.5],
    "figure": "fig-toy",
}
READINGS = [
    reading("printed bandwidth", True, kernel="rule"),
    reading("twice the bandwidth", kernel="double"),
    reading("wide", kernel="wide"),
    reading("hard targets", kernel="rule", target="hard"),
]


def ledger():
    """Four claims, of which the last is of an experiment that is never stored."""
    others = {key: value for key, value in ENTRY.items() if key != "id"}
    entries = (
        ENTRY | {"readings": READINGS},
        others | {"id": "large", "reproduced": [4, 9], "partly": [3, 10], "paper_value": "5 to 8"},
        others | {"id": "plain", "unit": "%"},
        others | {"id": "later", "experiment": "other"},
    )
    return [Claim.model_validate(entry) for entry in entries]
