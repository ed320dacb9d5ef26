"""log Z of any density, without settings to tune.

* `estimate_log_z` chooses and runs the methods; in `log_z`.
* `Evidence` is what it returns: draws, log Z, and reasons to doubt them; in `evidence`.
* `find` chooses and runs the methods: `space`, `climb`, `flows`, `explore`, `pool`, `student`,
  `refine`, `unbend`, `warp` and `margins` have their parts.
* `judge` has the reasons for doubt, among them the rounding noise of `noise`.
"""

from steinis_lib.estimate.evidence import Evidence
from steinis_lib.estimate.log_z import estimate_log_z

__all__ = ["Evidence", "estimate_log_z"]
