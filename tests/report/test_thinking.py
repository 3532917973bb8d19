"""What is said of thoughts: one honest sentence, and the numbers behind it."""

from dataclasses import replace

import pytest

from convergence_core.result import RunResult
from convergence_core.rlp.report import BestThought, ProposedReport, ThinkingPoint, ThinkingReport
from tasks.report.markdown import markdown_of, report_markdown
from tasks.report.page import report_html
from tasks.report.rlp_section import thinking_blocks
from tests.support.results import made_up_result

BEST = BestThought(
    text="Low *t* helps.\n<b>Not</b> the | large model.",
    strategy="notes",
    generation=2,
    gain=0.84,
    se=0.11,
    n_outcomes=8,
)
REPORT = ThinkingReport(
    n_thoughts=12,
    n_failed=2,
    n_scored=10,
    gain=0.31,
    se=0.07,
    e_value=44.0,
    top_e_value=51.2,
    resolution=0.12,
    resolution_e_value=21.0,
    top_resolution_e_value=22.5,
    of_notes=(0.2, 0.1),
    best=BEST,
    proposed=ProposedReport(n=7, mean=0.8, best=0.934, name="t=0.2 model=small", others=0.6),
    curve=(
        ThinkingPoint(generation=1, gain=None, se=None, e_value=None),
        ThinkingPoint(
            generation=2,
            gain=0.31,
            se=0.05,
            e_value=1.9,
            resolution=0.12,
            resolution_e_value=1.3,
            weight=0.43,
        ),
    ),
    reasons={"failed (http_500): HTTP 500": 2},
)


def test_help_is_claimed_with_evidence_and_denied_without():
    averages = "against their own average forecasts"
    assert REPORT.sentence == (
        "Thoughts helped by +0.31 ± 0.07 nats; e-value 51.2 at its highest and 44 at the end against "
        f"the search's posterior, 22.5 at its highest and 21 at the end {averages}. Both passed 20."
    )
    denied = (
        f"No evidence that thoughts help: +0.31 ± 0.07 nats; e-value 3 against the search's posterior, 21 {averages}. "
        "Both must pass 20."
    )
    unsure = replace(REPORT, top_e_value=3.0, e_value=3.0, top_resolution_e_value=21.0)
    assert unsure.sentence == denied
    # A sentence that is right of all candidates alike beats a baseline of the wrong shape.
    same = replace(REPORT, resolution=0.0, resolution_e_value=1.0, top_resolution_e_value=1.0)
    assert same.sentence.startswith("No evidence that thoughts help: +0.31")
    harmful = replace(REPORT, gain=-0.2)
    assert harmful.sentence.startswith("No evidence that thoughts help: -0.20")
    nothing = replace(REPORT, gain=None, se=None)
    assert nothing.sentence == "No thought was scored, so their value is unknown."
    assert REPORT.n_episodes == 1


def test_the_section_tells_thought_candidate_gain_and_policy_without_foreign_markup():
    text = markdown_of(thinking_blocks(REPORT))
    assert "12 thoughts: 10 scored, 2 failed." in text
    assert (
        "7 proposed settings evaluated: mean score 0.800 (forecast ones: 0.600), best 0.934, t=0.2 model=small."
        in text
    )
    assert "Notes added +0.20 ± 0.10 nats" in text
    assert "Best: with notes, generation 2, gain +0.84 ± 0.11 nats on 8 outcomes." in text
    assert "Mean gain +0.31 ± 0.07 nats over 1 episode." in text
    assert (
        "Mean gain over their own average forecasts +0.12 nats: thoughts that forecast the same"
        in text
    )
    assert "2 times: failed (http_500): HTTP 500" in text
    assert "```text\nLow *t* helps.\n<b>Not</b> the | large model.\n```" in text
    assert "| 2 | yes | +0.31 ± 0.05 | 1.9 | +0.12 | 1.3 | 0.43 |" in text


def test_page_and_markdown_hold_the_section_only_where_somebody_thought():
    result = made_up_result()
    assert "thoughts were worth" not in report_markdown(result)
    thinking = replace(result, thinking=REPORT)
    for text in (report_markdown(thinking), report_html(thinking)):
        assert "Hypotheses" in text
        assert "Thoughts helped by +0.31" in text
    assert "<b>Not</b>" not in report_html(thinking)
    assert thinking_blocks(None) == []


def test_a_result_with_thoughts_survives_json():
    result = replace(made_up_result(), thinking=REPORT)
    assert RunResult.from_json(result.to_json()).thinking == REPORT


@pytest.mark.parametrize("n", [1, 3])
def test_a_report_without_a_scored_thought_is_short(n: int):
    empty = ThinkingReport(
        n_thoughts=n,
        n_failed=n,
        n_scored=0,
        gain=None,
        se=None,
        e_value=1.0,
        top_e_value=1.0,
    )
    text = markdown_of(thinking_blocks(empty))
    assert text.count("\n* ") == 1
    assert "No thought was scored" in text
