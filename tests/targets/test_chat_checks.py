"""Problems of a configuration that no call has to be made to see."""

from typing import Any

import pytest

from convergence_core.config import parse_mapping
from tasks.targets.chat_checks import check_parameters
from tests.support.chat_servers import TEMPERATURE, azure_api, gemini_api, groq_api
from tests.support.configurations import chat_api, mapping

RANGE = {"type": "float", "min": 0, "max": 2}
OPENAI = "https://api.openai.com/v1"


def problems(api, url=OPENAI, *, options=None, unsupported="refuse", **parameters) -> Any:
    request = {"options": {"model": "m"} if options is None else options}
    configuration = parse_mapping(
        mapping(
            api=api(url, request={**request, "unsupported": unsupported}),
            search_space__parameters=parameters or TEMPERATURE,
        )
    )
    return {problem.key: problem for problem in check_parameters(configuration, {})}


def model_of(*names) -> Any:
    return {"type": "categorical", "choices": list(names)}


def test_a_parameter_that_no_request_holds_is_told_with_the_nearest_field():
    (problem,) = problems(chat_api, temprature=RANGE).values()
    assert problem.key == "search_space.parameters.temprature"
    assert "Did you mean `temperature`?" in problem.fix


@pytest.mark.parametrize(
    ("api", "model", "name", "parameter"),
    [
        (chat_api, "o3-mini", "temperature", RANGE),
        (chat_api, "gpt-4o", "top_k", {"type": "int", "min": 1, "max": 9}),
        (chat_api, "gpt-4o", "reasoning_effort", model_of("low", "high")),
        (azure_api, "gpt-5", "logprobs", {"type": "categorical", "choices": [True]}),
        (groq_api, "llama", "n", {"type": "int", "min": 1, "max": 3}),
        (groq_api, "llama", "logprobs", {"type": "boolean"}),
        (gemini_api, "gemini-2.5-flash", "seed", {"type": "int", "min": 1, "max": 9}),
    ],
)
def test_a_parameter_that_the_model_has_no_field_for_is_told(api, model, name, parameter):
    (problem,) = problems(api, options={"model": model}, **{name: parameter}).values()
    assert problem.key == f"search_space.parameters.{name}"
    assert model in problem.rule
    assert "unsupported: drop" in problem.fix


def test_one_model_that_takes_it_is_enough():
    space = {"temperature": RANGE, "model": model_of("o3-mini", "gpt-4o")}
    assert not problems(chat_api, options={}, **space)
    space = {"temperature": RANGE, "model": model_of("o3-mini", "gpt-5")}
    (problem,) = problems(chat_api, options={}, **space).values()
    assert "any of the 2 models" in problem.rule


def test_an_effort_that_is_set_takes_the_sampling_away():
    options = {"model": "gpt-5.1", "reasoning_effort": "high"}
    assert problems(chat_api, options=options, temperature=RANGE)
    assert not problems(chat_api, options={"model": "gpt-5.1"}, temperature=RANGE)
