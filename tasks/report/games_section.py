"""Section on language games: plays, costs, and which games are kept and why."""

from collections.abc import Sequence
from typing import Final

from convergence_core.games.meta_critic import LEAST_EFFECT, LEVEL as EFFECT_LEVEL, P_SURE
from convergence_core.games.round_records import (
    LEVEL,
    GamesReport,
    GameSummary,
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
"""Maximum reasons of void and lost plays in a game's sentence."""


_STAND_IN: Final = "The built-in mock answered: its scores say nothing about a model."
_NO_CASES: Final = (
    "No search has used a case that a game found, so no effect of a game is known. Approve cases with "
    "`convergence review`: without approval nothing can be learned."
)


def games_blocks(report: GamesReport) -> list[Block]:
    """Return the section on a round of games."""
    finders = [each for each in report.games if each.coin.feeds == "hard_cases"]
    is_unmeasured = bool(finders) and all(each.effect is None for each in finders)
    blocks: list[Block] = [
        *([Paragraph((_NO_CASES,))] if is_unmeasured else []),
        table(report.games, _GAMES, numeric=_GAMES.keys() - {"game"}),
        Heading("Why", 3),
        Bullets(tuple((game_sentence(each),) for each in report.games)),
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
    """Return the cost of a round, as the end of a sentence."""
    return "at an unknown cost" if cost_usd is None else f"{usd(cost_usd)} in all"


def _unscored(games: Sequence[GameSummary]) -> str:
    """Return the number of plays without a score, as part of a sentence."""
    n_void, n_lost = sum(game.n_void for game in games), sum(game.n_lost for game in games)
    counts = [f"{n} {word}" for n, word in ((n_void, "void"), (n_lost, "lost")) if n]
    return f" ({' and '.join(counts)})" if counts else ""


def round_sentence(report: GamesReport) -> str:
    """Return a sentence on a round's plays, calls and cost."""
    n_games = sum(game.coin.n_plays > 0 for game in report.games)
    text = (
        f"Round {report.round_number + 1} of {report.system}: {plural(report.n_plays, 'play')} of "
        f"{plural(n_games, 'game')}{_unscored(report.games)}, {plural(report.n_calls, 'reply', 'replies')} of models, "
        f"{_in_all(report.cost_usd)}."
    )
    if report.is_offline:
        text += f" {_STAND_IN}"
    return text if report.limit is None else f"{text} It ended early: {report.limit.rstrip('.')}."


def verdict_of_game(game: GameSummary) -> str:
    """Return a game's state in a word; empty if its plays do not feed searches."""
    if game.effect is not None and game.effect.is_dropped:
        return "dropped"
    if game.coin.off_reason is not None:
        return "off"
    if game.effect is None:
        return "unmeasured" if game.coin.feeds == "hard_cases" else ""
    p_keep = game.effect.p_keep
    return "kept" if p_keep >= P_SURE else "faded" if p_keep <= 1.0 - P_SURE else "undecided"


def game_sentence(game: GameSummary) -> str:
    """Return sentences on a game's plays, its state and the reasons."""
    coin, effect = game.coin, game.effect
    if coin.off_reason is not None:
        text = f"{coin.game} is off: {coin.off_reason}."
    else:
        text = f"{coin.game} was given {plural(coin.n_plays, 'play')}."
    word = verdict_of_game(game)
    if effect is not None:
        shown = signed_interval(effect.mean, *effect.interval)
        text += (
            f" Settings that pass its cases score {shown} higher on yours than those that fail them "
            f"({percent(EFFECT_LEVEL)} posterior interval; {plural(effect.n_cases, 'case')} that searches used, "
            f"{plural(effect.n_trials, 'paired trial')}). P(keep), the probability that this is above "
            f"{LEAST_EFFECT:g}, is {effect.p_keep:.2f}. {word.capitalize()}: the next search uses each of its approved "
            f"cases with probability {effect.probability:g}."
        )
    elif word == "unmeasured":
        text += " No search has used a case of it yet."
    reasons = sorted(game.reasons.items(), key=lambda item: -item[1])[:MOST_REASONS]
    if reasons:
        reasons_text = "; ".join(f"{reason.rstrip('.')} ({n})" for reason, n in reasons)
        text += f" In its plays: {reasons_text}."
    return text


def play_blocks(play: PlayRecord) -> list[Block]:
    """Return the blocks of one play: requests, replies and score."""
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
    return UNKNOWN if game.effect is None else f"{game.effect.p_keep:.2f}"


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
    "plays": lambda row: f"{row.n_played:,}",
    "void": lambda row: f"{row.n_void:,}",
    "lost": lambda row: f"{row.n_lost:,}",
    "cost": lambda row: usd(row.cost_usd),
    f"effect on your cases, {percent(EFFECT_LEVEL)}": _effect,
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
