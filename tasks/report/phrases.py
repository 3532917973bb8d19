"""Numbers and sentences of a report, worded once for every surface.

No sentence here claims that a configuration is superior. Sentences state estimates, intervals and
their evidence; the verdict belongs to the promotion gate, whose sentence states its error rate.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from convergence_core.caveats import CASES
from convergence_core.records import DEFAULT_NAME, Params, ParamValue, Role, n_shared_words
from convergence_core.result import Estimate, Failure, GateReport, RunResult
from convergence_core.result.number_text import (
    UNKNOWN,
    evidence,
    interval,
    milliseconds,
    percent,
    plural,
    reward,
    signed_interval,
    spent,
    usd,
    whole_percent,
)
from convergence_core.result.verdict import FREE, how_to_hold_out, is_free, n_unpriced
from tasks.store.clock import utc

if TYPE_CHECKING:
    from convergence_core.search.recommend import Recommendation
    from tasks.store.runtime.rows import GateLook

_SHORT = 60

ROLES: Mapping[Role, str] = {"holdout": "held out", "fresh": "repeated", "search": "search"}
"""Role of a cell → label in reports."""
MEASURED_ON: Mapping[Role, str] = {
    "holdout": "held-out cases, which the search never saw",
    "fresh": "search cases, repeated after the choice",
    "search": "search cases, biased upward by selection",
}
"""Role of a cell → longer label in reports."""


def clean(text: str) -> str:
    """Replace what some file formats cannot hold: lone surrogates and control characters."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(
        c if c in "\n\t" or (c >= " " and c not in "\x7f\ufffe\uffff") else "�" for c in text
    )


def short(text: str, n: int = _SHORT) -> str:
    """Return a string as one line of at most ``n`` characters."""
    line = " ".join(clean(text).split())
    return line if len(line) <= n else line[: n - 1] + "…"


def previews(texts: Sequence[str]) -> list[str]:
    """Return each string as one short line.

    If a third of the line also starts an earlier string, it starts with the first new word.
    """
    lines = []
    for i, text in enumerate(texts):
        words, line = clean(text).split(), short(text)
        n_shared = max((n_shared_words(words, other.split()) for other in texts[:i]), default=0)
        if n_shared < len(words) and len(" ".join(words[:n_shared])) > _SHORT // 3:
            line = short(" ".join(["…", *words[n_shared:]]))
        lines.append(line)
    return lines


def named_label(label: str, candidate_id: str) -> str:
    """Return a candidate's name on one line, uncut: different names never look alike."""
    return " ".join(clean(label or candidate_id).split())


def failure_example(error: str | None, n: int = 200) -> str:
    """Return the reason of a failed evaluation on one line: message, then details.

    Of a traceback, only the exception's message appears; the tables hold the rest.
    """
    message, _, details = clean(error or "").strip().partition("\n\n")
    if message.startswith("Traceback "):
        return short(message.splitlines()[-1], n)
    if not details or details.lstrip().startswith("Traceback "):
        return short(message, n) or UNKNOWN
    return short(f"{short(message, n - 20)}: {details}", n)


def failure_line(failure: Failure) -> str:
    """Return the number of evaluations that failed for a reason, with an example."""
    example = failure_example(failure.example, 300)
    return f"{plural(failure.n, 'evaluation')} failed with {short(failure.reason)}: {example}"


def most_frequent(reasons: Mapping[str, int]) -> list[str]:
    """Return a line for each of the three most frequent reasons, with its count."""
    ordered = sorted(reasons.items(), key=lambda item: -item[1])
    return [f"{plural(count, 'time')}: {clean(reason)}" for reason, count in ordered[:3]]


def counted(value: Estimate | GateReport, noun: str) -> str:
    """Return the sample behind a number, e.g. ``40 held-out cases in 4 groups``."""
    cases = plural(value.n_cases, noun)
    return cases if value.n_groups is None else f"{cases} in {plural(value.n_groups, 'group')}"


def estimate(value: Estimate | None) -> str:
    """Return ``mean [low, high]``."""
    return UNKNOWN if value is None else interval(value.mean, value.low, value.high)


def difference(value: Estimate | None) -> str:
    """Return ``+mean [low, high] (95 %)``, with the level of the interval."""
    if value is None:
        return UNKNOWN
    return signed_interval(value.mean, value.low, value.high, value.level)


