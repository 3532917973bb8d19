"""Child process: hold the lease on ``bot`` until killed. Argument: store."""

import signal
import sys

from tasks.store.journal.lease import Lease

if __name__ == "__main__":
    with Lease(sys.argv[1], "bot").acquire():
        print("held", flush=True)  # noqa: T201 - the acknowledgement
        signal.pause()
