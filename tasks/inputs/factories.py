"""Target and metrics of a loaded configuration."""

from functools import partial

from convergence_core.config import Configuration, JudgeMetric, MetricConfig
from convergence_core.config.api import CHAT_KINDS
from convergence_core.config.evaluation import (
    ExpectingMetric,
    MeasuredMetric,
    PluginMetric,
    UserFunctionMetric,
)
from convergence_core.config.space_rules import unused
from convergence_core.errors import ConfigurationError, Problem
from convergence_core.ports import Metric, Target
from convergence_core.space import Choice, Space, same_value
from tasks.calls.metric_calls import PaidMetric
from tasks.functions.call_forms import call_form, merge
from tasks.functions.user_functions import (
    UserFunction,
    arguments_of,
    describe,
    import_problem,
    load_function,
    resolve,
)
from tasks.http.authentication import token_of
from tasks.inputs.environment import Environment
from tasks.inputs.loader import Loaded
from tasks.metrics.comparisons import comparison
from tasks.metrics.judge.factory import make_judges
from tasks.metrics.metrics import BUILT_IN_METRICS, Compared, FunctionMetric
from tasks.metrics.tool_calls import ToolMetric
from tasks.metrics.user_evaluators import EVALUATOR_TIMEOUT_S, UserEvaluator
from tasks.plugins.entry_points import PluginContext, find_plugin
from tasks.targets.function import FunctionTarget
from tasks.targets.request_price import RequestPrice

MAX_EVALUATOR_THREADS = 32
_FUNCTION = "api.function"


# -- the target


def make_target(
    loaded: Loaded,
    environment: Environment | None = None,
    *,
    local_function: UserFunction | str | None = None,
) -> Target:
    """Return the target of a configuration.

    It reads environment variables on use; ``check_environment`` of ``tasks.http.authentication``
    reports unset ones beforehand.

    Args:
        loaded: Configuration and its files.
        environment: Keys, prices and address of the mock; ``None`` means the process's
            environment.
        local_function: Function that replaces ``api.function``.

    Raises:
        ConfigurationError: the function cannot be imported or called.
    """
    api = loaded.configuration.api
    workers = loaded.configuration.optimization.execution.parallel_workers
    environment = environment or Environment.unchecked(loaded.configuration)
    if environment.mock_url is not None and not has_stand_in(loaded.configuration):
        rule = "calls nothing that `--offline` can mock"
        fix = (
            "Leave out `--offline`: your functions and plugins run as they are. It mocks "
            "endpoints, chat targets, browser sessions, metrics of type `llm_judge`, and `society`."
        )
        raise ConfigurationError.of("api.kind", rule, fix, value=api.kind)
    if api.kind == "function":
        return _function_target(loaded, environment, local_function, workers)
    if api.kind == "http":
        from tasks.targets.endpoint import HttpTarget  # noqa: PLC0415 - brings httpx
        from tasks.targets.endpoint_mock import EndpointMock  # noqa: PLC0415 - as above

        mock = None
        if environment.mock_url is not None:
            mock = EndpointMock(
                environment.mock_url, loaded.configuration, loaded.cases, loaded.schemas
            )
        return HttpTarget(
            api,
            secrets=environment.secrets,
            workers=workers,
            prices=environment.prices,
            mock=mock,
            reads=_fields_read(loaded),
        )
    if api.kind == "plugin":
        return _plugin_target(loaded, environment, workers)
    if api.kind == "browserbase":
        return _browser_target(loaded, environment, workers)
    if api.kind == "agno":
        return _agno_target(loaded, environment, workers)
    from tasks.targets.chat import ChatTarget  # noqa: PLC0415 - brings httpx

    if api.kind == "local" and environment.mock_url is None:
        from tasks.providers.local_chat import check_local_models  # noqa: PLC0415 - as above

        check_local_models(loaded.configuration, loaded.base_dir)
    return ChatTarget(
        loaded.configuration,
        secrets=environment.secrets,
        workers=workers,
        prices=environment.prices,
        base_dir=loaded.base_dir,
        mock_url=environment.mock_url,
    )


