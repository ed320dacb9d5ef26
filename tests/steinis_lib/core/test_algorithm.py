import threading
from dataclasses import dataclass

import pytest

from steinis_lib.core.algorithm import Algorithm, watched


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


@dataclass(frozen=True)
class Nested(Doubling):
    """Takes a step by running another algorithm twice."""

    def step(self, state):
        return Doubling().run(state, 2) + 1, "nested"


def test_a_watcher_sees_every_new_state_of_every_run():
    seen = []
    with watched(seen.append):
        assert Doubling().run(1, 3) == 8
        assert Doubling(limit=4).run(1, 9) == 4
        assert Doubling().run(5, 0) == 5
    assert seen == [2, 4, 8, 2, 4]


def test_a_watcher_sees_the_states_of_runs_within_a_run():
    seen = []
    with watched(seen.append):
        assert Nested().run(1, 2) == 21
    assert seen == [2, 4, 5, 10, 20, 21]


def test_a_watcher_comes_after_the_function_that_a_run_is_given():
    seen = []
    with watched(lambda state: seen.append(("watched", state))):
        Doubling().run(1, 2, on_step=lambda state, info: seen.append((info, state)))
    assert seen == [("from 1", 2), ("watched", 2), ("from 2", 4), ("watched", 4)]


def test_nothing_is_watched_after_the_block():
    seen = []
    with watched(seen.append):
        Doubling().run(1, 1)
    Doubling().run(1, 1)
    with pytest.raises(ValueError, match="at least 0"), watched(seen.append):
        Doubling().run(1, -1)
    Doubling().run(1, 1)
    assert seen == [2]


def test_an_exception_of_the_watcher_ends_the_run_and_the_watching():
    seen, steps = [], []

    def stop(state):
        seen.append(state)
        if state == 4:
            raise StopAsyncIteration

    with pytest.raises(StopAsyncIteration), watched(stop):
        Doubling().run(1, 9, on_step=lambda state, _: steps.append(state))
    assert steps == seen == [2, 4]
    Doubling().run(1, 9)
    assert seen == [2, 4]


def test_the_inner_of_two_watchers_watches_and_then_the_outer_again():
    outer, inner = [], []
    with watched(outer.append):
        Doubling().run(1, 1)
        with watched(inner.append):
            Doubling().run(2, 1)
        Doubling().run(3, 1)
    assert (outer, inner) == ([2, 6], [4])


def test_runs_of_other_threads_are_not_watched():
    seen = []
    with watched(seen.append):
        thread = threading.Thread(target=lambda: Doubling().run(1, 3))
        thread.start()
        thread.join()
    assert seen == []
