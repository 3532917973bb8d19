"""Benchmarks behind the documented claims. Each module or package is a command: docs/benchmarks.md."""

import os

# As in the commands: threads waiting for a busy core cost more than small matrices gain.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
