"""Plan of a round: personas, candidates, failures to write about, audit items."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from convergence_core.config import Configuration
from convergence_core.config.optimization import SaoConfig
from convergence_core.judges.trust import LEAST_ITEMS
from convergence_core.records import Candidate
from convergence_core.sao.executed_items import EXECUTED, AuditItem, GroundedAnswer, audit_items
from convergence_core.sao.history import RoundHistory
from convergence_core.sao.personas import Grammar, Persona
from convergence_core.sao.preferences import JudgedPair, PairKind
from convergence_core.sao.state import SaoState
from convergence_core.search.sampler import SearchState

PROMPT_TEMPERATURE: Final = 0.9
N_BEST: Final = 3
"""Number of compared candidates, including the incumbent; more if a prompt has more answers."""
N_FAILURES: Final = 3
"""Number of the worst test cases shown to the writer."""
MOST_VARIANTS: Final = 8
"""Maximum distilled variants of one parameter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSource:
    """Material of a run's rounds, besides their history."""

    settings: SaoConfig
    seed: int
    """Start of the walk of personas."""
    grammar: Grammar
    is_chat: bool
    """Whether answers have a temperature, so that one candidate's two answers differ."""
    prompt_of: Mapping[str, str] = field(default_factory=dict)
    """Search case → its prompt."""
    held_out: tuple[str, ...] = ()
    """Texts of the held-out cases, which must not leak."""
    mutable: tuple[str, ...] = ()
    """Text parameters with ``mutate``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """Requests of a round."""

    source: RoundSource
    state: SaoState
    """State before the round."""
    history: RoundHistory
    """History of earlier rounds."""
    personas: tuple[Persona, ...]
    kinds: tuple[PairKind, ...]
    """Kind of the pairs for each persona."""
    incumbent: Candidate
    rivals: tuple[Candidate, ...]
    """Candidates compared with each other; the incumbent is the first."""
    failures: tuple[str, ...]
    """Prompts of the test cases with the lowest rewards."""
    audit: tuple[AuditItem, ...]
    mutable: Mapping[str, str]
    """Text parameter with ``mutate`` → its text in the incumbent."""

    @property
    def round_number(self) -> int:
        """Number of the round, from 0."""
        return self.state.n_rounds

    @property
    def prompt_temperature(self) -> float | None:
        """Temperature for prompts; ``None`` to leave it out."""
        return None if self.source.settings.temperature is None else PROMPT_TEMPERATURE


def plan_round(
    source: RoundSource,
    state: SaoState,
    history: RoundHistory,
    *,
    search: SearchState,
    incumbent: Candidate,
    answers: Sequence[GroundedAnswer],
) -> RoundPlan:
    """Return the plan of the next round, a function of the evidence and earlier rounds.

    Args:
        source: Settings, personas, cases.
        state: State after the earlier rounds.
        history: Their prompts and judgements.
        search: Evidence so far.
        incumbent: Candidate that gives both answers of a pair, and is the first rival.
        answers: Answers of committed generations, with the results of executed metrics.
    """
    settings = source.settings
    personas = _personas(source, state, history.pairs)
    rivals = rivals_of(search, incumbent, max(N_BEST, settings.response_pairs))
    compares = len(rivals) >= settings.response_pairs
    items = audit_items(answers, settings.audit_items, used=history.audited)
    return RoundPlan(
        source=source,
        state=state,
        history=history,
        personas=tuple(personas),
        kinds=tuple(
            "incumbent" if not compares or (source.is_chat and k % 2 == 0) else "candidates"
            for k in range(len(personas))
        ),
        incumbent=incumbent,
        rivals=tuple(rivals),
        failures=tuple(_failures(source, search)),
        audit=tuple(items),
        mutable=_mutable(source, state, incumbent),
    )


def _personas(source: RoundSource, state: SaoState, pairs: Sequence[JudgedPair]) -> list[Persona]:
    """Return the next unused personas of the walk."""
    grammar, settings = source.grammar, source.settings
    # Another seed moves the walk, which may then repeat personas of earlier runs.
    used = {*state.asked, *(pair.comparison.persona for pair in pairs)}
    walk = grammar.walk(source.seed, state.walk_from, settings.n_personas)
    free = [int(index) for index in walk if int(index) not in used]
    n = min(settings.n_samples, max(0, settings.n_personas - len(state.asked)))
    return [grammar.persona(index) for index in free[:n]]


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
        if name in incumbent.params and len(state.variants.get(name, ())) < MOST_VARIANTS
    }


def rivals_of(search: SearchState, incumbent: Candidate, n: int) -> list[Candidate]:
    """Return the incumbent and the best other candidates with a reward, at most ``n``."""
    means = {
        m.candidate.candidate_id: sum(m.rewards.values()) / m.n for m in search.archive if m.n
    }
    rivals = {incumbent.candidate_id: incumbent}
    for name in sorted(means, key=lambda name: (-means[name], name)):
        if len(rivals) < n:
            rivals.setdefault(name, search.archive.members[name].candidate)
    return [*rivals.values()]


def outlook(configuration: Configuration, n_cases: int) -> str | None:
    """Return the prospects of a run's rounds and their audits; ``None`` if rounds are off.

    Args:
        configuration: Configuration of the run.
        n_cases: Number of search cases.
    """
    if not configuration.society.prefers:
        return None
    sao, n = configuration.society.sao, configuration.optimization.evolution.generations
    n_rounds = min(sao.iterative_rounds, (n - 1) // sao.every)
    if not n_rounds:
        return (
            f"no round: the run has {n} generations, and the first round follows {sao.every} "
            "(`society.sao.every`)"
        )
    rounds = f"up to {n_rounds} rounds, the first after {sao.every} generations if the run lasts"
    if not any(metric.type in EXECUTED for metric in configuration.evaluation.metrics.values()):
        audit = "no metric is executed, so the judge cannot be audited and its pairs train nothing"
    elif n_rounds * sao.audit_items < LEAST_ITEMS:
        audit = (
            f"the judge cannot pass: its audits have at most {n_rounds * sao.audit_items} of the "
            f"{LEAST_ITEMS} different items it needs (`society.sao.audit_items`)"
        )
    else:
        audit = (
            f"the judge's audit needs {LEAST_ITEMS} different pairs of a right and a wrong answer "
            f"to {n_cases} search cases"
        )
    return f"{rounds}; {audit}"
