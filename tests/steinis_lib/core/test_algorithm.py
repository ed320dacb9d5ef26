from dataclasses import dataclass

import pytest

from steinis_lib.core.algorithm import Algorithm


@dataclass(frozen=True)
class Doubling(Algorithm[int, str]):
    """Doubles an integer until it has reached a limit."""

    limit: float = float("inf")

    def init(self, generator, *, batch_shape=()):
        return 1

    def step(self, state):
        return 2 * state, f"from {state}"

    def n_evaluations(self, n_transitions):
        return n_transitions

    def finished(self, state):
        return state >= self.limit


def test_each_new_state_and_its_info_are_shown():
    seen = []
    end = Doubling().run(1, 3, on_step=lambda state, info: seen.append((state, info)))
    assert end == 8
    assert seen == [(2, "from 1"), (4, "from 2"), (8, "from 4")]
    assert Doubling().run(1, 0) == 1


def test_a_run_ends_once_it_is_finished():
    seen = []
    assert Doubling(limit=4).run(1, 10, on_step=lambda state, _: seen.append(state)) == 4
    assert seen == [2, 4]
    assert Doubling(limit=1).run(1, 10) == 1


def test_a_negative_number_is_refused():
    with pytest.raises(ValueError, match="n_transitions must be at least 0, got -1"):
        Doubling().run(1, -1)


def test_an_algorithm_without_its_methods_cannot_be_made():
    class Half(Algorithm[int, str]):
        def step(self, state):
            return state, ""

    with pytest.raises(TypeError, match="abstract"):
        Half()
