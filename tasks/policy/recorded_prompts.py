"""Simulated prompts, by the texts, failures and effects that runs recorded.

What an edit is worth is drawn from its posterior by operator and failure category (``convergence_core.prompts.policy``,
eq. 1), one table for each of many tasks that fit the record: a policy that earns in all of them relies on nothing
that is not known. Where nothing was recorded yet, tasks are drawn from the priors.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import numpy as np

from convergence_core.config.prompts import OperatorName
from convergence_core.feedback.text_features import hashed_ngrams
from convergence_core.policy import (
    PROMPT_ACTIONS,
    STOP,
    PromptEpisode,
    PromptSituation,
    TakenStep,
)
from convergence_core.prompts.failures import CATEGORIES, Category
from convergence_core.prompts.policy import Tried, operator_posterior
from convergence_core.prompts.state import text_id_of
from convergence_core.prompts.twins import written_by_rules
from tasks.policy.prompt_mutator import PromptMutator
from tasks.store import ParquetStore

_CHANGES: Final = tuple(cast("OperatorName", name) for name in PROMPT_ACTIONS if name != STOP)
N_TASKS: Final = 64
NOISE: Final = 0.05
"""Standard deviation of a measured score: of some ten cases whose rewards differ by .2."""
LEAST_VARIANCE: Final = 1e-4
"""Of a recorded effect: a few cases that agree by chance know no more."""
_SQL: Final = """
    SELECT m.operator, m.category, m.effect, m.effect_se, m.parent_id, p.text AS parent
    FROM mutation_effects m JOIN runs r ON r.run_id = m.run_id
         LEFT JOIN mutations p ON p.run_id = m.run_id AND p.parameter = m.parameter
                               AND p.text_id = m.parent_id AND p.text IS NOT NULL
    WHERE m.verdict = 'kept' AND m.effect IS NOT NULL AND (r.name = $system OR r.name = $rounds)
    ORDER BY m.run_id, m.generation, m.position"""
_TEXTS: Final = """
    SELECT m.parameter, m.text, max(m.effect) AS effect
    FROM mutation_effects m JOIN runs r ON r.run_id = m.run_id
    WHERE m.verdict = 'kept' AND m.effect > 0 AND r.name = $system
    GROUP BY ALL ORDER BY effect DESC, m.text"""
MOST_TEXTS: Final = 16
"""Recorded texts of a parameter that episodes begin with, beside the given ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEdit:
    """An edit of a text in a run, and what it changed."""

    operator: OperatorName
    category: Category
    """What the failures of the text before it were mostly like."""
    effect: float
    """Mean difference of rewards on the cases that both texts were asked."""
    variance: float
    """Of that mean."""
    parent: str
    """The text before it."""

    def step(self, max_steps: int, embedding_dim: int) -> TakenStep:
        """Return the edit as the first step of an episode, by which a baseline learns from it."""
        episode = PromptEpisode(max_steps=max_steps, category=self.category)
        return TakenStep(
            state=episode.observation(hashed_ngrams(self.parent, embedding_dim)),
            legal=episode.legal(),
            action=PROMPT_ACTIONS.index(self.operator),
            reward=self.effect,
        )


def recorded_edits(
    store: ParquetStore, system: str, rounds: str, given: Sequence[str]
) -> list[RecordedEdit]:
    """Return the edits that runs of a system have recorded, of texts that are known.

    Args:
        store: holds the runs.
        system: their name.
        rounds: name of the rounds that compared policies.
        given: texts of the configuration.

    Raises:
        StoreDamagedError: a file cannot be read.
    """
    texts = {text_id_of(text): text for text in given}
    rows: Sequence[dict[str, Any]] = store.rows(_SQL, {"system": system, "rounds": rounds})
    for row in rows:
        row["parent"] = row["parent"] or texts.get(row["parent_id"])
    return [
        RecordedEdit(
            operator=row["operator"],
            category=row["category"],
            effect=row["effect"],
            variance=max(LEAST_VARIANCE, (row["effect_se"] or NOISE) ** 2),
            parent=row["parent"],
        )
        for row in rows
        if row["operator"] in _CHANGES and row["parent"] and hashed_ngrams(row["parent"]).any()
    ]


