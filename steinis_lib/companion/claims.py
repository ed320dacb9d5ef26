"""The claims ledger: what the paper says, and a verdict that follows from stored results.

``data/claims.yaml`` lists each claim with the statistic that tests it and two ranges. A verdict
is read off the statistic's 95 % interval: *reproduced* if it lies within the range
`reproduced`; *not reproduced* if it lies outside the wider range `partly`; *partly* in between.
``data/verdicts.json`` keeps the verdicts that were published; `verify` computes them anew.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from steinis_lib.companion.checkout import DATA, need_checkout
from steinis_lib.companion.intervals import Estimate
from steinis_lib.companion.obtain import stored
from steinis_lib.companion.registry import EXPERIMENTS, STATISTICS
from steinis_lib.core.files import replacing

LEDGER = DATA / "claims.yaml"
VERDICTS = DATA / "verdicts.json"

Verdict = Literal["reproduced", "partly", "not reproduced", "not yet run"]


class Claim(BaseModel):
    """One empirical claim of the paper; see the head of ``data/claims.yaml``."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=True)

    id: str
    where: str
    paper: str
    paper_value: str
    measure: str
    unit: str = ""
    experiment: str | None = None
    reproduced: tuple[float, float] | None = None
    partly: tuple[float, float] | None = None
    figure: str | None = None
    comment: str = ""

    @model_validator(mode="after")
    def _testable_or_not_yet_run(self) -> Claim:
        if self.experiment is None:
            return self
        if self.experiment not in EXPERIMENTS:
            raise ValueError(f"{self.id}: no experiment is called {self.experiment!r}")
        if self.id not in STATISTICS:
            raise ValueError(f"{self.id}: has an experiment, but no section has a statistic for it")
        if self.reproduced is None or self.partly is None or self.figure is None:
            raise ValueError(f"{self.id}: needs `reproduced`, `partly` and `figure`")
        (a, b), (c, d) = self.reproduced, self.partly
        if not c <= a <= b <= d:
            raise ValueError(f"{self.id}: `partly` must contain `reproduced`")
        return self

    def judge(self, estimate: Estimate) -> Verdict:
        """Return the verdict that an estimate's interval leads to."""
        assert self.reproduced is not None and self.partly is not None
        if any(map(math.isnan, (estimate.value, estimate.low, estimate.high))):
            raise ValueError(f"{self.id}: the statistic is NaN; the stored result is damaged")
        if self.reproduced[0] <= estimate.low and estimate.high <= self.reproduced[1]:
            return "reproduced"
        if estimate.high < self.partly[0] or estimate.low > self.partly[1]:
            return "not reproduced"
        return "partly"


@dataclass(frozen=True)
class Finding:
    """A claim's verdict and the estimate it follows from."""

    claim: Claim
    verdict: Verdict
    estimate: Estimate | None = None

    @property
    def ours(self) -> str:
        """Our figure with its interval, as text."""
        if self.estimate is None:
            return "–"
        e, unit = self.estimate, f" {self.claim.unit}" if self.claim.unit else ""
        return f"{e.value:.3g} [{e.low:.3g}, {e.high:.3g}]{unit}"

    def record(self) -> dict[str, object]:
        """Return the machine-readable form that ``steinis verify --json`` prints."""
        e = self.estimate
        return {
            "id": self.claim.id,
            "section": self.claim.where,
            "claim": self.claim.paper,
            "paper": self.claim.paper_value,
            "ours": None if e is None else e.value,
            "uncertainty": None if e is None else [e.low, e.high],
            "unit": self.claim.unit,
            "verdict": self.verdict,
        }


def ledger(path: Path | None = None) -> list[Claim]:
    """Read and check the ledger.

    Raises
    ------
    ValueError
        If an entry is malformed, or an id occurs twice.
    """
    need_checkout("the ledger of claims")
    path = path or LEDGER
    claims = []
    for number, entry in enumerate(yaml.safe_load(path.read_text("utf-8")), start=1):
        try:
            claims.append(Claim.model_validate(entry))
        except ValidationError as error:
            name = entry.get("id") if isinstance(entry, dict) else None
            raise ValueError(f"{path}, claim {name or number}: {error}") from error
    ids = [claim.id for claim in claims]
    if twice := {i for i in ids if ids.count(i) > 1}:
        raise ValueError(f"{path}: ids occur twice: {sorted(twice)}")
    return claims


