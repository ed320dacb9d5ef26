"""What an experiment is: cells, each with independent trials that are computed in chunks.

An experiment names its cells: a label, how many trials, the function that computes some of them,
and the pilot cells whose results that function needs. The engine does the rest: it cuts trials
into chunks, gives each chunk its random streams and its pilots, and numbers the trials.

A random stream depends on (seed, experiment, label, number) alone. So any chunk can be computed
again by itself, on any machine. Labels and experiment names are therefore part of the seeds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
import xarray as xr

from steinis_lib.companion.parameters import Parameters
from steinis_lib.companion.runner.first_states import with_first_states


@dataclass(frozen=True)
class Chunk:
    """Some trials of a cell, which are computed at once.

    Parameters
    ----------
    experiment, label
        The names of the experiment and of the cell.
    number
        0, 1, … within the cell.
    trials
        The trials to compute. They are numbered through all chunks of the cell.
    seed
        The experiment's seed.
    pilots
        The results of the pilot cells that the cell asked for, by label.
    """

    experiment: str
    label: str
    number: int
    trials: range
    seed: int
    pilots: Mapping[str, xr.Dataset] = field(default_factory=dict, compare=False, repr=False)

    @property
    def n_trials(self) -> int:
        """The number of trials in this chunk."""
        return len(self.trials)

    def generator(self) -> torch.Generator:
        """Return the chunk's own random stream, from its beginning."""
        return self.stream(self.label, self.number)

    def stream(self, label: str, number: int | None = None) -> torch.Generator:
        """Return a named stream of the experiment; `number` is by default that of this chunk.

        Chunks of different cells that ask for the same name get the same draws. So methods can
        meet the same problems.
        """
        number = self.number if number is None else number
        return stream(self.seed, self.experiment, label, number)

    @property
    def name(self) -> str:
        """A name for people: experiment, label and number."""
        return f"{self.experiment}, {self.label}, chunk {self.number}"


@dataclass(frozen=True)
class Cell:
    """Independent trials of one method on one problem.

    Parameters
    ----------
    label
        The name of the cell, and of its group in the stored result.
    n_trials
        How many trials there are in all.
    compute
        (parameters, chunk) → a dataset in which every variable has the dimension ``trial``, of
        length ``chunk.n_trials``. Other processes get it by pickle, so it is a function of a
        module, or a `functools.partial` of one.
    trials_per_chunk
        How many trials a chunk has; the last chunk may have fewer.
    pilots
        Labels of the cells that must be done first, and whose results `compute` needs.
    method
        Cells that differ only in a size have the same `method`: verification computes one chunk of
        each method again. Default: the label.
    """

    label: str
    n_trials: int
    compute: Callable[[Any, Chunk], xr.Dataset]
    trials_per_chunk: int = 1
    pilots: tuple[str, ...] = ()
    method: str = ""


@dataclass(frozen=True)
class Experiment:
    """An experiment: its name, its parameters, and its cells.

    Parameters
    ----------
    name
        As on the command line.
    parameters
        The class of its parameters.
    cells
        Parameters → all cells. Pilots are the cells that others name in `Cell.pilots`.
    """

    name: str
    parameters: type[Parameters]
    cells: Callable[[Any], list[Cell]]

    def stages(self, parameters: Parameters) -> tuple[list[Cell], list[Cell]]:
        """Return the pilot cells, which come first, and the other cells.

        Raises
        ------
        ValueError
            If labels repeat, or a cell needs a pilot that does not exist or has pilots of its own.
        """
        cells = {cell.label: cell for cell in self.cells(parameters)}
        if len(cells) < len(self.cells(parameters)):
            raise ValueError(f"{self.name}: two cells have the same label")
        needed = {label for cell in cells.values() for label in cell.pilots}
        if missing := needed - set(cells):
            raise ValueError(f"{self.name}: no cell has the label of a pilot: {sorted(missing)}")
        first = [cell for cell in cells.values() if cell.label in needed]
        if any(cell.pilots for cell in first):
            raise ValueError(f"{self.name}: a pilot cell cannot need pilots itself")
        return first, [cell for cell in cells.values() if cell.label not in needed]

    def chunks(self, parameters: Parameters, cell: Cell) -> list[Chunk]:
        """Return the chunks of a cell, still without their pilots."""
        n, size = cell.n_trials, cell.trials_per_chunk
        return [
            Chunk(
                self.name, cell.label, c, range(c * size, min((c + 1) * size, n)), parameters.seed
            )
            for c in range(-(-n // size))
        ]


def compute_chunk(cell: Cell, parameters: Parameters, chunk: Chunk) -> xr.Dataset:
    """Compute a chunk here, check what comes back, and number its trials.

    The variable `first_states` is added: see there.

    Raises
    ------
    ValueError
        If a variable has no dimension ``trial``, or another number of trials.
    """
    dataset = with_first_states(partial(cell.compute, parameters, chunk), chunk.n_trials)
    for name, variable in dataset.data_vars.items():
        if variable.sizes.get("trial") != chunk.n_trials:
            raise ValueError(
                f"{chunk.name}: {name} has the dimensions {dict(variable.sizes)}; every variable "
                f"of a chunk needs the dimension 'trial', here of length {chunk.n_trials}"
            )
    return dataset.assign_coords(trial=list(chunk.trials))


def with_pilots(cell: Cell, chunk: Chunk, found: Mapping[str, xr.Dataset]) -> Chunk:
    """Return the chunk with those of the results in `found` that its cell needs."""
    return replace(chunk, pilots={label: found[label] for label in cell.pilots})


def stream(seed: int, experiment: str, label: str, number: int) -> torch.Generator:
    """Return a random stream, which is a function of its name alone."""
    name = json.dumps([seed, experiment, label, number]).encode()
    value = int.from_bytes(hashlib.sha256(name).digest()[:8], "little")
    return torch.Generator().manual_seed(value)
