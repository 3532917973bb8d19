"""Preferences within one run: when a round is due, what it teaches, and which texts are tried.

A round is played before a generation and committed with it: its rows, the state after it and the
generation's become visible at once. Killed in between, a run plays the round again with the answers of
the journal and comes to the same rows.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from convergence_core.records import Candidate, Params
from convergence_core.sao.filters import HeldOut, Sieve
from convergence_core.sao.prompt_shape import PromptShape
from convergence_core.sao.state import SaoState
from convergence_core.search.sampler import Advice, SearchState
from convergence_core.space import Space
from tasks.calls.session import EvaluationSession
from tasks.rlp.channel_probe import ChannelProbe
from tasks.rlp.model_calls import ThoughtAsker
from tasks.rlp.sub_budget import RunAsker, SubBudget
from tasks.sao.embeddings import Embedder
from tasks.sao.history import RoundHistory
from tasks.sao.pair_judge import probe_judge_channels
from tasks.sao.round import Batched, Played, Player
from tasks.sao.round_plan import Data, Planner, SaoSettings
from tasks.sao.round_result import Round, concluded
from tasks.sao.writer import AnsweringSystem, Writer


class Preferring:
    """Preferences of one living run."""

    def __init__(
        self,
        *,
        run_id: str,
        writer: Writer,
        asked: AnsweringSystem,
        settings: SaoSettings,
        data: Data,
        session: EvaluationSession,
        space: Space,
        state: SaoState,
        history: RoundHistory,
        purse: SubBudget,
        embedder: Embedder | None = None,
        on_notice: Callable[[str], None] | None = None,
    ) -> None:
        """Prepare to play rounds.

        Args:
            run_id: of the run.
            writer: who writes prompts and judges.
            asked: the system that answers.
            settings: numbers of the configuration.
            data: cases, personas, answers.
            session: makes the calls.
            space: where candidates lie.
            state: what was learned in earlier generations, and what earlier runs have left.
            history: what was written and judged in earlier rounds, also in those of earlier runs.
            purse: what may be spent.
            embedder: who tells the directions of prompts; ``None``: nobody does.
            on_notice: told why there are no preferences.
        """
        self.state = state.released(
            alarms=settings.released_alarms, silences=settings.released_silences
        )
        self.disabled_reason: str | None = None
        """Why there are no preferences in this run; ``None``: rounds are played."""
        self.ladder: ChannelProbe | None = None
        self.round: Round | None = None
        """Played and not committed yet."""
        self._run_id = run_id
        self._writer = writer
        self._asked = asked
        self._settings = settings
        self._data = data
        self._session = session
        self.space = space
        """Where candidates lie."""
        self._history = history
        self._purse = purse
        self._embedder = embedder
        self._on_notice = on_notice
        self._is_closed = False

    # -- rounds

    def is_due(self, generation: int) -> bool:
        """Whether a round is to be played before a generation."""
        if generation == 0 or generation % self._settings.every or self.round is not None:
            return False
        return self.may_go_on

    @property
    def may_go_on(self) -> bool:
        """Whether another round may be played at all.

        After an alarm rounds of prompts alone go on, to see when it is over.
        """
        rounds = self.state.rounds
        if self.disabled_reason is not None or self.state.alarms.is_off:
            return False
        if self.state.alarms.is_stopped:
            return rounds.n_done < rounds.limit
        return rounds.stop_reason is None

    def play(
        self, generation: int, search: SearchState, incumbent: Candidate | None
    ) -> Round | None:
        """Play the round before a generation; nothing is kept until that is committed.

        Args:
            generation: its number.
            search: the evidence so far.
            incumbent: the leader; ``None``: nothing has a reward yet.
        """
        if incumbent is None:
            return None
        ladder = self._climb(generation)
        channel = ladder.channel
        if channel is None:
            return None
        incumbent = self._restored() or incumbent
        planner = Planner(
            settings=self._settings,
            data=self._data,
            is_chat=self._asked.warm is not None,
        )
        plan = planner.plan(self.state, self._history, search, incumbent)
        if not plan.personas:
            self._off("SAO off: all personas of this run were asked (`society.sao.n_personas`)")
            return None
        sieve = Sieve(
            self._settings.filters,
            HeldOut(self._data.held_out),
            known_prompts=self._history.prompts,
        )

        async def work(ask: Any) -> Played:
            asker = self._asker(ask, generation, f"sao/{plan.round_number}")
            player = Player(
                self._writer, self._asked, channel, sieve, asker, embedder=self._embedder
            )
            return await player.play(plan)

        self.round = concluded(
            self._run_id,
            generation,
            plan,
            self._session.run(work),
            state=self.state,
            history=self._history,
            search=search,
            data=self._data,
            space=self.space,
            estimator=ladder.estimator,
        )
        return self.round

    def _restored(self) -> Candidate | None:
        """Return the incumbent that exploitation gives back; ``None``: there is none, or it lies elsewhere."""
        text = self.state.exploitation.restored
        if text is None:
            return None
        try:
            return self.space.candidate(json.loads(text), "default")
        except ValueError:
            return None  # the space changed since

    def _climb(self, generation: int) -> ChannelProbe:
        if self.ladder is None:
            self.ladder = self._session.run(
                lambda ask: probe_judge_channels(
                    self._writer.model,
                    self._settings.use_logprobs,
                    self._asker(ask, generation, "sao/ladder"),
                )
            )
            if self.ladder.channel is None:
                self._off(f"SAO off: {self.ladder.disabled_reason}")
        return self.ladder

    def _asker(self, ask: Any, generation: int, scope: str) -> ThoughtAsker:
        asker = RunAsker(ask, generation, self._purse, scope=scope)
        return Batched(asker, self._settings.batch_size)

    def _off(self, why: str) -> None:
        self.disabled_reason = why
        if self._on_notice is not None:
            self._on_notice(why)

    # -- advice

    def widen(self, space: Space) -> None:
        """Go on with a wider space."""
        self.space = space

    @property
    def now(self) -> SaoState:
        """The state that the next generation is planned by: after the round that is not committed."""
        return self.state if self.round is None else self.round.state

    def advice(self, advice: Advice, incumbent: Candidate | None) -> Advice:
        """Return what thoughts advise, with what is to be tried.

        Args:
            advice: of thoughts.
            incumbent: the leader, whose text parameters new variants replace.
        """
        return replace(advice, preferred=distilled(self.now, incumbent))

    @property
    def shape(self) -> PromptShape:
        """Where a prompt stands in a test case."""
        return self._asked.shape

    def take_over(self, state: SaoState, data: Data) -> None:
        """Go on from another run's state.

        Args:
            state: with its texts.
            data: with its answers.
        """
        self.state, self._data = state, data

    def commit(self, state: SaoState) -> None:
        """Move on to what the store has made durable."""
        if self.round is not None:
            self._history = self.round.history
        self.state, self.round = state, None

    def close(self) -> None:
        """Close the models' connections, in the session's loop; safe to call twice."""
        if self._is_closed:
            return
        self._is_closed = True
        self._session.run(lambda _: self._writer.model.llm.aclose())
        warm = self._asked.warm
        if warm is not None:
            self._session.run(lambda _: warm.aclose())


def distilled(state: SaoState, incumbent: Candidate | None) -> tuple[Params, ...]:
    """Return the incumbent with each distilled text in place of its own.

    Texts that a judge has helped to write are given places as long as it is believed; after that they
    are values of their parameter like any other.
    """
    if incumbent is None or not state.is_believed:
        return ()
    return tuple(
        {**incumbent.params, name: text}
        for name, texts in state.variants.items()
        for text in texts
        if name in incumbent.params
    )
