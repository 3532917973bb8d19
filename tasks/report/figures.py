"""Still figures without side effects on matplotlib or on the caller.

The same figure gives the same bytes on every machine with the same matplotlib: no date, fixed ids.
"""

import contextlib
import io
import logging
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PAD = 3 / 72
"""Inches around labels."""
_MEASUREMENTS = 2
"""How often labels are measured at most."""
_LOCK = threading.RLock()
"""Settings of matplotlib are global while a figure is drawn."""


COLOURS: Final[Mapping[str, str]] = {
    "ink": "#1b2430",
    "muted": "#5b6675",
    "line": "#e3e7ec",
    "winner": "#1f6f5c",
    "default": "#b4581a",
    "dot": "#8a97a8",
    "paper": "#ffffff",
}
"""Colours by what they mean: text, axes and what stands back, grid lines, the two compared, one among many."""

Draw: TypeAlias = "Callable[[Figure], None]"


_STYLE: Final[Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": COLOURS["line"],
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.labelcolor": COLOURS["muted"],
    "axes.labelsize": 9,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": COLOURS["ink"],
    "axes.titlelocation": "left",
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.formatter.useoffset": False,
    "figure.edgecolor": "none",
    "figure.facecolor": COLOURS["paper"],
    "font.size": 9,
    "grid.color": COLOURS["line"],
    "grid.linewidth": 0.7,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "legend.labelcolor": COLOURS["ink"],
    "lines.linewidth": 1.8,
    "savefig.facecolor": "auto",
    "text.color": COLOURS["ink"],
    "text.parse_math": False,
    "xtick.color": COLOURS["line"],
    "xtick.labelcolor": COLOURS["muted"],
    "xtick.labelsize": 8.5,
    "ytick.color": COLOURS["line"],
    "ytick.labelcolor": COLOURS["muted"],
    "ytick.labelsize": 8.5,
}


def import_matplotlib() -> None:
    """Import it ahead of the first figure, for callers that wait for something else anyway."""
    with _settings():
        pass


def png(draw: Draw, *, width: float, height: float, dpi: int) -> bytes:
    """Return a figure as a PNG file; ``draw`` fills it, sizes are in inches."""
    out = io.BytesIO()
    with _settings() as figure_class:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - as above

        figure = figure_class(figsize=(width, height), dpi=dpi)
        draw(figure)
        bitmap = FigureCanvasAgg(figure)
        _lay_out(figure, bitmap.get_renderer())  # type: ignore[no-untyped-call]  # theirs
        bitmap.print_png(out, metadata={"Software": None})  # type: ignore[no-untyped-call]  # theirs
    return out.getvalue()


def figure(draw: Draw, *, width: float, height: float) -> "Figure":
    """Return a figure for who goes on with it: shown by itself in notebooks, saved by ``savefig``."""
    with _settings():
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - as above

        drawn = _shown_figure()(figsize=(width, height), dpi=100)
        draw(drawn)
        _lay_out(drawn, FigureCanvasAgg(drawn).get_renderer())  # type: ignore[no-untyped-call]  # theirs
    return drawn


@cache
def _shown_figure() -> "type[Figure]":
    """Return a class of figures that Jupyter shows without ``matplotlib.pyplot``."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - as above

    class ShownFigure(Figure):
        def _repr_png_(self) -> bytes:
            out = io.BytesIO()
            self.savefig(out, format="png")
            return out.getvalue()

    return ShownFigure


def _lay_out(figure: "Figure", ruler: Any) -> None:
    """Give the one pair of axes of a figure, or two in one place, the margins that its labels need.

    Matplotlib's constrained layout solves this for any grid of axes and measures each label twice, a third
    of the time that a figure takes. Here they are measured again only if new margins make new ticks.
    """
    for _ in range(_MEASUREMENTS):
        ticks = _ticks(figure)
        _set_margins(figure, ruler)
        if _ticks(figure) == ticks:
            return


def _ticks(figure: "Figure") -> list[float]:
    return [
        float(place)
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for place in axis.get_majorticklocs()
    ]


def _set_margins(figure: "Figure", ruler: Any) -> None:
    """Measure all labels and set margins by them; legends stand above the axes."""
    to_figure = figure.transFigure.inverted()
    pad_x, pad_y = (_PAD / inches for inches in figure.get_size_inches())
    left = right = bottom = top = 0.0
    for axes in figure.axes:
        place = axes.get_position(original=True)
        # Of all that it shows only texts may be beside its labels.
        box = axes.get_tightbbox(ruler, bbox_extra_artists=axes.texts, for_layout_only=True)
        seen = place if box is None else box.transformed(to_figure)
        left, right = max(left, place.x0 - seen.x0), max(right, seen.x1 - place.x1)
        bottom, top = max(bottom, place.y0 - seen.y0), max(top, seen.y1 - place.y1)
    for legend in figure.legends:
        top += legend.get_window_extent(ruler).transformed(to_figure).height + 2 * pad_y
    left, right, bottom, top = left + pad_x, right + pad_x, bottom + pad_y, top + pad_y
    if left + right < 1 and bottom + top < 1:
        figure.subplots_adjust(left=left, right=1 - right, bottom=bottom, top=1 - top)


@contextlib.contextmanager
def _settings() -> "Iterator[type[Figure]]":
    with _LOCK, _quiet():
        import matplotlib as mpl  # noqa: PLC0415 - takes half a second
        from matplotlib.figure import Figure  # noqa: PLC0415 - as above

        with mpl.rc_context():
            mpl.rcdefaults()  # a user's own style must not change the report
            mpl.rcParams.update(_STYLE)
            yield Figure


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence complaints about what does not matter: cache folders and missing glyphs."""
    logger = logging.getLogger("matplotlib")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            yield
    finally:
        logger.setLevel(level)