def number(value: float | None) -> str:
    """Return a metric's value in three significant digits, thousands separated."""
    if value is None:
        return UNKNOWN
    if abs(value) < 1e-12:  # a rounding error of means
        return "0"
    if not 1e-4 <= abs(value) < 1e9:
        return f"{value:.3e}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:#.3g}".rstrip(".")


def iso(time_us: int) -> str:
    """Return a time in UTC, in ISO 8601."""
    return utc(time_us).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def duration(started_us: int, ended_us: int) -> str:
    """Return an elapsed time in words."""
    seconds = max(0.0, (ended_us - started_us) / 1e6)
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


_NO_TEXT = re.compile(r"[-+]?[\d.]+(e[-+]?\d+)?|true|false|null|none", re.IGNORECASE)


def value_text(value: ParamValue) -> str:
    """Return a parameter's value for display.

    Prompts are uncut. A string that reads as another type is in quotes.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}" if value == 0 or 1e-4 <= abs(value) < 1e6 else f"{value:.4e}"
    is_alike = isinstance(value, str) and _NO_TEXT.fullmatch(value)
    return f'"{value}"' if is_alike else clean(value) if isinstance(value, str) else str(value)


def settings_text(params: Params) -> str:
    """Return a configuration's values on one line, as a name without a run."""
    return short(", ".join(f"{name} {value_text(params[name])}" for name in sorted(params)), 60)


def heading(result: RunResult) -> str:
    """Return the size of a run on one line."""
    n_cases = result.n_search_cases + result.n_holdout_cases
    return (
        f"{plural(result.n_candidates, 'configuration')} on {plural(n_cases, 'test case')}, "
        f"{plural(result.n_calls, 'call')}"
    )


def ending(result: RunResult) -> str:
    """Return a sentence on why the run ended early; empty if it did not."""
    if result.status == "done":
        return ""
    verb = {"budget": "The search ended at its budget", "stopped": "The run was stopped"}
    return f" {verb[result.status]}: {short(result.reason, 200).rstrip('.')}."


def spend(result: RunResult) -> str:
    """Return the spending of a run in US dollars, or why no number exists."""
    if result.cost_usd is None:
        return f"{usd(0.0)} ({FREE})" if is_free(result) else "no price known"
    return spent(result.cost_usd, n_unpriced(result.costs))


# -- findings


def best_label(result: RunResult) -> str:
    """Return the label of the search's best candidate in tables."""
    return "recommended" if result.is_recommended else "found"


def _best_words(result: RunResult) -> str:
    recommended = "recommended configuration"
    return recommended if result.is_recommended else "configuration found"


def gate_sentence(result: RunResult) -> str | None:
    """Return the promotion gate's evidence; ``None`` if the gate judged nothing."""
    gate = result.gate
    if gate is None:
        return None
    opponent = "the champion" if gate.opponent == "champion" else "the defaults"
    effect = f" by more than {gate.min_effect:g}" if gate.min_effect else ""
    return (
        f"Promotion gate: {gate_evidence(gate)}. It tests whether the configuration beats "
        f"{opponent}{effect}. A wrong promotion has a probability of at most "
        f"{percent(gate.alpha)} over all checks of these cases.{alpha_left(gate.level, gate.left)} {CASES}"
    )


def alpha_left(level: float | None, left: float | None) -> str:
    """Return how much of the gate's error a look spends and leaves, after a space.

    Args:
        level: probability of a wrong promotion that the look spends; ``None`` for a look of an
            earlier version, which gives an empty string.
        left: share of ``alpha`` left for later looks; ``None`` as for ``level``.
    """
    if level is None or left is None:
        return ""
    return (
        f" The latest check used {100 * level:.2g} %; {100 * left:.2g} % is left for later checks of "
        "these cases. New held-out cases start again at the full percentage."
    )


def ledgers(looks: "Sequence[GateLook]") -> dict[str, str]:
    """Return system → the gate's error left by its latest look at held-out cases.

    Args:
        looks: looks, oldest first.
    """
    texts = {}
    for look in looks:
        left = alpha_left(look.details.get("level"), look.details.get("left"))
        if look.kind == "holdout" and left:
            texts[look.system] = f"Risk of a wrong promotion of {look.system}:{left}"
    return texts


def gate_evidence(gate: GateReport) -> str:
    """Return the difference that the gate tested, and its evidence for a promotion."""
    evidence_text = evidence(gate.log_e, gate.log_threshold, "where a promotion needs")
    return (
        f"difference {signed_interval(gate.mean, gate.low, gate.high, gate.coverage)} on the "
        f"{_cases(gate, 'held-out case')}, evidence {evidence_text}"
    )


