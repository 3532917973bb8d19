"""Child processes: fresh interpreters with a pipe to them, which end when this process does.

They are no forks, so threads and the user's ``__main__`` do not matter to them. Nobody holds the other
end of a child's life line any more when this process has died, however it died.
"""

import os
import socket
import subprocess
import sys
import threading
from multiprocessing.connection import Connection


class ChildProcess:
    """A child, from this side."""

    def __init__(self, module: str) -> None:
        """Start it.

        Args:
            module: whose ``main`` it runs; see ``parent_pipe``.
        """
        ours, theirs = socket.socketpair()
        line_read, self._life_line = os.pipe()
        code = f"from {module} import main; main()"
        with theirs:
            try:
                self.process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                    [sys.executable, "-c", code, str(theirs.fileno()), str(line_read)],
                    pass_fds=(theirs.fileno(), line_read),
                    stdin=subprocess.DEVNULL,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
                )
            finally:
                os.close(line_read)
        self.pipe = Connection(ours.detach())

    def close(self) -> None:
        """Close pipe and life line of a child that has ended; safe to call twice."""
        if not self.pipe.closed:
            self.pipe.close()
            os.close(self._life_line)


def parent_pipe() -> Connection:
    """Return, in a child, the pipe to its parent; from now on it ends when that dies."""
    pipe = Connection(int(sys.argv[1]))
    threading.Thread(target=_end_with_parent, args=(int(sys.argv[2]),), daemon=True).start()
    return pipe


def _end_with_parent(life_line: int) -> None:
    os.read(life_line, 1)
    os._exit(1)
