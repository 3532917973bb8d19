"""Which field a setting becomes, for each provider and model; no socket."""

from typing import Any

import pytest

from tasks.providers.fields import map_fields, n_answers, openai_dialect, output_limit
from tasks.providers.gemini import gemini_contents, gemini_request


def mapped(dialect, model, unsupported="refuse", **settings) -> Any:
    return map_fields(settings, dialect=dialect, model=model, unsupported=unsupported)


def body_of(dialect, model, **settings) -> Any:
    made = mapped(dialect, model, **settings)
    assert made.refused == ()
    return made.body


def refused_by(dialect, model, **settings) -> Any:
    return {name for name, _ in mapped(dialect, model, **settings).refused}


REASONING = ["o1", "o3-mini", "o4-mini-2025-04-16", "gpt-5", "gpt-5-mini", "ft:o4-mini:org::id"]


@pytest.mark.parametrize("dialect", ["openai", "azure", "compatible"])
@pytest.mark.parametrize("model", [*REASONING, "gpt-5.1", "GPT-5", "gpt-6-astra"])
def test_newer_models_of_openai_take_another_name_for_the_limit(dialect, model):
    assert body_of(dialect, model, max_tokens=9) == {"max_completion_tokens": 9}


@pytest.mark.parametrize(
    ("dialect", "model"),
    [
        ("openai", "gpt-4o-mini"),
        ("azure", "my-deployment"),
        ("compatible", "llama-3.1-8b"),
        ("compatible", "openai/gpt-5"),  # a gateway's own name
        ("compatible", "olmo-2"),
        ("groq", "openai/gpt-oss-20b"),
        ("gemini", "gemini-2.5-flash"),
    ],
)
def test_all_others_take_the_limit_as_it_is(dialect, model):
    assert body_of(dialect, model, max_tokens=9) == {"max_tokens": 9}
    assert body_of(dialect, model, max_completion_tokens=9) == {"max_completion_tokens": 9}


@pytest.mark.parametrize("model", REASONING)
def test_reasoning_models_take_no_sampling_but_its_defaults(model):
    settings = {
        "temperature": 0.5,
        "top_p": 0.9,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.1,
        "logprobs": True,
        "top_logprobs": 2,
        "logit_bias": {"1": 2},
    }
    assert refused_by("openai", model, **settings) == set(settings)
    defaults = {
        "temperature": 1.0,
        "top_p": 1,
        "presence_penalty": 0,
        "frequency_penalty": 0.0,
        "logprobs": False,
        "seed": 3,
        "reasoning_effort": "low",
    }
    assert body_of("openai", model, **defaults) == defaults


def test_models_that_do_not_reason_refuse_an_effort():
    assert refused_by("openai", "gpt-4o-mini", reasoning_effort="low") == {"reasoning_effort"}
    assert refused_by("azure", "gpt-4.1", reasoning_effort="low") == {"reasoning_effort"}
    assert not refused_by("compatible", "gpt-4o-mini", reasoning_effort="low")


def test_openai_has_no_top_k_and_servers_of_others_may():
    settings = {"top_k": 3, "min_p": 0.1, "repetition_penalty": 1.1}
    assert refused_by("openai", "gpt-4o", **settings) == set(settings)
    assert body_of("compatible", "llama", **settings) == settings


def test_geminis_compatible_endpoint_lacks_fields_that_its_own_protocol_has():
    settings = {"seed": 3, "top_k": 4, "frequency_penalty": 0.5}
    assert refused_by("gemini", "gemini-2.5-flash", **settings) == set(settings)
    made = native(settings)
    assert made.body["generationConfig"] == {"seed": 3, "topK": 4, "frequencyPenalty": 0.5}


def test_dropped_settings_are_left_out_with_their_reason():
    made = mapped("openai", "o3", "drop", temperature=0.5, max_tokens=9)
    assert made.body == {"max_completion_tokens": 9}
    assert made.dropped == ("temperature: the reasoning model takes its default only",)
    assert made.refused == ()


@pytest.mark.parametrize(
    ("url", "dialect"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://eu.api.openai.com/v1", "openai"),
        ("https://my-resource.openai.azure.com/openai/v1", "azure"),
        ("https://api.groq.com/openai/v1", "groq"),
        ("https://generativelanguage.googleapis.com/v1beta/openai", "gemini"),
        ("https://api.openai.com.example.org/v1", "compatible"),
        ("http://127.0.0.1:8000/v1", "compatible"),
    ],
)
def test_the_host_of_an_endpoint_tells_whose_fields_it_has(url, dialect):
    assert openai_dialect(url) == dialect


