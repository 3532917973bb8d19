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

from convergence_core.bandit.off_policy import Log, OffPolicyEstimate, estimate, fitted_model

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
        cells = [
            "none" if v is None else f"{v.mean:.4f} [{v.low:.4f}, {v.high:.4f}]"
            for v in (result.ips, result.snips)
        ]
        alarms = "; ".join(result.alarms)[:60] or "none"
        print(
            f"| {name} | {' | '.join(cells)} | {campaign.truth:.4f} | {result.ess:,.0f} | {alarms} |"
        )
    if options.data is not None:
        return
    print("\n| twins | estimated | IPS covers | SNIPS covers | alarm |\n|---|---|---|---|---|")
    for name in CAMPAIGNS:
        hits, n_given = np.zeros(2), 0
        n_alarms = 0
        for seed in range(options.seeds):
            campaign = synthetic(name, seed)
            result = judged(campaign)
            n_alarms += bool(result.alarms)
            if result.ips is None or result.snips is None:
                continue
            n_given += 1
            hits += [
                value.low <= campaign.truth <= value.high for value in (result.ips, result.snips)
            ]
        covers = [f"{hit / n_given:.1%}" if n_given else "none given" for hit in hits]
        shares = f"{n_given} | {' | '.join(covers)} | {n_alarms / options.seeds:.1%}"
        print(f"| {options.seeds} of {name} | {shares} |")
    _print_small_logs(options.seeds)


LOGS = {
    "one rare arm, half its rewards 1": ((0.97, 0.03), (0.0, 1.0), (0.5, 0.5)),
    "one rare arm, few rewards 1": ((0.97, 0.03), (0.0, 1.0), (0.5, 0.02)),
    "three arms, the best rarest": ((0.90, 0.07, 0.03), (0.2, 0.3, 0.5), (0.3, 0.6, 0.9)),
}
"""Shares of the policy that ran, shares of the one in question, mean rewards of 0 and 1."""


def _print_small_logs(n_runs: int) -> None:
    """Print coverage at small effective sample sizes."""
    print("\n| log | ESS expected | estimated | SNIPS covers | its mean width | DR covers |")
    print("|---|---|---|---|---|---|")
    for name, (shares, target, means) in LOGS.items():
        p, q = np.array(shares), np.array(target)
        truth, per_request = float(q @ means), 1.0 / float((q**2 / p).sum())
        for ess in (3, 10, 30, 100):
            hits, widths = np.zeros(2), []
            for seed in range(n_runs):
                rng = np.random.default_rng([seed, ess])
                actions = rng.choice(p.size, size=round(ess / per_request), p=p)
                rewards = (rng.random(actions.size) < np.array(means)[actions]).astype(np.float64)
                log = Log(actions=actions, rewards=rewards, propensities=p[actions])
                found = estimate(log, q, model=fitted_model(log, p.size))
                if found.snips is None or found.dr is None:
                    continue
                widths.append(found.snips.high - found.snips.low)
                hits += [value.low <= truth <= value.high for value in (found.snips, found.dr)]
            shown = (
                f"{hits[0] / len(widths):.3f} | {np.mean(widths):.2f} | {hits[1] / len(widths):.3f}"
                if widths
                else " | | "
            )
            print(f"| {name} | {ess} | {len(widths)} of {n_runs} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
