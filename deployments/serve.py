"""Serve ``optimize/nightly`` from this one process: no worker, no work pool.

    python -m deployments.serve [CONFIG] [--cron "0 2 * * *"] [--timezone UTC]

It needs a Prefect server (``PREFECT_API_URL``). Runs are subprocesses of this process.
"""

import argparse
from pathlib import Path

from prefect.schedules import Cron
from prefect.settings import PREFECT_API_URL

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
    if not PREFECT_API_URL.value():
        # Otherwise Prefect would start a server for this process, which schedules nothing.
        parser.error(
            "PREFECT_API_URL must name a Prefect server, but is not set. Start one with "
            "`prefect server start`, then `export PREFECT_API_URL=http://127.0.0.1:4200/api`."
        )
    optimize.serve(
        name=options.name,
        parameters={"config": str(config)},
        schedule=Cron(options.cron, timezone=options.timezone),
        tags=["convergence", "nightly"],
        pause_on_shutdown=False,
    )


if __name__ == "__main__":
    main()
