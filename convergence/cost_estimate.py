"""Cost estimate of a run: calls, tokens and dollars by role.

The run's plan gives the number of calls; the maximum is that of a run which evaluates every
planned cell. If the store knows the price of each call, tokens and dollars come from earlier runs
of the system (mean and 90 % quantile). Otherwise they come from the requests: 4 bytes per token,
and an answer as long as the case's expected one, at least 150 tokens. Their maximum is the
budget's reservation for the most expensive candidate of a sample and its neighbours. An estimate
makes no call and writes nothing.
"""

import asyncio
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import comb
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from convergence.call_quotes import (
    NOTHING,
    UNKNOWN,
    Amount,
    CallQuote,
    call_history,
    largest,
    mean_and_most,
)
from convergence_core.budget.bounds import TOKENS_PER_REQUEST, prompt_bound
from convergence_core.budget.limits import dollars
from convergence_core.budget.prices import provider_of
from convergence_core.config import JudgeMetric
from convergence_core.config.api import CHAT_KINDS
from convergence_core.config.evaluation import LlmConfig
from convergence_core.config.evaluation_rules import check_judges, judge_note
from convergence_core.config.prompts import N_REQUESTS
from convergence_core.errors import CandidateFault
from convergence_core.ports import Target
from convergence_core.records import Case, Params
from convergence_core.search.samplers import RACING
from convergence_core.search.schedule import FINAL_SHARE, Schedule
from tasks.run.adoption import champion_now
from tasks.run.assembly import schedule_of

if TYPE_CHECKING:
    from tasks.inputs.environment import Environment
    from tasks.inputs.loader import Loaded

N_CANDIDATES: Final = 24  # sampled
N_CASES: Final = 40  # sampled, in addition to the longest
N_LONGEST: Final = 4
BYTES: Final = 4  # per token of English
USUAL_ANSWER: Final = 150  # tokens
USUAL_THOUGHT: Final = 600  # tokens of notes, eight forecasts and five settings
OTHER_TOKENIZER: Final = 2  # maximum tokens of a judge per token of an answer
FRAME: Final = 2_500  # bytes of the fixed wording of a request for a prompt or a preference
LONGEST_ANSWER: Final = 4_000  # maximum characters of an answer in a preference
TARGET_KEY: Final = "api.request.options.max_tokens"
OF_REQUESTS: Final = f"the cases, and answers of {USUAL_ANSWER} tokens or as `expected`"

Role = Literal["evaluation", "judge", "thought", "writing", "sao", "total"]
"""Purpose of a call, as in the ledger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleEstimate:
    """Estimate of the calls of one role."""

    role: Role
    name: str = ""
    """Provider of the target, metric of the judge, or model for other purposes."""
    calls: Amount
    tokens: Amount
    usd: Amount
    basis: str = ""
    """Source of the tokens and dollars of one call."""
    unknown: str | None = None
    """Why dollars are unknown, and the fix; ``None`` if they are known."""
    least_usd: float | None = None
    """Smallest `budget.max_usd` that affords one call; ``None`` if unknown or without calls."""
    lowered_by: str = ""
    """Key of the configuration that lowers ``least_usd``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEstimate:
    """Estimate of a run. Sizes are upper bounds: a run may stop early."""

    config: str
    system: str
    schedule: Schedule
    space_size: int | None
    """Number of possible candidates; ``None`` if uncountable."""
    n_candidates: int | None
    """Maximum candidates; ``None`` if the algorithm races, so only evaluations limit them."""
    n_search_cells: int
    n_final_cells: int
    roles: tuple[RoleEstimate, ...]
    total: RoleEstimate
    """Sum over all roles, within the limits of the budget."""
    notes: tuple[str, ...]
    price_version: str
    calls_with_retries: float | None
    """Maximum calls, with every allowed retry."""
    unaffordable: str | None
    """Purposes for which `budget.max_usd` affords no call, and the fix; ``None`` if it affords a
    call of each.
    """


