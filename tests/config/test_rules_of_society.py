"""Rules of ``society``: who thinks, with what, and what that takes of other sections."""

from typing import Any

import pytest

from convergence_core.config import RlpConfig, parse_mapping
from convergence_core.config.optimization import SaoConfig
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
    assert default.temperature == 0.6
    assert (default.response_pairs, default.iterative_rounds) == (2, 3)
    assert default.quality_filter
    assert parse_mapping(edited(sao(temperature=None), wanted)).society.sao.temperature is None


def test_a_society_that_is_enabled_thinks_and_asks_the_llm():
    configuration = parse_mapping(THINKING)
    assert configuration.society.thinks
    assert configuration.llm is not None
    assert configuration.society.rlp == RlpConfig()
    assert not parse_mapping(MINIMAL).society.thinks
    quiet = edited({"society": {"enabled": True, "learning": {"rlp_enabled": False}}}, MINIMAL)
    assert not parse_mapping(quiet).society.thinks


@pytest.mark.parametrize(
    ("changes", "key", "rule"),
    [
        (rlp(n_predicted=0), "society.rlp.n_predicted", "must be at least 1"),
        (rlp(max_share_usd=0), "society.rlp.max_share_usd", "must be above 0"),
        (rlp(max_share_usd=1.5), "society.rlp.max_share_usd", "must be at most 1"),
        (rlp(tought_length=5), "society.rlp.tought_length", "thought_length"),
        (sao(every=0), "society.sao.every", "must be at least 1"),
        (sao(response_pairs=1), "society.sao.response_pairs", "must be at least 2"),
        (sao(max_share_usd=0), "society.sao.max_share_usd", "must be above 0"),
        (sao(n_persona=5), "society.sao.n_persona", "n_personas"),
        ({"storage/keep_text": False}, "storage.keep_text", "must be true"),
    ],
)
def test_what_cannot_be_is_refused(changes, key: str, rule: str):
    (problem,) = problems_of(changes, THINKING)
    assert problem.key == key
    assert rule in f"{problem.rule} {problem.fix}"
