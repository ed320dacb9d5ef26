"""log Z of any density, without settings to tune.

* `estimate_log_z` chooses and runs the methods; in `log_z`.
* `Evidence` is what it returns: draws, log Z, and reasons to doubt them; in `evidence`.
* `routes` improves on a fitted mixture that is a bad proposal: by maps, else by annealing.
"""

from steinis_lib.estimate.evidence import Evidence
from steinis_lib.estimate.log_z import estimate_log_z

__all__ = ["Evidence", "estimate_log_z"]
