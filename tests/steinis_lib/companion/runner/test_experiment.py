"""What an experiment declares, and what is refused."""

import pickle

import pytest
import torch
import xarray as xr
from toy_experiments import EXPERIMENT, PILOTED, Toy, run_chunk

from steinis_lib import SVGD, Gaussian
from steinis_lib.companion.registry import EXPERIMENTS
from steinis_lib.companion.runner.compute import joined
from steinis_lib.companion.runner.experiment import (
    Cell,
    Chunk,
    Experiment,
    compute_chunk,
    stream,
    with_pilots,
)


@pytest.mark.parametrize(
    ("n_trials", "size", "expected"),
    [
        (5, 2, [[0, 1], [2, 3], [4]]),
        (4, 2, [[0, 1], [2, 3]]),
        (1, 9, [[0]]),
        (3, 1, [[0], [1], [2]]),
    ],
)
def test_trials_are_cut_into_chunks_and_the_last_may_be_smaller(n_trials, size, expected):
    chunks = EXPERIMENT.chunks(Toy(seed=7), Cell("a", n_trials, run_chunk, size))
    assert [list(chunk.trials) for chunk in chunks] == expected
    assert [chunk.number for chunk in chunks] == list(range(len(expected)))
    assert {(chunk.experiment, chunk.label, chunk.seed) for chunk in chunks} == {("toy", "a", 7)}


def test_pilots_are_the_cells_that_others_need_and_come_first():
    first, others = PILOTED.stages(Toy())
    assert [cell.label for cell in first] == ["pilot"]
    assert [cell.label for cell in others] == ["a", "b"]
    assert EXPERIMENT.stages(Toy())[0] == []


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([Cell("a", 1, run_chunk), Cell("a", 2, run_chunk)], "same label"),
        ([Cell("a", 1, run_chunk, pilots=("p",))], r"no cell has the label of a pilot: \['p'\]"),
        (
            [
                Cell("a", 1, run_chunk, pilots=("p",)),
                Cell("p", 1, run_chunk, pilots=("q",)),
                Cell("q", 1, run_chunk),
            ],
            "a pilot cell cannot need pilots",
        ),
    ],
)
def test_cells_that_do_not_fit_are_refused(cells, message):
    with pytest.raises(ValueError, match=message):
        Experiment("bad", Toy, lambda p: cells).stages(Toy())


@pytest.mark.parametrize("dims", [("draw",), ("trial", "draw")])
def test_a_chunk_without_its_trials_is_refused(dims):
    def compute(p, chunk):
        return xr.Dataset({"x": (dims, torch.zeros(3, 2)[:, : len(dims)].squeeze(-1).numpy())})

    ((chunk,),) = [EXPERIMENT.chunks(Toy(), cell := Cell("a", 2, compute, 2))]
    with pytest.raises(ValueError, match="toy, a, chunk 0: x has the dimensions .* of length 2"):
        compute_chunk(cell, Toy(), chunk)


def test_a_chunk_holds_its_first_states_where_an_algorithm_is_run():
    target = Gaussian.isotropic(torch.zeros(2), 1.0)

    def compute(p, chunk):
        algorithm = SVGD(target, target, n_particles=4)
        end = algorithm.run(algorithm.init(chunk.generator()), 2 * chunk.number)
        return xr.Dataset({"x": ("trial", [float(end.particles.mean())] * chunk.n_trials)})

    cell = Cell("a", 5, compute, 2)
    without, short, long = (compute_chunk(cell, Toy(), c) for c in EXPERIMENT.chunks(Toy(), cell))
    assert list(without.data_vars) == ["x"]
    assert short.first_states.sizes["trial"] == 2 and long.first_states.sizes["trial"] == 1
    assert short.trial.values.tolist() == [2, 3] and long.trial.values.tolist() == [4]
    first = long.first_states.isel(trial=0).values
    state = SVGD(target, target, n_particles=4)
    state = state.run(state.init(EXPERIMENT.chunks(Toy(), cell)[2].generator()), 1)
    assert first[0, 0] == pytest.approx(float(state.particles.mean()), rel=1e-12)


def test_a_cell_gets_those_pilots_that_it_needs():
    chunk = Chunk("toy", "a", 0, range(1), 1)
    found = {"p": xr.Dataset(), "q": xr.Dataset()}
    cell = Cell("a", 1, run_chunk, pilots=("q",))
    assert list(with_pilots(cell, chunk, found).pilots) == ["q"]
    assert with_pilots(cell, chunk, found) == chunk  # pilots are no part of a chunk's identity


def test_a_stream_is_a_function_of_its_name():
    names = [
        (1, "x", "a", 0),
        (2, "x", "a", 0),
        (1, "y", "a", 0),
        (1, "x", "b", 0),
        (1, "x", "a", 1),
    ]
    seeds = [stream(*name).initial_seed() for name in names]
    assert len(set(seeds)) == len(names)
    assert seeds == [stream(*name).initial_seed() for name in names]
    chunk = Chunk("x", "a", 0, range(2), 1)
    assert chunk.generator().initial_seed() == seeds[0]
    assert chunk.stream("b").initial_seed() == seeds[3]
    assert chunk.stream("a", 1).initial_seed() == seeds[4]


def test_streams_of_experiments_differ():
    seeds = {stream(1, name, "mixtures", 0).initial_seed() for name in EXPERIMENTS}
    assert len(seeds) == len(EXPERIMENTS)


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("profile", ["quick", "paper"])
def test_every_experiment_has_sound_cells_that_other_processes_can_get(name, profile):
    experiment = EXPERIMENTS[name]
    assert experiment.name == name
    parameters = experiment.parameters.of_profile(profile)
    first, others = experiment.stages(parameters)
    assert others
    for cell in first + others:
        assert cell.n_trials > 0 and cell.trials_per_chunk > 0
        assert pickle.loads(pickle.dumps(cell)).label == cell.label


def _one_of_each_method(name):
    """The first chunk of a cell of each method, at profile quick."""
    experiment = EXPERIMENTS[name]
    parameters = experiment.parameters.of_profile("quick")
    first, others = experiment.stages(parameters)
    return parameters, first, {cell.method or cell.label: cell for cell in others}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_chunk_is_a_function_of_its_name(name):
    """Computed twice, in any order, with other work in between, it is the same to the last bit."""
    torch.manual_seed(99)  # a global stream must not matter
    experiment = EXPERIMENTS[name]
    parameters, first, methods = _one_of_each_method(name)
    found = {}
    for cell in first:
        chunks = experiment.chunks(parameters, cell)
        found[cell.label] = joined(compute_chunk(cell, parameters, c) for c in chunks)

    def numbers(cell, p):
        chunk = with_pilots(cell, experiment.chunks(p, cell)[0], found)
        dataset = compute_chunk(cell, p, chunk)
        timed = [n for n in dataset.data_vars if dataset[n].attrs.get("units") == "s"]
        return {str(n): v.values.tobytes() for n, v in dataset.drop_vars(timed).data_vars.items()}

    once = {label: numbers(cell, parameters) for label, cell in methods.items()}
    torch.rand(3)
    again = {label: numbers(methods[label], parameters) for label in reversed(list(methods))}
    assert again == once
