"""Numbers and sentences of a report, in one wording for every surface.

Nothing here claims which configuration is superior: the text gives estimates, intervals and what
they rest on, and leaves the verdict to the promotion gate, whose words are quoted with their error.
"""

import datetime
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from convergence_core.caveats import CASES
from convergence_core.records import DEFAULTS, ParamValue, Role
from convergence_core.result import CandidateReport, Difference, Estimate, GateReport, RunResult

if TYPE_CHECKING:
    from convergence_core.search.recommend import Recommendation
    from convergence_core.search.sampler import SearchState
    from convergence_core.space import Space

UNKNOWN = "\N{EN DASH}"
"""Shown where a number does not exist."""

_SHORT = 60


def clean(text: str) -> str:
    """Return text that every file format can hold: no lone surrogates, no control characters."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(
        c if c in "\n\t" or (c >= " " and c not in "\x7f\ufffe\uffff") else "�" for c in text
    )


def short(text: str, n: int = _SHORT) -> str:
    """Return one line of at most ``n`` characters."""
    line = " ".join(clean(text).split())
    return line if len(line) <= n else line[: n - 1] + "…"


def named_label(label: str, candidate_id: str) -> str:
    """Return a candidate's name on one line, whole: two that differ never look alike."""
    return " ".join(clean(label or candidate_id).split())


def failure_example(error: str | None, n: int = 200) -> str:
    """Return the reason of a failed evaluation on one line: its message, then what came with it.

    Of an exception's traceback nothing is shown but what it says itself; the tables hold it whole.
    """
    message, _, details = clean(error or "").strip().partition("\n\n")
    if message.startswith("Traceback "):
        return short(message.splitlines()[-1], n)
    if not details or details.lstrip().startswith("Traceback "):
        return short(message, n) or UNKNOWN
    return short(f"{short(message, n - 20)}: {details}", n)


def plural(n: int, one: str, many: str | None = None) -> str:
    """Return a count with its noun, e.g. ``1 case``, ``1,200 cases``."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def most_frequent(reasons: Mapping[str, int], n: int = 3) -> list[str]:
    """Return a line for each of the most frequent reasons, with how often it occurred."""
    ordered = sorted(reasons.items(), key=lambda item: -item[1])
    return [f"{plural(count, 'time')}: {clean(reason)}" for reason, count in ordered[:n]]


def counted(value: Estimate | Difference | GateReport, noun: str) -> str:
    """Return what a number rests on, e.g. ``40 held-out cases in 4 groups``."""
    cases = plural(value.n_cases, noun)
    return cases if value.n_groups is None else f"{cases} in {plural(value.n_groups, 'group')}"


def reward(value: float | None) -> str:
    """Return a mean reward with three decimals."""
    return UNKNOWN if value is None else f"{value:.3f}"


def signed(value: float) -> str:
    """Return a difference of rewards with its sign; a true minus, and no sign on zero."""
    text = f"{abs(value):.3f}"
    if float(text) == 0:
        return text
    return ("+" if value > 0 else "\N{MINUS SIGN}") + text


def interval(mean: float | None, low: float | None, high: float | None) -> str:
    """Return ``mean [low, high]`` of rewards."""
    if mean is None or low is None or high is None:
        return UNKNOWN
    return f"{reward(mean)} [{reward(low)}, {reward(high)}]"


def signed_interval(mean: float, low: float, high: float) -> str:
    """Return ``+mean [low, high]`` of a difference of rewards."""
    return f"{signed(mean)} [{signed(low)}, {signed(high)}]"


def estimate(value: Estimate | None) -> str:
    """Return ``mean [low, high]``."""
    return UNKNOWN if value is None else interval(value.mean, value.low, value.high)


def difference(value: Difference | None) -> str:
    """Return ``+mean [low, high]``."""
    return UNKNOWN if value is None else signed_interval(value.mean, value.low, value.high)


def whole_percent(share: float | None) -> str:
    """Return a share in whole percent."""
    return UNKNOWN if share is None else f"{100 * share:.0f} %"


def percent(level: float) -> str:
    """Return a probability in percent, e.g. ``95 %``; certainty is not claimed by rounding."""
    if 0.995 <= level < 1:
        return f"{math.floor(level * 1000) / 10:g} %"
    if 0 < level < 0.005:
        return f"{math.ceil(level * 1000) / 10:g} %"
    return f"{100 * level:.3g} %"


def number(value: float | None) -> str:
    """Return a metric's value in four significant digits, thousands separated."""
    if value is None:
        return UNKNOWN
    if value == 0:
        return "0"
    if not 1e-4 <= abs(value) < 1e9:
        return f"{value:.3e}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:#.4g}".rstrip(".")


