"""Edits: choice of parameter, parent and operator; verdicts on their prompts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from convergence_core.config.prompts import OperatorName, PromptsConfig
from convergence_core.evidence import Archive
from convergence_core.posterior.space_model import LengthPrice
from convergence_core.prompts.demonstrations import drawn
from convergence_core.prompts.evidence import (
    TextEvidence,
    evidence_of,
    gain,
    merge_partners,
    text_posterior,
)
from convergence_core.prompts.failures import Observed, main_category
from convergence_core.prompts.invariants import Invariants, kept_placeholders, placeholders_of
from convergence_core.prompts.operators import WORDING_VERSION, Shown, WriterAnswer, WriterRequest
from convergence_core.prompts.policy import (
    Tried,
    agreed_chances,
    chances_of_best,
    parameter_propensities,
    propensities,
)
from convergence_core.prompts.shots import Shot, joined, split
from convergence_core.prompts.state import (
    KEPT,
    NO_ANSWER,
    UNTAGGED,
    Mutation,
    PromptState,
    text_id_of,
)
from convergence_core.records import Category, canonical_json, fields_of, sha256_hex

N_FAILURES: Final = 4
"""Maximum failed answers, or cases, in a request."""
N_SUCCESSES: Final = 2
"""Maximum correct answers in a request, besides failures."""
N_EARLIER: Final = 6
"""Number of latest edits whose gain a request reports."""
LEAST_WORDS: Final = 4
"""Minimum words of a reducible prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A planned edit with everything that its writer needs."""

    mutation_id: str
    generation: int
    index: int
    """Index among the edits of a generation."""
    parameter: str
    operator: OperatorName
    parents: tuple[str, ...]
    """Prompts, including demonstrations."""
    category: Category
    propensity: float
    shown: tuple[tuple[str, Shown], ...]
    """(case, its content in the request)."""
    request: WriterRequest | None
    """``None`` if nothing is to be written."""
    shots: tuple[Shot, ...]
    """Demonstrations of the new prompt."""
    labels: tuple[str, ...] = ()
    """All expected answers of search cases, if they are few."""
    ready: str | None = None
    """The prompt, if nothing is to be written."""

    @property
    def prompts(self) -> tuple[str, ...]:
        """Instructions of the parents, as the request shows them."""
        return () if self.operator == "induce" else tuple(split(text)[0] for text in self.parents)

    @property
    def cases(self) -> tuple[Shown, ...]:
        """Cases in the request."""
        return tuple(shown for _, shown in self.shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Options for an edit: one parameter, with its evidence."""

    parameter: str
    evidence: Mapping[str, TextEvidence]
    """Evidence by prompt."""
    values: Mapping[str, tuple[float, float]]
    """Prompt → mean and sd of its value."""
    tried: tuple[Tried, ...]
    best: Mapping[str, float] = field(default_factory=dict)
    """Prompt → probability that the best candidate holds it, by the search's posterior; empty if
    unknown.
    """


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Editor:
    """Constants of a run's prompt writing."""

    settings: PromptsConfig
    task: str
    """Purpose of the system."""
    facts: tuple[tuple[str, str], ...] = ()
    """(name, text) of facts for the writer, such as the system's model and scoring."""
    parameters: tuple[str, ...]
    """Text parameters with ``mutate``."""
    cases: Mapping[str, Shown]
    """Search case → its content in a request before it has an answer."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Search case → its whole input as text, for demonstrations."""
    invariants: Invariants
    labels: tuple[str, ...] = ()
    """All expected answers of search cases, if they are few; otherwise empty."""
    expected_is_answer: bool = True
    """Whether the expected value is the answer itself, so that a demonstration may use it."""
    price: LengthPrice | None = None
    """Price of length; ``None`` if length is free."""
    run_id: str = ""

    # -- planning

    def choices(
        self,
        archive: Archive,
        state: PromptState,
        best: Mapping[str, Mapping[str, float]] | None = None,
    ) -> list[Choices]:
        """Return the parameters that have a prompt with evidence.

        Args:
            archive: Evaluated candidates.
            state: State of prompt writing.
            best: Parameter → ``Choices.best``.
        """
        editable = []
        for name in self.parameters:
            evidence = evidence_of(archive, name)
            if not evidence:
                continue
            by_id = {text_id_of(text): text for text in evidence}
            parents = {
                by_id[child]: by_id[parent]
                for child, parent in state.parents_of(name).items()
                if child in by_id and parent in by_id
            }
            price = {text: self.price.of_text(text) if self.price else 0.0 for text in evidence}
            ordered = _parents_first(evidence, parents)
            editable.append(
                Choices(
                    parameter=name,
                    evidence=evidence,
                    values=text_posterior(ordered, parents, price),
                    tried=self._tried(state, name, evidence, by_id, price),
                    best={} if best is None else best.get(name, {}),
                )
            )
        return editable

    @staticmethod
    def _tried(
        state: PromptState,
        parameter: str,
        evidence: Mapping[str, TextEvidence],
        by_id: Mapping[str, str],
        price: Mapping[str, float],
    ) -> tuple[Tried, ...]:
        tried = []
        for mutation in state.mutations:
            if not (mutation.is_kept and mutation.parameter == parameter and mutation.parent_ids):
                continue
            child, parent = by_id.get(mutation.text_id), by_id.get(mutation.parent_ids[0])
            if child is None or parent is None:
                continue
            seen = gain(evidence[child], evidence[parent])
            if seen is not None:
                step = seen[0] - price[child] + price[parent]
                tried.append(
                    Tried(
                        operator=mutation.operator,
                        category=mutation.category,
                        gain=step,
                        variance=seen[1],
                    )
                )
        return tuple(tried)

    def plan(
        self,
        choices: Sequence[Choices],
        state: PromptState,
        generation: int,
        index: int,
        *,
        known: Mapping[str, Sequence[str]],
        rng: np.random.Generator,
    ) -> Edit | None:
        """Return an edit; ``None`` if no operator applies or no prompt has a reward yet.

        Args:
            choices: Result of ``choices``.
            state: State of prompt writing.
            generation: Next generation.
            index: Index among the edits of the generation.
            known: Parameter → its prompts, including those of this generation.
            rng: Random generator.
        """
        if not choices:
            return None
        p_parameter = parameter_propensities([choice.tried for choice in choices], rng)
        at = int(rng.choice(len(choices), p=p_parameter))
        chosen = choices[at]
        best = agreed_chances(chances_of_best(chosen.values, rng), chosen.best)
        names = [*best]
        parent = names[int(rng.choice(len(names), p=[best[name] for name in names]))]
        observed = state.observed.get(text_id_of(parent), ())
        category = main_category(observed)
        partners = merge_partners(chosen.evidence, parent, names)
        offered = self.offered_shots(state)
        operators = self._applicable(parent, partners, offered)
        if not operators:
            return None
        n_edits = state.n_edits_of(chosen.parameter, parent)
        p = propensities(operators, category, chosen.tried, rng, n_edits)
        choice = int(rng.choice(len(operators), p=p))
        return self.edit(
            chosen.parameter,
            operators[choice],
            parents=(parent, *partners[: int(operators[choice] == "merge")]),
            observed=observed,
            generation=generation,
            index=index,
            propensity=float(p_parameter[at] * p[choice]),
            known=known.get(chosen.parameter, ()),
            offered=offered,
            rng=rng,
            facts=_history(chosen, parent),
        )

    def edit(
        self,
        parameter: str,
        operator: OperatorName,
        *,
        parents: tuple[str, ...],
        observed: Sequence[Observed],
        generation: int,
        index: int,
        propensity: float,
        known: Sequence[str],
        offered: Sequence[Shot],
        rng: np.random.Generator,
        facts: Sequence[tuple[str, str]] = (),
    ) -> Edit | None:
        """Return an edit of these parents; ``None`` if no new demonstrations can be drawn."""
        ready, shots = None, split(parents[0])[1]
        shown: tuple[tuple[str, Shown], ...] = ()
        if operator == "examples":
            demonstrations = drawn(
                parents[0], offered, frozenset(known), self.settings.max_shots, rng
            )
            if demonstrations is None:
                return None
            ready, shots = demonstrations
        else:
            failed = [] if operator == "induce" else [o for o in observed if o.category != "none"]
            shown = self._shown(failed, rng)
        request = None
        if ready is None:
            is_new = operator == "induce"
            right = [o for o in observed if o.category == "none" and o.case_id in self.cases]
            request = WriterRequest(
                operator=operator,
                task=self.task,
                facts=(*self.facts, *facts),
                prompts=() if is_new else tuple(split(text)[0] for text in parents),
                placeholders=tuple(kept_placeholders(parents)),
                labels=self.labels,
                failures=tuple(case for _, case in shown),
                successes=tuple(
                    self._answered(success)
                    for success in right[-N_SUCCESSES:]
                    if shown and not is_new
                ),
            )
        key = [self.run_id, generation, index, parameter, operator]
        return Edit(
            mutation_id=sha256_hex(canonical_json(key))[:24],
            generation=generation,
            index=index,
            parameter=parameter,
            operator=operator,
            parents=parents,
            category=main_category(observed),
            propensity=propensity,
            shown=shown,
            request=request,
            labels=self.labels,
            shots=shots,
            ready=ready,
        )

    def _applicable(
        self, parent: str, partners: Sequence[str], offered: Sequence[Shot]
    ) -> list[OperatorName]:
        instruction = split(parent)[0]
        lacks: dict[OperatorName, bool] = {
            "merge": not partners,
            "examples": not offered or not self.settings.max_shots,
            "induce": not self._expecting or bool(placeholders_of(instruction)),
            "context-reduction": len(instruction.split()) < LEAST_WORDS,
        }
        return [name for name in self.settings.operators if not lacks.get(name, False)]

    def _shown(
        self, failed: Sequence[Observed], rng: np.random.Generator
    ) -> tuple[tuple[str, Shown], ...]:
        """Return failures, sampled by lost reward, or else cases with an expected answer."""
        n = N_FAILURES
        failed = [failure for failure in failed if failure.case_id in self.cases]
        if failed:
            lost = np.array([1.0 - failure.reward for failure in failed])
            size = min(n, len(failed))
            rows = rng.choice(len(failed), size=size, replace=False, p=lost / lost.sum())
            return tuple((failed[int(i)].case_id, self._answered(failed[int(i)])) for i in rows)
        names = self._expecting
        rows = rng.permutation(len(names))[: max(n, 4)]
        return tuple((names[int(i)], self.cases[names[int(i)]]) for i in rows)

    @property
    def _expecting(self) -> list[str]:
        """Cases with an expected answer."""
        return sorted(name for name, case in self.cases.items() if case.expected is not None)

    def _answered(self, observed: Observed) -> Shown:
        """Return an answer as a request shows it."""
        case = self.cases[observed.case_id]
        return replace(case, answer=observed.answer, reason=observed.reason)

    def offered_shots(self, state: PromptState) -> list[Shot]:
        """Return the available demonstrations, from search cases only."""
        shots = []
        for name in sorted(self.inputs):
            expected = self.cases[name].expected if self.expected_is_answer else None
            if answer := expected or state.good.get(name):
                shot = Shot(user=self.inputs[name], assistant=answer)
                if shot.is_plain:
                    shots.append(shot)
        return shots

    # -- answers

    def received(
        self,
        edit: Edit,
        answer: WriterAnswer | None,
        *,
        known: Sequence[str],
        writer: str,
        cost_usd: float | None = None,
        reason: str = "",
    ) -> Mutation:
        """Return the result of an edit: a kept prompt, or a reason.

        Args:
            edit: Planned edit.
            answer: Answer of its writer; ``None`` if there is none, or nothing was to be written.
            known: Prompts of the parameter, including those of this generation.
            writer: ``rules``, or the name of the model.
            cost_usd: Cost of the call; ``None`` if unknown.
            reason: Why there is no answer.
        """
        text, verdict = edit.ready, NO_ANSWER
        if answer is not None and answer.text is not None:
            text = joined(answer.text.strip(), edit.shots)
        elif answer is not None:
            verdict = UNTAGGED
        if text is not None:
            verdict = (
                self.invariants.violation(
                    text, parents=edit.parents, known=known, shots=edit.shots
                )
                or KEPT
            )
        # A rejected prompt is not stored, because it may hold forbidden content.
        kept = text if verdict == KEPT and text is not None else ""
        return Mutation(
            **fields_of(edit, "mutation_id", "generation", "parameter", "operator"),
            **fields_of(edit, "category", "propensity"),
            parent_ids=tuple(text_id_of(text) for text in edit.parents),
            failures=tuple(name for name, _ in edit.shown),
            diagnosis=self._safe(answer),
            text_id=text_id_of(text or ""),
            text=kept,
            verdict=verdict,
            writer=writer,
            wording_version=WORDING_VERSION,
            cost_usd=cost_usd,
            reason=reason,
        )

    def _safe(self, answer: WriterAnswer | None) -> str:
        """Return a diagnosis; empty if it leaks a held-out case."""
        if answer is None or self.invariants.held_out.leak_into(answer.diagnosis):
            return ""
        return answer.diagnosis


