import pytest

from steinis_lib.companion.intervals import Estimate
from steinis_lib.companion.page import interval, number


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.00123456, 3, "0.00123"),
        (57.34, 2, "57"),
        (99.96, 2, "100"),
        (203.4, 2, "203"),  # three digits at least from 100 on
        (-101.23, 4, "-101.2"),
        (999.6, 3, "1,000"),
        (-12_345.6, 3, "-12,300"),
        (float("inf"), 3, "inf"),
        (0, 3, "0"),
    ],
)
def test_large_numbers_have_no_power_of_ten(value, digits, text):
    assert number(value, digits) == text


def test_an_interval_is_scaled_as_a_whole():
    assert interval(Estimate(1.5, 1.25, 2.0), 2, scale=1e3) == "1,500 [1,250, 2,000]"