def estimate(loaded: "Loaded") -> RunEstimate:
    """Return the estimate of a run of this configuration, without a call.

    Raises:
        ConfigurationError: the target cannot be built, or a judge has no model.
        StoreError: the store cannot be read.

    Example:
        >>> estimate(load("optimization.yaml")).total.usd
        Amount(expected=0.41, high=2.6)
    """
    from tasks.inputs.environment import Environment  # noqa: PLC0415 - as below
    from tasks.inputs.factories import make_target  # noqa: PLC0415 - brings clients

    check_judges(loaded.configuration)
    world = Environment.unchecked(loaded.configuration)
    target = make_target(loaded, world)
    try:
        return _Estimator(loaded, world, target).estimate()
    finally:
        asyncio.run(target.aclose())


class _Estimator:
    """Quotes of all roles of one run."""

    def __init__(self, loaded: "Loaded", world: "Environment", target: Target) -> None:
        self._loaded, self._world, self._target = loaded, world, target
        self._configuration = loaded.configuration
        self._history = call_history(loaded)
        self._schedule = schedule_of(loaded, champion_now(loaded))
        self._is_chat = self._configuration.api.kind in CHAT_KINDS
        by_length = sorted(
            loaded.cases, key=lambda case: (-len(json.dumps(case.input)), case.case_id)
        )
        rest = by_length[N_LONGEST:]
        self._cases = by_length[:N_LONGEST] + rest[:: max(1, -(-len(rest) // N_CASES))]
        self._refused = ""
        """Why the last rejected request failed; empty if none did."""
        self._quotes = self._target_quotes()

    def estimate(self) -> RunEstimate:
        """Return the estimate of the run."""
        configuration, schedule = self._configuration, self._schedule
        budget = configuration.budget
        size, n_candidates, n_search = self._size()
        n_final = sum(schedule.final_quota()) * schedule.n_subjects
        cells = self._cells(n_search, n_final)
        # A champion may answer more cases, as the opponent of pairwise judges.
        calls = cells + Amount(0, schedule.champion_calls)
        roles = (
            self._target_role(calls),
            *(
                self._judge(name, metric, cells)
                for name, metric in configuration.evaluation.judges.items()
            ),
            *self._thoughts(),
            *self._texts(),
        )
        n_attempts = configuration.optimization.execution.most_attempts
        n_calls = sum((role.calls for role in roles), NOTHING)
        total = RoleEstimate(
            role="total",
            calls=n_calls.at_most(budget.max_calls),
            tokens=sum((role.tokens for role in roles), NOTHING).at_most(budget.max_tokens),
            usd=sum((role.usd for role in roles), NOTHING),
            unknown=next((role.unknown for role in roles if role.unknown is not None), None),
            least_usd=max((r.least_usd for r in roles if r.least_usd is not None), default=None),
        )
        unaffordable = _unaffordable(roles, budget.max_usd)
        notes = [*self._notes(total, roles), *([unaffordable] if unaffordable else [])]
        usd = total.usd if total.unknown is not None else total.usd.at_most(budget.max_usd)
        return RunEstimate(
            config=str(self._loaded.config_path),
            system=configuration.api.name,
            schedule=schedule,
            space_size=size,
            n_candidates=n_candidates,
            n_search_cells=n_search,
            n_final_cells=n_final,
            roles=roles,
            total=replace(total, usd=usd),
            notes=tuple(notes),
            price_version=self._world.prices.version,
            calls_with_retries=(n_calls * Amount(1, n_attempts)).at_most(budget.max_calls).high,
            unaffordable=unaffordable,
        )

    def _cells(self, n_search: int, n_final: int) -> Amount:
        """Return the cells that a run evaluates."""
        schedule, configuration = self._schedule, self._configuration
        stopping, n_least = (
            configuration.optimization.execution.early_stopping,
            schedule.n_generations,
        )
        if stopping.enabled and configuration.evaluation.objective == "reward":
            n_least = min(n_least, stopping.patience + 1)  # a flat search ends after its patience
        least = -(-n_search * n_least // schedule.n_generations) + n_final
        most = n_search + n_final
        return Amount((least + most) / 2, most)

    def _size(self) -> tuple[int | None, int | None, int]:
        """Return the size of the space, and the maximum candidates and cells of the search."""
        configuration, schedule = self._configuration, self._schedule
        size, races = self._loaded.space.size(), configuration.optimization.algorithm in RACING
        population = configuration.optimization.evolution.population_size
        n_candidates = None if races else schedule.n_generations * population
        n_cells = schedule.planned_cells()
        grows = configuration.writes_prompts or (
            configuration.has_mutable_texts and configuration.society.prefers
        )
        if size is not None and not grows:
            n_candidates = size if n_candidates is None else min(n_candidates, size)
            per_candidate = schedule.n_search_cases * (schedule.repeats + races * schedule.n_again)
            n_cells = min(n_cells, n_candidates * per_candidate)
            n_candidates = min(n_candidates, n_cells)
        return size, n_candidates, n_cells

    def _role(
        self,
        role: Role,
        name: str,
        n: Amount,
        quotes: Sequence[CallQuote],
        *,
        share: float = 1.0,
        lowered_by: str = "",
    ) -> RoleEstimate:
        """Return the estimate of n calls, within a share of the run's dollars."""
        tokens, usd, basis = self._history.get(role, (UNKNOWN, UNKNOWN, ""))
        unknown = None
        if usd.expected is None:
            tokens = mean_and_most([quote.tokens for quote in quotes])
            usd, basis = mean_and_most([quote.usd for quote in quotes]), OF_REQUESTS
            unknown = next((quote.unknown for quote in quotes if quote.unknown is not None), None)
            unknown = unknown if quotes else self._refused
        reserved = [quote.reserved_usd for quote in quotes]
        least = None
        if n.high and reserved and None not in reserved:
            # The search reserves a part of the limit for the final test.
            least = max(usd or 0.0 for usd in reserved) / min(share, 1.0 - FINAL_SHARE)
        limit = self._configuration.budget.max_usd
        spent = UNKNOWN if unknown is not None else n * usd
        return RoleEstimate(
            role=role,
            name=name,
            calls=n,
            tokens=n * tokens,
            usd=spent if limit is None or share == 1.0 else spent.at_most(share * limit),
            basis=basis,
            unknown=unknown,
            least_usd=least,
            lowered_by=lowered_by,
        )

    # -- the target

    def _target_role(self, n: Amount) -> RoleEstimate:
        provider, key = self._target.provider, TARGET_KEY if self._is_chat else ""
        if self._configuration.api.kind != "agno":
            return self._role("evaluation", provider, n, self._quotes, lowered_by=key)
        most = self._configuration.api.agent.max_model_calls
        if "agent" not in self._history:
            why = f"an agent calls its models up to {most} times; the first run shows how often."
            calls = n * Amount(None, 1 + most)
            return RoleEstimate(role="evaluation", name=provider, calls=calls, tokens=UNKNOWN,
                                usd=UNKNOWN, unknown=why)  # fmt: skip
        tokens, usd, basis = self._history["agent"]
        calls = n * Amount((1 + most) / 2, most)
        return RoleEstimate(role="evaluation", name=provider, calls=n + calls,
                            tokens=calls * tokens, usd=calls * usd, basis=basis)  # fmt: skip

    def _target_quotes(self) -> list[CallQuote]:
        """Return quotes for sampled candidates, the most expensive one and its neighbours."""
        space = self._loaded.space
        rng = np.random.default_rng(self._configuration.optimization.seed)
        baseline = space.baseline()
        points: list[Params] = [] if baseline is None else [baseline]
        points += [space.sample(rng) for _ in range(N_CANDIDATES)]
        quotes = [quote for point in points for quote in self._quotes_at(point, self._cases)]
        longest = self._cases[:N_LONGEST]
        for _ in range(2):
            point = max(points, key=lambda point: largest(self._quotes_at(point, longest)))
            points = [point]
            for name, parameter in space.parameters.items():
                values = [parameter.from_unit(0.0), parameter.from_unit(1.0)]
                if parameter.kind not in ("int", "float") and (parameter.n_values or 0) <= N_CASES:
                    values = [parameter.value_at(i) for i in range(parameter.n_values or 0)]
                neighbours = [space.complete({**points[0], name: value}, rng) for value in values]
                allowed = [p for p in neighbours if name in p and space.satisfied(p)]
                points = [
                    max([*points, *allowed], key=lambda p: largest(self._quotes_at(p, longest)))
                ]
        return [*quotes, *self._quotes_at(points[0], longest)]

    def _quotes_at(self, params: Params, cases: Sequence[Case]) -> list[CallQuote]:
        """Return the quotes of a candidate's requests."""
        quotes = []
        for case in cases:
            try:
                request = self._target.request(params, case)
                worst = self._target.worst_case(params, case)
            except CandidateFault as fault:
                self._refused = f"no request can be made: {fault}"
                continue
            if not self._is_chat:
                kind = self._configuration.api.kind
                why = (
                    f"the price of a call is unknown. Write `prices: {{{kind}: {{request: …}}}}`."
                )
                quotes.append(
                    CallQuote(
                        model="",
                        tokens=UNKNOWN,
                        usd=Amount(worst.usd, worst.usd),
                        answer=UNKNOWN,
                        reserved_usd=worst.usd,
                        unknown=why if worst.usd is None else None,
                    )
                )
                continue
            fields = request if isinstance(request, dict) else {}
            model, url = (
                value if isinstance(value := fields.get(name), str) else None
                for name in ("model", "base_url")
            )
            bound = prompt_bound(fields.get("body"))
            # A compatible endpoint may belong to another provider, at other prices.
            price = self._world.prices.find(provider_of(self._target.provider, url), model)
            prompt, answer = UNKNOWN, UNKNOWN
            if bound is not None:
                prompt = Amount(max(1, bound - TOKENS_PER_REQUEST) / BYTES, bound)
            if bound is not None and worst.tokens is not None:
                expected = 0 if case.expected is None else len(json.dumps(case.expected)) / BYTES
                longest = worst.tokens - bound
                answer = Amount(min(longest, max(USUAL_ANSWER, expected)), longest)
            quote = CallQuote.of(model, price, prompt, answer)
            usd = replace(quote.usd, high=worst.usd)
            quotes.append(replace(quote, usd=usd, reserved_usd=worst.usd))
        return quotes

    # -- language models

    def _quote(self, llm: LlmConfig, prompt: Amount, answer: Amount, reserved: float) -> CallQuote:
        """Return the quote of a model's call that reserves ``reserved`` prompt tokens."""
        from tasks.providers import billing_provider  # noqa: PLC0415 - brings clients

        seller, model = billing_provider(llm)
        price = self._world.prices.find(seller, model)
        call = CallQuote.of(model, price, prompt, answer)
        if price is None or answer.high is None:
            return call
        return replace(call, reserved_usd=price.worst_case(round(reserved), round(answer.high)))

    def _judge(self, name: str, metric: JudgeMetric, cells: Amount) -> RoleEstimate:
        """Return the cost of a judge's calls, with judged answers as long as the target allows."""
        from tasks.json_values import as_text  # noqa: PLC0415 - as below
        from tasks.metrics.judge.judge import call_count  # noqa: PLC0415 - brings clients
        from tasks.metrics.judge.prompts import judge_messages  # noqa: PLC0415 - as above

        llm = self._configuration.judge_of(metric)
        assert llm is not None  # noqa: S101 - ``check_judges`` was called
        rubric = self._loaded.rubrics.get(name, metric.rubric or "")
        n_shown = 2 if metric.mode == "pairwise" else 1
        answers = mean_and_most([call.answer for call in self._quotes])
        answers = replace(answers, expected=answers.expected or USUAL_ANSWER)
        shown = answers * Amount(n_shown, n_shown * OTHER_TOKENIZER)
        quotes = []
        for case in self._cases:
            blocks = [("INPUT", as_text(case.input))]
            if case.expected is not None:
                blocks.append(("REFERENCE", as_text(case.expected)))
            messages = judge_messages(metric.mode, rubric=rubric, blocks=blocks)
            bound = prompt_bound([*messages]) or 0
            quotes.append(
                self._quote(
                    llm,
                    Amount(bound / BYTES, bound) + shown,
                    Amount(min(llm.max_tokens, USUAL_ANSWER), llm.max_tokens),
                    bound + BYTES * (shown.expected or 0),
                )
            )
        n = cells * Amount(call_count(metric), call_count(metric))
        return self._role("judge", name, n, quotes, lowered_by="llm.max_tokens")

    def _thoughts(self) -> Iterator[RoleEstimate]:
        """Yield the estimate of RLP's thoughts: a call per generation, a second if unreadable."""
        configuration, rlp = self._configuration, self._configuration.society.rlp
        if configuration.llm is None or not configuration.society.thinks:
            return
        steers = configuration.optimization.algorithm in RACING
        n = self._schedule.n_generations if steers else 0
        bound = _thought_bound(self._loaded)
        answer = Amount(min(rlp.thought_length, USUAL_THOUGHT), rlp.thought_length)
        call = self._quote(configuration.llm, Amount(bound / BYTES, bound), answer, bound)
        yield self._role("thought", call.model, Amount(n, 2 * n), [call], share=rlp.max_share_usd,
                         lowered_by="society.rlp.thought_length")  # fmt: skip

    def _texts(self) -> Iterator[RoleEstimate]:
        """Yield the estimates of written prompts and preferences."""
        configuration, prompts = self._configuration, self._configuration.prompts
        if configuration.llm is None:
            return
        from convergence_core.prompts.editor import N_FAILURES  # noqa: PLC0415 - brings NumPy
        from tasks.prompts.factory import LONGEST_SHOWN  # noqa: PLC0415 - brings clients
        from tasks.rlp.factory import mutable_parameters  # noqa: PLC0415

        parameters = mutable_parameters(configuration)
        n = prompts.n_texts * -(-(self._schedule.n_generations - 1) // prompts.every)
        share, longest = prompts.max_share_usd, prompts.max_length
        if configuration.writes_prompts and prompts.writer == "llm":
            likely = FRAME + N_FAILURES * USUAL_ANSWER * BYTES
            prompt = Amount(likely / BYTES, likely + N_FAILURES * 2 * LONGEST_SHOWN + 2 * longest)
            answer = Amount(min(prompts.max_tokens, USUAL_ANSWER), prompts.max_tokens)
            call = self._quote(configuration.llm, prompt, answer, likely)
            yield self._role("writing", call.model, Amount(n, N_REQUESTS * n), [call], share=share,
                             lowered_by="prompts.max_tokens")  # fmt: skip
        if configuration.society.prefers:
            yield self._preferences(configuration.llm, len(parameters))

    def _preferences(self, llm: LlmConfig, n_texts: int) -> RoleEstimate:
        from tasks.sao.writer import LONGEST_PROMPT  # noqa: PLC0415 - brings NumPy

        sao = self._configuration.society.sao
        n_rounds = min(sao.iterative_rounds, (self._schedule.n_generations - 1) // sao.every)
        judged = sao.n_samples * comb(sao.response_pairs, 2) + sao.audit_items
        n_calls = n_rounds * (2 * judged + sao.n_samples + n_texts)  # each pair in both orders
        n = Amount(n_calls, n_calls)
        longest = BYTES * LONGEST_PROMPT
        prompt = FRAME + longest
        call = self._quote(
            llm,
            Amount(prompt / BYTES + USUAL_ANSWER, prompt + 2 * LONGEST_ANSWER),
            Amount(min(USUAL_ANSWER, longest), longest),
            prompt + BYTES * USUAL_ANSWER,
        )
        role = self._role("sao", call.model, n, [call], share=sao.max_share_usd)
        n_answers = n_rounds * sao.n_samples * sao.response_pairs
        answers = Amount(n_answers, n_answers)
        return replace(
            role,
            calls=role.calls + answers,
            tokens=role.tokens + answers * mean_and_most([quote.tokens for quote in self._quotes]),
            usd=role.usd + answers * mean_and_most([quote.usd for quote in self._quotes]),
        )

    # -- words

    def _notes(self, total: RoleEstimate, roles: Sequence[RoleEstimate]) -> Iterator[str]:
        configuration, limit = self._configuration, self._configuration.budget.max_usd
        execution = configuration.optimization.execution
        if execution.max_retries:
            yield (
                f"Numbers exclude retries: up to {execution.most_attempts} attempts of a call "
                "(max_retries, max_rate_limit_retries)."
            )
        if (judge := judge_note(configuration)) is not None:
            yield f"judge: {judge}."
        if (shortage := self._schedule.final_shortage()) is not None:
            yield f"{shortage}."
        if total.least_usd:
            dearest = max(roles, key=lambda role: role.least_usd or 0.0)
            lower = f"; `{dearest.lowered_by}` lowers it" if dearest.lowered_by else ""
            yield (
                "The smallest budget.max_usd that affords a call of each purpose: "
                f"{_rounded_up(total.least_usd)}, for {dearest.role}{lower}."
            )
        likely, is_measured = total.usd.expected, all(r.basis != OF_REQUESTS for r in roles)
        if limit is not None and is_measured and likely is not None and likely > limit:
            yield (
                f"budget.max_usd={limit:.12g} will probably stop the run early: {dollars(likely)} "
                "expected."
            )
        if limit is not None and total.unknown and not configuration.budget.allow_unknown_prices:
            yield f"budget.max_usd={limit:.12g} refuses calls whose price is unknown."


def _thought_bound(loaded: "Loaded") -> int:
    """Return the maximum tokens of a thought's prompt, which shows ``MOST_ROWS`` trials."""
    from convergence_core.rlp.quantiles import Quantiles  # noqa: PLC0415 - as below
    from tasks.rlp.factory import prompts_of  # noqa: PLC0415 - brings clients
    from tasks.rlp.prompts import MOST_ROWS, ThoughtRequest, TrialRow  # noqa: PLC0415 - as above

    space, rng = loaded.space, np.random.default_rng(loaded.configuration.optimization.seed)
    n_predicted = loaded.configuration.society.rlp.n_predicted
    sampled = [space.candidate(space.sample(rng)) for _ in range(MOST_ROWS + n_predicted)]
    trials = [
        TrialRow(candidate_id=f"{i}-{candidate.candidate_id}", params=candidate.params, n=100,
                 mean=0.12345, se=0.00123, forecast=Quantiles(0.123, 0.234, 0.345))
        for i, candidate in enumerate(sampled[:MOST_ROWS])
    ]  # fmt: skip
    request = ThoughtRequest(
        generation=1,
        kind="notes",
        space=space,
        around={},
        trials=trials,
        reserved={candidate.candidate_id: candidate.params for candidate in sampled[MOST_ROWS:]},
        notes="word " * 120,
    )
    bound = prompt_bound({"messages": [*prompts_of(loaded.configuration).messages(request)]})
    assert bound is not None  # noqa: S101 - strings only
    return bound


def _unaffordable(roles: Sequence[RoleEstimate], limit: float | None) -> str | None:
    """Return a sentence on purposes that `budget.max_usd` cannot pay; ``None`` if it pays all."""
    short = [role for role in roles if limit is not None and (role.least_usd or 0.0) > limit]
    if not short:
        return None
    each = "; ".join(
        f"{role.role} from {_rounded_up(role.least_usd or 0)}"
        + (f" (lower `{role.lowered_by}`)" if role.lowered_by else "")
        for role in short
    )
    return f"budget.max_usd={limit:.12g} affords no call of {each}."


def _rounded_up(usd: float) -> str:
    """Return dollars rounded up to two digits."""
    unit = 10.0 ** (math.floor(math.log10(usd)) - 1) if usd > 0 else 1.0
    return dollars(math.ceil(usd / unit - 1e-9) * unit)
