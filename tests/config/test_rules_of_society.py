"""Rules of ``society``: who thinks, with what, and what that takes of other sections."""

from typing import Any, get_args

import pytest

from convergence_core.config import RlpConfig, parse_mapping
from convergence_core.config.optimization import SaoConfig, StrategyName
from convergence_core.rlp.strategies import STRATEGIES
from tests.support.config_examples import MINIMAL, edited, problems_of

LLM = {"model": "openai/gpt-4o-mini", "api_key_env": "OPENAI_API_KEY"}
THINKING = edited({"society": {"enabled": True, "llm": LLM}}, MINIMAL)


def rlp(**fields: Any) -> dict[str, Any]:
    return {"society/rlp": fields}


def sao(**fields: Any) -> dict[str, Any]:
    return {"society/sao": fields}


def test_preferences_are_asked_for_and_have_the_defaults_of_the_design():
    assert not parse_mapping(THINKING).society.prefers
    wanted = edited({"society/learning": {"sao_enabled": True}}, THINKING)
    assert parse_mapping(wanted).society.prefers
    default = SaoConfig()
    assert (default.every, default.n_samples, default.n_personas) == (3, 20, 100)
    assert (default.temperature, default.prompt_temperature) == (0.6, 0.9)
    assert (default.response_pairs, default.iterative_rounds, default.batch_size) == (2, 3, 10)
    assert (default.min_response_length, default.similarity_threshold) == (None, 0.9)
    assert (default.max_prompt_length, default.max_response_length) == (512, 2048)
    assert default.quality_filter
    assert default.diversity_factor == 0.7
    assert parse_mapping(edited(sao(temperature=None), wanted)).society.sao.temperature is None


TEXTS = {"type": "text", "variants": ["Be brief.", "Be kind."], "mutate": True}


def test_texts_may_mutate_with_and_without_preferences():
    assert problems_of({"search_space/parameters/t": TEXTS}, THINKING) == []
    wanted = edited({"society/learning": {"sao_enabled": True}}, THINKING)
    assert problems_of({"search_space/parameters/t": TEXTS}, wanted) == []


def test_a_society_that_is_enabled_thinks_and_asks_the_llm():
    configuration = parse_mapping(THINKING)
    assert configuration.society.thinks
    assert configuration.llm is not None
    assert configuration.society.rlp == RlpConfig()
    assert not parse_mapping(MINIMAL).society.thinks
    quiet = edited({"society": {"enabled": True, "learning": {"rlp_enabled": False}}}, MINIMAL)
    assert not parse_mapping(quiet).society.thinks


def test_the_original_fields_have_the_defaults_of_the_design():
    default = RlpConfig()
    assert default.thought_length == 2048
    assert default.temperature == 0.7
    assert default.buffer_size == 10_000
    assert (default.gamma, default.gae_lambda) == (0.99, 0.95)
    assert default.normalize_rewards
    assert default.use_logprobs == "auto"
    assert (default.clip_epsilon, default.kl_target, default.ema_decay) == (0.2, 0.02, 0.9)
    assert default.strategies == [*STRATEGIES] == [*get_args(StrategyName)]


def test_a_temperature_left_empty_is_not_sent():
    configuration = parse_mapping(edited(rlp(temperature=None), THINKING))
    assert configuration.society.rlp.temperature is None


def test_without_an_llm_the_configuration_is_fine_and_the_run_will_say_so():
    assert problems_of({"society": {"enabled": True}}, MINIMAL) == []


@pytest.mark.parametrize(
    ("changes", "key", "rule"),
    [
        (rlp(n_thoughts=0), "society.rlp.n_thoughts", "must be at least 1"),
        (rlp(max_share_usd=0), "society.rlp.max_share_usd", "must be above 0"),
        (rlp(max_share_usd=1.5), "society.rlp.max_share_usd", "must be at most 1"),
        (rlp(gamma=1.01), "society.rlp.gamma", "must be at most 1"),
        (rlp(strategies=[]), "society.rlp.strategies", "at least"),
        (rlp(strategies=["winers"]), "society.rlp.strategies[0]", "must be"),
        (rlp(strategies=["novelty", "novelty"]), "society.rlp.strategies", "once"),
        (rlp(use_gpu=True), "society.rlp.use_gpu", "must be"),
        (rlp(tought_length=5), "society.rlp.tought_length", "thought_length"),
        (sao(every=0), "society.sao.every", "must be at least 1"),
        (sao(response_pairs=1), "society.sao.response_pairs", "must be at least 2"),
        (sao(similarity_threshold=0), "society.sao.similarity_threshold", "must be above 0"),
        (sao(diversity_factor=1.1), "society.sao.diversity_factor", "must be at most 1"),
        (sao(max_share_usd=0), "society.sao.max_share_usd", "must be above 0"),
        (sao(n_persona=5), "society.sao.n_persona", "n_personas"),
        ({"storage/keep_text": False}, "storage.keep_text", "must be true"),
    ],
)
def test_what_cannot_be_is_refused(changes, key: str, rule: str):
    (problem,) = problems_of(changes, THINKING)
    assert problem.key == key
    assert rule in f"{problem.rule} {problem.fix}"
