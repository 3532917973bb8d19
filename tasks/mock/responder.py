"""Responder to any prompt, whose quality depends on the parameters.

It does not understand prompts. It can do sums, choose among the options in a prompt, answer yes or
no, repeat, fill JSON schemas and quote sentences of its prompt. The quality of an answer follows
from

    ability    = 1 + 1.5 (2 h - 1) + 2 g + .3 e - 2 (T - .3)^2
    good answer  if  ability > difficulty + .7 T noise

    h           hash of the model's name, uniform in (0, 1)
    g           share of four instructive words that the system prompt has: ``exactly``, ``only``,
                ``format``, ``example`` and their like; 1 for four or more
    e           0 to 3 for ``reasoning_effort`` none, low, medium, high
    T           temperature
    difficulty  of the user's text, standard logistic by its hash
    noise       standard logistic by a hash of the whole request and the number of the choice

So at temperature 0 the share of good answers over many cases is the logistic function of the
ability. The answer is a function of messages, model, temperature, limit, seed and effort. None of
this describes real models.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, cast, get_args

import numpy as np

from convergence_core.config.prompts import OperatorName
from convergence_core.prompts.operators import ROLE, Shown
from convergence_core.prompts.twins import written_by_rules
from tasks.mock import forecasts, schemas, tool_use, verdicts
from tasks.mock.prompt_text import (
    PER_MESSAGE,
    PER_REQUEST,
    content_words,
    cut,
    logistic,
    pieces,
    question_of,
    sentences,
    uniform,
    words,
)
from tasks.mock.protocol import EFFORT_TO_TOKENS, ModelRequest, TokenUsage, Written

BEST_TEMPERATURE = 0.3
_INSTRUCTIVE = (
    "always carefully check concise example examples exactly format json must never nothing only "
    "precise precisely rules step steps verify"
)
INSTRUCTIVE = frozenset(_INSTRUCTIVE.split())
ENOUGH_INSTRUCTION = 4

_SUM = re.compile(
    r"-?\d+(?:\.\d+)?"
    r"(?:(?:\s*[+*/\u00d7\u00f7]\s*|\s+-\s+|\s+(?:plus|minus|times|divided by)\s+)-?\d+(?:\.\d+)?)+",
    re.IGNORECASE,
)
_TERM = re.compile(
    r"\s*(plus|minus|times|divided by|[-+*/\u00d7\u00f7])?\s*(-?\d+(?:\.\d+)?)", re.IGNORECASE
)
_REPEAT = re.compile(
    r"\b(?:repeat|echo|say)\b(?: after me| exactly| the words?)?\s*:?\s*[\"“'](?P<said>.+?)[\"”']"
    r"|\b(?:repeat|echo|say)\b(?: after me| exactly)?\s*:\s*(?P<rest>.+)",
    re.IGNORECASE | re.DOTALL,
)
_OPENING = re.compile(r"\breply with\b[^.]*\bafter \"([^\"\n]{1,40})\"", re.IGNORECASE)
_PERSONA = re.compile(r"^The persona: ([^\n]+)$", re.MULTILINE)
_YES_NO = re.compile(
    r"(?:is|are|was|were|do|does|did|can|could|should|has|have|had|will|would)\b", re.IGNORECASE
)
_SIGNS = {"plus": "+", "minus": "-", "times": "*", "\u00d7": "*", "divided by": "/", "\u00f7": "/"}

_OPERATOR: Final = re.compile(r"\A<operator>([a-z-]+)</operator>")
_PROMPT: Final = re.compile(r"<prompt>(.*?)</prompt>", re.DOTALL)
_N_PROMPTS: Final = re.compile(r"^Write (\d+) prompts ", re.MULTILINE)
_LABELS: Final = re.compile(r"<labels>(.*?)</labels>")
_FAILURE: Final = re.compile(r"<failure>(.*?)</failure>", re.DOTALL)
_FIELD: Final = re.compile(r"<(input|answer|expected|reason)>(.*?)</\1>", re.DOTALL)


def ability(request: ModelRequest) -> float:
    """Return the mock's ability for a request, in logits."""
    h = uniform("model", request.model)
    g = min(1.0, len(set(words(request.system)) & INSTRUCTIVE) / ENOUGH_INSTRUCTION)
    efforts = ["", *EFFORT_TO_TOKENS]
    e = efforts.index(request.effort) if request.effort in efforts else 0
    chill = (request.temperature - BEST_TEMPERATURE) ** 2
    return 1.0 + 1.5 * (2.0 * h - 1.0) + 2.0 * g + 0.3 * e - 2.0 * chill


