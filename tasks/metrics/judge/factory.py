"""Judges of a configuration, and checks of them."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from convergence_core.budget.prices import PriceTable
from convergence_core.config import Configuration, JudgeMetric
from convergence_core.config.evaluation import LlmConfig
from convergence_core.config.secrecy import dotted
from convergence_core.errors import ConfigurationError, Problem
from convergence_core.ports import LLM
from convergence_core.records import Case, Params, canonical_json
from convergence_core.space import Space
from tasks.json_values import Missing
from tasks.metrics.judge.judge import LlmJudge
from tasks.metrics.judge.verdicts import is_label, is_label_path, label_at
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line

STAND_IN: Final = "stand-in"
"""Name of the offline judge's model if none is configured."""
_STAND_IN: Final = LlmConfig(model=f"openai/{STAND_IN}")
_FORMS: Final = {"rating": "a number from 1 to 10", "pass_fail": "true or false"}


class OpenLlm(Protocol):
    """Factory of chat models; ``tasks.providers.make_llm`` with its secrets."""

    def __call__(self, config: LlmConfig, /, *, key: str) -> LLM:
        """Return the model; ``key`` is the configuration key of ``config``, for errors."""


def _key_of_llm(configuration: Configuration, name: str) -> str:
    if configuration.evaluation.judges[name].llm is not None:
        return f"{_key(name)}.llm"
    return "api" if configuration.llm is None else "llm"


def _key(name: str) -> str:
    return dotted(("evaluation", "metrics", name))


def problems(configuration: Configuration) -> Iterator[Problem]:
    """Yield the problems of a configuration's judges; their sections are already valid."""
    for name, metric in configuration.evaluation.judges.items():
        key, path = _key(name), metric.label_field
        llm, at = configuration.judge_of(metric), _key_of_llm(configuration, name)
        if metric.votes > 1 and llm is not None and llm.temperature == 0:
            rule = f"must be 1 while `{at}.temperature` is 0: equal votes add nothing"
            fix = f"Write `votes: 1`, or e.g. `temperature: 0.7` under `{at}`."
            yield Problem(key=f"{key}.votes", rule=rule, value=str(metric.votes), fix=fix)
        if path is not None and not is_label_path(path):
            rule = "must be a dotted path that begins with `input` or `expected`"
            fix = "Write e.g. `expected.label`."
            yield Problem(key=f"{key}.label_field", rule=rule, value=f"`{path}`", fix=fix)


def champion_problems(
    configuration: Configuration, space: Space, texts: Mapping[str, str]
) -> Iterator[Problem]:
    """Yield the problems of the champions in pairwise comparisons.

    Args:
        configuration: Configuration with valid sections.
        space: Search space of the configuration.
        texts: Text variant as written → its prompt.
    """
    for name, metric in configuration.evaluation.judges.items():
        yield from _champion(name, metric, space, texts)[1]


def label_problems(configuration: Configuration, cases: Sequence[Case]) -> Iterator[Problem]:
    """Yield the problems of labels in the test cases: absent, or of the wrong form."""
    for name, metric in configuration.evaluation.judges.items():
        path = metric.label_field
        if path is None or metric.mode == "pairwise" or not is_label_path(path):
            continue
        labels = {case.case_id: label_at(case, path) for case in cases}
        known = {key: label for key, label in labels.items() if not isinstance(label, Missing)}
        bad = [key for key, label in known.items() if not is_label(metric.mode, label)]
        key, form = f"{_key(name)}.label_field", _FORMS[metric.mode]
        if cases and not known:
            rule = "must lead to a label in at least one test case"
            fix = f"Write {form} there, or remove `label_field`."
            yield Problem(key=key, rule=rule, value=f"`{path}`", fix=fix)
        elif bad:
            rule = f"must lead to {form} wherever it leads anywhere"
            value = one_line(canonical_json(known[bad[0]]), 60, redacted_text)
            fix = f"Correct the label of {len(bad)} of {len(cases)} cases, e.g. {bad[0]!r}."
            yield Problem(key=key, rule=rule, value=value, fix=fix)


def make_judges(
    configuration: Configuration,
    *,
    space: Space,
    texts: Mapping[str, str],
    rubrics: Mapping[str, str],
    make_llm: OpenLlm,
    prices: PriceTable,
) -> dict[str, LlmJudge]:
    """Return the judges of a configuration by metric; judges of one model share its connections.

    Args:
        configuration: Validated configuration.
        space: Search space, for the champion's canonical parameters.
        texts: Text variant as written → its prompt.
        rubrics: Metric → content of its ``rubric_path``.
        make_llm: Factory of models.
        prices: Price table.

    Raises:
        ConfigurationError: a judge is invalid; holds all problems.
    """
    from tasks.providers import split_model  # noqa: PLC0415 - brings httpx, which reports do not need

    wrong = [*problems(configuration), *champion_problems(configuration, space, texts)]
    if wrong:
        raise ConfigurationError(wrong)
    key_to_llm: dict[str, tuple[LLM, asyncio.Semaphore]] = {}
    judges: dict[str, LlmJudge] = {}
    for name, metric in configuration.evaluation.judges.items():
        config, at = configuration.judge_of(metric), _key_of_llm(configuration, name)
        if config is None:  # only the mock is called, at no cost
            config, prices = (
                _STAND_IN,
                prices.with_overrides({STAND_IN: {"input": 0, "output": 0}}),
            )
        key = config.model_dump_json()
        if key not in key_to_llm:
            key_to_llm[key] = make_llm(config, key=at), asyncio.Semaphore(config.parallel_workers)
        llm, slots = key_to_llm[key]
        judges[name] = LlmJudge(
            name,
            metric,
            config,
            llm=llm,
            model=split_model(config.model)[1],
            prices=prices,
            rubric=rubrics.get(name),
            champion=_champion(name, metric, space, texts)[0],
            slots=slots,
        )
    return judges


def _champion(
    name: str, metric: JudgeMetric, space: Space, texts: Mapping[str, str]
) -> tuple[Params | None, list[Problem]]:
    """Return the canonical parameters of a pair's champion, or the problems."""
    if metric.mode != "pairwise":
        return None, []
    key = f"{_key(name)}.champion"
    if not isinstance(metric.champion, dict):
        if (baseline := space.baseline()) is not None:
            return baseline, []
        rule = "`default` needs parameters with a `default`, and no parameter has one"
        fix = "Write `default:` of the parameters under `search_space`, or the champion's values."
        return None, [Problem(key=key, rule=rule, value="", fix=fix)]
    written = {
        # The space knows prompts, not their files.
        param: texts.get(value, value) if isinstance(value, str) else value
        for param, value in metric.champion.items()
    }
    wrong = space.validate(written)
    if wrong:
        keys = [f"{key}.{dotted((problem.key,))}" if problem.key else key for problem in wrong]
        values = [one_line(problem.value, 60, redacted_text) for problem in wrong]
        return None, [
            replace(problem, key=moved, value=value)
            for problem, moved, value in zip(wrong, keys, values, strict=True)
        ]
    try:
        return space.canonical(written), []  # type: ignore[arg-type]  # validated above
    except ValueError as error:
        fix = "Write a value for each parameter that is active."
        rule = f"must be a point of the search space: {error}"
        return None, [Problem(key=key, rule=rule, value="", fix=fix)]
