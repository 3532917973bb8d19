"""``policy``: a policy that learns which change of a prompt to make."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convergence import console
from convergence.cli import locations, options
from convergence.cli.optimize import mock_server
from convergence_core.errors import ConfigurationError

if TYPE_CHECKING:
    from convergence.service.policy import PolicyMount
    from tasks.policy.records import PolicySettings

app = options.command_group(
    "policy", "Serve a policy that learns which change of a prompt to make."
)
PORT = 8765
MAX_BODY = 262_144


@app.callback()
def policy() -> None:
    """Serve a policy that learns which change of a prompt to make."""


@app.command()
def serve(  # noqa: PLR0917 - Typer's options
    token: options.Tokens = None,
    host: options.Host = "127.0.0.1",
    port: options.Port = PORT,
    docs: options.OpenDocs = False,
    embedding: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Model of the embeddings in requests. Default: the service hashes n-grams of the "
            "prompt if a request has no embedding.",
        ),
    ] = None,
    embedding_dim: Annotated[
        int, typer.Option(min=1, max=16_384, help="Numbers in an embedding.")
    ] = 1536,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Setting of PPO, e.g. learning_rate=1e-4. Repeatable.",
        ),
    ] = None,
    rate: options.Rate = 2_000.0,
    offline: options.Offline = False,
    store: options.Store = None,
    config: options.Config = None,
) -> None:
    """Serve a policy that learns which change of a prompt to make: PPO over HTTP.

    Paths: /select_action, /select_mutation, /store_experience, /update, /get_distribution, /save, /load,
    /stats. The `llm` of --config writes changed prompts; without one rules do. Needs a token unless
    it listens on loopback. Ctrl-C stops it; every acknowledged experience is kept.
    """
    from convergence.service.server import Service, ServiceOptions  # noqa: PLC0415 - brings FastAPI
    from convergence.service.tokens import read_tokens  # noqa: PLC0415 - as above
    from tasks.http.environment import is_loopback  # noqa: PLC0415 - with its only user
    from tasks.store.runtime.runtime_store import RuntimeStore  # noqa: PLC0415 - brings SQLite

    tokens = read_tokens(token or []) if token or not is_loopback(host) else None
    settings = policy_settings(embedding, embedding_dim, assignments or ())
    chosen = ServiceOptions(
        host=host, port=port, max_body=MAX_BODY, rate=rate or None, has_docs=docs
    )
    with (
        mock_server(wanted=offline) as mock_url,
        RuntimeStore(locations.store_path(store, config)) as opened,
        opened_policy(opened.root, settings, config, mock_url=mock_url) as mount,
    ):
        service = Service(opened, tokens, chosen, policy=mount)
        console.answer(f"Serving the policy of {opened.root} at {service.url}")
        console.say(
            f"Version {mount.policy.version}; embeddings: {settings.embedding}, {settings.embedding_dim} "
            f"numbers; prompts are written by {mount.mutator.writer}.",
            "dim",
        )
        service.run()


def policy_settings(
    embedding: str | None,
    dim: int,
    assignments: "Iterator[str] | Any",
) -> "PolicySettings":
    """Return the settings of the command line.

    Raises:
        ConfigurationError: an assignment names no setting of PPO, or breaks its rule.
    """
    from convergence_core.config.source import read_yaml  # noqa: PLC0415 - brings pydantic
    from convergence_core.judges.text_features import HASHED_NGRAMS  # noqa: PLC0415 - brings NumPy
    from convergence_core.policy.prompt_state import N_PROGRESS, PROMPT_ACTIONS  # noqa: PLC0415 - as above
    from convergence_core.policy.settings import PPOConfig  # noqa: PLC0415 - as above
    from tasks.policy.records import PolicySettings  # noqa: PLC0415 - as above

    fixed = {"input_dim": dim + N_PROGRESS, "action_dim": len(PROMPT_ACTIONS)}
    names = [name for name in PPOConfig.__dataclass_fields__ if name not in fixed]
    values: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or key not in names:
            raise ConfigurationError.of(
                "--set", f"must set one of {', '.join(names)}", "Write e.g. `learning_rate=0.0001`.",
                value=assignment,
            )  # fmt: skip
        source = read_yaml(text, None)
        if source.problems:
            raise ConfigurationError.of(
                "--set",
                "must have a finite number",
                "Write e.g. `learning_rate=0.0001`.",
                value=assignment,
            )
        values[key] = source.data
    try:
        ppo = PPOConfig(**fixed, **values)
    except (ValueError, TypeError) as error:
        raise ConfigurationError.of("--set", str(error), "Give a value of that kind.") from error
    return PolicySettings.of(embedding or HASHED_NGRAMS, dim, ppo=ppo)


@contextlib.contextmanager
def opened_policy(
    root: Path,
    settings: "PolicySettings",
    config: Path | None,
    *,
    mock_url: str | None,
    prefix: str = "",
) -> "Iterator[PolicyMount]":
    """Open a store's policy, served below ``prefix``; a mock at ``mock_url`` replaces models.

    Raises:
        ConfigurationError: the configuration has no ``llm`` to mock, or a key is not set.
        PolicyBusyError: another process serves it.
        PolicyCheckpointError: it has another embedding or dimension.
    """
    from convergence.service.policy import PolicyMount  # noqa: PLC0415 - brings FastAPI
    from tasks.inputs.environment import Environment  # noqa: PLC0415 - brings httpx
    from tasks.inputs.loader import load  # noqa: PLC0415 - brings pydantic
    from tasks.policy.prompt_mutator import PromptMutator  # noqa: PLC0415 - brings NumPy
    from tasks.policy.served_policy import ServedPolicy  # noqa: PLC0415 - as above
    from tasks.store.policy.experience_store import ExperienceStore  # noqa: PLC0415 - brings SQLite

    if config is None and Path(options.CONFIG_FILE).is_file():
        config = options.CONFIG_FILE
    loaded = None if config is None else load(config)
    if mock_url is not None and (loaded is None or loaded.configuration.llm is None):
        raise ConfigurationError.of(
            "--offline",
            "needs a configuration with an `llm` to mock",
            "Add one, or leave this out.",
        )
    with (
        ExperienceStore(root) as store,
        ServedPolicy(store, settings) as served,
    ):
        mutator = PromptMutator()
        if loaded is not None and loaded.configuration.llm is not None:
            environment = Environment.of(loaded.configuration, mock_url=mock_url)
            mutator = PromptMutator.of(loaded.configuration, environment)
        yield PolicyMount(policy=served, mutator=mutator, prefix=prefix)