def has_stand_in(configuration: Configuration) -> bool:
    """Return whether the configuration calls anything that ``--offline`` mocks."""
    plays = configuration.llm is not None and "games" in configuration.society.model_fields_set
    return configuration.api.kind in {"browserbase", "http"} or plays or asks_models(configuration)


def asks_models(configuration: Configuration) -> bool:
    """Return whether the target, a judge or ``society`` calls a chat model."""
    society = configuration.society
    learns = configuration.llm is not None and (
        society.thinks
        or society.prefers
        or (configuration.writes_prompts and configuration.prompts.writer == "llm")
    )
    is_asked = configuration.api.kind in {*CHAT_KINDS, "agno"}
    return is_asked or bool(configuration.evaluation.judges) or learns


def _function_target(
    loaded: Loaded, environment: Environment, given: UserFunction | str | None, workers: int
) -> FunctionTarget:
    api = loaded.configuration.api
    if given is not None:
        function = resolve(given, loaded.base_dir, key="local_function")
        path = given if isinstance(given, str) and ":" in given else None
    elif api.function is not None:
        function, path = load_function(api.function, loaded.base_dir, key=_FUNCTION), api.function
    else:
        fix = "Pass `local_function=` as when the run started, or write `function:`."
        raise ConfigurationError.of(_FUNCTION, "is required", fix)
    inputs = [case.input for case in loaded.cases if isinstance(case.input, dict)]
    parameters = loaded.configuration.search_space.parameters
    form = call_form(function, parameters.keys(), frozenset().union(*inputs), key=_FUNCTION)
    target = FunctionTarget(
        name=path or describe(function),
        form=form,
        function=function,
        workers=workers,
        timeout_s=api.request.timeout_seconds,
        price=RequestPrice.of(environment.prices, FunctionTarget.provider),
        reads=_fields_read(loaded),
    )
    never = unused(parameters, form.received(parameters.keys()))
    if never:
        rule = "must receive every parameter of the search space, or tuning it changes nothing"
        fix = f"Add `{never[0]}` or `params` to its arguments, or remove the parameter."
        value = f"{target.name} without {', '.join(never)}"
        raise ConfigurationError.of(_FUNCTION, rule, fix, value=value)
    _check_arguments(loaded, target)
    return target


def _check_arguments(loaded: Loaded, target: FunctionTarget) -> None:
    """Check that each argument without a default has a value in every call.

    Raises:
        ConfigurationError: a test case lacks the field, or the parameter is not always active.
    """
    form, parameters = target.form, loaded.configuration.search_space.parameters
    always = {name for name in parameters if _is_always_active(loaded.space, name)}
    sources = {*form.by_position, *dict(form.by_name).values()} - {"input", "params", *always}
    for name, argument in (arguments_of(target.function) or {}).items():
        lacking = [case.case_id for case in loaded.cases if name not in merge(case.input, {})]
        if name in sources and argument.default is argument.empty and lacking:
            rule = "must have a default for each argument that has no value in some calls"
            why = f"{len(lacking)} of {len(loaded.cases)} cases lack it, e.g. {lacking[0]!r}"
            why = "the parameter is not always active" if name in parameters else why
            fix, value = f"Write e.g. `{name}=None`: {why}.", f"`{name}` of {target.name}"
            raise ConfigurationError.of(_FUNCTION, rule, fix, value=value)


def _is_always_active(space: Space, name: str) -> bool:
    """Return whether each choice of the parameters that it depends on activates a parameter."""
    return all(
        isinstance(switch := space.parameters[other], Choice)
        and all(any(same_value(c, value) for value in values) for c in switch.choices)
        and _is_always_active(space, other)
        for other, values in space.parameters[name].when
    )


