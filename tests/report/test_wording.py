"""How numbers are said."""

import math
from dataclasses import replace

import pytest

from convergence_core.result import GateReport, number_text
from convergence_core.result.number_text import evidence
from tasks.report import phrases
from tests.support.results import made_up_result

MINUS = "\N{MINUS SIGN}"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.06, "+0.060"), (-0.02, f"{MINUS}0.020"), (0.0, "0.000"), (-0.0001, "0.000")],
)
def test_differences_bear_their_sign(value, text):
    assert number_text.signed(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "unknown"),
        (0.0, "$0.00"),
        (4.2187, "$4.22"),
        (1234.5, "$1,234.50"),
        (0.12345, "$0.12"),
        (0.0001234, "$0.00012"),
        (0.996, "$1.00"),
    ],
)
def test_small_amounts_keep_two_digits(value, text):
    assert number_text.usd(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "\N{EN DASH}"),
        (0.0, "0"),
        (0.61, "0.610"),
        (18.289, "18.3"),
        (1234.4, "1,234"),
        (1.2e-7, "1.200e-07"),
        (-3.0, "-3.00"),
    ],
)
def test_metrics_are_shown_in_three_digits(value, text):
    assert phrases.number(value) == text


@pytest.mark.parametrize(
    ("us", "text"),
    [(900_000, "0.9 s"), (97_300_000, "1 min 37 s"), (7_260_000_000, "2 h 1 min")],
)
def test_durations_are_said_in_two_units(us, text):
    assert phrases.duration(0, us) == text


def test_text_is_cleaned_of_what_files_cannot_hold():
    assert phrases.clean("a\ud800b\x00c\td\n") == "a?b\ufffdc\td\n"
    assert phrases.short("one\n two  three", 8) == "one two…"


GATE = GateReport(
    decision="promote",
    opponent="default",
    opponent_id="d",
    n_cases=40,
    mean=0.12,
    low=0.03,
    high=0.2,
    alpha=0.05,
    min_effect=0.0,
    log_e=4.1,
    log_threshold=2.996,
    p_value=0.016,
    n_to_verdict=0,
    level=0.045,
    left=0.0045,
)


def test_the_gates_evidence_is_said_with_its_error():
    sentence = phrases.gate_sentence(
        replace(made_up_result(), gate=replace(GATE, min_effect=0.05))
    )
    assert sentence is not None
    assert "+0.120 [+0.030, +0.200] (91 %) on the 40 held-out cases" in sentence
    assert "evidence 60.3 where a promotion needs 20" in sentence
    assert "beats the defaults by more than 0.05" in sentence
    assert "at most 5 % over all checks of these cases" in sentence
    assert "The latest check used 4.5 %; 0.45 % is left for later checks" in sentence
    assert "better" not in sentence


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "1 of 20"), (69.44, "69.4 of 20"), (1270.4, "1,270 of 20"), (123_456.0, "123,000 of 20"),
     (1e30, "over 1,000,000 of 20"), (1e-30, "under 0.001 of 20")],
)  # fmt: skip
def test_evidence_is_written_without_exponents(value: float, text: str):
    assert evidence(math.log(value), math.log(20)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1, "1"), ("1", '"1"'), (0.5, "0.5"), ("0.50", '"0.50"'), ("-1e3", '"-1e3"'), (True, "true"),
     ("True", '"True"'), ("null", '"null"'), ("a 1", "a 1"), ("gpt-4.1", "gpt-4.1")],
)  # fmt: skip
def test_a_text_that_reads_as_another_type_is_shown_in_quotes(value, text: str):
    assert phrases.value_text(value) == text
