"""What parts of the surrogate are worth to what it believes: one evidence, read with and without.

The engine searches as it is; then each variant reads what was asked, and is scored by the true
rewards of those asked most, the leaders of a race: by the logarithm of the joint density that it
gives them (Good 1952, a proper score), and by the root mean square error of its means. Draws are of
that joint density, so this is what candidates are chosen by; regret tells the same with far more luck.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats
from scipy.linalg import cho_solve

from benchmarks.optimizer.ablations import ablatable_model
from benchmarks.optimizer.opponents.base import Setup
from benchmarks.optimizer.opponents.ours import OursOnCases, override, parse_overrides, task_point
from benchmarks.optimizer.running import NOISE_SEED, Progress, step
from benchmarks.optimizer.tasks import CaseTask
from convergence_core.posterior.gaussian_process import cholesky_factor
from convergence_core.posterior.space_model import SpaceModel
from convergence_core.posterior.warped_posterior import WarpedPosterior
from convergence_core.search.samplers import ThompsonSampler

N_SCORED = 20
"""Candidates whose rewards are scored: of those asked most, the ones asked first."""


@dataclass(frozen=True, slots=True)
class Score:
    """Of one reading of one search."""

    log_density: float
    """Nats a candidate."""
    error: float
    """Root mean square of posterior mean less true reward."""


def score(posterior: WarpedPosterior, true: np.ndarray) -> Score:
    """Return the score of candidates' posterior by their true rewards, (n,).

    It is normal in warped rewards; the density is that of rewards, by the warp's slope.
    """
    assert posterior.process is not None
    assert posterior.points is not None
    mean, covariance = posterior.process.joint(posterior.points, posterior.rows)
    factor = cholesky_factor(covariance)
    gap = posterior.warp.forward(true) - mean
    log_density = (
        -0.5 * float(gap @ cho_solve((factor, True), gap))
        - float(np.log(np.diag(factor)).sum())
        - 0.5 * len(gap) * np.log(2.0 * np.pi)
        + float(np.log(posterior.warp.slope(true)).sum())
    )
    return Score(log_density / len(gap), float(np.sqrt(np.mean((posterior.mean - true) ** 2))))


def search(task: CaseTask, *, seed: int, budget: int, batch: int) -> OursOnCases:
    """Return the engine after a search, with the noise that ``running.run`` has."""
    opponent = OursOnCases(Setup.of(task, seed=seed, batch=batch, budget=budget), {})
    rng, progress = np.random.default_rng(NOISE_SEED + seed), Progress()
    for n_done in range(0, budget, batch):
        step(opponent, task, min(batch, budget - n_done), rng, progress)
    return opponent


def scores(
    task: CaseTask, parts: Sequence[str], *, seed: int, budget: int, batch: int
) -> list[Score]:
    """Return the whole surrogate's score of one search, then one for each part changed.

    Args:
        task: with cases.
        parts: changes of ``AblatableModel``'s fields, such as ``interaction=False``.
        seed: of the search and its noise.
        budget: evaluations.
        batch: evaluations of a generation.

    Raises:
        ValueError: there is no such field.
    """
    run = search(task, seed=seed, budget=budget, batch=batch).run
    archive = run.state.archive
    asked = sorted(archive, key=lambda member: -member.n)[:N_SCORED]
    candidates = [member.candidate for member in asked]
    parameters = run.setup.space.parameters
    true = np.array([task.true(task_point(parameters, c.params)) for c in candidates])
    assert isinstance(run.sampler, ThompsonSampler)
    whole = run.sampler.surrogate
    readers = [whole, *(changed(ablatable_model(whole), part) for part in parts)]
    return [score(reader.fit(archive).posterior(candidates), true) for reader in readers]


def changed(surrogate: SpaceModel, part: str) -> SpaceModel:
    """Return the surrogate with fields changed, written ``interaction=False+n_readings=1``.

    Raises:
        ValueError: there is no such field.
    """
    for path, value in parse_overrides(part).items():
        surrogate = override(surrogate, path, value)
    return surrogate


def table(
    tasks: Sequence[CaseTask],
    parts: Sequence[str],
    *,
    budgets: Sequence[int],
    batch: int,
    n_seeds: int,
) -> str:
    """Return changes of score and error, means over tasks with 95 % intervals over paired seeds."""
    lines = [
        "| evaluations | changed | log score a candidate, paired | higher on | error x 100, paired |",
        "|---|---|---|---|---|",
    ]
    for budget in budgets:
        found = np.array(
            [
                [
                    [
                        (one.log_density, 100.0 * one.error)
                        for one in scores(task, parts, seed=seed, budget=budget, batch=batch)
                    ]
                    for task in tasks
                ]
                for seed in range(n_seeds)
            ]
        )  # (n_seeds, n_tasks, 1 + n_parts, 2)
        whole, change = found[:, :, 0], found[:, :, 1:] - found[:, :, :1]
        log_density, error = whole.mean(axis=(0, 1))
        lines.append(f"| {budget} | (as it is) | {log_density:.2f} | | {error:.1f} |")
        for k, part in enumerate(parts):
            n_higher = int((change[:, :, k, 0].mean(axis=0) > 0).sum())
            lines.append(
                f"| | {part} | {_paired(change[:, :, k, 0], 3)} | {n_higher} of {len(tasks)} | "
                f"{_paired(change[:, :, k, 1], 2)} |"
            )
    return "\n".join(lines)


def _paired(change: np.ndarray, n_digits: int) -> str:
    """Return mean and 95 % interval over seeds of changes, (n_seeds, n_tasks)."""
    by_seed = change.mean(axis=1)
    half = stats.t.ppf(0.975, len(by_seed) - 1) * by_seed.std(ddof=1) / np.sqrt(len(by_seed))
    mean = by_seed.mean()
    return f"{mean:+.{n_digits}f} [{mean - half:+.{n_digits}f}, {mean + half:+.{n_digits}f}]"
