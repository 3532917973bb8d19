"""Prompt writing as a learner: edits before a generation, prompts in its plan.

Prompts are written before a generation and committed with it. A run killed in between plans the
same edits, reads the same answers from the journal and gets the same prompts.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Final

import numpy as np

from convergence_core.config.prompts import N_REQUESTS
from convergence_core.evidence import Archive
from convergence_core.ports import Row
from convergence_core.prompts.editor import Choices, Edit, Editor, sharing_requests
from convergence_core.prompts.failures import (
    GOOD,
    LONGEST_KEPT,
    Observed,
    category_of,
    metric_reason,
)
from convergence_core.prompts.policy import chances_by_text
from convergence_core.prompts.state import DRAWN, OVER_BUDGET, Mutation, PromptState, text_id_of
from convergence_core.records import Evaluation, Params, Trial, canonical_json, fields_of
from convergence_core.search.learner import LearnerStep
from convergence_core.search.sampler import Advice
from convergence_core.search.study import PlannedGeneration, Study
from convergence_core.search.study_state import StudyState
from convergence_core.space import Choice
from tasks.json_values import as_text
from tasks.prompts.writer import TextWriter, Writing
from tasks.rlp.learner_calls import LearnerCalls
from tasks.secrets.redaction import one_line, shortened

PROMPTS: Final = "prompts"
LONGEST_REASON: Final = 200
"""Maximum characters of the reason of a reward or a failure."""
N_RIVALS: Final = 150
"""Number of candidates, the best by mean, whose prompts can be parents."""
N_DRAWS: Final = 1000
N_TRIES: Final = 4
"""Attempts of a free writer: edits without a kept prompt are planned again."""


@dataclass(slots=True, eq=False, kw_only=True)
class PromptLearner:
    """See ``convergence_core.search.learner``."""

    name = PROMPTS
    run_id: str
    seed: int
    """Seed of the run."""
    editor: Editor
    writer: TextWriter
    calls: LearnerCalls
    state: PromptState
    """State after the last committed generation."""
    redact: Callable[[str], str]
    """Removes secrets from stored text."""
    pending: tuple[int, tuple[Mutation, ...], PromptState] | None = field(default=None, init=False)
    """Next generation, its new prompts, and the state with them, not yet committed."""
    _learned: PromptState | None = field(default=None, init=False)

    @property
    def variants(self) -> Mapping[str, Sequence[str]]:
        """Text parameter → prompts written for it."""
        return self._current.variants

    @property
    def _current(self) -> PromptState:
        return self.state if self.pending is None else self.pending[2]

    def is_due(self, state: StudyState) -> bool:
        """Whether to write prompts before the next generation."""
        generation = state.next_generation
        every = self.editor.settings.every
        is_turn = generation > 0 and (generation - 1) % every == 0
        return is_turn and self.pending is None and self.calls.disabled_reason is None

    # -- writing

    def think(self, study: Study, state: StudyState, advice: Advice) -> int:  # noqa: ARG002
        """Write prompts before the next generation; return the number kept."""
        if not self.is_due(state):
            return 0
        generation, archive = state.next_generation, state.search.archive
        known = {name: texts_of(study, name) for name in self.editor.parameters}
        choices = self.editor.choices(archive, self.state, self._best(study, state))
        mutations: list[Mutation] = []
        n_wanted, index = self.editor.settings.n_texts, 0
        for _ in range(N_TRIES if self.writer.is_free else N_REQUESTS):
            edits, index = self._planned(choices, generation, index, n_wanted, known)
            received = self._received(edits, generation, known)
            mutations += received
            if self.writer.is_free:
                n_wanted -= sum(mutation.is_kept for mutation in received)
            else:  # a failed or unaffordable edit would fail again
                n_wanted = sum(mutation.is_refused for mutation in received)
            if not n_wanted:
                break
        self.pending = generation, tuple(mutations), self.state.after(mutations)
        return sum(mutation.is_kept for mutation in mutations)

    def _best(self, study: Study, state: StudyState) -> dict[str, dict[str, float]]:
        """Return parameter → text → probability that the best candidate holds it, by the posterior."""
        search = state.search
        fitted = study.surrogate.warm(search.memory).fit(
            search.archive, case_ids=study.case_order, case_weights=study.case_weights
        )
        members = [m.candidate for m in search.archive if m.rewards]
        if fitted.learned is None or not members:
            return {}
        order = np.argsort(-fitted.worth(members).mean, kind="stable")[:N_RIVALS]
        rivals = [members[int(i)] for i in order]
        rng = self._rng(state.next_generation, 0, "parents")
        draws = fitted.worth(rivals).draws(rng, N_DRAWS)
        params = [rival.params for rival in rivals]
        return {name: chances_by_text(draws, params, name) for name in self.editor.parameters}

    def _planned(
        self,
        choices: Sequence[Choices],
        generation: int,
        index: int,
        n: int,
        known: dict[str, list[str]],
    ) -> tuple[list[Edit], int]:
        """Return up to n edits, and the index of the next one."""
        edits = []
        drawn = {name: [*texts] for name, texts in known.items()}
        for number in range(index, index + n):
            edit = self.editor.plan(
                choices,
                self.state,
                generation,
                number,
                known=drawn,
                rng=self._rng(generation, number, "edit"),
            )
            if edit is None:
                continue
            edits.append(edit)
            if edit.ready is not None:
                drawn[edit.parameter].append(edit.ready)
        return (edits if self.writer.is_free else sharing_requests(edits)), index + n

    def _received(
        self, edits: Sequence[Edit], generation: int, known: dict[str, list[str]]
    ) -> list[Mutation]:
        """Write the edits' prompts; add the kept ones to the known prompts."""
        pending = [edit for edit in edits if edit.ready is None]
        written: dict[str, Writing] = {}
        if pending:
            rng = self._rng(generation, pending[0].index, "rules")
            writings = self.calls.run(
                lambda ask_model: self.writer.write(pending, ask_model, rng),
                generation,
                scope=f"prompts/g{generation}",
            )
            written = dict(zip((edit.mutation_id for edit in pending), writings, strict=True))
        received = []
        for edit in edits:
            writing = written.get(edit.mutation_id, Writing(answer=None, cost_usd=0.0))
            known_texts = known[edit.parameter]
            mutation = self.editor.received(
                edit,
                writing.answer,
                known=known_texts,
                writer=DRAWN if edit.ready is not None else self.writer.name,
                cost_usd=writing.cost_usd,
                reason=one_line(writing.reason, LONGEST_REASON, self.redact),
            )
            if writing.is_over_budget:
                mutation = replace(mutation, verdict=OVER_BUDGET)
            if mutation.is_kept and self.redact(mutation.text) != mutation.text:
                mutation = replace(mutation, verdict="secret", text="")
            if mutation.is_kept:
                known_texts.append(mutation.text)
            diagnosis = one_line(mutation.diagnosis, LONGEST_KEPT, self.redact)
            received.append(replace(mutation, diagnosis=diagnosis))
        return received

    # -- a generation

    def advise(self, study: Study, state: StudyState, advice: Advice) -> Advice:
        """Return the advice with the leader's parameters, once for each untried prompt."""
        leader = study.leader(state)
        if leader is None:
            return advice
        written = unasked(self._current, state.search.archive, leader.params)
        return replace(advice, written=written)

    def learn(
        self,
        study: Study,  # noqa: ARG002 - of the protocol
        state: StudyState,
        planned: PlannedGeneration,  # noqa: ARG002
        trials: Sequence[Trial],
    ) -> LearnerStep:
        """Return the state with a generation's answers, and the rows of its prompts."""
        current, pending = self._current, self.pending
        observed: dict[str, list[Observed]] = {}
        good: dict[str, str] = {}
        for trial in sorted(trials, key=lambda entry: entry.candidate.candidate_id):
            ids = [
                text_id_of(str(trial.candidate.params[name]))
                for name in self.editor.parameters
                if name in trial.candidate.params
            ]
            for evaluation in trial.evaluations:
                observation = observed_of(evaluation, self.editor, self.redact)
                if observation is None:
                    continue
                for name in ids:
                    observed.setdefault(name, []).append(observation)
                if observation.reward >= GOOD and 0 < len(observation.answer) < LONGEST_KEPT:
                    good.setdefault(observation.case_id, observation.answer)
        self._learned = current.seen(observed, good)
        rows: list[Row] = []
        if pending is not None and pending[0] == state.next_generation:
            rows = mutation_rows(self.run_id, pending[1])
        return LearnerStep(
            learned=self._learned.to_json(), tables={"mutations": rows} if rows else {}
        )

    def commit(self) -> None:
        """Adopt the state that the store has made durable."""
        if self._learned is not None:
            self.state = self._learned
        self.pending = self._learned = None

    def close(self) -> None:
        """Close the writer's connections; safe to call twice."""
        model = getattr(self.writer, "model", None)
        self.calls.close(None if model is None else model.llm)

    def _rng(self, generation: int, number: int, purpose: str) -> np.random.Generator:
        """Return a stream that depends only on the seed, the place and the purpose."""
        words = [int.from_bytes(purpose.encode(), "big") % 2**32]
        return np.random.default_rng([self.seed, generation, number, *words])


