"""Prompts of a configuration, scored on its target within a run.

An episode draws one of the texts of a parameter with ``mutate`` and some search cases. Every text of the episode is
scored on these same cases, by the configuration's metrics; other parameters keep their defaults. The configuration's
writer writes; the rules of written prompts hold. Calls pass the run's limits, ledger and journal, so that a run that
was killed and continues pays nothing twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

import numpy as np

from convergence_core.config.prompts import OperatorName
from convergence_core.errors import ConfigurationError, PromptScoreMissingError
from convergence_core.feedback.text_features import hashed_ngrams
from convergence_core.policy import PromptSituation
from convergence_core.prompts.editor import Edit
from convergence_core.prompts.failures import Observed, main_category
from convergence_core.prompts.state import Mutation, text_id_of
from convergence_core.records import Assignment, Candidate, Cell, Trial, canonical_json, sha256_hex
from convergence_core.search.study import limit_reached
from convergence_core.space import Choice
from convergence_core.space.builder import widened
from tasks.inputs.environment import Environment
from tasks.policy.prompt_mutator import PromptMutator
from tasks.prompts.factory import make_editor, make_text_writer, mutable_parameters
from tasks.prompts.learner import mutation_rows, observed_of
from tasks.prompts.writer import ModelWriter, RulesWriter, TextWriter, Writing
from tasks.rlp.learner_calls import LearnerCalls, SubBudget
from tasks.run.publication import generation_tables
from tasks.run.run import Run
from tasks.secrets.redaction import one_line

LONGEST_REASON: Final = 200
_COMMITTED: Final = (
    "SELECT coalesce(max(generation), -1) + 1 AS next FROM generations WHERE run_id = $run"
)
_CANDIDATES: Final = "SELECT DISTINCT candidate_id FROM candidates WHERE run_id = $run"


class TargetPrompts:
    """See the module's docstring. For one thread."""

    def __init__(
        self,
        run: Run,
        *,
        n_cases: int,
        embedding_dim: int,
        texts: Mapping[str, Sequence[str]] | None = None,
        mock_url: str | None = None,
    ) -> None:
        """Score on the target of an open run.

        Args:
            run: its calls, limits, ledger and journal; it stays the caller's.
            n_cases: search cases of an episode, fewer where there are fewer.
            embedding_dim: numbers in an embedding.
            texts: parameter → further texts to begin with.
            mock_url: server that answers in place of chat models.

        Raises:
            ConfigurationError: no text parameter has ``mutate``, or there is no search case.
        """
        configuration = run.configuration
        self.embedding_dim = embedding_dim
        self.excluded: tuple[str, ...] = ()
        self._run = run
        world = Environment.of(configuration, mock_url=mock_url)
        self._redact = world.redactor(configuration)
        self._editor = make_editor(run.loaded, self._redact, run_id=run.run_id)
        self._writer: TextWriter = make_text_writer(configuration, world) or RulesWriter()
        self._calls = LearnerCalls("prompt writing", run.session, SubBudget(limit_usd=None))
        self._cases = [case.case_id for case in run.loaded.search_cases]
        self._weights = {case.case_id: case.weight for case in run.loaded.search_cases}
        self._n_cases = min(n_cases, len(self._cases))
        self.texts = {
            name: tuple(dict.fromkeys([*_given(run, name), *(texts or {}).get(name, ())]))
            for name in mutable_parameters(configuration)
        }
        """Text parameter → texts to begin with."""
        if not any(self.texts.values()) or not self._cases:
            rule = "must have a text with `mutate: true`, and a test case that is not held out"
            raise ConfigurationError.of("search_space.parameters", rule, "Add `mutate: true`.")
        self._seen: dict[tuple[str, str], Observed] = {}
        self._written: dict[tuple[str, str, tuple[str, ...]], Mutation] = {}
        self._episode: tuple[str, tuple[str, ...]] = ("", ())
        self._trials: list[Trial] = []
        self._mutations: list[Mutation] = []
        self._published = {
            row["candidate_id"] for row in run.store.rows(_CANDIDATES, {"run": run.run_id})
        }
        rows: Sequence[dict[str, Any]] = run.store.rows(_COMMITTED, {"run": run.run_id})
        self.generation = int(rows[0]["next"])
        """Under which calls and rows are kept; one for the episodes of one number."""
        self.verdicts: list[str] = []
        """What became of the text of each action of the episode."""

    @property
    def writer(self) -> str:
        """The model's name, or ``rules``."""
        return self._writer.name

    @property
    def parameter(self) -> str:
        """Text parameter of the episode."""
        return self._episode[0]

    @property
    def n_cases(self) -> int:
        """Cases that a text is scored on."""
        return self._n_cases

    def start(self, rng: np.random.Generator) -> PromptSituation:
        """See ``PromptWorld``; equal generators draw the same text and cases.

        Raises:
            PromptScoreMissingError: a case has no reward.
        """
        names = [name for name, texts in self.texts.items() if texts]
        name = names[int(rng.integers(len(names)))]
        text = self.texts[name][int(rng.integers(len(self.texts[name])))]
        at = np.sort(rng.choice(len(self._cases), size=self._n_cases, replace=False))
        self._episode = name, tuple(self._cases[int(i)] for i in at)
        self.verdicts = []
        return self._situation(text, ())

    def changed(
        self,
        situation: PromptSituation,
        action: str,
        rng: np.random.Generator,  # noqa: ARG002 - texts are drawn by their place alone
    ) -> PromptSituation:
        """See ``PromptWorld``; a text that is refused leaves the prompt as it is.

        Raises:
            PromptScoreMissingError: a case has no reward.
        """
        mutation = self._mutated(situation.prompt, cast("OperatorName", action))
        self.verdicts.append(mutation.verdict)
        text = mutation.text if mutation.is_kept else situation.prompt
        return self._situation(text, (*situation.history, action))

    def publish(self) -> None:
        """Publish what was evaluated and written since the last time, as one generation; begin the next one.

        Nothing happens where nothing was evaluated.

        Raises:
            StoreWriteError: nothing of it is visible then.
        """
        run, evaluations = self._run, [e for trial in self._trials for e in trial.evaluations]
        if not evaluations:
            return
        candidates = {trial.candidate.candidate_id: trial.candidate for trial in self._trials}
        new = [candidate for name, candidate in candidates.items() if name not in self._published]
        tables = generation_tables(
            run,
            self.generation,
            [{"mutations": mutation_rows(run.run_id, self._mutations)}],
            candidates=new,
            evaluations=evaluations,
            partial=any(evaluation.status == "skipped" for evaluation in evaluations),
        )
        run.store.publish(run.run_id, self.generation, tables)
        self._published |= {*candidates}
        self._trials, self._mutations = [], []
        self.generation += 1

    def close(self) -> None:
        """Close the writer's connections; safe to call twice."""
        self._calls.close(
            self._writer.model.llm if isinstance(self._writer, ModelWriter) else None
        )

    # -- one text

    def _situation(self, text: str, history: tuple[str, ...]) -> PromptSituation:
        observed = self._answers(text)
        weights = [self._weights[observation.case_id] for observation in observed]
        category = main_category(observed)
        return PromptSituation(
            prompt=text,
            embedding=hashed_ngrams(text, self.embedding_dim),
            score=float(
                np.average([observation.reward for observation in observed], weights=weights)
            ),
            history=history,
            failures=category,
            excluded=tuple(PromptMutator.inapplicable(text, has_failures=category != "none")),
        )

    def _answers(self, text: str) -> list[Observed]:
        """Return the answers to the episode's cases; each text is asked each case once."""
        name, cases = self._episode
        missing = [case for case in cases if (text, case) not in self._seen]
        if missing:
            candidate = self._candidate(name, text)
            cells = tuple(
                Cell(candidate_id=candidate.candidate_id, case_id=case) for case in missing
            )
            label = f"{name} {text_id_of(text)}"
            trial = self._run.evaluate(
                Assignment(candidate=candidate, cells=cells, label=label), self.generation
            )
            self._trials.append(trial)
            for evaluation in trial.evaluations:
                observation = observed_of(evaluation, self._editor, self._redact)
                if observation is not None:
                    self._seen[text, observation.case_id] = observation
            lost = [e for e in trial.evaluations if e.reward is None]
            if lost:
                reason = limit_reached([trial]) or lost[0].error or lost[0].status
                raise PromptScoreMissingError(
                    f"a prompt must be scored on all {len(cases)} cases of its episode, but {len(lost)} have no "
                    f"reward: {one_line(reason, LONGEST_REASON, self._redact)}"
                )
        return [self._seen[text, case] for case in cases]

    def _candidate(self, name: str, text: str) -> Candidate:
        space = widened(self._run.loaded.space, {name: [text]})
        defaults = self._run.loaded.space.baseline() or {}
        rest = {key: value for key, value in defaults.items() if key != name}
        point = space.complete({**rest, name: text}, np.random.default_rng(self._run.record.seed))
        return space.candidate(point, origin="mutation")

    def _mutated(self, text: str, action: OperatorName) -> Mutation:
        """Return what an action makes of a text: the same for all policies that do it in an episode."""
        key = text, action, self._episode[1]
        if key not in self._written:
            number = len(self._written)
            # Of its place alone: a round that continues after a kill asks for the same texts.
            seed = int(sha256_hex(canonical_json([text, action, *key[2]]))[:12], 16)
            rng = np.random.default_rng([self._run.record.seed, seed])
            edit = self._editor.edit(
                self.parameter,
                action,
                parents=(text,),
                observed=self._answers(text),
                generation=self.generation,
                index=seed,
                propensity=1.0,
                known=(text,),
                offered=(),
                rng=rng,
            )
            assert edit is not None  # noqa: S101 - only demonstrations may be lacking
            (writing,) = self._calls.run(
                lambda asker: self._writer.write([edit], asker, rng),
                self.generation,
                scope=f"policy/{number}",
            )
            self._written[key] = self._received(edit, writing, text)
            self._mutations.append(self._written[key])
        return self._written[key]

    def _received(self, edit: Edit, writing: Writing, text: str) -> Mutation:
        mutation = self._editor.received(
            edit,
            writing.answer,
            known=(text,),
            writer=self._writer.name,
            cost_usd=writing.cost_usd,
            reason=one_line(writing.reason, LONGEST_REASON, self._redact),
        )
        if mutation.is_kept and self._redact(mutation.text) != mutation.text:
            mutation = replace(mutation, verdict="secret", text="")
        if mutation.is_kept and not hashed_ngrams(mutation.text, self.embedding_dim).any():
            mutation = replace(mutation, verdict="no_word", text="")
        diagnosis = one_line(mutation.diagnosis, LONGEST_REASON, self._redact)
        return replace(mutation, diagnosis=diagnosis)


def _given(run: Run, name: str) -> list[str]:
    parameter = run.loaded.space.parameters[name]
    texts = [str(text) for text in parameter.choices] if isinstance(parameter, Choice) else []
    return [text for text in texts if hashed_ngrams(text).any()]
