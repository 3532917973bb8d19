"""Nights of a search with and without the critic's game: what its hard cases find, and what they cost.

Each night the real sampler searches, and the promotion gate holds its best against the incumbent on held-out
questions. With games a round comes first: a look, a coin of the meta-critic, plays; what broke the incumbent
and a reviewer approves is a test case of that night and all later ones. All calls but the gate's come out of
one budget, so a night with plays searches less. Nights of one seed differ in nothing but critic and reviewer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final, Literal

import numpy as np

from benchmarks.games.planted_sums import (
    TASK,
    Critic,
    Incumbent,
    PlantedCritic,
    SameProcess,
    Sums,
    kinds_of,
)
from convergence_core.config.evaluation import TestCasesConfig
from convergence_core.games.critic_game import CriticGame
from convergence_core.games.game import PlayKey, Transcript
from convergence_core.games.meta_critic import p_keep_of, toss
from convergence_core.games.play import play
from convergence_core.games.round_records import (
    CoinRecord,
    HeldOutLook,
    PastRound,
    rounds_with_change,
)
from convergence_core.gate import PairedGate
from convergence_core.ports import Player
from convergence_core.records import Candidate, Case, Evaluation, Params, Trial
from convergence_core.search.recommend import recommend
from convergence_core.search.sampler import Advice, AskRequest, Plan
from convergence_core.search.samplers import make_sampler, make_surrogate
from tasks.games.players import SandboxPlayer
from tasks.inputs.cases import GAMES_TAG, limited_weights

N_CALLS: Final = 1_200
"""Of a night: search and round."""
SHARE: Final = 0.1
"""Of a night's calls that a round may take, its look included: the default of `max_share_usd`."""
N_PLAYS: Final = 12
N_GIVEN: Final = 12
N_HELD_OUT: Final = 100
N_GENERATIONS: Final = 5
N_CANDIDATES: Final = 10
NEVER: Final = 10_000


@dataclass(frozen=True, kw_only=True)
class Reviewer:
    """Who approves hard cases, and how much they may be."""

    approves: Literal["everything", "what is asked"] = "everything"
    """``what is asked``: inputs of a kind that no real question has are rejected."""
    most_cases: int = NEVER
    """Hard cases in a search, the newest ones."""
    most_weight: float = TestCasesConfig().games_share
    """Share of the mean reward that all hard cases have together at most."""

    def is_approved(self, world: Sums, question: str) -> bool:
        """Whether a hard case becomes a test case."""
        return self.approves == "everything" or world.never_asked not in kinds_of(question)

    def weights(self, texts: Mapping[str, str]) -> dict[str, float]:
        """Return the weights of given cases, which are the first ones, and of hard ones."""
        cases = [Case(case_id=name, input=text) for name, text in texts.items()]
        given, hard = cases[:N_GIVEN], [replace(one, tags=(GAMES_TAG,)) for one in cases[N_GIVEN:]]
        found = (*given, *limited_weights(hard, given, self.most_weight))
        return {one.case_id: one.weight for one in found}


@dataclass
class Nights:
    """What the nights of one seed did."""

    regrets: list[float] = field(default_factory=list)
    """Of each cell that the search asked, in true mean reward."""
    incumbents: list[Params] = field(default_factory=list)
    """Before the first night, and after each."""
    hard: dict[str, None] = field(default_factory=dict)
    """Questions that broke an incumbent and were approved."""
    found: bool = False
    """Whether one shows the planted weakness, and broke an incumbent that has it."""
    rounds: list[PastRound] = field(default_factory=list)
    n_calls: int = 0
    """Of all rounds."""


def run_nights(seed: int, critic: Critic | None, n_nights: int, *, share: float, executes: bool = False,
               reviewer: Reviewer | None = None) -> Nights:  # fmt: skip
    """Run the nights of one seed, after a first search without games.

    Args:
        seed: of everything.
        critic: who plays; ``None``: there are no games.
        n_nights: of them.
        share: of real questions that show the weakness.
        executes: whether programs run in the limited process, as they do in earnest.
        reviewer: ``None``: approves everything.
    """
    world, done, review = Sums(seed, share), Nights(), reviewer or Reviewer()
    sandbox: Player = SandboxPlayer() if executes else SameProcess()
    given = world.questions(N_GIVEN, 0)
    held_out = world.questions(N_HELD_OUT, 1, share=share)
    done.incumbents.append(first_incumbent(seed).params)
    for night in range(1, n_nights + 1):
        incumbent = done.incumbents[-1]
        before = look(world, incumbent, held_out)
        n_calls = (
            0
            if critic is None
            else play_round(world, done, critic, sandbox, before, reviewer=review)
        )
        done.n_calls += n_calls
        cases = [*given, *[*done.hard][-review.most_cases :]]
        best = search(
            world,
            cases,
            night,
            N_CALLS - n_calls,
            kept=[incumbent],
            regrets=done.regrets,
            reviewer=review,
        )
        after = look(world, best.params, held_out)
        gaps = [after.rewards[text] - value for text, value in before.rewards.items()]
        adopts = PairedGate().judge(gaps).decision == "promote"
        done.incumbents.append(best.params if adopts else incumbent)
    return done