def is_good(request: ModelRequest, index: int) -> bool:
    """Return whether the answer with this index is good."""
    difficulty = logistic("difficulty", request.user)
    noise = logistic("noise", request.identity, index)
    return ability(request) > difficulty + 0.7 * request.temperature * noise


def respond(request: ModelRequest, index: int = 0) -> Written:
    """Write the answer with this index."""
    limit, n_reasoning = request.limit, EFFORT_TO_TOKENS.get(request.effort, 0)
    if limit is not None:
        n_reasoning = min(n_reasoning, limit)
    text = tool_use.answer(request)
    text = _whole(request, index) if text is None else text
    text = text[: min((text.index(end) for end in request.stop if end in text), default=None)]
    written = cut(text, None if limit is None else limit - n_reasoning)
    return replace(written, n_reasoning=n_reasoning)


def with_tool(request: ModelRequest, index: int = 0) -> ModelRequest:
    """Return a request with the offered tool that the answer with this index calls, if any."""
    if not request.offered or request.tool is not None:
        return request
    wants_tool = tool_use.asks(request)
    tool = tool_use.choose(request, good=is_good(wants_tool, index))
    return request if tool is None else replace(request, tool=tool)


def _whole(request: ModelRequest, index: int) -> str:
    written = (
        forecasts.thought(request.user)
        or forecasts.notes(request.system)
        or _edit(request.system, request.user)
    )
    if written is not None:
        return written
    schema = _wanted_schema(request)
    if schema is not None and verdicts.is_verdict(schema):
        return json.dumps(verdicts.verdict(schema, request.user), ensure_ascii=False)
    good = is_good(request, index)
    answer = _in_words(request, good, index)
    if schema is None:
        return answer
    source = schemas.ValueSource(text=request.user, answer=answer, good=good, draw=str(index))
    return json.dumps(schemas.fill(schema, source), ensure_ascii=False)


def _wanted_schema(request: ModelRequest) -> dict[str, object] | None:
    """Return the schema of the answer; ``None`` for text."""
    if request.tool is not None:
        return dict(request.tool.schema)
    if request.form == "schema":
        return dict(request.schema)
    shown = schemas.shown_in(request.text)
    if request.form == "json":
        return shown or {"type": "object", "properties": {"answer": {"type": "string"}}}
    # A judge's prompt may request JSON in words only.
    return shown if shown is not None and verdicts.is_verdict(shown) else None


def _in_words(request: ModelRequest, good: bool, index: int) -> str:
    if (letter := verdicts.letter(request.user)) is not None:
        return letter
    opening = _OPENING.search(request.system)
    persona = _PERSONA.search(request.user)
    if persona is not None:
        text = f"I am in this place: {persona[1].strip().rstrip('.').lower()}. What do you say to that?"
    else:
        text = _answer(request, good, index)
    return text if opening is None else f"{opening[1]} {text}"


def _answer(request: ModelRequest, good: bool, index: int) -> str:
    user = request.user
    question = question_of(user)
    if (match := _SUM.search(user)) is not None:
        text = _sum(match[0], 0 if good else 1 + int(9 * uniform("slip", user)))
        if text is not None:
            return text
    if (repeat := _REPEAT.search(user)) is not None:
        wanted = (repeat["said"] or repeat["rest"]).strip()
        return wanted if good else " ".join(wanted.split()[:-1]) or wanted.upper()
    options = verdicts.options(request.system) or verdicts.options(user)
    if options:
        draw = (request.identity, index)
        if request.temperature > 0 and not verdicts.is_known(options, user):
            return verdicts.guess(options, draw=request.identity, index=index)
        return verdicts.choose(options, user, good=good, draw=draw)
    if question.endswith("?") and _YES_NO.match(question):
        return "Yes" if _is_true(user, question) == good else "No"
    return _quote(user, question, good)


