"""Off-policy estimates on logs in the layout of the Open Bandit Data, or on a synthetic twin of them.

    python -m benchmarks.open_bandit                      # the twin
    python -m benchmarks.open_bandit --data FOLDER        # obp's obd/: {bts,random}/{all,men,women}/*.csv

Each log was made by Bernoulli Thompson sampling; the question is what a uniform policy would have earned.
The data are not bundled: they have a licence of their own and come with obp. With
them, *truth* is the mean click of the log that the uniform policy itself made. The twin has as many items
and rows, click rates around 0.4 %, and propensities like those of a campaign that has nearly made up its
mind (*women*: nearly all requests to one item); its truth is known.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from convergence_core.off_policy import Log, OffPolicyEstimate, estimate

CAMPAIGNS = {"all": (80, 1.0), "men": (34, 0.8), "women": (46, 9.0)}
"""Items, and how far the logging policy had made up its mind."""
N_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Campaign:
    """A log, and what the uniform policy earns."""

    log: Log
    n_items: int
    truth: float


def synthetic(name: str, seed: int) -> Campaign:
    """Return the twin of a campaign."""
    n_items, decided = CAMPAIGNS[name]
    rng = np.random.default_rng(seed)
    clicks = rng.beta(4.0, 996.0, size=n_items)
    weights = np.exp(decided * rng.normal(size=n_items))
    shares = weights / weights.sum()
    actions = rng.choice(n_items, size=N_ROWS, p=shares)
    log = Log(
        actions=actions.astype(np.int64),
        rewards=(rng.random(N_ROWS) < clicks[actions]).astype(np.float64),
        propensities=shares[actions],
    )
    return Campaign(log, n_items, float(clicks.mean()))


def read(folder: Path, name: str) -> Campaign:
    """Return a campaign of the data."""
    found = {kind: _table(folder / kind / name / f"{name}.csv") for kind in ("bts", "random")}
    logged = found["bts"]
    n_items = int(max(table["item_id"].max() for table in found.values())) + 1  # type: ignore[type-var, arg-type]  # a column of integers
    log = Log(
        actions=logged["item_id"].to_numpy().astype(np.int64),
        rewards=logged["click"].to_numpy().astype(np.float64),
        propensities=logged["propensity_score"].to_numpy().astype(np.float64),
    )
    return Campaign(log, n_items, float(found["random"]["click"].mean()))  # type: ignore[arg-type]


def _table(path: Path) -> pl.DataFrame:
    return pl.read_csv(path).select("item_id", "click", "propensity_score")


def judged(campaign: Campaign) -> OffPolicyEstimate:
    """Return what the uniform policy would have earned."""
    return estimate(campaign.log, np.full(campaign.n_items, 1.0 / campaign.n_items))


def main() -> None:
    """Parse the command line and print the estimates."""
    parser = argparse.ArgumentParser(description="Off-policy estimates on Open Bandit logs.")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, default=200, help="twins of each campaign")
    options = parser.parse_args()
    print(
        "| campaign | IPS [95 %] | SNIPS [95 %] | truth | ESS | alarms |\n|---|---|---|---|---|---|"
    )
    for name in CAMPAIGNS:
        campaign = synthetic(name, 0) if options.data is None else read(options.data, name)
        result = judged(campaign)
        cells = [f"{v.mean:.4f} [{v.low:.4f}, {v.high:.4f}]" for v in (result.ips, result.snips)]
        alarms = "; ".join(result.alarms)[:60] or "none"
        print(
            f"| {name} | {' | '.join(cells)} | {campaign.truth:.4f} | {result.ess:,.0f} | {alarms} |"
        )
    if options.data is not None:
        return
    print("\n| twins | IPS covers | SNIPS covers | alarm |\n|---|---|---|---|")
    for name in CAMPAIGNS:
        hits = np.zeros(3)
        for seed in range(options.seeds):
            campaign = synthetic(name, seed)
            result = judged(campaign)
            hits += [
                result.ips.low <= campaign.truth <= result.ips.high,
                result.snips.low <= campaign.truth <= result.snips.high,
                bool(result.alarms),
            ]
        shown = " | ".join(f"{hit / options.seeds:.1%}" for hit in hits)
        print(f"| {options.seeds} of {name} | {shown} |")


if __name__ == "__main__":
    main()
