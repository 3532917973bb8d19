"""The sentence on preferences says what they did, and nothing that they did not."""

from dataclasses import replace
from typing import Any

import pytest

from convergence_core.sao.report import PreferenceReport, PreferenceRound
from convergence_core.trust.drift import LIMIT
from tasks.report.preferring import preference_lines
from tasks.report.wording import UNKNOWN

ROUND = PreferenceRound(
    generation=3, n_prompts=20, n_pairs=20, n_kept=9, accuracy=0.8, n_items=50, trust=0.43, is_enabled=True,
    pooled_right=40.0, pooled_items=50.0, lower_bound=0.715, drift=(0.2, 1.1),
)  # fmt: skip
HEARD = replace(ROUND, weight=0.15)
UNHEARD = "Preferences changed nothing that was tried: "


def report(*rounds: PreferenceRound, **more: Any) -> PreferenceReport:
    return replace(PreferenceReport(estimator="chat", rounds=rounds), **more)


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (report(), "Preferences changed nothing: no pair was kept."),
        (report(replace(ROUND, n_kept=0)), "Preferences changed nothing: no pair was kept."),
        (report(replace(ROUND, trust=0.1, is_enabled=False)), f"{UNHEARD}the judge is disabled, with a trust of 0.10"),
        (report(replace(ROUND, trust=0.0, is_enabled=False, n_missing=38)), f"{UNHEARD}there is no verdict on the judge: it takes 50 different grounded items, 38 more"),
        (report(replace(ROUND, is_enabled=False, pooled_items=0.0)), f"{UNHEARD}the judge was tried on no"),
        (report(replace(ROUND, is_drifting=True)), f"{UNHEARD}the judge's marks drifted"),
        (report(ROUND), f"{UNHEARD}the judge had no say in the draws. 9 kept pairs are in"),
        (report(HEARD, enters_draws=False), f"{UNHEARD}this algorithm has no draws"),
        (report(ROUND, HEARD), "and no reward: the judge had a say in the draws after 1 of 2 rounds, "
                               "at last 15 % of the free places."),
        (report(replace(HEARD, n_kept=0)), "and no reward: the judge had a say in the draws after 1"),
        (report(ROUND, n_variants=1, n_proposed=2),
         "and no reward: 1 text distilled from kept pairs joined the search space; 2 candidates were "
         "evaluated at their proposal."),
        (report(HEARD, restored=True), "what it feeds is frozen, and in further rounds the incumbent"),
    ],
)  # fmt: skip
def test_the_sentence_says_what_happened(found: PreferenceReport, says: str):
    assert says in found.sentence
    assert ("entered the search" in found.sentence) == ("and no reward: " in says)


def test_the_lines_tell_what_trust_rests_on_and_what_is_watched():
    lines = "\n".join(preference_lines(report(ROUND)))
    assert (
        "right on 80 % of 50 grounded items; trust 0.43 (over all audits 40.0 of 50.0 right, so at"
        in lines
    )
    assert "at least 72 %; heard from 0.2)" in lines
    assert (
        f"drift +0.2 and -1.1, alarm above {LIMIT:g}; exploitation: insufficient rounds" in lines
    )
    frozen = replace(ROUND, slopes=(3.1, -4.0), is_frozen=True)
    assert (
        "exploitation alarmed: t of the judge's slope +3.1, of the grounded one -4.0"
        in "\n".join(preference_lines(report(frozen)))
    )


def test_the_lines_tell_what_the_audit_found():
    found = replace(ROUND, log_score=-0.4, calibration_error=0.12, correlation=(0.7, 0.5, 0.8))
    lines = "\n".join(preference_lines(report(found)))
    assert "Audit: log score -0.40 nats, a coin's is -0.69; calibration error 0.12; rank" in lines
    assert "correlation with the truth +0.70 [+0.50, +0.80]." in lines
    lines = "\n".join(preference_lines(report(replace(found, correlation=None))))
    assert f"rank correlation with the truth {UNKNOWN}." in lines
    assert "Audit:" not in "\n".join(preference_lines(report(ROUND)))


def test_the_lines_tell_of_the_pool_of_hard_prompts():
    lines = preference_lines(report(ROUND, n_hard=7, n_checked=2))
    (told,) = [line for line in lines if "Pool of hard prompts" in line]
    assert told.startswith("Pool of hard prompts: 7; ")
    assert told.endswith("executed checks told 2 pairs of answers apart.")
    (told,) = [line for line in preference_lines(report(ROUND, n_hard=1)) if "Pool" in line]
    assert told.endswith("no executed check told their answers apart.")
