"""Edits: choice of parameter, parent and operator; verdicts on their texts."""

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
"""Failed answers, or cases, that a request shows for each prompt."""
N_SUCCESSES: Final = 2
"""Right answers that a request shows beside failures."""
N_EARLIER: Final = 6
"""Latest edits whose gain a request tells."""
LEAST_WORDS: Final = 4
"""Words from which on a text can be reduced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A planned edit: all that its writer needs."""

    mutation_id: str
    generation: int
    index: int
    """Number within the writing."""
    parameter: str
    operator: OperatorName
    parents: tuple[str, ...]
    """Texts, demonstrations included."""
    category: Category
    propensity: float
    shown: tuple[tuple[str, Shown], ...]
    """(case, what the request shows of it)."""
    request: WriterRequest | None
    """``None``: nothing is to be written."""
    shots: tuple[Shot, ...]
    """Demonstrations of the text to come."""
    labels: tuple[str, ...] = ()
    """All that search cases expect, where that is few."""
    ready: str | None = None
    """The text, where nothing is to be written."""

    @property
    def prompts(self) -> tuple[str, ...]:
        """Instructions of the parents, as the request shows them."""
        return () if self.operator == "induce" else tuple(split(text)[0] for text in self.parents)

    @property
    def cases(self) -> tuple[Shown, ...]:
        """What the request shows."""
        return tuple(shown for _, shown in self.shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What an edit was chosen among: one parameter, with its evidence."""

    parameter: str
    evidence: Mapping[str, TextEvidence]
    """Of its texts."""
    values: Mapping[str, tuple[float, float]]
    """Text → mean and sd of its worth."""
    tried: tuple[Tried, ...]
    best: Mapping[str, float] = field(default_factory=dict)
    """Text → probability that the best candidate holds it, by the posterior of the search; empty:
    unknown."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Editor:
    """What stays the same while a run continues."""

    settings: PromptsConfig
    task: str
    """What the system is for."""
    facts: tuple[tuple[str, str], ...] = ()
    """Name → text, what a writer should know of the system: its model, its scoring."""
    parameters: tuple[str, ...]
    """Text parameters with ``mutate``."""
    cases: Mapping[str, Shown]
    """Search case → what a request shows of it while no answer is known."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Search case → its whole input as text, for demonstrations."""
    invariants: Invariants
    labels: tuple[str, ...] = ()
    """All that search cases expect, where that is few; else none."""
    expected_is_answer: bool = True
    """Whether what a case expects is the answer itself, so that a demonstration may show it."""
    price: LengthPrice | None = None
    """Of texts; ``None`` if their length is free."""
    run_id: str = ""

    # -- planning

    def choices(
        self,
        archive: Archive,
        state: PromptState,
        best: Mapping[str, Mapping[str, float]] | None = None,
    ) -> list[Choices]:
        """Return the parameters that have a text with evidence.

        Args:
            archive: the evidence.
            state: what was written.
            best: parameter → as of ``Choices.best``.
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
        """Return an edit; ``None`` if no operator applies or no text has a reward yet.

        Args:
            choices: as ``choices`` returned them.
            state: what was written and seen.
            generation: before which it is written.
            index: number within the writing.
            known: parameter → its texts, those of this writing included.
            rng: source of chance.
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
        """Return this edit of these parents; ``None`` means no new demonstrations can be drawn."""
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
        """Return failures, drawn by what they lost; cases with an expected answer where none failed."""
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
        """Cases that expect an answer."""
        return sorted(name for name, case in self.cases.items() if case.expected is not None)

    def _answered(self, observed: Observed) -> Shown:
        """Return an answer as a request shows it."""
        case = self.cases[observed.case_id]
        return replace(case, answer=observed.answer, reason=observed.reason)

    def offered_shots(self, state: PromptState) -> list[Shot]:
        """Return the demonstrations that may be drawn: of search cases alone."""
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
        """Return what came of an edit: a kept text, or a reason.

        Args:
            edit: as it was planned.
            answer: of its writer; ``None`` if there is none, or nothing was to be written.
            known: texts that its parameter has, those of this writing included.
            writer: ``rules``, or the model.
            cost_usd: of the call; ``None`` if unknown.
            reason: why there is no answer.
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
        # A refused text is not stored whole: it may hold what must not be stored.
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
        """Return a diagnosis that holds nothing of a held-out case."""
        if answer is None or self.invariants.held_out.leak_into(answer.diagnosis):
            return ""
        return answer.diagnosis


def sharing_requests(edits: Sequence[Edit]) -> list[Edit]:
    """Return the edits; those of the same parents by the same operator share one request.

    It asks for a prompt each and shows the failures of all: one call costs less than several that
    differ in their failures alone, and its prompts differ because they are written side by side.
    """
    groups: dict[tuple[str, ...], list[Edit]] = {}
    for edit in edits:
        if edit.request is not None:
            groups.setdefault((edit.parameter, edit.operator, *edit.parents), []).append(edit)
    shared: dict[str, Edit] = {}
    for group in groups.values():
        request = group[0].request
        assert request is not None  # noqa: S101 - only such are grouped
        shown = tuple(dict(pair for edit in group for pair in edit.shown).items())
        request = replace(request, failures=tuple(case for _, case in shown), n_prompts=len(group))
        for edit in group:
            shared[edit.mutation_id] = replace(edit, request=request, shown=shown)
    return [shared.get(edit.mutation_id, edit) for edit in edits]


def _history(chosen: Choices, parent: str) -> list[tuple[str, str]]:
    """Return what a request tells of a parent's score, and of what earlier edits gained."""
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
    """Return the evidence with each text after the one that it was written from."""

    def depth(text: str) -> int:
        n = 0
        while text in parents and n <= len(parents):
            text, n = parents[text], n + 1
        return n

    return {text: evidence[text] for text in sorted(evidence, key=depth)}
