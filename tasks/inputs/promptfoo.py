"""Import of a promptfoo configuration.

An assertion becomes a check of its test case (metric type ``checks``), a rubric for the judge
(``llm_judge``), or a metric of latency or cost. Unsupported parts are counted by kind.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from convergence_core.config.evaluation import PlainMetric
from convergence_core.errors import ConfigurationError
from convergence_core.records import Json
from tasks.inputs.promptfoo_tests import (
    CODE,
    VARIABLE,
    SkippedTestError,
    expanded_tests,
    filled,
    mapping_of,
    matching_files,
    read_document,
    shortened,
)
from tasks.json_values import Missing, pick
from tasks.metrics.comparisons import check_expected
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import redact_json

_SERVICES: Final[Mapping[str, tuple[str, str | None, str | None]]] = {
    "openai": ("openai", "https://api.openai.com/v1", "OPENAI_API_KEY"),
    "anthropic": ("anthropic", None, "ANTHROPIC_API_KEY"),
    "groq": ("groq", None, "GROQ_API_KEY"),
    "google": ("gemini", None, "GEMINI_API_KEY"),
    "mistral": ("openai", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "deepseek": ("openai", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "openrouter": ("openai", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "ollama": ("openai", "http://localhost:11434/v1", None),
}
"""Prefix of a provider → kind, endpoint, environment variable of the key."""
_MODEL: Final = re.compile(
    r"(\w+):(?!(?:embedding|image|assistant):)(?:(?:chat|messages|responses|completion):)?(.+)"
)
"""Service and model in a provider's name."""
_OPTIONS: Final = (
    *("temperature", "max_tokens", "max_completion_tokens", "top_p", "frequency_penalty"),
    *("presence_penalty", "seed", "stop", "response_format", "reasoning_effort", "tools"),
    "tool_choice",
)
_RENAMED: Final = {"maxOutputTokens": "max_tokens", "topP": "top_p"}
"""Google's option names."""
_RUBRICS: Final[Mapping[str, str]] = {
    "llm-rubric": "{}",
    "grade": "{}",
    "factuality": "The answer agrees with this statement: {}",
    "model-graded-factuality": "The answer agrees with this statement: {}",
    "model-graded-closedqa": "The answer meets this criterion: {}",
}
_JUDGE: Final = (
    "REFERENCE says what the answer must be like. The answer passes if it meets all of it."
)
_CHECKS: Final = PlainMetric(type="checks", direction="higher")
_LIMITED: Final = {"latency": "latency_ms", "cost": "cost_usd"}
"""Assertions that become metrics of all cases."""
_IGNORED: Final = frozenset(
    {"prompts", "providers", "targets", "tests", "defaultTest", "description"}
    | {"outputPath", "sharing", "$schema", "tags"}
)
_OF_TESTS: Final = frozenset({"vars", "assert", "description", "threshold", "options", "metadata"})
_OF_ASSERTIONS: Final = frozenset(
    {"type", "value", "threshold", "weight", "assert", "transform", "$ref"}
)
"""Supported keys, or keys that are reported with their assertion."""
_OUR_PLACEHOLDER: Final = re.compile(
    r"\{(?:input(?:[ \t]*[.\[][^{}\n]*)?|model(?:\.[A-Za-z0-9_-]+|\[-?\d+\])*)\}"
)
"""Plain text in promptfoo that would be a placeholder here."""
_WORD: Final = re.compile(r"(?<!\{)\{(?!input\b)[A-Za-z_][\w.\[\]-]*\}(?!\})")
_FILE: Final = re.compile(
    r"exec:.*|\S+\.(?:(txt|md|j2)|(json|ya?ml)|py|[cm]?js|ts|sh|csv|jsonl|png|jpe?g|gif|webp|bmp|svg|pdf)(:\w+)?"
)
"""Prompt that names a file with text, messages or code; a function name may follow."""
_IMAGE: Final = re.compile(r"\btype['\"]?\s*:\s*['\"]?(?:input_image|image_url|image)\b")
_LEAST_HELD_OUT: Final = 8
"""Minimum cases for holding out a quarter of them."""

Messages = list[dict[str, str]]


