"""log Z of any density, without settings to tune.

* `estimate_log_z` takes the problem as its owner has it; in `log_z`, with `stated`,
  `constraints`, `starts`, and `gradients`, which has `from_value_and_grad`.
* `probe` looks for what is wrong with a density before the search; `problem` calls it, counts, and
  takes it to be zero where it has no value; `control` has budgets, and `progress` shows how far.
* `find` is the search, in the coordinates of q0 (`space`). `explore` climbs to modes (`climb`) and
  fits a mixture (`student`) in rounds of pilots (`pool`, `refine`); in many dimensions Gaussian
  flows help (`flows`).
* `unbend` fits triangular maps (`warp`, with `margins`) where a mixture is a bad proposal.
* `judge` looks for reasons to doubt what `find` found; `noise` measures rounding errors for it.
* `Evidence` is the result: draws, log Z, and a `Doubt` for each reason not to trust them; in
  `evidence`, `doubts`, and `summary`. `text` prints tables.
* `compare` sets models beside each other; in `comparison`.
"""

from steinis_lib.estimate.comparison import Comparison, compare
from steinis_lib.estimate.constraints import Parameters
from steinis_lib.estimate.control import BudgetSpent
from steinis_lib.estimate.doubts import Doubt
from steinis_lib.estimate.evidence import Evidence
from steinis_lib.estimate.gradients import from_value_and_grad
from steinis_lib.estimate.log_z import estimate_log_z
from steinis_lib.estimate.summary import Summary

__all__ = [
    "BudgetSpent",
    "Comparison",
    "Doubt",
    "Evidence",
    "Parameters",
    "Summary",
    "compare",
    "estimate_log_z",
    "from_value_and_grad",
]