def usd(value: float | None) -> str:
    """Return an amount of dollars; small ones keep two significant digits."""
    if value is None:
        return "unknown"
    if value == 0 or abs(value) >= 0.995:
        return f"${value:,.2f}"
    digits = max(2, 1 - math.floor(math.log10(abs(value))))
    return f"${value:.{digits}f}"


def moment(time_us: int) -> str:
    """Return a time in UTC to the second."""
    return f"{_utc(time_us):%Y-%m-%d %H:%M:%S} UTC"


def iso(time_us: int) -> str:
    """Return a time in UTC, in ISO 8601."""
    return _utc(time_us).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _utc(time_us: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(time_us / 1e6, tz=datetime.UTC)


def duration(started_us: int, ended_us: int) -> str:
    """Return how long something took, in words."""
    seconds = max(0.0, (ended_us - started_us) / 1e6)
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def value_text(value: ParamValue) -> str:
    """Return a parameter's value as a person would write it; texts whole."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}" if value == 0 or 1e-4 <= abs(value) < 1e6 else f"{value:.4e}"
    return clean(value) if isinstance(value, str) else str(value)


def heading(result: RunResult) -> str:
    """Return one line that says what this run was."""
    return (
        f"{result.system}: {plural(result.generations_run, 'generation')} of "
        f"{result.algorithm}, seed {result.seed}, {plural(result.n_candidates, 'configuration')}, "
        f"{plural(result.n_calls, 'call')}"
    )


def ending(result: RunResult) -> str:
    """Return one sentence on how the run ended."""
    verb = {
        "done": "The search ended",
        "budget": "The search ended at its budget",
        "stopped": "The run was stopped",
    }[result.status]
    return f"{verb}: {short(result.reason, 200).rstrip('.')}."


# -- findings


def no_winner_sentence(result: RunResult) -> str:
    """Return why no configuration is recommended."""
    why = f"none of the {plural(result.n_candidates, 'configuration')} asked has a reward"
    if result.all_failed:
        why = f"all of the {plural(result.n_evaluations, 'evaluation')} failed"
    return f"No configuration can be recommended: {why}."


def holdout_sentence(result: RunResult, winner: CandidateReport) -> str:
    """Return what the held-out cases say, or why they say nothing."""
    if winner.holdout is None:
        return _no_holdout(result)
    cases = _cases(winner.holdout, "held-out case")
    text = f"On the {cases} the recommended configuration scores {estimate(winner.holdout)}"
    return text + _beside(result, "holdout")


def gate_sentence(result: RunResult) -> str | None:
    """Return the promotion gate's verdict with its evidence; ``None``: it had nothing to judge."""
    gate = result.gate
    if gate is None:
        return None
    opponent, it = (
        ("the champion", "it") if gate.opponent == "champion" else ("the defaults", "them")
    )
    effect = f" by more than {gate.min_effect:g}" if gate.min_effect else ""
    verdict = {
        "promote": f"promote: it lies above {opponent}{effect}",
        "keep": f"keep {opponent}: it does not lie above{effect or f' {it}'}",
        "undecided": f"undecided: the cases do not tell it from {opponent}{effect}",
    }[gate.decision]
    more = ""
    if gate.n_to_verdict:
        noun = "more case" if gate.n_groups is None else "more group"
        more = f" About {plural(gate.n_to_verdict, noun)} would decide, going on like this."
    return (
        f"Promotion gate: {verdict}. {gate_evidence(gate)}; a wrong promotion has a probability "
        f"of at most {percent(gate.alpha)}, however often one looks. {CASES}{more}"
    )


def gate_evidence(gate: GateReport) -> str:
    """Return the difference that the gate looked at, and the evidence for a promotion."""
    return (
        f"Difference {signed_interval(gate.mean, gate.low, gate.high)} on the "
        f"{_cases(gate, 'held-out case')}, evidence {gate.log_e:.2f} of "
        f"{gate.log_threshold:.2f} nats"
    )


def fresh_sentence(result: RunResult, winner: CandidateReport) -> str:
    """Return what the search cases say when asked again, or that they were not."""
    if winner.fresh is None:
        return "The search cases were not asked again after the choice."
    give = "gives" if winner.fresh.n_cases == 1 else "give"
    text = (
        f"Asked again after the choice, the {_cases(winner.fresh, 'search case')} {give} the "
        f"recommended configuration {estimate(winner.fresh)}"
    )
    return text + _beside(result, "fresh")


def search_sentence(result: RunResult, winner: CandidateReport) -> str:
    """Return the search's own estimate, with its bias."""
    assert winner.search is not None  # noqa: S101 - as the field says
    text = (
        f"By the search itself its posterior mean is {estimate(winner.search)} "
        f"({percent(winner.search.level)} posterior interval) after "
        f"{plural(winner.search.n_cases, 'case')}"
    )
    other = None if result.baseline is None else result.baseline.search
    if other is not None and not result.winner_is_baseline:
        after = plural(other.n_cases, "case")
        text += f", that of the default configuration {estimate(other)} after {after}"
    return (
        f"{text}. What the search says of the recommended one is biased upward by selection: it was "
        f"chosen among {plural(result.n_candidates, 'configuration')} because it looked high there."
    )


def within_sentence(result: RunResult) -> str | None:
    """Return how sure the search is that nothing it asked lies far above the winner."""
    if result.within is None:
        return None
    return (
        f"By the search's posterior, the probability that it lies within "
        f"{result.within.delta:g} of the highest mean reward among the configurations asked is "
        f"{percent(result.within.probability)}."
    )


def constraint_reason(
    recommendation: "Recommendation", space: "Space", search: "SearchState", tolerance: float
) -> str:
    """Return what hard constraints had to do with the recommendation; empty: nothing."""
    best, other = recommendation.ranking[0], recommendation.passed_over
    often = "any answer" if not tolerance else f"more than {percent(tolerance)} of its answers"
    if not best.is_feasible:
        return (
            "No configuration asked keeps the hard constraints more likely than not: each breaks "
            f"one in {often}. This one is the likeliest to keep them, with probability "
            f"{percent(best.feasible or 0.0)}."
        )
    if other is None or other.feasible is None:
        return ""
    passed_over = search.archive.members[other.candidate_id].candidate
    return (
        f"{named_label(space.name(passed_over), other.candidate_id)} has a higher posterior mean, "
        f"{reward(other.mean)}, and was passed over: it breaks a hard constraint in {often} with "
        f"probability {percent(1.0 - other.feasible)}."
    )


def default_sentence(result: RunResult) -> str | None:
    """Return what is to be said of the default configuration; ``None``: all was said."""
    if result.winner_is_baseline:
        return (
            "The recommended configuration is the default configuration: the search found none "
            "to recommend in its place."
        )
    if result.baseline is not None:
        return None
    if result.has_defaults:
        return "The default configuration was not evaluated, so there is nothing to compare with."
    return (
        "No default configuration was given, so there is nothing to compare with. Write the values "
        "in use today as `default:` of the parameters under `search_space`, and a run evaluates "
        "them beside its recommendation."
    )


def special(result: RunResult, candidate_id: str) -> str:
    """Return what is special about a candidate and its name does not say, in brackets."""
    reports = {"recommended": result.winner, "default": result.baseline}
    marks = [
        name
        for name, one in reports.items()
        if one and one.candidate_id == candidate_id
        if name != "default" or not one.label.endswith(f" {DEFAULTS}")
    ]
    return f" ({', '.join(marks)})" if marks else ""


def _cases(value: Estimate | GateReport, noun: str) -> str:
    return noun if value.n_cases == 1 else counted(value, noun)


def _beside(result: RunResult, role: Role) -> str:
    baseline = None if result.baseline is None else result.baseline.estimate(role)
    if baseline is None or result.winner_is_baseline:
        return "."
    gap = result.gap(role)
    text = f"; the default configuration {estimate(baseline)}"
    if gap is None:
        return text + ". The two share no case on which both have a reward."
    text += (
        f"; the difference is {difference(gap)} (paired over {counted(gap, 'case')}, "
        f"{percent(gap.level)}; one look, not a promotion decision)."
    )
    if gap.low <= 0 <= gap.high:
        text += " The interval includes 0: these cases do not tell the two apart."
    return text


def _no_holdout(result: RunResult) -> str:
    if result.n_holdout_cases == 0:
        return (
            "No cases were held out, so nothing is known about cases that the search has not "
            "seen. Set `evaluation.test_cases.holdout`, for example to 0.3."
        )
    text = f"The {plural(result.n_holdout_cases, 'held-out case')} gave no estimate."
    if result.final_look:
        return f"{text} The final look: {clean(result.final_look)}."
    why = {"done": "", "budget": " The budget was spent.", "stopped": " The run was stopped."}
    return text + why[result.status]
