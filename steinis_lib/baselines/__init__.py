"""The methods that the paper compares SteinIS with.

* `AIS`: annealed importance sampling (Neal 2001) with Langevin moves; in `ais`.
* `HAIS`: the same with Hamiltonian moves (Sohl-Dickstein & Culpepper 2012); in `hais`, with the
  leapfrog and its Metropolis test in `hamiltonian`.
* `AdaptiveIS`: stochastic gradients on the weights of a mixture (after Ryu & Boyd 2014); in
  `adaptive_is`, with projections onto the simplex in `simplex`.
* `MixturePMC`: population Monte Carlo with mixtures (Cappé, Douc, Guillin, Marin & Robert 2008); in
  `mpmc`.

AIS and HAIS share `annealing`, and `geometric_path` with the schedules, among them
`sigmoidal_schedule` of Wu, Burda, Salakhutdinov & Grosse (2016).
"""

from steinis_lib.baselines.adaptive_is import (
    AdaptiveIS,
    AdaptiveISEstimate,
    AdaptiveISInfo,
    AdaptiveISState,
)
from steinis_lib.baselines.ais import AIS
from steinis_lib.baselines.annealing import AnnealedInfo, AnnealedState
from steinis_lib.baselines.geometric_path import linear_schedule, sigmoidal_schedule
from steinis_lib.baselines.hais import HAIS, HAISState
from steinis_lib.baselines.mpmc import MixturePMC, MixturePMCInfo, MixturePMCState

__all__ = [
    "AIS",
    "HAIS",
    "AdaptiveIS",
    "AdaptiveISEstimate",
    "AdaptiveISInfo",
    "AdaptiveISState",
    "AnnealedInfo",
    "AnnealedState",
    "HAISState",
    "MixturePMC",
    "MixturePMCInfo",
    "MixturePMCState",
    "linear_schedule",
    "sigmoidal_schedule",
]
