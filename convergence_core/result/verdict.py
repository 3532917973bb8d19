"""Verdict of a run: whether to use the configuration found, and the next step.

``kind_of`` and ``is_recommended`` decide the recommendation, and ``verdict_of`` words it.
Terminal, report, artifacts, files and JSON show the same sentence.

The configuration found replaces the current one only if held-out cases support it: the gate says
*promote*, or it is *likely* better and an answer costs less. If it is likely but not proven to be
better, the report offers it, and the current one stays.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from convergence_core.caveats import LEAST_FORECAST, PERFECT_DEFAULTS
from convergence_core.events import RunOutcome
from convergence_core.records import Estimate, Json
from convergence_core.result.candidates import CandidateReport, GateReport
from convergence_core.result.number_text import milliseconds, percent, plural, signed_interval, usd
from convergence_core.result.run_result import LACK_TAG, RoleCost, RunResult

LIKELY = 0.9
"""Minimum posterior probability of being better for *likely*."""
LIKELY_P = 0.125
"""Maximum p-value for *likely*: two wins without a loss have a probability of .9 but are chance.
With both limits, at most 10 of 100 equal pairs count as likely better, at any number of cases
(`benchmarks.verdicts`)."""
LEAST_LIKELY = 20
"""Minimum held-out cases, or groups of them, for *likely*."""
FREE = "a local function that reports no cost"
"""Displayed reason why its calls count as $0; the ledger stores the cost as unknown."""
DEARER = 1.1
"""Minimum price ratio at which an answer costs more."""

AFTER_OFFLINE = (
    "A mock answered instead of the models, so this says nothing about real ones. Set the key, then "
    "repeat it without `--offline`: `convergence optimize`."
)
"""Next step after an offline run."""

_LOOK = "Look at single answers, then widen `search_space` or raise"

Kind = Literal[
    "nothing",
    "same",
    "untested",
    "promoted",
    "better",
    "likely",
    "cheaper",
    "unclear",
    "not_better",
]
Advice = tuple[str, str, str | None]
"""Sentence, next step, and the command for that step, or ``None``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Verdict of a run, with the next step."""

    kind: Kind
    """``nothing``: no candidate has a reward. ``same``: the current configuration is the best
    found. ``untested``: no held-out case compares the two. ``promoted``, ``better``: proven.
    ``likely``: not proven. ``cheaper``: likely better, and an answer costs less. ``unclear``: no
    clear difference. ``not_better``: proven, or the held-out cases contradict a gain."""
    sentence: str
    next_step: str
    """Next step, as a sentence."""
    command: str | None = None
    """Command for the next step, or ``None``."""


def kind_of(gate: GateReport | None, *, usd: float | None, other_usd: float | None) -> Kind:
    """Return the verdict on the search's best against the current configuration.

    Args:
        gate: Gate's comparison with the current configuration, or ``None``.
        usd: Price of an answer of the search's best; ``None`` if unknown.
        other_usd: Price of an answer of the current configuration; ``None`` if unknown.
    """
    if gate is None:
        return "untested"
    if gate.decision == "promote":
        return "promoted" if gate.is_adopted else "better"
    if gate.decision == "keep" or gate.mean < gate.min_effect:
        return "not_better"
    is_likely = (gate.probability_better or 0.0) >= LIKELY and gate.p_value <= LIKELY_P
    if not is_likely or _n_units(gate) < LEAST_LIKELY:
        return "unclear"
    return "cheaper" if costs_more(other_usd, usd) else "likely"


def costs_more(usd: float | None, other_usd: float | None) -> bool:
    """Return whether an answer is known to cost clearly more than the other, in US dollars."""
    return usd is not None and other_usd is not None and usd > DEARER * other_usd


def is_recommended(kind: Kind) -> bool:
    """Return whether the configuration found is recommended over the current one."""
    return kind in {"same", "untested", "promoted", "better", "cheaper"}


def verdict_of(result: RunResult) -> Verdict:
    """Return a run's verdict and its next step.

    After an offline run the next step is a run with the key, since a mock predicts no real model.
    """
    kind, (sentence, next_step, command) = _kind_and_advice(result)
    if result.never_called:
        names = " and ".join(result.never_called)
        sentence += (
            f" Configured but never called: {names}; `convergence estimate` names the smallest "
            "budget that affords each."
        )
    if lack := result.facts.get(LACK_TAG):
        sentence += f" The champion was not compared: {lack}."
        if kind != "untested":
            command = None
            next_step = "Let `search_space` hold the champion's values, then run `convergence optimize` again."
    if is_offline(result) and kind not in {"nothing", "untested"}:
        next_step, command = AFTER_OFFLINE, None
    return Verdict(kind=kind, sentence=sentence, next_step=next_step, command=command)


def is_offline(result: RunResult) -> bool:
    """Return whether a mock replaced the models."""
    return bool(result.facts.get("offline"))


def _kind_and_advice(result: RunResult) -> tuple[Kind, Advice]:
    gate = result.gate
    if result.best is None:
        return "nothing", _nothing(result)
    if gate is None and result.champion is not None and _is_best(result, result.champion):
        return "same", _same(result, "champion is")
    if result.best_is_baseline and (gate is None or gate.opponent == "default"):
        return "same", _same(result, "defaults are")
    if gate is None:
        return "untested", _untested(result)
    own_usd, other_usd = _prices(result)
    kind = kind_of(gate, usd=own_usd, other_usd=other_usd)
    return kind, _compared(result, gate)[kind]


def _compared(result: RunResult, gate: GateReport) -> dict[Kind, Advice]:
    """Return kind → advice for a compared configuration."""
    other, stays = {
        "champion": ("the champion", "The champion stays."),
        "default": ("the defaults", "The defaults are kept."),
    }[gate.opponent]
    gap, more, add = _gap_text(result, gate), _more_cases(gate), _add_cases(result, gate)
    risk = f"proven, with a risk of at most {percent(gate.alpha)} of being wrong"
    prices = _prices(result)
    instead = f"{usd(prices[0])} instead of {usd(prices[1])}"
    price = f" Note that an answer costs more, {instead}." if costs_more(*prices) else ""
    likely = f"Likely better than {other} (probability {percent(gate.probability_better or 0.0)}): {gap}"
    offer = f"{stays[:1].lower()}{stays[1:-1]}, and the report offers the settings found"
    if gate.is_adopted:
        offer = "it is the champion nevertheless"
    return {
        "promoted": (
            f"Promoted: better than {other}, {gap}; {risk}. It is the champion now.{price}",
            "No action needed. See the evidence:",
            "convergence gates",
        ),
        "better": (
            f"Better than {other}: {gap}; {risk}.{price}",
            "Put it into production:",
            f"convergence promote {result.label}",
        ),
        "likely": (f"{likely}. Not proven: {offer}.{price} {more}", add, None),
        "cheaper": (
            f"{likely}, and an answer costs less, {instead}. Not proven"
            f"{': ' + offer if gate.is_adopted else ''}. {more}",
            add,
            None,
        ),
        "unclear": (f"No clear gain over {other}: {gap}. {stays} {more}", add, None),
        "not_better": (
            f"Not better than {other}: {gap}. {stays}",
            f"{_LOOK} `optimization.evolution.generations`.",
            f"convergence show {result.label}",
        ),
    }


def outcome_of(result: RunResult) -> RunOutcome:
    """Return the verdict, and the means of the recommended candidate and the defaults."""
    verdict, winner, baseline = verdict_of(result), result.winner, result.baseline
    role, estimate = (None, None) if winner is None else winner.headline()
    other = None if baseline is None or role is None else baseline.estimate(role)
    steps = f"{verdict.next_step} `{verdict.command}`." if verdict.command else verdict.next_step
    return RunOutcome(
        verdict=verdict.kind,
        sentence=f"{verdict.sentence} {steps}",
        title=result.title,
        params=None if winner is None else winner.params,
        is_default=winner is not None
        and baseline is not None
        and winner.candidate_id == baseline.candidate_id,
        role=role,
        mean=None if estimate is None else estimate.mean,
        interval=None if estimate is None else (estimate.low, estimate.high),
        baseline_mean=None if other is None else other.mean,
        baseline_interval=None if other is None else (other.low, other.high),
        level=result.level if estimate is None else estimate.level,
        n_calls=result.n_calls,
        cost_usd=result.cost_usd,
    )


def result_json(result: RunResult) -> dict[str, Json]:
    """Return a result with its verdict, for programs.

    Raises:
        ValueError: A number is NaN or infinite.
    """
    verdict = verdict_of(result)
    return {**result.to_json(), "verdict": asdict(verdict)}


def price_sentence(result: RunResult) -> str | None:
    """Return the price and latency of each configuration's answer; ``None`` if not measured."""
    candidate = result.best
    if candidate is None or candidate.answer_ms is None:
        return None
    name = "recommended configuration" if result.is_recommended else "configuration found"
    text = f"An answer of the {name}: {_price(result, candidate)}"
    for rival, report in result.rivals.items():
        if report.answer_ms is not None:
            text += f"; of the {rival}: {_price(result, report)}"
    about = "means of the final test"
    if candidate.answer_usd is None and is_free(result):
        about += f"; {FREE}"
    return f"{text} ({about})."


