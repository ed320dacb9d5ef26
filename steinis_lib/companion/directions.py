"""In which direction a result differs from its claim: where the interval lies against the range."""

from __future__ import annotations

from typing import Literal

from steinis_lib.companion.claims import Finding

Side = Literal["above", "below"]


def side(finding: Finding) -> Side | None:
    """Return on which side of the range `reproduced` the whole interval lies, if it lies on one."""
    estimate, ranges = finding.estimate, finding.primary.ranges
    if estimate is None or ranges is None:
        return None
    low, high = ranges[0]
    return "above" if estimate.low > high else "below" if estimate.high < low else None


def direction(finding: Finding) -> str:
    """Return in a few words how the result differs from the claim; "" if it does not.

    These are the claim's own words where it has some, "larger than claimed" or "smaller than
    claimed" where it has none, and how far the interval reaches where it is partly in the range.
    """
    estimate, ranges = finding.estimate, finding.primary.ranges
    if estimate is None or ranges is None or finding.verdict == "reproduced":
        return ""
    match side(finding):
        case "above":
            return finding.claim.above or "larger than claimed"
        case "below":
            return finding.claim.below or "smaller than claimed"
    low, high = ranges[0]
    ends = [word for word, out in (("below", estimate.low < low), ("above", estimate.high > high))
            if out]  # fmt: skip
    return f"the interval reaches {' and '.join(ends)} the range"


def against_steinis(finding: Finding) -> bool:
    """Return whether the interval lies where SteinIS does worse than its claim says."""
    worse = {"low": "above", "high": "below"}
    found = side(finding)
    return found is not None and worse.get(finding.claim.in_favour or "") == found
