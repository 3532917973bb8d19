"""``init``, ``validate`` and ``schema``: commands before a run."""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convergence import console
from convergence.cli import locations, options
from convergence.cli.locations import load_with
from convergence_core.errors import ConfigurationError, run_checks

if TYPE_CHECKING:
    from convergence.cost_estimate import RunEstimate
    from convergence_core.config import ApiConfig
    from tasks.inputs.environment import Environment
    from tasks.inputs.loader import Loaded


_OFFLINE = "convergence optimize --offline   # without a key: a mock answers"
_KEY = "export OPENAI_API_KEY=…"

EXAMPLES: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "function": ("a Python function, needs no key", "", ()),
    "http": (
        "an endpoint, with a small server to try it on",
        "",
        ("python server.py              # in another terminal",),
    ),
    "openai": ("any OpenAI-compatible chat endpoint", "", (_OFFLINE, _KEY)),
    "quickstart": ("a search engine over Python's own documentation", "quickstart", ()),
    "recorded-exam": ("logged answers of nine language models", "", ()),
    "local-llm": ("a language model on this machine; needs its extra", "local", ()),
    "prompt": ("the run writes prompts; offline without a key", "", (_OFFLINE, _KEY)),
    "chat": (
        "talk to a model and rate its answers; offline without a key",
        "",
        ("convergence chat --offline   # without a key: a mock answers", _KEY, "convergence chat"),
    ),
    "local-chat": (
        "the same with a local model that learns from ratings",
        "local",
        (
            "convergence chat    # ask, and rate each answer by one key",
            "convergence train   # learn from the ratings",
        ),
    ),
    "connector": (
        "a package with your own target and metric, and its tests",
        "",
        (
            "python -m pip install --no-deps --no-build-isolation .",
            "python -m pytest -q tests",
            "python service.py         # in another terminal",
        ),
    ),
    "agno-discord": (
        "an agent with Discord's tools, on a simulated server; needs its extra",
        "agno",
        (_OFFLINE, _KEY),
    ),
    "browserbase": (
        "a script in browser sessions; offline without a key, needs its extra",
        "browserbase",
        (
            "apt install chromium      # replaces the provider's browsers",
            "python shop.py            # in another terminal",
            "convergence optimize --offline   # without a key: Chromium on this machine opens the pages",
            "export BROWSERBASE_API_KEY=…     # once test_cases.json names public pages",
        ),
    ),
    "agno-reddit": (
        "an agent with Reddit's tools, on a simulated Reddit; needs its extra",
        "agno",
        (_OFFLINE, _KEY),
    ),
    "agno-gmail": (
        "an agent with Gmail's tools, on a simulated Gmail; needs its extra",
        "agno-gmail",
        (_OFFLINE, _KEY),
    ),
}
"""Template → description, required extra, and commands before a run."""


def _known_template(name: str) -> str:
    if name not in EXAMPLES:
        raise typer.BadParameter(f"must be one of {', '.join(EXAMPLES)}, but got {name!r}.")
    return name


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write to.")] = Path(),
    template: Annotated[
        str,
        typer.Option(
            "--template",
            "-t",
            metavar="NAME",
            callback=_known_template,
            help=". ".join(f"**{name}**: {about}" for name, (about, _, _) in EXAMPLES.items())
            + ".",
        ),
    ] = "function",
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    # Ignored; existing scripts pass it.
    _no_questions: Annotated[bool, typer.Option("--non-interactive", hidden=True)] = False,
    _json: options.AsJson = False,
) -> None:
    """Write a runnable example: configuration, schema for editors, test cases, code."""
    from convergence.templates import plan_files  # noqa: PLC0415 - loads the schema's models

    files = plan_files(template)
    write_files(folder, files, force=force)
    steps = _next_steps(template, folder)

    def show() -> None:
        console.answer(f"Wrote {len(files)} files to {console.short_path(folder)}:")
        for name in files:
            console.answer(f"  {name}")
        console.answer("\nNext:", style="bold")
        for step in steps:
            console.answer(f"  {step}")

    console.emit({"template": template, "folder": str(folder), "files": sorted(files)}, show)


def _next_steps(template: str, folder: Path) -> list[str]:
    from tasks.models.files import EXTRA, install_commands  # noqa: PLC0415 - with its only user
    from tasks.version import install_command  # noqa: PLC0415 - as above

    _, extra, steps = EXAMPLES[template]
    package = [install_command(extra)] if extra else []
    install = install_commands() if extra == EXTRA else package
    enter = [] if folder.resolve() == Path.cwd() else [f"cd {folder}"]
    city = "convergence optimize city.yaml   # extracts names of cities from sentences"
    return [
        *enter,
        *install,
        *steps,
        f"convergence validate {locations.CONFIG_NAME}",
        f"convergence optimize {locations.CONFIG_NAME}",
        *([city] if template == "local-llm" else []),
    ]


