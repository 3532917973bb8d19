"""Coverage of the recommendation's 90 % interval, on new random tasks for each seed.

    python -m benchmarks.optimizer.coverage --seeds 24 --budgets 30 100 200

Tasks of one kind share a distribution but no values, so misses are independent. Kinds with cases come
from ``simulated``. Kinds without cases add noise to the mean of such a task (``mixed``) or to waves over
three numbers (``smooth``). The truth is the winner's mean over all cases, or over infinitely many
evaluations.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from benchmarks.machine import options
from benchmarks.optimizer.opponents.base import Claim, Setup
from benchmarks.optimizer.opponents.ours import Run, make_ours, parse_overrides
from benchmarks.optimizer.regret import calibrate
from benchmarks.optimizer.running import NOISE_SEED, Progress, step
from benchmarks.optimizer.spaces import Point, Space, real
from benchmarks.optimizer.tasks.base import Task
from benchmarks.optimizer.tasks.simulated import KINDS, SimulatedTask
from benchmarks.tables import header, plus_minus, row

Noise = Callable[[float, np.random.Generator], float]
"""Maps a true value and a generator to one observation."""
N_WAVES = 40
"""Number of random Fourier features of the smooth function's squared-exponential kernel."""
N_NUMBERS = 3
LENGTH = 0.35
"""Length scale of that kernel, in units of the range."""


def normal(sd: float) -> Noise:
    """Return normal noise."""
    return lambda true, rng: true + sd * float(rng.standard_normal())


def binomial(n: int) -> Noise:
    """Return the share of n items that pass."""
    return lambda true, rng: float(rng.binomial(n, min(1.0, max(0.0, true)))) / n


def student(scale: float) -> Noise:
    """Return Student's t noise with three degrees of freedom."""
    return lambda true, rng: true + scale * float(rng.standard_t(3))


class SmoothTask(Task):
    """Waves over three numbers, with values of about 0 to 1."""

    suite = "smooth"

    def __init__(self, noise: Noise, seed: int) -> None:
        super().__init__("smooth", Space([real(f"x{i}", 0.0, 1.0) for i in range(N_NUMBERS)]))
        rng = np.random.default_rng(seed)
        self.noise = noise
        self._frequency = rng.standard_normal((N_WAVES, N_NUMBERS)) / LENGTH
        self._phase = rng.uniform(0.0, 2.0 * np.pi, N_WAVES)

    def true(self, point: Point) -> float:
        """Return the expected value."""
        x = np.array([float(point[p.name]) for p in self.space.parameters])
        waves = np.cos(self._frequency @ x + self._phase)
        return 0.5 + 0.15 * float(np.sqrt(2.0 / N_WAVES) * waves.sum())

    def evaluate(self, point: Point, rng: np.random.Generator) -> float:
        """Return the value with noise."""
        return self.noise(self.true(point), rng)


class MixedTask(Task):
    """The mean over all cases of a simulated system, with noise."""

    suite = "mixed"

    def __init__(self, noise: Noise, seed: int) -> None:
        self._system = SimulatedTask("mixed", replace(KINDS["graded-drawn"], seed=seed))
        self.noise = noise
        super().__init__("mixed", self._system.space)

    def true(self, point: Point) -> float:
        """Return the expected value."""
        return self._system.true(point)

    def evaluate(self, point: Point, rng: np.random.Generator) -> float:
        """Return the value with noise."""
        return self.noise(self.true(point), rng)


def _system(kind: str, seed: int) -> Task:
    return SimulatedTask(kind, replace(KINDS[kind], seed=seed))


TASKS: Mapping[str, Callable[[int], Task]] = {
    **{kind: partial(_system, kind) for kind in KINDS},
    **{
        f"{name}-{noise}": partial(task, of_noise)
        for name, task in (("smooth", SmoothTask), ("mixed", MixedTask))
        for noise, of_noise in (
            ("none", normal(0.0)),
            ("normal.03", normal(0.03)),
            ("normal.1", normal(0.1)),
            ("items50", binomial(50)),
            ("student.03", student(0.03)),
        )
    },
}
"""Kind → maker of its task by seed."""


def search(kind: str, seed: int, budget: int, batch: int, settings: str) -> tuple[Run, Task]:
    """Return a finished product search and its task."""
    task = TASKS[kind](1000 + seed)
    setup = Setup.of(task, seed=seed, batch=batch, budget=budget)
    opponent = make_ours(setup, settings)
    rng, progress = np.random.default_rng(NOISE_SEED + seed), Progress()
    for n_done in range(0, budget, batch):
        step(opponent, task, min(batch, budget - n_done), rng, progress)
    return opponent.run, task


def claims(
    kind: str, seeds: Sequence[int], budget: int, batch: int, settings: str
) -> Iterator[tuple[Claim, float]]:
    """Yield the claim about each seed's winner, and its true value."""
    for seed in seeds:
        run, task = search(kind, seed, budget, batch, settings)
        claim = run.recommend()
        yield claim, task.true(claim.point)


def main() -> None:
    """Print a table. ``--settings`` uses the syntax after ``ours:``."""
    args = options(
        __doc__, kinds=tuple(TASKS), seeds=24, budgets=(30, 100, 200), batch=10, settings=""
    )
    parse_overrides(args.settings)
    print(header("kind", *(f"{b}: covered, bias x 100, width" for b in args.budgets)))
    for kind in args.kinds:
        cells = []
        for budget in args.budgets:
            seen = claims(kind, range(args.seeds), budget, args.batch, args.settings)
            rows = [(claim.mean, claim.low, claim.high, true) for claim, true in seen]
            result = calibrate(rows)  # type: ignore[arg-type]  # the product claims all four
            width = float(np.mean([high - low for _, low, high, _ in rows]))  # type: ignore[operator]
            cells.append(
                f"{result.coverage:.2f}, {100 * result.bias:+.1f}{plus_minus(100 * result.error, '.1f')}, {width:.3f}"
            )
        print(row(kind, *cells), flush=True)


if __name__ == "__main__":
    main()
