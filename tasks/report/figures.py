"""Still figures without side effects on matplotlib or the caller.

The same figure gives the same bytes on every machine with the same matplotlib, since it has no
date and fixed ids.
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

_LOCK = threading.RLock()
"""Lock of drawing, since matplotlib's settings are global."""


COLOURS: Final[Mapping[str, str]] = {
    "ink": "#1b2430",
    "muted": "#5b6675",
    "line": "#e3e7ec",
    "winner": "#1f6f5c",
    "default": "#b4581a",
    "dot": "#8a97a8",
    "paper": "#ffffff",
}
"""Colours by meaning: text, axes and background, grid lines, the two compared, one of many."""

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
    """Import matplotlib ahead of the first figure, for callers that wait anyway."""
    with _settings():
        pass


def png(drawn: "Figure", *, dpi: int = 100) -> bytes:
    """Return a figure as a PNG file."""
    out = io.BytesIO()
    with _settings():
        drawn.savefig(out, format="png", dpi=dpi, metadata={"Software": None})
    return out.getvalue()


def figure(draw: Draw, *, width: float, height: float) -> "Figure":
    """Return a figure for further use, which notebooks display and ``savefig`` saves."""
    with _settings():
        drawn = _shown_figure()(figsize=(width, height), dpi=100, layout="constrained")
        draw(drawn)
    return drawn


@cache
def _shown_figure() -> "type[Figure]":
    """Return a class of figures that Jupyter shows without ``matplotlib.pyplot``."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - as below

    class ShownFigure(Figure):
        def _repr_png_(self) -> bytes:
            return png(self)

    return ShownFigure


@contextlib.contextmanager
def _settings() -> "Iterator[type[Figure]]":
    with _LOCK, _quiet():
        import matplotlib as mpl  # noqa: PLC0415 - takes half a second
        from matplotlib.figure import Figure  # noqa: PLC0415 - as above

        with mpl.rc_context():
            mpl.rcdefaults()  # a user's style must not change the report
            mpl.rcParams.update(_STYLE)
            yield Figure


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence warnings about irrelevant matters: cache folders and missing glyphs."""
    logger = logging.getLogger("matplotlib")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            yield
    finally:
        logger.setLevel(level)
