"""Construction of a run's SAO, from its configuration and store."""

import json
from functools import partial
from typing import Final

import yaml

from convergence_core.config import Configuration
from convergence_core.config.api import CHAT_KINDS
from convergence_core.ports import RunRecord, Target
from convergence_core.records import Json
from convergence_core.sao.executed_items import EXECUTED, GroundedAnswer
from convergence_core.sao.personas import Grammar
from convergence_core.sao.prompt_shape import PromptShape, shape_of
from convergence_core.sao.round_plan import RoundSource
from convergence_core.sao.state import SaoState
from convergence_core.sao.templates import TEMPLATES_VERSION
from tasks.calls.model_calls import SAO as CALLS
from tasks.inputs.environment import Environment, shipped
from tasks.inputs.loader import Loaded
from tasks.json_values import answers_of, as_text
from tasks.rlp.factory import ANSWER_LIMITS, described, make_model, mutable_parameters
from tasks.rlp.learner_calls import LearnerParts
from tasks.sao.history import history_of, inherited_state
from tasks.sao.learner import SAO, SaoLearner
from tasks.sao.writer import LONGEST_ANSWER, N_AT_ONCE, AnsweringSystem, Writer
from tasks.secrets.redaction import secret_name
from tasks.store.tables.parquet_store import ParquetStore

NO_LLM: Final = "SAO off: no `llm` is configured"
NO_PROMPT: Final = (
    "SAO off: the test cases hold no single text that a written prompt could stand for; their input "
    "must be a string, a mapping with one text, or messages that end with the user's"
)
PERSONAS: Final = "personas/factors.yaml"

_ANSWERS: Final = """
    WITH texts AS (
      SELECT payload_sha256, min(text) AS text FROM payloads
      WHERE run_id = $run AND kind = 'response' GROUP BY payload_sha256)
    SELECT e.case_id, e.candidate_id, e.metrics, x.text FROM evaluations e
    JOIN texts x USING (payload_sha256)
    WHERE e.run_id = $run AND e.role = 'search' AND e.status = 'ok'
    ORDER BY e.case_id, e.eval_id"""


def shipped_personas() -> Grammar:
    """Return the grammar of personas that comes with this version.

    Raises:
        FileNotFoundError: the installation is incomplete.
    """
    return Grammar.from_mapping(yaml.safe_load(shipped(PERSONAS).read_text(encoding="utf-8")))


def first_state(
    configuration: Configuration, learned: Json, store: ParquetStore, record: RunRecord
) -> SaoState:
    """Return the state of a checkpoint, or the inherited or initial state before the first one."""
    sao = configuration.society.sao
    if learned is not None:
        return SaoState.from_json(learned, limit=sao.iterative_rounds)
    state = inherited_state(store, record, limit=sao.iterative_rounds, n_personas=sao.n_personas)
    return state or SaoState(limit=sao.iterative_rounds, walk_to=sao.n_personas)


def make_warm_target(loaded: Loaded, world: Environment) -> Target | None:
    """Return the target at the temperature for answers; ``None`` if it is not a chat model."""
    configuration = loaded.configuration
    if configuration.api.kind not in CHAT_KINDS:
        return None
    from tasks.targets.chat import ChatTarget  # noqa: PLC0415 - brings httpx

    sao, request = configuration.society.sao, configuration.api.request
    options = dict(request.options)
    if not {*ANSWER_LIMITS} & (options.keys() | configuration.search_space.parameters.keys()):
        options["max_tokens"] = LONGEST_ANSWER
    if sao.temperature is not None:
        options["temperature"] = sao.temperature
    api = configuration.api.model_copy(
        update={"request": request.model_copy(update={"options": options})}
    )
    return ChatTarget(
        configuration.model_copy(update={"api": api}),
        secrets=world.secrets,
        workers=N_AT_ONCE,
        prices=world.prices,
        mock_url=world.mock_url,
    )


def make_sao(parts: LearnerParts) -> SaoLearner | None:
    """Return a run's SAO; ``None`` if it is off, with the reason sent to the listener.

    Raises:
        ConfigurationError: no endpoint is known.
    """
    loaded, record, store = parts.loaded, parts.record, parts.store
    configuration = loaded.configuration
    if not configuration.society.prefers:
        return None
    llm, shape = configuration.llm, shape_of(loaded.cases)
    if llm is None or shape is None:
        parts.tell(NO_LLM if llm is None else NO_PROMPT)
        return None
    sao, api = configuration.society.sao, configuration.api
    return SaoLearner(
        run_id=record.run_id,
        source=source_of(loaded, shape, seed=record.seed),
        answers=partial(grounded_answers, loaded, store, record.run_id),
        writer=Writer(
            model=make_model(llm, parts.world, wording_version=TEMPLATES_VERSION),
            task=api.description or api.name,
        ),
        system=AnsweringSystem(
            target=parts.target,
            warm=make_warm_target(loaded, parts.world),
            shape=shape,
            credential=secret_name(api),
            timeout_s=api.request.timeout_seconds,
        ),
        calls=parts.calls(
            "SAO",
            sao.max_share_usd,
            (CALLS,),
            owner="preferences",
            key="society.sao.max_share_usd",
            n_at_once=N_AT_ONCE,
        ),
        state=first_state(configuration, parts.state.learned.get(SAO), store, record),
        history=history_of(store, record),
    )


def source_of(loaded: Loaded, shape: PromptShape, *, seed: int) -> RoundSource:
    """Return the material of rounds.

    Args:
        loaded: Configuration and cases.
        shape: Location of the prompt in a case.
        seed: Start of the walk through personas.
    """
    configuration, hidden = loaded.configuration, loaded.holdout_cases
    prompts = {case.case_id: shape.text(case.input) or "" for case in loaded.cases}
    hidden_prompts = tuple(prompts[case.case_id] for case in hidden)
    expected = (
        as_text(answer)
        for case in hidden
        if case.expected is not None
        for answer in answers_of(case.expected)
    )
    return RoundSource(
        settings=configuration.society.sao,
        seed=seed,
        grammar=shipped_personas().about(described(configuration)),
        is_chat=configuration.api.kind in CHAT_KINDS,
        prompt_of={case.case_id: prompts[case.case_id] for case in loaded.search_cases},
        held_out=(*hidden_prompts, *expected),
        mutable=mutable_parameters(configuration),
    )


def grounded_answers(loaded: Loaded, store: ParquetStore, run_id: str) -> list[GroundedAnswer]:
    """Return a run's answers with a mean of executed metrics; skip those without a value."""
    shape = shape_of(loaded.cases)
    names = [
        name
        for name, metric in loaded.configuration.evaluation.metrics.items()
        if metric.type in EXECUTED and metric.scale is None and metric.direction == "higher"
    ]
    if not names or shape is None:
        return []
    prompts = {case.case_id: shape.text(case.input) or "" for case in loaded.cases}
    answers = []
    for row in store.rows(_ANSWERS, {"run": run_id}):
        measured = row["metrics"] or {}
        values = [float(measured[name]) for name in names if measured.get(name) is not None]
        if values and row["case_id"] in prompts:
            answers.append(
                GroundedAnswer(
                    case_id=row["case_id"],
                    prompt=prompts[row["case_id"]],
                    answer=as_text(json.loads(row["text"])),
                    author=row["candidate_id"],
                    truth=sum(values) / len(values),
                )
            )
    return answers
