"""What is written about a run: its result, the result files, plots and tables."""

from tasks.report.collect import collect, collect_progress
from tasks.report.files import write_results
from tasks.report.leaderboard import leaderboard_rows
from tasks.report.markdown import leaderboard_markdown, report_markdown
from tasks.report.page import report_html
from tasks.report.plots import learning_curve_png
from tasks.report.preferring import preference_markdown, preference_report
from tasks.report.racing import racing_rows
from tasks.report.spending import spending_markdown
from tasks.report.thinking import thinking_markdown

__all__ = [
    "collect",
    "collect_progress",
    "leaderboard_markdown",
    "leaderboard_rows",
    "learning_curve_png",
    "preference_markdown",
    "preference_report",
    "racing_rows",
    "report_html",
    "report_markdown",
    "spending_markdown",
    "thinking_markdown",
    "write_results",
]
