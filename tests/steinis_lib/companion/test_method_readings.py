import pytest
import torch

from steinis_lib.companion.method_readings import along_transitions, readings
from steinis_lib.companion.methods import build_sampler
from steinis_lib.companion.settings import METHODS, Setting
from steinis_lib.importance import importance_sampling

SIZES = {"n_leaders": 7, "n_followers": 6}


def seeded():
    return torch.Generator().manual_seed(11)


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
