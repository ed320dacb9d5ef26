"""The summary of the first states of a computation."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
import torch
import xarray as xr

from steinis_lib import GaussianMixture
from steinis_lib.baselines import HAIS, linear_schedule
from steinis_lib.companion.parameters import Parameters
from steinis_lib.companion.runner.experiment import Cell, Chunk, compute_chunk
from steinis_lib.companion.runner.first_states import (
    DECISIONS,
    DIMENSIONS,
    N_STATES,
    NAME,
    only_first_states,
    with_first_states,
)
from steinis_lib.core.algorithm import Algorithm

N_TRIALS = 3


@dataclass(frozen=True)
class Walk:
    """Two summarised tensors, and two things that are not summarised."""

    place: torch.Tensor
    speed: torch.Tensor
    number: torch.Tensor
    name: str = "walk"


@dataclass(frozen=True)
class Growth:
    size: torch.Tensor


@dataclass(frozen=True)
class Walking(Algorithm[Walk, None]):
    """Moves by its speed; notes each step that it takes."""

    steps: list

    def init(self, generator, *, batch_shape=()):
        x, v = torch.randn(2, 4, generator=generator)
        return Walk(x, v, torch.tensor(0))

    def step(self, state):
        self.steps.append("walk")
        return replace(state, place=state.place + state.speed, number=state.number + 1), None

    def n_evaluations(self, n_transitions):
        return n_transitions


@dataclass(frozen=True)
class Growing(Algorithm[Growth, None]):
    steps: list

    def init(self, generator, *, batch_shape=()):
        return Growth(torch.ones(2))

    def step(self, state):
        self.steps.append("growth")
        return Growth(2 * state.size), None

    def n_evaluations(self, n_transitions):
        return n_transitions


def computing(*runs, seed=1, steps=None):
    """A computation of runs such as ("walk", 7); the dataset holds where the walks ended."""
    steps = [] if steps is None else steps

    def compute():
        generator = torch.Generator().manual_seed(seed)
        ends = [0.0]
        for kind, n in runs:
            algorithm = (Walking if kind == "walk" else Growing)(steps)
            end = algorithm.run(algorithm.init(generator), n)
            ends.append(float((end.place if kind == "walk" else end.size).sum()))
        values = torch.full((N_TRIALS,), sum(ends)).numpy()
        return xr.Dataset({"x": ("trial", values)}, attrs={"unit": "m"})

    return compute


def summary_of(dataset):
    """The summary, which is the same for all trials."""
    values = dataset[NAME]
    assert values.dims == ("trial", *DIMENSIONS)
    assert values.sizes["trial"] == N_TRIALS and values.sizes[DIMENSIONS[0]] == N_STATES
    for trial in values.values[1:]:
        np.testing.assert_array_equal(trial, values.values[0])
    return values.values[0]


def test_the_mean_of_each_floating_point_tensor_of_each_state_is_kept():
    x, v = torch.randn(2, 4, generator=torch.Generator().manual_seed(1))
    found = summary_of(with_first_states(computing(("walk", 9)), N_TRIALS))
    expected = [[float((x + k * v).mean()), float(v.mean())] for k in range(1, N_STATES + 1)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_short_run_stays_where_it_ended():
    short, long = (
        summary_of(with_first_states(computing(("walk", n)), N_TRIALS)) for n in (2, N_STATES)
    )
    np.testing.assert_array_equal(short, long[[0, 1, 1, 1, 1]])
    assert np.abs(np.diff(long[:, 0])).min() > 1e-3


@pytest.mark.parametrize("runs", [(), (("walk", 0),)])
def test_without_a_run_there_is_no_summary(runs):
    dataset = with_first_states(computing(*runs), N_TRIALS)
    assert list(dataset.data_vars) == ["x"]
    assert only_first_states(computing(*runs)) is None


def test_the_dataset_is_else_untouched():
    compute = computing(("walk", 9))
    dataset = with_first_states(compute, N_TRIALS)
    xr.testing.assert_identical(dataset.drop_vars(NAME), compute())


RUNS = {
    "one long run": [("walk", 9)],
    "one short run": [("walk", 2)],
    "short runs of one kind": [("walk", 2), ("walk", 9)],
    "three short runs of one kind": [("walk", 1), ("walk", 1), ("walk", 2)],
    "a long run before another kind": [("walk", 9), ("growth", 9)],
    "a short run before another kind": [("walk", 3), ("growth", 9)],
    "another kind in between": [("walk", 2), ("growth", 1), ("walk", 9)],
    "an empty run first": [("growth", 0), ("walk", 9)],
    "exactly as many": [("walk", N_STATES), ("growth", 2)],
}


@pytest.mark.parametrize("runs", RUNS.values(), ids=RUNS)
def test_both_ways_to_get_the_summary_agree(runs):
    whole = summary_of(with_first_states(computing(*runs), N_TRIALS))
    np.testing.assert_array_equal(only_first_states(computing(*runs)), whole)


@pytest.mark.parametrize(
    ("runs", "taken"),
    [
        ([("walk", 9)], ["walk"] * 5),
        ([("walk", 5), ("growth", 9)], ["walk"] * 5),
        ([("walk", 3), ("walk", 9)], ["walk"] * 5),
        ([("walk", 2), ("growth", 9)], ["walk", "walk", "growth"]),  # whose state ends it
        ([("walk", 2), ("growth", 1), ("walk", 9)], ["walk", "walk", "growth"]),
        ([("walk", 2)], ["walk", "walk"]),
    ],
)
def test_nothing_is_computed_beyond_the_first_states(runs, taken):
    steps = []
    only_first_states(computing(*runs, steps=steps))
    assert steps == taken
    whole = []
    with_first_states(computing(*runs, steps=whole), N_TRIALS)
    assert len(whole) == sum(n for _, n in runs)  # the computation itself goes on to its end


def test_another_seed_has_another_summary():
    found = [only_first_states(computing(("walk", 9), seed=seed)) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(found[0], found[1])
    assert np.abs(found[0] - found[2]).min() > 1e-3


def test_values_that_are_not_finite_are_left_out_of_a_mean():
    @dataclass(frozen=True)
    class Spoiling(Growing):
        def step(self, state):
            return Growth(torch.tensor([torch.inf, 3.0, torch.nan, 5.0])), None

    @dataclass(frozen=True)
    class Vanishing(Growing):
        def step(self, state):
            return Growth(torch.tensor([torch.inf])), None

    for algorithm, mean in ((Spoiling([]), 4.0), (Vanishing([]), 0.0)):
        found = only_first_states(partial(algorithm.run, algorithm.init(None), 9))
        assert found.tolist() == [[mean]] * N_STATES


def test_an_error_of_the_computation_is_not_kept_back():
    def broken():
        computing(("walk", 2))()
        raise ArithmeticError("the toy is broken")

    for find in (only_first_states, lambda compute: with_first_states(compute, N_TRIALS)):
        with pytest.raises(ArithmeticError, match="the toy is broken"):
            find(broken)
    assert only_first_states(computing(("walk", 1))) is not None  # and nothing is left behind


def chunk_of(compute):
    cell = Cell("a", N_TRIALS, compute, N_TRIALS)
    return compute_chunk(cell, Parameters(), Chunk("toy", "a", 0, range(N_TRIALS), 1))


@pytest.mark.parametrize("name", ["transition", "trials"])
def test_a_variable_may_have_the_name_of_a_dimension_of_the_summary(name):
    dataset = chunk_of(lambda p, chunk: computing(("walk", 9))().rename(x=name))
    assert set(dataset.data_vars) == {name, NAME}


@pytest.mark.parametrize("dtype, decided", [(torch.float32, True), (torch.float64, False)])
def test_a_summary_says_that_moves_are_accepted_or_rejected_in_32_bits(dtype, decided):
    means = torch.tensor([[0.0, 1.0]], dtype=dtype)
    mixture = GaussianMixture(torch.zeros(1, dtype=dtype), means, torch.ones_like(means))
    hais = HAIS(mixture, mixture, n_particles=5, schedule=linear_schedule(4), step_size=0.3)

    def compute():
        end = hais.run(hais.init(torch.Generator().manual_seed(1)), 4)
        return xr.Dataset({"x": ("trial", np.full(N_TRIALS, float(end.log_w.sum())))})

    summary = with_first_states(compute, N_TRIALS)[NAME]
    assert summary.attrs == ({DECISIONS: "float32"} if decided else {})


def test_a_map_makes_no_decisions():
    assert with_first_states(computing(("walk", 9)), N_TRIALS)[NAME].attrs == {}
