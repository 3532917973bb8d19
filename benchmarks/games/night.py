"""A night of a million plays: what was measured, and the plan that follows from it.

    python -m benchmarks.games.night              the plan, by the constants below
    python -m benchmarks.games.night --runners    10,000 plays on each runner; --plays, --only: other ones
    python -m benchmarks.games.night --round      a round with a journaled, priced call for each reply

Runners carry plays as they carry candidates: a candidate is a game, a cell a batch of its plays. A round
asks a server in a process of its own that answers at once.
"""

import argparse
import importlib.util
import os
import resource
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from benchmarks.answering import serving
from benchmarks.games.cost import N_PLAYS, cpu_of_executed_play, cpu_of_plays, critic, games
from benchmarks.machine import cpu_of, describe_machine
from convergence_core.games.game import Game, PlayKey, Turn
from convergence_core.games.play import play
from convergence_core.games.registry import plays_of
from convergence_core.ports import Player
from tasks.inputs.loader import load
from tasks.run.opener import prepare_run
from tasks.store import ParquetStore
from tests.games.game_worlds import NIM, Gamer, play_round, write_games
from tests.support.configuration_files import write_configuration
from tests.support.searching import finish

N_NIGHT: Final = 1_000_000
N_BATCH: Final = 60
"""Plays in a batch: far less than a call may take, even on a busy machine."""
NEEDS: Final = {"ray": "ray"}
TRUTH: Final = frozenset({"evaluator", "sandbox"})
TARGET: Final = """
from benchmarks.games.night import play_batch


def answer(case, params):
    return play_batch(params["game"], case["seed"], case["n"])


def worth(result, expected, params, metric):
    return float(result > 0)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PerPlay:
    """What a play takes."""

    cpu_s: float
    """Protocol, score and players that answer at once; no call."""
    replies: float
    """Of models; truth (measurements, executions) is asked of nobody."""
    characters_in: float
    characters_out: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """Measured on one core of the machine that `docs/scale.md` names."""

    reply_cpu_s: float = 0.0049
    """Journal, ledger, request and guard of a reply."""
    play_bytes: float = 261.0
    """Tables of a play, compacted with those of its round."""
    reply_bytes: float = 808.0
    """Journal of a reply."""
    persona_characters: float = 80.0
    usd_per_token_in: float = 0.15e-6
    """Of gpt-4o-mini, by the shipped list."""
    usd_per_token_out: float = 0.6e-6
    characters_per_token: float = 4.0


@cache
def _games() -> list[tuple[Game, dict[str, Player]]]:
    return games()


def play_batch(name: str, seed: int, n_plays: int) -> int:
    """Play one game so often; return how many plays say something."""
    game, players = next(pair for pair in _games() if pair[0].id == name)
    keys = (PlayKey(run_seed=seed, round_number=0, index=i) for i in range(n_plays))
    return sum(not play(game, players, key).scores.is_void for key in keys)


def run_on(runner: str, folder: Path, n_plays: int) -> str:
    """Play on a runner; return the row of its table."""
    names = [game.id for game, _ in games()]
    n_cases = -(-n_plays // (N_BATCH * len(names)))
    folder.mkdir()
    (folder / "target.py").write_text(TARGET, encoding="utf-8")
    cases = [{"id": f"c{i:02}", "input": {"seed": i, "n": N_BATCH}} for i in range(n_cases)]
    execution: dict[str, Any] = {"runner": runner, "parallel_workers": 2}
    if runner != "threads":
        execution["processes"] = 2
    tree = {
        "api": {"name": "plays", "function": "target.py:answer"},
        "search_space": {"parameters": {"game": {"type": "categorical", "choices": names}}},
        "evaluation": {"test_cases": {"inline": cases, "holdout": 0.0}, "cases_per_candidate": n_cases,
                       "metrics": {"worth": {"type": "function", "function": "target.py:worth"}}},
        "optimization": {"algorithm": "random", "seed": 1,
                         "evolution": {"population_size": len(names), "generations": 1},
                         "execution": execution},
        "output": {"formats": ["json"], "visualizations": []},
    }  # fmt: skip
    config = write_configuration(folder, tree, {})
    began = time.perf_counter()
    run = prepare_run(load(config))
    opened, before = time.perf_counter(), cpu_of_all()
    finish(run)
    took, cpu = time.perf_counter() - opened, cpu_of_all() - before
    rows = ParquetStore(folder / "convergence-data").rows(
        "SELECT count(*) AS n FROM evaluations WHERE status = 'ok'", {}
    )
    n_played = int(str(next(iter(rows))["n"])) * N_BATCH
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return (
        f"| `{runner}` | {n_played:,} | {opened - began:.1f} | {took:.1f} | {n_played / took:,.0f} "
        f"| {cpu / n_played * 1e3:.2f} | {peak:.0f} |"
    )


def cpu_of_all() -> float:
    """Return CPU seconds of this process, its living descendants and those that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return cpu_of(os.getpid()) + ended.ru_utime + ended.ru_stime


