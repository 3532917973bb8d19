"""Proposals of games by a model: asked for, stored as text, decided by a person.

Nothing of a proposal is imported or run, also not by an approval: that writes a file, which a person names in the
configuration like any other game of theirs.
"""

from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from convergence_core.config.games import BUILT_IN, OF_ANSWERS
from convergence_core.errors import ConfigurationError, EvaluationFault
from convergence_core.games.proposal import GameProposal, read_proposal, request_text
from convergence_core.ports import Ask, Row
from convergence_core.result.number_text import plural
from tasks.calls.metric_calls import PaidCall
from tasks.games.games_learner import share_of_round
from tasks.games.players import WORDING_VERSION, ModelSeat
from tasks.games.sealed_openings import store_of, system_name
from tasks.inputs.environment import Environment
from tasks.inputs.loader import Loaded
from tasks.json_values import as_text
from tasks.rlp.factory import make_model
from tasks.rlp.learner_calls import LearnerCalls, SubBudget
from tasks.rlp.model_calls import Answered, ThoughtAsker
from tasks.run.assessment import interrupted
from tasks.run.opener import prepare_run, with_overrides
from tasks.run.resources import Caller
from tasks.run.run import Run
from tasks.store import ParquetStore
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.feedback.proposals import reviewed, save_review
from tasks.store.tables.lineage import PROPOSALS_TAG
from tasks.store.tables.rows import generation_row

LIMIT: Final = 4_000
"""Longest reply of a model, in tokens."""
OF_LIBRARY: Final = ("critic", "explore", "predict", "prompts")
"""Ids of games that the library has beside those that the configuration knows."""
PERSONA: Final = (
    "You design small language games. Reply with what you are asked for, and with nothing else."
)
_PROPOSED: Final = """
    SELECT p.*, r.started_at FROM game_proposals p JOIN runs r USING (run_id)
    WHERE r.name = $system ORDER BY r.started_at, p.position"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredProposal:
    """A proposal with where it came from."""

    proposal: GameProposal
    model: str
    cost_usd: float | None
    """Of the call; ``None``: unknown."""


def propose_games(
    loaded: Loaded, n: int, *, mock_url: str | None = None
) -> tuple[list[StoredProposal], str | None]:
    """Ask the ``llm`` for games; return its proposals and, if some are missing, why.

    Within the share of the budget that one round of games may use. What was interrupted goes on, and pays nothing
    twice.

    Args:
        loaded: the configuration and its files.
        n: proposals, one a call.
        mock_url: server that answers in place of chat models.

    Raises:
        ConfigurationError: there is no ``llm``, or a key is missing.
        LeaseHeldError: another process asks for proposals of this system.
        RunInterruptedError: it was asked to stop.
        StoreError: the store cannot be used.
    """
    if loaded.configuration.llm is None:
        fix = "Write e.g. `llm: {model: openai/gpt-4o-mini, api_key_env: OPENAI_API_KEY}`."
        raise ConfigurationError.of("llm", "is required: a model proposes games", fix)
    known = _known(loaded, mock_url)
    usd, n_calls = share_of_round(loaded.configuration)
    budget: dict[str, float | None] = {"max_usd": usd, "max_calls": n_calls}
    loaded = replace(loaded, configuration=with_overrides(loaded.configuration, budget=budget))
    caller: Caller = {} if mock_url is None else {"mock_url": mock_url}
    with ExitStack() as held:
        run = interrupted(loaded, caller, PROPOSALS_TAG) or prepare_run(
            loaded, part=PROPOSALS_TAG, **caller
        )
        held.enter_context(run)
        run.begin_final()
        seat = _seat(loaded, mock_url)
        calls = LearnerCalls(PROPOSALS_TAG, run.session, SubBudget(limit_usd=None))
        held.callback(calls.close, seat.model.llm)
        found, why = _asked(run, seat, calls, n, known)
        run.check_stop()
        _publish(run, found)
        run.save("done", why or "the games were proposed")
    return found, why


def stored_proposals(loaded: Loaded, *, mock_url: str | None = None) -> list[StoredProposal]:
    """Return what was proposed for a configuration's system, each text once, the oldest first."""
    store = store_of(loaded)
    return _stored(store, system_name(loaded, mock_url)) if store.exists else []


def waiting(
    loaded: Loaded, feedback: FeedbackStore, *, mock_url: str | None = None
) -> list[StoredProposal]:
    """Return the proposals that a person is to decide about, the oldest first."""
    store = store_of(loaded)
    if not store.exists:
        return []
    return waiting_of(store, system_name(loaded, mock_url), reviewed(feedback))


def waiting_of(store: ParquetStore, system: str, decided: Collection[str]) -> list[StoredProposal]:
    """Return the proposals of a system that are games and are not decided, the oldest first."""
    return [
        one
        for one in _stored(store, system)
        if not one.proposal.reason and one.proposal.proposal_id not in decided
    ]


COMMAND: Final = "convergence games proposals"
"""By which a person decides."""


def waiting_sentence(n: int) -> str:
    """Return that proposals wait for a decision."""
    waits = "waits" if n == 1 else "wait"
    return f"{plural(n, 'game')} that a model proposed {waits} for a decision."