def evaluate(claims: list[Claim]) -> list[Finding]:
    """Judge each claim by the stored result of its experiment at profile `paper`."""
    trees = {
        name: stored(name, EXPERIMENTS[name].parameters.of_profile("paper"))
        for name in {c.experiment for c in claims if c.experiment}
    }
    findings = []
    for claim in claims:
        tree = trees.get(claim.experiment or "")
        if tree is None:
            findings.append(Finding(claim, "not yet run"))
            continue
        estimate = STATISTICS[claim.id](tree)
        findings.append(Finding(claim, claim.judge(estimate), estimate))
    return findings


def publish(findings: list[Finding], path: Path | None = None) -> None:
    """Write the verdicts to be published."""
    table = {
        f.claim.id: {"verdict": f.verdict, **(asdict(f.estimate) if f.estimate else {})}
        for f in findings
    }
    with replacing(path or VERDICTS) as scratch:
        scratch.write_text(json.dumps(table, indent=1) + "\n", "utf-8")


def discrepancies(findings: list[Finding], path: Path | None = None) -> list[str]:
    """Return, a line each, where published verdicts no longer follow from the data."""
    path = path or VERDICTS
    table = json.loads(path.read_text("utf-8")) if path.exists() else {}
    lines = []
    for f in findings:
        old = table.pop(f.claim.id, None)
        if old is None:
            lines.append(f"{f.claim.id}: the data say '{f.verdict}', but no verdict is published")
            continue
        if old["verdict"] != f.verdict:
            lines.append(
                f"{f.claim.id}: published '{old['verdict']}', but the data say '{f.verdict}'"
            )
        new = asdict(f.estimate) if f.estimate else {}
        for key in sorted(new):
            if key not in old or not math.isclose(old[key], new[key], rel_tol=1e-6, abs_tol=1e-9):
                lines.append(
                    f"{f.claim.id}: published {key} {old.get(key)}, but the data say {new[key]}"
                )
    return lines + [f"{i}: a verdict is published, but the ledger has no such claim" for i in table]


def markdown_table(brief: bool = False) -> str:
    """Return the verdicts as a MyST table for the book; `brief`: just the claims that were run."""
    findings = evaluate(ledger())
    if brief:
        rows = ["| What the paper says | Verdict |", "|---|---|"]
        rows += [
            f"| {_text(f.claim.paper)} | {_chip(f)} |"
            for f in findings
            if f.verdict != "not yet run"
        ]
        waiting = sum(f.verdict == "not yet run" for f in findings)
        return "\n".join(rows) + f"\n\n{waiting} further claims of the paper are not yet run.\n"
    rows = [
        "| Claim | Paper | Ours, 95 % interval | Verdict | What is measured |",
        "|---|---|---|---|---|",
    ]
    for f in findings:
        c = f.claim
        cells = [f"{_text(c.paper)} ({_text(c.where)})", _text(c.paper_value), _text(f.ours)]
        measure = _text(c.measure) + "."
        if c.reproduced is not None and c.partly is not None:
            measure += (
                f" Reproduced if within {_range(c.reproduced)}, not reproduced if outside "
                f"{_range(c.partly)}."
            )
        rows.append(f"| {' | '.join(cells)} | {_chip(f)} | {measure} |")
    return "\n".join(rows) + "\n"


def _text(text: str) -> str:
    """Escape what Markdown would read as more than text, the table's own bars first of all."""
    return re.sub(r"([\\`*_$|<\[\]~^{}])", r"\\\1", text)


def _range(bounds: tuple[float, float]) -> str:
    low, high = (f"{bound:g}".replace("inf", "∞") for bound in bounds)
    return f"{low} to {high}"


def _chip(finding: Finding) -> str:
    """The verdict as a chip, linked to the figure that shows it."""
    verdict = finding.verdict
    chip = f'<span class="verdict verdict-{verdict.replace(" ", "-")}">{verdict}</span>'
    figure = finding.claim.figure
    linked = figure is not None and verdict != "not yet run"
    return chip + (f" {{ref}}`figure <{figure}>`" if linked else "")
