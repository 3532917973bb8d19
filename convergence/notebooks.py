"""Results in notebooks: a card, plots and data frames of a run.

Jupyter and marimo show a result through ``_repr_html_``: the verdict, the defaults next to the
result with intervals, and prices. It is worded and escaped like the report and has no script. A
plot is a ``matplotlib`` figure of the report, a table a ``polars`` data frame.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

    from convergence_core.result import RunResult

__all__ = ["NotebookView", "ResultTable"]

ResultTable: TypeAlias = Literal["leaderboard", "learning_curve", "parameters", "answers", "costs"]
"""Tables of a result."""

_STYLE = """
.convergence-result{max-width:60rem;line-height:1.5;overflow-wrap:anywhere}
.convergence-result .lead{font-size:1.1em;font-weight:600}
.convergence-result .scroll{overflow-x:auto}
.convergence-result table{border-collapse:collapse;margin:.6em 0;font-size:.95em}
.convergence-result :is(th,td){padding:.3em .8em;text-align:left;vertical-align:top;
border-bottom:1px solid color-mix(in srgb,currentColor 18%,transparent);background:none;
overflow-wrap:break-word}
.convergence-result th{font-weight:600;opacity:.75}
.convergence-result .n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
.convergence-result pre{white-space:pre-wrap}
"""


class NotebookView:
    """Notebook display of a result."""

    __slots__ = ()

    result: "RunResult"

    def _repr_html_(self) -> str:
        """Return the card that Jupyter and marimo show: HTML without script."""
        from tasks.report import phrases  # noqa: PLC0415 - with the first card
        from tasks.report.blocks import Paragraph  # noqa: PLC0415 - as above
        from tasks.report.document import card  # noqa: PLC0415 - as above
        from tasks.report.page import block_html  # noqa: PLC0415 - as above

        title = Paragraph((f"{self.result.label}: {phrases.heading(self.result)}",))
        blocks = [title, *card(self.result)]
        body = "\n".join(block_html(block) for block in blocks)
        return f'<div class="convergence-result"><style>{_STYLE}</style>\n{body}\n</div>'

    def _repr_markdown_(self) -> str:
        """Return the card as Markdown, for frontends that show no HTML."""
        from tasks.report.document import card  # noqa: PLC0415 - as above
        from tasks.report.markdown import markdown_of  # noqa: PLC0415 - as above

        return markdown_of(card(self.result))

    def plot_estimates(self) -> "Figure":
        """Return the plot of mean rewards of the defaults and the result, with intervals."""
        return self._plot("estimates")

    def plot_learning_curve(self) -> "Figure":
        """Return the plot of the recommendation's reward after each generation, with intervals."""
        return self._plot("learning_curve")

    def plot_parameters(self) -> "Figure":
        """Return the plot of each parameter's share of the variance between configurations."""
        return self._plot("shares")

    def plot_parameter(self, parameter: str) -> "Figure":
        """Return the plot of the mean reward at each value of one parameter, over all others.

        Raises:
            ValueError: the parameter is unknown, or has only one value.
        """
        from tasks.report.stills import parameter_figure  # noqa: PLC0415 - as above

        return parameter_figure(self.result, parameter)

    def plot_tradeoffs(self) -> "Figure":
        """Return the plot of two metrics of each configuration."""
        return self._plot("tradeoffs")

    def plot_front(self) -> "Figure":
        """Return the plot of a Pareto run's front."""
        return self._plot("front")

    def _plot(self, name: Any) -> "Figure":
        from tasks.report.stills import figure_of  # noqa: PLC0415 - as above

        return figure_of(self.result, name)

    _ROWS: ClassVar[Mapping[str, str]] = {
        "leaderboard": "leaderboard",
        "learning_curve": "curve",
        "parameters": "effects",
        "answers": "answers",
        "costs": "costs",
    }
    """Table → field of the result."""

    def to_polars(self, table: ResultTable = "leaderboard") -> "pl.DataFrame":
        """Return a table of the result; nested fields are columns such as ``params.model``.

        Args:
            table: ``leaderboard``: candidates with posterior means and intervals.
                ``learning_curve``: generations. ``parameters``: each value of each parameter with
                its effect. ``answers``: test cases with the answers of the defaults (``first``)
                and the result (``second``). ``costs``: by purpose and model.

        Raises:
            ValueError: the table is unknown.
        """
        if table not in self._ROWS:
            known = ", ".join(get_args(ResultTable))
            raise ValueError(f"`table` must be one of {known}, but got {table!r}")
        import polars as pl  # noqa: PLC0415 - takes a fifth of a second

        rows: Any = self.result.to_json()[self._ROWS[table]]
        if table == "parameters":
            rows = [
                {"parameter": effect["parameter"], **point}
                for effect in rows
                for point in effect["points"]
            ]
        flat = [_flat(row) for row in rows]
        return pl.DataFrame(flat, infer_schema_length=None, strict=False)


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested mappings as columns with dotted names."""
    row: dict[str, Any] = {}
    for name, part in value.items():
        row |= (
            _flat(part, f"{prefix}{name}.") if isinstance(part, Mapping) else {prefix + name: part}
        )
    return row
