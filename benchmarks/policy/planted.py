"""Planted prompt world with a choice of changes: regret of the prompt that is handed over, by evaluations spent.

The world and its writer are those of ``benchmarks.prompts``: ten properties with interactions, order, filler and
length; edits fail half of the time and may do harm. It is played as ``convergence/PromptMutation-v0``: an episode begins
with the best prompt so far and changes it up to five times; the reward of a change is the mean score after it less
the one before, on the same 20 cases. Each answer to a case is one evaluation, and whoever chooses learns while it searches.

What is handed over at any time is the prompt of the highest mean less one standard error of all its answers; its
regret is the true quality of the best prompt less its own. What is seen of a prompt: hashed n-grams of its words, and
which symptoms its answers show. The category of Thompson sampling is the symptom that is shown most.
"""

import csv
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from scipy.special import stdtrit

from benchmarks.optimizer.plotting import COLORS, STYLES
from benchmarks.policy.cartpole import told
from benchmarks.policy.choosers import (
    N_CHANGES,
    CategoryThompson,
    Chooser,
    KnownSequence,
    RandomLegal,
    StateThompson,
)
from benchmarks.prompts.rivals import N_CASES
from benchmarks.prompts.world import (
    NAMES,
    NOISE_SD,
    PROPERTIES,
    START,
    World,
    WorldAnswer,
    best_text,
    cases,
    missing,
    quality,
)
from benchmarks.prompts.writer import symptoms_in, written
from convergence_core.feedback.text_features import hashed_ngrams
from convergence_core.policy import (
    N_PROGRESS,
    PROMPT_ACTIONS,
    PPOConfig,
    PPOState,
    PromptEnvironment,
    PromptEnvironments,
    PromptSituation,
    VectorEnvironment,
    train,
)

WORDS: Final = 128
"""Numbers of the hashed n-grams."""
DIMENSION: Final = WORDS + len(NAMES)
N_EVALUATIONS: Final = 5_000
GRID: Final = (100, 200, 500, 1_000, 2_000, 5_000)
"""Evaluations at which regrets are compared."""
CONFIG: Final = PPOConfig(
    input_dim=DIMENSION + N_PROGRESS, action_dim=len(PROMPT_ACTIONS), buffer_size=128
)
"""The defaults, but updates after 128 changes: 2,048 would be more than a run has."""
LEARNERS: Final = (
    "ours", "MaskablePPO", "LinTS", "Thompson", "fixed sequence, known", "random legal",
)  # fmt: skip


class SpentError(Exception):
    """No evaluation is left."""


class PlantedPrompts:
    """The planted world as the environment asks for it."""

    def __init__(self, seed: int, n_evaluations: int) -> None:
        self.embedding_dim = DIMENSION
        self.excluded: tuple[str, ...] = ()
        self.category = 0
        """Of the prompt now: the symptom that is shown most, the last number where none is."""
        self.curve: list[tuple[int, float]] = []
        """Evaluations spent, regret then."""
        self._world, self._limit = World(seed), n_evaluations
        self._cases = cases(N_CASES)
        self._sums: dict[str, tuple[float, int]] = {}
        self._surely: dict[str, float] = {START: 0.0}
        self._shown = ""

    @property
    def handed(self) -> str:
        """The prompt that would be handed over now."""
        return max(self._surely, key=lambda text: self._surely[text])

    def start(self, rng: np.random.Generator) -> PromptSituation:  # noqa: ARG002 - nothing is drawn
        """Ask the best prompt so far once more."""
        return self._measured(
            PromptSituation(prompt=self.handed, embedding=np.zeros(DIMENSION), score=0.0)
        )

    def changed(
        self, situation: PromptSituation, action: str, rng: np.random.Generator
    ) -> PromptSituation:
        """Have the writer change the prompt; the same text again is not asked again."""
        text = written(action, [situation.prompt], self._shown, rng)
        after = replace(situation, prompt=text, history=(*situation.history, action))
        return after if text == situation.prompt else self._measured(after)

    def _measured(self, situation: PromptSituation) -> PromptSituation:
        text = situation.prompt
        if self._world.n_calls + N_CASES > self._limit:
            raise SpentError
        answers = [self._world.ask(text, case) for case in self._cases]
        scores = [answer.score for answer in answers]
        total, n = self._sums.get(text, (0.0, 0))
        total, n = self._sums[text] = total + sum(scores), n + N_CASES
        self._surely[text] = total / n - NOISE_SD / n**0.5
        self.curve.append((self._world.n_calls, quality(best_text()) - quality(self.handed)))
        self._shown = _shown(answers)
        shares = [
            sum(name in symptoms_in(answer.reason) for answer in answers) / N_CASES
            for name in NAMES
        ]
        self.category = int(np.argmax(shares)) if max(shares) > 0 else len(NAMES)
        seen = np.concatenate([hashed_ngrams(text, WORDS), shares])
        return replace(situation, embedding=seen, score=float(np.mean(scores)))


