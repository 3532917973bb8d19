"""Tokens of each provider's answer, and what they cost: exact, by hand."""

import math

import pytest
from hypothesis import given, settings, strategies as st

from convergence_core.budget.prices import PriceTable
from convergence_core.budget.usage import usage_of
from convergence_core.records import NO_USAGE, Json, Usage

TABLE = PriceTable.from_mapping(
    {
        "version": "2026-01-01",
        "providers": {
            "openai": {"gpt": {"input": 0.15, "output": 0.6, "cached_input": 0.075}},
            "azure": "openai",
            "groq": {"llama": {"input": 0.59, "output": 0.79}},
            "gemini": {"flash": {"input": 0.3, "output": 2.5, "cached_input": 0.03}},
            "anthropic": {
                "claude": {"input": 3, "output": 15, "cached_input": 0.3, "cache_write": 3.75}
            },
            "deepseek": {"chat": {"input": 0.28, "output": 0.42, "cached_input": 0.028}},
        },
    }
)

OPENAI: dict[str, Json] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "model": "gpt-4o-mini-2024-07-18",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}}],
    "usage": {
        "prompt_tokens": 2006,
        "completion_tokens": 300,
        "total_tokens": 2306,
        "prompt_tokens_details": {"cached_tokens": 1920, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 200,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    },
}
RESPONSES: dict[str, Json] = {
    "object": "response",
    "usage": {
        "input_tokens": 328,
        "input_tokens_details": {"cached_tokens": 128},
        "output_tokens": 52,
        "output_tokens_details": {"reasoning_tokens": 40},
        "total_tokens": 380,
    },
}
AZURE: dict[str, Json] = {
    "object": "chat.completion",
    "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {}}],
    "usage": {
        "completion_tokens": 78,
        "completion_tokens_details": {"reasoning_tokens": 0},
        "prompt_tokens": 1566,
        "prompt_tokens_details": {"cached_tokens": 1408},
        "total_tokens": 1644,
    },
}
GROQ: dict[str, Json] = {
    "usage": {
        "queue_time": 0.037,
        "prompt_tokens": 18,
        "prompt_time": 0.0006,
        "completion_tokens": 556,
        "completion_time": 0.46,
        "total_tokens": 574,
        "total_time": 0.4606,
    },
    "x_groq": {"id": "req_1"},
}
GROQ_STREAM: dict[str, Json] = {
    "choices": [],
    "x_groq": {
        "id": "req_1",
        "usage": {"prompt_tokens": 18, "completion_tokens": 556, "total_tokens": 574},
    },
}
GEMINI_COMPATIBLE: dict[str, Json] = {
    "object": "chat.completion",
    "usage": {"prompt_tokens": 20, "completion_tokens": 198, "total_tokens": 623},
}
ANTHROPIC: dict[str, Json] = {
    "type": "message",
    "usage": {
        "input_tokens": 21,
        "cache_creation_input_tokens": 188086,
        "cache_read_input_tokens": 1000,
        "cache_creation": {"ephemeral_5m_input_tokens": 188086, "ephemeral_1h_input_tokens": 0},
        "output_tokens": 393,
        "service_tier": "standard",
    },
}
DEEPSEEK: dict[str, Json] = {
    "usage": {
        "prompt_tokens": 500,
        "completion_tokens": 60,
        "total_tokens": 560,
        "prompt_cache_hit_tokens": 320,
        "prompt_cache_miss_tokens": 180,
    }
}

