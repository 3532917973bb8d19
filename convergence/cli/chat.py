"""``chat``: conversation with a configuration's model, whose answers get ratings."""

from typing import Annotated

import typer

from convergence import console
from convergence.cli import options


def chat(
    config: options.ConfigFile = options.CONFIG_FILE,
    role: Annotated[
        str,
        typer.Option(
            help="Role of the model: assistant, code, creative, or one of `feedback.roles`."
        ),
    ] = "assistant",
    user: Annotated[
        str | None, typer.Option(help="Name of the user. Default: this account's.")
    ] = None,
    offline: options.Offline = False,
) -> None:
    """Talk to the model of a configuration, and rate its answers with one key.

    Logs every answer. From a pipe, each line is a question or a command such as /rate 4; the line after
    an answer may be its rating. /help lists the commands.

    Exit code 1: a line of a pipe got no answer.
    """
    import asyncio  # noqa: PLC0415 - only for this command

    from convergence.cli.chat_session import ChatSession  # noqa: PLC0415 - as above
    from convergence.cli.keyboard import keyboard  # noqa: PLC0415 - as above
    from convergence.cli.optimize import mock_server  # noqa: PLC0415 - as above
    from tasks.chat.conversation import Conversation  # noqa: PLC0415 - brings httpx and NumPy
    from tasks.chat.logged_chat import LoggedChat  # noqa: PLC0415 - as above
    from tasks.inputs.environment import Environment  # noqa: PLC0415 - as above
    from tasks.inputs.loader import load  # noqa: PLC0415 - as above
    from tasks.inputs.storage import bound_folder  # noqa: PLC0415 - as above
    from tasks.store.feedback.feedback_store import FeedbackStore  # noqa: PLC0415 - brings SQLite
    from tasks.store.feedback.schema import checked_name  # noqa: PLC0415 - as above
    from tasks.store.runtime.runtime_store import RuntimeStore  # noqa: PLC0415 - as above

    user = options.account_name() if user is None else user
    checked_name("--user", user)
    loaded = load(config)
    folder = bound_folder(loaded)
    with (
        mock_server(wanted=offline) as mock_url,
        FeedbackStore(folder) as feedback,
        RuntimeStore(folder) as runtime,
        asyncio.Runner() as runner,
    ):
        environment = Environment.of(loaded.configuration, mock_url=mock_url)
        talk = LoggedChat(loaded, environment, feedback, runtime)
        try:
            conversation = Conversation(talk, user_id=user, role=role)
            name = talk.model
            console.say(f"{name} answers as {role}. /help lists the commands, /quit leaves.")
            if offline:
                console.say(MOCK_ANSWERS, "yellow")
            keys = keyboard()
            session = ChatSession(conversation, keys, runner)
            session.run()
        finally:
            runner.run(talk.aclose())
    if session.n_failures and not keys.is_terminal:
        raise typer.Exit(1)


MOCK_ANSWERS = (
    "Offline: a mock answers instead of the model. Its answers say nothing about real models, and their "
    "ratings teach no arm."
)
