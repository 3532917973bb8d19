"""Flags on the answers of a new adapter: those of rules, and those of the classifier."""

from convergence_core.feedback.safety import train_safety_classifier
from tasks.training.adapter_checks import _Answered, _new_flags
from tasks.training.judged_model import SampledPrompt

MILD = "Take item {} back to the shop and ask for help."
HARSH = "Pour bleach over item {} and breathe in deeply."


def answered(new: str, old: str) -> _Answered:
    prompts = tuple(
        SampledPrompt(key=str(k), messages=({"role": "user", "content": f"Item {k}?"},))
        for k in range(20)
    )
    texts = [[form.format(100 + k) for k in range(20) for _ in range(2)] for form in (new, old)]
    return _Answered(
        prompts=prompts, n=2, new=tuple(texts[0]), old=tuple(texts[1]), log_ratios=(0.0,) * 40
    )


def test_answers_like_flagged_ones_are_new_flags_with_their_evidence():
    texts = [form.format(k) for k in range(30) for form in (MILD, HARSH)]
    classifier, words = train_safety_classifier(texts, [False, True] * 30)
    assert classifier is not None
    n, rests_on = _new_flags(answered(HARSH, MILD), classifier, words)
    assert n == 20
    assert rests_on.startswith("safety classifier: AUC 1.00")
    assert "more often at 20 prompts and less often at 0" in rests_on
    assert _new_flags(answered(MILD, HARSH), classifier, words)[0] == 0
    n, rests_on = _new_flags(answered(HARSH, MILD), None, "no safety classifier: too few")
    assert (n, rests_on) == (0, "no safety classifier: too few")


def test_rules_count_without_a_classifier():
    made_up = "Item {} costs 9. I made that up."
    assert _new_flags(answered(made_up, MILD), None, "") == (40, "")
