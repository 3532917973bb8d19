"""Loader of configurations and the files that they name; reports all problems."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from convergence_core.config import Configuration, TextParam, parse_mapping
from convergence_core.config.api import BODILESS, CHAT_KINDS
from convergence_core.config.loader import configuration_of
from convergence_core.config.problems import nearest
from convergence_core.config.secrecy import dotted, shown
from convergence_core.config.source import ConfigSource, Path as KeyPath, read_yaml, texts_of
from convergence_core.config.space_rules import unused
from convergence_core.errors import ConfigurationError, Problem
from convergence_core.records import Case, Json, sha256_hex
from convergence_core.result.number_text import plural
from convergence_core.space import Space
from convergence_core.space.builder import build_space
from tasks.http.request_templates import Placeholder, input_at, placeholders
from tasks.inputs.case_files import (
    RawCase,
    Reporter,
    decode,
    load_json,
    raw_case,
    read_bytes,
    read_cases,
)
from tasks.inputs.cases import (
    build_cases,
    hash_of,
    leak_warnings,
    limited_weights,
    retyped_warnings,
    split_holdout,
    with_groups,
)
from tasks.inputs.facts import facts_of
from tasks.json_values import Missing
from tasks.metrics.comparisons import check_schema
from tasks.metrics.judge import factory as judge_factory

_LIKE_A_NAME = re.compile(r"[-+]?(?:0\d+|[1-9]\d*\.\d+0)")
"""Number that prints differently than written."""
TEXT_SUFFIXES = (".md", ".txt", ".prompt")
"""Suffixes that make a variant a path, if it is one line without spaces."""

_CASES = "evaluation.test_cases"
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A configuration and the content of its files."""

    configuration: Configuration
    base_dir: Path
    config_path: Path | None
    """``None`` for a configuration from Python."""
    space: Space
    cases: tuple[Case, ...]
    search_cases: tuple[Case, ...]
    holdout_cases: tuple[Case, ...]
    """Held-out cases, on which the final check measures the result of the search."""
    cases_sha256: str
    texts: Mapping[str, str]
    """Text variant as written → its prompt."""
    schemas: Mapping[str, Json] = field(default_factory=dict)
    """Metric → its JSON Schema."""
    rubrics: Mapping[str, str] = field(default_factory=dict)
    """Metric → content of its ``rubric_path``."""
    warnings: tuple[Problem, ...] = ()
    """Settings that are legal but probably unintended."""

    @property
    def facts(self) -> dict[str, str]:
        """Hashes of what rewards depend on besides cases; see ``tasks.inputs.facts``."""
        rubrics = {
            f"sha256 of the rubric of {name}": sha256_hex(text)
            for name, text in self.rubrics.items()
        }
        return {**facts_of(self.configuration, self.base_dir), **rubrics}


def load(path: str | Path, assignments: Sequence[str] = ()) -> Loaded:
    """Load a configuration file and all files that it names.

    Args:
        path: Configuration file.
        assignments: ``dotted.key=value`` from the command line, with YAML values; the last one of
            a key wins.

    Raises:
        ConfigurationError: contains every problem of all files, or an assignment is wrong.

    Example:
        >>> loaded = load("optimization.yaml", ["optimization.seed=7"])
        >>> len(loaded.cases), loaded.configuration.optimization.seed
        (40, 7)
    """
    path = Path(path)
    source = read_yaml(read_config(path), str(path))
    if assignments and isinstance(source.data, dict) and not source.problems:
        for assignment in assignments:
            _assign(source.data, assignment)
        return replace(load_mapping(source.data, path.parent), config_path=path)
    return _Loader(configuration_of(source), path.parent, source, path).load()


def read_config(path: Path) -> bytes:
    """Return the content of a configuration file.

    Raises:
        ConfigurationError: the file is missing, not a file, unreadable or empty.
    """
    try:
        return read_bytes(path, Reporter(file=str(path), key=""))
    except ConfigurationError as error:
        raise ConfigurationError([_of_config(error.problems[0], path)]) from None


