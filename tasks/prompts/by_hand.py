"""One edit of a prompt by hand, outside of any run."""

import asyncio

import numpy as np

from convergence_core.config.prompts import OperatorName
from convergence_core.errors import ConfigurationError
from convergence_core.prompts.editor import Edit
from convergence_core.prompts.state import DRAWN, Mutation, PromptState, text_id_of
from convergence_core.search.study_state import StudyState
from convergence_core.space import Choice
from tasks.inputs.environment import Environment
from tasks.inputs.loader import Loaded
from tasks.inputs.storage import store_path
from tasks.prompts.factory import configured_writer, make_editor, mutable_parameters
from tasks.prompts.learner import PROMPTS
from tasks.prompts.writer import DirectAsker, ModelWriter, TextWriter, Writing
from tasks.store import ParquetStore


def mutate_text(
    loaded: Loaded,
    text: str,
    operator: OperatorName,
    *,
    other: str | None = None,
    rules: bool = False,
    seed: int = 0,
    mock_url: str | None = None,
) -> tuple[Mutation, tuple[str, ...]]:
    """Return what an operator makes of a text, and the cases that the request showed.

    Args:
        loaded: configuration and cases.
        text: the parent.
        operator: what is to be done.
        other: second parent of ``merge``.
        rules: whether fixed rules write, and no call is made.
        seed: of what is drawn.
        mock_url: server that answers in the model's place.

    Raises:
        ConfigurationError: no one can write, or the operator lacks something.
    """
    configuration = loaded.configuration
    is_free = rules or configuration.prompts.writer == "rules"
    environment = (
        Environment.unchecked(configuration)
        if is_free
        else Environment.of(configuration, mock_url=mock_url)
    )
    redact = environment.redactor(configuration)
    editor = make_editor(loaded, redact)
    state = latest_state(loaded)
    name = next(iter(mutable_parameters(configuration)), "prompt")
    if operator == "merge" and other is None:
        fix = "Name the second prompt with --with."
        raise ConfigurationError.of("--operator", "`merge` takes two prompts", fix, value=operator)
    parameter = loaded.space.parameters.get(name)
    known = [str(choice) for choice in parameter.choices] if isinstance(parameter, Choice) else []
    rng = np.random.default_rng(seed)
    edit = editor.edit(
        name,
        operator,
        parents=(text, other) if operator == "merge" and other is not None else (text,),
        observed=state.observed.get(text_id_of(text), ()),
        generation=0,
        index=0,
        propensity=1.0,
        known=[*known, text],
        offered=editor.offered_shots(state),
        rng=rng,
    )
    if edit is None:
        fix = "Add search cases with `expected`, or take another operator."
        raise ConfigurationError.of(
            "--operator", "needs search cases to draw from", fix, value=operator
        )
    writer = configured_writer(configuration, environment, is_free=is_free)
    if writer is None:
        fix = "Write an `llm` into the configuration, or let fixed rules write by --rules."
        raise ConfigurationError.of("llm", "is required to write a text", fix)
    writing = Writing(answer=None, cost_usd=0.0)
    if edit.ready is None:
        (writing,) = asyncio.run(_write(writer, edit, rng))
    mutation = editor.received(
        edit,
        writing.answer,
        known=[*known, text],
        writer=DRAWN if edit.ready is not None else writer.name,
        cost_usd=writing.cost_usd,
        reason=redact(writing.reason),
    )
    return mutation, tuple(case for case, _ in edit.shown)


async def _write(writer: TextWriter, edit: Edit, rng: np.random.Generator) -> list[Writing]:
    """Have an edit written; the model's connections are closed then."""
    try:
        return await writer.write([edit], DirectAsker(), rng)
    finally:
        if isinstance(writer, ModelWriter):
            await writer.model.llm.aclose()


def latest_state(loaded: Loaded) -> PromptState:
    """Return what the latest run of the system has seen; nothing where there is none."""
    path = store_path(loaded)
    if not (path / "store.json").is_file():
        return PromptState()
    store = ParquetStore(path)
    for record in store.runs(loaded.configuration.api.name):
        checkpoint = store.checkpoint(record.run_id)
        if checkpoint is None:
            continue
        learned = StudyState.from_checkpoint(checkpoint).learned.get(PROMPTS)
        if learned is not None:
            return PromptState.from_json(learned)
    return PromptState()
