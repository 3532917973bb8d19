"""Rules between keys of a configuration with valid types."""

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from convergence_core.config.api import CHAT_KINDS, URLLESS_KINDS
from convergence_core.config.api_rules import check_api, check_url
from convergence_core.config.evaluation_rules import check_evaluation, check_llm
from convergence_core.config.games import (
    ANSWER_GAMES,
    BUILT_IN,
    REAL_TASK,
    SANDBOX,
    GameConfig,
    GamesConfig,
    known_roles,
)
from convergence_core.config.models import Configuration, PriceConfig
from convergence_core.config.problems import ENV_FIX, Report
from convergence_core.config.schema import fields_of, is_default
from convergence_core.config.secrecy import (
    ENV_NAME,
    ENV_REFERENCE,
    HIDDEN,
    dotted,
    has_credentials,
    has_known_secret,
    is_env_name,
    is_only_references,
    is_secret_key,
    shown_url,
)
from convergence_core.config.source import Path, texts_of
from convergence_core.config.space_rules import check_space


def check(configuration: Configuration, report: Report, *, allow_callable: bool) -> None:
    """Check every rule; violations are added to the report."""
    _check_secrets(configuration, report)
    check_api(configuration, report, allow_callable=allow_callable)
    check_space(configuration.search_space, report)
    check_evaluation(configuration, report, allow_callable=allow_callable)
    check_llm(configuration, report)
    _check_prices(configuration, report)
    _check_kept_texts(configuration, report)
    check_games(configuration, report)
    _check_prompts(configuration, report)
    _check_evolution(configuration, report)
    _check_execution(configuration, report)
    _check_rates(configuration, report)
    _check_storage(configuration, report)
    _check_telemetry(configuration, report)
    _check_training(configuration, report)


# -- secrets: each is named by its environment variable, never written out

_REFERENCE_FIX = (
    "Put the secret into an environment variable and name it by `api.auth.token_env`, or write "
    "`${ENV_NAME}` in a header."
)
_HEADER_FIX = (
    "Use `api.auth` with `token_env`, or read the environment: `Bearer ${MY_TOKEN}` for a token, "
    "`${MY_KEY}` for a key."
)


def _check_secrets(configuration: Configuration, report: Report) -> None:
    """Reject literal secrets without displaying them."""
    for path, name in _env_names(configuration):
        if not is_env_name(name):
            rule = "must be the name of an environment variable, not a secret"
            report.add(path, rule, ENV_FIX, value=HIDDEN)
    _check_headers(configuration, report)
    reported = {problem.key for problem in report.problems}
    for path, text in texts_of(configuration.model_dump(mode="json"), ()):
        if path[:3] == ("evaluation", "test_cases", "inline"):
            continue
        has_url = path[-1] != "endpoint" and has_credentials(text)  # endpoints have own rules
        if not has_url and not has_known_secret(text):
            continue
        rule = "must not hold a secret"
        if has_url:
            rule = "must hold no URL with a user name or password"
        if dotted(report.origin(path)) not in reported:
            report.add(path, rule, _REFERENCE_FIX, value=HIDDEN)


def _env_names(configuration: Configuration) -> Iterator[tuple[Path, str]]:
    """Yield each environment variable's name with its path."""
    auth, journal = configuration.api.auth, configuration.storage.journal
    names: dict[Path, str | None] = {
        ("api", "auth", "token_env"): auth.token_env,
        ("api", "auth", "password_env"): auth.password_env,
        ("storage", "journal"): journal[2:-1] if journal else None,
        **{(*path, "api_key_env"): llm.api_key_env for path, llm in configuration.llms},
        **{
            ("api", "agent", "secrets", i): name
            for i, name in enumerate(configuration.api.agent.secrets)
        },
    }
    return ((path, name) for path, name in names.items() if name is not None)


def _check_headers(configuration: Configuration, report: Report) -> None:
    auth_header = configuration.api.auth.header_name.lower()
    for name, value in configuration.api.request.headers.items():
        path: Path = ("api", "request", "headers", name)
        for reference in ENV_REFERENCE.findall(value):
            if ENV_NAME.fullmatch(reference) is None or not is_env_name(reference):
                rule = "must hold names of environment variables between `${` and `}`"
                report.add(path, rule, "Write e.g. `${MY_TOKEN}`.", value=HIDDEN)
        carries_secret = is_secret_key(name) or name.lower() == auth_header
        if (carries_secret or has_known_secret(value)) and not is_only_references(value):
            report.add(path, "must not be a secret written out", _HEADER_FIX, value=HIDDEN)


# -- prices

