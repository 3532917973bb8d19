"""Prices: which one applies, what a call costs, and what it can cost at most."""

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings, strategies as st

from convergence_core.budget.bounds import prompt_bound
from convergence_core.budget.prices import Price, PriceTable, provider_of
from convergence_core.config.models import PriceConfig
from convergence_core.records import NO_USAGE, Json, Usage

SHIPPED = Path(__file__).parents[3] / "data" / "prices" / "prices.yaml"


def table(**providers: object) -> PriceTable:
    return PriceTable.from_mapping({"version": "2026-01-01", "providers": providers})


@pytest.fixture(scope="module")
def shipped() -> PriceTable:
    return PriceTable.from_mapping(yaml.safe_load(SHIPPED.read_text(encoding="utf-8")))


CALL = Usage(prompt_tokens=1000, completion_tokens=100)


class TestFinding:
    def test_longer_name_is_another_model(self, shipped: PriceTable):
        only = table(openai={"gpt-4o": {"input": 2.5, "output": 10}})
        assert only.find("openai", "gpt-4o-mini") is None
        assert shipped.find("openai", "gpt-4o") != shipped.find("openai", "gpt-4o-mini")
        assert shipped.find("openai", "gpt-4o-mini-audio-preview-2024-12-17") is None

    @pytest.mark.parametrize(
        "name", ["gpt-4o-mini", "gpt-4o-mini-2024-07-18", "gpt-4o-mini-latest",
                 "openai/gpt-4o-mini", "openai/gpt-4o-mini-2024-07-18"],
    )  # fmt: skip
    def test_date_and_provider_are_taken_off(self, shipped: PriceTable, name: str):
        price = shipped.find("openai", name)
        assert price is not None
        assert price.input == 0.15

    def test_snapshot_with_a_price_of_its_own_has_it(self, shipped: PriceTable):
        price = shipped.find("openai", "gpt-4o-2024-05-13")
        assert price is not None
        assert price.input == 5.0

    def test_other_ways_to_write_a_date(self, shipped: PriceTable):
        assert shipped.find("anthropic", "claude-3-5-haiku-20241022") is not None
        assert shipped.find("anthropic", "claude-3-5-haiku@20241022") is not None
        assert shipped.find("gemini", "models/gemini-2.5-flash") is not None

    def test_open_models_are_priced_by_their_host_alone(self, shipped: PriceTable):
        assert shipped.find("groq", "openai/gpt-oss-20b") is not None
        assert shipped.find("openai", "openai/gpt-oss-20b") is None
        assert shipped.find("openai", "llama-3.1-8b-instant") is None

    def test_closed_models_are_known_behind_a_gateway(self, shipped: PriceTable):
        direct = shipped.find("anthropic", "claude-sonnet-4-5")
        assert direct is not None
        assert shipped.find("openrouter", "claude-sonnet-4-5-20250929") == direct
        assert shipped.find("openai-compatible", "anthropic/claude-sonnet-4.5") == direct
        for prefix, model in [
            ("azure", "o3"),
            ("groq", "qwen/qwen3-32b"),
            ("vertex_ai", "gemini-2.5-pro"),
        ]:
            named = shipped.find("openai-compatible", f"{prefix}/{model}")
            assert named == shipped.find(prefix.replace("vertex_ai", "gemini"), model) is not None
        assert shipped.find("openrouter", "deepseek/deepseek-v4-flash") is None

    def test_a_table_holds_at_its_providers_own_host_only(self, shipped: PriceTable):
        assert shipped.find("openai-compatible", "gpt-4o-mini") is None
        assert shipped.find("anthropic-compatible", "claude-sonnet-4-5") is None
        assert shipped.find("openai", "claude-sonnet-4-5") is None
        assert shipped.facts("openai-compatible", "gpt-4o").context_tokens == 128_000
        assert shipped.facts("openai-compatible", "gpt-4o").input is None
        stated = shipped.with_overrides({"openai/gpt-4o-mini": {"input": 0.2, "output": 0.7}})
        worst = stated.worst_case("openai-compatible", "gpt-4o-mini", 1000, None)
        assert worst == pytest.approx((1000 * 0.2 + 16_384 * 0.7) / 1e6)

    def test_azure_is_priced_as_openai(self, shipped: PriceTable):
        assert shipped.find("azure", "gpt-4o") == shipped.find("openai", "gpt-4o")

    def test_unknown_model_or_provider_has_no_price(self, shipped: PriceTable):
        assert shipped.find("openai", "no-such-model") is None
        assert shipped.find("nobody", "gpt-4o") is None
        assert shipped.find("http", None) is None
        assert shipped.cost("openai", "no-such-model", CALL) is None
        assert shipped.worst_case("openai", "no-such-model", 1, 1) is None
        assert shipped.version_of("openai", "no-such-model") is None

    @pytest.mark.parametrize(
        ("kind", "endpoint", "provider"),
        [
            ("openai", "https://api.openai.com/v1", "openai"),
            ("openai", "https://api.deepseek.com/v1", "deepseek"),
            ("openai", "https://res.openai.azure.com/openai/v1", "azure"),
            ("azure", "https://corp.azure-api.net/openai", "azure"),
            ("anthropic", "https://r.services.ai.azure.com/anthropic", "anthropic"),
            ("gemini", "https://us-central1-aiplatform.googleapis.com/v1/x/openapi", "gemini"),
            ("openai", "http://localhost:8000/v1", "openai-compatible"),
            ("openai", "https://api.mistral.ai.example.com/v1", "openai-compatible"),
            ("openai", None, "openai"),
            ("groq", "http://localhost:1/v1", "groq-compatible"),
            ("http", "https://api.mistral.ai/v1", "http"),
        ],
    )
    def test_host_tells_the_provider(self, kind: str, endpoint: str | None, provider: str):
        assert provider_of(kind, endpoint) == provider


