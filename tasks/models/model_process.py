"""Process that holds a local language model and answers batches of chats.

PyTorch takes seconds to import and a model takes a gigabyte, so neither belongs in the process
that plans a run. A separate process can be killed if a model hangs, and frees its memory then.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.functions.processes import Parent
from tasks.models.requests import ChatAnswer, ChatRequest, ModelRequest, ScoreRequest

if TYPE_CHECKING:
    from tasks.models.generation import Generator


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """Settings of the process."""

    folder: Path
    gguf: str | None
    n_threads: int


def main() -> None:
    """Answer batches from the parent with the model, which loads at the first batch."""
    os.environ["HF_HUB_OFFLINE"] = "1"  # no downloads
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    os.environ["TQDM_DISABLE"] = "1"
    parent = Parent()
    settings: ModelSettings = parent.settings
    os.nice(1)  # the planning process has priority
    load = cache(load_generator)  # at the first batch, whose limit includes the load

    def answer(message: tuple[list[ModelRequest], float]) -> list[ChatAnswer]:
        return answer_batch(load(settings), *message, on_text=parent.tell)

    parent.serve(answer)


def load_generator(settings: ModelSettings) -> "Generator":
    """Load a model with its weights in single precision."""
    import torch  # noqa: PLC0415 - takes seconds
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415 - as above

    from tasks.models.generation import Generator  # noqa: PLC0415 - brings torch

    torch.set_num_threads(settings.n_threads)
    more: dict[str, Any] = {} if settings.gguf is None else {"gguf_file": settings.gguf}
    tokenizer = AutoTokenizer.from_pretrained(settings.folder, **more)
    # In any other type the weights of a GGUF file stay packed.
    model = AutoModelForCausalLM.from_pretrained(settings.folder, dtype=torch.float32, **more)
    return Generator(model.eval(), tokenizer)


def answer_batch(
    generator: "Generator",
    requests: Sequence[ModelRequest],
    timeout_s: float,
    on_text: Callable[[tuple[int, str]], object],
) -> list[ChatAnswer]:
    """Answer a batch; a faulty request gets its error as its answer and never raises.

    Args:
        generator: Model and tokenizer.
        requests: Requests with any adapters; those of one adapter form a batch.
        timeout_s: Seconds allowed, from now on.
        on_text: Called with the index of a streamed request and a piece of its text.
    """
    from tasks.models.lora import AdapterError  # noqa: PLC0415 - brings torch

    started_s = time.monotonic()
    deadline_s = started_s + timeout_s
    answers: dict[int, ChatAnswer] = {}
    for adapter in dict.fromkeys(request.adapter for request in requests):
        selected = {i: request for i, request in enumerate(requests) if request.adapter == adapter}
        try:
            generator.use(adapter)
        except AdapterError as error:
            failed = ChatAnswer(finish_reason="adapter", error=str(error))
            answers |= dict.fromkeys(selected, failed)
            continue
        chats = {i: request for i, request in selected.items() if isinstance(request, ChatRequest)}
        answers |= _answered(generator, chats, started_s, deadline_s, on_text)
        for i, request in selected.items():
            if isinstance(request, ScoreRequest):
                answers[i] = _scored(generator, request, deadline_s)
    return [answers[i] for i in range(len(requests))]


def _answered(
    generator: "Generator",
    requests: dict[int, ChatRequest],
    started_s: float,
    deadline_s: float,
    on_text: Callable[[tuple[int, str]], object],
) -> dict[int, ChatAnswer]:
    """Return the answers to chats of one adapter, by their index in the batch."""
    from jinja2 import TemplateError  # noqa: PLC0415 - in the child only

    from tasks.models.lora import AdapterError  # noqa: PLC0415 - brings torch

    answers: dict[int, ChatAnswer] = {}
    rows = {}
    for i, request in requests.items():
        try:
            row = generator.row(request)
        except TemplateError as error:
            answers[i] = ChatAnswer(finish_reason="template", error=str(error))
            continue
        n = len(row.prompt)
        if n + request.max_tokens > generator.context_tokens:
            reason = (
                f"the prompt has {n} tokens, and with max_tokens={request.max_tokens} more than "
                f"the model's {generator.context_tokens}"
            )
            answers[i] = ChatAnswer(finish_reason="context", prompt_tokens=n, error=reason)
            continue
        if request.stream:
            row.on_text = partial(_tell, on_text, i)
        rows[i] = row
    try:
        generator.answer([*rows.values()], deadline_s)
    except (AdapterError, RuntimeError) as error:  # from PyTorch, e.g. out of memory
        reason = "adapter" if isinstance(error, AdapterError) else "error"
        failed = ChatAnswer(finish_reason=reason, error=str(error))
        return {**dict.fromkeys(requests, failed), **answers}
    for i, row in rows.items():
        answers[i] = ChatAnswer(
            text=row.text,
            finish_reason=row.finish_reason or "error",
            prompt_tokens=len(row.prompt),
            completion_tokens=len(row.tokens),
            logprobs=tuple(row.logprobs) if row.request.logprobs else None,
            latency_ms=(row.ended_s - started_s) * 1000,
            first_token_ms=None if row.begun_s is None else (row.begun_s - started_s) * 1000,
        )
    return answers


def _tell(on_text: Callable[[tuple[int, str]], object], i: int, piece: str) -> None:
    on_text((i, piece))


def _scored(generator: "Generator", request: ScoreRequest, deadline_s: float) -> ChatAnswer:
    from jinja2 import TemplateError  # noqa: PLC0415 - in the child only

    from tasks.models.lora import AdapterError  # noqa: PLC0415 - brings torch

    if time.monotonic() > deadline_s:
        return ChatAnswer(finish_reason="timeout")
    try:
        scored = generator.score(request.messages, request.response)
    except TemplateError as error:
        return ChatAnswer(finish_reason="template", error=str(error))
    except ValueError as error:
        return ChatAnswer(finish_reason="context", error=str(error))
    except AdapterError as error:
        return ChatAnswer(finish_reason="adapter", error=str(error))
    except RuntimeError as error:
        return ChatAnswer(finish_reason="error", error=str(error))
    return ChatAnswer(
        finish_reason="scored", logprobs=tuple(scored), completion_tokens=len(scored)
    )
