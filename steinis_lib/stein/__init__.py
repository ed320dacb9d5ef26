"""The Stein map: kernels, the maps that they build from leaders, discrepancies, and SVGD.

A `Kernel` gives the velocity field φ, its Jacobian and the Stein kernel κ_p. A `StepMap` is
y + ε φ(y) with its log-determinant; `PushForward` is q_0 pushed through many maps, with a density
at any point. `ksd_squared` measures how far particles are from a target; `SVGD` moves them there.
"""

from steinis_lib.stein.inverse import NotInvertibleError, PushForward, invert
from steinis_lib.stein.kernels import IMQ, RBF, Kernel, Radial, median_bandwidth, median_distance
from steinis_lib.stein.ksd import cross_ksd_squared, ksd_squared
from steinis_lib.stein.maps import StepMap
from steinis_lib.stein.svgd import SVGD, SVGDInfo, SVGDState

__all__ = [
    "IMQ",
    "RBF",
    "SVGD",
    "Kernel",
    "NotInvertibleError",
    "PushForward",
    "Radial",
    "SVGDInfo",
    "SVGDState",
    "StepMap",
    "cross_ksd_squared",
    "invert",
    "ksd_squared",
    "median_bandwidth",
    "median_distance",
]
