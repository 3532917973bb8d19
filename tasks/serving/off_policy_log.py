"""Log for off-policy estimates, from the runtime state or from a file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from convergence_core.bandit.off_policy import Log
from convergence_core.errors import ConfigurationError
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line
from tasks.store.runtime.runtime_store import RuntimeStore

COLUMNS = ("action", "reward", "propensity")
_RUNTIME_REWARDS = (
    "SELECT d.arm_id, r.reward, d.propensity FROM decisions d "
    "JOIN rewards r ON r.decision_id = d.decision_id AND r.status = 'ok' "
    "JOIN groups g ON g.id = d.group_id WHERE g.system = ? AND d.fresh = 1 ORDER BY d.seq"
)


def read_log(path: Path, columns: Mapping[str, str] | None = None) -> Log:
    """Read a log from a parquet or CSV file.

    Args:
        path: path of the file.
        columns: ``action``, ``reward`` or ``propensity`` → column name in the file.

    Raises:
        ConfigurationError: the file cannot be read, lacks a column, or holds impossible numbers.
    """
    import polars as pl  # noqa: PLC0415 - slow to import, rarely needed

    try:
        reader = pl.read_parquet if path.suffix == ".parquet" else pl.read_csv
        table: pl.DataFrame = reader(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _refused("LOG", "must be a readable parquet or CSV file", str(error), "") from error
    named = {name: (columns or {}).get(name, name) for name in COLUMNS}
    missing = [column for column in named.values() if column not in table.columns]
    if missing:
        raise _refused(
            "LOG",
            "must have the columns action, reward and propensity",
            ", ".join(table.columns),
            f"Name those it has instead of {', '.join(missing)}, e.g. --column reward=click.",
        )
    rows = table.select(
        pl.col(named["action"]).cast(pl.String),
        *(pl.col(named[name]).cast(pl.Float64, strict=False) for name in COLUMNS[1:]),
    ).rows()
    return _named(rows)


def stored_log(store: RuntimeStore, system: str) -> Log:
    """Return the log of a system's fresh decisions with timely rewards.

    Raises:
        ConfigurationError: there are none.
    """
    with store.database.reading() as connection:
        rows: Any = connection.execute(_RUNTIME_REWARDS, (system,)).fetchall()
    if not rows:
        raise _refused(
            "LOG",
            "must be a file, or a system whose decisions got rewards",
            system,
            "`convergence gates` lists systems.",
        )
    return _named(rows)


def _named(rows: Sequence[tuple[Any, ...]]) -> Log:
    whole = [row for row in rows if None not in row]
    if not whole:
        raise _refused("LOG", "must hold a row with reward and propensity", "none", "")
    arms = tuple(sorted({str(row[0]) for row in whole}))
    number = {arm: index for index, arm in enumerate(arms)}
    try:
        return Log(
            actions=np.array([number[str(row[0])] for row in whole], dtype=np.int64),
            rewards=np.array([row[1] for row in whole], dtype=np.float64),
            propensities=np.array([row[2] for row in whole], dtype=np.float64),
            arms=arms,
            n_left_out=len(rows) - len(whole),
        )
    except ValueError as error:
        raise _refused("LOG", f"must be a log: {error}", "", "") from error


def target_of(policy: str, arms: Sequence[str]) -> np.ndarray:
    """Return the probabilities of a policy that ignores the request, (n_arms,).

    Args:
        policy: ``uniform``; the name of an arm that always serves; or ``arm=share,arm=share``.
        arms: names of the log's arms.

    Raises:
        ConfigurationError: the policy names unknown arms, or its shares do not sum to 1.
    """
    if policy == "uniform":
        return np.full(len(arms), 1.0 / len(arms))
    target = np.zeros(len(arms))
    parts = [
        part.rpartition("=") if "=" in part else (part, "=", "1") for part in policy.split(",")
    ]
    for arm, _, share in parts:
        if arm not in arms:
            known = one_line(", ".join(arms), 200, redacted_text)
            raise _refused("--policy", "must name arms of the log", arm, f"It has {known}.")
        try:
            target[list(arms).index(arm)] += float(share)
        except ValueError as error:
            raise _refused("--policy", "must give a share to each arm", share, "") from error
    if not np.isclose(target.sum(), 1.0, atol=1e-6) or np.any(target < 0.0):
        raise _refused(
            "--policy", "must have shares of 0 or more that sum to 1", f"{target.sum():g}", ""
        )
    return target


def _refused(key: str, rule: str, value: str, fix: str) -> ConfigurationError:
    fix = fix or "See `convergence ope --help`."
    return ConfigurationError.of(key, rule, fix, value=value[:200])
