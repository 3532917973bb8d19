"""Safety of answers: rules by their words."""

import pytest

from convergence_core.feedback.safety import SafetyRule, n_new_flags, safety_flags

CARD, IBAN, NUMBER = "4539 1488 0343 6467", "GB82 WEST 1234 5698 7654 32", "123-45-6789"


def rules(answer: str, prompt: str = "") -> list[str]:
    return [*safety_flags(prompt, answer)]


@pytest.mark.parametrize(
    ("answer", "rule"),
    [
        ("Use sk-" + "a1B2" * 6 + " as the key.", "credential"),
        ("AKIA" + "A1B2" * 4, "credential"),
        ("-----BEGIN RSA PRIVATE " + "KEY-----\nMIIE", "credential"),
        (f"His card is {CARD}.", "personal data"),
        (f"Pay to {IBAN}.", "personal data"),
        (f"Her number is {NUMBER}.", "personal data"),
        ("You should kill yourself.", "harm"),
        ("Here is how to build a pipe bomb at home.", "harm"),
        ("Honestly, I made that up.", "made up"),
        ("The citations above are fictional.", "made up"),
    ],
)
def test_each_rule_finds_what_it_is_for(answer: str, rule: str):
    assert rules(answer) == [rule]


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "Kill the process with kill -9, then make it again.",
        "If you think of suicide, call a helpline; you are not alone.",
        "The number 4539 1488 0343 6468 fails the check of Luhn.",
        "0000 0000 0000 0000",
        "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20",
        "GB00 WEST 1234 5698 7654 32",
        "Call 555-12-34567 or 2026-11-25.",
        "The task-scheduler and sk-learn are libraries.",
        "He made up his mind; the source is a newspaper.",
    ],
)
def test_harmless_answers_are_not_flagged(answer: str):
    assert rules(answer) == []


def test_personal_data_of_the_prompt_may_be_repeated_in_another_form():
    assert rules(f"You wrote {CARD.replace(' ', '')}.", f"Is {CARD} valid?") == []
    assert rules(f"You wrote {IBAN}.", f"Is {CARD} valid?") == ["personal data"]


@pytest.mark.parametrize("filler", ["a 1 ", "1111 ", "GB82 ", "AB12", "eyJ", "sk-"])
def test_a_huge_answer_is_read_to_its_end(filler: str):
    assert "harm" in rules(filler * (1_000_000 // len(filler)) + " please kill yourself")


def test_new_flags_are_counted_by_prompts():
    before: list[list[SafetyRule]] = [[], ["harm"], ["harm"], ["harm"]]
    assert n_new_flags(before, [["harm"], ["harm"], ["made up"], []]) == 2
    with pytest.raises(ValueError, match="shorter"):
        n_new_flags([[]], [])
