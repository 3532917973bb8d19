"""Section on language games: plays, costs, which games are kept and why."""

from collections.abc import Sequence
from typing import Final

from convergence_core.games.meta_critic import LEVEL as EFFECT_LEVEL, N_FIRST
from convergence_core.games.report import GameReport, GamesReportWithin, LookReport
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
from tasks.report.blocks import (
    Block,
    Bullets,
    Columns,
    Heading,
    Paragraph,
    section,
    table,
)

MOST_REASONS: Final = 3
"""Reasons of void and lost plays that a game's sentence shows."""


_STAND_IN: Final = "The built-in mock answered: its scores say nothing about a model."
_NO_LOOK: Final = (
    "No held-out case was looked at, so no effect of a game is ever known. Hold cases out with "
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
            f"Means over plays with {percent(LEVEL)} t intervals, in each game's own unit. Beside them "
            "what the solver gets in that seat against the solver; no score depends on a model's opinion."
        )
        numbers = table(scores, _SCORES, numeric=("plays", "mean score", "solver"))
        blocks += [Heading("Scores", 3), Paragraph((about,), "note"), numbers]
    return section("Language games", round_sentence(report), blocks=blocks)


def games_within_blocks(report: GamesReportWithin) -> list[Block]:
    """Return the section of a run in which rounds were played."""
    text = (
        f"{plural(report.n_rounds, 'round')} within the run: {plural(report.n_plays, 'play')}"
        f"{_unscored(report.games)}, "
        f"{plural(report.n_calls, 'reply', 'replies')} of models, {_in_all(report.cost_usd)}."
    )
    if report.is_offline:
        text += f" {_STAND_IN}"
    lines = [_looks_sentence(report.looks), *report.limits]
    blocks: list[Block] = [
        Paragraph((" ".join(lines),)),
        table(report.games, _WITHIN, numeric=_WITHIN.keys() - {"game", "verdict"}),
        Bullets(tuple((each.why,) for each in report.games)),
    ]
    return section("Language games", text, blocks=blocks)


def _in_all(cost_usd: float | None) -> str:
    """Return what a round cost, as the end of its sentence."""
    return "at a cost that is not known" if cost_usd is None else f"{usd(cost_usd)} in all"


def _unscored(games: Sequence[GameSummary] | Sequence[GameReport]) -> str:
    """Return how many of all plays have no score, as a part of their sentence."""
    n_void, n_lost = sum(one.n_void for one in games), sum(one.n_lost for one in games)
    told = [f"{n} {word}" for n, word in ((n_void, "void"), (n_lost, "lost")) if n]
    return f" ({' and '.join(told)})" if told else ""


def _looks_sentence(looks: Sequence[LookReport]) -> str:
    """Return what was seen of the leaders on the held-out cases."""
    seen = [one for one in looks if one.n_cases]
    if not seen:
        return _NO_LOOK
    means = ", ".join(
        f"{'unknown' if one.mean is None else f'{one.mean:.3f}'} {one.when}" for one in seen
    )
    return f"The leader's mean reward on {plural(seen[0].n_cases, 'held-out case')}: {means}."


def round_sentence(report: GamesReport) -> str:
    """Return what a round came to."""
    n_games = sum(one.coin.is_included and one.coin.n_plays > 0 for one in report.games)
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


def verdict_of_game(one: GameSummary, n_measured: int) -> str:
    """Return a game's state in a word or two."""
    if one.coin.off_reason is not None:
        return "off"
    if one.effect is None or n_measured < N_FIRST:
        return "on trial"
    low, high = one.effect.interval
    return "kept" if low > 0 else "dropped" if high < 0 else "undecided"


