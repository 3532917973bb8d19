"""Rules of ``optimization.execution.runner`` and of the keys beside it."""

from urllib.parse import urlsplit

from convergence_core.config.api import CHAT_KINDS
from convergence_core.config.models import Configuration
from convergence_core.config.report import Report
from convergence_core.config.source import Path

_EXECUTION: Path = ("optimization", "execution")
_DEFAULT_HOSTS = frozenset({"api.openai.com", "api.groq.com", "generativelanguage.googleapis.com"})
"""Where chat models are whose endpoint is not written."""


def check_runner(configuration: Configuration, report: Report) -> None:
    """Check that what is written has an effect, and that each process can have a call."""
    _check_rates(configuration, report)
    execution = configuration.optimization.execution
    about: tuple[Path, ...] = ((*_EXECUTION, "runner"),)
    if execution.cluster is not None and execution.runner not in ("dask", "ray"):
        rule = f"has no effect with `runner: {execution.runner}`"
        fix = "Remove it, or write `runner: dask` or `runner: ray`."
        report.add((*_EXECUTION, "cluster"), rule, fix, of_key=True, about=about)
    if execution.processes is None:
        return
    if execution.runner == "threads":
        rule = "has no effect with `runner: threads`"
        fix = "Remove it, or write `runner: processes`."
        report.add((*_EXECUTION, "processes"), rule, fix, of_key=True, about=about)
    elif execution.processes > execution.parallel_workers:
        rule = f"must not exceed `parallel_workers` ({execution.parallel_workers})"
        fix = f"Write {execution.parallel_workers} or less, or more `parallel_workers`."
        report.add(
            (*_EXECUTION, "processes"),
            rule,
            fix,
            value=str(execution.processes),
            about=((*_EXECUTION, "parallel_workers"),),
        )


def _check_rates(configuration: Configuration, report: Report) -> None:
    """Refuse a host that nobody asks: its limit would have no effect."""
    api = configuration.api
    judges = [metric.llm for metric in configuration.evaluation.metrics.values()]
    llms = [llm for llm in (configuration.llm, *judges) if llm is not None]
    urls = [api.endpoint, *(model.endpoint for model in api.models.values())]
    urls += [llm.endpoint for llm in llms]
    hosts = {host for url in urls if url is not None and (host := _host(url))}
    if (api.kind in CHAT_KINDS and not api.models and api.endpoint is None) or any(
        llm.endpoint is None for llm in llms
    ):
        hosts |= _DEFAULT_HOSTS
    for host in configuration.optimization.execution.calls_per_second:
        if host not in hosts:
            known = ", ".join(f"`{name}`" for name in sorted(hosts)) or "none: a function has none"
            report.add(
                (*_EXECUTION, "calls_per_second", host),
                "must be a host that this configuration asks, as in its URL",
                f"Hosts here: {known}.",
                of_key=True,
            )


def _host(url: str) -> str:
    """Return the host of a URL with its port; empty where it has none, which other rules tell."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2].lower()
    except ValueError:
        return ""