def is_free(result: RunResult) -> bool:
    """Return whether the run called only a local function that reports no cost."""
    return are_free(result.costs)


def are_free(costs: Sequence[RoleCost]) -> bool:
    """Return whether all calls are of a local function that reports no cost."""
    return bool(costs) and all(
        cost.provider == "function" and cost.cost_usd is None for cost in costs
    )


def n_unpriced(costs: Sequence[RoleCost]) -> int:
    """Return the number of unpriced calls; a local function that reports no cost is free."""
    return sum(cost.n_unpriced for cost in costs if not are_free([cost]))


def answer_usd(result: RunResult, report: CandidateReport) -> float | None:
    """Return the US dollars of an answer; a local function that reports no cost is free."""
    return 0.0 if report.answer_usd is None and is_free(result) else report.answer_usd


def _price(result: RunResult, report: CandidateReport) -> str:
    price = answer_usd(result, report)
    shown = "price unknown" if price is None else usd(price)
    return f"{shown}, {milliseconds(report.answer_ms)}"


def _prices(result: RunResult) -> tuple[float | None, float | None]:
    """Return the US dollars of an answer of the search's best and of the current configuration."""
    stays = result.champion or result.baseline
    price, other = (
        None if report is None else report.answer_usd for report in (result.best, stays)
    )
    return price, other