_PER_REQUEST = (
    ("request",),
    "by request",
    "Write only e.g. `request: 0.002`, US dollars for each request.",
)
_KIND_PRICES = {
    **dict.fromkeys(("http", "function", "plugin"), _PER_REQUEST),
    "browserbase": (
        ("minute", "proxy_gb"),
        "by the minute",
        "Write e.g. `{minute: 0.002, proxy_gb: 12}`, in US dollars, as your plan says.",
    ),
}
"""Kind of target → its keys, the required one first; pricing basis; fix."""


def _check_prices(configuration: Configuration, report: Report) -> None:
    kind = configuration.api.kind
    for name, price in configuration.prices.items():
        path: Path = ("prices", name)
        if name in CHAT_KINDS:
            rule = "must be the name of a model, not of a provider"
            report.add(path, rule, "Write e.g. `gpt-4o-mini`.", of_key=True)
        elif name not in _KIND_PRICES:
            _check_model_price(price, path, report)
        elif kind != name:
            report.no_effect(path, f"with kind `{kind}`", "Remove it.")
        else:
            keys, how, fix = _KIND_PRICES[name]
            for key in fields_of(PriceConfig):
                if key not in keys and not is_default(price, key):
                    report.no_effect((*path, key), f"on kind `{name}`, which is priced {how}", fix)
            if getattr(price, keys[0]) is None:
                report.require((*path, keys[0]), f"by kind `{name}`", fix)


def _check_model_price(price: PriceConfig, path: Path, report: Report) -> None:
    for key in ("minute", "proxy_gb"):
        if not is_default(price, key):
            report.no_effect((*path, key), "on a model", "Remove it; it is for `browserbase`.")
    written = [
        *price.model_dump(
            exclude_none=True, exclude={"request", "max_output_tokens", "minute", "proxy_gb"}
        )
    ]
    lacking = [key for key in ("input", "output") if key not in written]
    if not price.model_dump(exclude_none=True):
        rule = "must set a price or another property of the model"
        fix = "Write e.g. `{input: 0.15, output: 0.6}`, US dollars per million tokens."
        report.add(path, rule, fix, of_key=True)
    elif written and lacking:
        fix = "Write both `input` and `output`, in US dollars per million tokens."
        report.require((*path, lacking[0]), f"beside `{written[0]}`", fix)


# -- prompts


def _check_prompts(configuration: Configuration, report: Report) -> None:
    prompts = configuration.prompts
    if prompts.enabled and not configuration.has_mutable_texts:
        report.no_effect(
            ("prompts", "enabled"),
            "without a text parameter that has `mutate: true`",
            "Write `mutate: true` into a parameter of type `text`, or remove it.",
        )
    if len(set(prompts.operators)) < len(prompts.operators):
        twice = next(
            operator for operator in prompts.operators if prompts.operators.count(operator) > 1
        )
        rule, fix = "must name each operator once", f"Remove one `{twice}`."
        report.add("prompts.operators", rule, fix, value=twice)
    if prompts.enabled and prompts.writer == "llm" and configuration.llm is None:
        fix = "Write an `llm`, or `writer: rules`, which needs none."
        report.require("llm", "by `prompts.enabled`", fix)


def _check_kept_texts(configuration: Configuration, report: Report) -> None:
    """Check that texts are stored if a resume, a judge or a page reads them again."""
    society = configuration.society
    judges, plays = configuration.evaluation.judges, society.games != GamesConfig()
    readers = (
        ("written prompts", configuration.writes_prompts, "write `prompts: {enabled: false}`"),
        (
            "`society.enabled`",
            society.thinks or society.prefers,
            "write `society: {enabled: false}`",
        ),
        ("`society.games`", plays, "remove `society.games`"),
        ("a metric of type `llm_judge`", bool(judges), "measure by another type"),
    )
    for reader, reads, alternative in readers:
        if reads and not configuration.storage.keep_text:
            rule = f"must be true with {reader}: it reads the texts again"
            report.add("storage.keep_text", rule, f"Remove it, or {alternative}.", value="false")


# -- optimization


def _check_evolution(configuration: Configuration, report: Report) -> None:
    evolution = configuration.optimization.evolution
    path: Path = ("optimization", "evolution")
    population = (*path, "population_size")
    size, elite = evolution.population_size, evolution.elite_size
    is_evolution = configuration.optimization.algorithm == "evolution"
    default = type(evolution).model_fields["elite_size"].default  # stored runs have it written out
    if elite >= size and elite != default:
        rule, fix = f"must be below `population_size` ({size})", f"Write {size - 1} or less."
        report.add((*path, "elite_size"), rule, fix, value=str(elite))
    elif elite >= size and is_evolution:
        rule = f"must exceed `elite_size` ({elite} unless written)"
        fix = f"Write {elite + 1} or more, or a smaller `elite_size`."
        report.add(population, rule, fix, value=str(size))