class TestCost:
    def test_unknown_tokens_at_a_price_are_an_unknown_cost(self):
        price = Price(input=1.0, output=2.0)
        assert price.cost(NO_USAGE) is None
        assert price.cost(Usage(prompt_tokens=5)) is None
        assert price.cost(Usage(completion_tokens=5)) is None

    def test_unknown_tokens_at_no_price_cost_nothing(self):
        assert Price(input=0.0, output=0.0).cost(NO_USAGE) == 0
        embedding = Price(input=0.02, output=0.0)
        assert embedding.cost(Usage(prompt_tokens=1_000_000)) == 0.02

    def test_price_that_is_not_told_is_unknown_unless_nothing_was_used(self):
        price = Price(input=1.0)
        assert price.cost(CALL) is None
        assert price.cost(Usage(prompt_tokens=1_000_000, completion_tokens=0)) == 1.0

    def test_cache_falls_back_to_input(self):
        price = Price(input=4.0, output=0.0)
        usage = Usage(prompt_tokens=100, cached_tokens=40, cache_write_tokens=50)
        assert price.cost(usage) == pytest.approx(100 * 4e-6, abs=1e-15)

    def test_free_cache_is_not_a_missing_one(self):
        price = Price(input=4.0, output=0.0, cached_input=0.0)
        assert price.cost(Usage(prompt_tokens=100, cached_tokens=100)) == 0

    def test_parts_never_exceed_the_prompt(self):
        price = Price(input=4.0, output=0.0, cached_input=1.0, cache_write=8.0)
        usage = Usage(prompt_tokens=100, cached_tokens=90, cache_write_tokens=90)
        assert price.cost(usage) == pytest.approx((90 * 1 + 10 * 8) / 1e6, abs=1e-15)

    def test_long_prompts_cost_more_with_all_their_tokens(self, shipped: PriceTable):
        at = Usage(prompt_tokens=200_000, completion_tokens=10)
        beyond = Usage(prompt_tokens=200_001, completion_tokens=10)
        cost = shipped.cost("gemini", "gemini-2.5-pro", at)
        assert cost == pytest.approx((200_000 * 1.25 + 10 * 10) / 1e6, abs=1e-9)
        cost = shipped.cost("gemini", "gemini-2.5-pro", beyond)
        assert cost == pytest.approx((200_001 * 2.5 + 10 * 15) / 1e6, abs=1e-9)


class TestWorstCase:
    def test_dearest_way_to_be_billed_is_taken(self):
        price = Price(input=3.0, output=15.0, cache_write=3.75, request=0.5)
        assert price.worst_case(1_000_000, 1_000_000) == 3.75 + 15.0 + 0.5

    def test_unknown_bound_is_an_unknown_worst_case(self):
        price = Price(input=3.0, output=15.0)
        assert price.worst_case(10, None) is None
        assert price.worst_case(None, 10) is None

    def test_longest_answer_of_the_model_bounds_a_call_without_limit(self):
        price = Price(input=0.0, output=10.0, max_output_tokens=100_000)
        assert price.worst_case(None, None) == 1.0

    def test_prompt_is_never_longer_than_the_context(self):
        price = Price(input=1.0, output=0.0, context_tokens=1000)
        assert price.worst_case(10_000_000, 0) == pytest.approx(0.001)

    @given(
        counts=st.tuples(st.integers(0, 600_000), st.integers(0, 5000)),
        spare=st.tuples(st.integers(0, 600_000), st.integers(0, 5000)),
        shares=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    )
    def test_no_usage_within_the_bounds_costs_more(
        self,
        shipped: PriceTable,
        *,
        counts: tuple[int, int],
        spare: tuple[int, int],
        shares: tuple[float, float],
    ):
        prompt, written = counts
        cached = int(prompt * shares[0])
        usage = Usage(
            prompt_tokens=prompt, cached_tokens=cached,
            cache_write_tokens=int((prompt - cached) * shares[1]), completion_tokens=written,
        )  # fmt: skip
        for provider, models in shipped.entries.items():
            for model in models:
                price = shipped.find(provider, model)
                assert price is not None
                if price.context_tokens is not None and prompt > price.context_tokens:
                    continue  # refused, and not billed
                cost = price.cost(usage)
                bound = price.worst_case(prompt + spare[0], written + spare[1])
                assert cost is not None
                assert bound is not None
                assert cost <= bound * (1 + 1e-12)