def _shown(answers: Sequence[WorldAnswer]) -> str:
    """Return the symptoms of answers, those of the worst first."""
    return "; ".join(a.reason for a in sorted(answers, key=lambda a: a.score) if a.reason)


def search(learner: str, seed: int, n_evaluations: int = N_EVALUATIONS) -> list[tuple[int, float]]:
    """Return evaluations and regrets of one search.

    Raises:
        ValueError: there is no such learner.
    """
    world = PlantedPrompts(seed, n_evaluations)
    copies = PromptEnvironments([PromptEnvironment(world)])
    rng = np.random.default_rng([6, seed])
    with suppress(SpentError):
        if learner == "ours":
            state = PPOState.begin(CONFIG, rng)
            for _ in train(state, copies, CONFIG, n_updates=n_evaluations, rng=rng):
                pass
        elif learner == "MaskablePPO":
            from benchmarks.policy import stable_baselines  # noqa: PLC0415 - needs its library

            stable_baselines.maskable(copies, CONFIG, seed, n_copies=1).learn(n_evaluations)
        else:
            _play(chooser_of(learner), world, copies, rng)
    return world.curve


def chooser_of(learner: str) -> Chooser:
    """Return a chooser that has learned nothing.

    Raises:
        ValueError: there is no such learner.
    """
    made: dict[str, Callable[[], Chooser]] = {
        "LinTS": lambda: StateThompson(CONFIG.input_dim),
        "Thompson": lambda: CategoryThompson(len(NAMES) + 1),
        "fixed sequence, known": lambda: KnownSequence(best_sequence()),
        "random legal": RandomLegal,
    }
    if learner not in made:
        raise ValueError(f"`learner` must be one of {', '.join(LEARNERS)}, but got {learner!r}")
    return made[learner]()


def _play(
    chooser: Chooser, world: PlantedPrompts, copies: VectorEnvironment, rng: np.random.Generator
) -> None:
    offer = copies.reset(rng)
    while True:
        category = np.array([world.category])
        actions = chooser.choose(offer, category, rng)
        step = copies.step(actions)
        chooser.learn(offer, category, actions, step.rewards)
        offer = step.offer


@cache
def best_sequence(n_searches: int = 40, n_prompts: int = 50) -> tuple[int, ...]:
    """Return the sequence of changes with which searches without noise end best.

    It is built change by change, each the best one after those before; the best of its beginnings counts. A search
    has ``n_prompts`` measured prompts, the beginnings of episodes among them.
    """
    built: list[tuple[float, tuple[int, ...]]] = []
    sequence: tuple[int, ...] = ()
    for _ in range(5):
        longer = [(*sequence, a) for a in range(N_CHANGES) if a not in sequence]
        tried = [(_searched(one, n_searches, n_prompts), one) for one in longer]
        built.append(max(tried))
        sequence = built[-1][1]
    return max(built)[1]


def _searched(sequence: Sequence[int], n_searches: int, n_prompts: int) -> float:
    """Return the mean true quality that searches with one sequence end at."""
    ends = []
    for seed in range(n_searches):
        rng, best, left = np.random.default_rng([7, seed]), START, n_prompts
        while left > 0:
            text, left = best, left - 1
            for a in sequence[:left]:
                lacking = [m for kind in NAMES if (m := missing(text, kind)) is not None]
                shown = [PROPERTIES[one].symptom for one in rng.permutation(lacking)]
                text, left = written(PROMPT_ACTIONS[a], [text], "; ".join(shown), rng), left - 1
                best = max(best, text, key=quality)
        ends.append(quality(best))
    return float(np.mean(ends))


