"""Figures without side effects: matplotlib is imported late, quietly, and left as it was.

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
from html import escape
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    ON_PAGE.ink: "var(--ink)",
    ON_PAGE.muted: "var(--muted)",
    ON_PAGE.line: "var(--line)",
    ON_PAGE.winner: "var(--winner)",
    ON_PAGE.default: "var(--default)",
    ON_PAGE.dot: "var(--dot)",
    ON_PAGE.paper: "var(--card)",
}


def import_matplotlib() -> None:
    """Import it ahead of the first figure, for callers that wait for something else anyway."""
    with _settings(LIGHT, ""):
        pass


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
    text = _own_ids(text, name)
    label = escape(title, quote=True)
    return re.sub(r"<svg\b", f'<svg role="img" aria-label="{label}"', text, count=1).strip()


def png(draw: Draw, *, width: float, height: float, dpi: int) -> bytes:
    """Return a figure as a PNG file, light."""
    return _render(draw, LIGHT, width, height, "png", dpi=dpi)


def _own_ids(text: str, name: str) -> str:
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
        figure = figure_class(figsize=(width, height), layout="constrained")
        draw(figure, palette)
        metadata = dict.fromkeys(nothing)
        if form == "svg":
            # ``savefig`` draws twice, to know a size that is given here.
            from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: PLC0415 - as above

            figure.dpi = 72
            FigureCanvasSVG(figure).print_svg(out, metadata=metadata)  # type: ignore[no-untyped-call]  # theirs
        else:
            figure.savefig(out, format=form, dpi=dpi, metadata=metadata)
    return out.getvalue()


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
