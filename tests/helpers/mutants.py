"""Ways to break the library, each with a chunk of a stored result that shows it.

`problems` runs in a process that has not imported the library yet, so this module must not either.
"""

import os
import shutil
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import torch
import xarray as xr

ROOT = Path(__file__).resolve().parents[2]
PRELOADED = ("torch", "scipy.special", "xarray", "netCDF4", "pydantic")
"""What a process that makes others imports first: most of the time that the library takes."""


@dataclass(frozen=True)
class Job:
    """A chunk of an experiment: the label of its cell, and its number."""

    experiment: str
    label: str
    number: int = 0


@dataclass(frozen=True)
class Mutant:
    """An edit of one file, and a chunk that has other numbers after it.

    Parameters
    ----------
    name
        What is wrong in the edited library.
    job
        The chunk.
    file
        Relative to ``steinis_lib``.
    old, new
        `old` is in the file exactly once, and gives way to `new`.
    """

    name: str
    job: Job
    file: str
    old: str
    new: str


CHECKS = "algorithm-checks"
EXACT = Job(CHECKS, "unbiased-exact")
FIRST_ORDER = Job(CHECKS, "unbiased-first-order")
DETERMINANT = Job(CHECKS, "determinant")
CONVERGENCE = Job("gmm-convergence", "leaders-25")
DIRECT = Job("gmm-estimation", "easy-direct", 7)
EASY_IS = Job("gmm-estimation", "easy-is", 3)
HARD_IS = Job("gmm-estimation", "hard-is")
SVGD = Job("gmm-estimation", "easy-svgd-10", 2)
AIS = Job("gmm-estimation", "easy-ais")
HAIS = Job("gmm-estimation", "easy-hais-full")
HAIS_PARTIAL = Job("gmm-estimation", "easy-hais-partial")
PMC = Job("adaptive-comparison", "easy-pmc-20", 4)
OPTIMUM = Job("adaptive-comparison", "easy-optimum-0.6", 1)
ADAPTIVE = Job("adaptive-comparison", "main-panels-adaptive")
RBM_IS = Job("rbm", "standard-is-20", 3)
RBM_AIS = Job("rbm", "standard-ais-10")
MATCHED_IS = Job("rbm", "matched-is-100")
PRIOR_IS = Job("vae", "prior-is-10", 1)
ENCODER_IS = Job("vae", "encoder-is-20")
POOL = Job("beyond", "easy-pool")
FIXED = Job("beyond", "warped-fixed")
MODES = Job("beyond", "rbm-20")

