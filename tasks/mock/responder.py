"""Answers to any prompt: a stand-in whose quality depends on the parameters, so that tuning works.

It understands nothing. It can do sums, pick one of the options that a prompt lists, say yes or no,
repeat, fill JSON schemas and quote the sentences of its prompt. Whether it does so well is decided by

    ability    = 1 + 1.5 (2 h - 1) + 2 g + .3 e - 2 (T - .3)^2
    good answer  if  ability > difficulty + .7 T noise

    h           hash of the model's name, even in (0, 1)
    g           share of four instructive words that the system prompt has: ``exactly``, ``only``,
                ``format``, ``example`` and their like; 1 for four or more
    e           0 to 3 for ``reasoning_effort`` none, low, medium, high
    T           temperature
    difficulty  of the user's text, standard logistic by its hash
    noise       standard logistic by a hash of the whole request and the number of the choice

So at temperature 0 the share of good answers over many cases is the logistic function of the
ability. The answer is a function of messages, model, temperature, limit, seed and effort.
Nothing here says anything about a real model.
"""

import json
import re

from tasks.mock import option_choice, schemas, verdicts
from tasks.mock.hash_uniform import logistic, uniform
from tasks.mock.prompt_text import content_words, question_of, sentences, words
from tasks.mock.requests import EFFORT_TO_TOKENS, ModelRequest, Written
from tasks.mock.word_pieces import cut

BEST_TEMPERATURE = 0.3
_TELLING = (
    "always carefully check concise example examples exactly format json must never nothing only "
    "precise precisely rules step steps verify"
)
INSTRUCTIVE = frozenset(_TELLING.split())
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
_YES_NO = re.compile(
    r"(?:is|are|was|were|do|does|did|can|could|should|has|have|had|will|would)\b", re.IGNORECASE
)
_SAME = {
    "plus": "+",
    "minus": "-",
    "times": "*",
    "\u00d7": "*",
    "divided by": "/",
    "\u00f7": "/",
}


def ability(ask: ModelRequest) -> float:
    """Return how able the request makes the stand-in, in logits."""
    h = uniform("model", ask.model)
    told = set(words(ask.system)) & INSTRUCTIVE
    g = min(1.0, len(told) / ENOUGH_INSTRUCTION)
    efforts = list(EFFORT_TO_TOKENS)
    e = 1 + efforts.index(ask.effort) if ask.effort in efforts else 0
    chill = (ask.temperature - BEST_TEMPERATURE) ** 2
    return 1.0 + 1.5 * (2.0 * h - 1.0) + 2.0 * g + 0.3 * e - 2.0 * chill


def is_good(ask: ModelRequest, index: int) -> bool:
    """Whether the answer with this number is a good one."""
    difficulty = logistic("difficulty", ask.user)
    noise = logistic("noise", ask.identity, index)
    return ability(ask) > difficulty + 0.7 * ask.temperature * noise


def respond(ask: ModelRequest, index: int = 0) -> Written:
    """Write the answer with this number."""
    wanted = EFFORT_TO_TOKENS.get(ask.effort, 0)
    n_reasoning = wanted if ask.limit is None else min(wanted, ask.limit)
    rest = None if ask.limit is None else ask.limit - n_reasoning
    part = cut(_until(_whole(ask, index), ask.stop), rest)
    return Written(
        text=part.text,
        n_tokens=part.n_tokens,
        n_reasoning=n_reasoning,
        complete=part.complete,
    )


def _until(text: str, stop: tuple[str, ...]) -> str:
    ends = [text.index(end) for end in stop if end in text]
    return text[: min(ends)] if ends else text


def _whole(ask: ModelRequest, index: int) -> str:
    schema = _wanted_schema(ask)
    if schema is None:
        return _in_words(ask, is_good(ask, index), index)
    if verdicts.is_verdict(schema):
        return json.dumps(verdicts.verdict(schema, ask.user), ensure_ascii=False)
    good = is_good(ask, index)
    source = schemas.ValueSource(
        text=ask.user, answer=_in_words(ask, good, index), good=good, draw=str(index)
    )
    return json.dumps(schemas.fill(schema, source), ensure_ascii=False)


def _wanted_schema(ask: ModelRequest) -> dict[str, object] | None:
    """Return the schema of the answer; ``None`` where text is asked for."""
    if ask.tool is not None:
        return dict(ask.tool.schema)
    if ask.form == "schema":
        return dict(ask.schema)
    shown = schemas.shown_in(ask.text)
    if ask.form == "json":
        return shown or {"type": "object", "properties": {"answer": {"type": "string"}}}
    # A judge may ask for its JSON in words alone.
    return shown if shown is not None and verdicts.is_verdict(shown) else None


def _in_words(ask: ModelRequest, good: bool, index: int) -> str:
    if (letter := verdicts.letter(ask.user)) is not None:
        return letter
    opening = _OPENING.search(ask.system)
    text = _said(ask, good, index)
    return text if opening is None else f"{opening[1]} {text}"


def _said(ask: ModelRequest, good: bool, index: int) -> str:
    user = ask.user
    asked = question_of(user)
    if (found := _SUM.search(user)) is not None:
        text = _sum(found[0], 0 if good else 1 + int(9 * uniform("slip", user)))
        if text is not None:
            return text
    if (repeat := _REPEAT.search(user)) is not None:
        said = (repeat["said"] or repeat["rest"]).strip()
        return said if good else " ".join(said.split()[:-1]) or said.upper()
    options = option_choice.options(ask.system) or option_choice.options(user)
    if options:
        return option_choice.choose(options, user, good=good, chance=(ask.identity, index))
    if asked.endswith("?") and _YES_NO.match(asked):
        return "Yes" if _is_true(user, asked) == good else "No"
    return _quote(user, asked, good)


def _is_true(user: str, asked: str) -> bool:
    """Whether a yes-no question is affirmed: by the text before it, else by its hash."""
    told = set(content_words(user.replace(asked, "")))
    if told:
        return set(content_words(_YES_NO.sub("", asked, count=1))) <= told
    return uniform("truth", asked) < 0.5


def _sum(text: str, slip: int) -> str | None:
    """Return the value of a sum, ``slip`` too much; ``None``: division by zero."""
    terms: list[float] = []
    for operator, number in _TERM.findall(text):
        value = float(number)
        sign = _SAME.get(operator.casefold(), operator)
        if sign == "*":
            terms[-1] *= value
        elif sign == "/" and value == 0.0:
            return None
        elif sign == "/":
            terms[-1] /= value
        else:
            terms.append(-value if sign == "-" else value)
    return f"{sum(terms) + slip:.12g}"


def _quote(user: str, asked: str, good: bool) -> str:
    """Answer with sentences of the prompt: those that share most words with the question."""
    told = [sentence for sentence in sentences(user) if sentence != asked]
    wanted = set(content_words(asked))
    topic = ", ".join(dict.fromkeys(content_words(asked or user))) or "this"
    if not good:
        return f"I am not sure about {topic.split(', ')[-1]}."
    if not told:
        return f"This is about {topic}. {asked}"
    ranked = sorted(told, key=lambda s: -len(wanted & set(content_words(s))))
    return " ".join(ranked[:2])
