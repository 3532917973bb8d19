"""``/v1/decisions`` and ``/v1/systemone``: probabilities of given answers to questions.

Questions are predicates, choices and scores. The prompt is the input and a question's
instructions; an option's probability is that of its words after the prompt, among the options.
A letter A to J whose description is one word of the vocabulary stands for that word, so that the
letters can be permuted.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from convergence.mock.brain import Brain
from convergence.mock.model import WORD_TO_ID
from convergence.mock.protocol import ApiError, Payload, Tokens, messages, text
from convergence.mock.world import LETTERS

MOST_QUESTIONS = 400
MOST_OPTIONS = 255


def decisions(brain: Brain, body: Mapping[str, Any], digest: str) -> Payload:  # noqa: ARG001 - one signature for all endpoints
    """Answer every question.

    Raises:
        ApiError: the request is wrong, or a word is unknown.
        UntrainedError: the tiny model must be trained first.
    """
    if brain.has("no_decisions") or brain.has("only_systemone"):
        raise ApiError("This model does not support decisions.", status=501)
    return _decided(brain, body)


def systemone(brain: Brain, body: Mapping[str, Any], digest: str) -> Payload:  # noqa: ARG001 - as above
    """Answer every choice in System One's form: names to questions, options to what they mean.

    Raises:
        ApiError: the request is wrong, or a word is unknown.
        UntrainedError: the tiny model must be trained first.
    """
    if brain.has("no_decisions"):
        raise ApiError("This model does not support decisions.", status=501)
    questions = body.get("questions")
    if not isinstance(questions, Mapping) or not all(
        isinstance(q, Mapping)
        and q.get("type") == "choice"
        and isinstance(q.get("criteria"), Mapping)
        for q in questions.values()
    ):
        raise ApiError(
            "`questions` must map names to questions of type choice with `criteria`; the other "
            "types are not known here.",
            param="questions",
        )
    listed = [
        {
            "type": "choice",
            "name": name,
            "instructions": question.get("instructions"),
            "choices": [
                {"value": option, "description": meaning}
                for option, meaning in question["criteria"].items()
            ],
        }
        for name, question in questions.items()
    ]
    payload = _decided(brain, {**body, "input": body.get("state"), "questions": listed})
    assert payload.body is not None  # noqa: S101 - it is not streamed
    answers = {
        answer["name"]: {
            "type": "choice",
            "choice": answer["choice"],
            "confidence": answer["confidence"],
            "probabilities": {one["value"]: one["probability"] for one in answer["probabilities"]},
        }
        for answer in payload.body["answers"]
    }
    told = {"model": payload.body["model"], "answers": answers, "usage": payload.body["usage"]}
    return Payload(body=told, model=payload.model, tokens=payload.tokens)


def _decided(brain: Brain, body: Mapping[str, Any]) -> Payload:
    model = text(body, "model")
    told = body.get("input")
    if not isinstance(told, str):
        told = " ".join(m.text for m in messages(body, "input"))
    questions = body.get("questions")
    if not isinstance(questions, list) or not 1 <= len(questions) <= MOST_QUESTIONS:
        raise ApiError(
            f"`questions` must hold 1 to {MOST_QUESTIONS} questions.", param="questions"
        )
    read = [_Question(brain, told, question, i) for i, question in enumerate(questions)]
    answers = [question.answer() for question in read]
    tokens = Tokens(
        prompt=len(told.split()) + sum(question.n_words for question in read),
        completion=len(answers),
    )
    return Payload(
        body={
            "id": None,
            "object": "decision",
            "model": model,
            "answers": answers,
            "usage": {
                "input_tokens": tokens.prompt,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": tokens.completion,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": tokens.prompt + tokens.completion,
            },
        },
        model=model,
        tokens=tokens,
    )


class _Question:
    def __init__(self, brain: Brain, told: str, question: Any, i: int) -> None:
        if not isinstance(question, Mapping):
            raise ApiError(f"`questions[{i}]` must be an object.", param="questions")
        self._brain = brain
        self._question = question
        self._at = f"questions[{i}]"
        instructions = question.get("instructions")
        if not isinstance(instructions, str):
            parts = instructions if isinstance(instructions, list) else []
            instructions = " ".join(
                str(p.get("text", "")) for p in parts if isinstance(p, Mapping)
            )
        self._prompt = brain.ids(f"{told} {instructions}")
        if not self._prompt:
            raise ApiError(f"`{self._at}` must ask something about an input.", param="questions")
        self.n_words = len(instructions.split())

    def answer(self) -> dict[str, Any]:
        """Return the answer in the shape of the question's type."""
        kind = self._question.get("type")
        name = {"name": self._question.get("name"), "type": kind}
        match kind:
            case "predicate":
                yes, _ = self._probabilities(["Yes", "No"])
                return {**name, "probability": yes}
            case "choice":
                return {**name, **self._choice()}
            case "score":
                return {**name, **self._score()}
            case _:
                raise ApiError(
                    f"`{self._at}.type` must be predicate, choice or score, but got {kind!r}.",
                    param="questions",
                )

    def _choice(self) -> dict[str, Any]:
        choices = self._options("choices", "value")
        values = [choice["value"] for choice in choices]
        if len({(type(value), value) for value in values}) != len(values):
            raise ApiError(f"`{self._at}.choices` must be unique.", param="questions")
        found = self._probabilities([_word(c, c["value"]) for c in choices])
        best = max(range(len(found)), key=found.__getitem__)
        return {
            "choice": values[best],
            "confidence": found[best],
            "probabilities": [
                {"value": value, "probability": p} for value, p in zip(values, found, strict=True)
            ],
        }

    def _score(self) -> dict[str, Any]:
        levels = self._options("levels", "label")
        labels = [level["label"] for level in levels]
        found = self._probabilities([_word(level, level["label"]) for level in levels])
        return {
            "score": sum(i * p for i, p in enumerate(found)),
            "confidence": max(found),
            "probabilities": [
                {"label": label, "value": i, "probability": p}
                for i, (label, p) in enumerate(zip(labels, found, strict=True))
            ],
        }

    def _options(self, name: str, key: str) -> list[Mapping[str, Any]]:
        listed = self._question.get(name)
        rule = f"`{self._at}.{name}` must hold 2 to {MOST_OPTIONS} objects with a `{key}`."
        if not isinstance(listed, list) or not 2 <= len(listed) <= MOST_OPTIONS:
            raise ApiError(rule, param="questions")
        if not all(isinstance(o, Mapping) and isinstance(o.get(key), (str, bool)) for o in listed):
            raise ApiError(rule, param="questions")
        return listed

    def _probabilities(self, options: Sequence[str]) -> list[float]:
        """Return the probabilities of texts after the prompt, among each other."""
        logs = []
        for option in options:
            ids = self._brain.ids(option)
            if not ids:
                raise ApiError(f"`{self._at}` has an empty option.", param="questions")
            logs.append([*ids])
        rows = self._brain.expected(self._prompt, 1.0)
        first = rows[-1]
        weights = []
        for ids in logs:
            value = math.log(first[ids[0]])
            if len(ids) > 1:
                after = self._brain.expected([*self._prompt, *ids[:-1]], 1.0)[len(self._prompt) :]
                value += sum(math.log(row[i]) for row, i in zip(after, ids[1:], strict=True))
            weights.append(math.exp(value))
        total = sum(weights)
        shares = [weight / total for weight in weights]
        return [round(p, 2) for p in shares] if self._brain.has("rounded") else shares


def _word(option: Mapping[str, Any], value: str | bool) -> str:
    """Return the words that an option stands for."""
    if isinstance(value, bool):
        return "Yes" if value else "No"
    described = option.get("description")
    if value in LETTERS and isinstance(described, str) and described in WORD_TO_ID:
        return described
    return value