def measure_round(n_plays: int) -> None:
    """Play a round whose replies are asked of a server, paid and journaled; print what it took."""
    with (
        tempfile.TemporaryDirectory() as folder,
        serving("benchmarks.games.night", ("--serve",)) as url,
    ):
        config = write_games(Path(folder), url, NIM, society__games__plays=n_plays)
        play_round(config)  # the look, imports
        store, before = Path(folder) / "convergence-data", cpu_of_all()
        sizes, began = bytes_of(store), time.perf_counter()
        report = play_round(config)
        took, cpu = time.perf_counter() - began, cpu_of_all() - before
        tables, journal = (after - one for after, one in zip(bytes_of(store), sizes, strict=True))
    print(
        "| plays | replies | wall, s | CPU ms a reply | tables, bytes a play | journal, bytes a reply |"
    )
    print("|---|---|---|---|---|---|")
    print(
        f"| {report.n_plays:,} | {report.n_calls:,} | {took:.1f} | {cpu / report.n_calls * 1e3:.2f} "
        f"| {tables / report.n_plays:,.0f} | {journal / report.n_calls:,.0f} |"
    )


def bytes_of(store: Path) -> tuple[int, int]:
    """Return the bytes of a store's tables, and of everything else in it, the journal above all."""
    sizes = {one: one.stat().st_size for one in store.rglob("*") if one.is_file()}
    tables = sum(size for one, size in sizes.items() if one.suffix == ".parquet")
    return tables, sum(sizes.values()) - tables


def serve() -> None:
    """Answer as a model that makes legal moves, until standard input ends."""
    with Gamer().server() as server:
        print(int(server.url.rpartition(":")[2]), flush=True)
        sys.stdin.read()


def what_plays_take(n_plays: int = 200) -> dict[str, PerPlay]:
    """Return what a play of each game takes, measured; the critic's with its executions."""
    found = {}
    spent = cpu_of_plays()
    for k, (game, players) in enumerate(games()):
        n_measured = N_PLAYS * (k + 1) // 9 - N_PLAYS * k // 9
        keys = (PlayKey(run_seed=2, round_number=0, index=i) for i in range(n_plays))
        seen = [turn for key in keys for turn in play(game, players, key).turns]
        found[game.id] = per_play(seen, n_plays, spent[game.id] / n_measured)
    game, players = critic()
    seen = list(play(game, players, PlayKey(run_seed=2, round_number=0, index=0)).turns)
    found[game.id] = per_play(seen, 1, cpu_of_executed_play())
    return found


def per_play(turns: Sequence[Turn], n_plays: int, cpu_s: float) -> PerPlay:
    """Return what a play takes, by the turns of so many; a solver has the second seat of solved games."""
    asked = [one for one in turns if one.ask.role not in {*TRUTH, "second"}]
    return PerPlay(
        cpu_s=cpu_s,
        replies=len(asked) / n_plays,
        characters_in=sum(len(one.ask.text) for one in asked) / n_plays,
        characters_out=sum(len(one.reply) for one in asked) / n_plays,
    )