def recorded_texts(store: ParquetStore, system: str) -> dict[str, list[str]]:
    """Return text parameter → the best texts that runs of a system wrote for it, ``MOST_TEXTS`` at most.

    Args:
        store: holds the runs.
        system: their name.
    """
    texts: dict[str, list[str]] = {}
    rows: Sequence[dict[str, Any]] = store.rows(_TEXTS, {"system": system})
    for row in rows:
        texts_of = texts.setdefault(row["parameter"], [])
        if len(texts_of) < MOST_TEXTS and hashed_ngrams(row["text"]).any():
            texts_of.append(row["text"])
    return texts


class RecordedPrompts:
    """Simulated prompts; see the module's docstring."""

    def __init__(
        self,
        texts: Sequence[str],
        edits: Sequence[RecordedEdit],
        rng: np.random.Generator,
        *,
        embedding_dim: int,
    ) -> None:
        """Draw the tasks.

        Args:
            texts: the given ones; parents of recorded edits are added.
            edits: recorded ones; none: the priors alone.
            rng: draws the tasks.
            embedding_dim: numbers in an embedding.

        Raises:
            ValueError: there is no text.
        """
        if not texts:
            raise ValueError("`texts` must hold one text or more, but it is empty")
        self.embedding_dim = embedding_dim
        self.excluded: tuple[str, ...] = ()
        parents = [edit.parent for edit in edits]
        self._texts = tuple(dict.fromkeys([*texts, *parents]))
        seen = tuple(dict.fromkeys(edit.category for edit in edits if edit.category != "none"))
        self._categories: tuple[Category, ...] = seen or tuple(
            name for name in CATEGORIES if name != "none"
        )
        tried = [
            Tried(
                operator=edit.operator,
                category=edit.category,
                gain=edit.effect,
                variance=edit.variance,
            )
            for edit in edits
        ]
        self.gains = {category: self._drawn(category, tried, rng) for category in self._categories}
        """Failure category → what each edit adds in each task, (N_TASKS, n_edits)."""

    @staticmethod
    def _drawn(category: Category, tried: Sequence[Tried], rng: np.random.Generator) -> Any:
        means, sds = operator_posterior(_CHANGES, category, tried)
        return means + sds * rng.standard_normal((N_TASKS, len(_CHANGES)))

    def start(self, rng: np.random.Generator) -> PromptSituation:
        """See ``PromptWorld``."""
        text = self._texts[int(rng.integers(len(self._texts)))]
        category = self._categories[int(rng.integers(len(self._categories)))]
        worth = float(rng.uniform(0.2, 0.8))
        return PromptSituation(
            prompt=text,
            embedding=hashed_ngrams(text, self.embedding_dim),
            score=_measured(worth, rng),
            worth=worth,
            category=int(rng.integers(N_TASKS)),
            failures=category,
            excluded=tuple(PromptMutator.inapplicable(text, has_failures=True)),
        )

    def changed(
        self, situation: PromptSituation, action: str, rng: np.random.Generator
    ) -> PromptSituation:
        """See ``PromptWorld``; the text is what fixed rules make of it."""
        operator = cast("OperatorName", action)
        gain = self.gains[situation.failures][situation.category, _CHANGES.index(operator)]
        worth = min(1.0, max(0.0, situation.worth + float(gain)))
        text = written_by_rules(operator, (situation.prompt,), (), rng).text or situation.prompt
        return replace(
            situation,
            prompt=text,
            embedding=hashed_ngrams(text, self.embedding_dim),
            worth=worth,
            score=_measured(worth, rng),
            history=(*situation.history, action),
            excluded=tuple(PromptMutator.inapplicable(text, has_failures=True)),
        )


def _measured(worth: float, rng: np.random.Generator) -> float:
    return min(1.0, max(0.0, worth + NOISE * float(rng.standard_normal())))
