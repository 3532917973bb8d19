"""Chat session: lines become questions, ratings and commands."""

import asyncio
import contextlib
import difflib
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

from convergence import console
from convergence.cli.keyboard import Keyboard
from convergence_core.errors import ConvergenceError, EvaluationFault
from convergence_core.feedback.records import HIGHEST, LABELS, LOWEST, SCALE, Interaction, Thumbs
from convergence_core.result.number_text import plural
from tasks.chat.conversation import AnswerPair, Conversation
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line

Result = TypeVar("Result")

COMMANDS: Final[Mapping[str, str]] = {
    "/rate": "N [WHY]: rate the last answer from 1 to 5; repeat to change it",
    "/thumbs": "up|down [WHY]: rate it with thumbs instead",
    "/compare": "[QUESTION]: choose the better of two answers to a question, by default the last one",
    "/undo": "undo the last rating; without one, drop the last question from the conversation",
    "/history": "[N]: your last answers in this role, with their ratings",
    "/status": "number of answers and ratings of all users, by role",
    "/role": "NAME: start a new conversation with another role",
    "/help": "list the commands",
    "/quit": "leave",
}
"""Command → its arguments and effect."""
RATINGS: Final = "".join(map(str, LABELS))
_THUMBS: Final[Mapping[str, Thumbs]] = {"up": "up", "down": "down"}
_UNDONE: Final = {
    "rating": "Undid the rating of the last answer.",
    "comparison": "Undid the comparison.",
    "turn": "Dropped the last question and its answer from the conversation. They stay logged.",
    None: "Nothing to undo.",
}
_SHOWN: Final = 100
"""Longest text in a list, in characters."""