MUTANTS = (
    Mutant(
        "the sign of the repulsion", EXACT,
        "stein/kernels.py", "phi = f_s + 2 * (d_x - d_1 * y)", "phi = f_s - 2 * (d_x - d_1 * y)",
    ),
    Mutant(
        "a factor of two in the bandwidth", EXACT,
        "stein/kernels.py", "square() / (2 * math.log(", "square() / (math.log(",
    ),
    Mutant(
        "one particle less in the bandwidth", EXACT,
        "stein/kernels.py", "math.log(x.shape[-2] + 1)", "math.log(x.shape[-2])",
    ),
    Mutant(
        "no determinant in Algorithm 1", EXACT,
        "steinis.py", "log_q=state.log_q - log_abs_det,", "log_q=state.log_q,",
    ),
    Mutant(
        "the sign of the log-determinant", EXACT,
        "steinis.py", "log_q=state.log_q - log_abs_det,", "log_q=state.log_q + log_abs_det,",
    ),
    Mutant(
        "leaders that stay", EXACT,
        "steinis.py", "leaders = step_map(state.leaders)  #", "leaders = state.leaders  #",
    ),
    Mutant(
        "a sign in the determinant of two by two", EXACT,
        "stein/determinants.py",
        "a[..., 1, 1] - a[..., 0, 1] * a[..., 1, 0]", "a[..., 1, 1] + a[..., 0, 1] * a[..., 1, 0]",
    ),
    Mutant(
        "exact determinants where first-order ones are asked for", FIRST_ORDER,
        "stein/maps.py",
        'if determinant == "exact":', 'if determinant in ("exact", "first-order"):',
    ),
    Mutant(
        "first-order determinants by default", FIXED,
        "steinis.py",
        'determinant: Determinant = "exact"', 'determinant: Determinant = "first-order"',
    ),
    Mutant(
        "an exponential for the first-order determinant", DETERMINANT,
        "stein/maps.py", "factors = 1 + epsilon * diagonal", "factors = (epsilon * diagonal).exp()",
    ),
    Mutant(
        "the sign of a schedule's exponent", FIXED,
        "schedules.py", "(1 + transition) ** self.beta", "(1 + transition) ** -self.beta",
    ),
    Mutant(
        "a schedule that is one transition ahead", FIXED,
        "schedules.py", "(1 + transition) ** self.beta", "(2 + transition) ** self.beta",
    ),
    Mutant(
        "a random batch that is chosen otherwise", POOL,
        "core/generators.py",
        "index = u.argsort(-1)[..., :k, None]", "index = u.argsort(-1).argsort(-1)[..., :k, None]",
    ),
    Mutant(
        "the sign of a mixture's score", EXACT,
        "targets/mixtures.py",
        "return responsibility @ (self.means * precision) - x * (responsibility @ precision)",
        "return x * (responsibility @ precision) - responsibility @ (self.means * precision)",
    ),
    Mutant(
        "a mixture's normaliser without the scales", HARD_IS,
        "targets/mixtures.py", "self.log_weights - self.scales.log().sum(-1) -",
        "self.log_weights -",
    ),
    Mutant(
        "the easy mixture's scale for the hard one", HARD_IS,
        "companion/sections/s2_mixtures/problem.py",
        "(p.hard_spread, p.hard_scale)", "(p.hard_spread, p.easy_scale)",
    ),
    Mutant(
        "exact moments without the variance", DIRECT,
        "targets/mixtures.py",
        "moments = self.means.square() + self.scales.square()", "moments = self.means.square()",
    ),
    Mutant(
        "couplings of 1 instead of 0.5", RBM_IS,
        "companion/problems/rbm.py", "coin.to(dtype) - 0.5", "2 * coin.to(dtype) - 1",
    ),
    Mutant(
        "the sign of the RBM's field in its score", RBM_AIS,
        "companion/problems/rbm.py",
        "phi.tanh(), self.coupling.mT", "-phi.tanh(), self.coupling.mT",
    ),
    Mutant(
        "no 2π in the RBM's log Z", RBM_IS,
        "companion/problems/rbm.py",
        "self._log_terms.logsumexp(-1) + 0.5 * self.dim * math.log(2 * math.pi)",
        "self._log_terms.logsumexp(-1)",
    ),
    Mutant(
        "the covariance for its Cholesky factor", MATCHED_IS,
        "companion/sections/s4_rbm/problem.py",
        "torch.linalg.cholesky(target.covariance)", "target.covariance.tril()",
    ),
    Mutant(
        "a bent target's score without the bend's 2", FIXED,
        "companion/problems/warped.py",
        "- 2 * self.a2 * z[..., 0] * second", "- self.a2 * z[..., 0] * second",
    ),
    Mutant(
        "the wrong way of the bend", OPTIMUM,
        "companion/problems/warped.py",
        "self.b2 - self.a2 * z1.square()", "self.b2 + self.a2 * z1.square()",
    ),
    Mutant(
        "a decoder without its last bias", PRIOR_IS,
        "companion/problems/decoder.py",
        "pixels = torch.addmm(c, hidden, v)", "pixels = torch.mm(hidden, v)",
    ),
    Mutant(
        "the sign of a decoder's prior", PRIOR_IS,
        "companion/problems/decoder.py",
        "prior = -0.5 * (part.square()", "prior = 0.5 * (part.square()",
    ),
    Mutant(
        "the prior's variance", PRIOR_IS,
        "companion/sections/s5_likelihood/problem.py",
        "torch.zeros(model.latent_dim, dtype=images.dtype))",
        "torch.zeros(model.latent_dim, dtype=images.dtype), 1.1)",
    ),
    Mutant(
        "the encoder's variance for its deviation", ENCODER_IS,
        "companion/sections/s5_likelihood/problem.py", "(0.5 * log_var).exp()", "log_var.exp()",
    ),
    Mutant(
        "weights upside down", EASY_IS,
        "importance.py",
        "return ImportanceSample(particles, log_p - q0.log_prob(particles))",
        "return ImportanceSample(particles, q0.log_prob(particles) - log_p)",
    ),
    Mutant(
        "weights in the reverse order", EASY_IS,
        "importance.py",
        "return ImportanceSample(particles, log_p - q0.log_prob(particles))",
        "return ImportanceSample(particles, (log_p - q0.log_prob(particles)).flip(-1))",
    ),
    Mutant(
        "no log n in log Z", EASY_IS,
        "importance.py", "return self.log_w.logsumexp(-1) - math.log(self.n)",
        "return self.log_w.logsumexp(-1)",
    ),
    Mutant(
        "an effective sample size without the square", EASY_IS,
        "importance.py", "return (2 * self.log_w.logsumexp(-1) -",
        "return (self.log_w.logsumexp(-1) -",
    ),
    Mutant(
        "a standard error without the root of n", EXACT,
        "importance.py", "return relative.std(-1) / math.sqrt(self.n)",
        "return relative.std(-1) / self.n",
    ),
    Mutant(
        "a shorter tail for the Pareto shape", EASY_IS,
        "core/pareto.py", "min(n / 5, 3 * math.sqrt(n))", "min(n / 5, 2 * math.sqrt(n))",
    ),
    Mutant(
        "another name of every stream", DIRECT,
        "companion/runner/experiment.py",
        "json.dumps([seed, experiment, label, number])", "json.dumps([seed, label, number])",
    ),
    Mutant(
        "a check's own stream for the shared one", EXACT,
        "companion/sections/s1_convergence/algorithm_checks.py",
        'sampler.init(chunk.stream("particles"),', "sampler.init(chunk.generator(),",
    ),
    Mutant(
        "trials whose numbers are one too high", EASY_IS,
        "companion/runner/experiment.py",
        "trial=list(chunk.trials))", "trial=[trial + 1 for trial in chunk.trials])",
    ),
    Mutant(
        "the second best setting of pilots", SVGD,
        "companion/tuning_records.py",
        "return best(trials_of(record)).candidate",
        "return sorted(trials_of(record), key=lambda trial: trial.score)[-2].candidate",
    ),
    Mutant(
        "the second best setting of pilots in section 3", ADAPTIVE,
        "companion/sections/s3_adaptive_is/problem.py",
        'record.score.max("candidate").values.argmax()',
        'record.score.max("candidate").values.argsort()[-2]',
    ),
    Mutant(
        "the step's weight in path integration", SVGD,
        "path_integration.py", "kl=state.kl + epsilon * v,", "kl=state.kl + v,",
    ),
    Mutant(
        "the U-statistic for the V-statistic", SVGD,
        "path_integration.py", "kl=state.kl + epsilon * v,", "kl=state.kl + epsilon * u,",
    ),
    Mutant(
        "half of the trace in the Stein kernel", SVGD,
        "stein/kernels.py",
        "pull = 2 * along + 2 * x.shape[-1]", "pull = 2 * along + x.shape[-1]",
    ),
    Mutant(
        "a KSD among followers for the one across", CONVERGENCE,
        "stein/ksd.py",
        "target.score(followers), leaders, target.score(leaders))",
        "target.score(followers), followers, target.score(followers))",
    ),
    Mutant(
        "a derivative over one step for two", CONVERGENCE,
        "companion/sections/s1_convergence/experiment.py",
        "(ahead - behind) / (2 * step)", "(ahead - behind) / step",
    ),
    Mutant(
        "the sign of the kernels' ratio", AIS,
        "baselines/hamiltonian.py", "0.5 * torch.addcmul(", "-0.5 * torch.addcmul(",
    ),
    Mutant(
        "another schedule", AIS,
        "baselines/geometric_path.py",
        "torch.linspace(0, 1, n + 1, dtype=torch.float64)",
        "torch.linspace(0, 1, n + 1, dtype=torch.float64).square()",
    ),
    Mutant(
        "weights that count earlier transitions again", AIS,
        "baselines/ais.py",
        "state.log_p - state.log_q0, alpha=beta - before", "state.log_p - state.log_q0, alpha=beta",
    ),
    Mutant(
        "the sign of the kinetic energy", HAIS,
        "baselines/hamiltonian.py",
        "0.5 * torch.addcmul(", "-0.5 * torch.addcmul(",
    ),
    Mutant(
        "whole kicks for half ones", HAIS,
        "baselines/hamiltonian.py", "half, x = 0.5 * e,", "half, x = e,",
    ),
    Mutant(
        "a partial refresh without roots", HAIS_PARTIAL,
        "baselines/hais.py",
        "kept = math.sqrt(1 - self.refresh) * state.velocities",
        "kept = (1 - self.refresh) * state.velocities",
    ),
    Mutant(
        "velocities that a rejection leaves alone", HAIS_PARTIAL,
        "baselines/hais.py", "accept.unsqueeze(-1), v_new, -v)", "accept.unsqueeze(-1), v_new, v)",
    ),
    Mutant(
        "components whose weights never change", PMC,
        "baselines/mpmc.py",
        "        log_alpha.log_softmax(-1),\n", "        old.log_weights,\n",
    ),
    Mutant(
        "larger covariances", PMC,
        "baselines/mpmc.py", "second - mean.unsqueeze(-1) * mean.unsqueeze(-2)", "second + 0.1",
    ),
    Mutant(
        "steps uphill of adaptive importance sampling", ADAPTIVE,
        "baselines/adaptive_is.py",
        "log_pi - eta * g, self.floor)", "log_pi + eta * g, self.floor)",
    ),
    Mutant(
        "a curvature without the damping of a Gaussian flow", MODES,
        "extensions/gaussian_flow.py",
        "wanted = 1 - a + a * curvature", "wanted = 1 + a * curvature",
    ),
    Mutant(
        "the odds of a bridge", MODES,
        "extensions/bridge_sampling.py",
        "odds, room = math.log(visited.shape[-1] / n),", "odds, room = math.log(t / n),",
    ),
    Mutant(
        "climbs with smaller steps", MODES,
        "extensions/mode_search.py", "1.5 * epsilon, epsilon / 3)", "1.4 * epsilon, epsilon / 3)",
    ),
)  # fmt: skip


