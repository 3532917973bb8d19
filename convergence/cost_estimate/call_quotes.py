"""Quotes of single calls, from earlier calls or from their requests.

Without earlier calls, a token is expected to have 4 bytes, and 6 at most. The expected answer is as long as
the expected answer of its case, and at least 150 tokens. The most is the budget's reservation at the most
expensive point that a search along each parameter finds.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from convergence.cost_estimate.ranges import UNKNOWN, Range, over
from convergence_core.budget.bounds import TOKENS_PER_REQUEST, prompt_bound
from convergence_core.budget.prices import Price, provider_of
from convergence_core.config import JudgeMetric
from convergence_core.config.api import CHAT_KINDS
from convergence_core.config.evaluation import LlmConfig
from convergence_core.errors import CandidateFault
from convergence_core.ports import Target
from convergence_core.records import Case, Params, Usage
from convergence_core.search.schedule import FINAL_SHARE

if TYPE_CHECKING:
    from tasks.inputs.environment import Environment
    from tasks.inputs.loader import Loaded

N_CANDIDATES = 24
"""Sampled candidates for the mean and the least."""
N_CASES = 40
"""Sampled test cases, besides the longest."""
N_LONGEST = 4
"""Longest test cases, used to search for the most expensive candidate."""
BYTES_EXPECTED, BYTES_MOST = 4, 6
"""Bytes of a token of English."""
USUAL_ANSWER = 150
"""Tokens of a usual answer, without earlier calls or expected answers."""
OTHER_TOKENIZER = 2
"""Most tokens of a judge for one token of an answer."""


TARGET_KEY = "api.request.options.max_tokens"
"""Key that bounds the target's answers unless a parameter does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallHistory:
    """Usage of calls of one purpose in earlier runs of the system."""

    n_calls: int
    n_runs: int
    prompt: Range = UNKNOWN
    answer: Range = UNKNOWN
    usd: Range = UNKNOWN
    """Price of a call; unknown unless all calls have a price."""
    cached_tokens: float = 0.0
    """Mean of the cached prompt tokens."""

    @property
    def counts_tokens(self) -> bool:
        """Whether token counts are known."""
        return self.prompt.expected is not None and self.answer.expected is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """Quote of one call: price, bounds and worst case."""

    model: str | None
    price: Price | None
    prompt: Range
    answer: Range
    worst_usd: float | None
    worst_tokens: int | None
    reserved_usd: float | None
    """The budget's reservation if texts of other calls have the usual length."""

    def tokens(self, past: CallHistory | None) -> Range:
        """Return the tokens of the call."""
        if past is not None and past.counts_tokens:
            return past.prompt + past.answer
        return replace(self.prompt + self.answer, high=self.worst_tokens)

    def usd(self, past: CallHistory | None) -> Range:
        """Return the price of the call."""
        if self.price is None:
            return UNKNOWN
        known = past if past is not None and past.counts_tokens else None
        prompt, answer = (
            (self.prompt, self.answer) if known is None else (known.prompt, known.answer)
        )
        cached = 0.0 if known is None else known.cached_tokens
        price = partial(_price_of, self.price)
        return Range(
            low=price(prompt.low, answer.low, cached),
            expected=price(prompt.expected, answer.expected, cached),
            high=self.worst_usd if known is None else price(prompt.high, answer.high, 0.0),
        )


def _price_of(
    price: Price, prompt: float | None, answer: float | None, cached: float
) -> float | None:
    usage = Usage(
        prompt_tokens=None if prompt is None else round(prompt),
        completion_tokens=None if answer is None else round(answer),
        cached_tokens=round(cached),
    )
    return price.cost(usage)


