"""A section of the book: what is run, what is read off the results, and the page that tells it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import xarray as xr

from steinis_lib.companion.checkout import ROOT
from steinis_lib.companion.intervals import Estimate
from steinis_lib.companion.runner.experiment import Experiment

Statistic = Callable[..., Estimate]
"""A function of a stored result, and of what a reading of the claim chooses, by keyword."""


@dataclass(frozen=True)
class SecondLook:
    """How a claim of another section is judged again, by a changed method.

    Parameters
    ----------
    statistic
        From the result of the section with the changed method, and that of the claim's experiment.
    how
        What it compares, in words.
    """

    statistic: Callable[[xr.DataTree, xr.DataTree], Estimate]
    how: str


@dataclass(frozen=True)
class Section:
    """One section. The registry, the command line, verification, claims and book derive from it.

    Parameters
    ----------
    title
        One line for the list of sections.
    notebook
        The notebook's file name in ``notebooks/``, without the ending. Its number orders sections.
    experiments
        What the section computes. The first one names the section on the command line, and its
        parameters are those of the notebook.
    statistics
        Claim id in ``data/claims/`` → the statistic that tests it. It takes the stored result of
        the experiment that the ledger names for the claim, and the choices of a reading as keyword
        arguments.
    with_pool
        Claim id of another section → how it is judged with a pool of leaders and whitened kernels,
        or in a few words why it is not. Such verdicts stand beside the claims' own.
    """

    title: str
    notebook: str
    experiments: tuple[Experiment, ...]
    statistics: Mapping[str, Statistic] = field(default_factory=dict)
    with_pool: Mapping[str, SecondLook | str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name on the command line."""
        return self.experiments[0].name

    @property
    def notebook_path(self) -> Path:
        """The notebook's file."""
        return ROOT / "notebooks" / f"{self.notebook}.ipynb"
