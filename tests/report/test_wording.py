"""How numbers are said."""

import pytest

from tasks.report import wording

MINUS = "\N{MINUS SIGN}"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.06, "+0.060"), (-0.02, f"{MINUS}0.020"), (0.0, "0.000"), (-0.0001, "0.000")],
)
def test_differences_bear_their_sign(value, text):
    assert wording.signed(value) == text


@pytest.mark.parametrize(
    ("level", "text"),
    [
        (0.95, "95 %"),
        (0.8325, "83.2 %"),
        (0.9999, "99.9 %"),
        (0.0001, "0.1 %"),
        (1.0, "100 %"),
        (0.0, "0 %"),
    ],
)
def test_rounding_never_makes_a_probability_certain(level, text):
    assert wording.percent(level) == text


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
    assert wording.usd(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "\N{EN DASH}"),
        (0.0, "0"),
        (0.61, "0.6100"),
        (18.289, "18.29"),
        (1234.4, "1,234"),
        (1.2e-7, "1.200e-07"),
        (-3.0, "-3.000"),
    ],
)
def test_metrics_are_shown_in_four_digits(value, text):
    assert wording.number(value) == text


@pytest.mark.parametrize(
    ("us", "text"),
    [(900_000, "0.9 s"), (97_300_000, "1 min 37 s"), (7_260_000_000, "2 h 1 min")],
)
def test_durations_are_said_in_two_units(us, text):
    assert wording.duration(0, us) == text


def test_text_is_cleaned_of_what_files_cannot_hold():
    assert wording.clean("a\ud800b\x00c\td\n") == "a?b\ufffdc\td\n"
    assert wording.short("one\n two  three", 8) == "one two…"
