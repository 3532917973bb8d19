"""Rules that stand in for a model: no sentence twice, and diagnoses that are so."""

from typing import get_args

import numpy as np
import pytest

from convergence_core.config.prompts import OperatorName
from convergence_core.prompts.invariants import kept_placeholders, placeholders_of
from convergence_core.prompts.operators import Shown
from convergence_core.prompts.twins import written_by_rules

LABELS = ("happy", "sad")
WRONG = (Shown(input="a", answer="sad", expected="happy", reason="exact=0.00"),)
OTHER = (Shown(input="a", answer="so-so", expected="happy", reason="exact=0.00"),)


@pytest.mark.parametrize(
    "operator", [name for name in get_args(OperatorName) if name not in {"merge", "induce"}]
)
@pytest.mark.parametrize("labels", [(), LABELS])
def test_no_sentence_is_added_twice(operator: OperatorName, labels: tuple[str, ...]):
    rng, text = np.random.default_rng(0), "Name the mood."
    for _ in range(40):
        text = written_by_rules(operator, [text], WRONG, rng, labels).text or ""
        lines = text.splitlines()
        assert len(lines) == len(set(lines))


def test_a_diagnosis_tells_wrong_labels_from_no_labels():
    rng = np.random.default_rng(0)
    told = [
        written_by_rules("reflect", ["Name the mood."], shown, rng, LABELS).diagnosis
        for shown in (WRONG, OTHER)
    ]
    assert told == [
        "Answers differ from what is expected.",
        "Answers are none of the few expected values.",
    ]


def test_a_merge_by_rules_keeps_the_placeholders_of_both_parents():
    first, second = "Answer {q}. Be brief.", "Answer {q}. Use {page} alone. Cite {page} and {q}."
    for order in ([first, second], [second, first]):
        text = written_by_rules("merge", order, (), np.random.default_rng(0)).text or ""
        assert placeholders_of(text) == kept_placeholders(order) == ("{page}", "{q}")
        assert "Be brief." in text