def load_mapping(
    mapping: Mapping[str, Any], base_dir: str | Path = ".", *, allow_callable: bool = False
) -> Loaded:
    """Load a configuration given as Python data, and all files that it names.

    Args:
        mapping: Mapping in the form of the file.
        base_dir: Base of relative paths.
        allow_callable: Whether the caller supplies target and evaluator as callables.

    Raises:
        ConfigurationError: contains every problem of all files.
    """
    configuration = parse_mapping(mapping, allow_callable=allow_callable)
    return _Loader(configuration, Path(base_dir), ConfigSource(), None).load()


def _assign(tree: dict[str, Any], assignment: str) -> None:
    """Set one value in a tree.

    Raises:
        ConfigurationError: the text is not an assignment, or its path leads through a non-mapping.
    """
    key, equals, text = assignment.partition("=")
    *above, last = key.strip().split(".")
    if not equals or not all([*above, last]):
        rule, fix = "must be `dotted.key=value`", "Write e.g. `--set optimization.seed=3`."
        raise ConfigurationError.of("--set", rule, fix, value=repr(assignment))
    source = read_yaml(text, None) if text.strip() else ConfigSource()
    if source.problems:
        rule, fix = "must have a YAML value", "Put it in quotes."
        raise ConfigurationError.of("--set", rule, fix, value=repr(assignment))
    node = tree
    for part in above:
        below = node.setdefault(part, {})
        if below is None:
            below = node[part] = {}
        if not isinstance(below, dict):
            rule = f"must lead through mappings, but `{part}` is not one"
            fix = "Replace the whole of it: `--set " + ".".join(above) + "={…}`."
            raise ConfigurationError.of("--set", rule, fix, value=repr(assignment))
        node = below
    node[last] = source.data


def is_text_path(variant: str) -> bool:
    """Return whether a text variant is the path of a file rather than the prompt itself."""
    return variant.lower().endswith(TEXT_SUFFIXES) and not any(c.isspace() for c in variant)


def _of_config(problem: Problem, path: Path) -> Problem:
    return Problem(
        key="",
        rule=problem.rule.replace("must name a file", "the configuration must be a file"),
        value=problem.value or repr(str(path)),
        fix="`convergence init` writes an example." if "exists" in problem.rule else problem.fix,
    )


