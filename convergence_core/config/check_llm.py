"""Rules of ``llm``: the model that judges must be reachable, and be asked by someone."""

from collections.abc import Iterator

from convergence_core.config.budget import LlmConfig, provider_of
from convergence_core.config.check_urls import check_url
from convergence_core.config.models import Configuration
from convergence_core.config.problems import listing
from convergence_core.config.report import Report
from convergence_core.config.shown import shown
from convergence_core.config.source import Path

_LLM: Path = ("llm",)
_KEYS = {"openai": "OPENAI_API_KEY", "groq": "GROQ_API_KEY", "gemini": "GEMINI_API_KEY"}
_KEY_FIX = "Put the key into an environment variable and name it by `api_key_env`."


def check_llm(configuration: Configuration, report: Report) -> None:
    """Check each model that judges, and that the general one is used."""
    for path, llm in llms_of(configuration):
        _check(llm, path, report)
    if configuration.llm is not None and not _is_used(configuration):
        rule = "has no effect: no metric of type `llm_judge` asks it, and nobody thinks or prefers"
        fix = (
            "Remove it, add a metric, e.g. `quality: {type: llm_judge, rubric: …}`, or write "
            "`society: {enabled: true}`."
        )
        report.add(_LLM, rule, fix, of_key=True, about=(("evaluation", "metrics"),))


def llms_of(configuration: Configuration) -> Iterator[tuple[Path, LlmConfig]]:
    """Yield each model that judges, and where it stands."""
    if configuration.llm is not None:
        yield _LLM, configuration.llm
    for name, metric in configuration.evaluation.metrics.items():
        if metric.llm is not None:
            yield ("evaluation", "metrics", name, "llm"), metric.llm


def _is_used(configuration: Configuration) -> bool:
    metrics = configuration.evaluation.metrics.values()
    society = configuration.society
    return society.thinks or society.prefers or any(m.type == "llm_judge" for m in metrics)


def _check(llm: LlmConfig, path: Path, report: Report) -> None:
    provider = provider_of(llm.model)
    if llm.endpoint is not None:
        check_url((*path, "endpoint"), llm.endpoint, report, secret_fix=_KEY_FIX)
    elif provider == "azure":
        rule = "is required by models of `azure`"
        fix = "Add `endpoint:` with the URL of your resource."
        where = ((*path, "model"),)
        report.add((*path, "endpoint"), rule, fix, of_key=True, about=where)
    elif provider is None:
        rule = f"must begin with {listing([f'{name}/' for name in _KEYS])} without an `endpoint`"
        fix = "Write e.g. `openai/gpt-4o-mini`, or add `endpoint:` with a URL."
        about: tuple[Path, ...] = ((*path, "endpoint"),)
        report.add((*path, "model"), rule, fix, value=shown(llm.model), about=about)
    elif llm.api_key_env is None:
        rule = f"is required by models of `{provider}`"
        fix = f"Add `api_key_env: {_KEYS[provider]}`, or an `endpoint` that needs no key."
        about = ((*path, "endpoint"), (*path, "model"))
        report.add((*path, "api_key_env"), rule, fix, of_key=True, about=about)
