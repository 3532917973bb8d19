"""Games that a model proposes: what is read of a reply, and that nothing of it runs."""

import re
from pathlib import Path

import pytest

from convergence_core.games.proposal import (
    LONGEST,
    LONGEST_PURPOSE,
    MOST_ASKS,
    PROPOSE,
    GameProposal,
    read_proposal,
    request_text,
)
from convergence_core.records import sha256_hex

KNOWN = frozenset({"nim", "judge"})
GAME = '''from convergence_core.games.game import Scores
from convergence_core.ports import Ask

WORDS = ("one", "two")


def said(turns):
    return turns[0].reply.strip()


class Copy:
    """A word is said, and said again."""

    id = "copy"
    version = 1
    roles = ("sayer",)
    cost = {"sayer": 2}
    feeds = "players"
    grounded = True

    def protocol(self, rng):
        word = WORDS[int(rng.integers(2))]
        yield Ask(role="sayer", text=f"Say {word}.")
        return {"word": word}

    def score(self, turns, facts):
        return Scores(by_role={"sayer": float(said(turns) == facts["word"])})
'''


def fenced(code: str) -> str:
    return f"Here it is.\n```python\n{code}```\nEnjoy."


def read(code: str) -> GameProposal:
    return read_proposal(fenced(code), KNOWN)


def test_a_game_is_read_as_text():
    found = read(GAME)
    assert found == GameProposal(
        text=GAME, game="copy", class_name="Copy", purpose="A word is said, and said again."
    )
    assert found.proposal_id == f"proposal-{sha256_hex(GAME)[:12]}"
    assert read_proposal(fenced(GAME).replace("\n", "\r\n"), KNOWN) == found
    said = "A word is said, and said again."
    longest = read(GAME.replace(said, "A" * LONGEST_PURPOSE))
    assert (longest.purpose, longest.reason) == ("A" * LONGEST_PURPOSE, "")
    assert "at most 200 characters" in read(GAME.replace(said, "A" * 201)).reason


def test_the_request_shows_a_game_that_would_be_read_but_for_its_name():
    asked = request_text({"nim", "copy"})
    assert asked.startswith(PROPOSE)
    assert asked.endswith("propose another one: copy, nim.")
    assert read_proposal(asked, ()).reason == "its `id` name-of-the-game is that of another game"
    named = asked.replace("name-of-the-game", "times")
    assert (read_proposal(named, ()).game, read_proposal(named, ()).reason) == ("times", "")


