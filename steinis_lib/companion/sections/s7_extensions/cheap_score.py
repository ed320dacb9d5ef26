"""Scores that are cheaper than exact, for the leaders of SteinIS.

Any map has valid weights, as long as its determinant is tracked. The score only shapes the map, so
it may be that of another density: of a part of the data, of a surrogate, or in lower precision.
Errors of the score make the map less good, and Ẑ no less unbiased.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import torch
from torch import Tensor

from steinis_lib.targets.base import Target


@dataclass(frozen=True)
class CheapScore:
    """A target whose log-density is that of `target` and whose score is that of `cheap`.

    There is no usable `log_prob_and_score`, which is what HAIS and AIS ask for: it promises a
    density with its own gradient, and here the two are not of the same function. A Metropolis
    test with the exact density would stay valid for any score that is a fixed function of the
    particle, but not for one that is rounded differently from call to call, and a poor one is
    paid for in rejections. So use `CheapScore` with SteinIS, and give annealing the target itself.

    Parameters
    ----------
    target
        p̄, through `log_prob`; it is what followers are weighed by.
    cheap
        A target whose `score` is used in place of p̄'s.
    dtype
        Particles are cast to it for `cheap`, such as ``torch.bfloat16``. None (default): they are
        passed on as they are. Its scores are cast back to the particles' dtype.

    Raises
    ------
    ValueError
        If the two have different dimensions.
    """

    target: Target
    cheap: Target
    dtype: torch.dtype | None = None

    def __post_init__(self) -> None:
        if self.cheap.dim != self.target.dim:
            raise ValueError(
                f"the cheap target has d={self.cheap.dim}, but the target has d={self.target.dim}"
            )

    @property
    def dim(self) -> int:
        """The dimension d."""
        return self.target.dim

    def log_prob(self, x: Tensor) -> Tensor:
        """Return log p̄(x), exact, ``(*batch, n)``."""
        return self.target.log_prob(x)

    def score(self, x: Tensor) -> Tensor:
        """Return the cheap score, ``(*batch, n, d)``, in the dtype of x."""
        return self.cheap.score(x if self.dtype is None else x.to(self.dtype)).to(x.dtype)

    def log_prob_and_score(self, x: Tensor) -> NoReturn:
        """Refuse, and say what to do instead.

        Raises
        ------
        TypeError
            Always.
        """
        raise TypeError(
            "CheapScore has a log-density and a score of different functions, which is for SteinIS "
            "alone; expected a target with its own score: give annealing the exact target"
        )