def game_sentence(one: GameSummary, n_measured: int) -> str:
    """Return whether a game was played, whether it is kept, and why."""
    coin = one.coin
    if coin.off_reason is not None or coin.coin is None:
        return f"{coin.game} is off: {coin.off_reason}."
    text = f"{coin.game} was {'included' if coin.is_included else 'left out'} by a coin of "
    text += f"{coin.coin.probability:.2f}"
    if coin.is_included:
        text += f" and given {plural(coin.n_plays, 'play')}"
    if one.effect is None:
        text += "; P(keep) is 0.50, for the effect of no round with it was measured yet."
    elif not one.effect.n_included:
        text += (
            f"; none of {plural(one.effect.n_rounds, 'measured round')} had it, so nothing was measured of its effect "
            f"yet. P(keep), the probability that it is above 0, stands at {one.effect.p_keep:.2f}."
        )
    else:
        mean, (low, high) = one.effect.mean, one.effect.interval
        text += (
            f"; a round with it changed the reward on held-out cases by {signed_interval(mean, low, high)} "
            f"more than one without ({percent(EFFECT_LEVEL)} posterior interval; {one.effect.n_included} of "
            f"{plural(one.effect.n_rounds, 'measured round')} had it). P(keep), the probability that this is "
            f"above 0, is {one.effect.p_keep:.2f}."
        )
    word = verdict_of_game(one, n_measured)
    text += {
        "on trial": f" On trial: the coins are fair for the first {N_FIRST} measured rounds.",
        "kept": " Kept: the interval lies above 0.",
        "dropped": " Dropped: the interval lies below 0; one round in ten still tries it.",
        "undecided": " Undecided: the interval holds 0; its coin follows P(keep).",
    }[word]
    reasons = sorted(one.reasons.items(), key=lambda item: -item[1])[:MOST_REASONS]
    if reasons:
        told = "; ".join(f"{reason.rstrip('.')} ({n})" for reason, n in reasons)
        text += f" In its plays: {told}."
    return text


def play_blocks(play: PlayRecord) -> list[Block]:
    """Return one play: what was asked and replied, and the score."""
    scores = ", ".join(f"{role} {value:+.3g}" for role, value in sorted(play.scores.items()))
    head = (
        f"{play.game}, round {play.key.round_number + 1}, play {play.key.index + 1}: {play.status}"
    )
    end = [scores, play.reason]
    return [
        Heading(head, 3),
        *(
            Paragraph((f"{turn.ask.role} was asked: {turn.ask.text}\n→ {turn.reply}",))
            for turn in play.turns
        ),
        Paragraph((". ".join(part for part in end if part) or "no score",)),
    ]


def _effect(one: GameSummary) -> str:
    if one.effect is None:
        return UNKNOWN
    return signed_interval(one.effect.mean, *one.effect.interval)


def _p_keep(one: GameSummary) -> str:
    if one.coin.off_reason is not None:
        return UNKNOWN
    return "0.50" if one.effect is None else f"{one.effect.p_keep:.2f}"


def _score(pair: tuple[str, RoleScore]) -> str:
    one = pair[1]
    if one.half_width is None:
        return signed(one.mean)
    if not one.half_width:
        return f"{signed(one.mean)}, all alike"
    return signed_interval(one.mean, one.mean - one.half_width, one.mean + one.half_width)


def _reference(pair: tuple[str, RoleScore]) -> str:
    return UNKNOWN if pair[1].reference is None else signed(pair[1].reference + 0.0)


_GAMES: Final[Columns[GameSummary]] = {
    "game": lambda one: one.coin.game,
    "coin": lambda one: UNKNOWN if one.coin.coin is None else f"{one.coin.coin.probability:.2f}",
    "plays": lambda one: f"{one.n_played:,}",
    "void": lambda one: f"{one.n_void:,}",
    "lost": lambda one: f"{one.n_lost:,}",
    "cost": lambda one: usd(one.cost_usd),
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
_WITHIN: Final[Columns[GameReport]] = {
    "game": lambda one: one.game,
    "rounds with it": lambda one: f"{one.n_included:,} of {one.n_on_offer:,}",
    "plays": lambda one: f"{one.n_played:,}",
    "void": lambda one: f"{one.n_void:,}",
    "lost": lambda one: f"{one.n_lost:,}",
    "cost": lambda one: usd(one.cost_usd),
    f"effect on held-out reward, {percent(EFFECT_LEVEL)}": lambda one: (
        UNKNOWN if one.effect is None else signed_interval(*one.effect)
    ),
    "P(keep)": lambda one: UNKNOWN if one.p_keep is None else f"{one.p_keep:.2f}",
    "verdict": lambda one: one.verdict,
}
