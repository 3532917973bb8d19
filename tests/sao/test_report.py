"""The sentence on preferences says what they did, and nothing that they did not."""

from dataclasses import replace
from typing import Any

import pytest

from convergence_core.judges.trust import Audit, Trust
from convergence_core.sao.history import RoundHistory
from convergence_core.sao.report import PreferenceReport, PreferenceRound
from convergence_core.sao.round_plan import RoundPlan
from convergence_core.sao.round_result import RoundOutcome, SaoRound
from convergence_core.sao.rows import round_tables
from convergence_core.sao.state import SaoState
from tasks.report.sao_section import preference_lines

ROUND = PreferenceRound(
    generation=3, n_prompts=20, n_pairs=20, n_kept=9, accuracy=0.8, n_items=50, trust=0.43, is_enabled=True,
    lower_bound=0.715,
)  # fmt: skip
NOTHING = "Preferences did not change the search: "


def report(*rounds: PreferenceRound, **more: Any) -> PreferenceReport:
    return replace(PreferenceReport(rounds=rounds), **more)


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (report(), "Preferences changed nothing: no pair was kept."),
        (report(replace(ROUND, n_kept=0)), "Preferences changed nothing: no pair was kept."),
        (report(replace(ROUND, trust=0.1, is_enabled=False)), f"{NOTHING}the judge is disabled, with a trust of 0.10"),
        (report(replace(ROUND, trust=0.0, is_enabled=False, n_missing=38)), f"{NOTHING}trust in the judge is unknown: 50 different grounded items are required, 38 more"),
        (report(replace(ROUND, is_enabled=False, lower_bound=None)), f"{NOTHING}no grounded item was judged"),
        (report(ROUND), f"{NOTHING}no prompt was distilled from them. 9 kept pairs are in"),
        (report(ROUND, n_variants=1, n_proposed=2),
         "and no reward: 1 prompt distilled from kept pairs joined the search space; 2 proposed "
         "candidates evaluated."),
    ],
)  # fmt: skip
def test_the_sentence_says_what_happened(found: PreferenceReport, says: str):
    assert says in found.sentence
    assert ("entered the search" in found.sentence) == ("and no reward: " in says)


@pytest.mark.parametrize(
    ("last", "says"),
    [
        (ROUND, "The judge is trusted: exports and distilled prompts may use the last round."),
        (replace(ROUND, trust=0.1, is_enabled=False), "is not trusted: the judge is disabled, with a trust of 0.10. No export or"),
    ],
)  # fmt: skip
def test_a_line_tells_whether_the_judge_is_trusted(last: PreferenceRound, says: str):
    (told,) = [line for line in preference_lines(report(last)) if "trusted: " in line]
    assert says in told


def test_a_rounds_row_tells_what_is_known_of_the_judge():
    trust = Trust(n_right=40.0, n_items=50.0, n_different=50)
    state = SaoState(limit=5, trust=trust)
    nothing: Any = None
    history = RoundHistory()
    plan = RoundPlan(
        source=nothing, state=state, history=history, personas=(), kinds=(), incumbent=nothing,
        rivals=(), failures=(), audit=(), mutable={},
    )  # fmt: skip
    found = SaoRound(
        plan=plan, outcome=RoundOutcome(prompts=(), audit=Audit()),
        history=history, state=state, n_variants=0,
    )  # fmt: skip
    (row,) = round_tables("r", 3, found)["preference_rounds"]
    assert row["judge"] == {
        "different_items": 50.0,
        "pooled_items": 50.0,
        "pooled_right": 40.0,
        "lower_bound": trust.lower_bound,
    }
