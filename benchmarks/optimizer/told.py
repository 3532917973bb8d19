"""What a search would reach on prompts that was told each model's true mean and spread.

No opponent knows them: with them the prior of every candidate is right but for its shape, so the
regret that is left is the luck of the answers and what the rule for asking makes of it. Two rules:
draws throughout, and draws first, then ever fewer finalists, who share a batch equally.

    p_i ~ N(mean, spread^2) of its model,    hits ~ Binomial(n_i, p_i)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.optimizer.regret import Scale
from benchmarks.optimizer.tasks import PromptTask

LEAST_VARIANCE = 0.03
"""Of one answer: nothing asked a few times is certain."""
LEAST_SPREAD = 0.01
N_ROUNDS = 3
"""Of the posterior, whose noise is that of its own mean."""
CHUNK = 5
"""Answers of one place."""
MOST_CHUNKS = 4
"""That a known candidate may win in one batch."""
FIRST_FINALISTS, LAST_FINALISTS = 20, 4


@dataclass(slots=True)
class Search:
    """All candidates of a task and what they answered."""

    truth: np.ndarray
    """Accuracy, (n,)."""
    prior_mean: np.ndarray
    """Mean of its model, (n,)."""
    prior_sd: np.ndarray
    """Spread within its model, (n,)."""
    n_cases: int
    """Answers that a candidate gives at most."""
    count: np.ndarray
    hits: np.ndarray

    @classmethod
    def of(cls, task: PromptTask) -> "Search":
        """Return the search before any answer."""
        truth = task.accuracy
        n_templates = len(truth)
        return cls(
            truth=truth.ravel(),
            prior_mean=np.tile(truth.mean(axis=0), n_templates),
            prior_sd=np.maximum(np.tile(truth.std(axis=0), n_templates), LEAST_SPREAD),
            n_cases=task.n_cases,
            count=np.zeros(truth.size),
            hits=np.zeros(truth.size),
        )

    def posterior(self) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations, (n,) each."""
        precision = 1.0 / self.prior_sd**2
        mean, total = self.prior_mean, precision
        for _ in range(N_ROUNDS):
            noise = np.maximum(mean * (1.0 - mean), LEAST_VARIANCE)
            total = precision + self.count / noise
            mean = (precision * self.prior_mean + self.hits / noise) / total
        return mean, 1.0 / np.sqrt(total)

    def draw(self, n_cells: int, rng: np.random.Generator) -> None:
        """Ask by draws of the posterior: a chunk for whoever is highest, again and again."""
        mean, sd = self.posterior()
        asked, wins = np.zeros(len(mean)), np.zeros(len(mean))
        most = np.where(self.count > 0, MOST_CHUNKS, 1)
        while n_cells > 0:
            drawn = mean + sd * rng.standard_normal(len(mean))
            drawn[(wins >= most) | (self.count + asked >= self.n_cases)] = -np.inf
            best = int(np.argmax(drawn))
            n = min(CHUNK, n_cells, int(self.n_cases - self.count[best] - asked[best]))
            asked[best] += n
            wins[best] += 1
            n_cells -= n
        self._answer(asked, rng)

    def ask_finalists(self, n_cells: int, n: int, rng: np.random.Generator) -> None:
        """Ask the best by posterior mean equally; what they leave goes to more of them."""
        mean, _ = self.posterior()
        order = np.argsort(-np.where(self.count > 0, mean, -np.inf), kind="stable")
        asked = np.zeros(len(mean))
        while n_cells > 0:
            finalists = order[:n]
            room = finalists[self.count[finalists] + asked[finalists] < self.n_cases]
            if not len(room):
                n *= 2
                continue
            share = max(1, n_cells // len(room))
            for i in room:
                k = min(share, n_cells, int(self.n_cases - self.count[i] - asked[i]))
                asked[i] += k
                n_cells -= k
        self._answer(asked, rng)

    def handed_over(self) -> int:
        """Return who is highest by a cautious reading, of those who were asked."""
        mean, sd = self.posterior()
        return int(np.argmax(np.where(self.count > 0, mean - sd, -np.inf)))

    def _answer(self, asked: np.ndarray, rng: np.random.Generator) -> None:
        self.hits += rng.binomial(asked.astype(np.intp), self.truth)
        self.count += asked


def regret(
    task: PromptTask, scale: Scale, *, n_batches: int, n_cells: int, end_share: float, seed: int
) -> float:
    """Return the normalised regret of one search.

    Args:
        task: models x prompts.
        scale: of its regret.
        n_batches: batches of the budget.
        n_cells: answers of a batch.
        end_share: share of the batches, the last, that go to ever fewer finalists.
        seed: of all chance.
    """
    rng = np.random.default_rng(seed)
    search = Search.of(task)
    n_last = int(n_batches * end_share + 0.5)
    for _ in range(n_batches - n_last):
        search.draw(n_cells, rng)
    for i in range(n_last):
        part = i / max(1, n_last - 1)
        n = round(FIRST_FINALISTS * (LAST_FINALISTS / FIRST_FINALISTS) ** part)
        search.ask_finalists(n_cells, n if n_last > 1 else LAST_FINALISTS, rng)
    return scale.regret(float(search.truth[search.handed_over()]))


def table(
    tasks: Sequence[tuple[PromptTask, Scale]], *, budgets: Sequence[int], batch: int, n_seeds: int
) -> str:
    """Return regret x 100 by rule and budget, mean over tasks and seeds with its standard error."""
    lines = [
        f"| {len(tasks)} tasks, {n_seeds} seeds | " + " | ".join(str(b) for b in budgets) + " |",
        "|---|" + "---|" * len(budgets),
    ]
    for title, end_share in (
        ("draws throughout", 0.0),
        ("the last .4 by ever fewer finalists", 0.4),
        ("the last .6 so", 0.6),
    ):
        cells = []
        for budget in budgets:
            found = np.array(
                [
                    np.mean(
                        [
                            100.0
                            * regret(
                                task,
                                scale,
                                n_batches=budget // batch,
                                n_cells=batch * task.cases_per_evaluation,
                                end_share=end_share,
                                seed=seed,
                            )
                            for task, scale in tasks
                        ]
                    )
                    for seed in range(n_seeds)
                ]
            )
            error = found.std(ddof=1) / np.sqrt(n_seeds)
            cells.append(f"{found.mean():.1f} ± {error:.1f}")
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
