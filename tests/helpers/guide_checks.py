"""What the tests of the guide share."""

from steinis_lib import Evidence


def z_score(found: Evidence, truth: float) -> float:
    """Return the error of log Z in standard errors."""
    return (found.log_z - truth) / found.log_z_se
