"""Answers to held-out prompts: each prompt draws for itself, and the same each time."""

from collections import Counter
from pathlib import Path

import pytest

from tasks.models.files import ModelFiles, missing_libraries
from tasks.models.requests import ChatRequest
from tasks.training.judged_model import JudgedModel, answer_seed


def test_every_answer_has_a_seed_of_its_own_and_keeps_it():
    keys = [f"key {i}" for i in range(50)]
    seeds = {
        (seed, key, k): answer_seed(seed, key, k)
        for seed in (0, 1)
        for key in keys
        for k in range(4)
    }
    assert len(set(seeds.values())) == len(seeds) == 400
    assert all(0 <= one < 2**63 for one in seeds.values())
    assert answer_seed(0, "key 0", 0) == seeds[0, "key 0", 0]
    assert answer_seed(0, "\ud800", 0) != answer_seed(0, "?", 0)  # no text is refused


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_libraries()), reason="needs the extra `local`")
@pytest.mark.filterwarnings("ignore")
def test_prompts_with_the_same_words_are_not_answered_alike(tmp_path: Path):
    from tests.models.tiny_adapters import make_model

    files = ModelFiles(folder=make_model(tmp_path / "tiny"), gguf=None)
    messages = ({"role": "user", "content": "w1 w2"},)
    prompt = ChatRequest(messages=messages, max_tokens=8, temperature=1.0)
    prompts = {str(i): prompt for i in range(20)}
    with JudgedModel(files) as model:
        once = model.answers(prompts, None, n=2, seed=0)
        again = model.answers(prompts, None, n=2, seed=0)
        other = model.answers(prompts, None, n=2, seed=1)
        problem = model.adapter_problem(tmp_path / "assistant-0001")
    assert once == again
    assert (
        Counter(once).most_common(1)[0][1] <= 4
    )  # with shared seeds two texts were said 20 times each
    assert once != other
    assert problem.startswith("the adapter assistant-0001 is not there")
