"""Margins of figures: as matplotlib's constrained layout would set them, and room for every label."""

import io
from collections.abc import Callable
from typing import Any

import pytest

from tasks.report import figures
from tasks.report.figures import Palette

SIZE = (4.8, 3.0)


def long_names(figure: Any) -> None:
    axes = figure.subplots()
    axes.plot([0.31, 0.62], [0, 1])
    axes.set_yticks([0, 1], ["search cases,\nasked again", "a_rather_long_choice"])
    axes.set_xlabel("mean reward, with 95 % intervals")


def two_scales(figure: Any) -> None:
    axes = figure.subplots()
    axes.plot([0, 9], [0, 12_500], label="calls so far")
    axes.set_ylabel("calls so far")
    right = axes.twinx()
    right.plot([0, 9], [0, 0.034], label="USD so far")
    right.set_ylabel("USD so far")
    figure.legend(loc="outside upper left", ncols=2)


def title(figure: Any) -> None:
    axes = figure.subplots()
    axes.plot([0.001, 0.002], [0.1, 0.9])
    axes.set_xscale("log")
    axes.set_title("temperature")


def nothing(figure: Any) -> None:
    figure.subplots()


DRAWN = [long_names, two_scales, title, nothing]


def drawn(fill: Callable[[Any], None], form: str) -> tuple[Any, Any]:
    """Draw with our margins and with matplotlib's; return both figures."""
    found: list[Any] = []

    def both(figure: Any, palette: Palette) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure

        fill(figure)
        other = Figure(figsize=SIZE, layout="constrained", dpi=72 if form == "svg" else 100)
        (FigureCanvasSVG if form == "svg" else FigureCanvasAgg)(other)
        fill(other)
        other.savefig(io.BytesIO(), format=form, dpi=other.dpi)
        found.extend((figure, other))

    if form == "svg":
        figures.svg(both, name="a", title="a", width=SIZE[0], height=SIZE[1])
    else:
        figures.png(both, width=SIZE[0], height=SIZE[1], dpi=100)
    return found[0], found[1]


@pytest.mark.parametrize("form", ["svg", "png"])
@pytest.mark.parametrize("fill", DRAWN, ids=lambda fill: fill.__name__)
def test_margins_are_those_of_constrained_layout(fill: Callable[[Any], None], form: str):
    ours, theirs = drawn(fill, form)
    for axes, other in zip(ours.axes, theirs.axes, strict=True):
        assert axes.get_position().extents == pytest.approx(
            other.get_position().extents, abs=0.005
        )


@pytest.mark.parametrize("fill", DRAWN, ids=lambda fill: fill.__name__)
def test_every_label_is_inside(fill: Callable[[Any], None]):
    figure, _ = drawn(fill, "png")
    seen = figure.get_tightbbox(figure.canvas.get_renderer())
    assert seen.x0 >= 0
    assert seen.y0 >= 0
    assert seen.x1 <= SIZE[0]
    assert seen.y1 <= SIZE[1]


def test_labels_that_leave_no_room_are_drawn_all_the_same():
    def fill(figure: Any, palette: Palette) -> None:
        figure.subplots().set_yticks([0], ["x" * 200])

    picture = figures.svg(fill, name="a", title="a", width=1.0, height=1.0)
    assert "x" * 200 in picture
