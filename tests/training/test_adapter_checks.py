"""Flags on the answers of a new adapter, by rules; and adapters that the model cannot load."""

from pathlib import Path

import pytest

from convergence_core.feedback.activation_gate import lacks_power
from tasks.models.files import ModelFiles, missing_libraries
from tasks.models.requests import ChatRequest
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.training.adapter_checks import _Answered, _new_flags, check_adapter
from tasks.training.marks import collect
from tests.support.configurations import loaded

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


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_libraries()), reason="needs the extra `local`")
@pytest.mark.parametrize(
    ("settings", "number", "words"),
    [
        ({}, float("nan"), "are not finite"),
        ({}, 3e38, "makes numbers of the model that are not finite"),
        ({"rank": 0}, None, "a rank r of at least 1"),
        ({"lora_alpha": "x"}, None, 'a wrong `lora_alpha`, "x"'),
        ({"alpha_pattern": [1]}, None, "a wrong `alpha_pattern`, a list of 1"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_an_adapter_that_cannot_be_loaded_fails_its_first_check(
    tmp_path: Path, settings: dict[str, object], number: float | None, words: str
):
    from tests.models.tiny_adapters import make_adapter, make_model, spoil

    files = ModelFiles(folder=make_model(tmp_path / "tiny"), gguf=None)
    new = make_adapter(tmp_path / "assistant-0001", 1, **settings)  # type: ignore[arg-type]
    if number is not None:
        spoil(new, number)
    with FeedbackStore(tmp_path / "store") as store:
        marks = collect(store, role="assistant", models=["tiny"], held_out=0.5)
    checks = check_adapter(loaded(), files, marks, new=new, old=None, old_version=None)
    failed = {check.name: check.words for check in checks if not check.passed}
    assert words in failed["weights"]
    assert not lacks_power(checks)  # so it is rejected