def _fields_read(loaded: Loaded) -> frozenset[str] | None:
    """Return the answer fields that metrics read; ``None`` if one reads the whole answer."""
    fields: set[str] = set()
    for metric in loaded.configuration.evaluation.metrics.values():
        if isinstance(metric, MeasuredMetric):
            continue
        if isinstance(metric, PluginMetric) or metric.field is None:
            return None
        fields.add(metric.field)
    return frozenset(fields)


def _agno_target(loaded: Loaded, environment: Environment, workers: int) -> Target:
    from tasks.agents.model_calls import AgentModels  # noqa: PLC0415 - brings httpx
    from tasks.targets.agno import make_agno_target  # noqa: PLC0415 - as above

    api = loaded.configuration.api
    assert api.function is not None  # noqa: S101 - the configuration was checked
    models = AgentModels(
        api=api,
        prices=environment.prices,
        secrets=environment.secrets,
        workers=workers,
        mock_url=environment.mock_url,
    )
    factory = load_function(api.function, loaded.base_dir, key=_FUNCTION)
    return make_agno_target(factory, api, name=api.function, models=models, workers=workers)


def _plugin_target(loaded: Loaded, environment: Environment, workers: int) -> Target:
    from tasks.targets.plugin import make_plugin_target  # noqa: PLC0415 - seldom used

    api = loaded.configuration.api
    context = PluginContext(
        name=api.plugin or "",
        options=api.plugin_options,
        base_dir=loaded.base_dir,
        timeout_s=api.request.timeout_seconds,
        n_workers=workers,
        secret=partial(token_of, api, environment.secrets),
    )
    target = make_plugin_target(api, context, prices=environment.prices)
    target.reads = _fields_read(loaded)
    return target


def _browser_target(loaded: Loaded, environment: Environment, workers: int) -> Target:
    from tasks.targets.browser import ScriptRunner, check_playwright, check_script  # noqa: PLC0415 - seldom used
    from tasks.targets.browserbase import BrowserbaseTarget  # noqa: PLC0415 - as above

    api = loaded.configuration.api
    assert api.function is not None  # noqa: S101 - the configuration was checked
    from tasks.http.clients import CONNECT_S  # noqa: PLC0415 - brings httpx

    check_playwright()  # before the script, which may import it
    script = load_function(api.function, loaded.base_dir, key=_FUNCTION)
    check_script(script, api.function)
    if environment.mock_url is not None:
        from tasks.targets.local_browser import check_chromium  # noqa: PLC0415 - as above

        check_chromium()
    runner = ScriptRunner(
        script,
        connect_s=CONNECT_S,
        timeout_s=api.request.timeout_seconds,
        max_bytes=api.request.max_response_bytes,
        n_workers=workers,
    )
    return BrowserbaseTarget(
        api,
        runner,
        secrets=environment.secrets,
        workers=workers,
        prices=environment.prices,
        is_offline=environment.mock_url is not None,
    )


# -- metrics


def make_metrics(
    loaded: Loaded,
    environment: Environment | None = None,
    *,
    evaluator: UserFunction | str | None = None,
) -> tuple[Metric | PaidMetric, ...]:
    """Return the metrics of a configuration, in its order.

    Args:
        loaded: Configuration and its files.
        environment: Keys and prices of judges; ``None`` means the process's environment.
        evaluator: Function for metrics of type ``function`` that name none.

    Raises:
        ConfigurationError: a function cannot be imported or called; holds all problems.
    """
    environment = environment or Environment.unchecked(loaded.configuration)
    evaluators = _Evaluators(loaded, evaluator)
    judges: dict[str, PaidMetric] = {}
    if loaded.configuration.evaluation.judges:
        judges.update(make_configured_judges(loaded, environment))

    def metric(name: str, config: MetricConfig) -> Metric | PaidMetric:
        if isinstance(config, JudgeMetric):
            return judges[name]
        if isinstance(config, MeasuredMetric):
            return BUILT_IN_METRICS[config.type](name)
        if isinstance(config, PluginMetric):
            return FunctionMetric(name, evaluators.of_plugin(name, config))
        if not isinstance(config, ExpectingMetric) or config.type.startswith("tool_"):
            return ToolMetric(name, config)
        if isinstance(config, UserFunctionMetric):
            places = config.field, config.expected_field
            return FunctionMetric(name, evaluators.of(name, config), *places)
        return evaluators.compared(name, config)

    metrics = [metric(*item) for item in loaded.configuration.evaluation.metrics.items()]
    if evaluators.problems:
        raise ConfigurationError(evaluators.problems)
    return tuple(metrics)


