"""What a round asks: personas, candidates, failures to write about, items to be tried on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from convergence_core.records import Candidate
from convergence_core.sao.diversity import choose, hardness_of
from convergence_core.sao.executed_items import Grounded, audit_items
from convergence_core.sao.filters import FilterSettings
from convergence_core.sao.personas import Grammar, Persona
from convergence_core.sao.pooled import PooledJudgement
from convergence_core.sao.preferences import PairKind
from convergence_core.sao.state import JudgedPair, SaoState
from convergence_core.search.sampler import SearchState
from tasks.rlp.channel_probe import UseLogprobs
from tasks.sao.history import RoundHistory
from tasks.sao.round import RoundPlan

N_BEST: Final = 3
"""Candidates that are compared, the incumbent among them; more where a prompt has more answers."""
N_FAILURES: Final = 3
"""Test cases that went worst, shown to the writer."""
N_FROZEN: Final = 10
"""Frozen pairs that are judged again in a round, at most."""
MOST_VARIANTS: Final = 8
"""Variants that are distilled for one parameter, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaoSettings:
    """See ``society.sao``."""

    every: int
    n_samples: int
    n_personas: int
    prompt_temperature: float | None
    response_pairs: int
    filters: FilterSettings
    diversity_factor: float
    batch_size: int
    n_audit_items: int
    use_logprobs: UseLogprobs
    released_alarms: int
    released_silences: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """What the world holds before a round."""

    seed: int
    grammar: Grammar
    prompt_of: Mapping[str, str]
    """Search case → its prompt."""
    held_out: tuple[str, ...]
    """Texts of the held-out cases, which must not leak."""
    held_out_prompts: tuple[str, ...]
    mutable: tuple[str, ...]
    """Text parameters with ``mutate``."""
    answers: Callable[[], list[Grounded]]
    """Reads the answers of committed generations with what executed metrics say of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """Plans rounds: a function of the evidence and the rounds before."""

    settings: SaoSettings
    data: Data
    is_chat: bool
    """Whether answers have a temperature, so that one candidate's two differ."""

    def plan(
        self,
        state: SaoState,
        history: RoundHistory,
        search: SearchState,
        incumbent: Candidate,
    ) -> RoundPlan:
        """Return the plan of the next round.

        Args:
            state: after the rounds before.
            history: what was written and judged in them.
            search: the evidence so far.
            incumbent: who answers both times, and is compared first.
        """
        settings, alarms, pairs = self.settings, state.alarms, history.pairs
        # What a judge said that nobody vouches for decides nothing.
        believed = pairs if state.is_believed else ()
        personas = self._personas(state, pairs, [pair for pair in believed if pair.teaches])
        rivals = rivals_of(search, incumbent, max(N_BEST, settings.response_pairs))
        compares = len(rivals) >= settings.response_pairs
        kinds: list[PairKind] = [
            "incumbent" if not compares or (self.is_chat and k % 2 == 0) else "candidates"
            for k in range(len(personas))
        ]
        usual = settings.prompt_temperature
        items = (
            audit_items(self.data.answers(), settings.n_audit_items, used=history.audited)
            if alarms.gives_rows
            else []
        )
        return RoundPlan(
            round_number=state.rounds.n_done,
            personas=tuple(personas),
            kinds=tuple(kinds),
            incumbent=incumbent,
            rivals=tuple(rivals),
            n_answers=settings.response_pairs,
            prompt_temperature=None if usual is None else alarms.temperature(usual),
            failures=tuple(self._failures(search)),
            anchors=tuple(self.data.prompt_of.values()),
            anchor_share=alarms.anchor_share,
            audit=tuple(items),
            audited_before=frozenset(history.audited),
            frozen=tuple(
                [p for p in pairs if p.split == "audit" and p.dropped_by is None][:N_FROZEN]
            ),
            judged_before=tuple(
                PooledJudgement(
                    judgement=p.judgement, log_length_ratio=p.comparison.log_length_ratio
                )
                for p in pairs
            ),
            mutable=self._mutable(state, incumbent),
            trust=state.trust,
            seed=self.data.seed,
            is_probation=not alarms.gives_rows,
        )

    def _personas(
        self, state: SaoState, pairs: Sequence[JudgedPair], believed: Sequence[JudgedPair]
    ) -> list[Persona]:
        grammar, settings = self.data.grammar, self.settings
        begin = self.data.seed + int(state.alarms.moved * len(grammar))
        # An alarm or another seed moves the walk, which may then meet personas of earlier runs.
        asked = {*state.asked, *(pair.comparison.persona for pair in pairs)}
        pool = grammar.walk(begin, state.walk_from, settings.n_personas)
        free = pool[~np.isin(pool, [index for index in asked if index is not None])]
        judged = [
            (pair.comparison.persona, pair.judgement.q)
            for pair in believed
            if pair.comparison.persona is not None
        ]
        return choose(
            grammar,
            free,
            hardness_of(grammar, free, judged),
            n=min(settings.n_samples, max(0, settings.n_personas - len(state.asked))),
            factor=settings.diversity_factor,
            chosen=state.asked,
        )

    def _failures(self, search: SearchState) -> list[str]:
        """Return the prompts of the search cases with the lowest mean reward."""
        rewards: dict[str, list[float]] = {}
        for member in search.archive:
            for (case_id, _), reward in member.rewards.items():
                rewards.setdefault(case_id, []).append(reward)
        worst = sorted(rewards, key=lambda c: (sum(rewards[c]) / len(rewards[c]), c))
        known = [self.data.prompt_of[c] for c in worst if c in self.data.prompt_of]
        return known[:N_FAILURES]

    def _mutable(self, state: SaoState, incumbent: Candidate) -> dict[str, str]:
        if state.is_silenced:
            return {}
        return {
            name: str(incumbent.params[name])
            for name in self.data.mutable
            if name in incumbent.params and len(state.variants.get(name, ())) < MOST_VARIANTS
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
