"""The claims ledger: what the paper says, and a verdict that follows from stored results.

``data/claims/`` lists each claim with the statistic that tests it, two ranges, and its readings. A
verdict is read off the statistic's 95 % interval: *reproduced* if it lies within the range
`reproduced`; *not reproduced* if it lies outside the wider range `partly`; *partly* in between.
``data/verdicts.json`` keeps the verdicts that were published; `verify` computes them anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import xarray as xr
import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from steinis_lib.companion import reading_claims, second_looks
from steinis_lib.companion.checkout import DATA, need_checkout
from steinis_lib.companion.intervals import Estimate
from steinis_lib.companion.obtain import stored
from steinis_lib.companion.reading_claims import AS_STATED, Choice, Judged, Range, Reading, Verdict
from steinis_lib.companion.registry import EXPERIMENTS, STATISTICS
from steinis_lib.core.files import replacing

LEDGER = DATA / "claims"
VERDICTS = DATA / "verdicts.json"


class Claim(BaseModel):
    """One empirical claim of the paper; see ``data/claims/README.md``."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=True)

    id: str
    where: str
    paper: str
    paper_value: str
    measure: str
    over: str = ""
    unit: str = ""
    experiment: str | None = None
    reproduced: Range | None = None
    partly: Range | None = None
    figure: str | None = None
    above: str = ""
    below: str = ""
    in_favour: Literal["low", "high"] | None = None
    comment: str = ""
    readings: tuple[Reading, ...] = (AS_STATED,)

    @model_validator(mode="after")
    def _testable_or_not_yet_run(self) -> Claim:
        try:
            reading_claims.check_readings(self.readings)
            if self.experiment is not None:
                self._check_testable()
        except ValueError as error:
            raise ValueError(f"{self.id}: {error}") from error
        return self

    def _check_testable(self) -> None:
        if self.experiment not in EXPERIMENTS:
            raise ValueError(f"no experiment is called {self.experiment!r}")
        if self.id not in STATISTICS:
            raise ValueError("has an experiment, but no section has a statistic for it")
        if self.reproduced is None or self.partly is None or self.figure is None:
            raise ValueError("needs `reproduced`, `partly` and `figure`")
        for reading in self.readings:
            self._check_reading(reading)

    def _check_reading(self, reading: Reading) -> None:
        of = f"reading {reading.name!r}: "
        if self.experiment_of(reading) not in EXPERIMENTS:
            raise ValueError(f"{of}no experiment is called {reading.experiment!r}")
        (a, b), (c, d) = self.ranges_of(reading)
        if not c <= a <= b <= d:
            raise ValueError(f"{of}`partly` must contain `reproduced`")
        self._choices_of(reading)

    def _choices_of(self, reading: Reading) -> dict[str, Choice]:
        """A reading's choices on all axes that any reading names; the statistic has defaults."""
        axes = dict.fromkeys(axis for other in self.readings for axis in other.choices)
        return reading_claims.bound_choices(STATISTICS[self.id], reading, axes)

    def experiment_of(self, reading: Reading) -> str:
        """Return the experiment whose stored result a reading is judged by, "" if there is none."""
        return reading.experiment or self.experiment or ""

    def ranges_of(self, reading: Reading = AS_STATED) -> tuple[Range, Range]:
        """Return the ranges `reproduced` and `partly` that a reading is judged by."""
        reproduced, partly = reading.reproduced or self.reproduced, reading.partly or self.partly
        assert reproduced is not None and partly is not None
        return reproduced, partly

    def judge(self, estimate: Estimate, reading: Reading = AS_STATED) -> Verdict:
        """Return the verdict that an estimate's interval leads to; NaN is refused."""
        return reading_claims.judge(estimate, *self.ranges_of(reading))

    def judged(self, reading: Reading, tree: xr.DataTree | None) -> Judged:
        """Judge a reading by a stored result, if there is one.

        Raises
        ------
        ValueError
            If the statistic fails or gives NaN. It names the claim and the reading.
        """
        if self.experiment is None:
            return Judged(reading, reading.choices)
        choices, ranges = self._choices_of(reading), self.ranges_of(reading)
        if tree is None:
            return Judged(reading, choices, ranges)
        try:
            estimate = STATISTICS[self.id](tree, **reading.choices)
            verdict = self.judge(estimate, reading)
        except Exception as error:
            where = f"{self.id}, reading {reading.name!r} with choices {reading.choices}"
            raise ValueError(f"{where}: {type(error).__name__}: {error}") from error
        return Judged(reading, choices, ranges, estimate, verdict)


