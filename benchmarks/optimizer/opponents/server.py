"""Server side of ``remote``: serves one peer in a separate environment.

    python -m benchmarks.optimizer.opponents.server hebo

Reads requests and writes answers, one JSON object per line. It discards library output.
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.optimizer.opponents.peers import PEERS, Peer
from benchmarks.optimizer.spaces import Space


def _plain(value: object) -> object:
    """Convert NumPy scalars and arrays to a JSON value."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else str(value)


class Server:
    """Operations by name."""

    def __init__(self, make: Callable[..., Peer]) -> None:
        self._make = make
        self._peer: Peer | None = None

    def run(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        """Execute a request."""
        if operation == "start":
            space = Space.from_json(arguments["space"])
            rest = {name: value for name, value in arguments.items() if name != "space"}
            self._peer = self._make(space, **rest)
            return None
        return getattr(self._peer, operation)(**arguments)


def main() -> None:
    """Serve until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    server = Server(PEERS[sys.argv[1]])
    for line in sys.stdin:
        request = json.loads(line)
        began = time.process_time()
        result, error = None, None
        try:
            result = server.run(request["operation"], request["arguments"])
        except Exception:  # noqa: BLE001 - whatever a library raises is the answer
            error = traceback.format_exc()[-2000:]
        answer = {"result": result, "error": error, "cpu_s": time.process_time() - began}
        answers.write(json.dumps(answer, default=_plain) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