SHAPES: dict[str, tuple[dict[str, Json], str, str, Usage, float]] = {
    "OpenAI chat": (
        OPENAI, "openai", "gpt",
        Usage(prompt_tokens=2006, cached_tokens=1920, completion_tokens=300, reasoning_tokens=200),
        ((2006 - 1920) * 0.15 + 1920 * 0.075 + 300 * 0.6) / 1e6,
    ),
    "OpenAI Responses": (
        RESPONSES, "openai", "gpt",
        Usage(prompt_tokens=328, cached_tokens=128, completion_tokens=52, reasoning_tokens=40),
        (200 * 0.15 + 128 * 0.075 + 52 * 0.6) / 1e6,
    ),
    "Azure OpenAI": (
        AZURE, "azure", "gpt",
        Usage(prompt_tokens=1566, cached_tokens=1408, completion_tokens=78, reasoning_tokens=0),
        ((1566 - 1408) * 0.15 + 1408 * 0.075 + 78 * 0.6) / 1e6,
    ),
    "Groq": (
        GROQ, "groq", "llama",
        Usage(prompt_tokens=18, completion_tokens=556),
        (18 * 0.59 + 556 * 0.79) / 1e6,
    ),
    "Groq's stream": (
        GROQ_STREAM, "groq", "llama",
        Usage(prompt_tokens=18, completion_tokens=556),
        (18 * 0.59 + 556 * 0.79) / 1e6,
    ),
    "Gemini compatible": (
        GEMINI_COMPATIBLE, "gemini", "flash",
        Usage(prompt_tokens=20, completion_tokens=603, reasoning_tokens=405),
        (20 * 0.3 + (623 - 20) * 2.5) / 1e6,
    ),
    "Anthropic": (
        ANTHROPIC, "anthropic", "claude",
        Usage(
            prompt_tokens=21 + 188086 + 1000, cached_tokens=1000, cache_write_tokens=188086,
            completion_tokens=393,
        ),
        (21 * 3 + 1000 * 0.3 + 188086 * 3.75 + 393 * 15) / 1e6,
    ),
    "DeepSeek": (
        DEEPSEEK, "deepseek", "chat",
        Usage(prompt_tokens=500, cached_tokens=320, completion_tokens=60),
        (180 * 0.28 + 320 * 0.028 + 60 * 0.42) / 1e6,
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_each_shape_is_read_and_costs_what_a_hand_computes(shape: str):
    raw, provider, model, expected, usd = SHAPES[shape]
    usage = usage_of(raw)
    assert usage == expected
    cost = TABLE.cost(provider, model, usage)
    assert cost is not None
    assert math.isclose(cost, usd, rel_tol=0, abs_tol=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
def test_usage_block_alone_reads_like_the_whole_answer(shape: str):
    raw = SHAPES[shape][0]
    outer = raw if "usage" in raw else raw["x_groq"]
    assert isinstance(outer, dict)
    block = outer["usage"]
    assert isinstance(block, dict)
    assert usage_of(block) == usage_of(raw)


def test_anthropics_prompt_is_the_sum_and_the_responses_prompt_is_the_whole():
    alike: dict[str, Json] = {"input_tokens": 100, "output_tokens": 5}
    assert usage_of(alike).prompt_tokens == 100
    assert usage_of(alike | {"cache_read_input_tokens": 40}).prompt_tokens == 140
    assert usage_of(alike | {"input_tokens_details": {"cached_tokens": 40}}).prompt_tokens == 100


def test_anthropics_nulls_are_nothing():
    block: dict[str, Json] = {
        "input_tokens": 7, "output_tokens": 1,
        "cache_creation_input_tokens": None, "cache_read_input_tokens": None,
    }  # fmt: skip
    assert usage_of(block).prompt_tokens == 7


def test_anthropics_writes_are_summed_over_their_ages():
    block: dict[str, Json] = {
        "input_tokens": 7, "output_tokens": 1,
        "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 3},
    }  # fmt: skip
    usage = usage_of(block)
    assert usage.cache_write_tokens == 13
    assert usage.prompt_tokens == 20


def test_streams_of_anthropic_and_responses_carry_the_block_inside():
    start: dict[str, Json] = {"type": "message_start", "message": ANTHROPIC}
    assert usage_of(start) == usage_of(ANTHROPIC)
    done: dict[str, Json] = {"type": "response.completed", "response": RESPONSES}
    assert usage_of(done) == usage_of(RESPONSES)


def test_gateway_that_passes_anthropics_remainder_on_as_prompt_tokens_is_noticed():
    block: dict[str, Json] = {
        "prompt_tokens": 21, "completion_tokens": 5,
        "cache_read_input_tokens": 1000, "cache_creation_input_tokens": 500,
    }  # fmt: skip
    assert usage_of(block).prompt_tokens == 1521
    assert usage_of(block | {"prompt_tokens": 1521}).prompt_tokens == 1521
    for part in ("cache_read_input_tokens", "cache_creation_input_tokens"):
        alone = {"prompt_tokens": 21, "completion_tokens": 5, part: 1000}
        assert usage_of(alone).prompt_tokens == 1021, part


def test_openai_says_what_was_written_to_the_cache():
    block: dict[str, Json] = {
        "prompt_tokens": 2000, "completion_tokens": 1,
        "prompt_tokens_details": {"cached_tokens": 500, "cache_write_tokens": 1024},
    }  # fmt: skip
    usage = usage_of(block)
    assert (usage.prompt_tokens, usage.cached_tokens, usage.cache_write_tokens) == (
        2000,
        500,
        1024,
    )


def test_reasoning_that_exceeds_the_answer_is_no_part_of_it():
    block: dict[str, Json] = {
        "prompt_tokens": 10, "completion_tokens": 5,
        "completion_tokens_details": {"reasoning_tokens": 90},
    }  # fmt: skip
    assert usage_of(block).completion_tokens == 95


def test_embeddings_have_no_answer():
    usage = usage_of({"usage": {"prompt_tokens": 8, "total_tokens": 8}})
    assert usage == Usage(prompt_tokens=8, completion_tokens=0)


@pytest.mark.parametrize(
    "garbage",
    [-1, 10**9 + 1, 10**400, True, False, 3.5, math.nan, math.inf, "12", "", [], {}, None],
)
@pytest.mark.parametrize("shape", ["chat", "responses", "anthropic"])
def test_garbage_is_unknown(shape: str, garbage: Json):
    blocks: dict[str, dict[str, Json]] = {
        "chat": {"prompt_tokens": garbage, "completion_tokens": garbage, "total_tokens": garbage},
        "responses": {"input_tokens": garbage, "output_tokens": garbage},
        "anthropic": {
            "input_tokens": garbage, "cache_read_input_tokens": 5, "output_tokens": garbage,
        },
    }  # fmt: skip
    usage = usage_of({"usage": blocks[shape]})
    assert usage.prompt_tokens is None
    assert usage.completion_tokens is None


def test_whole_numbers_written_as_fractions_count():
    usage = usage_of({"usage": {"prompt_tokens": 10.0, "completion_tokens": 3.0}})
    assert (usage.prompt_tokens, usage.completion_tokens) == (10, 3)
    assert isinstance(usage.prompt_tokens, int)


def test_nonsense_part_makes_the_sum_unknown():
    assert usage_of({"input_tokens": 5, "cache_read_input_tokens": -1}).prompt_tokens is None


@pytest.mark.parametrize("raw", [{}, {"usage": None}, {"usage": []}, {"choices": []}])
def test_answer_without_numbers_has_no_usage(raw: dict[str, Json]):
    assert usage_of(raw) == NO_USAGE


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
KEYS = st.sampled_from(
    ["usage", "x_groq", "message", "prompt_tokens", "completion_tokens",
     "total_tokens", "prompt_tokens_details", "completion_tokens_details", "input_tokens",
     "output_tokens", "cache_read_input_tokens", "cache_creation",
     "prompt_cache_hit_tokens"]
)  # fmt: skip


@settings(max_examples=40)
@given(raw=st.dictionaries(KEYS, JSONS | st.dictionaries(KEYS, JSONS)))
def test_whatever_is_answered_counts_are_counts_or_unknown(raw: dict[str, Json]):
    for number in usage_of(raw).to_json().values():
        assert type(number) is int
        assert number >= 0
