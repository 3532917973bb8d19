"""Rules of ``society``: its texts are read again after a resume, so they must be kept."""

from convergence_core.config.models import Configuration
from convergence_core.config.report import Report
from convergence_core.config.search_space import TextParam


def check_society(configuration: Configuration, report: Report) -> None:
    """Check what thinking needs of other sections."""
    _check_mutation(configuration, report)
    society = configuration.society
    if not (society.thinks or society.prefers):
        return
    if not configuration.storage.keep_text:
        report.add(
            ("storage", "keep_text"),
            "must be true with `society.enabled`: thoughts and preferences are read again after a "
            "resume",
            "Remove it, or write `society: {enabled: false}`.",
            value="false",
            about=(("society", "enabled"),),
        )
    strategies = society.rlp.strategies
    twice = next((name for name in strategies if strategies.count(name) > 1), None)
    if twice is not None:
        report.add(
            ("society", "rlp", "strategies"),
            "must name each strategy once",
            f"Remove one `{twice}`.",
            value=twice,
        )


def _check_mutation(configuration: Configuration, report: Report) -> None:
    if configuration.society.prefers:
        return
    for name, parameter in configuration.search_space.parameters.items():
        if isinstance(parameter, TextParam) and parameter.mutate:
            report.add(
                ("search_space", "parameters", name, "mutate"),
                "needs preferences to distil new variants from",
                "Write `society: {enabled: true, learning: {sao_enabled: true}}` and an `llm`, or "
                "remove it and list all texts in `variants`.",
                value="true",
            )
