"""Quotes of written prompts and of preferences.

Cases and answers in a request are expected to be as long as the test cases; the most counts every text at
its limit.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import comb
from typing import TYPE_CHECKING, Final

from convergence.cost_estimate.call_quotes import (
    BYTES_EXPECTED,
    USUAL_ANSWER,
    CallHistory,
    RoleEstimate,
    TargetQuotes,
    TextModel,
)
from convergence.cost_estimate.ranges import Range
from convergence.cost_estimate.run_forecast import Forecast
from convergence_core.config.prompts import N_REQUESTS

if TYPE_CHECKING:
    from tasks.inputs.environment import Environment
    from tasks.inputs.loader import Loaded

FRAME: Final = 2_500
"""Bytes of a request's fixed wording."""
N_JUDGE_PROBES: Final = 21
"""Calls of the probe of a server's forms of judging, at most once in a run."""
FORMS: Final = 2
"""Calls of one order of a pair, in the most expensive form of judging."""
LONGEST_ANSWER: Final = 4_000
"""Longest judged answer, in characters."""


def writing_roles(
    loaded: "Loaded",
    world: "Environment",
    plan: Forecast,
    target: TargetQuotes,
    past: Mapping[str, CallHistory],
) -> Iterator[RoleEstimate]:
    """Yield the estimates of written prompts, their embeddings and preferences."""
    from convergence_core.prompts.editor import N_FAILURES  # noqa: PLC0415 - brings NumPy
    from tasks.prompts.factory import (  # noqa: PLC0415 - brings clients
        LONGEST_SHOWN,
        mutable_parameters,
    )

    configuration = loaded.configuration
    prompts, parameters = configuration.prompts, mutable_parameters(loaded.configuration)
    n_turns = -(-(plan.n_generations - 1) // prompts.every)
    n_texts = prompts.n_texts * n_turns
    if configuration.llm is None:
        return
    if configuration.writes_prompts and prompts.writer == "llm":
        model = TextModel.of(configuration.llm, None, world)
        shown = N_FAILURES * 2 * LONGEST_SHOWN + 2 * prompts.max_length
        n_likely = FRAME + N_FAILURES * USUAL_ANSWER * BYTES_EXPECTED
        quote = model.quote(n_likely, prompts.max_tokens, usual=USUAL_ANSWER)
        most = model.quote(n_likely + shown, prompts.max_tokens, usual=USUAL_ANSWER)
        yield model.role(
            "writing",
            Range(low=0, expected=n_texts, high=N_REQUESTS * n_texts),
            [replace(most, prompt=replace(quote.prompt, high=most.prompt.high),
                     reserved_usd=quote.reserved_usd)],
            past.get("writing"),
            share=prompts.max_share_usd,
            lowered_by="prompts.max_tokens",
        )  # fmt: skip
    if configuration.embeds_prompts:
        model = TextModel.of(configuration.llm, prompts.embedding_model, world)
        n_given = sum(loaded.space.parameters[name].n_values or 0 for name in parameters)
        yield model.role(
            "writing",
            Range(low=n_given, expected=n_given + n_texts, high=n_given + n_texts),
            [model.quote(prompts.max_length, 0, usual=0)],
            None,
            share=prompts.max_share_usd,
            lowered_by="prompts.max_length",
        )
    if configuration.society.prefers:
        yield _preferences(loaded, world, plan, target, past.get("sao"), n_texts=len(parameters))


def _preferences(
    loaded: "Loaded",
    world: "Environment",
    plan: Forecast,
    target: TargetQuotes,
    past: CallHistory | None,
    *,
    n_texts: int,
) -> RoleEstimate:
    from tasks.sao.writer import LONGEST_PROMPT  # noqa: PLC0415 - brings NumPy

    configuration = loaded.configuration
    sao, llm = configuration.society.sao, configuration.llm
    assert llm is not None  # noqa: S101 - checked before
    model = TextModel.of(llm, None, world)
    n_rounds = min(sao.iterative_rounds, (plan.n_generations - 1) // sao.every)
    n_answers = sao.n_samples * sao.response_pairs
    n_judged = sao.n_samples * comb(sao.response_pairs, 2) + sao.audit_items
    once = n_judged * 2 + sao.n_samples + n_texts
    most = n_judged * 2 * FORMS + sao.n_samples + n_texts
    probes = N_JUDGE_PROBES if n_rounds else 0
    calls = Range(low=0, expected=n_rounds * once, high=n_rounds * most + probes)
    quote = model.quote(
        FRAME + 4 * LONGEST_PROMPT,
        4 * LONGEST_PROMPT,
        usual=USUAL_ANSWER,
        more=2 * LONGEST_ANSWER,
    )
    answers = Range(low=0, expected=n_rounds * n_answers, high=n_rounds * n_answers)
    role = model.role("sao", calls, [quote], past, share=sao.max_share_usd)
    return replace(
        role,
        calls=calls + answers,
        tokens=role.tokens + answers * target.over(lambda quote: quote.tokens(past)),
        usd=role.usd + answers * target.over(lambda quote: quote.usd(past)),
    )
