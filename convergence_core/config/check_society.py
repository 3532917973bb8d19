"""Rules of ``society``: thoughts are read again after a resume, so their texts must be kept."""

from convergence_core.config.models import Configuration
from convergence_core.config.report import Report


def check_society(configuration: Configuration, report: Report) -> None:
    """Check what thinking needs of other sections."""
    if not configuration.society.thinks:
        return
    if not configuration.storage.keep_text:
        report.add(
            ("storage", "keep_text"),
            "must be true with `society.enabled`: thoughts are read again after a resume",
            "Remove it, or write `society: {enabled: false}`.",
            value="false",
            about=(("society", "enabled"),),
        )
    strategies = configuration.society.rlp.strategies
    twice = next((name for name in strategies if strategies.count(name) > 1), None)
    if twice is not None:
        report.add(
            ("society", "rlp", "strategies"),
            "must name each strategy once",
            f"Remove one `{twice}`.",
            value=twice,
        )
