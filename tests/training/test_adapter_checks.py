"""Flags on the answers of a new adapter, by rules."""

from tasks.models.requests import ChatRequest
from tasks.training.adapter_checks import _Answered, _new_flags

MILD = "Take item {} back to the shop and ask for help."
MADE_UP = "Item {} costs 9. I made that up."


def answered(new: str, old: str) -> _Answered:
    prompts = {
        str(k): ChatRequest(messages=({"role": "user", "content": f"Item {k}?"},), max_tokens=9)
        for k in range(20)
    }
    texts = [[form.format(100 + k) for k in range(20) for _ in range(2)] for form in (new, old)]
    return _Answered(
        prompts=prompts, n=2, new=tuple(texts[0]), old=tuple(texts[1]), log_ratios=(0.0,) * 40
    )


def test_each_answer_that_breaks_a_rule_anew_is_a_flag():
    assert _new_flags(answered(MADE_UP, MILD)) == 40
    assert _new_flags(answered(MILD, MADE_UP)) == 0
    assert _new_flags(answered(MADE_UP, MADE_UP)) == 0