def price_of(one: PerPlay, c: Constants) -> float:
    """Return the dollars of a play's replies."""
    n_in = (one.characters_in + c.persona_characters * one.replies) / c.characters_per_token
    return (
        n_in * c.usd_per_token_in
        + one.characters_out / c.characters_per_token * c.usd_per_token_out
    )


def show_plan(n_plays: int = N_NIGHT, c: Constants | None = None) -> None:
    """Print what so many plays take, for games that nobody knows, and once some are known to hurt."""
    constants, takes = c or Constants(), what_plays_take()
    offered = [game for game, _ in (*games(), critic())]
    price = {name: price_of(one, constants) for name, one in takes.items()}
    known = dict.fromkeys(takes, 0.5) | {"critic": 0.95, "judge": 0.9, "prompts": 0.1}
    mixes = [
        plays_of(offered, n_plays, p_keep=p_keep, price_usd=price)
        for p_keep in (dict.fromkeys(takes, 0.5), known)
    ]
    print(
        "| game | replies | tokens in, out | dollars per 1,000 | CPU s per 1,000 | plays at first | once known |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, one in takes.items():
        n_in = (
            one.characters_in + constants.persona_characters * one.replies
        ) / constants.characters_per_token
        n_out = one.characters_out / constants.characters_per_token
        cpu = 1e3 * (one.cpu_s + one.replies * constants.reply_cpu_s)
        print(
            f"| `{name}` | {one.replies:.1f} | {n_in:.0f}, {n_out:.0f} | {price[name] * 1e3:.4f} "
            f"| {cpu:.1f} | {mixes[0][name]:,} | {mixes[1][name]:,} |"
        )
    for title, mix in zip(("at first", "once known"), mixes, strict=True):
        print(f"{title}: {needs_of(mix, takes, price, constants)}")


def needs_of(
    mix: Mapping[str, int], takes: Mapping[str, PerPlay], price: Mapping[str, float], c: Constants
) -> str:
    """Return dollars, replies, CPU and disk of a mix of plays."""
    replies = sum(n * takes[name].replies for name, n in mix.items())
    cpu_h = sum(n * takes[name].cpu_s for name, n in mix.items()) / 3600
    calls_h = replies * c.reply_cpu_s / 3600
    dollars = sum(n * price[name] for name, n in mix.items())
    gib = (sum(mix.values()) * c.play_bytes + replies * c.reply_bytes) / 2**30
    return (
        f"{sum(mix.values()):,} plays, {replies:,.0f} replies, ${dollars:,.0f}, {cpu_h:.1f} core hours of "
        f"games and {calls_h:.1f} of calls, {gib:.1f} GiB; in eight hours {replies / 28_800:,.0f} replies a second"
    )


def main() -> None:
    """Print the plan, or measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runners", action="store_true")
    parser.add_argument("--only", nargs="+", default=["threads", "processes", "ray"])
    parser.add_argument("--plays", type=int, default=10_000)
    parser.add_argument("--round", action="store_true")
    parser.add_argument("--serve", action="store_true", help="what --round asks")
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    print(f"{describe_machine()}, load {os.getloadavg()[0]:.1f}\n")
    if options.round:
        measure_round(min(options.plays, 2_000))
    elif options.runners:
        print(
            "| runner | plays | opening, s | run, s | plays a second | CPU ms a play | peak MiB |"
        )
        print("|---|---|---|---|---|---|---|")
        with tempfile.TemporaryDirectory() as folder:
            for runner in options.only:
                if runner in NEEDS and importlib.util.find_spec(NEEDS[runner]) is None:
                    print(f"{runner}: its extra is not installed", file=sys.stderr)
                    continue
                print(run_on(runner, Path(folder) / runner, options.plays), flush=True)
    else:
        show_plan()


if __name__ == "__main__":
    main()
