"""Verdicts of judges: one JSON object in a reply, and its value.

The parser is lenient about the wrapping and strict about the content. A reply may fence its
object, surround it with prose or quote other objects first, but only its last object may hold a
verdict, which must be in range. Everything else is an error, never a default verdict.
"""

import copy
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

from convergence_core.judges.report import JudgeMode
from convergence_core.records import Case, Json
from tasks.json_values import MISSING, Missing, parse_path, pick
from tasks.metrics.judge.prompts import verdict_key
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line

Winner: TypeAlias = Literal["A", "B", "tie"]
Verdict: TypeAlias = int | bool | Winner

BEST: Final = 10
"""Highest rating; the lowest is 1."""

_OPENING: Final = re.compile(r"\{(?=\s*[\"}])")
"""Opening brace of a JSON object, unlike braces of formulas and templates."""
_WINNERS: Final[Mapping[str, Winner]] = {
    "a": "A",
    "answer a": "A",
    "b": "B",
    "answer b": "B",
    "tie": "tie",
}
_KEYS: Final = frozenset({"rating", "passed", "winner"})


class UnreadableVerdictError(ValueError):
    """A judge's reply holds no verdict."""


def read_verdict(mode: JudgeMode, text: Json) -> Verdict:
    """Return the verdict of a judge's reply.

    Raises:
        UnreadableVerdictError: there is no JSON object or several, or the verdict is absent, of
            the wrong type or out of range.
    """
    if not isinstance(text, str):
        raise UnreadableVerdictError(f"must be a string, not {type(text).__name__}")
    key = verdict_key(mode)
    parsed = _the_object(text, frozenset({key}))
    if key not in parsed:
        raise UnreadableVerdictError(f"its JSON object has no `{key}`")
    stated = parsed[key]
    verdict = _READERS[mode](stated)
    if verdict is None:
        raise UnreadableVerdictError(f"its `{key}` must be {_RULES[mode]}, not {_shown(stated)}")
    return verdict


def read_reasoning(text: Json) -> str | None:
    """Return a judge's reasoning with its verdict; ``None`` if there is none."""
    try:
        verdict = _the_object(text, _KEYS) if isinstance(text, str) else {}
    except UnreadableVerdictError:
        return None
    reason = verdict.get("reasoning")
    if not isinstance(reason, str) or not reason.strip():
        return None
    match verdict:
        case {"rating": rating}:
            return f"{rating} of {BEST}: {reason.strip()}"
        case {"passed": passed}:
            return f"{'passed' if passed else 'failed'}: {reason.strip()}"
        case {"winner": winner}:
            return f"winner {winner}: {reason.strip()}"
        case _:
            return reason.strip()


def worth(verdict: Verdict, *, candidate: Literal["A", "B"] = "A") -> float:
    """Return a verdict's value for the candidate, in [0, 1].

    Args:
        verdict: Rating, pass or fail, or the winner.
        candidate: Letter of the candidate's answer.
    """
    if isinstance(verdict, bool):
        return 1.0 if verdict else 0.0
    if isinstance(verdict, int):
        return (verdict - 1) / (BEST - 1)
    if verdict == "tie":
        return 0.5
    return 1.0 if verdict == candidate else 0.0


def _the_object(text: str, keys: frozenset[str]) -> dict[str, Any]:
    """Return the last JSON object of a text if only it has one of the keys; keys in lower case."""
    # Not strict, because models write line breaks into their strings.
    decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse, strict=False)
    verdicts: list[dict[str, Any]] = []
    position = 0
    while (opening := _OPENING.search(text, position)) is not None:
        try:
            value, position = decoder.raw_decode(text, opening.start())
        except RecursionError:
            raise UnreadableVerdictError("its JSON object is nested too deeply") from None
        except UnreadableVerdictError:
            raise
        except ValueError as error:
            raise UnreadableVerdictError(
                f"its JSON object is broken or cut off ({error}); if it is cut off, raise "
                "`max_tokens` of the judge"
            ) from None
        verdicts.append(_unique([(key.strip().casefold(), item) for key, item in value.items()]))
    stated = [verdict for verdict in verdicts if keys & verdict.keys()]
    if not verdicts or len(stated) > 1 or (len(verdicts) > 1 and stated != verdicts[-1:]):
        n = len(verdicts) or "none"
        raise UnreadableVerdictError(
            f"must hold one JSON object, or its verdict in the last one alone, but holds {n}"
        )
    return verdicts[-1]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise UnreadableVerdictError("its JSON object has a key twice")
    return members


