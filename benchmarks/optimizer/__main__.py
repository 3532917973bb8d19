"""``python -m benchmarks.optimizer``: run, report."""

import os

# One thread each, as several shards share a machine. NumPy reads these variables on import.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

from benchmarks.optimizer.commands import main  # noqa: E402 - see above

if __name__ == "__main__":
    raise SystemExit(main())
