"""Where chunks run: in this process, in processes of this machine, or on a Dask cluster.

Workers compute and return chunks; they share no disk with this process and keep nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import queue
import time
import traceback
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import torch
import xarray as xr

from steinis_lib.companion import results
from steinis_lib.companion.parameters import Parameters
from steinis_lib.companion.runner.experiment import Cell, Chunk, compute_chunk
from steinis_lib.companion.runner.versions import versions

if TYPE_CHECKING:
    from distributed import Client, Future

CONNECT_TIMEOUT = 10
"""Seconds after which a scheduler that does not answer is given up."""

IGNORE_INTERRUPT = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
"""What local workers do first: Ctrl-C reaches them too, but ending them is the driver's part."""

LOG = logging.getLogger(__name__)


class SchedulerError(RuntimeError):
    """A scheduler's address is wrong, it does not answer, or its workers cannot be used."""


@dataclass(frozen=True)
class Failure:
    """What came of a chunk that has no result: on which worker, and the end of the traceback."""

    worker: str
    report: str


Job = tuple[Cell, Chunk]
Outcomes = Generator[tuple[Chunk, xr.Dataset | Failure], None, None]


def check_address(scheduler: str) -> None:
    """Raise `SchedulerError` if this cannot be a scheduler's address."""
    try:
        parts = urlsplit(scheduler)
        valid = parts.scheme in ("tcp", "tls") and parts.hostname and parts.port
    except ValueError:
        valid = False
    if not valid or scheduler != f"{parts.scheme}://{parts.netloc}":
        raise SchedulerError(
            f"{scheduler!r} is not the address of a scheduler, such as tcp://host:8786"
        )


def run_jobs(
    jobs: list[Job],
    parameters: Mapping[str, Parameters],
    workers: int = 1,
    scheduler: str | None = None,
) -> Outcomes:
    """Give each chunk with its dataset, or its failure after a second try, as they finish.

    Parameters
    ----------
    parameters
        Of each experiment that jobs are from, by its name.
    """
    if jobs and (workers > 1 or scheduler is not None):
        with _connected(min(workers, len(jobs)), scheduler) as client:
            try:
                yield from _on_workers(client, parameters, jobs)
            except (OSError, CancelledError) as error:
                raise SchedulerError(f"the connection to the cluster was lost: {error}") from error
        return
    for cell, chunk in jobs:
        outcome = attempt(cell, parameters[chunk.experiment], chunk)
        if isinstance(outcome, Failure):
            _log_retry(chunk, outcome)
            outcome = attempt(cell, parameters[chunk.experiment], chunk)
        yield chunk, outcome


def attempt(
    cell: Cell, parameters: Parameters, chunk: Chunk, worker: str = "this process"
) -> xr.Dataset | Failure:
    """Compute a chunk here and say so in it; return the end of the traceback if that fails."""
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    _set_process_wide()
    started = time.time()
    try:
        dataset = compute_chunk(cell, parameters, chunk)
        made = results.provenance(started)
        made["seconds"] = round(time.time() - started, 4)  # to be added up over many chunks
        return dataset.assign_attrs(provenance=json.dumps(made))
    except (Exception, SystemExit):
        return Failure(worker, "\n".join(traceback.format_exc().splitlines()[-12:]))
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)


def _set_process_wide() -> None:
    """Set what is one setting for a whole process, so that a chunk is the same in all of them."""
    torch.set_num_threads(1)  # chunks are small, and summation order must not depend on cores
    torch.set_default_dtype(torch.float64)


def run_on_worker(pickled: bytes, wanted: str) -> xr.Dataset | Failure:
    """Compute a chunk on a worker, unless it would compute something else than the driver."""
    from distributed import get_worker

    worker = str(get_worker().address)
    if (here := versions()) != wanted:
        raise SchedulerError(f"worker {worker} runs {here}; but this process runs {wanted}")
    _set_process_wide()  # for good: the worker may compute other chunks at the same time
    try:
        # From the driver, over the connection on which Dask itself sends pickles: never a file.
        cell, parameters, chunk = pickle.loads(pickled)
    except Exception:
        return Failure(worker, traceback.format_exc(limit=1))
    return attempt(cell, parameters, chunk, worker)


