"""Construction of a run's prompt writing, from its configuration and cases."""

from collections.abc import Callable, Sequence
from typing import Final

from convergence_core.config import Configuration
from convergence_core.config.evaluation import BaseMetric, ExpectingMetric
from convergence_core.posterior.space_model import LengthPrice
from convergence_core.prompts.editor import Editor
from convergence_core.prompts.invariants import Invariants, held_out_texts, texts_in
from convergence_core.prompts.operators import WORDING_VERSION, Shown
from convergence_core.prompts.state import PromptState
from convergence_core.space import Choice
from tasks.calls.model_calls import WRITING
from tasks.inputs.environment import Environment
from tasks.inputs.loader import Loaded
from tasks.json_values import answers_of, as_text
from tasks.prompts.learner import PROMPTS, PromptLearner
from tasks.prompts.writer import ModelWriter, RulesWriter, TextWriter
from tasks.rlp.factory import ANSWER_LIMITS, make_model, mutable_parameters
from tasks.rlp.learner_calls import LearnerParts
from tasks.secrets.redaction import shortened

NO_LLM: Final = (
    "prompt writing off: no `llm` is configured; `prompts: {writer: rules}` writes by rules"
)
LONGEST_SHOWN: Final = 1_500
"""Maximum characters of an input in a request."""
MOST_LABELS: Final = 12
LONGEST_LABEL: Final = 40
"""Maximum characters of a label."""
_SCORING: Final = {
    "exact_match": "the whole answer must equal the expected text",
    "contains": "the answer must contain the expected text",
    "regex": "the answer must match a pattern",
    "numeric": "the answer must be the expected number",
    "json_schema": "the answer must be JSON of the wanted schema",
    "similarity": "the answer should be like the expected text",
    "bleu": "the answer should share its wording with the expected text",
    "rouge": "the answer should share its wording with the expected text",
    "checks": "the answer must pass the checks of its case",
    "llm_judge": "a judge rates the answer",
    "latency_ms": "faster answers score higher",
    "cost_usd": "cheaper answers score higher",
}
"""Type of a metric → its scoring rule as the writer reads it."""
_COMPARED: Final = ("exact_match", "contains", "numeric", "similarity")
"""Metrics that compare an answer with a case's expected value."""


def configured_writer(configuration: Configuration, world: Environment) -> TextWriter | None:
    """Return the configured writer; ``None`` if it is a model and there is no ``llm``.

    Args:
        configuration: Configuration that names the writer.
        world: Keys, prices and the mock server.

    Raises:
        ConfigurationError: no endpoint is known.
    """
    settings, llm = configuration.prompts, configuration.llm
    if settings.writer == "rules":
        return RulesWriter()
    if llm is None:
        return None
    model = make_model(llm, world, wording_version=WORDING_VERSION)
    return ModelWriter(model=model, settings=settings)


def make_prompts(parts: LearnerParts) -> PromptLearner | None:
    """Return a run's prompt writing; ``None`` if it is off, with the reason sent to the listener.

    Raises:
        ConfigurationError: no endpoint is known.
    """
    configuration, record = parts.loaded.configuration, parts.record
    settings = configuration.prompts
    writes = configuration.writes_prompts
    writer = configured_writer(configuration, parts.world) if writes else None
    if writer is None:
        lacks = configuration.llm is None and settings.enabled is not False
        if lacks and mutable_parameters(configuration) and not configuration.society.prefers:
            parts.tell(NO_LLM)
        return None
    learned = parts.state.learned.get(PROMPTS)
    return PromptLearner(
        run_id=record.run_id,
        seed=record.seed,
        editor=make_editor(parts.loaded, parts.redact, run_id=record.run_id),
        writer=writer,
        calls=parts.calls(
            "prompt writing",
            settings.max_share_usd,
            (WRITING,),
            owner="prompt writing",
            key="prompts.max_share_usd",
        ),
        state=PromptState() if learned is None else PromptState.from_json(learned),
        redact=parts.redact,
    )


def make_editor(loaded: Loaded, redact: Callable[[str], str], *, run_id: str = "") -> Editor:
    """Return the editor that plans edits and checks prompts.

    Args:
        loaded: Configuration and cases.
        redact: Removes secrets from requests.
        run_id: Id of the run.
    """
    configuration = loaded.configuration
    settings, api = configuration.prompts, configuration.api
    search = {case.case_id: case for case in loaded.search_cases}
    parameters = mutable_parameters(configuration)
    given = [
        str(text)
        for name in parameters
        if isinstance(parameter := loaded.space.parameters[name], Choice)
        for text in parameter.choices
    ]
    known = [text for case in search.values() for text in texts_in([case.input, case.expected])]
    metrics = configuration.evaluation.metrics.values()
    inputs = {name: as_text(case.input) for name, case in search.items()}
    cases = {
        name: Shown(
            input=shortened(inputs[name], LONGEST_SHOWN, redact),
            answer=None,
            expected=None if case.expected is None else as_text(answers_of(case.expected)[0]),
            reason="",
        )
        for name, case in search.items()
    }
    return Editor(
        settings=settings,
        task=api.description or api.name,
        facts=facts_of(configuration, redact),
        parameters=parameters,
        cases=cases,
        inputs=inputs,
        labels=labels_of([case.expected for case in cases.values() if case.expected is not None]),
        invariants=Invariants(
            held_out=held_out_texts(loaded.holdout_cases, [*known, *given]),
            max_length=settings.max_length,
            max_shots=settings.max_shots,
        ),
        expected_is_answer=any(_compares_whole(metric) for metric in metrics),
        price=LengthPrice.of(configuration),
        run_id=run_id,
    )


def facts_of(
    configuration: Configuration, redact: Callable[[str], str]
) -> tuple[tuple[str, str], ...]:
    """Return facts for the writer: model, user messages, limit of answers, scoring."""
    options, parameters = configuration.api.request.options, configuration.search_space.parameters
    facts = []
    model = options.get("model")
    if isinstance(model, str) and "model" not in parameters:
        facts.append(("model", model))
    messages = configuration.api.request.messages or ()
    template = "\n".join(message.content for message in messages if message.role == "user")
    if template:
        facts.append(("template", shortened(template, LONGEST_SHOWN, redact)))
    limit = next((options[name] for name in ANSWER_LIMITS if name in options), None)
    if limit is not None:
        facts.append(("limit", f"{limit} tokens for an answer"))
    rules = [
        _SCORING.get(metric.type, name) + (f": {detail}" if detail else "")
        for name, metric in configuration.evaluation.metrics.items()
        for detail in [getattr(metric, "pattern", None) or getattr(metric, "rubric", None)]
        if metric.weight > 0.0
    ]
    facts.append(("scoring", shortened("; ".join(rules), LONGEST_SHOWN, redact)))
    return tuple(facts)


def labels_of(expected: Sequence[str]) -> tuple[str, ...]:
    """Return the distinct expected texts if they are few and short enough to be labels."""
    labels = tuple(sorted(set(expected)))
    are_few = len(labels) <= MOST_LABELS and 2 * len(labels) <= len(expected)
    return labels if are_few and all(len(text) <= LONGEST_LABEL for text in labels) else ()


def _compares_whole(metric: BaseMetric) -> bool:
    """Whether a metric compares the whole answer with a case's whole expected value."""
    if not isinstance(metric, ExpectingMetric) or metric.type not in _COMPARED:
        return False
    return metric.field is metric.expected_field is None