def observed_of(
    evaluation: Evaluation, editor: Editor, redact: Callable[[str], str]
) -> Observed | None:
    """Return the observation of a search case; ``None`` if it is no evidence about the prompt.

    Args:
        evaluation: Evaluation, with its answer if there is one.
        editor: Editor with the search cases and their expected values.
        redact: Removes secrets from stored text.
    """
    name, reward = evaluation.cell.case_id, evaluation.reward
    if evaluation.cell.role != "search" or reward is None or name not in editor.cases:
        return None
    answer = ""
    if evaluation.response_text:
        answer = as_text(json.loads(evaluation.response_text))
        answer = shortened(answer, LONGEST_KEPT, redact)
    reason = metric_reason(evaluation.metrics, evaluation.error)
    return Observed(
        case_id=name,
        reward=reward,
        answer=answer,
        reason=one_line(reason, LONGEST_REASON, redact),
        category=category_of(
            reward, answer, editor.cases[name].expected, failed=evaluation.status != "ok"
        ),
    )


def texts_of(study: Study, name: str) -> list[str]:
    """Return the texts of a parameter."""
    parameter = study.space.parameters.get(name)
    return [str(text) for text in parameter.choices] if isinstance(parameter, Choice) else []


def unasked(state: PromptState, archive: Archive, leader: Params) -> tuple[Params, ...]:
    """Return the leader's parameters with each kept prompt that no candidate has used."""
    tried = {
        (name, value)
        for member in archive
        for name, value in member.candidate.params.items()
        if isinstance(value, str)
    }
    return tuple(
        {**leader, mutation.parameter: mutation.text}
        for mutation in reversed(state.mutations)
        if mutation.is_kept
        and mutation.parameter in leader
        and (mutation.parameter, mutation.text) not in tried
    )


def mutation_rows(run_id: str, mutations: Sequence[Mutation]) -> list[Row]:
    """Return one row per written prompt, kept or rejected.

    Args:
        run_id: Id of the run.
        mutations: Mutations of one generation.
    """
    others = {"parent_ids", "failures", "text", "reason"}
    columns = [each.name for each in fields(Mutation) if each.name not in others]
    return [
        {
            **fields_of(mutation, *columns),
            "run_id": run_id,
            "position": position,
            "parent_ids_json": canonical_json([*mutation.parent_ids]),
            "failures_json": canonical_json([*mutation.failures]),
            "text": mutation.text if mutation.is_kept else None,
            "reason": mutation.reason or None,
        }
        for position, mutation in enumerate(mutations)
    ]
