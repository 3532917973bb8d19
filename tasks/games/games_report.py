"""Report of a round of games, from the tables alone."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from convergence_core.games.meta_critic import GameEffect, effects
from convergence_core.games.registry import solved_games
from convergence_core.games.report import GameReport, GamesReportWithin, LookReport
from convergence_core.games.round_records import (
    CoinRecord,
    GamesReport,
    GameSummary,
    PastRound,
    PlayRecord,
    role_scores,
    rounds_with_change,
)
from convergence_core.games.solved.solver import solve
from convergence_core.games.solved.tree import SEATS
from convergence_core.ports import RunRecord
from tasks.games.round_rows import (
    all_rounds,
    past_rounds,
    plays_of_run,
    rounds_of_run,
    system_of,
)
from tasks.report.games_section import game_sentence, verdict_of_game
from tasks.store import ParquetStore
from tasks.store.tables.lineage import OFFLINE


def report_of(
    store: ParquetStore, record: RunRecord, generation: int | None = None
) -> GamesReport:
    """Return what a finished round did, and what the rounds up to its look say of each game.

    Args:
        store: holds the round.
        record: its run.
        generation: of the run, before which it was played; ``None`` means the run's last round.

    Raises:
        LookupError: the run holds no such round.
    """
    system = system_of(record)
    rows = [
        row
        for row in rounds_of_run(store, system, record.run_id)
        if generation in (None, row["generation"])
    ]
    if not rows:
        raise LookupError(f"run {record.label} has no finished round of games")
    row = rows[-1]
    place = (record.run_id, int(row["generation"]))
    reported = next(past for past in all_rounds(store, system) if past.place == place)
    before = [
        past
        for past in past_rounds(store, system)
        if (past.round_number, past.place) < (reported.round_number, reported.place)
    ]
    plays = plays_of_run(store, record.run_id, generation=reported.generation)
    cost = None if row["cost_usd"] is None else float(row["cost_usd"])
    return made_report(
        record,
        reported,
        before,
        plays,
        cost_usd=cost,
        limit=row["limit_reason"],
    )


def games_within_report(store: ParquetStore, record: RunRecord) -> GamesReportWithin | None:
    """Return what the rounds within a run came to; ``None`` if it has none.

    Args:
        store: holds the run's generations, and its final test if it had one.
        record: the run.

    Raises:
        StoreDamagedError: a file cannot be read.
    """
    system = system_of(record)
    rows = rounds_of_run(store, system, record.run_id)
    if not rows:
        return None
    reports = [report_of(store, record, int(row["generation"])) for row in rows]
    rounds = [past for past in all_rounds(store, system) if past.run_id == record.run_id]
    past = [
        past for past in past_rounds(store, system) if past.round_number <= rounds[-1].round_number
    ]
    measured = rounds_with_change(past, None)
    effect = {effect.game: effect for effect in effects(measured)} if measured else {}
    looks = [(f"before round {report.round_number + 1}", report.look) for report in reports]
    if rounds[-1].after is not None:
        looks.append(("in the final test", rounds[-1].after))
    costs = [report.cost_usd for report in reports]
    return GamesReportWithin(
        n_rounds=len(reports),
        n_plays=sum(report.n_plays for report in reports),
        n_calls=sum(report.n_calls for report in reports),
        cost_usd=None if None in costs else sum(cost or 0.0 for cost in costs),
        is_offline=reports[-1].is_offline,
        looks=tuple(
            LookReport(when=when, n_cases=look.n_cases, mean=look.mean) for when, look in looks
        ),
        n_measured=len(measured),
        limits=tuple(
            f"Round {report.round_number + 1} ended early: {report.limit.rstrip('.')}."
            for report in reports
            if report.limit is not None
        ),
        games=tuple(
            _game_within(
                [
                    game
                    for report in reports
                    for game in report.games
                    if game.coin.game == last.coin.game
                ],
                effect.get(last.coin.game),
                len(measured),
                reports[-1].round_number,
            )
            for last in reports[-1].games
        ),
    )


def _game_within(
    rounds: Sequence[GameSummary], effect: GameEffect | None, n_measured: int, last_round: int
) -> GameReport:
    """Return one game over the rounds of a run; the reason is that of the last one."""
    last, costs = replace(rounds[-1], effect=effect), [past.cost_usd for past in rounds]
    is_off = last.coin.off_reason is not None
    return GameReport(
        game=last.coin.game,
        n_on_offer=sum(past.coin.coin is not None for past in rounds),
        n_included=sum(past.coin.is_included and past.coin.n_plays > 0 for past in rounds),
        n_played=sum(past.n_played for past in rounds),
        n_void=sum(past.n_void for past in rounds),
        n_lost=sum(past.n_lost for past in rounds),
        cost_usd=None if None in costs else sum(cost or 0.0 for cost in costs),
        effect=None if effect is None else (effect.mean, *effect.interval),
        p_keep=None if is_off else 0.5 if effect is None else effect.p_keep,
        verdict=verdict_of_game(last, n_measured),
        why=f"In round {last_round + 1}, {game_sentence(last, n_measured)}",
    )


def made_report(
    record: RunRecord,
    reported: PastRound,
    before: Sequence[PastRound],
    plays: Sequence[PlayRecord],
    *,
    cost_usd: float | None,
    limit: str | None,
) -> GamesReport:
    """Return what a round did.

    Args:
        record: its run.
        reported: the round.
        before: the finished rounds before it.
        plays: of the round.
        cost_usd: of all its calls.
        limit: why it ended early; ``None`` if it did not.
    """
    measured = rounds_with_change(before, reported.look, series=reported.series)
    known = {effect.game: effect for effect in effects(measured)} if measured else {}
    of_game: dict[str, list[PlayRecord]] = {}
    for play in plays:
        of_game.setdefault(play.game, []).append(play)
    reference = _references(of_game)
    games = tuple(
        _summary(
            record,
            of_game.get(record.game, []),
            reference.get(record.game, {}),
            known.get(record.game),
        )
        for record in sorted(reported.coins, key=lambda coin: coin.game)
    )
    return GamesReport(
        system=system_of(record),
        label=record.label,
        round_number=reported.round_number,
        look=reported.look,
        games=games,
        n_measured=len(measured),
        n_plays=len(plays),
        n_calls=sum(play.n_calls for play in plays),
        cost_usd=cost_usd,
        is_offline=OFFLINE in record.tags,
        limit=limit,
    )


def latest_round(store: ParquetStore, name: str | None = None) -> RunRecord:
    """Return the run of a finished round, its own or an optimization with rounds in it.

    Args:
        store: holds it.
        name: its label or id, or its system; ``None`` means the latest round of any system.

    Raises:
        LookupError: there is none.
    """
    finished = {str(row["run_id"]) for row in store.rows("SELECT run_id FROM game_rounds", {})}
    for record in store.runs():
        known = (None, record.label, record.run_id, system_of(record))
        if record.run_id in finished and name in known:
            return record
    named = "" if name is None else f" {name!r}"
    raise LookupError(
        f"the store {store.path} holds no finished round of games{named}. Play one with "
        "`convergence games run`."
    )


def _references(plays: Mapping[str, object]) -> dict[str, dict[str, float]]:
    """Return what the solver gets against the solver, by game and role."""
    return {
        game.id: dict(zip(SEATS, (value, -value), strict=True))
        for game in solved_games()
        if game.id in plays
        for value in (solve(game).value,)
    }


def _summary(
    coin: CoinRecord,
    plays: Sequence[PlayRecord],
    reference: Mapping[str, float],
    effect: GameEffect | None,
) -> GameSummary:
    n_by = Counter(play.status for play in plays)
    costs = [play.cost_usd for play in plays]
    known = [cost for cost in costs if cost is not None]
    return GameSummary(
        coin=coin,
        n_played=n_by["played"],
        n_void=n_by["void"],
        n_lost=n_by["lost"],
        scores=role_scores(plays, reference),
        reasons=dict(Counter(play.scores.reason for play in plays if play.scores.reason)),
        cost_usd=sum(known) if len(known) == len(costs) else None,
        effect=effect,
    )