def copy_library(folder: Path, mutant: Mutant | None = None) -> Path:
    """Copy the library to a new folder, with a mutant's edit, beside the repository's data.

    Raises
    ------
    ValueError
        If the text to be edited is not in the file exactly once.
    """
    shutil.copytree(
        ROOT / "steinis_lib", folder / "steinis_lib", ignore=shutil.ignore_patterns("__pycache__")
    )
    (folder / "data").symlink_to(ROOT / "data")
    if mutant is not None:
        path = folder / "steinis_lib" / mutant.file
        text = path.read_text()
        if (times := text.count(mutant.old)) != 1:
            raise ValueError(
                f"{mutant.name}: {mutant.file} has the text {mutant.old!r} {times} times; it must "
                "be there once: choose another text"
            )
        path.write_text(text.replace(mutant.old, mutant.new))
    return folder


def processes(method: str) -> ProcessPoolExecutor:
    """Return an executor that has a new process, without the library, for each task.

    Parameters
    ----------
    method
        "forkserver" is fast; "spawn" gives processes the environment variables of the moment.
    """
    context = get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(list(PRELOADED))
    return ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1)


def problems(folder, jobs, change=None):
    """Compute chunks again with the library in a folder; return what is wrong with each.

    Parameters
    ----------
    folder
        What `copy_library` returned.
    jobs
        The chunks.
    change
        Called with the stored groups of a chunk, by label, and the chunk; it may edit them.
    """
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    return [_problems_of(job, change) for job in jobs]


