"""SteinIS in which leaders are weighed as if they were followers: a reading, and no estimate.

Leaders shape the maps that move them, so that they are no independent draws from the density that
is tracked at them. Their weights are not importance weights, and Ẑ is neither unbiased nor a bound
on average. Figures 5 and 6 have as many leaders as followers, so that an author could have weighed
them; this class shows what comes out then.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from steinis_lib.steinis import SteinIS, SteinISState


@dataclass(frozen=True)
class LeadersWeighed(SteinIS):
    """SteinIS whose followers are the leaders themselves. Its weights are not valid."""

    def init(
        self, generator: torch.Generator, *, batch_shape: tuple[int, ...] = ()
    ) -> SteinISState:
        """Draw leaders from q_0. They are followers too, and the maps move both alike."""
        leaders = self.q0.sample((*batch_shape, self.n_leaders), generator)
        return self.start(leaders, leaders, self.q0.log_prob(leaders), generator)
