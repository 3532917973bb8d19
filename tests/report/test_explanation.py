"""What the report says of a run's choice."""

from tasks.report.markdown import report_markdown
from tasks.report.page import report_html
from tests.support.results import made_up_result, plots

TITLES = (
    "Parameter effects",
    "Parameter interactions",
    "Discarded configurations",
)


def test_each_section_has_its_title_and_its_numbers():
    text = report_markdown(made_up_result())
    assert [title for title in TITLES if f"## {title}\n" in text] == list(TITLES)
    for said in (
        "The search dropped 88 of 119 other configurations",
        "The probability of beating the leader is below 0.042 % for each, and below 5 %",
        "60 after 5 evaluations, 28 after 10 evaluations",
        "| `stemmer` | 41 % [30, 52] | yes | english |",
        "| k1 with stemmer | 6 % [2, 11] | yes | 1, porter | +0.030 [+0.010, +0.050] |",
    ):
        assert said in text
    assert all(title in report_html(made_up_result()) for title in TITLES)


def test_shares_are_drawn_surely_or_hollow():
    result = made_up_result()
    (plot,) = plots(result, "shares")
    sure, unsure = plot.layers
    assert [plot.y.names[round(point.y)] for point in sure.points] == [
        "stemmer",
        "k1",
        "k1 with stemmer",
    ]
    assert [plot.y.names[round(point.y)] for point in unsure.points] == ["removes_stop_words"]
    assert (sure.is_hollow, unsure.is_hollow) == (False, True)
