"""Section on language games: plays, costs, which games are kept and why."""

from collections.abc import Sequence
from typing import Final

from convergence_core.games.meta_critic import LEVEL as EFFECT_LEVEL, N_FIRST
from convergence_core.games.round_records import (
    LEVEL,
    GamesReport,
    GameSummary,
    HeldOutLook,
    PlayRecord,
    RoleScore,
)
from convergence_core.result.number_text import (
    UNKNOWN,
    percent,
    plural,
    signed,
    signed_interval,
    usd,
)
from tasks.report.blocks import Block, Bullets, Columns, Heading, Paragraph, section, table

MOST_REASONS: Final = 3
"""Reasons of void and lost plays that a game's sentence shows."""


_STAND_IN: Final = "The built-in mock answered: its scores say nothing about a model."
_NO_LOOK: Final = (
    "No held-out case was evaluated, so no effect of a game is known. Hold cases out with "
    "`evaluation.test_cases.holdout`."
)


def games_blocks(report: GamesReport) -> list[Block]:
    """Return the section."""
    blocks: list[Block] = [
        Paragraph((look_sentence(report.look),)),
        table(report.games, _GAMES, numeric=_GAMES.keys() - {"game", "verdict"}),
        Heading("Why", 3),
        Bullets(tuple((game_sentence(each, report.n_measured),) for each in report.games)),
    ]
    scores = [(each.coin.game, score) for each in report.games for score in each.scores]
    if scores:
        about = (
            f"Means over plays with {percent(LEVEL)} t intervals, in each game's own unit. The column "
            "*solver* is what a solver gets in that seat against a solver; no score depends on a model's opinion."
        )
        numbers = table(scores, _SCORES, numeric=("plays", "mean score", "solver"))
        blocks += [Heading("Scores", 3), Paragraph((about,), "note"), numbers]
    return section("Language games", round_sentence(report), blocks=blocks)


def _in_all(cost_usd: float | None) -> str:
    """Return what a round cost, as the end of its sentence."""
    return "at an unknown cost" if cost_usd is None else f"{usd(cost_usd)} in all"


def _unscored(games: Sequence[GameSummary]) -> str:
    """Return how many of all plays have no score, as a part of their sentence."""
    n_void, n_lost = sum(game.n_void for game in games), sum(game.n_lost for game in games)
    counts = [f"{n} {word}" for n, word in ((n_void, "void"), (n_lost, "lost")) if n]
    return f" ({' and '.join(counts)})" if counts else ""


def round_sentence(report: GamesReport) -> str:
    """Return what a round came to."""
    n_games = sum(game.coin.is_included and game.coin.n_plays > 0 for game in report.games)
    text = (
        f"Round {report.round_number + 1} of {report.system}: {plural(report.n_plays, 'play')} of "
        f"{plural(n_games, 'game')}{_unscored(report.games)}, {plural(report.n_calls, 'reply', 'replies')} of models, "
        f"{_in_all(report.cost_usd)}."
    )
    if report.is_offline:
        text += f" {_STAND_IN}"
    return text if report.limit is None else f"{text} It ended early: {report.limit.rstrip('.')}."


def look_sentence(look: HeldOutLook) -> str:
    """Return what the look before the round saw."""
    if not look.n_cases:
        return _NO_LOOK
    if look.mean is None:
        return (
            f"{look.n_cases - len(look.rewards)} of {look.n_cases} held-out cases have no reward, so the "
            "rounds before and after this look are not measured."
        )
    how = "" if look.is_new else ", as seen before: the incumbent is the same"
    return (
        f"The incumbent's mean reward on {plural(look.n_cases, 'held-out case')} before this round was "
        f"{look.mean:.3f}{how}."
    )


def verdict_of_game(game: GameSummary, n_measured: int) -> str:
    """Return a game's state in a word or two."""
    if game.coin.off_reason is not None:
        return "off"
    if game.effect is None or n_measured < N_FIRST:
        return "on trial"
    low, high = game.effect.interval
    return "kept" if low > 0 else "dropped" if high < 0 else "undecided"


