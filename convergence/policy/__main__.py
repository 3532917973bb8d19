"""Service of the policy that changes prompts.

::

    python -m convergence.policy --server 8765   # starts `convergence policy serve` on this port
"""

import argparse
import os
import sys

from convergence.__main__ import run

if __name__ == "__main__":
    if "OPENBLAS_NUM_THREADS" not in os.environ:
        # Our matrices are small, and a second BLAS thread spends more time waiting than computing.
        # NumPy reads this variable when it loads, which has already happened.
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        os.execv(sys.executable, [sys.executable, "-m", "convergence.policy", *sys.argv[1:]])  # noqa: S606 - this program
    parser = argparse.ArgumentParser(prog="python -m convergence.policy")
    parser.add_argument(
        "--server", type=int, metavar="PORT", required=True, help="start the service on this port"
    )
    sys.exit(run(["policy", "serve", "--port", str(parser.parse_args().server)]))
