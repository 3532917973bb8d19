"""Figures without side effects on matplotlib or on the caller.

SVG figures carry no colours of their own but the page's CSS variables, so that one picture serves
light and dark; bitmaps are light. The same figure gives the same bytes on every machine with the
same matplotlib: no date, fixed ids.
"""

import contextlib
import io
import logging
import re
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PAD = 3 / 72
"""Inches around labels."""
_MEASUREMENTS = 2
"""How often labels are measured at most."""
_LOCK = threading.RLock()
"""Settings of matplotlib are global while a figure is drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Palette:
    """Colours by what they mean."""

    ink: str
    """Text."""
    muted: str
    """Axes, ticks and what stands back."""
    line: str
    """Grid lines."""
    winner: str
    default: str
    dot: str
    """A configuration among many."""
    paper: str
    """Background."""


ON_PAGE = Palette(
    ink="#010101",
    muted="#020202",
    line="#030303",
    winner="#040404",
    default="#050505",
    dot="#060606",
    paper="#070707",
)
"""Stand-ins that become CSS variables."""

LIGHT = Palette(
    ink="#1b2430",
    muted="#5b6675",
    line="#e3e7ec",
    winner="#1f6f5c",
    default="#b4581a",
    dot="#8a97a8",
    paper="#ffffff",
)

Draw: TypeAlias = "Callable[[Figure, Palette], None]"

_VARIABLES: Mapping[str, str] = {
    getattr(ON_PAGE, name): f"var(--{name})"
    for name in ("ink", "muted", "line", "winner", "default", "dot")
} | {ON_PAGE.paper: "var(--card)"}


def import_matplotlib() -> None:
    """Import it ahead of the first figure, for callers that wait for something else anyway."""
    with _settings(LIGHT, ""):
        pass


def import_matplotlib_without_help() -> None:
    """Import it without the lists of properties in its docstrings, a quarter of the time it takes.

    For a command, whose process no one asks for ``help``.
    """
    with _LOCK, _quiet():
        from matplotlib import artist  # noqa: PLC0415 - takes a quarter of a second

        described = artist.kwdoc
        artist.kwdoc = lambda artist: ""  # noqa: ARG005 - its parameter has this name
        try:
            import matplotlib.figure  # noqa: F401, PLC0415 - as above
        finally:
            artist.kwdoc = described


def svg(draw: Draw, *, name: str, title: str, width: float, height: float) -> str:
    """Return a figure as an SVG element to be put into a page.

    Args:
        draw: fills the figure.
        name: makes the element's ids unique on its page.
        title: what the figure shows, for those who do not see it.
        width: in inches; type is about 9 points.
        height: in inches.
    """
    text = _render(draw, ON_PAGE, width, height, "svg", salt=name).decode("utf-8")
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'\s+xmlns(:\w+)?="[^"]*"', "", text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, variable)
    text = _unique_ids(text, name)
    label = escape(title, quote=True)
    return re.sub(r"<svg\b", f'<svg role="img" aria-label="{label}"', text, count=1).strip()


def png(draw: Draw, *, width: float, height: float, dpi: int) -> bytes:
    """Return a figure as a PNG file, light."""
    return _render(draw, LIGHT, width, height, "png", dpi=dpi)


def figure(draw: Draw, *, width: float, height: float) -> "Figure":
    """Return a figure for who goes on with it: shown by itself in notebooks, saved by ``savefig``."""
    with _settings(LIGHT, ""):
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - as above

        drawn = _shown_figure()(figsize=(width, height), dpi=100)
        draw(drawn, LIGHT)
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


def tip(axes: "Axes", x: float, y: float, text: str) -> None:
    """Say what a mark is: shown on the page when one points at it."""
    vars(axes).setdefault("tips", []).append((x, y, text))


def _tips(figure: "Figure") -> str:
    """Return the tips of a laid out figure as invisible circles with titles, in SVG's coordinates."""
    height = 72 * figure.get_size_inches()[1]
    circles = []
    for axes in figure.axes:
        for x, y, text in vars(axes).get("tips", ()):
            right, up = axes.transData.transform((x, y))
            circles.append(
                f'<circle class="tip" cx="{right:.1f}" cy="{height - up:.1f}" r="7">'
                f"<title>{escape(text)}</title></circle>"
            )
    return "\n".join(circles)


