"""The spreads of rounding errors: how they are kept, merged and given to variables."""

import json

import numpy as np
import pytest
import torch
import xarray as xr

from steinis_lib.companion import rounding
from steinis_lib.companion.rounding import difference, larger, nudged, spread_between, spread_like


def variable(values, *dims, **coords):
    return xr.DataArray(np.array(values), dims=dims or tuple(coords), coords=coords)


def test_what_was_measured_is_read_from_the_file(monkeypatch, tmp_path):
    monkeypatch.setattr(rounding, "FILE", tmp_path / "rounding.json")
    spreads = {"toy": {"method": {"x": {"10": 1e-5}, "z": 0.5}}}
    table = {"measured": {}, "seconds": {"toy": {"method": 2.5}}, "spreads": spreads}
    rounding.FILE.write_text(json.dumps(table), "utf-8")
    assert rounding.measured.__wrapped__() == spreads
    assert rounding.seconds.__wrapped__() == {"toy": {"method": 2.5}}


def test_a_difference_is_absolute_and_takes_dimensions_by_their_name():
    one = variable([[1.0, 5.0], [2.0, 9.0]], "trial", "size")
    other = variable([[1.5, 2.0], [1.0, 9.0]], "size", "trial")
    found = difference(one, other)
    assert found.dims == ("size", "trial")
    assert found.values.tolist() == [[0.5, 0.0], [4.0, 0.0]]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (np.nan, np.nan, 0.0),
        (np.nan, 1.0, np.inf),
        (1.0, np.nan, np.inf),
        (np.inf, 1.0, np.inf),
        (1.0, -np.inf, np.inf),
        (np.inf, np.nan, np.inf),
        (np.inf, -np.inf, np.inf),
        (np.inf, np.inf, 0.0),
        (-np.inf, -np.inf, 0.0),
        (7, 4, 3.0),
        (True, True, 0.0),
        (True, False, 1.0),
    ],
)
def test_a_difference_of_what_is_not_finite_is_none_or_infinite(one, other, expected):
    found = difference(variable([one], "trial"), variable([other], "trial"))
    assert found.values.tolist() == [expected]


def test_a_spread_is_the_largest_difference():
    one = variable([[1.0, 2.0], [3.0, 4.0]], "trial", "size")
    assert spread_between(one, one + variable([[0.5, 0.0], [-0.75, 0.1]], "trial", "size")) == 0.75
    assert spread_between(one, one) == 0.0
    assert type(spread_between(one, one)) is float  # it goes into a JSON file


def test_a_spread_is_kept_for_each_number_of_transitions():
    one = variable(np.zeros((2, 3)), trial=[0, 1], transitions=[0, 10, 200])
    other = variable([[0.0, 1e-9, 0.5], [0.0, -2e-9, 0.1]], trial=[0, 1], transitions=[0, 10, 200])
    spread = spread_between(one, other)
    assert spread == {"0": 0.0, "10": 2e-9, "200": 0.5}
    assert json.loads(json.dumps(spread)) == spread
    more = one.expand_dims(size=2), other.expand_dims(size=2)  # all but transitions are maxima
    assert spread_between(*more) == spread


def test_a_spread_has_the_dimension_along_which_it_is_kept():
    like = variable(np.zeros((2, 3)), trial=[0, 1], transitions=[10, 20, 5])
    found = spread_like({"5": 0.5, "10": 0.1, "20": 0.2}, like)
    assert found.dims == ("transitions",) and found.values.tolist() == [0.1, 0.2, 0.5]
    found = spread_like(0.25, like)
    assert found.dims == () and float(found) == 0.25


def test_a_number_of_transitions_that_was_not_measured_has_the_largest_spread():
    like = variable(np.zeros(3), transitions=[10, 15, 20])
    found = spread_like({"10": 0.3, "20": 0.2}, like)
    assert found.values.tolist() == [0.3, 0.3, 0.2]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (None, 0.5, 0.5),
        (None, {"10": 0.1}, {"10": 0.1}),
        (0.7, 0.5, 0.7),
        (0.5, 0.7, 0.7),
        ({"10": 0.1, "20": 0.9}, {"10": 0.2, "30": 0.3}, {"10": 0.2, "20": 0.9, "30": 0.3}),
    ],
)
def test_the_larger_of_two_spreads_is_taken_at_each_place(one, other, expected):
    assert larger(one, other) == expected


def test_spreads_of_different_kinds_are_not_mixed():
    for one, other in ((0.5, {"1": 0.5}), ({"1": 0.5}, 0.5)):
        with pytest.raises(AssertionError):
            larger(one, other)


def draws():
    g = torch.Generator().manual_seed(3)
    return torch.rand(9, generator=g), torch.randn(2, 9, generator=g, dtype=torch.float32)


def test_random_numbers_are_moved_by_one_unit_in_the_last_place_and_not_for_good():
    uniform, normal = draws()
    with nudged():
        moved, more = draws()
    assert torch.equal(moved, torch.nextafter(uniform, torch.full_like(uniform, 0.5)))
    assert torch.equal(more, torch.nextafter(normal, torch.full_like(normal, torch.inf)))
    assert (moved != uniform).all() and (more != normal).all()
    with pytest.raises(ArithmeticError), nudged(2):
        raise ArithmeticError
    assert all(torch.equal(a, b) for a, b in zip(draws(), (uniform, normal), strict=True))


def test_random_numbers_move_by_more_units_and_the_other_way():
    uniform, normal = draws()
    low = torch.full_like(normal, -torch.inf)
    with nudged(-2):
        moved, less = draws()
    assert torch.equal(less, torch.nextafter(torch.nextafter(normal, low), low))
    assert torch.where(uniform < 0.5, moved > uniform, moved < uniform).all()
