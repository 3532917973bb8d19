"""Serve ``optimize/nightly`` from this one process: no worker, no work pool.

    python -m deployments.serve [CONFIG] [--cron "0 2 * * *"] [--timezone UTC]

Needs a Prefect server (``PREFECT_API_URL``). Runs are executed as subprocesses of this process.
"""

import argparse
from pathlib import Path

from prefect.schedules import Cron

from flows.optimize import optimize


def main() -> None:
    """Parse the command line and serve until interrupted."""
    parser = argparse.ArgumentParser(description="Serve optimize/nightly from one process.")
    parser.add_argument("config", nargs="?", default="data/quickstart/optimization.yaml")
    parser.add_argument("--cron", default="0 2 * * *", help="when to run (default: %(default)s)")
    parser.add_argument("--timezone", default="UTC", help="IANA name (default: %(default)s)")
    parser.add_argument("--name", default="nightly", help="deployment name (default: %(default)s)")
    options = parser.parse_args()
    config = Path(options.config).resolve()
    if not config.is_file():
        parser.error(f"there is no configuration at {options.config}")
    optimize.serve(
        name=options.name,
        parameters={"config": str(config)},
        schedule=Cron(options.cron, timezone=options.timezone),
        tags=["convergence", "nightly"],
        pause_on_shutdown=False,
    )


if __name__ == "__main__":
    main()