def _gap_text(result: RunResult, gate: GateReport) -> str:
    """Return the difference on held-out cases: from one look, or the gate's if that is missing."""
    shown: Estimate | GateReport = gate
    level = gate.coverage
    if gate.opponent == "default" and result.difference is not None:
        shown, level = result.difference, result.difference.level
    return (
        f"{signed_interval(shown.mean, shown.low, shown.high, level)} on "
        f"{plural(gate.n_cases, 'held-out case')}"
    )


def _n_units(gate: GateReport) -> int:
    """Return the number of independent pairs in the gate's verdict."""
    return gate.n_cases if gate.n_groups is None else gate.n_groups


def _more_cases(gate: GateReport) -> str:
    """Return how many more cases would settle the verdict."""
    if _n_units(gate) < LEAST_FORECAST:
        return "Too few held-out cases to forecast how many more would settle it."
    if gate.n_to_verdict is None:
        return "Thousands of held-out cases would be needed to settle it."
    noun = "more held-out case" if gate.n_groups is None else "more group of held-out cases"
    many = (
        noun.replace("case", "cases") if gate.n_groups is None else noun.replace("group", "groups")
    )
    text = f"About {plural(gate.n_to_verdict, noun, many)} should settle it"
    if gate.n_to_verdict_low is None:
        return f"{text}."
    high = "thousands" if gate.n_to_verdict_high is None else f"{gate.n_to_verdict_high:,}"
    return f"{text} ({gate.n_to_verdict_low:,} to {high})."


