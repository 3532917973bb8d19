"""From a configuration to who thinks; from a run's store to what was learned so far."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from convergence_core.config import Configuration
from convergence_core.config.evaluation import LlmConfig
from convergence_core.ports import Row, RunRecord, Store
from convergence_core.rlp.learner import RlpState
from convergence_core.rlp.replay import Replay
from convergence_core.rlp.rows import REPLAY_SQL, commitment_rows, replay_of
from convergence_core.rlp.settings import RlpSettings
from convergence_core.search.samplers import make_surrogate
from convergence_core.search.study import StudyState
from convergence_core.space import Space
from tasks.calls.session import EvaluationSession
from tasks.inputs.environment import Environment
from tasks.rlp.learner import RLP, RlpLearner
from tasks.rlp.model_calls import PREDICTION, THOUGHT, Model
from tasks.rlp.prompts import English, Wording
from tasks.rlp.run_rlp import Thinking
from tasks.rlp.sub_budget import SubBudget
from tasks.rlp.thinker import Thinker

NO_LLM: Final = "RLP off: no `llm` is configured"


def settings_of(configuration: Configuration) -> RlpSettings:
    """Return the learner's numbers."""
    rlp = configuration.society.rlp
    return RlpSettings(
        n_thoughts=rlp.n_thoughts,
        n_predicted=rlp.n_predicted,
        gamma=rlp.gamma,
        gae_lambda=rlp.gae_lambda,
        normalize_rewards=rlp.normalize_rewards,
        clip_epsilon=rlp.clip_epsilon,
        kl_target=rlp.kl_target,
        ema_decay=rlp.ema_decay,
    )


def make_thinker(
    configuration: Configuration,
    space: Space,
    world: Environment,
    *,
    wording: Wording | None = None,
) -> Thinker | None:
    """Return who thinks; ``None``: nobody is configured.

    Args:
        configuration: with ``society`` enabled, or not.
        space: where candidates lie.
        world: keys and prices, and who answers in the model's place.
        wording: how things are told; ``None``: in English.

    Raises:
        ConfigurationError: no endpoint is known.
    """
    if not configuration.society.thinks or configuration.llm is None:
        return None
    rlp, words = configuration.society.rlp, wording or English()
    model = make_model(configuration.llm, rlp.model_name, world, wording_version=words.version)
    return Thinker(
        model=model,
        wording=words,
        space=space,
        thought_length=rlp.thought_length,
        temperature=rlp.temperature,
        use_logprobs=rlp.use_logprobs,
    )


def make_model(
    config: LlmConfig, name: str | None, world: Environment, *, wording_version: str
) -> Model:
    """Return the model that a part of ``society`` calls.

    Args:
        config: of ``llm``.
        name: in place of that of ``llm``; ``None``: the same.
        world: keys and prices, and who answers in the model's place.
        wording_version: of the texts that it is asked.

    Raises:
        ConfigurationError: no endpoint is known.
    """
    from tasks.providers import make_llm, split_model  # noqa: PLC0415 - brings httpx

    if name is not None:
        config = config.model_copy(update={"model": name})
    return Model(
        llm=make_llm(config, world.secrets, mock_url=world.mock_url),
        name=split_model(config.model)[1],
        wording_version=wording_version,
        timeout_s=config.timeout_seconds,
        credential=config.api_key_env,
        prices=world.prices,
    )


def make_rlp(
    thinker: Thinker | None,
    configuration: Configuration,
    *,
    record: RunRecord,
    session: EvaluationSession,
    store: Store,
    attempts: Iterable[Row],
    state: StudyState,
    redact: Callable[[str], str],
    on_notice: Callable[[str], None] | None = None,
) -> RlpLearner | None:
    """Return RLP of a run; ``None``: it is off.

    Args:
        thinker: as ``make_thinker`` returned it.
        configuration: of the run.
        record: of the run.
        session: makes the calls.
        store: holds the committed thoughts.
        attempts: the run's calls, among them what thoughts have cost.
        state: of the last committed generation.
        redact: keeps secrets out of what is stored.
        on_notice: told why nobody thinks.
    """
    if thinker is None:
        if configuration.society.thinks and on_notice is not None:
            on_notice(NO_LLM)
        return None
    run_id = record.run_id
    rlp = configuration.society.rlp
    strategies = tuple(rlp.strategies)
    learned = state.learned.get(RLP)
    rlp_state = RlpState.first(strategies)
    replay = Replay(capacity=rlp.buffer_size)
    if learned is not None:
        members = state.search.archive.members
        params_of = {name: member.candidate.params for name, member in members.items()}
        rlp_state = RlpState.from_json(learned, params_of)
        rows = store.rows(REPLAY_SQL, {"run_id": run_id})
        replay = replay_of(rows, strategies, rlp.buffer_size)
    limit = configuration.budget.max_usd
    thinking = Thinking(
        run_id=run_id,
        seed=record.seed,
        thinker=thinker,
        settings=settings_of(configuration),
        session=session,
        surrogate=make_surrogate(
            thinker.space, deterministic=configuration.evaluation.deterministic
        ),
        state=rlp_state,
        replay=replay,
        purse=SubBudget(
            limit_usd=None if limit is None else limit * rlp.max_share_usd,
            spent_usd=spent_on(
                (THOUGHT, PREDICTION),
                attempts,
                state.next_generation,
            ),
        ),
        on_notice=on_notice,
        on_commit=lambda found: store.write_ahead(
            run_id, found.generation, {"commitments": commitment_rows(run_id, found, redact)}
        ),
    )
    return RlpLearner(thinking, run_id)


def spent_on(
    purposes: Collection[str], attempts: Iterable[Mapping[str, Any]], next_generation: int
) -> float:
    """Return what these purposes of committed generations have cost, lost calls at their worst."""
    return sum(
        float(row.get("cost_usd") or row.get("maybe_usd") or 0.0)
        for row in attempts
        if row["purpose"] in purposes
        and row["generation"] is not None
        and int(row["generation"]) < next_generation
    )
