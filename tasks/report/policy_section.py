"""Section on the policy of prompt changes: who serves, learning curves, actions."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from convergence_core.policy.course import (
    ActionShare,
    PolicyCourse,
    PolicyCurvePoint,
    RefusedTexts,
)
from convergence_core.policy.gate import (
    BASELINES,
    PPO,
    WORDS,
    PolicyName,
    PolicyVerdict,
    serving_sentences,
)
from convergence_core.result.number_text import UNKNOWN, plural, signed_interval
from tasks.report.blocks import (
    Axis,
    Block,
    Columns,
    Heading,
    Layer,
    Paragraph,
    Plot,
    Plots,
    Point,
    section,
    table,
)

NAMES: Final = {PPO: "PPO", BASELINES[0]: "bandit", BASELINES[1]: "fixed sequence"}
MOST_POINTS: Final = 8
"""Points of a curve that a table shows."""


def policy_blocks(
    serves: PolicyName | None, reason: str, verdicts: Sequence[PolicyVerdict], course: PolicyCourse
) -> list[Block]:
    """Return the section.

    Args:
        serves: the policy that serves; ``None``: the gate has not looked yet.
        reason: why, in words.
        verdicts: of the gate's latest look.
        course: of all episodes.
    """
    chooser, why = "No round has ended, so the gate has not looked yet.", ""
    if serves is not None:
        chooser, why = serving_sentences(serves, reason)
    refused: Block = Paragraph(("No written text was refused.",))
    if course.refused:
        refused = table(course.refused, _REFUSED, numeric=("refused", "written"))
    blocks: list[Block] = [
        Paragraph((why,)),
        table(verdicts, _VERDICTS, numeric=_VERDICTS.keys() - {"beside", "decision"}),
        Heading("Mean reward against evaluations", 3),
        Plots((_course_plot(course),) if course.curve else ()),
        table(shown_points(course), _CURVE, numeric=_CURVE.keys() - {"policy"}),
        Heading("Actions by category of the prompt", 3),
        table(course.shares, _SHARES, numeric=("times", "share")),
        Heading("Refused texts", 3),
        refused,
    ]
    return section("Policy of prompt changes", chooser, blocks=blocks)


def _course_plot(course: PolicyCourse) -> Plot:
    """Return the mean reward of each policy's episodes so far, with its interval."""
    looks = {PPO: Layer(points=()), BASELINES[0]: Layer(points=(), colour="default")}
    layers = []
    for name in NAMES:
        points = tuple(
            Point(
                x=point.n_evaluations,
                y=point.mean,
                y_ends=(point.low, point.high),
                tip=f"{NAMES[name]}, {plural(point.n_episodes, 'episode')}: {_mean(point)}",
            )
            for point in course.curve
            if point.policy == name
        )
        look = replace(looks.get(name, Layer(points=(), colour="ink")), points=points)
        line = tuple(replace(point, y_ends=None) for point in points)
        layers += [
            replace(look, mark="band"),
            replace(look, mark="line", points=line, label=NAMES[name]),
        ]
    return Plot(
        name="policy",
        title="Mean reward of each policy against evaluations",
        x=Axis(title="evaluations", kind="whole", low=0),
        y=Axis(title="mean reward"),
        layers=tuple(layer for layer in layers if layer.points),
    )


def shown_points(course: PolicyCourse) -> list[PolicyCurvePoint]:
    """Return the points of the curves that a table shows, the last one of each policy among them."""
    points: list[PolicyCurvePoint] = []
    for name in WORDS:
        policy_points = [point for point in course.curve if point.policy == name]
        every = -(-len(policy_points) // MOST_POINTS) or 1
        points += policy_points[::-1][::every][::-1]
    return points


def difference_text(verdict: PolicyVerdict) -> str:
    """Return the mean difference with its confidence sequence."""
    return (
        UNKNOWN
        if verdict.mean is None
        else signed_interval(verdict.mean, verdict.low, verdict.high)
    )


def _mean(point: PolicyCurvePoint) -> str:
    return signed_interval(point.mean, point.low, point.high)


_VERDICTS: Final[Columns[PolicyVerdict]] = {
    "beside": lambda row: NAMES[row.baseline],
    "decision": lambda row: row.decision,
    "episodes": lambda row: f"{row.n:,}",
    "difference of rewards, 95 % at any look": difference_text,
    "evidence, nats": lambda row: f"{row.log_e:.2f}",
    "decides from": lambda row: f"{row.log_threshold:.2f}",
}
_CURVE: Final[Columns[PolicyCurvePoint]] = {
    "policy": lambda row: NAMES[row.policy],
    "evaluations": lambda row: f"{row.n_evaluations:,}",
    "episodes": lambda row: f"{row.n_episodes:,}",
    "mean reward, 95 % interval": _mean,
}
_SHARES: Final[Columns[ActionShare]] = {
    "category": lambda row: row.category,
    "policy": lambda row: NAMES[row.policy],
    "action": lambda row: row.action,
    "times": lambda row: f"{row.n:,}",
    "share": lambda row: f"{row.share:.2f}",
}
_REFUSED: Final[Columns[RefusedTexts]] = {
    "action": lambda row: row.action,
    "reason": lambda row: row.verdict.replace("_", " "),
    "refused": lambda row: f"{row.n:,}",
    "written": lambda row: f"{row.n_written:,}",
}


def round_sentence(n_episodes: int, n_missing: int, limit: str | None) -> str:
    """Return what a round came to, in one sentence.

    Args:
        n_episodes: that all policies have played.
        n_missing: left out, for a prompt could not be scored.
        limit: why it ended early; ``None`` if it did not.
    """
    lost = f"; {plural(n_missing, 'episode')} left out, for a prompt could not be scored"
    ended = "" if limit is None else f". It ended early: {limit}"
    return (
        f"{plural(n_episodes, 'episode')} played by each policy{lost if n_missing else ''}{ended}"
    )
