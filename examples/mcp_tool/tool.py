"""Target of `optimization.yaml`: one call of an MCP tool with its options as parameters."""

import asyncio
import sys
from pathlib import Path

from mcp import Client, MCPError, StdioServerParameters

SERVER = StdioServerParameters(
    command=sys.executable, args=[str(Path(__file__).with_name("server.py"))]
)


class Connection:
    """One server for all calls. The task that opens it also closes it, as the client requires."""

    def __init__(self):
        self.client = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._hold())

    async def _hold(self):
        try:
            async with Client(SERVER) as client:
                self.client.set_result(client)
                await asyncio.Event().wait()  # until the run ends, which cancels this task
        except Exception as error:  # noqa: BLE001 - of any kind: the server cannot be reached
            if not self.client.done():
                self.client.set_exception(ConnectionError(f"the server does not start: {error}"))


_connections = {}


async def search(query, **options):
    """Return the first article that the tool finds with these options."""
    loop = asyncio.get_running_loop()
    connection = _connections.get(loop)
    if connection is None or connection.task.done():
        connection = _connections[loop] = Connection()
    client = await asyncio.shield(connection.client)
    try:
        found = await client.call_tool("search", {"query": query, **options})
    except MCPError as error:
        if _connections.get(loop) is connection:
            del _connections[loop]  # the next call opens a new one
        connection.task.cancel()
        raise ConnectionError(str(error)) from error  # the server's fault, not the candidate's
    if found.is_error:
        raise ValueError(found.content[0].text)
    return found.structured_content["result"][0]
