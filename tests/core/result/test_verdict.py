"""Whether the configuration found is recommended, in which words, and what to do next."""

from dataclasses import replace

import pytest

from convergence_core.result import GateReport, RunResult, verdict_of
from convergence_core.result.verdict import (
    AFTER_OFFLINE,
    DEARER,
    LEAST_LIKELY,
    LIKELY,
    LIKELY_P,
    is_recommended,
    kind_of,
    price_sentence,
)
from tests.support.results import bare_result, failed_result, made_up_result

GATE = GateReport(
    decision="undecided",
    opponent="default",
    opponent_id="d",
    n_cases=110,
    mean=0.06,
    low=-0.01,
    high=0.13,
    alpha=0.05,
    min_effect=0.0,
    log_e=1.2,
    log_threshold=2.996,
    p_value=0.08,
    n_to_verdict=76,
    n_to_verdict_low=20,
    n_to_verdict_high=None,
    probability_better=0.93,
)


def result_with(**changes: object) -> RunResult:
    return replace(made_up_result(), gate=replace(GATE, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "prices", "kind", "recommended"),
    [
        ({"decision": "promote"}, (1.0, 1.0), "better", True),
        ({"decision": "promote"}, (9.0, 1.0), "better", True),
        ({"decision": "promote", "is_adopted": True}, (1.0, 1.0), "promoted", True),
        ({"decision": "keep"}, (1.0, 1.0), "not_better", False),
        ({"mean": -0.001}, (1.0, 1.0), "not_better", False),
        ({"mean": 0.01, "min_effect": 0.02}, (1.0, 1.0), "not_better", False),
        ({"probability_better": LIKELY}, (1.0, 1.0), "likely", False),
        ({"probability_better": LIKELY - 1e-9}, (1.0, 1.0), "unclear", False),
        ({"probability_better": None}, (1.0, 1.0), "unclear", False),
        ({"p_value": LIKELY_P + 1e-9}, (1.0, 1.0), "unclear", False),
        ({"n_cases": LEAST_LIKELY - 1}, (1.0, 1.0), "unclear", False),
        ({"n_groups": LEAST_LIKELY - 1}, (1.0, 1.0), "unclear", False),
        ({}, (2.0, 1.0), "likely", False),
        ({}, (1.0, DEARER), "likely", False),
        ({}, (1.0, DEARER + 1e-9), "cheaper", True),
        ({}, (0.0, 0.001), "cheaper", True),
        ({}, (None, 1.0), "likely", False),
        ({}, (1.0, None), "likely", False),
    ],
)
def test_the_one_in_use_is_replaced_only_where_held_out_cases_speak_for_it(
    changes, prices, kind, recommended
):
    found = kind_of(replace(GATE, **changes), usd=prices[0], other_usd=prices[1])
    assert found == kind
    assert is_recommended(found) is recommended


def test_without_a_comparison_the_configuration_found_is_recommended_as_untested():
    assert kind_of(None, usd=None, other_usd=None) == "untested"
    assert is_recommended("untested")


def test_what_is_likely_says_how_many_cases_would_settle_it():
    verdict = verdict_of(result_with())
    assert verdict.kind == "likely"
    assert verdict.sentence == (
        "Likely better than the defaults (probability 93 %): +0.060 [+0.020, +0.100] (95 %) on 110 held-out "
        "cases. Not proven: the defaults are kept, and the report offers the settings found. About 76 "
        "more held-out cases should settle it (20 to thousands)."
    )
    assert verdict.next_step == (
        "Add about 152 test cases, of which 50 % are held out, then run `convergence optimize` "
        "again."
    )


