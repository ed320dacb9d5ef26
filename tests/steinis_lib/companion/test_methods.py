import pytest
import torch

from steinis_lib import SteinIS
from steinis_lib.baselines.ais import AIS
from steinis_lib.baselines.geometric_path import linear_schedule
from steinis_lib.baselines.hais import HAIS
from steinis_lib.companion.adagrad import AdaGradSteinIS
from steinis_lib.companion.leaders_weighed import LeadersWeighed
from steinis_lib.companion.methods import build_sampler
from steinis_lib.companion.settings import Setting

SIZES = {"n_leaders": 7, "n_followers": 6}


def seeded():
    return torch.Generator().manual_seed(11)


@pytest.mark.parametrize(
    ("method", "cls", "expected"),
    [
        ("steinis", SteinIS, {"determinant": "first-order", "n_leaders": 7, "n_followers": 6}),
        ("steinis-adagrad", AdaGradSteinIS, {"step_size": 0.2, "n_leaders": 7, "n_followers": 6}),
        ("steinis-leaders", LeadersWeighed, {"n_leaders": 7, "n_followers": 7}),
        ("hais-1l", HAIS, {"n_leapfrog": 1, "refresh": 0.4, "step_size": 0.2, "n_particles": 6}),
        ("hais-10l", HAIS, {"n_leapfrog": 10}),
        ("hais-full", HAIS, {"n_leapfrog": 1}),
        ("ais", AIS, {"langevin": "kernel-ratio", "step_size": 0.2, "n_particles": 6}),
        ("ais-unadjusted", AIS, {"langevin": "unadjusted"}),
    ],
)
def test_a_name_says_which_sampler_is_built(skewed, wide, method, cls, expected):
    setting = Setting(0.2, beta=0.5, multiplier=3.0, refresh=0.4)
    found = build_sampler(method, skewed, wide, setting, 9, determinant="first-order", **SIZES)
    assert type(found) is cls and found.target is skewed and found.q0 is wide
    assert {name: getattr(found, name) for name in expected} == expected
    if method.startswith("steinis"):
        assert found.kernel.multiplier == 3.0 and found.determinant == "first-order"
        if method == "steinis-adagrad":
            return
        assert found.step_size(3) == pytest.approx(0.2 / 4**0.5)
    else:
        assert torch.equal(found.schedule, linear_schedule(9))


def test_what_a_setting_lacks_is_the_default(skewed, wide):
    plain = build_sampler("steinis", skewed, wide, Setting(0.2), 9, **SIZES)
    assert plain.kernel.multiplier == 1.0 and plain.step_size(50) == 0.2
    double = build_sampler("steinis-double", skewed, wide, Setting(0.2), 9, **SIZES)
    assert double.kernel.multiplier == 2.0
    assert build_sampler("hais-1l", skewed, wide, Setting(0.2), 9, **SIZES).refresh == 1.0