Role = Literal["evaluation", "judge", "thought", "writing", "sao", "game", "total"]
"""Purpose of a call, as in the ledger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleEstimate:
    """Estimate of the calls of one role."""

    role: Role
    name: str = ""
    """Provider of the target, metric of the judge, model of other purposes, player of games."""
    calls: Range
    tokens: Range
    usd: Range
    basis: str = ""
    """Source of the tokens and dollars of one call."""
    unknown: str | None = None
    """Why dollars are unknown, and the fix; ``None`` if they are known."""
    least_usd: float | None = None
    """Smallest `budget.max_usd` that affords one call; ``None`` if unknown or without calls."""
    is_guess: bool = False
    """Whether lengths are guesses, not measured in earlier runs."""
    lowered_by: str = ""
    """Key of the configuration that lowers ``least_usd``."""
    share: float | None = None
    """Share of `budget.max_usd` that the role may spend; ``None`` without a limit."""


OF_REQUESTS = f"the cases, and answers of {USUAL_ANSWER} tokens or as `expected`"


def basis(past: CallHistory | None) -> str:
    """Return the source of a call's tokens, in words."""
    if past is None or not past.counts_tokens:
        return OF_REQUESTS
    return calibrated(past)


def calibrated(past: CallHistory) -> str:
    """Return the number of earlier calls and runs, in words."""
    runs = "1 earlier run" if past.n_runs == 1 else f"{past.n_runs:,} earlier runs"
    return f"calibrated by {past.n_calls:,} calls of {runs}"


def no_price(model: str | None) -> str:
    """Return that a model has no price, and the fix."""
    return f"the price of {model} is unknown. Write it under `prices:`."


