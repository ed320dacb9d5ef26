"""The exercises of the sections: their programs print what the solutions show."""

import re

import pytest
from exercises import NOTEBOOKS, changed, exercises, numbers, page, printed, programs, same, says


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_three_exercises_with_a_hint_and_a_solution_each(notebook):
    parts = re.split(r"^\*\*\d\. ", exercises(notebook), flags=re.MULTILINE)[1:]
    assert len(parts) == 3
    for part, kind in zip(parts, ("Think: ", "Run: ", "Go further: "), strict=True):
        assert part.startswith(kind)
        assert re.findall(r"<summary>(\w+)</summary>\n\n", part) == ["Hint", "Solution"]
        assert part.count("<details>\n") == part.count("\n\n</details>") == 2


def test_a_wrong_output_is_noticed():
    assert same("KL 0.123, ESS 98\n", "KL 0.124, ESS 99\n")
    assert not same("KL 0.123\n", "KL 0.133\n")
    assert not same("KL 0.123\n", "ESS 0.123\n")


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_programs_print_what_is_shown(notebook):
    text = exercises(notebook)
    found = programs(text)
    assert len(found) == text.count("```python") == text.count("```text") >= 1
    for code, shown in found:
        assert same(shown, printed(code)), printed(code)


@pytest.mark.slow
def test_many_leaders():
    rule, wide = (f"{row[-1]:.3f}" for row in changed(1, 0, "(10, 100)", "(200,)"))
    says(1, f"KL ends at {rule} with the printed bandwidth and at {wide} with the wide kernel")


@pytest.mark.slow
def test_a_flat_kernel():
    start, flat = changed(2, 0, "(1, 4, 16)", "(1000,)")
    says(2, f"size is then {flat[1]:.2f} of $|B|$")
    assert start[0] < flat[1] < 0.70


def test_when_to_stop():
    rows = numbers(programs(page(3))[1][1])
    best = max(rows, key=lambda row: row[1])
    assert best == min(rows, key=lambda row: row[2])
    says(3, f"is largest after {best[0]:g} transitions")


@pytest.mark.slow
def test_gaps_of_the_bounds():
    gaps = [row[-1] for row in numbers(programs(page(5))[0][1])]
    says(5, f"about {gaps[0] / gaps[1]:.1f} times smaller", f"about {gaps[0] / gaps[2]:.1f} times")
    smaller_steps = changed(5, 0, "step_size=0.1", "step_size=0.02")
    assert all(row[-1] > gap for row, gap in zip(smaller_steps, gaps, strict=True))


@pytest.mark.slow
def test_more_transitions_with_a_pool_and_without():
    fixed, pool = (row[2:] for row in numbers(programs(page(7))[0][1]))
    says(7, f"leaders give KL between {min(fixed):.2f} and {max(fixed):.2f} nats")
    says(7, f"the pool between {min(pool):.2f} and {max(pool):.2f}")
    fixed_longer, pool_longer = (row[2:] for row in changed(7, 0, ", 100)\n", ", 200)\n"))
    assert all(after < before for after, before in zip(pool_longer, pool, strict=True))
    says(7, f"to {min(pool_longer):.2f} at best")
    near = [abs(after - before) < 0.025 for after, before in zip(fixed_longer, fixed, strict=True)]
    assert sum(near) == 3


@pytest.mark.slow
def test_the_pool_and_not_the_batch_limits_what_followers_learn():
    small, middle, large = (row[1:] for row in numbers(programs(page(8))[0][1]))
    for more, fewer in ((middle, small), (large, middle)):
        assert 3 < fewer[2] / more[2] < 5
    assert all(row[2] > 2.5 * row[3] for row in (small, middle, large))
    assert small[2] > 1.2 * small[1] and large[2] < 1.05 * large[1]
    wide = changed(8, 0, "leaders_per_step=100", "leaders_per_step=200")
    for row, other in zip((small, middle, large), wide, strict=True):
        assert abs(row[2] / other[3] - 1) < 0.15
    says(8, "each fourfold pool divides KL by about four", "KL hardly changes")