def within_sentence(result: RunResult) -> str | None:
    """Return the probability that no evaluated candidate lies far above the winner."""
    if result.within is None:
        return None
    return (
        f"By the search's posterior, it lies within {result.within.delta:g} of the highest mean reward "
        f"of all configurations evaluated with a probability of {percent(result.within.probability)}."
    )


def neighbour_sentence(result: RunResult) -> str | None:
    """Return a neighbour in the winner's interval at half the cost or latency, if any."""
    candidate = result.best
    rows = result.leaderboard
    winner = next(
        (r for r in rows if candidate and r.candidate_id == candidate.candidate_id), None
    )
    if candidate is None or winner is None:
        return None
    for name, measured, written in (
        ("cost_usd", candidate.answer_usd, usd),
        ("latency_ms", candidate.answer_ms, milliseconds),
    ):
        # Both measurements must agree, because latencies of the search depend on its load.
        searched = winner.metrics.get(name, 0.0)
        most = min(searched, searched if measured is None else measured) / 2.0
        near = [r for r in rows if r.mean >= winner.low and r.metrics.get(name, most) < most]
        if near:
            row = max(near, key=lambda r: r.mean)
            return (
                f"In the search {named_label(row.label, row.candidate_id)} scores {reward(row.mean)}, "
                f"within the interval of the {_best_words(result)} ({reward(winner.mean)}), at "
                f"{written(row.metrics[name])} instead of {written(winner.metrics[name])} an answer."
            )
    return None


def constraint_reason(
    recommendation: "Recommendation", names: Mapping[str, str], tolerance: float
) -> str:
    """Return the effect of hard constraints on the recommendation; empty if there is none."""
    best, other = recommendation.ranking[0], recommendation.passed_over
    often = "any answer" if not tolerance else f"more than {percent(tolerance)} of its answers"
    if not best.is_feasible:
        return (
            "No configuration keeps the hard constraints more likely than not: each breaks one in "
            f"{often}. This one is the most likely to keep them, with a probability of "
            f"{percent(best.feasible or 0.0)}."
        )
    if other is None or other.feasible is None:
        return ""
    return (
        f"{clean(names[other.candidate_id])} has a higher posterior mean, "
        f"{reward(other.mean)}, but breaks a hard constraint in {often} with a probability of "
        f"{percent(1.0 - other.feasible)}."
    )


def special(result: RunResult, candidate_id: str) -> str:
    """Return in brackets the roles of a candidate that its name does not show."""
    reports = result.roles | ({} if result.champion is None else {"champion": result.champion})
    marks = [
        name
        for name, report in reports.items()
        if report.candidate_id == candidate_id
        if name != DEFAULT_NAME or not report.label.endswith((DEFAULT_NAME, "defaults"))
    ]
    return f" ({', '.join(marks)})" if marks else ""


def _cases(value: Estimate | GateReport, noun: str) -> str:
    return noun if value.n_cases == 1 else counted(value, noun)


def no_holdout(result: RunResult) -> str:
    """Return why there is no estimate on held-out cases."""
    if result.n_holdout_cases == 0:
        text = "The run held no cases out, so it has no evidence on unseen cases."
        return f"{text} {how_to_hold_out(result)}."
    text = f"The {plural(result.n_holdout_cases, 'held-out case')} gave no estimate."
    if result.final_look:
        return f"{text} Final test: {clean(result.final_look)}."
    why = {"done": "", "budget": " The budget was spent.", "stopped": " The run was stopped."}
    return text + why[result.status]


def routing_sentence(result: RunResult) -> str | None:
    """Return a sentence on the gain of routing by case; ``None`` if nothing was compared."""
    routing = result.routing
    if routing is None:
        return None
    if routing.missing:
        return f"What routing by case would earn is unknown: {routing.missing}."
    gain = signed_interval(routing.gain, routing.low, routing.high)
    texts = f"; texts embedded by {routing.texts}" if routing.texts else ""
    over = (
        f"over the single best settings ({percent(routing.level)} interval, "
        f"{plural(routing.n_cases, 'search case')}, each by the others' scores{texts})"
    )
    if routing.night is None:
        return f"Routing by case would earn nothing that these cases can show: {gain} {over}."
    names = result.names
    shares = ", ".join(
        f"{names.get(candidate, candidate)} for {whole_percent(share)}"
        for candidate, share in routing.shares.items()
    )
    return f"Routing by case would earn {gain} {over}: {shares}."
