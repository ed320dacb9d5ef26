import pytest

from steinis_lib.companion.settings import METHODS, TUNED, axes_of, tuned_as
from steinis_lib.companion.tuning import Axis

ALPHA = Axis("alpha", (0.1, 1.0, 10.0), 10**0.5)
BETA = Axis("beta", (0.0, 0.3, 0.6), 0.3, additive=True, high=1.0)


def grid(method, **options):
    """The first grid of each axis of a method."""
    return {axis.name: axis.start for axis in axes_of(method, **options)}


def test_an_axis_goes_on_beyond_its_values():
    assert ALPHA.places == pytest.approx((0, 2, 4))
    assert [ALPHA.at(k) for k in (-2, -1, 0.5, 5)] == [0.01, 0.0316228, 0.177828, 31.6228]
    assert [BETA.at(k) for k in (-1, 0, 0.5, 3, 4)] == [0.0, 0.0, 0.15, 0.9, 1.0]
    assert ALPHA.steps_between(0.1, 10.0) == pytest.approx(4)
    assert BETA.steps_between(0.9, 0.3) == pytest.approx(2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"start": ()},
        {"start": (1.0, 0.5)},
        {"start": (0.5, 0.5)},
        {"start": (0.5, 2.0), "high": 1.0},
        {"start": (0.0, 1.0)},
        {"start": (1.0,), "step": 1.0},
        {"start": (1.0,), "step": -1.0, "additive": True},
    ],
)
def test_an_axis_that_leads_nowhere_is_refused(wrong):
    with pytest.raises(ValueError, match="axis alpha"):
        Axis(**{"name": "alpha", "step": 2.0} | wrong)


def test_families_differ_in_the_bandwidth_and_in_what_is_searched():
    steps, decays = (0.1, 1.0, 10.0), (0.0, 0.3, 0.6)
    assert grid("steinis") == {"alpha": steps, "beta": decays, "multiplier": (1.0,)}
    assert grid("steinis-double") == {"alpha": steps, "beta": decays, "multiplier": (2.0,)}
    assert grid("steinis-leaders") == grid("steinis")
    assert grid("steinis-wide") == {
        "alpha": (0.1, 1.0), "beta": (0.0, 0.6), "multiplier": (5.0, 20.0)
    }  # fmt: skip
    assert grid("steinis-adagrad") == {"alpha": steps, "multiplier": (1.0, 8.0)}
    for method in ("steinis", "steinis-double", "steinis-leaders"):
        assert [axis.name for axis in axes_of(method) if axis.fixed] == ["multiplier"]
    assert not any(axis.fixed for axis in axes_of("steinis-wide"))


def test_langevin_steps_are_those_of_the_leapfrog():
    steps = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
    for method in ("hais-1l", "hais-10l", "hais-full"):
        assert grid(method) == {"alpha": steps}
    assert grid("ais") == {"alpha": pytest.approx(tuple(e**2 / 2 for e in steps))}
    (axis,) = axes_of("ais")
    assert axis.step == axes_of("hais-1l")[0].step ** 2


@pytest.mark.parametrize("method", ["hais-1l-partial", "hais-partial"])
def test_a_partial_refresh_can_become_a_full_one(method):
    assert grid(method) == {"alpha": (0.05, 0.2, 0.8), "refresh": (0.125, 0.5)}
    refresh = axes_of(method)[1]
    assert refresh.high == refresh.at(3) == refresh.at(9) == 1.0


@pytest.mark.parametrize("method", TUNED)
def test_a_section_may_start_from_smaller_steps(method):
    small, usual = grid(method, smallest_step=0.0125)["alpha"], grid(method)["alpha"]
    ratio = 16 if method == "ais" else 4
    assert usual == pytest.approx(tuple(ratio * value for value in small))


def test_a_method_without_axes_is_refused():
    with pytest.raises(ValueError, match="no axes for 'is': expected one of steinis, "):
        axes_of("is")


def test_unadjusted_ais_takes_the_step_of_unbiased_ais():
    assert {tuned_as(method) for method in METHODS if method != "is"} == set(TUNED)
    assert tuned_as("ais-unadjusted") == "ais"