@cache
def first_incumbent(seed: int) -> Candidate:
    """Return the best of a search without games; the share of real questions plays no part in it."""
    world = Sums(seed, 0.0)
    return search(
        world, world.questions(N_GIVEN, 0), 0, N_CALLS, kept=[], regrets=[], reviewer=Reviewer()
    )


def play_round(world: Sums, done: Nights, critic: Critic, sandbox: Player, seen: HeldOutLook,
               *, reviewer: Reviewer) -> int:  # fmt: skip
    """Toss the meta-critic's coin and play; return how many calls the round took, its look included."""
    number, incumbent = len(done.rounds), done.incumbents[-1]
    stays = bool(done.rounds) and done.rounds[-1].look.candidate_id == seen.candidate_id
    n_calls = 0 if stays else seen.n_cases
    measured = rounds_with_change(done.rounds, seen)
    p_keep = p_keep_of(measured, [CriticGame.id])
    rng = np.random.default_rng([world.seed, 5, number])
    coin = toss(p_keep, len(measured), rng)[CriticGame.id]
    players: dict[str, Player] = {
        "critic": PlantedCritic(world, critic), "incumbent": Incumbent(world, incumbent), "sandbox": sandbox,
    }  # fmt: skip
    n_plays = 0
    while coin.is_included and n_plays < N_PLAYS and n_calls + 2 <= SHARE * N_CALLS:
        key = PlayKey(run_seed=world.seed, round_number=number, index=n_plays)
        one = play(CriticGame((TASK,)), players, key)
        n_calls += sum(turn.ask.role != "sandbox" for turn in one.turns)
        question = question_of(one)
        is_new = question not in seen.rewards  # no held-out question is learned from
        if one.scores.by_role["critic"] and is_new and reviewer.is_approved(world, question):
            done.hard[question] = None
            is_weak = world.weakness in kinds_of(question)
            done.found |= is_weak and world.weakness in world.weaknesses(incumbent)
        n_plays += 1
    record = CoinRecord(
        game=CriticGame.id, version=CriticGame.version, feeds=CriticGame.feeds, grounded=True,
        p_keep=p_keep[CriticGame.id], coin=coin, n_plays=n_plays,
    )  # fmt: skip
    done.rounds.append(
        PastRound(run_id=f"r{number}", round_number=number, coins=(record,), look=seen)
    )
    return n_calls


def question_of(transcript: Transcript) -> str:
    """Return what the incumbent was asked; empty: it was not."""
    asked = (turn.ask.text for turn in transcript.turns if turn.ask.role == "incumbent")
    return next(asked, "")


def look(world: Sums, params: Params, held_out: Sequence[str]) -> HeldOutLook:
    """Return the rewards of settings on held-out questions."""
    rewards = {text: world.reward(params, text) for text in held_out}
    name = world.space.candidate(params).candidate_id
    return HeldOutLook(candidate_id=name, rewards=rewards, n_cases=len(rewards), is_new=True)


def search(world: Sums, cases: Sequence[str], night: int, n_calls: int, *, kept: Sequence[Params],
           regrets: list[float], reviewer: Reviewer) -> Candidate:  # fmt: skip
    """Search until the calls are spent, evenly over the generations; return the recommended candidate."""
    texts = {f"c{i:03}": text for i, text in enumerate(cases)}
    weights = reviewer.weights(texts)
    surrogate = make_surrogate(world.space)
    sampler = make_sampler(
        world.configuration, world.space, case_weights=weights, surrogate=surrogate
    )
    state, rng = sampler.start(), np.random.default_rng([world.seed, 3, night])
    order = np.random.default_rng([world.seed, 4]).permutation([*texts]).tolist()
    best, left = world.optimum, n_calls
    for generation in range(N_GENERATIONS):
        request = AskRequest(
            generation=generation, n_generations=N_GENERATIONS, n_candidates=N_CANDIDATES,
            n_cells=-(-left // (N_GENERATIONS - generation)), case_ids=tuple(order),
            advice=Advice(winners=tuple(kept) if not generation else ()),
        )  # fmt: skip
        plan = sampler.ask(state, rng, request)
        left -= plan.n_cells
        for one in plan.assignments:
            regrets += [best - world.value(one.candidate.params)] * len(one.cells)
        state = sampler.tell(state, trials_of(world, plan, texts, generation))
    found = recommend(
        state, rng=np.random.default_rng(0), surrogate=surrogate, case_weights=weights
    )
    assert found is not None
    return state.archive.members[found.candidate_id].candidate


def trials_of(world: Sums, plan: Plan, texts: dict[str, str], generation: int) -> list[Trial]:
    """Return what a plan's candidates answered, by the checker."""
    return [
        Trial(
            candidate=one.candidate,
            evaluations=tuple(
                Evaluation(
                    eval_id="e", cell=cell, generation=generation, status="ok", started_us=10**9,
                    reward=world.reward(one.candidate.params, texts[cell.case_id]),
                )
                for cell in one.cells
            ),
        )
        for one in plan.assignments
    ]  # fmt: skip
