"""Thinking within one run: what is thought, predicted, advised and learned in each generation.

The order is the guarantee: thoughts are durable, then what they predict of candidates chosen
without them, then the rest of the generation is chosen, and only then is anything evaluated. A
resumed run draws the same strategies, reads the same answers from the journal and comes to the same
commitment; an outcome older than the commitment counts for nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from convergence_core.posterior import SpaceModel
from convergence_core.posterior.space_model import FittedSpaceModel
from convergence_core.records import Candidate, Cell, Trial
from convergence_core.rlp.bins import tempered
from convergence_core.rlp.commitments import Commitment, Thought
from convergence_core.rlp.exemplars import exemplars, worth_rescoring
from convergence_core.rlp.experts import pooled
from convergence_core.rlp.history import Situation
from convergence_core.rlp.learner import RlpState, RlpUpdate, learn
from convergence_core.rlp.regions import draw_points
from convergence_core.rlp.replay import Replay
from convergence_core.rlp.revealed_outcomes import outcomes_of
from convergence_core.rlp.scale import Scale
from convergence_core.rlp.settings import RlpSettings
from convergence_core.rlp.statistical import easier_cases, predictive
from convergence_core.rlp.strategies import NO_THOUGHT
from convergence_core.search.racing.expert_mixture import MOST_PROPOSALS
from convergence_core.search.sampler import Advice, Expert, SearchState
from convergence_core.space import Space
from tasks.calls.session import EvaluationSession
from tasks.rlp.channel_probe import ChannelProbe
from tasks.rlp.sub_budget import RunAsker, SubBudget
from tasks.rlp.thinker import Drawn, Predicted, Thinker, mean_entropy

N_OWN: Final = 4
"""Points of a thought's regions that it predicts too; they enter the draws and earn nothing."""
N_RESCORED: Final = 2
"""Old thoughts that are predicted with again in each generation, so that they gather outcomes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RlpStep:
    """What a generation taught, before it is committed."""

    commitment: Commitment
    lesson: RlpUpdate
    before: RlpState
    after: RlpState
    replay: Replay
    weights: Mapping[str, float] = field(default_factory=dict)
    """Thought → probability of a place that its strategy had."""


class Thinking:
    """Thoughts of one living run."""

    def __init__(
        self,
        *,
        run_id: str,
        seed: int,
        thinker: Thinker,
        settings: RlpSettings,
        session: EvaluationSession,
        surrogate: SpaceModel,
        state: RlpState,
        replay: Replay,
        purse: SubBudget,
        on_notice: Callable[[str], None] | None = None,
        on_commit: Callable[[Commitment], None] | None = None,
    ) -> None:
        """Prepare to think.

        Args:
            run_id: of the run.
            seed: of the run.
            thinker: who thinks and predicts.
            settings: numbers of the learner.
            session: makes the calls.
            surrogate: the search's own model.
            state: what was learned in earlier generations.
            replay: what they predicted.
            purse: what may be spent.
            on_notice: told once why nobody thinks.
            on_commit: makes a commitment durable, before anything is chosen by it.
        """
        self.state = state
        self.replay = replay
        self.disabled_reason: str | None = None
        """Why nobody thinks in this run; ``None``: thoughts are written."""
        self.ladder: ChannelProbe | None = None
        self._run_id = run_id
        self._seed = seed
        self._thinker = thinker
        self._settings = settings
        self._session = session
        self._surrogate = surrogate
        self._purse = purse
        self._on_notice = on_notice
        self._on_commit = on_commit
        self._is_closed = False
        self._commitment: Commitment | None = None
        self._reserved: tuple[Candidate, ...] = ()
        self._own: dict[str, list[tuple[Candidate, np.ndarray]]] = {}

    @property
    def space(self) -> Space:
        """Where candidates lie."""
        return self._thinker.space

    def widen(self, surrogate: SpaceModel) -> None:
        """Go on with a surrogate of a wider space."""
        self._surrogate = surrogate
        self._thinker = replace(self._thinker, space=surrogate.space)

    def commitment(self, generation: int) -> Commitment | None:
        """Return what was committed for a generation; ``None``: nothing."""
        found = self._commitment
        return found if found is not None and found.generation == generation else None

    # -- think

    def think(self, generation: int, budget_left: float) -> tuple[Thought, ...]:
        """Write the thoughts of a generation; they are durable when this returns.

        The first generation has nothing to think about.

        Args:
            generation: its number.
            budget_left: share of the run that is left, in [0, 1].
        """
        history = self.state.history.as_of(generation)
        if self.disabled_reason is not None or not len(history):
            return ()
        if self.ladder is None:
            self.ladder = self._session.run(
                lambda ask: self._thinker.probe_channels(
                    RunAsker(ask, generation, self._purse, scope="ladder")
                )
            )
            if self.ladder.channel is None:
                self.disabled_reason = f"RLP off: {self.ladder.disabled_reason}"
                self._tell(self.disabled_reason)
                return ()
        s = self._situation(budget_left).features()
        rng = self._rng(generation, "draw")
        actions = self.state.policy.draw(s, self._settings.n_thoughts, rng)
        logs = self.state.policy.log_probabilities(s)
        names = (NO_THOUGHT, *self.state.strategies)
        drawn = [Drawn(i, k, names[k], float(logs[k])) for i, k in enumerate(actions)]
        shown = exemplars(self.replay)
        thoughts: tuple[Thought, ...] = self._session.run(
            lambda ask: self._thinker.think(
                drawn,
                history,
                generation=generation,
                run_id=self._run_id,
                exemplars=shown,
                asker=RunAsker(ask, generation, self._purse),
            )
        )
        self._commitment = Commitment(
            generation=generation,
            state=s,
            thoughts=thoughts,
            scale=Scale.of([reveal.reward for reveal in history.reveals]),
            committed_us=max((t.committed_us or 0 for t in thoughts), default=0) or None,
        )
        return thoughts

    # -- predict

    def predict(
        self,
        generation: int,
        reserved: Sequence[Candidate],
        search: SearchState,
        *,
        case_ids: Sequence[str] | None = None,
    ) -> Commitment | None:
        """Read all predictions of the candidates that were chosen without a thought.

        Args:
            generation: its number.
            reserved: candidates of exogenous cells, in the order they were chosen.
            search: the evidence so far.
            case_ids: as the sampler is asked for them, so that both learn from the same fit.
        """
        found = self.commitment(generation)
        if found is None or self.ladder is None or self.ladder.channel is None:
            return None
        channel = self.ladder.channel
        spoken = [t for t in found.thoughts if t.speaks]
        known = {t.thought_id for t in spoken}
        old = (
            [t for t in worth_rescoring(self.replay, most=N_RESCORED) if t.text] if spoken else []
        )
        candidates = [*reserved][: self._settings.n_predicted]
        told = Predicted(no_thought={}, forecasts={}, own={}, ended_us=None, notes=())
        own = self._own_points(generation, spoken)
        if spoken and candidates:
            told = self._session.run(
                lambda ask: self._thinker.predict(
                    channel,
                    candidates,
                    [*spoken, *old],
                    self.state.history,
                    own=own,
                    generation=generation,
                    scale=found.scale,
                    asker=RunAsker(ask, generation, self._purse),
                )
            )
        fitted = self._fitted(search, case_ids)
        statistical = predictive(fitted, candidates, found.scale)
        durable = [at for at in (found.committed_us, told.ended_us) if at is not None]
        commitment = replace(
            found,
            estimator=channel.estimator,
            forecasts={name: f for name, f in told.forecasts.items() if name in known},
            rescored={name: f for name, f in told.forecasts.items() if name not in known},
            no_thought=told.no_thought,
            statistical={c.candidate_id: p for c, p in zip(candidates, statistical, strict=True)},
            easier=easier_cases(fitted),
            subjects=told.subjects(),
            censored=told.censored,
            committed_us=max(durable, default=None),
            notes=(*found.notes, *told.notes),
        )
        if self._on_commit is not None:
            self._on_commit(commitment)
        self._commitment = commitment
        self._reserved = tuple(candidates)
        self._own = {
            name: [(c, of[c.candidate_id]) for c in own[name] if c.candidate_id in of]
            for name, of in told.own.items()
        }
        return commitment

    def _fitted(self, search: SearchState, case_ids: Sequence[str] | None) -> FittedSpaceModel:
        return self._surrogate.warm(search.memory).fit(search.archive, case_ids=case_ids)

    # -- advise

    def advice(self, generation: int, others: Advice | None = None) -> Advice:
        """Return what the sampler may use: reserved places, and experts where they predicted.

        Args:
            generation: its number.
            others: what other learners advise.
        """
        others, found = others or Advice(), self.commitment(generation)
        if found is None:
            return others
        return replace(others, reserves=True, experts=self._experts(found))

    def weights(self, commitment: Commitment) -> dict[str, float]:
        """Return thought → probability of a place of its strategy; of those heard alone."""
        heard = commitment.heard
        lottery = self.state.weights.lottery([t.action for t in heard])
        return {t.thought_id: lottery[t.action] for t in heard}

    def _experts(self, commitment: Commitment) -> tuple[Expert, ...]:
        heard = commitment.heard
        lottery = self.state.weights.lottery([t.action for t in heard])
        experts = []
        for action in sorted({t.action for t in heard}):
            own = [t for t in heard if t.action == action]
            places, p = self._pooled(commitment, own)
            for candidate, forecast in (x for t in own for x in self._own.get(t.thought_id, ())):
                places.append(candidate)
                p.append(tempered(forecast, self.state.t_cal))
            experts.append(
                Expert(
                    name=own[0].strategy,
                    weight=lottery[action],
                    places=tuple(place.params for place in places),
                    means=tuple(float(commitment.scale.mean_of(one)) for one in p),
                    variances=tuple(float(commitment.scale.variance_of(one)) for one in p),
                    proposals=self._proposals(
                        commitment.generation, own, round(MOST_PROPOSALS * lottery[action])
                    ),
                )
            )
        return tuple(experts)

    def _pooled(
        self, commitment: Commitment, thoughts: Sequence[Thought]
    ) -> tuple[list[Candidate], list[np.ndarray]]:
        """Return candidates that all these thoughts predicted, and their mean predictions."""
        arms = [commitment.forecasts.get(t.thought_id, {}) for t in thoughts]
        arms = [arm for arm in arms if arm]
        if not arms:
            return [], []
        shared = [name for name in commitment.subjects if all(name in arm for arm in arms)]
        known = {c.candidate_id: c for c in self._reserved}
        candidates = [known[name] for name in shared if name in known]
        if not candidates:
            return [], []
        t_cal = self.state.t_cal
        stacks = [
            np.array([tempered(arm[c.candidate_id], t_cal) for c in candidates]) for arm in arms
        ]
        return candidates, list(pooled(stacks))

    def _own_points(
        self, generation: int, thoughts: Sequence[Thought]
    ) -> dict[str, list[Candidate]]:
        """Return thought → a few candidates of its regions."""
        found = {}
        for thought in thoughts:
            points = self._proposals(generation, [thought], N_OWN)
            chosen = {c.candidate_id: c for c in (self.space.candidate(p, "rlp") for p in points)}
            if chosen:
                found[thought.thought_id] = list(chosen.values())
        return found

    def _proposals(self, generation: int, thoughts: Sequence[Thought], n: int) -> tuple[Any, ...]:
        regions = [region for thought in thoughts for region in thought.regions]
        best = self.state.history.best(1)
        if not regions or not best:
            return ()
        rng = self._rng(generation, f"propose/{thoughts[0].strategy}")
        points = draw_points(regions, self.space, best[0].params, n, rng)
        return tuple(points)

    # -- learn

    def learn(
        self,
        generation: int,
        trials: Sequence[Trial],
        exogenous: frozenset[Cell],
        budget_left: float,
    ) -> RlpStep:
        """Return what a generation taught; nothing is kept until it is committed.

        Args:
            generation: its number.
            trials: all of it.
            exogenous: cells whose choice owed nothing to thoughts.
            budget_left: share of the run that is left after it.
        """
        commitment = self.commitment(generation)
        if commitment is None:
            commitment = Commitment(
                generation=generation, state=self._situation(budget_left).features(), thoughts=()
            )
        history = self.state.history.told(trials, generation, commitment.easier)
        state = replace(self.state, history=history)
        outcomes = outcomes_of(commitment, trials, exogenous)
        commitment = replace(
            commitment,
            notes=(*commitment.notes, *(f"{s}: {why}" for s, why in outcomes.void.items())),
        )
        if commitment.statistical:
            entropy = mean_entropy([*commitment.statistical.values()])
            state = replace(state, entropy=entropy)
        situation = replace(self._situation(budget_left), history=history, entropy=state.entropy)
        after, lesson, replay = learn(
            state,
            commitment,
            outcomes,
            next_features=situation.features(),
            rng=self._rng(generation, "update"),
            settings=self._settings,
            replay=self.replay,
        )
        return RlpStep(
            commitment=commitment,
            lesson=lesson,
            before=self.state,
            after=after,
            replay=replay,
            weights=self.weights(commitment),
        )

    def commit(self, taught: RlpStep) -> None:
        """Move on to what the store has made durable."""
        self.state, self.replay = taught.after, taught.replay
        self._commitment = None

    def close(self) -> None:
        """Close the model's connections, in the session's loop; safe to call twice."""
        if not self._is_closed:
            self._is_closed = True
            self._session.run(lambda _: self._thinker.model.llm.aclose())

    # -- helpers

    def _situation(self, budget_left: float) -> Situation:
        return Situation(
            history=self.state.history,
            space=self.space,
            budget_left=budget_left,
            entropy=self.state.entropy,
            last_gain=self.state.last_gain,
        )

    def _rng(self, generation: int, what: str) -> np.random.Generator:
        """Return a stream that is a function of run, generation and purpose alone."""
        words = [int.from_bytes(what.encode()[i : i + 4], "big") for i in range(0, len(what), 4)]
        return np.random.default_rng([self._seed, generation, *words])

    def _tell(self, text: str) -> None:
        if self._on_notice is not None:
            self._on_notice(text)