@dataclass(slots=True)
class Project:
    """Converted configuration and cases, with the unsupported parts."""

    configuration: dict[str, Any] = field(default_factory=dict)
    cases: list[dict[str, Json]] = field(default_factory=list)
    lost: Counter[str] = field(default_factory=Counter)
    """Unsupported part → its number of occurrences."""


def promptfoo_project(path: Path, cases_name: str) -> Project:
    """Convert a promptfoo configuration.

    Args:
        path: Path of the configuration, the base of the files that it names.
        cases_name: File of the test cases, as the configuration names it.

    Raises:
        ValueError: it is not a promptfoo configuration.
        ConfigurationError: it has no supported prompt.
        OSError: it is unreadable.
    """
    document, project = read_document(path), Project()
    lost: Counter[str] = Counter()
    names, prompts = _prompts(document.get("prompts"), path.parent, lost)
    if not prompts:
        rule = "must hold a prompt as text"
        fix = "Write one, e.g. `prompts: ['Sort this: {{text}}']`, or save what code returns as a .txt file."
        value = ", ".join(+lost) or "none"
        raise ConfigurationError.of(f"{path}: prompts", rule, fix, value=value)
    for key in document.keys() - _IGNORED:
        where = ": move it below `defaultTest`" if key == "assert" else ""
        lost[f"top-level `{shortened(key)}`{where}"] += 1
    api, parameters = _models(document, lost)
    metrics = _add_cases(project, document, path.parent, sorted(names), lost)
    api["request"] = {"messages": _messages(prompts, parameters, lost), **api["request"]}
    description = document.get("description")
    described = {"description": description} if isinstance(description, str) else {}
    holdout = 0.25 if len(project.cases) >= _LEAST_HELD_OUT else 0
    configuration: Any = {
        "api": {"name": "imported", **described, **api},
        "search_space": {"parameters": parameters},
        "evaluation": {
            "test_cases": {"path": cases_name, "holdout": holdout},
            "metrics": metrics,
        },
        **({"llm": _judge_model(api, parameters)} if "judge" in metrics else {}),
    }
    project.configuration = redact_json(configuration, redacted_text)  # type: ignore[assignment]  # a mapping stays one
    project.cases = [redact_json(case, redacted_text) for case in project.cases]  # type: ignore[misc]
    project.lost = +lost
    return project


# -- prompts


def _prompts(written: Any, folder: Path, lost: Counter[str]) -> tuple[set[str], list[Messages]]:
    """Return the variables in prompts, and each prompt as messages with our placeholders."""
    names: set[str] = set()
    prompts: list[Messages] = []
    for text in _prompt_texts(written, folder, lost):
        messages = _chat(text)
        if _IMAGE.search(text):
            lost[f"prompt with images: {shortened(text)}"] += 1
            continue
        if any(_has_code(message["content"]) for message in messages):
            lost["prompt with code of its template language"] += 1
            continue
        for message in messages:
            content = message["content"]
            names |= {match[1] + match[2] for match in VARIABLE.finditer(content)}
            parts = VARIABLE.split(content)  # text, name, rest, text, …
            parts[::3] = [_OUR_PLACEHOLDER.sub(r"{\g<0>}", part) for part in parts[::3]]
            parts[1::3] = ["{input." + part for part in parts[1::3]]
            parts[2::3] = [part + "}" for part in parts[2::3]]
            message["content"] = "".join(parts)
        prompts.append(messages)
    return names, prompts


def _has_code(content: str) -> bool:
    names = {match[1] for match in VARIABLE.finditer(content)}
    return "env" in names or CODE.search(VARIABLE.sub("", content)) is not None


def _prompt_texts(written: Any, folder: Path, lost: Counter[str]) -> Iterator[str]:
    for prompt in [*written] if isinstance(written, Mapping | list) else [written]:
        text = prompt.get("raw", prompt.get("id")) if isinstance(prompt, Mapping) else prompt
        name = str(text).removeprefix("file://")
        match = _FILE.fullmatch(name)
        if isinstance(text, str) and match is None and name == text:
            yield text
        elif match is None or not (match[1] or match[2]):
            shown = name if isinstance(text, str) else json.dumps(prompt, default=str)
            lost[f"prompt that is not text: {shortened(shown)}"] += prompt is not None
        else:
            files = matching_files(name, folder)
            lost[f"prompt in {shortened(name)}, which does not exist here"] += not files
            for file in files:
                content = file.read_text(encoding="utf-8-sig")
                parts = re.split(r"(?m)^---\s*$", content) if match[1] else [content]
                yield from (part.strip() for part in parts if part.strip())


