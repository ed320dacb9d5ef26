import pytest
import torch

from steinis_lib import SteinIS
from steinis_lib.baselines.ais import AIS
from steinis_lib.baselines.geometric_path import linear_schedule
from steinis_lib.baselines.hais import HAIS
from steinis_lib.companion.adagrad import AdaGradSteinIS
from steinis_lib.companion.leaders_weighed import LeadersWeighed
from steinis_lib.companion.method_labels import LABELS, at_an_end, in_words
from steinis_lib.companion.methods import (
    METHODS,
    TUNED,
    Setting,
    along_transitions,
    axes_of,
    build_sampler,
    readings,
    tuned_as,
)
from steinis_lib.importance import importance_sampling

SIZES = {"n_leaders": 7, "n_followers": 6}


def seeded():
    return torch.Generator().manual_seed(11)


def grid(method, **options):
    """The first grid of each axis of a method."""
    return {axis.name: axis.start for axis in axes_of(method, **options)}


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


@pytest.mark.parametrize("method", METHODS)
def test_readings_are_those_of_the_sampler(skewed, wide, method):
    setting = None if method == "is" else Setting(0.1)
    found = list(
        readings(method, skewed, wide, setting, (2, 5), seeded(), batch_shape=(3,), **SIZES)
    )
    if method == "is":
        (only,) = found
        expected = importance_sampling(skewed, wide, (3, 6), seeded())
        assert torch.equal(only.sample.log_w, expected.log_w)
        assert (only.n_transitions, only.n_evaluations, only.steinis) == (0, 6, None)
        return
    assert [reading.n_transitions for reading in found] == [2, 5]
    generator = seeded()
    for reading in found:
        k = reading.n_transitions
        sampler = build_sampler(method, skewed, wide, setting, k, **SIZES)
        if method.startswith("steinis"):  # one run, from the beginning of the stream
            generator = seeded()
        end = sampler.run(sampler.init(generator, batch_shape=(3,)), k)
        assert torch.equal(reading.sample.log_w, sampler.importance_sample(end).log_w)
        assert reading.n_evaluations == sampler.n_evaluations(k)
        assert (reading.steinis is not None) == method.startswith("steinis")
        if reading.steinis is not None:
            before, after, info = reading.steinis
            assert int(before.transition) == k - 1
            assert torch.equal(after.followers, end.followers)
            assert torch.allclose(info.step_map(before.leaders), after.leaders)


def test_a_method_without_a_setting_is_refused(skewed, wide):
    with pytest.raises(ValueError, match="ais needs a setting"):
        list(readings("ais", skewed, wide, None, (2,), seeded(), batch_shape=(), **SIZES))


def test_values_along_transitions():
    found = {k: {"a": torch.tensor([1.0, 2.0]) * k, "b": torch.tensor([k, -k])} for k in (3, 9)}
    dataset = along_transitions(found)
    assert dataset.a.dims == ("trial", "transitions")
    assert dataset.transitions.values.tolist() == [3, 9]
    assert dataset.a.values.tolist() == [[3.0, 9.0], [6.0, 18.0]]
    assert dataset.b.sel(transitions=9).values.tolist() == [9, -9]


def test_every_method_has_a_name_and_a_look():
    assert tuple(LABELS) == METHODS
    assert len({name for name, _, _ in LABELS.values()}) == len(METHODS)
    assert len({(colour, str(line)) for _, colour, line in LABELS.values()}) == len(METHODS)


def test_settings_in_words():
    assert in_words("steinis", Setting(0.1, 0.0, 1.0)) == "α 0.1, β 0, bandwidth × 1"
    assert in_words("hais-1l", Setting(0.12345, refresh=0.4)) == "ε 0.123, refresh 0.4"
    options = [Setting(a, b, 1.0) for a in (0.1, 1.0, 10.0) for b in (0.0, 0.3)]
    assert at_an_end("steinis", Setting(0.1, 0.3, 1.0), options) == "α"  # two β are no range
    assert at_an_end("steinis", Setting(1.0, 0.3, 1.0), options) == "–"
    three = [Setting(a, b) for a in (0.1, 0.2, 0.3) for b in (0.0, 0.3, 0.6)]
    assert at_an_end("steinis", Setting(0.3, 0.6), three) == "α, β"