def write_files(folder: Path, files: dict[str, str], *, force: bool) -> None:
    """Write files below a folder.

    Raises:
        ConfigurationError: the folder cannot be created, or a file exists and ``force`` is false.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        rule, why = "DIR must be a folder that can be created", error.strerror
        fix = "Choose another folder."
        raise ConfigurationError.of("", rule, fix, value=f"{folder}: {why}") from error
    existing = [name for name in files if (folder / name).exists()]
    if existing and not force:
        value = f"{', '.join(existing)} in {folder}"
        fix = "Choose another folder, or overwrite with --force."
        raise ConfigurationError.of("", "files must not exist yet", fix, value=value)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def validate(
    config: options.ConfigFile = options.CONFIG_FILE,
    assignments: options.Assignments = None,
    _json: options.AsJson = False,
) -> None:
    """Check a configuration and every file it names; describe the run.

    Makes no call. Shows all problems of a step (types, rules, files), each with file, line and
    column. Exit code 2 if there are any.
    """
    from convergence.cost_estimate import estimate  # noqa: PLC0415 - brings NumPy

    try:
        loaded = load_with(config, assignments)
        _build_parts(loaded)
    except ConfigurationError as error:
        if not console.settings.json or console.settings.debug:
            raise
        console.answer_json({"ok": False, "problems": console.problem_rows(error)})
        raise typer.Exit(error.exit_code) from error
    run = estimate(loaded)

    def show() -> None:
        console.answer(f"{config} is valid.", style="bold green")
        for name, text in _described_lines(loaded, run):
            console.answer(f"  {name:<12}{text}")

    console.emit({"ok": True, "config": str(config), **_described(loaded, run)}, show)


def _build_parts(loaded: "Loaded") -> None:
    """Build and close the parts that a run builds before its first call.

    Raises:
        ConfigurationError: a part cannot be built, or a destination is not writable.
    """
    import asyncio  # noqa: PLC0415 - only here

    from convergence_core.config.evaluation_rules import check_judges  # noqa: PLC0415 - as above
    from tasks.inputs.environment import Environment, check_priced  # noqa: PLC0415 - as above
    from tasks.inputs.factories import make_metrics, make_target  # noqa: PLC0415 - as above
    from tasks.run.opener import check_destinations  # noqa: PLC0415 - as above
    from tasks.runners import check_runner  # noqa: PLC0415 - as above
    from tasks.secrets.redaction import journal_url  # noqa: PLC0415 - as above
    from tasks.telemetry.listeners import check_listeners  # noqa: PLC0415 - as above
    from tasks.telemetry.spans import check_telemetry  # noqa: PLC0415 - as above

    configuration = loaded.configuration
    world = Environment.unchecked(configuration)

    def make_priced_target() -> None:
        target = make_target(loaded, world)
        try:
            check_priced(loaded, target, world.prices)
        finally:
            asyncio.run(target.aclose())

    checks: list[Callable[[], object]] = [
        lambda: check_destinations(configuration, loaded.base_dir),
        lambda: journal_url(configuration),
        lambda: check_judges(configuration),
        lambda: check_runner(configuration, is_by_name=True),
        lambda: check_telemetry(configuration),
        lambda: check_listeners(configuration, loaded.base_dir),
        make_priced_target,
        lambda: make_metrics(loaded, world),
        *_learning_parts(loaded, world),
    ]
    run_checks(checks)


def _learning_parts(loaded: "Loaded", world: "Environment") -> Iterator[Callable[[], object]]:
    """Yield builders of the parts that learn: games, rater, local model, language model."""
    from tasks.functions.user_functions import load_function  # noqa: PLC0415 - with its only user
    from tasks.games.configured_games import check_user_games  # noqa: PLC0415 - as above
    from tasks.models.files import find_model  # noqa: PLC0415 - as above
    from tasks.providers import make_llm  # noqa: PLC0415 - as above

    training, llm = loaded.configuration.feedback.training, loaded.configuration.llm
    yield lambda: check_user_games(loaded)
    if (rater := training.rater) is not None:
        yield lambda: load_function(rater, loaded.base_dir, key="feedback.training.rater")
    if (model := training.base_model_path) is not None:
        key = "feedback.training.base_model_path"
        yield lambda: find_model(model, loaded.base_dir, key=key)
    if llm is not None:
        yield lambda: make_llm(llm, world.secrets)


def _environment(loaded: "Loaded") -> dict[str, bool]:
    from tasks.secrets.redaction import secret_names  # noqa: PLC0415 - with its only user

    names = secret_names(loaded.configuration)
    return {name: bool(os.environ.get(name)) for name in sorted(names)}


def _described_lines(loaded: "Loaded", cost: "RunEstimate") -> list[tuple[str, str]]:
    """Return the lines that describe a run, as name and sentence."""
    from convergence_core.config.evaluation_rules import judge_note  # noqa: PLC0415 - as above
    from convergence_core.config.rules import without_effect  # noqa: PLC0415 - as above
    from convergence_core.result.number_text import plural  # noqa: PLC0415 - with its only user
    from convergence_core.sao.round_plan import outlook  # noqa: PLC0415 - brings NumPy
    from tasks.models.text_embedder import NAME, is_installed  # noqa: PLC0415 - with its only user

    configuration, calls, schedule = loaded.configuration, cost.total.calls, cost.schedule
    api, metrics = configuration.api, configuration.evaluation.metrics
    size = "" if cost.space_size is None else f" ({plural(cost.space_size, 'combination')})"
    parameters = ", ".join(configuration.search_space.parameters)
    held_out = f"{schedule.n_holdout_cases:,}" if schedule.n_holdout_cases else "none"
    cap = configuration.budget.max_calls
    limit = "" if cap is None else f"; never more than {cap:,} (budget.max_calls)"
    n = cost.n_candidates
    candidates = "" if n is None else f"{plural(n, 'candidate')}, "
    search = (
        f"{configuration.optimization.algorithm}, up to {plural(schedule.n_generations, 'generation')}: "
        f"up to {candidates}{plural(cost.n_search_cells, 'evaluation')}"
    )
    final = f"{cost.n_final_cells:,} evaluations of the winner and the defaults"
    shortage = schedule.final_shortage()
    bound = (
        "unknown before the first run"
        if calls.high is None
        else f"at most {calls.high:,.0f}, {cost.calls_with_retries:,.0f} with every retry{limit}"
    )
    likely = "" if calls.expected in (None, calls.high) else f"{calls.expected:,.0f} expected, "
    rounds = outlook(configuration, len(loaded.search_cases))
    texts = f"of cases and requests, embedded by {NAME}" if is_installed() else None
    lines: list[tuple[str, str | None]] = [
        ("system", f"{api.name} ({_target_text(api)})"),
        ("parameters", f"{parameters}{size}"),
        ("cases", f"{schedule.n_search_cases:,} for the search, {held_out} held out"),
        ("reward", ", ".join(f"{name} {metric.weight:g}" for name, metric in metrics.items())),
        ("judge:", judge_note(configuration)),
        ("search", search),
        ("at the end", f"nothing: {shortage}" if shortage else final),
        ("calls", likely + bound),
        ("money", cost.unaffordable),
        ("preferences", rounds),
        ("texts", texts),
        ("store", str(loaded.base_dir / configuration.storage.folder)),
        *(("no effect", sentence) for sentence in without_effect(configuration)),
        *(
            ("needs", f"{name} ({'set' if is_set else 'NOT set'} in the environment)")
            for name, is_set in _environment(loaded).items()
        ),
    ]
    return [(name, text) for name, text in lines if text]


def _target_text(api: "ApiConfig") -> str:
    """Describe a target's kind and location."""
    from convergence_core.result.number_text import plural  # noqa: PLC0415 - with its only user

    where = api.function or api.plugin or api.endpoint
    if api.models:
        where = plural(len(api.models), "endpoint")
    if api.kind == "local":
        where = str(api.request.options.get("model", "parameter `model`"))
    return ": ".join(filter(None, (api.kind, where)))