def game_sentence(game: GameSummary, n_measured: int) -> str:
    """Return whether a game was played, whether it is kept, and why."""
    coin = game.coin
    if coin.off_reason is not None or coin.probability is None:
        return f"{coin.game} is off: {coin.off_reason}."
    text = f"{coin.game} was {'included' if coin.is_included else 'left out'} at random with probability "
    text += f"{coin.probability:.2f}"
    if coin.is_included:
        text += f" and given {plural(coin.n_plays, 'play')}"
    if game.effect is None:
        text += "; P(keep) is 0.50, because no round with it was measured yet."
    elif not game.effect.n_included:
        text += (
            f"; none of {plural(game.effect.n_rounds, 'measured round')} had it, so nothing was measured of its effect "
            f"yet. P(keep), the probability that it is above 0, stands at {game.effect.p_keep:.2f}."
        )
    else:
        mean, (low, high) = game.effect.mean, game.effect.interval
        text += (
            f"; a round with it changed the reward on held-out cases by {signed_interval(mean, low, high)} "
            f"more than one without ({percent(EFFECT_LEVEL)} posterior interval; {game.effect.n_included} of "
            f"{plural(game.effect.n_rounds, 'measured round')} had it). P(keep), the probability that this is "
            f"above 0, is {game.effect.p_keep:.2f}."
        )
    word = verdict_of_game(game, n_measured)
    text += {
        "on trial": f" On trial: probability 0.5 for the first {N_FIRST} measured rounds.",
        "kept": " Kept: the interval lies above 0.",
        "dropped": " Dropped: the interval lies below 0; one round in ten still tries it.",
        "undecided": " Undecided: the interval holds 0; the probability follows P(keep).",
    }[word]
    reasons = sorted(game.reasons.items(), key=lambda item: -item[1])[:MOST_REASONS]
    if reasons:
        reasons_text = "; ".join(f"{reason.rstrip('.')} ({n})" for reason, n in reasons)
        text += f" In its plays: {reasons_text}."
    return text


def play_blocks(play: PlayRecord) -> list[Block]:
    """Return one play: what was asked and replied, and the score."""
    scores = ", ".join(
        f"{role} {value:+.3g}" for role, value in sorted(play.scores.by_role.items())
    )
    head = (
        f"{play.game}, round {play.key.round_number + 1}, play {play.key.index + 1}: {play.status}"
    )
    end = [scores, play.scores.reason]
    return [
        Heading(head, 3),
        *(
            Paragraph((f"{turn.ask.role} gets: {turn.ask.text}\n→ {turn.reply}",))
            for turn in play.turns
        ),
        Paragraph((". ".join(part for part in end if part) or "no score",)),
    ]


def _effect(game: GameSummary) -> str:
    if game.effect is None:
        return UNKNOWN
    return signed_interval(game.effect.mean, *game.effect.interval)


def _p_keep(game: GameSummary) -> str:
    if game.coin.off_reason is not None:
        return UNKNOWN
    return "0.50" if game.effect is None else f"{game.effect.p_keep:.2f}"


def _score(pair: tuple[str, RoleScore]) -> str:
    score = pair[1]
    if score.half_width is None:
        return signed(score.mean)
    if not score.half_width:
        return f"{signed(score.mean)}, all alike"
    return signed_interval(
        score.mean, score.mean - score.half_width, score.mean + score.half_width
    )


def _reference(pair: tuple[str, RoleScore]) -> str:
    return UNKNOWN if pair[1].reference is None else signed(pair[1].reference + 0.0)


_GAMES: Final[Columns[GameSummary]] = {
    "game": lambda row: row.coin.game,
    "coin": lambda row: UNKNOWN if row.coin.probability is None else f"{row.coin.probability:.2f}",
    "plays": lambda row: f"{row.n_played:,}",
    "void": lambda row: f"{row.n_void:,}",
    "lost": lambda row: f"{row.n_lost:,}",
    "cost": lambda row: usd(row.cost_usd),
    f"effect on held-out reward, {percent(EFFECT_LEVEL)}": _effect,
    "P(keep)": _p_keep,
}
_SCORES: Final[Columns[tuple[str, RoleScore]]] = {
    "game": lambda pair: pair[0],
    "role": lambda pair: pair[1].role,
    "player": lambda pair: pair[1].player,
    "plays": lambda pair: f"{pair[1].n:,}",
    "mean score": _score,
    "solver": _reference,
}
