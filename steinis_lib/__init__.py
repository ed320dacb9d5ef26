"""SteinIS: Stein variational adaptive importance sampling (Han & Liu, UAI 2017).

Shapes, everywhere: particles ``(*batch, n, d)``, log-densities ``(*batch, n)``. Equation numbers
count the numbered equations of the paper's arXiv source (1704.05201).
"""

from steinis_lib.adaptive_is import AdaptiveIS, AdaptiveISState
from steinis_lib.affine import Linear, Sum, Whitened
from steinis_lib.ais import AIS, AISState
from steinis_lib.annealing import GeometricPath, linear, sigmoidal
from steinis_lib.auto import estimate_log_z
from steinis_lib.bdmc import Bounds, bidirectional
from steinis_lib.bridge import Bridge, BridgeEstimate, BridgeState, bridge
from steinis_lib.coordinates import InCoordinates
from steinis_lib.decoder import DecoderPosterior
from steinis_lib.evidence import Evidence
from steinis_lib.gaussian_flow import GaussianFlow, GaussianFlowState
from steinis_lib.hais import HAIS, HAISState
from steinis_lib.held_out import HeldOutState, HeldOutSteinIS
from steinis_lib.importance import ImportanceSample
from steinis_lib.inexact import CheapScore
from steinis_lib.inverse import NotInvertibleError, PushForward
from steinis_lib.kernels import IMQ, RBF, Kernel, median_bandwidth, median_distance
from steinis_lib.ksd import cross_ksd_squared, ksd_squared
from steinis_lib.low_discrepancy import sobol_sample
from steinis_lib.maps import StepMap
from steinis_lib.mixture_optimum import OptimalWeights, optimal_weights
from steinis_lib.mixtures import FullMixture, defensive
from steinis_lib.mpmc import MixturePMC, MixturePMCState
from steinis_lib.path_integration import PathIntegration, PathState
from steinis_lib.pilots import annealing_pilot, steinis_pilot
from steinis_lib.plain import direct_sampling, importance_sampling
from steinis_lib.pullback import PulledBack
from steinis_lib.rbm import GaussBernoulliRBM, random_rbm
from steinis_lib.schedules import StepSize, Tempering
from steinis_lib.states import load_state, save_state
from steinis_lib.steinis import SteinIS, SteinISInfo, SteinISState
from steinis_lib.svgd import SVGD, SVGDState
from steinis_lib.targets import (
    Gaussian,
    GaussianMixture,
    LogProb,
    Proposal,
    Target,
    random_mixture,
)
from steinis_lib.tuning import Trial, tune
from steinis_lib.warped import WarpedMixture

__version__ = "0.1.0"

__all__ = [
    "AIS",
    "HAIS",
    "IMQ",
    "RBF",
    "SVGD",
    "AISState",
    "AdaptiveIS",
    "AdaptiveISState",
    "Bounds",
    "Bridge",
    "BridgeEstimate",
    "BridgeState",
    "CheapScore",
    "DecoderPosterior",
    "Evidence",
    "FullMixture",
    "GaussBernoulliRBM",
    "Gaussian",
    "GaussianFlow",
    "GaussianFlowState",
    "GaussianMixture",
    "GeometricPath",
    "HAISState",
    "HeldOutState",
    "HeldOutSteinIS",
    "ImportanceSample",
    "InCoordinates",
    "Kernel",
    "Linear",
    "LogProb",
    "MixturePMC",
    "MixturePMCState",
    "NotInvertibleError",
    "OptimalWeights",
    "PathIntegration",
    "PathState",
    "Proposal",
    "PulledBack",
    "PushForward",
    "SVGDState",
    "SteinIS",
    "SteinISInfo",
    "SteinISState",
    "StepMap",
    "StepSize",
    "Sum",
    "Target",
    "Tempering",
    "Trial",
    "WarpedMixture",
    "Whitened",
    "annealing_pilot",
    "bidirectional",
    "bridge",
    "cross_ksd_squared",
    "defensive",
    "direct_sampling",
    "estimate_log_z",
    "importance_sampling",
    "ksd_squared",
    "linear",
    "load_state",
    "median_bandwidth",
    "median_distance",
    "optimal_weights",
    "random_mixture",
    "random_rbm",
    "save_state",
    "sigmoidal",
    "sobol_sample",
    "steinis_pilot",
    "tune",
]