_EXECUTION: Path = ("optimization", "execution")


def _check_execution(configuration: Configuration, report: Report) -> None:
    """Check that runner keys have an effect, and that each process can make a call."""
    execution = configuration.optimization.execution
    if execution.cluster is not None and execution.runner != "ray":
        why = f"with `runner: {execution.runner}`"
        fix = "Remove it, or write `runner: ray`."
        report.no_effect((*_EXECUTION, "cluster"), why, fix)
    processes, workers = execution.processes, execution.parallel_workers
    path = (*_EXECUTION, "processes")
    if processes is not None and execution.runner == "threads":
        fix = "Remove it, or write `runner: processes`."
        report.no_effect(path, "with `runner: threads`", fix)
    elif processes is not None and processes > workers:
        rule = f"must not exceed `parallel_workers` ({workers})"
        fix = f"Write {workers} or less, or more `parallel_workers`."
        report.add(path, rule, fix, value=str(processes))


_DEFAULT_HOSTS = frozenset({"api.openai.com", "api.groq.com", "generativelanguage.googleapis.com"})
"""Hosts of chat models without an explicit endpoint."""


def _check_rates(configuration: Configuration, report: Report) -> None:
    """Reject a rate limit for a host that the configuration does not call."""
    api = configuration.api
    llms = [llm for _, llm in configuration.llms]
    urls = [api.endpoint, *(model.endpoint for model in api.models.values())]
    urls += [llm.endpoint for llm in llms]
    hosts = {host for url in urls if url is not None and (host := _host(url))}
    if api.kind == "browserbase" and api.endpoint is None:
        hosts.add("api.browserbase.com")
    is_chat = api.kind in CHAT_KINDS - URLLESS_KINDS or api.kind == "agno"
    is_hosted = is_chat and not api.models and api.endpoint is None
    if is_hosted or any(llm.endpoint is None for llm in llms):
        hosts |= _DEFAULT_HOSTS
    known = ", ".join(f"`{name}`" for name in sorted(hosts)) or "none: a function has none"
    for host in configuration.optimization.execution.calls_per_second:
        if host not in hosts:
            rule = "must be a host that this configuration calls, as in its URL"
            path = (*_EXECUTION, "calls_per_second", host)
            report.add(path, rule, f"Hosts here: {known}.", of_key=True)


