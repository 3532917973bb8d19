"""What is claimed is measured here; each module or package is a command, see docs/benchmarks.md."""

import os

# As the commands have it: threads that wait for a busy core cost more than small matrices gain.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