def _add_cases(result: RunResult, gate: GateReport) -> str:
    """Return how to get more held-out cases."""
    n_evaluated, held = gate.n_cases, result.n_holdout_cases
    if n_evaluated < held:
        fix, command = _go_on(result)
        return f"The run evaluated only {n_evaluated:,} of {held:,} held-out cases. {fix}: `{command}`."
    total = result.n_search_cases + held
    if gate.n_to_verdict is None or gate.n_groups is not None or not held:
        return "Add test cases, then run `convergence optimize` again."
    n = math.ceil(gate.n_to_verdict * total / held)
    share = percent(round(held / total, 2))
    return (
        f"Add about {plural(n, 'test case')}, of which {share} are held out, then run "
        "`convergence optimize` again."
    )


def _nothing(result: RunResult) -> Advice:
    if not result.n_evaluations and result.status == "budget":
        skipped = plural(result.n_skipped, "planned evaluation")
        return (
            f"No configuration can be recommended: the budget refused {skipped}.",
            "Raise the limit, or lower what a call may cost (`max_tokens`): `convergence estimate` "
            "names the smallest budget. Then continue:",
            f"convergence resume {result.label}",
        )
    why = f"none of the {plural(result.n_candidates, 'configuration')} has a reward"
    if result.all_failed:
        why = f"all of the {plural(result.n_evaluations, 'evaluation')} failed"
    return (
        f"No configuration can be recommended: {why}.",
        "Fix the failures below, then retry:",
        f"convergence resume {result.label} --retry-errors",
    )


def _is_best(result: RunResult, report: CandidateReport) -> bool:
    return result.best is not None and result.best.candidate_id == report.candidate_id


def _same(result: RunResult, subject: str) -> Advice:
    if result.reason.startswith(PERFECT_DEFAULTS):
        sentence = f"{result.reason[:1].upper()}{result.reason[1:]}."
        return sentence, "Add harder test cases, then run `convergence optimize` again.", None
    return (
        f"No gain: the {subject} the best configuration found.",
        f"{_LOOK} `optimization.evolution.generations`.",
        f"convergence show {result.label}",
    )


def how_to_hold_out(result: RunResult) -> str:
    """Return what holds cases out in the next run; a single case cannot be divided."""
    do = "Set" if result.n_search_cases > 1 else "Add test cases, set"
    return f"{do} `evaluation.test_cases.holdout`, for example to 0.3"


def _untested(result: RunResult) -> Advice:
    again, (fix, command) = "then run `convergence optimize` again.", _go_on(result)
    rival, stays = "defaults", ""
    if result.champion is not None:
        rival, stays = "champion", " The champion stays."
    elif result.baseline is None and not result.has_defaults:
        write = "Write your current values as `default:` of the parameters in `search_space`"
        return "No comparison: the configuration file sets no defaults.", f"{write}, {again}", None
    elif result.baseline is None:
        sentence = "No comparison: the run did not evaluate the defaults."
        return sentence, f"{fix}:", command
    if result.n_holdout_cases == 0:
        sentence = f"Not tested on unseen cases: the run held none out.{stays}"
        return sentence, f"{how_to_hold_out(result)}, {again}", None
    sentence = f"No comparison with the {rival}: no held-out case has a reward for both.{stays}"
    return sentence, f"{fix}:", command


def _go_on(result: RunResult) -> tuple[str, str]:
    """Return how to complete missing evaluations, and the command."""
    command = f"convergence resume {result.label}"
    if result.status == "stopped":
        return "Resume the stopped run", command
    if result.status == "done" and result.n_missing:
        return "Fix the failures below, then repeat them", f"{command} --retry-errors"
    return "Raise the limit that stopped the run, then resume", command
