"""Compute single chunks of an experiment, for tests of a section."""

from dataclasses import dataclass, field

import xarray as xr

from steinis_lib.companion.runner.compute import joined
from steinis_lib.companion.runner.experiment import compute_chunk, with_pilots


@dataclass
class Cells:
    """The cells of an experiment at given parameters; pilots are computed once, when needed."""

    experiment: object
    parameters: object
    pilots: dict[str, xr.Dataset] = field(default_factory=dict)

    def __post_init__(self):
        self.cells = {cell.label: cell for cell in self.experiment.cells(self.parameters)}

    def run(self, label, number=0):
        """Compute one chunk."""
        cell = self.cells[label]
        for pilot in cell.pilots:
            if pilot not in self.pilots:
                self.pilots[pilot] = self.whole(pilot)
        chunk = self.experiment.chunks(self.parameters, cell)[number]
        return compute_chunk(cell, self.parameters, with_pilots(cell, chunk, self.pilots))

    def whole(self, label):
        """Compute all chunks, and put them together."""
        n = len(self.experiment.chunks(self.parameters, self.cells[label]))
        return joined(self.run(label, number) for number in range(n))

    def trials(self, label):
        """Compute all chunks, and return the numbers of their trials."""
        return self.whole(label).trial.values.tolist()

    def all_pilots(self):
        """Compute all pilot cells, and return them by label."""
        first, _ = self.experiment.stages(self.parameters)
        for cell in first:
            if cell.label not in self.pilots:
                self.pilots[cell.label] = self.whole(cell.label)
        return self.pilots