def _described(loaded: "Loaded", cost: "RunEstimate") -> dict[str, Any]:
    from convergence_core.config.rules import without_effect  # noqa: PLC0415 - as above

    configuration, calls, schedule = loaded.configuration, cost.total.calls, cost.schedule
    metrics = configuration.evaluation.metrics
    return {
        "system": configuration.api.name,
        "kind": configuration.api.kind,
        "parameters": list(configuration.search_space.parameters),
        "space_size": cost.space_size,
        "cases": {
            "search": schedule.n_search_cases,
            "holdout": schedule.n_holdout_cases,
        },
        "metrics": {name: metric.weight for name, metric in metrics.items()},
        "run": {
            "algorithm": configuration.optimization.algorithm,
            "generations": schedule.n_generations,
            "candidates": cost.n_candidates,
            "search_cells": cost.n_search_cells,
            "final_cells": cost.n_final_cells,
            "final_shortage": schedule.final_shortage(),
            "calls": calls.high,
            "calls_with_retries": cost.calls_with_retries,
            "max_calls": configuration.budget.max_calls,
        },
        "unaffordable": cost.unaffordable,
        "without_effect": without_effect(configuration),
        "warnings": [str(warning) for warning in loaded.warnings],
        "environment": _environment(loaded),
    }


def schema(
    output: options.Output = None,
) -> None:
    """Print the JSON Schema of optimization.yaml, for editors."""
    from convergence.templates import schema_text  # noqa: PLC0415 - loads the schema's models

    console.write(schema_text(), output)