class TestOverrides:
    BASE = table(openai={"m": {"input": 1, "output": 2, "cached_input": 0.5}})

    def test_override_wins_for_every_provider_and_snapshot(self):
        mine = self.BASE.with_overrides({"m": {"input": 7.0, "output": 8.0}})
        for provider, name in [("openai", "m"), ("groq", "m"), ("openai", "m-2025-01-02")]:
            price = mine.find(provider, name)
            assert price is not None
            assert (price.input, price.output) == (7.0, 8.0)
            assert mine.version_of(provider, name) == "config"
        assert self.BASE.version_of("openai", "m") == "2026-01-01"

    def test_new_input_price_takes_the_caches_with_it(self):
        price = self.BASE.with_overrides({"m": {"input": 7.0}}).find("openai", "m")
        assert price is not None
        assert price.output == 2
        assert price.cost(Usage(prompt_tokens=10, cached_tokens=10, completion_tokens=0)) == 7e-5

    def test_what_an_override_does_not_name_stays(self):
        price = self.BASE.with_overrides({"m": {"max_output_tokens": 9}}).find("openai", "m")
        assert price is not None
        assert price.max_output_tokens == 9
        assert (price.input, price.cached_input) == (1, 0.5)

    def test_configuration_is_taken_as_it_is(self):
        mine = self.BASE.with_overrides(
            {
                "m": PriceConfig(max_output_tokens=9),
                "new": PriceConfig(input=1, output=3),
                "http": PriceConfig(request=0.002),
                "function": PriceConfig(),
            }
        )
        price = mine.find("openai", "m")
        assert price is not None
        assert price.input == 1
        assert mine.cost("openai", "new", CALL) == pytest.approx(0.0013)
        assert mine.cost("http", None, NO_USAGE) == 0.002
        assert mine.worst_case("http", None, None, None) == 0.002
        assert mine.cost("function", None, NO_USAGE) == 0

    def test_length_alone_is_no_price(self):
        mine = self.BASE.with_overrides({"new": PriceConfig(max_output_tokens=9)})
        assert mine.cost("openai", "new", CALL) is None
        assert mine.worst_case("openai", "new", 1, 1) is None

    def test_price_per_request_alone_needs_no_tokens(self):
        mine = self.BASE.with_overrides({"new": PriceConfig(request=0.01)})
        assert mine.cost("openai", "new", NO_USAGE) == 0.01

    def test_price_of_a_kind_does_not_price_models(self):
        mine = self.BASE.with_overrides({"http": {"request": 0.01}})
        assert mine.find("openai", "new") is None
        assert mine.cost("http", "some-model", NO_USAGE) == 0.01


class TestReading:
    def test_shipped_table_is_read_whole(self, shipped: PriceTable):
        assert {"openai", "azure", "groq", "gemini", "anthropic"} <= shipped.entries.keys()
        for models in shipped.entries.values():
            for price in models.values():
                assert price.input is not None
                assert price.output is not None
                assert 0 <= price.input <= 200
                assert price.output == 0 or price.output >= price.input
                assert (price.cached_input or 0) <= price.input

    def test_shipped_prices_are_numbers(self):
        providers = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))["providers"].values()
        models = [
            facts for models in providers if isinstance(models, dict) for facts in models.values()
        ]
        numbers = [value for facts in models for key, value in facts.items() if key != "names"]
        assert len(numbers) > 200
        assert all(type(number) in (int, float) and 0 <= number < 1e9 for number in numbers)
        factors = [facts.get("long_input_factor", 1) for facts in models]
        assert min(factors) >= 1