def test_bounds_of_an_answer_are_found_in_every_form():
    assert output_limit({"max_tokens": 5}) == 5
    assert output_limit({"max_completion_tokens": 5, "max_tokens": 9}) == 9
    assert output_limit({"generationConfig": {"maxOutputTokens": 7}}) == 7
    assert output_limit({"max_tokens": None}) is None
    assert (n_answers({}), n_answers({"n": 3})) == (1, 3)
    assert n_answers({"generationConfig": {"candidateCount": 2}}) == 2


# -- Gemini's own protocol


def native(settings, model="gemini-2.5-flash", messages=(), unsupported="refuse") -> Any:
    return gemini_request(messages, settings, model=model, unsupported=unsupported)


def test_settings_become_fields_of_the_generation():
    settings = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 3,
        "max_tokens": 9,
        "stop": "x",
        "seed": 7,
        "n": 2,
        "presence_penalty": 0.1,
        "logprobs": True,
        "top_logprobs": 2,
    }
    assert native(settings).body == {
        "contents": [],
        "generationConfig": {
            "temperature": 0.5,
            "topP": 0.9,
            "topK": 3,
            "maxOutputTokens": 9,
            "stopSequences": ["x"],
            "seed": 7,
            "candidateCount": 2,
            "presencePenalty": 0.1,
            "responseLogprobs": True,
            "logprobs": 2,
        },
    }


def test_settings_that_the_protocol_lacks_are_refused_or_dropped():
    settings = {"logit_bias": {"1": 2}, "parallel_tool_calls": False, "temperature": 0.5}
    assert {name for name, _ in native(settings).refused} == {"logit_bias", "parallel_tool_calls"}
    made = native(settings, unsupported="drop")
    assert [text.partition(":")[0] for text in made.dropped] == [
        "logit_bias",
        "parallel_tool_calls",
    ]
    assert made.body["generationConfig"] == {"temperature": 0.5}


def test_a_schema_becomes_the_form_of_the_response():
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "additionalProperties": False,
        "required": ["kind"],
        "properties": {
            "kind": {"const": "a"},
            "const": {"type": ["string", "null"]},
            "list": {"type": "array", "items": {"oneOf": [{"type": "integer"}]}},
        },
    }
    format_ = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    assert native({"response_format": format_}).body["generationConfig"] == {
        "responseMimeType": "application/json",
        "responseSchema": {
            "type": "object",
            "required": ["kind"],
            "properties": {
                "kind": {"enum": ["a"]},
                "const": {"type": "string", "nullable": True},
                "list": {"type": "array", "items": {"anyOf": [{"type": "integer"}]}},
            },
        },
    }
    assert native({"response_format": {"type": "json_object"}}).body["generationConfig"] == {
        "responseMimeType": "application/json"
    }
    assert "generationConfig" not in native({"response_format": {"type": "text"}}).body
    assert native({"response_format": "json"}).refused


@pytest.mark.parametrize(
    ("choice", "calling"),
    [
        ("auto", {"mode": "AUTO"}),
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        (
            {"type": "function", "function": {"name": "f"}},
            {"mode": "ANY", "allowedFunctionNames": ["f"]},
        ),
    ],
)
def test_tools_become_declarations(choice, calling):
    parameters = {"type": "object", "properties": {"x": {"type": "integer"}}}
    tools = [
        {"type": "function", "function": {"name": "f", "parameters": parameters, "strict": True}},
        {"type": "function", "function": {"name": "g", "parameters": {"type": "object"}}},
        {"googleSearch": {}},
    ]
    body = native({"tools": tools, "tool_choice": choice}).body
    assert body["tools"] == [
        {"googleSearch": {}},
        {"functionDeclarations": [{"name": "f", "parameters": parameters}, {"name": "g"}]},
    ]
    assert body["toolConfig"] == {"functionCallingConfig": calling}


def test_messages_become_an_instruction_and_turns():
    messages: Any = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "look"}, PICTURE, LINK]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "function": {"name": "f", "arguments": '{"x": 1}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
        {"role": "assistant", "content": "done"},
    ]
    system, turns = gemini_contents(messages)
    assert system == [{"text": "be brief"}]
    assert turns == [
        {
            "role": "user",
            "parts": [
                {"text": "look"},
                {"inlineData": {"mimeType": "image/png", "data": "QUJD"}},
                {"fileData": {"fileUri": "https://example.org/a.png"}},
            ],
        },
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"x": 1}}}]},
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "f", "response": {"result": "42"}}}],
        },
        {"role": "model", "parts": [{"text": "done"}]},
    ]


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
LINK = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
