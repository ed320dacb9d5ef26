"""Methods beyond the paper, most of which combine SteinIS with ideas of others.

* `HeldOutSteinIS`: SteinIS whose steps and bandwidths are chosen on held-out particles (our own
  method); in `held_out`.
* `PooledSteinIS`: SteinIS from a pool of leaders in whitened coordinates, with steps bounded so
  that no map folds; in `pooled` and `affine_part`.
* `Whitened`: any kernel in the leaders' coordinates (Wang, Tang, Bajaj & Liu 2019); in
  `whitened_kernel`.
* `PulledBack`: the target in the coordinates of q_0, to anneal through the maps (after Parno &
  Marzouk 2018); in `pulled_back`.
* `GaussianFlow`: SteinIS that keeps a Gaussian q, which is Gaussian variational inference by
  natural gradients (Opper & Archambeau 2009; Khan & Rue 2023); in `gaussian_flow`.
* `fit_modes`: a mixture of such Gaussians, one at each mode that `mode_search` finds, with weights
  as in M-PMC (Cappé et al. 2008); in `mode_fits`, which also has the steps one by one.
* `BridgeSampling`, `bridge_estimate`: log Z from draws at both ends (Bennett 1976; Meng & Wong
  1996); in `bridge_sampling`.
"""

from steinis_lib.extensions.bridge_sampling import (
    BridgeEstimate,
    BridgeSampling,
    BridgeSamplingInfo,
    BridgeSamplingState,
    bridge_estimate,
)
from steinis_lib.extensions.gaussian_flow import GaussianFlow, GaussianFlowInfo, GaussianFlowState
from steinis_lib.extensions.held_out import HeldOutSteinIS, HeldOutSteinISInfo, HeldOutSteinISState
from steinis_lib.extensions.mode_fits import ModeFits, fit_modes
from steinis_lib.extensions.pooled import PooledSteinIS, PooledSteinISInfo, PooledSteinISState
from steinis_lib.extensions.pulled_back import PulledBack
from steinis_lib.extensions.whitened_kernel import Whitened

__all__ = [
    "BridgeEstimate",
    "BridgeSampling",
    "BridgeSamplingInfo",
    "BridgeSamplingState",
    "GaussianFlow",
    "GaussianFlowInfo",
    "GaussianFlowState",
    "HeldOutSteinIS",
    "HeldOutSteinISInfo",
    "HeldOutSteinISState",
    "ModeFits",
    "PooledSteinIS",
    "PooledSteinISInfo",
    "PooledSteinISState",
    "PulledBack",
    "Whitened",
    "bridge_estimate",
    "fit_modes",
]
