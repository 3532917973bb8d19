"""A process whose child hangs; prints the child's number, then waits to be killed."""

import threading
import time

from tasks.functions.processes import Parent, ProcessPool


def main() -> None:
    """Answer in a child: hang, print, or say what was noticed."""
    noticed: list[object] = []

    def answer(message: object) -> object:
        if message == "hang":
            while True:
                pass
        print("printed by a child", flush=True)  # noqa: T201 - no part of the protocol
        while message == "wait" and not noticed:
            time.sleep(0.005)
        return [message, *noticed]

    Parent().serve(answer, on_notice=noticed.append)


if __name__ == "__main__":
    pool = ProcessPool("tests.functions.pool_owner")
    pool.call("ready")
    (pid,) = pool.pids
    threading.Thread(target=pool.call, args=("hang",), daemon=True).start()
    print(pid, flush=True)  # noqa: T201 - for the parent
    time.sleep(3600)
