"""Which field a setting becomes, for each provider and model; no socket."""

from typing import Any

import pytest

from tasks.providers.fields import map_fields, n_answers, openai_dialect, output_limit


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


def test_geminis_compatible_endpoint_lacks_fields():
    settings = {"seed": 3, "top_k": 4, "frequency_penalty": 0.5}
    assert refused_by("gemini", "gemini-2.5-flash", **settings) == set(settings)


def test_dropped_settings_are_left_out_with_their_reason():
    made = mapped("openai", "o3", "drop", temperature=0.5, max_tokens=9)
    assert made.body == {"max_completion_tokens": 9}
    assert made.dropped == ("temperature: the reasoning model accepts only its default",)
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
    assert output_limit({"max_tokens": None}) is None
    assert (n_answers({}), n_answers({"n": 3})) == (1, 3)