class TestPromptBound:
    @pytest.mark.parametrize("text", ["", "hello", "naïve café", "日本語", "🧪" * 50, "\ud800"])
    def test_texts_count_by_their_bytes(self, text: str):
        n_bytes = len(text.encode("utf-8", "surrogatepass"))
        bound = prompt_bound([{"role": "user", "content": text}])
        assert bound is not None
        assert n_bytes < bound <= 2 * n_bytes + 400

    @given(texts=st.lists(st.text(), max_size=5), more=st.text())
    def test_longer_prompts_have_larger_bounds(self, texts: list[str], more: str):
        def bound(of: list[str]) -> int:
            messages: list[Json] = [{"role": "user", "content": text} for text in of]
            found = prompt_bound({"model": "m", "messages": messages})
            assert found is not None
            return found

        assert bound([*texts, more]) > bound(texts)
        assert bound(texts) >= sum(len(text.encode()) for text in texts)

    def test_parts_tools_and_schemas_count(self):
        message: Json = {"role": "user", "content": [{"type": "text", "text": "x" * 500}]}
        plain = prompt_bound({"messages": [message]})
        tool: Json = {"type": "function", "function": {"name": "f", "description": "y" * 700}}
        with_tool = prompt_bound({"messages": [message], "tools": [tool]})
        schema: Json = {"type": "json_schema", "json_schema": {"schema": {"title": "z" * 300}}}
        with_schema = prompt_bound({"messages": [message], "response_format": schema})
        assert plain is not None
        assert plain > 500
        assert with_tool is not None
        assert with_tool > plain + 700
        assert with_schema is not None
        assert with_schema > plain + 300

    @settings(max_examples=30)
    @given(
        shown=st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        )
    )
    def test_structures_count_as_indented_json(self, shown: Json):
        schema: Json = {"title": shown}
        found = prompt_bound({"response_format": schema})
        n_bytes = len(json.dumps(schema, ensure_ascii=False, indent=4).encode())
        assert found == prompt_bound({}) + n_bytes  # type: ignore[operator]  # known

    def test_prompts_of_a_batch_count_one_by_one(self):
        texts: list[Json] = ["x" * 500, "naïve\n" * 10]
        whole, none = prompt_bound({"prompt": texts}), prompt_bound({})
        parts = [prompt_bound({"prompt": text}) for text in texts]
        assert whole is not None
        assert none is not None
        assert whole - none == sum(part - none for part in parts if part is not None)
        tokens = prompt_bound({"prompt": [[1, 2, 3], [4]]})
        assert tokens is not None
        assert tokens >= none + 4

    def test_calls_of_tools_and_their_results_count(self):
        messages: Json = [
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": "x" * 400}}
            ]},
            {"role": "tool", "tool_call_id": "1", "content": "y" * 600},
        ]  # fmt: skip
        bound = prompt_bound(messages)
        assert bound is not None
        assert bound > 1000

    @pytest.mark.parametrize(
        "body",
        [
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}],
            [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}],
            [{"role": "user", "content": [{"type": "document", "source": {}}]}],
            {"contents": [{"parts": [{"inlineData": {"data": "AA"}}]}]},
            {"messages": [], "previous_response_id": "resp_1"},
            {"input": [{"id": "msg_1"}]},
            {"contents": [], "cachedContent": "cachedContents/1"},
            {"input": "x", "prompt": {"id": "pmpt_1"}},
            {"messages": [], "tools": [{"type": "web_search_20250305", "name": "web_search"}]},
            {"contents": [], "tools": [{"googleSearch": {}}]},
            {"contents": [], "tools": [{"functionDeclarations": [], "urlContext": {}}]},
            {"contents": [], "tools": {"googleSearch": {}}},
            {"contents": [], "tools": ["web_search"]},
        ],
    )
    def test_what_cannot_be_bounded_is_unknown(self, body: Json):
        assert prompt_bound(body) is None

    def test_parameter_of_a_tool_may_be_called_image_url(self):
        tool: Json = {"type": "function", "function": {"parameters": {"image_url": {"type": "s"}}}}
        assert prompt_bound({"messages": [], "tools": [tool]}) is not None

    def test_bare_texts_and_lists_of_texts_count(self):
        text = prompt_bound("x" * 300)
        assert text is not None
        assert 300 < text < 700
        embedded = prompt_bound({"model": "m", "input": ["x" * 300, "y" * 300]})
        assert embedded is not None
        assert embedded > 600

    def test_older_functions_count_like_tools(self):
        bound = prompt_bound(
            {"messages": [], "functions": [{"name": "f", "description": "x" * 99}]}
        )
        assert bound is not None
        assert bound > 1024 + 99

    @pytest.mark.parametrize("body", [None, 3, True, [[1, 2]], {"messages": [None, 7]}])
    def test_bodies_of_no_known_form_have_a_bound_of_their_text(self, body: Json):
        bound = prompt_bound(body)
        assert bound is not None
        assert 0 < bound < 400
