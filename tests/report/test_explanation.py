"""What the report says of a run's choice."""

import re
from dataclasses import replace

import pytest

from convergence_core.explanation.records import Explanation
from convergence_core.result import RunResult
from tasks.report.markdown import report_markdown
from tasks.report.page import report_html
from tests.support.results import made_up_result, pictures

TITLES = (
    "What the parameters do",
    "Which parameters interact",
    "What was discarded, and why",
)


def explained(**changes: object) -> RunResult:
    result = made_up_result()
    assert result.explanation is not None
    return replace(result, explanation=replace(result.explanation, **changes))  # type: ignore[arg-type]


def test_each_section_has_its_title_and_its_numbers():
    text = report_markdown(made_up_result())
    assert [title for title in TITLES if f"## {title}\n" in text] == list(TITLES)
    for said in (
        "88 of 119 other configurations left the race",
        "the probability that its mean reward lies above the leader's is below 0.042 % for each",
        "60 with 5 evaluations, 28 with 10 evaluations",
        "| `stemmer` | 41 % [30, 52] | yes | english |",
        "| k1 with stemmer | 6 % [2, 11] | yes | 1, porter | +0.030 [+0.010, +0.050] |",
    ):
        assert said in text
    assert all(title in report_html(made_up_result()) for title in TITLES)


def test_no_sure_pair_is_said_so():
    surface = explained().explanation.surface  # type: ignore[union-attr]
    assert surface is not None
    unsure = tuple(replace(pair, is_sure=False, low=0.0) for pair in surface.interactions)
    text = report_markdown(explained(surface=replace(surface, interactions=unsure)))
    assert "No pair of parameters surely does anything together" in text
    assert "error of 5 % over 3 pairs" in text
    assert "surely, at an error" not in text


def test_a_race_nobody_left_says_so():
    found = explained().explanation.discards  # type: ignore[union-attr]
    assert found is not None
    nobody = replace(found, n_left=0, n_waiting=0, left_by_cells=(), closest=())
    text = report_markdown(explained(discards=nobody))
    assert "None of 119 other configurations left the race" in text


@pytest.mark.parametrize("explanation", [None, Explanation()], ids=["absent", "empty"])
def test_what_was_not_explained_is_left_out(explanation):
    text = report_markdown(replace(made_up_result(), effects=(), explanation=explanation))
    assert not any(title in text for title in TITLES)


def test_results_from_before_shares_can_still_be_reported():
    old = made_up_result().to_json()
    del old["explanation"]
    for effect in old["effects"]:  # type: ignore[union-attr]
        for key in ("share", "share_low", "share_high", "average", "share_active", "is_sure"):
            del effect[key]  # type: ignore[union-attr, arg-type]
    result = RunResult.from_json(old)
    assert pictures(result, "shares") == []
    assert len(pictures(result, "effect")) == 3
    text = report_markdown(result)
    assert "What the parameters do" in text
    assert "share of variance" not in text


def test_shares_are_drawn_surely_or_hollow():
    result = made_up_result()
    (picture,) = pictures(result, "shares")
    assert [name for name in ("stemmer", "k1 with stemmer") if name in picture]
    assert "removes_stop_words" in picture
    assert re.search(r"var\(--dot\)", picture)


def test_a_choice_of_many_values_shows_those_at_both_ends():
    effect = made_up_result().effects[1]
    points = tuple(
        replace(effect.points[0], label=f"v{i:02d}", mean=0.5 + 0.01 * i) for i in range(30)
    )
    result = replace(made_up_result(), effects=(replace(effect, points=points),))
    (picture,) = pictures(result, "effect")
    assert "(and 20 more)" in picture
    assert {f">v{i:02d} (" in picture for i in (29, 28, 0, 1)} == {True}
    assert ">v10 (" not in picture