def _unique_ids(text: str, name: str) -> str:
    """Keep only ids that something refers to, and make them the figure's own."""
    used = set(re.findall(r"#([\w-]+)[\")]", text))

    def rename(match: re.Match[str]) -> str:
        return f' id="{name}-{match[1]}"' if match[1] in used else ""

    text = re.sub(r'\s+id="([^"]*)"', rename, text)
    return re.sub(r"(\"#|url\(#)([\w-]+)", rf"\1{name}-\2", text)


def _render(
    draw: Draw,
    palette: Palette,
    width: float,
    height: float,
    form: str,
    *,
    salt: str = "",
    dpi: int = 100,
) -> bytes:
    out = io.BytesIO()
    nothing = {"svg": ("Creator", "Date", "Format", "Type"), "png": ("Software",)}[form]
    with _settings(palette, salt) as figure_class:
        figure = figure_class(figsize=(width, height))
        draw(figure, palette)
        metadata = dict.fromkeys(nothing)
        # ``savefig`` draws twice, to know a size that is given here.
        if form == "svg":
            from matplotlib.backends.backend_svg import RendererSVG  # noqa: PLC0415 - as above

            figure.dpi = 72  # an SVG's points
            page = io.StringIO()
            # What measures also draws, and so remembers what it has measured.
            pen = RendererSVG(72 * width, 72 * height, page, metadata=metadata)  # type: ignore[no-untyped-call]  # theirs
            _lay_out(figure, pen)
            figure.draw(pen)
            pen.finalize()  # type: ignore[no-untyped-call]  # theirs
            out.write(page.getvalue().replace("</svg>", f"{_tips(figure)}\n</svg>").encode())
        else:
            from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - as above

            figure.dpi = dpi
            bitmap = FigureCanvasAgg(figure)
            _lay_out(figure, bitmap.get_renderer())  # type: ignore[no-untyped-call]  # theirs
            bitmap.print_png(out, metadata=metadata)  # type: ignore[no-untyped-call]  # theirs
    return out.getvalue()


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
def _settings(palette: Palette, salt: str) -> "Iterator[type[Figure]]":
    with _LOCK, _quiet():
        import matplotlib as mpl  # noqa: PLC0415 - takes half a second
        from matplotlib.figure import Figure  # noqa: PLC0415 - as above

        with mpl.rc_context():
            mpl.rcdefaults()  # a user's own style must not change the report
            mpl.rcParams.update(_style(palette, salt))
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


def _style(palette: Palette, salt: str) -> Any:
    return {
        "axes.axisbelow": True,
        "axes.edgecolor": palette.line,
        "axes.facecolor": "none",
        "axes.grid": True,
        "axes.labelcolor": palette.muted,
        "axes.labelsize": 9,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlecolor": palette.ink,
        "axes.titlelocation": "left",
        "axes.titlesize": 9.5,
        "axes.titleweight": "bold",
        "axes.formatter.useoffset": False,
        "figure.edgecolor": "none",
        "figure.facecolor": "none" if palette is ON_PAGE else palette.paper,
        "font.size": 9,
        "grid.color": palette.line,
        "grid.linewidth": 0.7,
        "legend.fontsize": 8.5,
        "legend.frameon": False,
        "legend.labelcolor": palette.ink,
        "lines.linewidth": 1.8,
        "savefig.facecolor": "auto",
        "svg.fonttype": "none",
        "svg.hashsalt": salt or "convergence",
        "text.color": palette.ink,
        "text.parse_math": False,
        "xtick.color": palette.line,
        "xtick.labelcolor": palette.muted,
        "xtick.labelsize": 8.5,
        "ytick.color": palette.line,
        "ytick.labelcolor": palette.muted,
        "ytick.labelsize": 8.5,
    }
