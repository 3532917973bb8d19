"""Tools that the mock calls by the words of a request."""

import json
from collections.abc import Callable
from typing import Any

from tasks.mock import tool_use
from tasks.mock.protocol import Message, ModelRequest, Tool
from tasks.mock.responder import respond
from tests.mock.conftest import ask


def tool(name: str, description: str = "", **properties: str) -> Tool:
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": [key for key in properties if key not in {"limit", "time_filter", "flair"}],
    }
    return Tool(name=name, description=description, schema=schema, by_name=False)


CHANNELS = tool("list_channels", "List all channels in a server.", guild_id="string")
READ = tool(
    "get_channel_messages", "Get the messages of a channel.", channel_id="string", limit="integer"
)
SEND = tool("send_message", "Send a message to a channel.", channel_id="string", message="string")
DELETE = tool("delete_message", "Delete it.", channel_id="string", message_id="string")
TOOLS = (SEND, READ, CHANNELS, DELETE)
SYSTEM = "You look after the guild 900100200300400500."
RESULTS = {
    "get_top_posts": [{"id": "p7", "title": "Flat bread", "selftext": "It did not rise."}],
    "list_channels": [{"id": "1001", "name": "support"}, {"id": "1002", "name": "general"}],
    "get_channel_messages": [
        {"id": "5005", "content": "Buy gold now!", "author": {"username": "spam"}},
        {"id": "5006", "content": "The printer is broken.", "author": {"username": "ada"}},
    ],
}


def turn(
    asked: str,
    offered: tuple[Tool, ...] = TOOLS,
    choose: Callable[[ModelRequest], Tool | None] | None = None,
) -> tuple[list[tuple[str, Any]], str]:
    """Return the calls of a good turn, and its last words."""
    said = [Message(role="system", text=SYSTEM), Message(role="user", text=asked)]
    calls: list[tuple[str, Any]] = []
    for _ in range(9):
        request = ModelRequest(model="m", messages=tuple(said), offered=offered)
        found = tool_use.choose(request, good=True) if choose is None else choose(request)
        if found is None:
            return calls, respond(request).text
        calls.append((found.name, found.arguments))
        said.append(Message(role="assistant", text="", calls=(found.name,)))
        said.append(Message(role="tool", text=json.dumps(RESULTS.get(found.name, "done"))))
    raise AssertionError(calls)


def test_identifiers_are_looked_up_before_they_are_needed():
    calls, answer = turn('Send the message "Hello, all" to channel #general.')
    assert calls == [
        ("list_channels", {"guild_id": "900100200300400500"}),
        ("send_message", {"channel_id": "1002", "message": "Hello, all"}),
    ]
    assert "general" in answer
    calls, _ = turn('Delete the message "Buy gold now!" from channel #support.')
    assert [name for name, _ in calls] == [
        "list_channels",
        "get_channel_messages",
        "delete_message",
    ]
    assert calls[-1][1] == {"channel_id": "1001", "message_id": "5005"}


def test_each_step_is_taken_and_the_results_are_quoted():
    calls, answer = turn(
        'Get the last 5 messages of channel 1001, then send the message "Sorted" to channel 1001.'
    )
    assert calls == [
        ("get_channel_messages", {"channel_id": "1001", "limit": 5}),
        ("send_message", {"channel_id": "1001", "message": "Sorted"}),
    ]
    _, answer = turn("Which printer is broken? Get the messages of channel 1001.")
    assert answer.startswith("5006, The printer is broken.")


def test_the_server_calls_tools_and_answers_their_results(server):
    listed = [
        {
            "type": "function",
            "function": {"name": t.name, "description": t.description, "parameters": t.schema},
        }
        for t in TOOLS
    ]
    said: list[dict[str, Any]] = [
        {
            "role": "system",
            "content": f"{SYSTEM} Always check, step by step, only with tools, precisely.",
        },
        {"role": "user", "content": "Get the last 3 messages of channel 1001."},
    ]

    def answer(model: str, messages: list[dict[str, Any]]) -> Any:
        async def asking(client):
            return await client.chat.completions.create(
                model=model, messages=messages, tools=listed, temperature=0.3
            )

        return ask(server, asking)

    found = next(
        (model, one.choices[0])
        for model in (f"m{n}" for n in range(20))
        if (one := answer(model, said)).choices[0].finish_reason == "tool_calls"
        and "1001" in one.choices[0].message.tool_calls[0].function.arguments
    )
    model, choice = found
    (call,) = choice.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == (
        "get_channel_messages", {"channel_id": "1001", "limit": 3},
    )  # fmt: skip
    result = json.dumps(RESULTS["get_channel_messages"])
    more = [
        *said,
        {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]},
        {"role": "tool", "tool_call_id": call.id, "content": result},
    ]
    last = answer(model, more).choices[0]
    assert last.finish_reason == "stop"
    assert "Buy gold now!" in last.message.content