def make_configured_judges(loaded: Loaded, environment: Environment) -> dict[str, PaidMetric]:
    """Return the judges of a configuration by metric; see ``make_judges``."""
    from tasks.providers import make_llm  # noqa: PLC0415 - brings httpx

    made = make_judges(
        loaded.configuration,
        space=loaded.space,
        texts=loaded.texts,
        rubrics=loaded.rubrics,
        make_llm=partial(make_llm, secrets=environment.secrets, mock_url=environment.mock_url),
        prices=environment.prices,
    )
    return {**made}


class _Evaluators:
    """User's evaluators of a configuration; metrics with the same function share one."""

    def __init__(self, loaded: Loaded, given: UserFunction | str | None) -> None:
        self.problems: list[Problem] = []
        self._loaded = loaded
        self._given = given
        self._key_to_evaluator: dict[str, UserEvaluator | None] = {}

    def of(self, name: str, config: UserFunctionMetric) -> UserEvaluator | None:
        """Return a metric's evaluator; ``None`` if the target measures it, or on ``problems``."""
        if config.function is not None:
            return self._made(config.function, f"evaluation.metrics.{name}.function")
        if self._given is not None:
            return self._made(self._given, "evaluator")
        return None

    def compared(self, name: str, config: ExpectingMetric) -> Metric:
        """Return a comparison metric; without its library a placeholder, with a problem."""
        try:
            compare = comparison(config, self._loaded.schemas.get(name))
        except ImportError as error:
            key = f"evaluation.metrics.{name}.type"
            self.problems.append(import_problem(error, config.type, key))
            return FunctionMetric(name, None)
        is_optional = config.type == "checks"
        return Compared(name, compare, config.field, config.expected_field, is_optional)

    def of_plugin(self, name: str, config: PluginMetric) -> UserEvaluator | None:
        """Return the evaluator that a plugin makes; ``None`` on ``problems``."""
        key = f"evaluation.metrics.{name}"
        context = PluginContext(
            name=config.plugin,
            options=config.plugin_options,
            key=key,
            base_dir=self._loaded.base_dir,
            timeout_s=EVALUATOR_TIMEOUT_S,
            n_workers=MAX_EVALUATOR_THREADS,
        )
        try:
            plugin = find_plugin("convergence.metrics", context)
            function = plugin.make(context)
            if not callable(function):
                raise plugin.broken(context, f"made a {type(function).__name__}, not a function")
        except ConfigurationError as error:
            self.problems += error.problems
            return None
        return self._made(function, f"{key}.plugin")

    def _made(self, function: UserFunction | str, key: str) -> UserEvaluator | None:
        memory = function if isinstance(function, str) else str(id(function))
        if memory not in self._key_to_evaluator:
            workers = self._loaded.configuration.optimization.execution.parallel_workers
            evaluator = None
            try:
                target_function = resolve(function, self._loaded.base_dir, key=key)
                n_workers = min(workers, MAX_EVALUATOR_THREADS)
                evaluator = UserEvaluator(target_function, n_workers=n_workers, key=key)
            except ConfigurationError as error:
                self.problems += error.problems
            self._key_to_evaluator[memory] = evaluator
        return self._key_to_evaluator[memory]
