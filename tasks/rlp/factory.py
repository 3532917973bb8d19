"""Construction of a run's RLP, from its configuration and store."""

from typing import Final

from convergence_core.config import Configuration
from convergence_core.config.evaluation import BaseMetric, LlmConfig
from convergence_core.config.search_space import TextParam
from convergence_core.records import canonical_json
from convergence_core.rlp.learner import RlpState
from convergence_core.rlp.rows import commitment_rows
from tasks.calls.model_calls import THOUGHT, Model
from tasks.inputs.environment import Environment
from tasks.rlp.learner import RLP, RlpLearner
from tasks.rlp.learner_calls import LearnerParts
from tasks.rlp.prompts import RlpPrompts
from tasks.rlp.thought_writer import ThoughtWriter
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line

MOST_DESCRIPTION: Final = 600
"""Maximum characters of a description in a role or a persona."""
ANSWER_LIMITS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""Options of a chat request that limit an answer."""
NO_LLM: Final = "RLP off: no `llm` is configured"


def mutable_parameters(configuration: Configuration) -> tuple[str, ...]:
    """Return the text parameters with ``mutate``."""
    return tuple(
        name
        for name, parameter in configuration.search_space.parameters.items()
        if isinstance(parameter, TextParam) and parameter.mutate
    )


def described(configuration: Configuration) -> str:
    """Return the system's purpose if roles and personas are derived from it; otherwise empty."""
    api = configuration.api
    if not configuration.society.auto_generate_agents:
        return ""
    return one_line(api.description.strip() or api.name, MOST_DESCRIPTION, redacted_text)


def prompts_of(configuration: Configuration) -> RlpPrompts:
    """Return the prompts of thoughts, with the configuration's description of the system."""
    api, metrics = configuration.api, configuration.evaluation.metrics
    about = one_line(f"{api.name}. {api.description}".strip(), MOST_DESCRIPTION, redacted_text)
    lines = (_rule(name, metric) for name, metric in metrics.items() if metric.weight > 0)
    role = described(configuration)
    return RlpPrompts(
        about,
        "\n".join(one_line(line, MOST_DESCRIPTION, redacted_text) for line in lines),
        f'You know systems like this one well: "{role}".' if role else "",
    )


def _rule(name: str, metric: BaseMetric) -> str:
    """Return one line with a metric, its weight and its configured settings."""
    fields = metric.model_dump(exclude_defaults=True, exclude_none=True, mode="json")
    settings = {key: value for key, value in fields.items() if key not in ("weight", "llm")}
    rule = f" {canonical_json(settings)}" if settings else ""
    return f"- {name}: weight {metric.weight:g}{rule}"


def make_model(config: LlmConfig, world: Environment, *, wording_version: str) -> Model:
    """Return the model that a learner calls.

    Args:
        config: Configuration under ``llm``.
        world: Keys, prices and mocks.
        wording_version: Prompt wording version.

    Raises:
        ConfigurationError: no endpoint is known.
    """
    from tasks.providers import make_llm, split_model  # noqa: PLC0415 - brings httpx

    return Model(
        llm=make_llm(config, world.secrets, mock_url=world.mock_url),
        name=split_model(config.model)[1],
        wording_version=wording_version,
        timeout_s=config.timeout_seconds,
        credential=config.api_key_env,
        prices=world.prices,
    )


def make_rlp(parts: LearnerParts) -> RlpLearner | None:
    """Return a run's RLP; ``None`` if it is off, with the reason sent to the listener.

    Raises:
        ConfigurationError: no endpoint is known.
    """
    configuration = parts.loaded.configuration
    settings = configuration.society.rlp
    if not configuration.society.thinks:
        return None
    if configuration.llm is None:
        parts.tell(NO_LLM)
        return None
    model = make_model(configuration.llm, parts.world, wording_version=RlpPrompts.version)
    run_id, store = parts.record.run_id, parts.store
    return RlpLearner(
        run_id=run_id,
        seed=parts.record.seed,
        writer=ThoughtWriter(model=model, settings=settings, wording=prompts_of(configuration)),
        calls=parts.calls(
            "RLP",
            settings.max_share_usd,
            (THOUGHT,),
            owner="thoughts",
            key="society.rlp.max_share_usd",
        ),
        state=RlpState.from_json(parts.state.learned.get(RLP)),
        on_commit=lambda tables: store.write_ahead(
            run_id,
            tables.generation,
            {"commitments": commitment_rows(run_id, tables, parts.redact)},
        ),
    )