class ChatSession:
    """Chat that answers each line of input until its end.

    Args:
        conversation: the conversation with the model.
        keyboard: source of the lines.
        runner: runner of the conversation's event loop.
    """

    def __init__(
        self, conversation: Conversation, keyboard: Keyboard, runner: asyncio.Runner
    ) -> None:
        self._conversation, self._keyboard, self._runner = conversation, keyboard, runner
        self.n_failures = 0
        """Number of lines without an answer."""

    def run(self) -> None:
        """Answer each line, until the end of input or `/quit`."""
        while True:
            try:
                line = self._keyboard.line(f"{self._conversation.role}> ")
            except KeyboardInterrupt:
                sys.stdout.write("\n")
                return
            if line is None or line.strip() == "/quit":
                return
            with self._reported():
                self._handle(line.strip())

    def _handle(self, line: str) -> None:
        if not line:
            return
        if not line.startswith("/"):
            self._ask(line)
            return
        name, _, rest = line.partition(" ")
        commands: dict[str, Callable[[str], None]] = {
            "/rate": self._rate,
            "/thumbs": self._thumbs,
            "/compare": self._compare,
            "/undo": self._undo,
            "/history": self._history,
            "/status": self._status,
            "/role": self._role,
            "/help": self._help,
        }
        if name in commands:
            commands[name](rest.strip())
            return
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f" Did you mean {near[0]}?" if near else " /help lists the commands."
        self._refuse(f"Unknown command {_line(name)}.{hint}")

    def _ask(self, question: str) -> None:
        async def stream() -> None:
            async with self._conversation.ask(question) as pieces:
                async for piece in pieces:
                    sys.stdout.write(console.printable(piece))
                    sys.stdout.flush()
            sys.stdout.write("\n")

        self._wait(stream())
        last = self._conversation.last
        if last is not None and last.thinking is not None:
            console.answer(
                f"thinking, not part of the answer: {_line(last.thinking)}", style="dim"
            )
        key = self._keyboard.choice(f"[{SCALE}; Enter skips] ", RATINGS)
        if key is not None:
            self._rate(key)

    def _rate(self, rest: str) -> None:
        number, _, reason = rest.partition(" ")
        if number not in RATINGS or len(number) != 1:
            self._refuse(
                f"/rate needs a whole number from {LOWEST} to {HIGHEST}, but got "
                f"{_line(number)!r}. Give one of {SCALE}."
            )
            return
        receipt = self._wait(self._conversation.rate(int(number), reason=reason.strip() or None))
        before = receipt.previous
        changed = "" if before is None else f", before {before.words}"
        console.answer(f"Rated {receipt.rating.words}{changed}.")

    def _thumbs(self, rest: str) -> None:
        word, _, reason = rest.partition(" ")
        thumbs = _THUMBS.get(word)
        if thumbs is None:
            self._refuse(f"/thumbs needs up or down, but got {_line(word)!r}.")
            return
        receipt = self._wait(self._conversation.rate(thumbs=thumbs, reason=reason.strip() or None))
        console.answer(f"Rated {receipt.rating.words}.")

    def _compare(self, rest: str) -> None:
        pair: AnswerPair = self._wait(self._conversation.answer_twice(rest or None))
        for number, answer in ((1, pair.first), (2, pair.second)):
            console.answer(f"Answer {number}:", style="bold")
            sys.stdout.write(f"{console.printable(answer.response)}\n")
        sys.stdout.flush()
        if pair.first.is_same_answer(pair.second):
            self._conversation.keep(pair, pair.first)
            console.answer("Both answers are equal.")
            return
        key = self._keyboard.choice("[1 or 2 is better; Enter: neither] ", "12")
        if key is None:
            self._conversation.keep(pair, pair.first)
            console.answer("No choice. The conversation continues with answer 1.")
            return
        better: Interaction = self._wait(self._conversation.choose(pair, int(key)))
        number = 1 if better is pair.first else 2
        console.answer(f"Answer {number} is better. The conversation continues with it.")

    def _undo(self, _rest: str) -> None:
        console.answer(_UNDONE[self._wait(self._conversation.undo())])

    def _history(self, rest: str) -> None:
        n = int(rest) if rest.isdecimal() and rest.isascii() and len(rest) < 5 else 10
        entries = self._wait(self._conversation.history(n))
        if not entries:
            console.answer("No answers yet.")
        for answer, mark in entries:
            when = datetime.fromtimestamp(answer.created_us / 1e6).astimezone()
            words = "unrated" if mark is None else mark.words
            why = "" if mark is None or mark.reason is None else f" ({mark.reason})"
            # The adapter stays hidden until the answer is rated.
            author = answer.model if mark is None else answered_by(answer)
            console.answer(f"{when:%Y-%m-%d %H:%M}  {words}{why}  {author}")
            console.answer(f"  asked     {_line(answer.asked[-1].content)}")
            console.answer(f"  answered  {_line(answer.response)}")
            if answer.thinking is not None:
                console.answer(f"  thinking  {_line(answer.thinking)}")

    def _status(self, _rest: str) -> None:
        total = self._wait(self._conversation.counts())
        if not total.roles:
            console.answer("No answers yet.")
        for role, counts in total.roles.items():
            console.answer(f"{role}: {counts.words}")
        if total.n_comparisons:
            console.answer(f"{plural(total.n_comparisons, 'comparison')} of two answers")
        for sentence in self._wait(self._conversation.rater_sentences()):
            console.answer(sentence)

    def _role(self, rest: str) -> None:
        self._conversation.begin(rest)
        console.answer(f"{rest} answers now, in a new conversation.")

    def _help(self, _rest: str) -> None:
        for name, text in COMMANDS.items():
            console.answer(f"{name:9} {text}")

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._runner.run(work)

    def _refuse(self, text: str) -> None:
        self.n_failures += 1
        console.say(text, "red")

    @contextlib.contextmanager
    def _reported(self) -> Iterator[None]:
        """Print why a line failed, and continue."""
        try:
            yield
        except KeyboardInterrupt:
            sys.stdout.write("\n")
            console.say("Stopped; that answer is not logged.", "yellow")
        except (EvaluationFault, ConvergenceError, LookupError) as error:
            sys.stdout.flush()
            self._refuse(one_line(str(error), 2_000, redacted_text))


def answered_by(answer: Interaction) -> str:
    """Return the model of an answer, with its adapter if it has one."""
    version = answer.adapter_version
    return answer.model if version is None else f"{answer.model} with adapter {version}"


def _line(text: str) -> str:
    return one_line(console.printable(text), _SHOWN, redacted_text)