def sharing_requests(edits: Sequence[Edit]) -> list[Edit]:
    """Return the edits; those with the same parents and operator share one request.

    It requests one prompt per edit and shows all their failures. One call costs less than several
    that differ only in their failures, and its prompts differ because one answer holds them all.
    """
    groups: dict[tuple[str, ...], list[Edit]] = {}
    for edit in edits:
        if edit.request is not None:
            groups.setdefault((edit.parameter, edit.operator, *edit.parents), []).append(edit)
    shared: dict[str, Edit] = {}
    for group in groups.values():
        request = group[0].request
        assert request is not None  # noqa: S101 - the groups hold only edits with a request
        shown = tuple(dict(pair for edit in group for pair in edit.shown).items())
        request = replace(request, failures=tuple(case for _, case in shown), n_prompts=len(group))
        for edit in group:
            shared[edit.mutation_id] = replace(edit, request=request, shown=shown)
    return [shared.get(edit.mutation_id, edit) for edit in edits]


def _history(chosen: Choices, parent: str) -> list[tuple[str, str]]:
    """Return facts for a request: the parent's score, and the gains of earlier edits."""
    seen, facts = chosen.evidence.get(parent), []
    if seen is not None:
        facts.append(("score", f"{seen.mean:.2f} of 1 on {len(seen.by_case)} cases"))
    if chosen.tried:
        latest = chosen.tried[-N_EARLIER:]
        facts.append(
            ("earlier", ", ".join(f"{edit.operator} {edit.gain:+.2f}" for edit in latest))
        )
    return facts


def _parents_first(
    evidence: Mapping[str, TextEvidence], parents: Mapping[str, str]
) -> dict[str, TextEvidence]:
    """Return the evidence with each prompt after its parent."""

    def depth(text: str) -> int:
        n = 0
        while text in parents and n <= len(parents):
            text, n = parents[text], n + 1
        return n

    return {text: evidence[text] for text in sorted(evidence, key=depth)}