AT_ONCE = "would run as soon as the file is read"
PLAIN = "plain defaults and annotations"
HOSTILE = {
    # code that would run when the file is read
    "a call": ("print('x')\n" + GAME, AT_ONCE),
    "a call after": (GAME + "print('x')\n", AT_ONCE),
    "a condition": ("if True:\n    print('x')\n" + GAME, AT_ONCE),
    "a loop": ("while True:\n    pass\n" + GAME, AT_ONCE),
    "a value made by a call": (GAME.replace('("one", "two")', "tuple([len('ab')])"), AT_ONCE),
    "a comprehension": (GAME.replace('("one", "two")', "[n for n in 'ab']"), AT_ONCE),
    "a walrus": (GAME.replace('("one", "two")', "(x := 3)"), AT_ONCE),
    "an attribute that is set": ("import json\njson.loads = 3\n" + GAME, AT_ONCE),
    "an annotated value": ("N: print('x') = 3\n" + GAME, AT_ONCE),
    "a decorator": (GAME.replace("def said", "@print\ndef said"), "no decorator"),
    "a decorator of the class": (GAME.replace("class Copy", "@print\nclass Copy"), "no decorator"),
    "a decorator of a method": (GAME.replace("    def score", "    @print\n    def score"), "no decorator"),
    "a default": (GAME.replace("said(turns):", "said(turns, n=print('x')):"), PLAIN),
    "a keyword's default": (GAME.replace("said(turns):", "said(turns, *, n=print('x')):"), PLAIN),
    "an annotation": (GAME.replace("said(turns):", "said(turns: print('x')):"), PLAIN),
    "what is returned": (GAME.replace("said(turns):", "said(turns) -> print('x'):"), PLAIN),
    "a call in the class": (GAME.replace("    version = 1", "    version = int('1')"), AT_ONCE),
    "a base": (GAME.replace("class Copy:", "class Copy(Scores):"), "no base"),
    "a metaclass": (GAME.replace("class Copy:", "class Copy(metaclass=Scores):"), "no base"),
    "a try": ("try:\n    import os\nexcept ImportError:\n    pass\n" + GAME, "must not import `os`"),
    # what a game has no use for
    "os": ("import os\n" + GAME, "must not import `os`"),
    "os as json": ("import os as json\n" + GAME, "must not import `os`"),
    "a relative import": ("from . import secrets\n" + GAME, "must not import `.`"),
    "numpy": ("import numpy\n" + GAME, "must not import `numpy`"),
    "an import in a method": (GAME.replace("        word =", "        import socket\n        word ="),
                              "must not import `socket`"),
    "importing everything's insides": ("from json import __builtins__\n" + GAME, "the name `__builtins__`"),
    "open": (GAME.replace("        word =", "        open('x', 'w')\n        word ="), "the name `open`"),
    "exec": (GAME.replace("said(turns):\n", "said(turns):\n    exec('1')\n"), "the name `exec`"),
    "getattr": (GAME.replace("said(turns):\n", "said(turns):\n    getattr(turns, 'x')\n"), "the name `getattr`"),
    "the way to all classes": (GAME.replace("said(turns) ==", "().__class__.__base__ =="), "the name `__"),
    "a special method": (GAME.replace("    def score", "    def __del__(self):\n        pass\n\n    def score"),
                         "the name `__del__`"),
    "globals": (GAME.replace("    return turns", "    global WORDS\n    return turns"), "`global`"),
    "async": (GAME.replace("def said", "async def said"), "`async`"),
    # what is no game
    "nothing": ("", "must define one class, but defines 0"),
    "two classes": (GAME + GAME.partition("\n\n\n")[2], "must define one class, but defines 2"),
    "a class in a class": (GAME.replace("    version", "    class Inner:\n        pass\n\n    version"),
                           "must define one class, but defines 2"),
    "no Python": ("this is a game!\n", "it is no Python: line 1"),
    "a null byte": (GAME.replace("said, and", "said\0, and"), "control characters"),
    "an escape": (GAME.replace("said, and", "said\x1b[2J, and"), "control characters"),
    "a turn of direction": (GAME.replace("said, and", "said\u202e, and"), "control characters"),
    "nested deeply": ("(" * 9_000 + ")" * 9_000 + "\n", "it is no Python"),
    "minus deeply": ("x = " + "-" * 9_000 + "1\n", "it is no Python"),
    "a number too long": ("x = " + "9" * 9_000 + "\n" + GAME, "it is no Python"),
    "too long": (GAME + "#" * LONGEST, f"longer than {LONGEST:,} characters"),
    "a known id": (GAME.replace('"copy"', '"nim"'), "its `id` nim is that of another game"),
    "a real task's id": (GAME.replace('"copy"', '"reasoning-x"'), "that of another game"),
    "a path as id": (GAME.replace('"copy"', '"../../etc/passwd"'), "lower-case letters"),
    "an id that is none": (GAME.replace('"copy"', "3"), "lower-case letters"),
    "no version": (GAME.replace("    version = 1\n", ""), "must set `version` to a literal"),
    "version true": (GAME.replace("version = 1", "version = True"), "`version` must be 1 or more"),
    "no roles": (GAME.replace('("sayer",)', "()"), "`roles` must be"),
    "a role twice": (GAME.replace('("sayer",)', '("sayer", "sayer")'), "`roles` must be"),
    "roles that are a text": (GAME.replace('("sayer",)', '"sayer"'), "`roles` must be"),
    "a role that runs programs": (GAME.replace('("sayer",)', '("sandbox",)'), "`roles` must be"),
    "a role that measures": (GAME.replace('("sayer",)', '("evaluator",)'), "`roles` must be"),
    "another cost": (GAME.replace('{"sayer": 2}', '{"other": 2}'), "`cost` must say"),
    "a dear play": (GAME.replace('{"sayer": 2}', '{"sayer": 21}'), f"1 to {MOST_ASKS} times"),
    "a cost of yes": (GAME.replace('{"sayer": 2}', '{"sayer": True}'), "`cost` must say"),
    "other feeds": (GAME.replace('"players"', '"money"'), "`feeds` must be one of thoughts"),
    "ground of one": (GAME.replace("grounded = True", "grounded = 1"), "`grounded` must be"),
    "no docstring": (GAME.replace('    """A word is said, and said again."""\n', ""), "in a docstring"),
    "a surrogate that is written as an escape": (GAME.replace("said, and", "said\\ud800, and"), "printable"),
    "a null byte that is written as an escape": (GAME.replace("said, and", "said\\0, and"), "printable"),
    "an escape that is written as one": (GAME.replace("said, and", "said\\x1b[2J, and"), "printable"),
    "a version too long to print": (GAME.replace("version = 1", "version = -0x" + "f" * 6_000), "1 or more"),
    "an id that is too long to print": (GAME.replace('"copy"', "0x" + "f" * 6_000), "lower-case letters"),
    "no protocol": (GAME.replace("def protocol", "def play"), "`protocol(self, rng)`"),
    "a score of two": (GAME.replace("score(self, turns, facts)", "score(self, turns)"), "`score(self, turns, facts)`"),
    "a protocol that asks nobody": (GAME.replace("        yield Ask", "        Ask"), "must yield"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_reply_is_text_with_a_reason(name: str):
    code, reason = HOSTILE[name]
    found = read(code)
    assert reason in found.reason
    assert (found.game, found.class_name, found.purpose) == ("", "", "")
    assert len(found.text) <= LONGEST


@pytest.mark.parametrize("place", ["\n\n", "    version = 1\n    ", "said(turns, n="])
def test_nothing_of_a_reply_runs(place: str, tmp_path: Path):
    touched = tmp_path / "touched"
    code = f"__import__('pathlib').Path({str(touched)!r}).touch()"
    put = place + code + ("" if place.endswith("=") else "\n")
    found = read(GAME.replace(place.replace(", n=", "").rstrip(" "), put, 1))
    assert code in found.text
    assert "`__import__`" in found.reason
    assert not touched.exists()


def test_more_than_forty_hostile_replies_are_tried():
    assert len(HOSTILE) >= 40


@pytest.mark.parametrize(
    ("reply", "n"), [("", 0), ("No.", 0), (GAME, 0), (fenced(GAME) * 2, 2), ("```python\n", 0)]
)
def test_a_reply_has_one_block(reply: str, n: int):
    found = read_proposal(reply, KNOWN)
    assert found.reason == f"it must hold one fenced block of Python, but holds {n}"
    assert found.text == reply


def test_what_cannot_be_written_is_made_so():
    found = read_proposal("```python\n\ud800\n```", KNOWN)
    assert re.search("no Python|control", found.reason)
    found.text.encode("utf-8")