def at(curve: Sequence[tuple[int, float]], n: int) -> float:
    """Return the regret after n evaluations at most; before the first measurement that of the start."""
    known = [regret for spent, regret in curve if spent <= n]
    return known[-1] if known else quality(best_text()) - quality(START)


def run(
    seeds: range, learners: Sequence[str], path: Path, n_evaluations: int = N_EVALUATIONS
) -> None:
    """Run searches and append their regrets on the grid to a CSV file."""
    is_new = not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    grid = [n for n in GRID if n <= n_evaluations]
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        if is_new:
            writer.writerow(["learner", "seed", "n_evaluations", "regret"])
        for seed in seeds:
            for learner in learners:
                began = time.process_time()
                curve = search(learner, seed, n_evaluations)
                writer.writerows((learner, seed, n, at(curve, n)) for n in grid)
                file.flush()
                print(f"{learner}, {seed}: {at(curve, grid[-1]):.3f}, "
                      f"{time.process_time() - began:.1f} CPU s", flush=True)  # fmt: skip


def read(path: Path, gepa: Path | None = None) -> dict[str, dict[int, dict[int, float]]]:
    """Return learner → evaluations → seed → regret.

    Args:
        path: written by ``run``.
        gepa: written by ``python -m benchmarks.prompts run --opts gepa``, with one or more numbers of calls.
    """
    found: dict[str, dict[int, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found[row["learner"]][int(row["n_evaluations"])][int(row["seed"])] = float(
                row["regret"]
            )
    if gepa is not None:
        with gepa.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                regret = quality(best_text()) - float(row["quality"])
                found["GEPA"][int(row["n_calls"])][int(row["seed"])] = regret
    return found


def table(found: Mapping[str, Mapping[int, Mapping[int, float]]], n: int = 1_000) -> str:
    """Return regrets with standard errors, and by how much less the paired regret of ours is.

    Args:
        found: of ``read``.
        n: evaluations at which learners are sorted and compared.
    """
    grid = sorted({budget for by_budget in found.values() for budget in by_budget})
    lines = [f"| | {' | '.join(f'{one:,}' for one in grid)} | less with ours at {n:,} |"]
    lines.append("|---" * (len(grid) + 2) + "|")
    compared = {name: by_budget[n] for name, by_budget in found.items() if n in by_budget}
    for name in sorted(compared, key=lambda name: float(np.mean([*compared[name].values()]))):
        by_budget = found[name]
        cells = [told([*by_budget[one].values()]) if one in by_budget else "" for one in grid]
        ours = compared["ours"]
        paired = [r - ours[seed] for seed, r in compared[name].items() if seed in ours]
        lines.append(
            f"| {name} | {' | '.join(cells)} | {'' if name == 'ours' else told(paired)} |"
        )
    return "\n".join(lines)


def draw(found: Mapping[str, Mapping[int, Mapping[int, float]]], path: Path) -> None:
    """Draw mean regret against evaluations with 95 % intervals of the mean (Student's t) to a PNG or SVG."""
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    ax = figure.subplots()
    for i, (name, by_budget) in enumerate(found.items()):
        grid = sorted(by_budget)
        values = [np.array([*by_budget[n].values()]) for n in grid]
        mean = np.array([one.mean() for one in values])
        half = np.array([
            stdtrit(one.size - 1, 0.975) * one.std(ddof=1) / one.size**0.5 if one.size > 1 else 0.0
            for one in values
        ])  # fmt: skip
        color, style = COLORS[i % len(COLORS)], STYLES[i % len(STYLES)]
        ax.plot(grid, mean, color=color, linestyle=style, label=name, marker="o", markersize=3)
        ax.fill_between(grid, mean - half, mean + half, color=color, alpha=0.12)
    ax.set_xscale("log")
    grid = sorted({n for by_budget in found.values() for n in by_budget})
    ax.set_xticks(grid, [f"{n:,}" for n in grid])
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_ylim(bottom=0)
    ax.set_xlabel("evaluations spent")
    ax.set_ylabel("regret of the prompt handed over")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90, metadata={"Software": None} if path.suffix == ".png" else None)