def capability():
    """Return the instruction set that PyTorch uses in this process."""
    return torch.backends.cpu.get_cpu_capability()


def _problems_of(job, change):
    import steinis_lib
    from steinis_lib.companion import obtain, registry, verification

    found = Path(steinis_lib.__file__).resolve()
    if not found.is_relative_to(Path.cwd()):
        raise RuntimeError(f"the library came from {found}, and not from the copy {Path.cwd()}")
    experiment = registry.EXPERIMENTS[job.experiment]
    parameters = experiment.parameters.of_profile("paper")
    (cell,) = (c for c in experiment.cells(parameters) if c.label == job.label)
    chunk = experiment.chunks(parameters, cell)[job.number]
    path = obtain.stored_path(job.experiment, parameters)
    stored = {
        label: xr.load_dataset(path, group=label, engine="netcdf4")
        for label in (cell.label, *cell.pilots)
    }  # the whole result takes seconds to read
    if change is not None:
        change(stored, chunk)
    tree = xr.DataTree.from_dict(stored)
    request = verification.Request(experiment, parameters, tree, [(cell, chunk)])
    (check,) = verification.recompute([request])[experiment.name]
    return check.problems


def change_a_number(stored, chunk):
    """Change one number of the chunk by a ten-thousandth of itself."""
    values = stored[chunk.label]["log_z"].values
    values[chunk.trials[1]] *= 1 + 1e-4


def swap_two_trials(stored, chunk):
    """Give two of the chunk's trials the numbers of each other."""
    first, second = chunk.trials[:2]
    for variable in stored[chunk.label].data_vars.values():
        variable.values[[first, second]] = variable.values[[second, first]]