@dataclass(slots=True, eq=False)
class _Loader:
    configuration: Configuration
    base_dir: Path
    source: ConfigSource
    """Source of the configuration, for positions; empty for a configuration from Python."""
    path: Path | None
    _problems: list[Problem] = field(default_factory=list, init=False)
    _warnings: list[Problem] = field(default_factory=list, init=False)

    def load(self) -> Loaded:
        configuration = self.configuration
        texts = self._texts()
        schemas = self._schemas()
        rubrics = self._rubrics()
        cases = self._cases()
        self._warn_of_retyped_choices()
        self._check_request_templates(cases)
        self._check_request(texts or {})
        self._check_texts(texts or {}, cases)
        space = None
        if texts is not None:
            space = self._collect(partial(build_space, configuration.search_space, texts))
        if space is not None and texts is not None:
            self._check_judges(space, texts, cases)
        if self._problems or space is None or texts is None:
            raise ConfigurationError(list(dict.fromkeys(self._problems)))
        share = configuration.evaluation.test_cases.holdout
        grouped = self._grouped(cases)
        by_id = {case.case_id: case for case in grouped}
        # By the user's groups only: both sides of the split need similar cases.
        search_cases, holdout_cases = (
            tuple(by_id[case.case_id] for case in part) for part in split_holdout(cases, share)
        )
        return Loaded(
            configuration=configuration,
            base_dir=self.base_dir,
            config_path=self.path,
            space=space,
            cases=grouped,
            search_cases=search_cases,
            holdout_cases=holdout_cases,
            cases_sha256=hash_of(cases),
            texts=texts,
            schemas=schemas,
            rubrics=rubrics,
            warnings=tuple(self._warnings),
        )

    def _grouped(self, cases: tuple[Case, ...]) -> tuple[Case, ...]:
        """Group similar cases, and warn of the groups."""
        grouped = with_groups(cases)
        made = [case.group for case in grouped if (case.group or "").startswith("alike:")]
        if made:
            self._warnings.append(
                Problem(
                    key=_CASES,
                    rule="should differ, or name a `group`: "
                    f"{plural(len(made), 'case')} with inputs that share most of their rarer words "
                    f"form {plural(len(set(made)), 'group')}, each of which the gate counts once",
                    fix="Give cases that only look alike their own `group`.",
                )
            )
        return grouped

    def _warn_of_retyped_choices(self) -> None:
        """Warn of choices that look like names, such as ``3.10``, but are parsed as numbers."""
        for path, written in self.source.retyped.items():
            is_choice = path[3:4] == ("choices",) or isinstance(path[-1], int)
            if path[:2] != ("search_space", "parameters") or not is_choice:
                continue
            if _LIKE_A_NAME.fullmatch(written):
                rule = f"must be in quotes to stay a string: without them it is read as {float(written):g}"
                fix = f'Write "{written}".'
                self._warnings.append(self.source.problem(path, rule, fix, value=written))

    # -- problems

    def _collect(self, load: Callable[[], T]) -> T | None:
        """Return the result of ``load``, or collect its problems."""
        try:
            return load()
        except ConfigurationError as error:
            self._problems += error.problems
        return None

    def _problem(self, path: KeyPath, rule: str, fix: str, *, value: str = "") -> None:
        self._problems.append(self.source.problem(path, rule, fix, value=value))

    # -- files

    def _read_text(self, named: str, path: KeyPath) -> str | None:
        """Read a file; report problems at the key that names the file."""
        file = self.base_dir / named
        report = Reporter(file=str(file), key="")
        try:
            return decode(read_bytes(file, report), report)
        except ConfigurationError as error:
            (problem,) = error.problems
        if self.source.values and self.source.position(path, of_key=False) is not None:
            self._problem(path, problem.rule, problem.fix, value=problem.value or repr(str(file)))
        else:
            self._problems.append(problem)
        return None

    def _texts(self) -> dict[str, str] | None:
        texts: dict[str, str | None] = {}
        for name, parameter in self.configuration.search_space.parameters.items():
            for i, variant in enumerate(
                parameter.variants if isinstance(parameter, TextParam) else ()
            ):
                at: KeyPath = ("search_space", "parameters", name, "variants", i)
                is_path = is_text_path(variant)
                texts[variant] = self._read_text(variant, at) if is_path else variant
        known = {variant: text for variant, text in texts.items() if text is not None}
        return known if len(known) == len(texts) else None

    def _rubrics(self) -> dict[str, str]:
        rubrics: dict[str, str] = {}
        for name, metric in self.configuration.evaluation.judges.items():
            at: KeyPath = ("evaluation", "metrics", name, "rubric_path")
            path = metric.rubric_path
            text = None if path is None else self._read_text(path, at)
            if text is not None:
                rubrics[name] = text
                if not text.strip():
                    fix = "Describe a good answer."
                    self._problem(at, "must not be empty", fix, value=repr(path))
        return rubrics

    def _schemas(self) -> dict[str, Json]:
        schemas: dict[str, Json] = {}
        for name, metric in self.configuration.evaluation.metrics.items():
            at: KeyPath = ("evaluation", "metrics", name, "schema")
            schema: Json = getattr(metric, "json_schema", None)
            if isinstance(schema, str):
                text = self._read_text(schema, at)
                report = Reporter(file=str(self.base_dir / schema), key=dotted(at))
                schema = None if text is None else self._collect(partial(load_json, text, report))
            if schema is not None:
                schemas[name] = schema
                if (wrong := check_schema(schema)) is not None:
                    self._problem(at, wrong, "See json-schema.org for its rules.")
        return schemas

    def _cases(self) -> tuple[Case, ...]:
        config = self.configuration.evaluation.test_cases
        if config.path is not None:
            file = self.base_dir / config.path
            report = Reporter(file=str(file), key=_CASES)
            raw = self._collect(lambda: read_cases(file, report))
        else:
            report = Reporter(file=self.source.file, key=f"{_CASES}.inline")
            raw = [self._inline(i, v) for i, v in enumerate(config.inline or ())], ()
        if raw is None:
            return ()
        raw_cases, unread = raw
        self._problems += unread
        cases, problems = build_cases(raw_cases, self.configuration.evaluation, report)
        # A file without a readable line needs no message about missing cases.
        self._problems += [] if unread and not raw_cases else problems
        cases += self._approved(cases)
        self._warnings += retyped_warnings(raw_cases, self.configuration, report)
        self._warnings += leak_warnings(cases, report)
        units = {case.group or (case.case_id,) for case in cases}
        if config.holdout > 0 and len(units) == 1 and not problems:
            rule = "needs at least two test cases, one for each side"
            if len(cases) > 1:
                rule += f", but all {len(cases)} are of one group"
            self._problem(("evaluation", "test_cases", "holdout"), rule, "Add cases, or write 0.")
        return cases

    def _approved(self, others: tuple[Case, ...]) -> tuple[Case, ...]:
        """Return the cases that people approved, if any."""
        name = self.configuration.evaluation.test_cases.approved
        if name is None or not (self.base_dir / name).exists():
            return ()
        report = Reporter(file=str(self.base_dir / name), key=f"{_CASES}.approved")
        raw = self._collect(lambda: read_cases(self.base_dir / name, report))
        if raw is None:
            return ()
        cases, problems = build_cases(raw[0], self.configuration.evaluation, report)
        self._problems += [*raw[1], *problems]
        cases = limited_weights(cases, others)
        known = {case.case_id for case in others}
        for twice in (case.case_id for case in cases if case.case_id in known):
            rule, fix = "must not repeat the id of another case", "Remove one of them."
            self._problems.append(report.problem(rule, fix, value=repr(twice)))
        return cases

    def _inline(self, index: int, value: Any) -> RawCase:
        for path in ((*_INLINE, index), (*_INLINE[:-1], index)):
            if path in self.source.values:
                return raw_case(self.source, path, value)
        return RawCase(value)

    # -- checks over several files

    def _check_judges(
        self, space: Space, texts: Mapping[str, str], cases: tuple[Case, ...]
    ) -> None:
        configuration = self.configuration
        missing = [
            *judge_factory.problems(configuration),
            *judge_factory.champion_problems(configuration, space, texts),
            *judge_factory.label_problems(configuration, cases),
        ]
        self._problems += map(self.source.located, missing)

    def _check_request_templates(self, cases: tuple[Case, ...]) -> None:
        """Check that placeholders of a request are parameters, or inputs that all test cases have."""
        request, at = self.configuration.api.request, ("api", "request")
        templates: dict[KeyPath, Json] = {
            (*at, "body"): request.body,
            (*at, "query"): dict(request.query),
            (*at, "options"): dict(request.options),
        }
        for i, message in enumerate(request.messages or ()):
            templates[*at, "messages", i, "content"] = message.content
        parameters = self.configuration.search_space.parameters
        self._check_what_nothing_fills(at)
        for where, template in templates.items():
            for path, text in texts_of(template, where):
                for placeholder in placeholders(text):
                    if placeholder.name == "input":
                        self._check_input(path, placeholder, cases)
                    elif placeholder.name not in parameters or placeholder.path:
                        self._refuse_placeholder(path, placeholder)

    def _check_what_nothing_fills(self, at: KeyPath) -> None:
        request = self.configuration.api.request
        parts = (_keys_of(part) for part in (request.body, request.query, request.options))
        for name in dict.fromkeys(chain(*parts)):
            self._check_unfilled(at, "names of fields", name, "Write it into the value.")
        fix = "Write it into `api.request.body` or `query`."
        for header, value in request.headers.items():
            text = re.sub(r"\$\{[^{}]*\}", "", value)  # environment variables
            self._check_unfilled((*at, "headers", header), "headers", text, fix)

    def _check_unfilled(self, path: KeyPath, place: str, text: str, fix: str) -> None:
        """Report placeholders in a text that is sent unchanged."""
        known = {"input", *self.configuration.search_space.parameters}
        for placeholder in placeholders(text):
            if placeholder.name in known:
                rule = f"must hold no placeholders in {place}, which are sent as they are written"
                self._problem(path, rule, fix, value=shown(placeholder.text))

    def _refuse_placeholder(self, path: KeyPath, placeholder: Placeholder) -> None:
        name = placeholder.name
        guess = nearest(name, [*self.configuration.search_space.parameters, "input"])
        rule = "must hold placeholders of parameters or `{input}` only"
        fix = f"Did you mean `{{{guess}}}`? " if guess and guess != name else ""
        fix += f"For the plain text double the braces: `{{{placeholder.text}}}`."
        self._problem(path, rule, fix, value=shown(placeholder.text))

    def _check_texts(self, texts: Mapping[str, str], cases: tuple[Case, ...]) -> None:
        """Check that test cases have the inputs that a variant names; other braces are literal."""
        api = self.configuration.api
        if api.kind not in CHAT_KINDS and api.request.body is None:
            return  # the target receives the texts unchanged
        for name, parameter in self.configuration.search_space.parameters.items():
            for i, variant in enumerate(getattr(parameter, "variants", ())):
                at: KeyPath = ("search_space", "parameters", name, "variants", i)
                for placeholder in placeholders(texts.get(variant, "")):
                    if placeholder.name == "input":
                        self._check_input(at, placeholder, cases)

    def _check_input(
        self, path: KeyPath, placeholder: Placeholder, cases: tuple[Case, ...]
    ) -> None:
        where = placeholder.path
        if where is None:
            rule = "must hold readable placeholders of the input, as `{input}` or `{input.field}`"
            fix = "Write the field as the test cases name it; rename a column whose name holds braces. For "
            fix += f"plain text double the braces: `{{{placeholder.text}}}`."
            if not placeholder.text.startswith("{input"):  # doubled braces would stay doubled
                fix = f"Write it without blanks: `{{{placeholder.text[1:-1].strip()}}}`."
            self._problem(path, rule, fix, value=shown(placeholder.text))
            return
        lacking = [c.case_id for c in cases if isinstance(input_at(c.input, where), Missing)]
        if lacking:
            rule = f"must name a field that every test case's input has, but {placeholder.text}"
            fix = (
                f"{len(lacking)} of {len(cases)} cases lack it, e.g. {lacking[0]!r}. For plain text "
                f"double the braces: `{{{placeholder.text}}}`."
            )
            self._problem(path, rule + " is not always there", fix)

    def _check_request(self, texts: Mapping[str, str]) -> None:
        api, request = self.configuration.api, self.configuration.api.request
        is_bare = request.body is None and not (request.query and request.method in BODILESS)
        if api.kind in CHAT_KINDS:
            from tasks.targets.chat_checks import check_parameters  # noqa: PLC0415 - brings httpx

            problems = check_parameters(self.configuration, texts.values())
            self._problems += map(self.source.located, problems)
        elif api.kind == "http" and not is_bare:
            templates: list[Json] = [request.body, dict(request.query), *texts.values()]
            named = {found.name for template in templates for found in placeholders(template)}
            received = named | {"model"} if api.models else named
            for name in unused(self.configuration.search_space.parameters, received):
                fix = f"Write `{{{name}}}` into `api.request.body` or `query`, or remove the parameter."
                path: KeyPath = ("search_space", "parameters", name)
                self._problem(path, "must be named in the request that is written", fix)


def _keys_of(template: Any) -> Iterator[str]:
    """Yield the keys of all mappings in a template, which may also be a number or string."""
    if isinstance(template, dict):
        yield from template
        template = [*template.values()]
    for item in template if isinstance(template, list) else ():
        yield from _keys_of(item)


_INLINE: KeyPath = ("evaluation", "test_cases", "inline")
