"""Verdicts of Section 1 on made-up results whose truth is known."""

import numpy as np
import pytest
import synthetic

from steinis_lib.companion import claims
from steinis_lib.companion.registry import STATISTICS

SECTION_1 = [c for c in claims.ledger() if c.experiment in ("gmm-convergence", "algorithm-checks")]
ALL_REPRODUCED = {claim.id: "reproduced" for claim in SECTION_1}
KL = ("kl-exponential-steinis", "kl-exponential-svgd")
KSD = ("ksd-exponential-steinis", "ksd-exponential-svgd")
RISING = np.where(synthetic.TIME > 30, 0.1, np.exp(-0.2 * synthetic.TIME))
FLOOR = np.maximum(np.exp(-0.2 * synthetic.TIME), 0.2)  # 0.7 decades, then flat

CASES = {
    "all as claimed": ({}, {}, {}),
    "KL as a power law": ({"kl": synthetic.power_law()}, {}, dict.fromkeys(KL, "not reproduced")),
    "KSD² as a power law": (
        {"ksd2": synthetic.power_law()},
        {},
        dict.fromkeys(KSD, "not reproduced"),
    ),
    "KL falls 0.7 decades": ({"kl": synthetic.trials(FLOOR)}, {}, dict.fromkeys(KL, "partly")),
    "KL rises everywhere": (
        {"kl": synthetic.trials(1 + synthetic.TIME)},
        {},
        dict.fromkeys((*KL, "kl-monotone-mean-field", "kl-monotone-followers"), "not reproduced"),
    ),
    "KL of followers rises": (
        {"kl": synthetic.trials(RISING), "mean_field_kl": synthetic.exponential()},
        {},
        {"kl-monotone-followers": "not reproduced"},
    ),
    "mean field rises in some trials": (
        {"mean_field_kl": synthetic.trials(np.exp(-0.2 * synthetic.TIME), RISING, 10)},
        {},
        {"kl-monotone-mean-field": "partly"},
    ),
    "dKL/dt is a tenth off": ({"mismatch": 0.1}, {}, {"kl-rate-is-ksd": "partly"}),
    "dKL/dt is twice as large": ({"mismatch": 1.0}, {}, {"kl-rate-is-ksd": "not reproduced"}),
    "dKL/dt has the other sign": ({"mismatch": -2.0}, {}, {"kl-rate-is-ksd": "not reproduced"}),
    "Ẑ is 3 % low": ({}, {"bias": -0.03}, {"z-unbiased": "partly"}),
    "Ẑ is 10 % high": ({}, {"bias": 0.1}, {"z-unbiased": "not reproduced"}),
    "determinant of order one": ({}, {"power": 1.0}, {"determinant-order": "not reproduced"}),
    "determinant of order 1.7": ({}, {"power": 1.7}, {"determinant-order": "partly"}),
    "continuing is off by round-off": ({}, {"difference": 1e-9}, {"continuing-is-free": "partly"}),
    "continuing is off": ({}, {"difference": 1e-3}, {"continuing-is-free": "not reproduced"}),
    "errors are too small": ({}, {"within": 0.6}, {"ess-stopping": "not reproduced"}),
    "errors are a little small": ({}, {"within": 0.9}, {"ess-stopping": "partly"}),
}


@pytest.mark.slow
@pytest.mark.parametrize(("gmm", "checks", "expected"), CASES.values(), ids=CASES.keys())
def test_verdicts_on_results_whose_truth_is_known(gmm, checks, expected):
    gmm, checks = synthetic.gmm_convergence(**gmm), synthetic.algorithm_checks(**checks)
    trees = {"gmm-convergence": gmm, "algorithm-checks": checks}
    for claim in SECTION_1:
        verdict = claim.judge(STATISTICS[claim.id](trees[claim.experiment]))
        assert verdict == (ALL_REPRODUCED | expected)[claim.id], claim.id


def test_every_verdict_can_go_either_way():
    """Each claim is refuted by one of the cases above: no verdict is a foregone conclusion."""
    refuted = {i for _, _, e in CASES.values() for i, v in e.items() if v == "not reproduced"}
    assert refuted == {claim.id for claim in SECTION_1}
