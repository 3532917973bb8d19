"""Plan of a round: personas, candidates, failures to write about, items that the judge is tried on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from convergence_core.config.optimization import SaoConfig
from convergence_core.judges.trust.audit import Trust
from convergence_core.records import Candidate
from convergence_core.sao.diversity import choose, hardness_of
from convergence_core.sao.executed_items import AuditItem, GroundedAnswer, audit_items
from convergence_core.sao.history import RoundHistory
from convergence_core.sao.personas import Grammar, Persona
from convergence_core.sao.preferences import JudgedPair, PairKind
from convergence_core.sao.state import SaoState
from convergence_core.search.sampler import SearchState

N_BEST: Final = 3
"""Candidates that are compared, the incumbent among them; more where a prompt has more answers."""
N_FAILURES: Final = 3
"""Test cases that went worst, shown to the writer."""
N_FROZEN: Final = 10
"""Frozen pairs that are judged again in a round, at most."""
MOST_VARIANTS: Final = 8
"""Variants that are distilled for one parameter, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """What a round asks."""

    round_number: int
    personas: tuple[Persona, ...]
    kinds: tuple[PairKind, ...]
    """One per persona."""
    incumbent: Candidate
    rivals: tuple[Candidate, ...]
    """Candidates that are compared with each other; the incumbent is the first."""
    n_answers: int
    prompt_temperature: float | None
    failures: tuple[str, ...] = ()
    anchors: tuple[str, ...] = ()
    """Real prompts that are shown to some writers."""
    anchor_share: float = 0.0
    audit: tuple[AuditItem, ...] = ()
    frozen: tuple[JudgedPair, ...] = ()
    """Frozen pairs that are judged again."""
    judged_before: tuple[JudgedPair, ...] = ()
    mutable: Mapping[str, str] = field(default_factory=dict)
    """Text parameter with ``mutate`` → its text in the incumbent."""
    audited_before: frozenset[str] = frozenset()
    """Ids of items that the judge was tried on in earlier rounds."""
    trust: Trust = field(default_factory=Trust)
    """In the judge, before the round."""
    seed: int = 0
    """Of the bootstrap in the judge's audit."""
    is_probation: bool = False
    """Whether prompts alone are written, since an alarm lasts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSource:
    """What rounds of a run are made of, besides their own history."""

    settings: SaoConfig
    seed: int
    """Where the walk of personas begins."""
    grammar: Grammar
    is_chat: bool
    """Whether answers have a temperature, so that one candidate's two differ."""
    prompt_of: Mapping[str, str] = field(default_factory=dict)
    """Search case → its prompt."""
    held_out: tuple[str, ...] = ()
    """Texts of the held-out cases, which must not leak."""
    held_out_prompts: tuple[str, ...] = ()
    mutable: tuple[str, ...] = ()
    """Text parameters with ``mutate``."""


def plan_round(
    source: RoundSource,
    state: SaoState,
    history: RoundHistory,
    *,
    search: SearchState,
    incumbent: Candidate,
    answers: Sequence[GroundedAnswer],
) -> RoundPlan:
    """Return the plan of the next round: a function of the evidence and the rounds before.

    Args:
        source: settings, personas, cases.
        state: after the rounds before.
        history: what was written and judged in them.
        search: the evidence so far.
        incumbent: who answers both times, and is compared first.
        answers: of committed generations, with what executed metrics say of them.
    """
    settings, alarms, pairs = source.settings, state.alarms, history.pairs
    personas = _personas(source, state, pairs)
    rivals = rivals_of(search, incumbent, max(N_BEST, settings.response_pairs))
    compares = len(rivals) >= settings.response_pairs
    kinds: list[PairKind] = [
        "incumbent" if not compares or (source.is_chat and k % 2 == 0) else "candidates"
        for k in range(len(personas))
    ]
    usual = settings.prompt_temperature
    frozen = [pair for pair in pairs if pair.split == "audit" and pair.is_kept]
    return RoundPlan(
        round_number=state.rounds.n_done,
        personas=tuple(personas),
        kinds=tuple(kinds),
        incumbent=incumbent,
        rivals=tuple(rivals),
        n_answers=settings.response_pairs,
        prompt_temperature=None if usual is None else alarms.temperature(usual),
        failures=tuple(_failures(source, search)),
        anchors=tuple(source.prompt_of.values()),
        anchor_share=alarms.anchor_share,
        audit=tuple(
            audit_items(answers, settings.audit_items, used=history.audited)
            if alarms.gives_rows
            else ()
        ),
        audited_before=frozenset(history.audited),
        frozen=tuple(frozen[:N_FROZEN]),
        judged_before=pairs,
        mutable=_mutable(source, state, incumbent),
        trust=state.trust,
        seed=source.seed,
        is_probation=not alarms.gives_rows,
    )


def _personas(source: RoundSource, state: SaoState, pairs: Sequence[JudgedPair]) -> list[Persona]:
    grammar, settings = source.grammar, source.settings
    begin = source.seed + int(state.alarms.moved * len(grammar))
    pool = grammar.walk(begin, state.walk_from, settings.n_personas)
    # An alarm or another seed moves the walk, which may then meet personas of earlier runs.
    asked = {*state.asked, *(pair.comparison.persona for pair in pairs)}
    free = pool[~np.isin(pool, [index for index in asked if index is not None])]
    judged = [
        (pair.comparison.persona, pair.judgement.q)
        for pair in pairs
        # What a judge said that is not believed decides nothing.
        if state.is_believed and pair.may_teach and pair.comparison.persona is not None
    ]
    return choose(
        grammar,
        free,
        hardness_of(grammar, free, judged),
        n=min(settings.n_samples, max(0, settings.n_personas - len(state.asked))),
        factor=settings.diversity_factor,
        chosen=state.asked,
    )


def _failures(source: RoundSource, search: SearchState) -> list[str]:
    """Return the prompts of the search cases with the lowest mean reward."""
    rewards: dict[str, list[float]] = {}
    for member in search.archive:
        for (case_id, _), reward in member.rewards.items():
            rewards.setdefault(case_id, []).append(reward)
    worst = sorted(rewards, key=lambda c: (sum(rewards[c]) / len(rewards[c]), c))
    return [source.prompt_of[c] for c in worst if c in source.prompt_of][:N_FAILURES]


def _mutable(source: RoundSource, state: SaoState, incumbent: Candidate) -> dict[str, str]:
    return {
        name: str(incumbent.params[name])
        for name in source.mutable
        if name in incumbent.params
        and len(state.variants.get(name, ())) < MOST_VARIANTS
        and not state.is_silenced
    }


def grounded_means(search: SearchState) -> dict[str, float]:
    """Return candidate → mean of its rewards."""
    return {m.candidate.candidate_id: sum(m.rewards.values()) / m.n for m in search.archive if m.n}


def rivals_of(search: SearchState, incumbent: Candidate, n: int) -> list[Candidate]:
    """Return the incumbent and the best others that have a reward, ``n`` at most."""
    means = grounded_means(search)
    found = {incumbent.candidate_id: incumbent}
    for name in sorted(means, key=lambda name: (-means[name], name)):
        if len(found) < n:
            found.setdefault(name, search.archive.members[name].candidate)
    return [*found.values()]
