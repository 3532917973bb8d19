"""Service of the policy.

::

    python -m convergence.policy --server 8765   # starts `convergence policy serve` on this port
"""

import argparse
import os
import sys

from convergence.__main__ import run

if __name__ == "__main__":
    if "OPENBLAS_NUM_THREADS" not in os.environ:
        # Our matrices are small, and a second BLAS thread spends more time waiting for work than doing it.
        # NumPy reads this when it is loaded, which the package has done by now.
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        os.execv(sys.executable, [sys.executable, "-m", "convergence.policy", *sys.argv[1:]])  # noqa: S606 - itself
    parser = argparse.ArgumentParser(prog="python -m convergence.policy")
    parser.add_argument(
        "--server", type=int, metavar="PORT", required=True, help="start the service on this port"
    )
    sys.exit(run(["policy", "serve", "--port", str(parser.parse_args().server)]))
