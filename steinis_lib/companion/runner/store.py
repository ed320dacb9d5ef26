"""Finished chunks on disk, so that an interrupted run goes on where it was."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path

import xarray as xr

from steinis_lib.companion import results
from steinis_lib.companion.parameters import Parameters
from steinis_lib.companion.runner.experiment import Chunk
from steinis_lib.companion.runner.versions import code_digest

LOG = logging.getLogger(__name__)


class ChunkError(RuntimeError):
    """Chunks failed, each named with its parameters and error; or a kept one is another's."""


@dataclass(frozen=True)
class ChunkStore:
    """The chunks of one experiment with one set of parameters, in a folder of their own.

    The folder is never shared between parameters, seeds, or versions of the code. Each file also
    says in itself what it holds.

    Parameters
    ----------
    root
        The folder that holds the folders of all experiments.
    """

    root: Path
    experiment: str
    parameters: Parameters

    def path(self, chunk: Chunk) -> Path:
        """Return the file of a chunk."""
        folder = self.root / self.experiment / f"{self.parameters.digest()}-{code_digest()}"
        return folder / f"{chunk.label}-{chunk.number:04d}.nc"

    def save(self, chunk: Chunk, dataset: xr.Dataset) -> None:
        """Write a chunk atomically."""
        labelled = dataset.assign_attrs(identity=self._identity(chunk))
        results.save(xr.DataTree(labelled), self.path(chunk))

    def load(self, chunk: Chunk) -> xr.Dataset | None:
        """Return a chunk kept from earlier; None if there is none, or its file is damaged.

        Raises
        ------
        ChunkError
            If the file is whole but holds another chunk.
        """
        path = self.path(chunk)
        try:
            dataset = results.load(path).to_dataset().drop_encoding()
        except FileNotFoundError:
            return None
        except ValueError as error:
            LOG.warning("%s is damaged and is computed again: %s", path, error.__cause__)
            return None
        identity = self._identity(chunk)
        if (found := dataset.attrs.pop("identity", None)) != identity:
            raise ChunkError(f"{path} holds {found} instead of {identity}; delete it and run again")
        return dataset

    def _identity(self, chunk: Chunk) -> str:
        return json.dumps({
            "experiment": self.experiment, "label": chunk.label, "chunk": chunk.number,
            "parameters": self.parameters.digest(), "code": code_digest(),
        })  # fmt: skip