@contextmanager
def _connected(workers: int, scheduler: str | None) -> Iterator[Client]:
    import dask
    from distributed import Client, LocalCluster

    with ExitStack() as stack:
        address: Any = scheduler
        if scheduler is None:
            settings = {
                # Leave it to `_on_workers` to try the chunks of a dead worker again.
                "distributed.scheduler.allowed-failures": 0,
                # Dask has workers return freed memory at once. A step frees and takes the same
                # megabytes again and again, and would spend more time on that than on arithmetic.
                "distributed.nanny.pre-spawn-environ": {"OMP_NUM_THREADS": 1},
            }
            stack.enter_context(dask.config.set(settings))
            address = stack.enter_context(
                LocalCluster(
                    n_workers=workers,
                    threads_per_worker=1,
                    memory_limit=None,
                    silence_logs=logging.CRITICAL,
                    preload=[IGNORE_INTERRUPT],
                    # No dashboard; its port is taken all the same, so let it be any free one.
                    dashboard_address=None,
                    scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
                )
            )
        else:
            _probe(scheduler)
        yield stack.enter_context(Client(address, timeout=CONNECT_TIMEOUT, set_as_default=False))


def _probe(scheduler: str) -> None:
    """Raise `SchedulerError` unless something there speaks Dask's protocol; `Client` might hang."""
    from distributed import Security
    from distributed.comm.core import connect

    async def greet() -> None:
        security = Security().get_connection_args("client")
        await (await connect(scheduler, timeout=CONNECT_TIMEOUT, **security)).close()

    try:
        with ThreadPoolExecutor(1) as thread:  # this one may run an event loop already
            thread.submit(lambda: asyncio.run(asyncio.wait_for(greet(), CONNECT_TIMEOUT))).result()
    except Exception as error:  # whatever an unknown server's answer leads to
        raise SchedulerError(f"no Dask scheduler answers at {scheduler}") from error


def _on_workers(client: Client, parameters: Mapping[str, Parameters], jobs: list[Job]) -> Outcomes:
    from distributed import KilledWorker

    running: dict[Future[Any], Job] = {}
    finished: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()

    def submit(job: Job, failed_on: str | None = None) -> None:
        others = [w for w in client.nthreads() if w != failed_on] if failed_on else []
        cell, chunk = job
        pickled = pickle.dumps((cell, parameters[chunk.experiment], chunk))
        future = client.submit(
            run_on_worker, pickled, versions(), pure=False,
            workers=others or None, allow_other_workers=bool(others),
        )  # fmt: skip
        running[future] = job
        future.add_done_callback(finished.put)

    for job in jobs:
        submit(job)
    retried: set[Chunk] = set()
    suspects: list[Job] = []
    while running:
        future = _next(client, finished)
        if future.status in ("lost", "pending"):  # its worker died before the result was fetched
            future.add_done_callback(finished.put)
            continue
        job, killed = running.pop(future), False
        chunk = job[1]
        try:
            outcome = future.result()
        except KilledWorker as error:
            outcome, killed = Failure(error.last_worker.address, str(error)), True
        except (SchedulerError, OSError, CancelledError):
            raise
        except Exception as error:
            raise SchedulerError(f"the cluster cannot run chunks: {error}") from error
        if not isinstance(outcome, Failure) or chunk in retried:
            yield chunk, outcome
        else:
            _log_retry(chunk, outcome)
            retried.add(chunk)
            if killed:
                suspects.append(job)
            else:
                submit(job, outcome.worker)
        if suspects and not running:
            # Whoever was on a dying worker is suspect; alone, only the culprit kills another.
            submit(suspects.pop())


def _next(client: Client, finished: queue.SimpleQueue[Future[Any]]) -> Future[Any]:
    """Wait for a chunk, and say now and then when there is no worker to compute it."""
    patience = CONNECT_TIMEOUT
    while True:
        try:
            return finished.get(timeout=patience)
        except queue.Empty:
            patience *= 2
            if client.status == "running" and not client.nthreads():
                LOG.warning("the scheduler has no workers; waiting for some")


def _log_retry(chunk: Chunk, failure: Failure) -> None:
    LOG.warning(
        "%s, chunk %d failed (%s) and is tried again: %s",
        chunk.label, chunk.number, failure.worker, failure.report.splitlines()[-1],
    )  # fmt: skip