def _is_true(user: str, question: str) -> bool:
    """Return whether a yes-no question is affirmed: by the text before it, else by its hash."""
    known = set(content_words(user.replace(question, "")))
    if known:
        return set(content_words(_YES_NO.sub("", question, count=1))) <= known
    return uniform("truth", question) < 0.5


def _sum(text: str, slip: int) -> str | None:
    """Return the value of a sum plus ``slip``; ``None`` for division by zero."""
    terms: list[float] = []
    for operator, number in _TERM.findall(text):
        value = float(number)
        sign = _SIGNS.get(operator.casefold(), operator)
        if sign == "/" and value == 0.0:
            return None
        if sign == "*":
            terms[-1] *= value
        elif sign == "/":
            terms[-1] /= value
        else:
            terms.append(-value if sign == "-" else value)
    return f"{sum(terms) + slip:.12g}"


def _quote(user: str, question: str, good: bool) -> str:
    """Answer with the prompt's sentences that share most words with the question."""
    others = [sentence for sentence in sentences(user) if sentence != question]
    wanted = set(content_words(question))
    topic = ", ".join(dict.fromkeys(content_words(question or user))) or "this"
    if not good:
        return f"I am not sure about {topic.split(', ')[-1]}."
    if not others:
        return f"This is about {topic}. {question}"
    ranked = sorted(others, key=lambda s: -len(wanted & set(content_words(s))))
    return " ".join(ranked[:2])


def _edit(system: str, user: str) -> str | None:
    """Return the edit that a request asks for; ``None`` for other requests."""
    operator = _OPERATOR.match(user)
    if system != ROLE or operator is None or operator[1] not in get_args(OperatorName):
        return None
    shown = []
    for failure in _FAILURE.findall(user):
        fields = dict(_FIELD.findall(failure))
        shown.append(
            Shown(
                input=fields.get("input", ""),
                answer=fields.get("answer"),
                expected=fields.get("expected"),
                reason=fields.get("reason", ""),
            )
        )
    rng = np.random.default_rng(int(2**32 * uniform("edit", user)))
    label_list = _LABELS.search(user)
    labels = label_list[1].split(", ") if label_list is not None else []
    wanted = _N_PROMPTS.search(user)
    prompts = [
        written_by_rules(
            cast("OperatorName", operator[1]), _PROMPT.findall(user), shown, rng, labels
        )
        for _ in range(int(wanted[1]) if wanted else 1)
    ]
    texts = "".join(f"<prompt>{prompt.text}</prompt>" for prompt in prompts)
    return f"<diagnosis>{prompts[0].diagnosis}</diagnosis>{texts}"


class Engine:
    """Writer of answers. Thread-safe.

    Args:
        varies: Whether repeated answers above temperature 0 without a seed differ.
    """

    def __init__(self, *, varies: bool = False) -> None:
        self._varies = varies

    def first(self, request: ModelRequest, n: int, attempt: int) -> int:
        """Return the index of the first of ``n`` answers of this attempt."""
        again = self._varies and request.temperature > 0 and request.seed is None
        return n * (attempt - 1) if again else 0

    def choose(self, request: ModelRequest, n: int, *, attempt: int = 1) -> list[Written]:
        """Write ``n`` answers to this attempt at a request; attempts count from 1."""
        first = self.first(request, n, attempt)
        return [respond(request, first + index) for index in range(n)]

    def tokens(self, request: ModelRequest, choices: Sequence[Written]) -> TokenUsage:
        """Return the billed tokens of an answer."""
        prompt = [piece for m in request.messages for piece in (m.role, *pieces(m.text))]
        reasoning = sum(choice.n_reasoning for choice in choices)
        return TokenUsage(
            # The role is one of the four tokens that a message costs besides its text.
            prompt=len(prompt) + (PER_MESSAGE - 1) * len(request.messages) + PER_REQUEST,
            completion=sum(choice.n_tokens for choice in choices) + reasoning,
            reasoning=reasoning,
        )