def least_cap(quotes: Sequence[Quote], share: float = 1.0) -> float | None:
    """Return the smallest `budget.max_usd` that affords one call, or ``None`` if unknown.

    Args:
        quotes: quotes, of which the most expensive must fit.
        share: share of the limit that the purpose may use; the search leaves a part to the final test.
    """
    reserved = [quote.reserved_usd for quote in quotes]
    known = [usd for usd in reserved if usd is not None]
    if not known or len(known) < len(reserved):
        return None
    return max(known) / min(share, 1.0 - FINAL_SHARE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextModel:
    """Language model that a part of the optimizer calls."""

    name: str
    price: Price | None

    @classmethod
    def of(cls, llm: LlmConfig, name: str | None, world: "Environment") -> "TextModel":
        """Return the model of ``llm``, or the model ``name`` at its endpoint."""
        from tasks.providers import billing_provider  # noqa: PLC0415 - brings clients

        if name is not None:
            llm = llm.model_copy(update={"model": name})
        seller, model = billing_provider(llm)
        return cls(name=model, price=world.prices.find(seller, model))

    def quote(self, prompt: int, answer: int, *, usual: int, more: int = 0) -> Quote:
        """Return the quote of a call.

        Args:
            prompt: bound of the known part of the prompt, in tokens.
            answer: longest answer, in tokens.
            usual: tokens of a usual answer.
            more: tokens of other answers in the prompt.
        """
        most, shown = prompt + more, min(more, usual)
        worst = None if self.price is None else self.price.worst_case
        return Quote(
            model=self.name,
            price=self.price,
            prompt=Range(
                low=prompt / BYTES_MOST, expected=prompt / BYTES_EXPECTED + shown, high=most
            ),
            answer=Range(low=0, expected=min(answer, usual), high=answer),
            worst_usd=worst and worst(most, answer),
            worst_tokens=most + answer,
            reserved_usd=worst and worst(prompt + BYTES_EXPECTED * shown, answer),
        )

    def role(
        self,
        role: Role,
        calls: Range,
        quotes: Sequence[Quote],
        past: CallHistory | None,
        *,
        share: float,
        lowered_by: str = "",
    ) -> RoleEstimate:
        """Return the estimate of such calls, within a share of the run's dollars."""
        usd = calls * over([quote.usd(past) for quote in quotes])
        usual = quotes[0].answer.expected or 0.0
        is_guess = basis(past) == OF_REQUESTS
        return RoleEstimate(
            role=role,
            name=self.name,
            calls=calls,
            tokens=calls * over([quote.tokens(past) for quote in quotes]),
            usd=usd,
            basis=f"its wording, and answers of {usual:,.0f} tokens" if is_guess else basis(past),
            is_guess=is_guess,
            unknown=no_price(self.name) if usd.expected is None else None,
            least_usd=least_cap(quotes, share) if calls.high else None,
            lowered_by=lowered_by,
            share=share,
        )


class TargetQuotes:
    """Quotes of the target's calls, over candidates and test cases of a run."""

    def __init__(self, loaded: "Loaded", world: "Environment", target: Target) -> None:
        self._prices = world.prices
        self._target = target
        self._space = loaded.space
        self.is_chat = loaded.configuration.api.kind in CHAT_KINDS
        self.cases = _sample_of_cases(loaded.cases)
        self.refused: str | None = None
        """Why the last rejected request cannot be made; ``None`` if all can."""
        rng = np.random.default_rng(loaded.configuration.optimization.seed)
        baseline = loaded.space.baseline()
        points: list[Params] = [] if baseline is None else [baseline]
        points += [loaded.space.sample(rng) for _ in range(N_CANDIDATES)]
        self._sampled = [
            quote
            for point in points
            for case in self.cases
            if (quote := self._quote(point, case)) is not None
        ]
        self.all = [*self._sampled]
        for size in (_worst_cost, _length):
            self.all += self._extreme(points, rng, size)

    def over(self, part: Callable[[Quote], Range]) -> Range:
        """Return a part of a call: mean over sampled candidates, ends over all quotes."""
        return replace(
            over([*map(part, self.all)]), expected=over([*map(part, self._sampled)]).expected
        )

    def _quote(self, params: Params, case: Case) -> Quote | None:
        """Return the quote of one call, or ``None`` if the target rejects the request."""
        try:
            request = self._target.request(params, case)
            worst = self._target.worst_case(params, case)
        except CandidateFault as fault:
            self.refused = str(fault)
            return None
        fields = request if isinstance(request, dict) else {}
        name, base_url = fields.get("model"), fields.get("base_url")
        model = name if isinstance(name, str) else None
        # A compatible endpoint may belong to another provider, at other prices.
        seller = provider_of(
            self._target.provider, base_url if isinstance(base_url, str) else None
        )
        bound = prompt_bound(fields.get("body")) if self.is_chat else None
        longest = None if bound is None or worst.tokens is None else worst.tokens - bound
        return Quote(
            model=model,
            price=self._prices.find(seller, model),
            prompt=_prompt(bound),
            answer=_answer(longest, case),
            worst_usd=worst.usd,
            worst_tokens=worst.tokens,
            reserved_usd=worst.usd,
        )

    def _extreme(
        self, points: Sequence[Params], rng: np.random.Generator, size: Callable[[Quote], float]
    ) -> list[Quote]:
        """Return the quotes at the worst point of a search along each parameter, twice."""

        def quotes_at(point: Params) -> list[Quote]:
            longest = self.cases[:N_LONGEST]
            return [q for case in longest if (q := self._quote(point, case)) is not None]

        def worst_of(quotes: Sequence[Quote]) -> float:
            return max(map(size, quotes), default=-1.0)

        starts = [(quotes_at(point), point) for point in points]
        best, point = max(starts, key=lambda start: worst_of(start[0]))
        for name, parameter in [*self._space.parameters.items()] * 2:
            ends = [parameter.from_unit(0.0), parameter.from_unit(1.0)]
            n_values = parameter.n_values or 0
            if parameter.kind not in ("int", "float") and n_values <= N_CASES:
                ends = [parameter.value_at(index) for index in range(n_values)]
            for value in ends:
                neighbour = self._space.complete({**point, name: value}, rng)
                if name not in neighbour or not self._space.satisfied(neighbour):
                    continue
                quotes = quotes_at(neighbour)
                if worst_of(quotes) > worst_of(best):
                    best, point = quotes, neighbour
        return best


def judge_quotes(
    loaded: "Loaded", world: "Environment", name: str, metric: JudgeMetric, target: TargetQuotes
) -> list[Quote]:
    """Return quotes of one judge's calls, one per sampled test case.

    The judged answers are as long as the target allows; the length is unknown before the first run unless
    the target is a chat.
    """
    from tasks.json_values import as_text  # noqa: PLC0415 - as above
    from tasks.metrics.judge.prompts import judge_messages  # noqa: PLC0415 - brings clients

    llm = loaded.configuration.judge_of(metric)
    assert llm is not None  # noqa: S101 - ``check_judges`` was called
    model = TextModel.of(llm, None, world)
    rubric = loaded.rubrics.get(name, metric.rubric or "")
    n_shown = 2 if metric.mode == "pairwise" else 1
    shown = Range(low=n_shown, expected=n_shown, high=n_shown * OTHER_TOKENIZER)
    answers = target.over(lambda quote: quote.answer) * shown
    quotes = []
    for case in target.cases:
        blocks = [("INPUT", as_text(case.input))]
        if case.expected is not None:
            blocks.append(("REFERENCE", as_text(case.expected)))
        messages = judge_messages(metric.mode, rubric=rubric, blocks=blocks)
        bound = prompt_bound([*messages]) or 0
        quote = model.quote(bound, llm.max_tokens, usual=USUAL_ANSWER)
        prompt, price = _prompt(bound) + answers, model.price
        most = None if prompt.high is None else round(prompt.high)
        usual = bound + round(BYTES_EXPECTED * (answers.expected or USUAL_ANSWER))
        quotes.append(
            replace(
                quote,
                prompt=prompt,
                worst_usd=None if price is None else price.worst_case(most, llm.max_tokens),
                worst_tokens=None if most is None else most + llm.max_tokens,
                reserved_usd=None if price is None else price.worst_case(usual, llm.max_tokens),
            )
        )
    return quotes


def history_of(row: Mapping[str, object]) -> CallHistory:
    """Return the usage in a row of the query in ``convergence.cost_estimate.estimate``."""
    n_calls = int(str(row["n_calls"]))

    def ends(name: str, least: float) -> Range:
        """Return quantiles and mean, if enough calls have that number."""
        quantiles, n_known = row[f"q_{name}"], int(str(row[f"n_{name}"]))
        if n_known == 0 or n_known < least * n_calls or not isinstance(quantiles, list):
            return UNKNOWN
        low, high, mean = float(quantiles[0]), float(quantiles[1]), float(str(row[f"mean_{name}"]))
        return Range(low=min(low, mean), expected=mean, high=max(high, mean))

    return CallHistory(
        n_calls=n_calls,
        n_runs=int(str(row["n_runs"])),
        prompt=ends("in", 0.5),
        answer=ends("out", 0.5),
        usd=ends("usd", 1.0),
        cached_tokens=float(str(row["mean_cached"] or 0)),
    )


def _sample_of_cases(cases: Sequence[Case]) -> list[Case]:
    by_length = sorted(cases, key=lambda case: (-len(json.dumps(case.input)), case.case_id))
    rest = by_length[N_LONGEST:]
    return by_length[:N_LONGEST] + rest[:: max(1, -(-len(rest) // N_CASES))]


def _prompt(bound: int | None) -> Range:
    if bound is None:
        return UNKNOWN
    n_bytes = max(1, bound - TOKENS_PER_REQUEST)
    return Range(low=n_bytes / BYTES_MOST, expected=n_bytes / BYTES_EXPECTED, high=bound)


def _answer(longest: int | None, case: Case) -> Range:
    if longest is None:
        return UNKNOWN
    expected = 0.0 if case.expected is None else len(json.dumps(case.expected)) / BYTES_EXPECTED
    return Range(low=0, expected=min(longest, max(USUAL_ANSWER, expected)), high=longest)


def _worst_cost(quote: Quote) -> float:
    return -1.0 if quote.worst_usd is None else quote.worst_usd


def _length(quote: Quote) -> float:
    return -1.0 if quote.worst_tokens is None else quote.worst_tokens