def _refuse(constant: str) -> None:
    raise UnreadableVerdictError(f"its JSON object holds {constant}, which is no JSON")


def _rating(stated: Any) -> int | None:
    if isinstance(stated, str):
        stated = rating_of(stated)
    is_number = isinstance(stated, (int, float)) and not isinstance(stated, bool)
    if not is_number or not 1 <= stated <= BEST or stated != int(stated):
        return None
    return int(stated)


def _passed(stated: Any) -> bool | None:
    if isinstance(stated, str):
        return {"true": True, "false": False}.get(stated.strip().casefold())
    return stated if isinstance(stated, bool) else None


def _winner(stated: Any) -> Winner | None:
    return _WINNERS.get(stated.strip().casefold()) if isinstance(stated, str) else None


_READERS: Final[Mapping[JudgeMode, Callable[[Any], Verdict | None]]] = {
    "rating": _rating,
    "pass_fail": _passed,
    "pairwise": _winner,
}
_RULES: Final[Mapping[JudgeMode, str]] = {
    "rating": "an integer from 1 to 10",
    "pass_fail": "true or false",
    "pairwise": '"A", "B" or "tie"',
}


def _shown(stated: Any) -> str:
    return one_line(json.dumps(stated, ensure_ascii=False), 80, redacted_text)


_WORDS = {"true": True, "pass": True, "yes": True, "false": False, "fail": False, "no": False}


def label_at(case: Case, path: str) -> "Json | Missing":
    """Return the label of a case; ``MISSING`` if it has none or null.

    Args:
        case: Test case.
        path: Dotted path that begins with ``input`` or ``expected``.
    """
    label = pick({"input": case.input, "expected": case.expected}, path)
    return MISSING if label is None else label


def is_label_path(path: str) -> bool:
    """Return whether a dotted path begins with ``input`` or ``expected``, as labels' do."""
    try:
        return parse_path(path)[0] in ("input", "expected")
    except ValueError:
        return False


def rating_of(label: Json) -> float | None:
    """Return a label, also a numeric string, as a rating from 1 to 10; ``None`` if invalid."""
    if isinstance(label, str):
        try:
            label = float(label)
        except ValueError:
            return None
    if isinstance(label, bool) or not isinstance(label, (int, float)):
        return None
    return float(label) if 1 <= label <= BEST else None


def passed_of(label: Json) -> bool | None:
    """Return a label (boolean, 1 or 0, or a word) as pass or fail; ``None`` if invalid."""
    if isinstance(label, str):
        label = label.strip().casefold()
        return _WORDS[label] if label in _WORDS else {"1": True, "0": False}.get(label)
    if isinstance(label, (bool, int, float)) and label in (0, 1):
        return bool(label)
    return None


def is_label(mode: JudgeMode, label: Json) -> bool:
    """Return whether a label has the mode's form; pairs have no labels."""
    if mode == "rating":
        return rating_of(label) is not None
    return mode == "pass_fail" and passed_of(label) is not None


def hidden(case: Case, path: str | None) -> tuple[Json, Json]:
    """Return the input and expected value of a case without its label.

    A judge that reads the label would agree with it for the wrong reason.
    """
    if path is None or isinstance(label_at(case, path), Missing):
        return case.input, case.expected
    root: dict[str, Json] = {"input": case.input, "expected": case.expected}
    root = copy.deepcopy(root)
    *way, last = parse_path(path)
    node: Json = root
    for part in way:
        node = node[str(part)] if isinstance(node, dict) else node[int(part)]  # type: ignore[index]  # ``label_at`` followed the same path
    if isinstance(node, list):
        node[int(last)] = None  # the neighbours keep their indices
    elif isinstance(node, dict) and node is root:
        node[str(last)] = None
    elif isinstance(node, dict):
        del node[str(last)]
    return root["input"], root["expected"]
