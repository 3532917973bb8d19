"""Proposal of a game by a model: what is asked, and what is read of the reply.

A proposal is text. It is parsed, never imported or run: ``read_proposal`` looks at its syntax tree alone, and
refuses what a game has no use for. That is no sandbox; it keeps people from reading what cannot be a game.
What a person approved is a file like any other of theirs, and is held to the contract before it is played.
"""

import ast
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final, get_args

from convergence_core.config.games import REAL_TASK, TRUTH
from convergence_core.games.contract import ID
from convergence_core.games.game import Feed
from convergence_core.records import sha256_hex

PROPOSE: Final = "Propose one language game."
"""Beginning of every request for a proposal."""
LONGEST: Final = 20_000
"""Characters of a reply that is read."""
LONGEST_PURPOSE: Final = 200
"""Characters of the first line of a class's docstring."""
MOST_ASKS: Final = 20
"""Times that one play may ask a role."""
IMPORTS: Final = frozenset(
    {
        *(
            "collections",
            "convergence_core.games.game",
            "convergence_core.ports",
            "decimal",
            "fractions",
            "functools",
        ),
        *("itertools", "json", "math", "re", "statistics", "string", "textwrap"),
    }
)
"""Modules that a proposal may import."""
_FORBIDDEN: Final = frozenset(
    {
        *(
            "breakpoint",
            "compile",
            "delattr",
            "dir",
            "eval",
            "exec",
            "exit",
            "getattr",
            "globals",
            "help",
            "input",
        ),
        *("locals", "memoryview", "object", "open", "quit", "setattr", "super", "type", "vars"),
    }
)
"""Built-in names by which code gets out of its text, or at what is behind it."""
_SAMPLE: Final = "name-of-the-game"
"""Id of the example in the request: a reply that repeats it is none."""
_ATTRIBUTES: Final = ("id", "version", "roles", "cost", "feeds", "grounded")
_NAMED: Final[dict[type[ast.AST], str]] = {
    ast.Name: "id", ast.Attribute: "attr", ast.alias: "asname", ast.FunctionDef: "name",
    ast.ClassDef: "name", ast.arg: "arg", ast.keyword: "arg",
}  # fmt: skip
"""Node → its field that holds a name."""
_BLOCK: Final = re.compile(r"^```(?:python|py)?[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)

_REQUEST: Final = '''{opening} It is a coded protocol between roles, with text in and out, and a score by code that compares what was
said with what was dealt or computed. A person reads your proposal; nothing of it is run before that.

Reply with one fenced block of Python, and nothing else:

```python
from convergence_core.games.game import Scores
from convergence_core.ports import Ask


class NameOfTheGame:
    """One line: what is played, and what it shows of a player."""

    id = "name-of-the-game"
    version = 1
    roles = ("player",)
    cost = {{"player": 1}}
    feeds = "players"
    grounded = True

    def protocol(self, rng):
        number = int(rng.integers(1, 10))
        reply = yield Ask(role="player", text=f"What is {{number}} times 7? Reply with the number alone.")
        return {{"number": number}}

    def score(self, turns, facts):
        right = turns[0].reply.strip() == str(facts["number"] * 7)
        return Scores(by_role={{"player": float(right)}})
```

Rules: one class without bases or decorators; its six attributes are literals; `cost` says how often a play asks each role at
most, {most} times or fewer; all chance is drawn from `rng`, a NumPy generator; `score` scores any reply, however it was written, and is the
same for the same play; imports only of {imports}; no files, no network, no names that begin with `_`.

Games that are known; propose another one: {known}.'''


def request_text(known: Collection[str]) -> str:
    """Return what a model is asked for a proposal.

    Args:
        known: ids of games that it must not repeat.
    """
    return _REQUEST.format(
        opening=PROPOSE,
        most=MOST_ASKS,
        imports=", ".join(f"`{name}`" for name in sorted(IMPORTS)),
        known=", ".join(sorted(known)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GameProposal:
    """What a reply proposes, as text."""

    text: str
    """Of the file, or of the reply where it is none."""
    reason: str = ""
    """Why it is no proposal; empty: a person may decide."""
    game: str = ""
    """The game's ``id``."""
    class_name: str = ""
    purpose: str = ""
    """First line of the class's docstring."""

    @property
    def proposal_id(self) -> str:
        """The same for the same text."""
        return f"proposal-{sha256_hex(self.text)[:12]}"


class _RefusedError(ValueError):
    """A reply is no proposal."""


def read_proposal(reply: str, known: Collection[str]) -> GameProposal:
    """Read a reply; nothing of it is run.

    Args:
        reply: of the model, anything.
        known: ids that a proposal must not have.
    """
    readable = reply.encode("utf-8", "replace").decode("utf-8")
    try:
        text = _block(readable)
        found = _game_class(_parsed(text))
        values = _declared(found, known)
        return GameProposal(
            text=text, game=values["id"], class_name=found.name, purpose=_purpose(found)
        )
    except _RefusedError as error:
        return GameProposal(text=readable[:LONGEST], reason=str(error))


def _block(reply: str) -> str:
    if len(reply) > LONGEST:
        raise _RefusedError(f"it is longer than {LONGEST:,} characters")
    blocks = _BLOCK.findall(reply.replace("\r\n", "\n"))
    if len(blocks) != 1:
        raise _RefusedError(f"it must hold one fenced block of Python, but holds {len(blocks)}")
    text = str(blocks[0])
    if not all(line.replace("\t", "").isprintable() for line in text.split("\n")):
        raise _RefusedError("it holds control characters")
    return text


def _parsed(text: str) -> ast.Module:
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise _RefusedError(f"it is no Python: line {error.lineno}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError):
        raise _RefusedError(
            "it is no Python: it is nested too deeply, or holds a number too long"
        ) from None
    for node in ast.walk(tree):
        _check_node(node)
    return tree


def _check_node(node: ast.AST) -> None:
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = ["." * node.level + (node.module or "")]
    else:
        names = []
    for name in names:
        if name not in IMPORTS:
            raise _RefusedError(f"it must not import `{name}`")
    own = _NAMED.get(type(node))
    used: str | None = None if own is None else getattr(node, own)
    if used is not None and (used in _FORBIDDEN or (used.startswith("_") and used != "_")):
        raise _RefusedError(f"it must not use the name `{used[:40]}`")
    if isinstance(node, ast.alias) and node.name.startswith("_"):
        raise _RefusedError(f"it must not use the name `{node.name[:40]}`")
    if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.Global | ast.Nonlocal):
        raise _RefusedError("it must not have `async`, `global` or `nonlocal`")


def _game_class(tree: ast.Module) -> ast.ClassDef:
    """Return the one class, if importing the module would run nothing but definitions."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    if len(classes) != 1 or classes[0] not in tree.body:
        raise _RefusedError(f"it must define one class, but defines {len(classes)}")
    (found,) = classes
    if found.bases or found.keywords or found.decorator_list:
        raise _RefusedError("its class must have no base and no decorator")
    _check_definitions([node for node in tree.body if node is not found])
    _check_definitions(found.body)
    return found


def _check_definitions(body: list[ast.stmt]) -> None:
    for node in body:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_value = (
            isinstance(node, ast.Assign)
            and _is_literal(node.value)
            and all(isinstance(target, ast.Name) for target in node.targets)
        )
        is_import = isinstance(node, ast.Import | ast.ImportFrom)
        if isinstance(node, ast.FunctionDef):
            if node.decorator_list or not all(map(_is_plain, _read_at_once(node))):
                rule = "a function must have no decorator, and plain defaults and annotations"
                raise _RefusedError(f"line {node.lineno}: {rule}")
        elif not (is_text or is_value or is_import):
            raise _RefusedError(f"line {node.lineno} would run as soon as the file is read")


def _read_at_once(node: ast.FunctionDef) -> Iterator[ast.expr]:
    """Yield what a definition evaluates: defaults and annotations."""
    given = node.args
    yield from (*given.defaults, *(one for one in given.kw_defaults if one is not None))
    every = (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg)
    yield from (one.annotation for one in every if one is not None and one.annotation is not None)
    if node.returns is not None:
        yield node.returns


def _is_plain(node: ast.expr) -> bool:
    return _is_literal(node) or isinstance(node, ast.Name)


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError, MemoryError):
        return False
    return True


def _declared(found: ast.ClassDef, known: Collection[str]) -> dict[str, Any]:
    values = {
        target.id: ast.literal_eval(node.value)
        for node in found.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for name in _ATTRIBUTES:
        if name not in values:
            raise _RefusedError(f"its class must set `{name}` to a literal")
    game, version, roles, cost, feeds, grounded = (values[name] for name in _ATTRIBUTES)
    if not isinstance(game, str) or not ID.fullmatch(game):
        raise _RefusedError("its `id` must be lower-case letters, digits and `-`")
    if game in {*known, _SAMPLE} or game.startswith(REAL_TASK):
        raise _RefusedError(f"its `id` {game} is that of another game")
    if type(version) is not int or version < 1:
        raise _RefusedError("its `version` must be 1 or more")
    is_roles = isinstance(roles, tuple) and all(
        isinstance(one, str) and one.isidentifier() for one in roles
    )
    if not is_roles or not roles or len({*roles}) < len(roles) or {*roles} & {*TRUTH}:
        raise _RefusedError(
            "its `roles` must be a tuple of different names, none of them one that brings the truth"
        )
    is_cost = isinstance(cost, dict) and {*cost} == {*roles}
    if not is_cost or not all(type(n) is int and 1 <= n <= MOST_ASKS for n in cost.values()):
        raise _RefusedError(
            f"its `cost` must say for each role how often it is asked, 1 to {MOST_ASKS} times"
        )
    if feeds not in get_args(Feed):
        raise _RefusedError(f"its `feeds` must be one of {', '.join(get_args(Feed))}")
    if not isinstance(grounded, bool):
        raise _RefusedError("its `grounded` must be True or False")
    _check_methods(found)
    return values


def _check_methods(found: ast.ClassDef) -> None:
    methods = {node.name: node for node in found.body if isinstance(node, ast.FunctionDef)}
    for name, n_given in (("protocol", 2), ("score", 3)):
        if name not in methods or len(methods[name].args.args) != n_given:
            raise _RefusedError(
                "its class must have `protocol(self, rng)` and `score(self, turns, facts)`"
            )
    yields = any(isinstance(node, ast.Yield) for node in ast.walk(methods["protocol"]))
    if not yields:
        raise _RefusedError("its `protocol` must yield what is asked")


def _purpose(found: ast.ClassDef) -> str:
    lines = (ast.get_docstring(found) or "").splitlines()
    if not lines or not lines[0].strip():
        raise _RefusedError("its class must say in a docstring what is played")
    purpose = lines[0].strip()
    if len(purpose) > LONGEST_PURPOSE or not purpose.isprintable():
        rule = f"at most {LONGEST_PURPOSE} characters, all of them printable"
        raise _RefusedError(f"the first line of its docstring must have {rule}")
    return purpose