def _chat(text: str) -> Messages:
    """Return a prompt as messages: its JSON or YAML list, or one user message."""
    if text.lstrip().startswith(("[", "-")):
        try:
            messages = yaml.safe_load(text)
        except yaml.YAMLError:
            messages = None
        if isinstance(messages, list) and messages and all(map(_is_message, messages)):
            return [{key: message[key] for key in ("role", "content")} for message in messages]
    return [{"role": "user", "content": text}]


def _is_message(value: object) -> bool:
    return (
        isinstance(value, Mapping)
        and value.get("role") in ("system", "user", "assistant", "developer")
        and isinstance(value.get("content"), str)
    )


def _messages(
    prompts: Sequence[Messages], parameters: dict[str, Any], lost: Counter[str]
) -> Messages:
    """Return the request's messages; contents that differ between prompts become parameters."""
    roles = [message["role"] for message in prompts[0]]
    alike = [prompt for prompt in prompts if [message["role"] for message in prompt] == roles]
    lost["prompt with roles other than the first prompt's"] += len(prompts) - len(alike)
    messages: Messages = []
    for i, role in enumerate(roles):
        variants = [*dict.fromkeys(conversation[i]["content"] for conversation in alike)]
        is_last = i == len(roles) - 1 and not any("variants" in p for p in parameters.values())
        if len(variants) == 1 and not is_last:
            content = _WORD.sub(r"{\g<0>}", variants[0])
            messages.append({"role": role, "content": content})
            continue
        name = "prompt" if "prompt" not in parameters else f"prompt_{i + 1}"
        parameters[name] = {"type": "text", "variants": variants, "default": variants[0]}
        messages.append({"role": role, "content": f"{{{name}}}"})
    return messages


# -- providers