def approve_game(
    loaded: Loaded,
    feedback: FeedbackStore,
    proposal_id: str,
    output: Path,
    *,
    mock_url: str | None = None,
) -> StoredProposal:
    """Write a proposal to a new file, and decide so, durably; nothing of it is run.

    Args:
        loaded: the configuration and its files.
        feedback: of its store, with what was decided.
        proposal_id: of one that waits.
        output: the file.
        mock_url: as when it was proposed.

    Raises:
        ConfigurationError: no such proposal waits, another one decided meanwhile, or the file cannot be made.
    """
    found = _waiting_one(loaded, feedback, proposal_id, mock_url)
    key, rule = "--output", "must be a new file, which the game is written to"
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(found.proposal.text)
    except OSError as error:
        value = f"{output}: {error.strerror}"
        raise ConfigurationError.of(key, rule, "Name another file.", value=value) from None
    if not save_review(feedback, proposal_id, "approved"):
        output.unlink()
        raise no_such_proposal(proposal_id)
    return found


def reject_game(
    loaded: Loaded, feedback: FeedbackStore, proposal_id: str, *, mock_url: str | None = None
) -> StoredProposal:
    """Decide that a proposal is none to play, durably.

    Raises:
        ConfigurationError: no such proposal waits, or another one decided meanwhile.
    """
    found = _waiting_one(loaded, feedback, proposal_id, mock_url)
    if not save_review(feedback, proposal_id, "rejected"):
        raise no_such_proposal(proposal_id)
    return found


def _waiting_one(
    loaded: Loaded, feedback: FeedbackStore, proposal_id: str, mock_url: str | None
) -> StoredProposal:
    for one in waiting(loaded, feedback, mock_url=mock_url):
        if one.proposal.proposal_id == proposal_id:
            return one
    raise no_such_proposal(proposal_id)


def no_such_proposal(proposal_id: str) -> ConfigurationError:
    """Return the error of an id of no proposal that waits."""
    rule = "must be the id of a proposal that waits for a decision"
    fix = "`convergence games proposals` lists them."
    return ConfigurationError.of("ID", rule, fix, value=proposal_id[:200])


def _known(loaded: Loaded, mock_url: str | None) -> frozenset[str]:
    """Return the ids that a proposal must not have: of known games, and of earlier proposals."""
    before = stored_proposals(loaded, mock_url=mock_url)
    configured = loaded.configuration.society.games.games
    return frozenset(
        {*BUILT_IN, *OF_ANSWERS, *OF_LIBRARY, *configured}
        | {one.proposal.game for one in before if one.proposal.game}
    )


def _seat(loaded: Loaded, mock_url: str | None) -> ModelSeat:
    configuration = loaded.configuration
    assert configuration.llm is not None  # noqa: S101 - looked at before
    world = Environment.of(configuration, mock_url=mock_url)
    return ModelSeat(
        model=make_model(configuration.llm, None, world, wording_version=WORDING_VERSION),
        persona=PERSONA,
        temperature=None,
        limit=LIMIT,
        redact=world.redactor(configuration),
    )


def _asked(
    run: Run, seat: ModelSeat, calls: LearnerCalls, n: int, known: Collection[str]
) -> tuple[list[StoredProposal], str | None]:
    """Ask one after the other, each for another game than those before; stop at the first call without an answer."""
    taken, found = {*known}, list[StoredProposal]()
    for k in range(n):
        run.check_stop()
        call = seat.call(Ask(role="author", text=request_text(taken)))
        try:
            answered = calls.run(partial(_ask, call=call, label=f"{k}"), 0, scope=PROPOSALS_TAG)
        except EvaluationFault as fault:
            return found, str(fault)
        proposal = read_proposal(as_text(answered.reply.value), taken)
        taken |= {proposal.game} if proposal.game else set()
        found.append(
            StoredProposal(proposal=proposal, model=seat.name, cost_usd=answered.reply.cost_usd)
        )
    return found, None


async def _ask(asker: ThoughtAsker, call: PaidCall, label: str) -> Answered:
    return await asker.ask(call, label)


def _publish(run: Run, found: list[StoredProposal]) -> None:
    rows: list[Row] = [
        {
            "run_id": run.run_id,
            "generation": 0,
            "position": k,
            "proposal_id": one.proposal.proposal_id,
            "game": one.proposal.game or None,
            "class_name": one.proposal.class_name or None,
            "purpose": one.proposal.purpose or None,
            "text": one.proposal.text,
            "reason": one.proposal.reason or None,
            "model": one.model,
            "cost_usd": one.cost_usd,
        }
        for k, one in enumerate(found)
    ]
    marker = generation_row(
        run.run_id,
        0,
        [],
        run.state.to_checkpoint(),
        flow_run_id=None,
        partial=False,
        fallback_us=run.record.started_us,
    )
    run.store.publish(
        run.run_id,
        0,
        {
            "attempts": run.journal.attempts(run.run_id, generation=0),
            "game_proposals": rows,
            "generations": [marker],
        },
    )


def _stored(store: ParquetStore, system: str) -> list[StoredProposal]:
    found: dict[str, StoredProposal] = {}
    for row in store.rows(_PROPOSED, {"system": f"{system}.{PROPOSALS_TAG}"}):
        own: Any = row
        one = StoredProposal(
            proposal=GameProposal(
                text=own["text"],
                reason=own["reason"] or "",
                game=own["game"] or "",
                class_name=own["class_name"] or "",
                purpose=own["purpose"] or "",
            ),
            model=own["model"],
            cost_usd=own["cost_usd"],
        )
        found.setdefault(one.proposal.proposal_id, one)
    return [*found.values()]