@pytest.mark.parametrize(
    ("changes", "kind", "words", "command"),
    [
        ({"decision": "promote"}, "better", "proven, with a risk of at most 5 %", "promote"),
        ({"decision": "promote", "is_adopted": True}, "promoted", "the champion now", "gates"),
        ({"decision": "keep"}, "not_better", "The defaults are kept.", "show"),
        (
            {"decision": "keep", "opponent": "champion"},
            "not_better",
            "The champion stays.",
            "show",
        ),
        ({"probability_better": 0.6}, "unclear", "No clear gain", None),
        ({"n_to_verdict": None}, "likely", "Thousands of held-out cases", None),
        (
            {"n_to_verdict": None, "n_cases": 9},
            "unclear",
            "Too few held-out cases to forecast",
            None,
        ),
    ],
)
def test_every_verdict_names_the_next_step(changes, kind, words, command):
    verdict = verdict_of(result_with(**changes))
    assert verdict.kind == kind
    assert words in verdict.sentence
    assert verdict.next_step.endswith((".", ":"))
    if command is not None:
        assert verdict.command is not None
        assert verdict.command.startswith(f"convergence {command}")


@pytest.mark.parametrize(
    "changes",
    [
        {"decision": "promote"},
        {"decision": "promote", "is_adopted": True},
        {"decision": "keep"},
        {"probability_better": 0.6},
        {},
    ],
)
def test_after_an_offline_run_the_next_step_is_a_real_one(changes):
    result = result_with(**changes)
    real, offline = (
        verdict_of(replace(result, facts=facts)) for facts in ({}, {"offline": "true"})
    )
    assert (offline.kind, offline.sentence) == (real.kind, real.sentence)
    assert offline.next_step == AFTER_OFFLINE
    assert "without `--offline`" in AFTER_OFFLINE
    assert offline.command is None


def test_a_dearer_one_says_both_prices():
    result = result_with()
    assert result.winner is not None
    assert result.baseline is not None
    result = replace(
        result,
        winner=replace(result.baseline, answer_usd=0.0009, answer_ms=640.0),
        baseline=replace(result.baseline, answer_usd=0.0009, answer_ms=640.0),
        challenger=replace(result.winner, answer_usd=0.0021, answer_ms=1_250.0),
    )
    verdict = verdict_of(result)
    assert verdict.kind == "likely"
    assert "an answer costs more, $0.0021 instead of $0.00090" in verdict.sentence
    assert "the defaults are kept" in verdict.sentence
    assert price_sentence(result) == (
        "An answer of the configuration found: $0.0021, 1.25 s; of the default: $0.00090, 640 ms "
        "(means of the final test)."
    )


def test_groups_of_cases_are_counted_as_groups():
    assert "About 76 more groups of held-out cases should settle it" in (
        verdict_of(result_with(n_groups=30)).sentence
    )


@pytest.mark.parametrize(
    ("status", "n_missing", "words"),
    [
        (
            "budget",
            3,
            "Raise the limit that stopped the run, then resume: `convergence resume {}`.",
        ),
        ("stopped", 3, "Resume the stopped run: `convergence resume {}`."),
        ("done", 3, "then repeat them: `convergence resume {} --retry-errors`."),
        ("done", 0, "Raise the limit that stopped the run, then resume: `convergence resume {}`."),
    ],
)
def test_held_out_cases_that_are_missing_are_asked_first(status, n_missing, words):
    lacking = replace(result_with(n_cases=40), status=status, n_missing=n_missing)
    step = verdict_of(lacking).next_step
    assert "evaluated only 40 of 110 held-out cases" in step
    assert step.endswith(words.format(lacking.label))
    untested = verdict_of(replace(lacking, gate=None))
    assert untested.kind == "untested"
    assert f"{untested.next_step} `{untested.command}`." in step


@pytest.mark.parametrize(
    ("result", "kind", "words"),
    [
        (failed_result(), "nothing", "all of the 330 evaluations failed"),
        (bare_result(), "untested", "the configuration file sets no defaults"),
        (
            replace(bare_result(), has_defaults=True),
            "untested",
            "the run did not evaluate the defaults",
        ),
        (replace(made_up_result(), n_holdout_cases=0), "untested", "the run held none out"),
        (made_up_result(), "untested", "no held-out case has a reward for both"),
    ],
)
def test_what_was_not_tested_says_why(result, kind, words):
    verdict = verdict_of(replace(result, n_evaluations=330))
    assert verdict.kind == kind
    assert words in verdict.sentence