def _host(url: str) -> str:
    """Return the host of a URL with its port; empty if it has none, which other rules report."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2].lower()
    except ValueError:
        return ""


_ADDRESS = r"(s3|gs|az)://[A-Za-z0-9_][^/\s?#]*(/[^\s?#]*)?$"
"""Scheme, bucket and prefix."""


def _check_storage(configuration: Configuration, report: Report) -> None:
    storage, results = configuration.storage, configuration.output.save_path
    if "://" in results:
        rule, fix = "must be a local folder, not an address", "Write e.g. `./results`."
        report.add("output.save_path", rule, fix, value=shown_url(results))
    if storage.remote is not None and not re.match(_ADDRESS, storage.remote):
        rule = "must be s3://, gs:// or az:// and a bucket"
        fix = "Write e.g. `s3://bucket/nightly`."
        report.add("storage.path", rule, fix, value=shown_url(storage.remote))
    if storage.remote is None and storage.local is not None:
        fix = "Remove it, or write an address as `storage.path`, e.g. `s3://bucket/nightly`."
        why = "with a folder as `storage.path`"
        report.no_effect("storage.local", why, fix)


# -- telemetry


def _check_telemetry(configuration: Configuration, report: Report) -> None:
    telemetry = configuration.telemetry
    if telemetry.endpoint is not None:
        fix = "Put it into the variable OTEL_EXPORTER_OTLP_HEADERS."
        check_url(("telemetry", "endpoint"), telemetry.endpoint, report, secret_fix=fix)
    elif telemetry.content:
        fix = "Add `endpoint:`, e.g. `http://127.0.0.1:4318/v1/traces`, or remove it."
        report.no_effect("telemetry.content", "without `telemetry.endpoint`", fix)


# -- keys without effect
#
# They are reported, not rejected: a configuration may serve several algorithms, and those of the
# original set genetic rates for every algorithm.

_RATES = ("mutation_rate", "crossover_rate", "elite_size")
READ_BY: dict[tuple[str, str, str], tuple[str, ...]] = {
    **{("optimization", "evolution", key): ("evolution",) for key in _RATES},
    ("optimization", "mab", "exploration_rate"): ("thompson", "mab_evolution"),
}
"""Key → algorithms that read it; other unread keys are rejected."""


def without_effect(configuration: Configuration) -> list[str]:
    """Return a sentence for each valid key without effect, in order."""
    optimization = configuration.optimization
    problems = [
        f"`{'.'.join(path)}` has no effect with `algorithm: {optimization.algorithm}`: only "
        + " and ".join(f"`algorithm: {name}`" for name in readers)
        + f" {'read' if len(readers) > 1 else 'reads'} it"
        for path, readers in READ_BY.items()
        if optimization.algorithm not in readers
        and path[-1] in getattr(optimization, path[1]).model_fields_set
    ]
    metric = configuration.evaluation.metrics.get("cost_usd")
    unpriced = configuration.api.kind == "http" and not configuration.prices
    if metric is not None and unpriced and configuration.api.response.cost_field is None:
        problems.append(
            "`evaluation.metrics.cost_usd` does not count in the reward: the price of a request "
            "is unknown. Write e.g. `prices: {http: {request: 0.002}}`, or name the field of the answer "
            "that holds it by `api.response.cost_field`"
        )
    stopping = optimization.execution.early_stopping
    if configuration.evaluation.objective == "pareto" and stopping.enabled:
        problems += [
            f"`optimization.execution.early_stopping.{key}` has no effect: a `pareto` run never stops early"
            for key in type(stopping).model_fields
            if key in stopping.model_fields_set
        ]
    return problems


# -- feedback


def _check_training(configuration: Configuration, report: Report) -> None:
    training = configuration.feedback.training
    if training.batch_size == 1 and training.objective in ("auto", "qrpo"):
        rule = "must be at least 2, because `qrpo` compares the answers of a batch with their mean"
        fix = "Write 2 or more, or `objective: kto` or `dpo`."
        report.add(("feedback", "training", "batch_size"), rule, fix, value="1")


_GAMES: Final = ("society", "games", "games")
_MODEL_KEYS: Final = ("model_name", "persona", "temperature")


def check_games(configuration: Configuration, report: Report) -> None:
    """Check games and roles without opening the files of custom games."""
    games = configuration.society.games
    if games == GamesConfig():
        return
    if games.asks_llm(if_unknown=False) and configuration.llm is None:
        fix = "Write e.g. `llm: {model: openai/gpt-4o-mini, api_key_env: OPENAI_API_KEY}`."
        report.require("llm", "by `society.games`: models play", fix)
    n_games = len(games.games or BUILT_IN)
    if games.plays < n_games:
        rule = f"must be at least the number of games, {n_games}: else a game gets no play"
        report.add("society.games.plays", rule, "Raise it.", value=str(games.plays))
    for name, game in games.games.items():
        _check_game(name, game, report)


def _check_game(name: str, game: GameConfig, report: Report) -> None:
    path: Path = (*_GAMES, name)
    known = known_roles(name, game)
    if game.file is None and known is None:
        built_in = ", ".join((*BUILT_IN, *ANSWER_GAMES))
        rule = f"must be a built-in game ({built_in}), a real task ({REAL_TASK}NAME), or name its `file`"
        fix = "Write e.g. `file: my_game.py:MyGame`."
        report.add(path, rule, fix, value=name, of_key=True)
        return
    if game.file is not None and name in {**BUILT_IN, **ANSWER_GAMES}:
        rule = "must differ from the names of built-in games"
        report.add(path, rule, "Rename the game, or remove `file`.", value=name, of_key=True)
    for role, player in game.roles.items():
        if role == SANDBOX:
            rule = "cannot be a model's role: it runs programs"
            report.add((*path, "roles", role), rule, "Remove it.", value=role, of_key=True)
            continue
        if game.file is None and known is not None and role not in known:
            rule = f"must be a role of the game: {', '.join(known)}"
            report.add((*path, "roles", role), rule, "Rename it.", value=role, of_key=True)
        if player.player == "solver" and (game.file is not None or name not in BUILT_IN):
            rule = "must be `llm` or `chance`: only solved games have a solver"
            report.add((*path, "roles", role, "player"), rule, "Write `llm`.", value="solver")
        for key in _MODEL_KEYS if player.player != "llm" else ():
            if is_default(player, key):
                continue
            why = f"with `player: {player.player}`, which is no model"
            report.no_effect((*path, "roles", role, key), why, "Remove it.")
