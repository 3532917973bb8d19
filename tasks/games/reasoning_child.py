"""Process that makes items of reasoning-gym and scores answers with its verifiers.

``tasks.games.reasoning_tasks`` starts this program. It reads one JSON request per line and writes
one JSON reply per line. Some verifiers evaluate an answer as Python (``eval``, SymPy's
``parse_expr``), others never return. So only literals and plain formulas of an answer are
evaluated. While an answer is scored, access to files, processes and the network is refused. The
parent kills this process after a time limit.
"""

import ast
import importlib
import json
import os
import re
import resource
import sys
from typing import Any

MOST_MEMORY = 4 << 30
"""Maximum address space of this process, in bytes."""
_TOKEN = re.compile(r"\s*(?:\d{1,15}(?:\.\d{0,15})?|\.\d{1,15}|([A-Za-z]\w{0,15})|\*\*|[-+*/(),])")
_NAMES = frozenset(
    {"C", "E", "I", "Abs", "acos", "asin", "atan", "cos", "cosh", "cot", "csc", "exp", "log", "ln"}
    | {"pi", "sec", "sin", "sinh", "sqrt", "tan", "tanh"}
)
_TOWER = re.compile(r"\*\*[^-+/,]*\*\*|\*\*[\s(]*[-+]?\s*\d{3,}")
NOT_EVALUATED = "the answer is neither a literal nor a plain formula, so it was not evaluated"
_EVALUATE: Any = eval  # for the library's own strings only
_REFUSED = ("os.", "subprocess.", "socket.", "shutil.", "ctypes.", "signal.", "pty.", "urllib.")


class UnsafeAnswerError(ValueError):
    """An answer would run as code."""


class EvaluationGuard:
    """Filter of evaluation during scoring: the item's own strings, literals and plain formulas."""

    def __init__(self) -> None:
        self.is_on = False
        self._allowed: set[str] = set()
        self.refused = ""

    def open(self, entry: dict[str, Any]) -> None:
        """Start the guard with the strings of an item, which come from the library."""
        self._allowed, self.refused = set(_texts(entry)), ""
        self.is_on = True

    def literal(self, text: Any, *names: Any) -> Any:
        """Replace ``eval``: read a literal, refuse anything else of an answer."""
        if not self.is_on or not isinstance(text, str) or text in self._allowed:
            caller = sys._getframe(1)
            return _EVALUATE(text, *(names or (caller.f_globals, caller.f_locals)))
        try:
            return ast.literal_eval(text.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            self.refused = NOT_EVALUATED
            raise UnsafeAnswerError("no literal") from None

    def formula(self, parse: Any) -> Any:
        """Replace ``parse_expr``: parse plain formulas, refuse anything else of an answer."""

        def guarded(text: Any, *more: Any, **named: Any) -> Any:
            is_foreign = self.is_on and isinstance(text, str) and text not in self._allowed
            if is_foreign and not is_plain_formula(text):
                self.refused = NOT_EVALUATED
                raise UnsafeAnswerError("no plain formula")
            return parse(text, *more, **named)

        return guarded

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Refuse access to the machine while an answer is scored (an audit hook of Python)."""
        if not self.is_on:
            return
        writes = event == "open" and bool(set(str(arguments[1] or "r")) & set("wax+"))
        foreign = event == "open" and not str(arguments[0]).startswith(
            (sys.prefix, sys.base_prefix)
        )
        if writes or foreign or event.startswith(_REFUSED):
            if event in {"os.listdir", "os.scandir"}:  # calls of the import system
                return
            self.refused = f"the answer reached for {event}"
            raise PermissionError(event)


def is_plain_formula(text: str) -> bool:
    """Return whether a string has only numbers, known functions, single letters and operators."""
    if len(text) > 2_000 or text.count("(") > 50 or _TOWER.search(text):
        return False
    end = 0
    while end < len(text.rstrip()):
        token = _TOKEN.match(text, end)
        if token is None:
            return False
        name = token.group(1)
        if name is not None and len(name) > 1 and name not in _NAMES:
            return False
        end = token.end()
    return True


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for part in value.values() for text in _texts(part)]
    if isinstance(value, list | tuple):
        return [text for part in value for text in _texts(part)]
    return []


def main() -> None:
    """Answer requests until standard input ends."""
    replies = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # generators print
    library: Any = importlib.import_module("reasoning_gym")
    sympy: Any = importlib.import_module("sympy")
    names = sorted(importlib.import_module("reasoning_gym.factory").DATASETS)

    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    guard = EvaluationGuard()
    parse = guard.formula(sympy.parse_expr)
    sympy.parse_expr = parse
    for name, module in list(sys.modules.items()):
        if name.startswith("reasoning_gym."):
            module.__dict__["eval"] = guard.literal
            if getattr(module.__dict__.get("parse_expr"), "__module__", "").startswith("sympy"):
                module.__dict__["parse_expr"] = parse
    sys.addaudithook(guard.hook)
    kept: dict[tuple[str, int], tuple[Any, dict[str, Any]]] = {}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply = _reply(request, library, names, guard, kept)
        except Exception as error:  # noqa: BLE001 - the reply reports whatever the library raises
            guard.is_on = False
            message = f"{type(error).__name__}: {error}" if request["what"] == "item" else ""
            raised = guard.refused or message or type(error).__name__  # without the answer's text
            reply = {"raised": raised, "refused": bool(guard.refused)}
        guard.is_on = False
        replies.write(json.dumps(reply, default=str) + "\n")
        replies.flush()


def _reply(
    request: dict[str, Any], library: Any, names: list[str], guard: EvaluationGuard, kept: Any
) -> Any:
    guard.refused = ""
    if request["what"] == "generators":
        return {"generators": names}
    key = (request["generator"], request["seed"])
    if key not in kept:
        if len(kept) > 8:
            kept.clear()
        made = library.create_dataset(key[0], seed=key[1], size=1)
        kept[key] = (made, made[0])
    dataset, entry = kept[key]
    if request["what"] == "item":
        return {name: entry[name] for name in ("question", "answer", "metadata")}
    guard.open(entry)
    score = float(dataset.score_answer(request["answer"], entry))
    return {"score": score, "reason": guard.refused}


if __name__ == "__main__":
    main()
