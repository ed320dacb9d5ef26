"""The data of the models: small tables in `data/`, and what is typed here from publications."""

from __future__ import annotations

import csv
from pathlib import Path

import torch
from torch import Tensor

FOLDER = Path(__file__).with_name("data")
D = torch.float64


def column(table: str, *names: str) -> tuple[Tensor, ...]:
    """Return columns of ``data/<table>.csv`` in float64."""
    with (FOLDER / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return tuple(torch.tensor([float(row[name]) for row in rows], dtype=D) for name in names)


def _typed(text: str) -> Tensor:
    return torch.tensor([float(word) for word in text.split()], dtype=D)


# Eight schools: effects of coaching and their standard errors (Rubin 1981).
SCHOOLS = _typed("28 8 -3 7 -1 1 18 12")
SCHOOL_ERRORS = _typed("15 10 16 11 9 11 10 18")

# Yields of dyestuff, five samples from each of six batches (Davies 1967).
DYES = _typed(
    "1545 1440 1440 1520 1580 1540 1555 1490 1560 1495 1595 1550 1605 1510 1560 "
    "1445 1440 1595 1465 1545 1595 1630 1515 1635 1625 1520 1455 1450 1480 1445"
)

# Failures of ten pumps of a power plant, and thousands of hours (Gaver & O'Muircheartaigh 1987).
PUMP_FAILURES = _typed("5 1 5 14 3 19 1 1 4 22")
PUMP_HOURS = _typed("94.3 15.7 62.9 126 5.24 31.4 1.05 1.05 2.1 10.5")

# Hits of 18 players in their first 45 times at bat of 1970 (Efron & Morris 1975).
HITS = _typed("18 17 16 15 14 14 13 12 11 11 10 10 10 10 10 9 8 7")
AT_BATS = 45.0

# Hours of sleep gained by ten patients with each of two drugs (Student 1908): the differences.
SLEEP = _typed("1.2 2.4 1.3 1.3 0 1 1.8 0.8 4.6 1.4")

# Temperature at 23 launches of the shuttle, and whether an O-ring failed (Dalal et al. 1989).
LAUNCH_TEMPERATURE = _typed("66 70 69 68 67 72 73 70 57 63 70 78 67 53 67 75 70 81 76 79 75 76 58")
LAUNCH_FAILURE = _typed("0 1 0 0 0 0 0 0 1 1 1 0 0 1 0 0 0 0 0 0 1 0 1")

# Deaths of five animals at each of four log-doses (Racine et al. 1986).
DOSES, DEATHS, ANIMALS = _typed("-0.86 -0.30 -0.05 0.73"), _typed("0 1 3 5"), 5.0

# Strength of 42 specimens of radiata pine, density, and density adjusted for resin (Williams 1959).
STRENGTH = _typed(
    "3040 2470 3610 3480 3810 2330 1800 3110 3160 2310 4360 1880 3670 1740 2250 2650 4970 2620 "
    "2900 1670 2540 3840 3800 4600 1900 2530 2920 4990 1670 3310 3450 3600 2850 1590 3770 3850 "
    "2480 3570 2620 1890 3030 3030"
)
DENSITY = _typed(
    "29.2 24.7 32.3 31.3 31.5 24.5 19.9 27.3 27.1 24.0 33.8 21.5 32.2 22.5 27.5 25.6 34.5 26.2 "
    "26.7 21.1 24.1 30.7 32.7 32.6 22.1 25.3 30.8 38.9 22.1 29.2 30.1 31.4 26.7 22.1 30.3 32.0 "
    "23.2 30.3 29.9 20.8 33.2 28.2"
)
ADJUSTED = _typed(
    "25.4 22.2 32.2 31.0 30.9 23.9 19.2 27.2 26.3 23.9 33.2 21.0 29.0 22.0 23.8 25.3 34.2 25.7 "
    "26.4 20.0 23.9 30.7 32.6 32.5 20.8 23.1 29.8 38.1 21.3 28.5 29.2 31.4 25.9 21.4 29.8 30.6 "
    "22.6 30.3 23.8 18.4 29.4 28.2"
)


def standardised(*columns: Tensor) -> Tensor:
    """Return a design matrix: ones, and columns with mean 0 and standard deviation 1."""
    scaled = [(c - c.mean()) / c.std() for c in columns]
    return torch.stack([torch.ones_like(scaled[0]), *scaled], -1)


def noise(n: int, seed: int) -> Tensor:
    """Return n standard normal numbers, the same everywhere, for simulated data."""
    return torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=D)


def uniform(n: int, seed: int) -> Tensor:
    """Return n uniform numbers, the same everywhere, for simulated data."""
    return torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=D)