@dataclass(frozen=True)
class Finding:
    """A claim with what the data say under each of its readings, and with a pool of leaders."""

    claim: Claim
    readings: tuple[Judged, ...]
    with_pool: Judged | None = None

    @property
    def primary(self) -> Judged:
        """The reading whose verdict is the claim's."""
        return next(judged for judged in self.readings if judged.reading.primary)

    @property
    def others(self) -> tuple[Judged, ...]:
        """All readings but the primary one."""
        return tuple(judged for judged in self.readings if not judged.reading.primary)

    @property
    def verdict(self) -> Verdict:
        """The claim's verdict."""
        return self.primary.verdict

    @property
    def estimate(self) -> Estimate | None:
        """The estimate that the verdict follows from."""
        return self.primary.estimate

    @property
    def robustness(self) -> str:
        """Under how many readings, and under which, the claim is reproduced."""
        return reading_claims.robustness(self.readings)

    @property
    def ours(self) -> str:
        """Our figure with its interval, as text."""
        return self.primary.text(self.claim.unit)

    def record(self) -> dict[str, Any]:
        """Return the machine-readable form that ``steinis verify --json`` prints."""
        claim, ours = self.claim, self.primary.record()
        return {
            "id": claim.id,
            "section": claim.where,
            "claim": claim.paper,
            "paper": claim.paper_value,
            **{key: ours[key] for key in ("ours", "uncertainty", "verdict")},
            "unit": claim.unit,
            "interval_over": claim.over,
            "robustness": self.robustness,
            "readings": [judged.record() for judged in self.readings],
            "with_pool": None if self.with_pool is None else self.with_pool.record(),
        }


def ledger(folder: Path | None = None) -> list[Claim]:
    """Read all files of the ledger in order of name; ValueError if an entry is malformed."""
    need_checkout("the ledger of claims")
    folder = folder or LEDGER
    claims = [claim for path in sorted(folder.glob("*.yaml")) for claim in _claims_of(path)]
    ids = [claim.id for claim in claims]
    if twice := {i for i in ids if ids.count(i) > 1}:
        raise ValueError(f"{folder}: ids occur twice: {sorted(twice)}")
    return claims


def _claims_of(path: Path) -> list[Claim]:
    """The claims of one file."""
    claims = []
    for number, entry in enumerate(yaml.safe_load(path.read_text("utf-8")) or (), start=1):
        try:
            claims.append(Claim.model_validate(entry))
        except ValidationError as error:
            name = entry.get("id") if isinstance(entry, dict) else None
            raise ValueError(f"{path}, claim {name or number}: {error}") from error
    return claims


def evaluate(claims: Sequence[Claim]) -> list[Finding]:
    """Judge each reading of each claim by the stored results at profile `paper`."""
    names = {c.experiment_of(r) for c in claims for r in c.readings if c.experiment}
    names |= {name for c in claims if c.experiment for name in second_looks.experiment_of(c.id)}
    trees = {n: stored(n, EXPERIMENTS[n].parameters.of_profile("paper")) for n in names}
    return [_finding(claim, trees) for claim in claims]


def _finding(claim: Claim, trees: Mapping[str, xr.DataTree | None]) -> Finding:
    readings = [claim.judged(r, trees.get(claim.experiment_of(r))) for r in claim.readings]
    if claim.experiment is None:
        return Finding(claim, tuple(readings))
    theirs = trees.get(claim.experiment)
    again = second_looks.judged(claim.id, claim.ranges_of(), theirs, trees)
    return Finding(claim, tuple(readings), again)


def publish(findings: Sequence[Finding], path: Path | None = None) -> None:
    """Write the verdicts to be published."""
    table = {
        f.claim.id: {
            **f.primary.published(),
            "reading": f.primary.reading.name,
            "readings": {judged.reading.name: judged.published() for judged in f.others},
            **({second_looks.NAME: f.with_pool.published()} if f.with_pool else {}),
        }
        for f in findings
    }
    with replacing(path or VERDICTS) as scratch:
        text = json.dumps(table, indent=1, ensure_ascii=False, allow_nan=False)
        scratch.write_text(text + "\n", "utf-8")


def discrepancies(findings: Sequence[Finding], path: Path | None = None) -> list[str]:
    """Return, a line each, where published verdicts no longer follow from the data."""
    path = path or VERDICTS
    table = json.loads(path.read_text("utf-8")) if path.exists() else {}
    lines: list[str] = []
    for f in findings:
        name, old = f.claim.id, table.pop(f.claim.id, None)
        lines += f.primary.discrepancies(old, name)
        if old is None:
            continue
        if old.get("reading") != f.primary.reading.name:
            lines.append(
                f"{name}: published reading {old.get('reading')!r} as the primary one, but the "
                f"ledger says {f.primary.reading.name!r}"
            )
        lines += second_looks.discrepancies(f.with_pool, old.get(second_looks.NAME), name)
        readings = old.get("readings", {})
        for judged in f.others:
            reading = judged.reading.name
            lines += judged.discrepancies(readings.pop(reading, None), f"{name}, {reading!r}")
        lines += [
            f"{name}, {reading!r}: a verdict is published, but the ledger has no such reading"
            for reading in readings
        ]
    return lines + [f"{i}: a verdict is published, but the ledger has no such claim" for i in table]
