"""All sections, found by their folders in `steinis_lib.companion.sections`.

A folder there is a package whose ``__init__.py`` defines ``SECTION``. Nothing else lists sections.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from steinis_lib.companion import sections
from steinis_lib.companion.runner.experiment import Experiment
from steinis_lib.companion.section import SecondLook, Section, Statistic


def _find() -> list[Section]:
    """Import every folder of `sections`, and return their sections in the order of the book."""
    found: list[Section] = []
    for module in pkgutil.iter_modules(sections.__path__, f"{sections.__name__}."):
        section = getattr(import_module(module.name), "SECTION", None)
        if not isinstance(section, Section):
            raise ImportError(f"{module.name} must define SECTION, a Section; it has {section!r}")
        found.append(section)
    return sorted(found, key=lambda section: section.notebook)


SECTIONS: dict[str, Section] = {section.name: section for section in _find()}
"""Name on the command line → section."""

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for section in SECTIONS.values()
    for experiment in section.experiments
}
"""Name → experiment."""

STATISTICS: dict[str, Statistic] = {
    claim: statistic
    for section in SECTIONS.values()
    for claim, statistic in section.statistics.items()
}
"""Claim id → the statistic that tests it, from the result of the claim's experiment."""

WITH_POOL: dict[str, tuple[str, SecondLook | str]] = {
    claim: (name, look)
    for name, section in SECTIONS.items()
    for claim, look in section.with_pool.items()
}
"""Claim id → the experiment with a pool, and how the claim is judged by it, or why it is not."""