def _models(
    document: Mapping[str, Any], lost: Counter[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return ``api`` and the parameters for the providers and their options."""
    written = document.get("providers", document.get("targets"))
    groups: dict[tuple[str, str | None, str | None], list[tuple[str, Mapping[str, Any]]]] = {}
    for entry in written if isinstance(written, list) else [written]:
        provider = _provider(entry)
        for name in provider.keys() - {"id", "label", "config"}:
            lost[f"`{shortened(name)}` of providers"] += 1
        config, match = mapping_of(provider.get("config")), _MODEL.fullmatch(str(provider["id"]))
        if match is None or match[1] not in _SERVICES:
            lost[f"provider {shortened(provider['id'])}"] += entry is not None
            continue
        kind, endpoint, key = _SERVICES[match[1]]
        service = kind, config.get("apiBaseUrl", endpoint), key
        groups.setdefault(service, []).append((match[2], config))
    if not groups:
        lost["no provider is carried: gpt-4o-mini replaces it"] += 1
        groups[_SERVICES["openai"]] = [("gpt-4o-mini", {})]
    chosen = max(groups, key=lambda group: len(groups[group]))
    members, (kind, endpoint, key) = groups.pop(chosen), chosen
    for model, _ in (member for group in groups.values() for member in group):
        lost[f"provider of another service than {kind}: {shortened(model)}"] += 1
    models = [*dict.fromkeys(model for model, _ in members)]
    parameters = {"model": _choice(models)}
    options = _options([config for _, config in members], parameters, lost)
    api = {
        "kind": kind,
        **({} if endpoint is None else {"endpoint": endpoint}),
        **({} if key is None else {"auth": {"type": "bearer", "token_env": key}}),
        "request": {"options": options, "unsupported": "drop"},
    }
    return api, parameters


def _choice(values: Sequence[Any]) -> dict[str, Any]:
    return {"type": "categorical", "choices": [*values], "default": values[0]}


def _options(
    configs: Sequence[Mapping[str, Any]], parameters: dict[str, Any], lost: Counter[str]
) -> dict[str, Any]:
    """Return the options of all models; options with several values become parameters."""
    options: dict[str, Any] = {}
    configs = [{_RENAMED.get(k, k): v for k, v in config.items()} for config in configs]
    for name in dict.fromkeys(name for config in configs for name in config):
        values = [config[name] for config in configs if name in config]
        distinct = [v for i, v in enumerate(values) if v not in values[:i]]
        is_file = any(isinstance(v, str) and v.startswith("file://") for v in distinct)
        if name not in _OPTIONS or is_file:
            lost[f"option `{shortened(name)}` of providers"] += name != "apiBaseUrl"
        elif len(distinct) == 1 or any(isinstance(v, dict | list | None) for v in distinct):
            options[name] = distinct[0]
            is_of_some = len(values) < len(configs) or len(distinct) > 1
            lost[f"option `{name}` of some providers only: it applies to all"] += is_of_some
        else:
            parameters[name] = _choice(distinct)
    return options


def _provider(written: Any) -> Mapping[str, Any]:
    """Return a provider's ``id`` and other keys, from any of promptfoo's forms."""
    if not isinstance(written, Mapping):
        return {"id": written}
    if "id" not in written and len(written) == 1:
        ((name, body),) = written.items()
        return {"id": name, "config": mapping_of(body).get("config")}
    return {"id": None, **written}


def _judge_model(api: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    judge = {
        "model": f"{api['kind']}/{parameters['model']['choices'][0]}",
        "endpoint": api.get("endpoint"),
        "api_key_env": api.get("auth", {}).get("token_env"),
    }
    return {key: value for key, value in judge.items() if value is not None}


# -- tests


def _add_cases(
    project: Project,
    document: Mapping[str, Any],
    folder: Path,
    names: Sequence[str],
    lost: Counter[str],
) -> dict[str, Any]:
    """Add the cases of a document to a project; return the metrics."""
    # Without a test, promptfoo runs each prompt once.
    document = {**document, "tests": document.get("tests") or [{}]}
    default = document.get("defaultTest", {})
    lost[f"`defaultTest` in {shortened(default)}"] += not isinstance(default, Mapping)
    limits: dict[str, set[float]] = {}
    for number, (test, variables) in enumerate(expanded_tests(document, folder, lost), 1):
        about = test.get("description")
        project.cases.append(
            {
                "id": str(number),
                "input": {name: _value(variables, name) for name in names} or {"test": number},
                "expected": _expected(test, variables, limits, lost),
                **({"description": about} if isinstance(about, str) else {}),
            }
        )
    if not project.cases:
        rule, fix = "must hold a test that can be carried", "Correct or replace what is named."
        raise ConfigurationError.of("tests", rule, fix, value=", ".join(+lost) or "none")
    expecting = [case for case in project.cases if case["expected"] != {"checks": []}]
    if expecting:
        noun = "test without a carried assertion, left out"
        lost[noun] += len(project.cases) - len(expecting)
        project.cases = expecting
    metrics = _metrics([case["expected"] for case in project.cases])
    for name, values in limits.items():
        lost[f"thresholds of {name} except the lowest"] += len(values) - 1
        scale = {"good": min(values), "bad": 2 * min(values)}
        metrics[name] = {"weight": 0.1, "scale": scale}
    lost["no assertion is carried: any answer counts as right"] += not metrics
    return metrics or {"success_rate": {"weight": 1}}


def _value(variables: dict[str, Json], path: str) -> Json:
    """Return a variable's value for a prompt; empty if the test lacks it."""
    value = pick(variables, path)
    return "" if value is None or isinstance(value, Missing) else value


def _metrics(expected: Sequence[Any]) -> dict[str, Any]:
    """Return the metrics for the cases' expected values."""
    metrics: dict[str, Any] = {}
    if any(check["checks"] for check in expected):
        metrics["checks"] = {"expected_field": "checks", "weight": 1}
    if any("judge" in check for check in expected):
        metrics["judge"] = {
            "type": "llm_judge",
            "mode": "pass_fail",
            "rubric": _JUDGE,
            "expected_field": "judge",
            "weight": 1,
        }
    return metrics


def _expected(
    test: Mapping[str, Any],
    variables: Mapping[str, Json],
    limits: dict[str, set[float]],
    lost: Counter[str],
) -> dict[str, Json]:
    """Return a case's expected value: checks, and a rubric for the judge."""
    for key in (*test, *mapping_of(test.get("options"))):
        lost[f"`{shortened(key)}` of tests"] += key not in _OF_TESTS
    checks, rubrics = _of_assertions(test["assert"], variables, limits, lost)
    threshold = test.get("threshold")
    if isinstance(threshold, int | float) and checks:
        checks = [{"type": "checks", "threshold": threshold, "expected": checks}]
    return {"checks": checks, **({"judge": "\n".join(rubrics)} if rubrics else {})}


def _of_assertions(
    assertions: Sequence[Any],
    variables: Mapping[str, Json],
    limits: dict[str, set[float]],
    lost: Counter[str],
) -> tuple[list[Json], list[str]]:
    """Return the checks and the rubrics of assertions."""
    checks: list[Json] = []
    rubrics: list[str] = []
    for assertion in map(mapping_of, assertions):
        for key in assertion:
            lost[f"`{shortened(key)}` of assertions"] += key not in _OF_ASSERTIONS
        kind = str(assertion.get("type", "$ref"))
        try:
            value = filled(assertion.get("value"), variables)
        except SkippedTestError as error:
            lost[f"assertion {shortened(kind)} with {error}"] += 1
            continue
        threshold = assertion.get("threshold")
        about = {key: assertion[key] for key in ("weight",) if key in assertion}
        check = None if "transform" in assertion else _check(kind, value)
        if kind == "assert-set":
            inner, more = _of_assertions(assertion.get("assert") or (), variables, limits, lost)
            about |= {} if threshold is None else {"threshold": threshold}
            checks += [{"type": "checks", "expected": inner, **about}] if inner else []
            rubrics += more
            lost["rubric in an assert-set: it counts by itself"] += len(more)
        elif kind in _LIMITED and isinstance(threshold, int | float) and threshold > 0:
            limits.setdefault(_LIMITED[kind], set()).add(threshold)
        elif kind in _RUBRICS and isinstance(value, str) and not value.startswith("file://"):
            rubrics.append(_RUBRICS[kind].format(value))
            lost[f"weight of an assertion {kind}"] += "weight" in about
        elif check and check_expected(_CHECKS, [{**check, **about}]) is None:
            checks.append({**check, **about})
        else:
            file = f" ({shortened(value)})" if "file://" in str(value) else ""
            text = " with `transform`" if "transform" in assertion else file
            lost[f"assertion {shortened(kind)}{text}"] += 1
    return checks, rubrics


def _check(kind: str, value: Json) -> dict[str, Json] | None:
    """Return a deterministic assertion as a check; ``None`` if it has no such form."""
    name = kind.removeprefix("not-")
    if isinstance(value, str) and value.startswith("file://"):
        return None
    negated: dict[str, Json] = {"not": True} if name != kind else {}
    lax: dict[str, Json] = {"case_sensitive": False} if name.startswith("icontains") else {}
    metric: dict[str, Json]
    match name.removeprefix("i") if lax else name:
        case "equals" if isinstance(value, dict | list):
            metric = {"type": "json_schema", "expected": {"const": value}}
        case "equals":
            metric = {"type": "exact_match", "expected": value}
        case "contains":
            metric = {"type": "contains", "expected": value}
        case "contains-all":
            metric = {"type": "contains", "expected": [*_parts(value)]}
        case "contains-any":
            metric = {"type": "regex", "expected": "|".join(map(re.escape, _parts(value)))}
        case "starts-with":
            metric = {"type": "regex", "expected": rf"\A{re.escape(str(value))}"}
        case "regex":
            metric = {"type": "regex", "expected": value}
        case "is-json":
            schema = yaml.safe_load(value) if isinstance(value, str) else value
            metric = {"type": "json_schema", "expected": {} if schema is None else schema}
        case _:
            return None
    return {**metric, **lax, **negated}


def _parts(value: Json) -> list[str]:
    """Return the strings of a list, which may be one comma-separated string."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return [part if isinstance(part, str) else json.dumps(part) for part in value or ()]  # type: ignore[union-attr]
