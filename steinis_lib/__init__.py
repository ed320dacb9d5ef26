"""SteinIS: Stein variational adaptive importance sampling (Han & Liu, UAI 2017).

The two algorithms of the paper are `SteinIS` (Algorithm 1) and `PathIntegration` (Algorithm 2).
`estimate_log_z` needs nothing but a log-density, and `compare` sets models beside each other. The
rest is in sub-packages:

* `steinis_lib.targets`: densities to estimate, and proposals to start from;
* `steinis_lib.stein`: kernels, the maps they build, Stein discrepancies, SVGD;
* `steinis_lib.baselines`: the methods that the paper compares with;
* `steinis_lib.extensions`: methods beyond the paper;
* `steinis_lib.companion`: the paper's experiments; it needs the extra ``companion``.

Shapes, everywhere: particles ``(*batch, n, d)``, log-densities ``(*batch, n)``. Equation numbers
count the numbered equations of the paper's arXiv source (1704.05201).
"""

from steinis_lib.core.checkpoint import load_state, save_state
from steinis_lib.estimate.comparison import compare
from steinis_lib.estimate.evidence import Evidence
from steinis_lib.estimate.gradients import from_value_and_grad
from steinis_lib.estimate.log_z import estimate_log_z
from steinis_lib.importance import ImportanceSample, importance_sampling
from steinis_lib.path_integration import PathIntegration
from steinis_lib.schedules import StepSize
from steinis_lib.stein.inverse import NotInvertibleError, PushForward
from steinis_lib.stein.kernels import IMQ, RBF, Kernel
from steinis_lib.stein.ksd import ksd_squared
from steinis_lib.stein.svgd import SVGD
from steinis_lib.steinis import SteinIS, SteinISState
from steinis_lib.targets.base import Gaussian, LogProb, Proposal, Target
from steinis_lib.targets.mixtures import GaussianMixture

__version__ = "0.1.0"

__all__ = [
    "IMQ",
    "RBF",
    "SVGD",
    "Evidence",
    "Gaussian",
    "GaussianMixture",
    "ImportanceSample",
    "Kernel",
    "LogProb",
    "NotInvertibleError",
    "PathIntegration",
    "Proposal",
    "PushForward",
    "SteinIS",
    "SteinISState",
    "StepSize",
    "Target",
    "compare",
    "estimate_log_z",
    "from_value_and_grad",
    "importance_sampling",
    "ksd_squared",
    "load_state",
    "save_state",
]
