"""Echo and log-probabilities, over real sockets with the real ``openai`` client."""

import math
from typing import Any

from tasks.mock.mock_server import MockServer
from tasks.mock.options import MockOptions
from tasks.mock.tiny_model import stories
from tests.mock.answers import logprobs as logprobs_of
from tests.mock.conftest import ask

STORY = next(stories(1, seed=9))
PROMPT = STORY.prompt(("best", "ant", "near", "t3"))


def echo(server: MockServer, prompt: str = f"{PROMPT} b4", **fields: Any) -> Any:
    fields = {"model": "tiny", "echo": True, "logprobs": 0, "max_tokens": 0, **fields}
    answer = ask(server, lambda client: client.completions.create(prompt=prompt, **fields))
    return answer, answer.choices[0].logprobs


def next_word(server: MockServer, prompt: str = PROMPT, **fields: Any) -> dict[str, float]:
    answer = ask(
        server,
        lambda client: client.chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": prompt}],
            logprobs=True,
            top_logprobs=20,
            max_tokens=1,
            **fields,
        ),
    )
    (entry,) = answer.choices[0].logprobs.content
    assert entry.token == answer.choices[0].message.content
    return {top.token: top.logprob for top in entry.top_logprobs}


def test_echo_gives_the_models_own_logprobs(server: MockServer):
    answer, logprobs = echo(server)
    expected = logprobs_of(f"{PROMPT} b4")
    assert logprobs.token_logprobs == expected
    assert math.fsum(logprobs.token_logprobs[1:]) == math.fsum(
        e for e in expected if e is not None
    )
    assert answer.usage.prompt_tokens == len(logprobs.tokens) == len(PROMPT.split()) + 1
    assert answer.choices[0].text == f"{PROMPT} b4"
    for token, offset in zip(logprobs.tokens, logprobs.text_offset, strict=True):
        assert answer.choices[0].text[offset : offset + len(token)] == token


def test_oracle_thoughts_raise_the_likelihood_over_the_wire(server: MockServer):
    told = [(s, s.prompt(("best", s.optimum.words[0], "near", s.optimum.words[1]))) for s in
            stories(40, seed=4)]  # fmt: skip
    prompts = [f"{prompt} {s.answer}" for s, prompt in told]
    prompts += [f"{s.prompt(('none',))} {s.answer}" for s, _ in told]
    answer = ask(
        server,
        lambda c: c.completions.create(
            model="tiny", prompt=prompts, echo=True, logprobs=0, max_tokens=0
        ),
    )
    last = [choice.logprobs.token_logprobs[-1] for choice in answer.choices]
    gains = [a - b for a, b in zip(last[:40], last[40:], strict=True)]
    assert sum(gains) / 40 > 0.6


def test_fault_modes_of_echo_and_chat():
    def gap(mode: Any, **fields: Any) -> float:
        with MockServer(MockOptions(fault_modes=(mode,))) as faulty:
            *_, echoed = echo(faulty, f"{PROMPT} b8", **fields)[1].token_logprobs
            return abs(float(echoed) - next_word(faulty)["b8"])

    assert gap("off_by_one") > 5.0
    assert gap("temperature", temperature=0.2) > 0.1
    with MockServer(MockOptions(fault_modes=("ignore",))) as faulty:
        answer, logprobs = echo(faulty, max_tokens=2)
        assert logprobs is None
        assert PROMPT not in answer.choices[0].text


def test_a_stale_server_changes_its_mind_after_an_overlapping_prompt(server: MockServer):
    other = PROMPT.replace("best ant near t3", "best ant near t9")

    def three(running: MockServer) -> list[list[float]]:
        return [echo(running, f"{p} b8")[1].token_logprobs for p in (PROMPT, other, PROMPT)]

    first, _, again = three(server)
    assert first == again
    with MockServer(MockOptions(fault_modes=("stale",))) as faulty:
        first, _, again = three(faulty)
        assert abs(first[-1] - again[-1]) > 0.001


def test_a_chats_prompt_is_told_as_vllm_tells_it(server: MockServer):
    answer = ask(
        server,
        lambda client: client.chat.completions.create(
            model="tiny",
            messages=[
                {"role": "user", "content": PROMPT},
                {"role": "assistant", "content": "b4"},
            ],
            max_tokens=1,
            extra_body={
                "prompt_logprobs": 2,
                "add_generation_prompt": False,
                "continue_final_message": True,
            },
        ),
    )
    first, *rest = answer.prompt_logprobs
    assert first is None
    assert len(rest) + 1 == answer.usage.prompt_tokens
    expected = logprobs_of(f"{PROMPT} b4")
    words = f"{PROMPT} b4".split()
    for entry, word, log in zip(rest, words[1:], expected[1:], strict=True):
        own, *likely = entry.values()
        assert (own["decoded_token"], own["logprob"]) == (word, log)
        assert {1, 2} <= {own["rank"], *(one["rank"] for one in likely)}
