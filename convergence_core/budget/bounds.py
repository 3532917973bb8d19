"""Upper bounds on the tokens of a prompt.

A byte-level BPE starts from single bytes and only joins them; SentencePiece falls back to bytes
for unknown input. Neither makes more tokens than the text has bytes (Sennrich et al. 2016; Radford
et al. 2019, sect. 2.2). Constants bound the chat template around the texts. English is
overestimated about fourfold, which only occupies budget until the call settles.
"""

import json
from collections.abc import Mapping, Sequence

from convergence_core.budget.usage import sum_of
from convergence_core.records import Json

TOKENS_PER_MESSAGE = 16
"""Role and delimiters: 3 or 4 in OpenAI's template, up to 8 in Llama's and Gemma's."""
TOKENS_PER_REQUEST = 256
"""Template text before the messages: the start of the answer; knowledge cut-off and date in Llama
3; the system message of gpt-oss."""
TOKENS_WITH_TOOLS = 1024
"""Instructions that providers add for tools: up to 804 (Anthropic, "Tool use pricing")."""

_TEXT_TYPES = frozenset(
    {
        *("text", "input_text", "output_text", "refusal", "thinking", "reasoning"),
        *("tool_use", "tool_result", "function_call", "function_call_output", "message"),
    }
)
_MEDIA_KEYS = frozenset(
    {
        *("image_url", "input_audio", "audio", "file", "source", "video_url", "image", "file_id"),
        *("inlineData", "fileData", "inline_data", "file_data"),
    }
)
_BATCH_KEYS = ("messages", "contents", "input", "prompt")
"""Keys of messages, or of texts that the model reads separately."""
_REFERENCES = frozenset(
    {"previous_response_id", "conversation", "cachedContent", "cached_content", "container"}
)
"""Keys of content that the provider adds to the prompt from its store."""
_GEMINI_CALLED = frozenset({"functionDeclarations", "function_declarations"})


def prompt_bound(body: Json) -> int | None:
    """Return the maximum number of tokens in a request's prompt.

    Args:
        body: Text, list of messages, or whole body of a request.

    Returns:
        Bound, or ``None`` if it is unknown: pictures, sound, files, texts stored by the provider,
        and tools that the provider runs.
    """
    if isinstance(body, str):
        return TOKENS_PER_REQUEST + TOKENS_PER_MESSAGE + _n_bytes(body)
    if isinstance(body, Sequence):
        return sum_of(TOKENS_PER_REQUEST, _messages(body))
    if not isinstance(body, Mapping):
        return TOKENS_PER_REQUEST
    if any(body.get(key) for key in _REFERENCES) or isinstance(body.get("prompt"), Mapping):
        return None
    return sum_of(TOKENS_PER_REQUEST, *(_field(key, value) for key, value in body.items()))


def _field(key: str, value: Json) -> int | None:
    if key in _BATCH_KEYS and isinstance(value, list):
        return _messages(value)
    if key == "tools" and value:
        return TOKENS_WITH_TOOLS + _n_shown(value) if _are_local(value) else None
    if key == "functions" and value:
        return TOKENS_WITH_TOOLS + _n_shown(value)
    if key in ("system", "systemInstruction", "system_instruction") and not isinstance(value, str):
        return _messages([value])
    if isinstance(value, str):
        return TOKENS_PER_MESSAGE + _n_bytes(value)
    return _n_shown(value) if isinstance(value, (dict, list)) else 0


def _messages(messages: Sequence[Json]) -> int | None:
    return sum_of(TOKENS_PER_MESSAGE * len(messages), *map(_message, messages))


def _message(message: Json) -> int | None:
    """Return the bound of a message or of a part of one."""
    if isinstance(message, str):
        return _n_bytes(message)
    if isinstance(message, list):
        return _messages(message)
    if not isinstance(message, Mapping):
        return _n_shown(message)
    if _MEDIA_KEYS & message.keys() or message.get("type", "text") not in _TEXT_TYPES:
        return None
    if message.keys() == {"id"}:  # reference to an item whose text the provider adds
        return None
    nested = {k for k in ("content", "parts") if isinstance(message.get(k), (list, str))}
    return sum_of(*(_message(v) if k in nested else _n_shown({k: v}) for k, v in message.items()))


def _are_local(tools: Json) -> bool:
    """Return whether the caller runs all tools; other tools add their results to the prompt."""
    if not isinstance(tools, list):
        return False
    for tool in tools:
        if not isinstance(tool, Mapping):
            return False
        if "type" in tool and tool["type"] not in ("function", "custom"):
            return False
        if not {"type", "name", "function", *_GEMINI_CALLED} & tool.keys():
            return False
        if _GEMINI_CALLED & tool.keys() and not tool.keys() <= _GEMINI_CALLED:
            return False
    return True


def _n_shown(value: Json) -> int:
    """Return the bytes of a value in the longest template format, indented JSON."""
    return _n_bytes(json.dumps(value, ensure_ascii=False, indent=4))


def _n_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
