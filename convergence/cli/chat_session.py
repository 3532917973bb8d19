"""Session of a chat: lines become questions, marks and commands."""

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
    "/rate": "N [WHY]: mark the last answer from 1 to 5, again to change it",
    "/thumbs": "up|down [WHY]: mark it by thumbs instead",
    "/compare": "[QUESTION]: two answers to a question, the last one if none is given; choose the better",
    "/undo": "take the last mark back; without one, leave the last question out of what follows",
    "/history": "[N]: your last answers in this role, with their marks",
    "/status": "how many answers there are and how they are rated, everyone's, by role",
    "/role": "NAME: begin anew with another role",
    "/help": "these commands",
    "/quit": "leave",
}
"""Command → what follows it, and what it does."""
RATINGS: Final = "".join(map(str, LABELS))
_THUMBS: Final[Mapping[str, Thumbs]] = {"up": "up", "down": "down"}
_UNDONE: Final = {
    "rating": "Took the mark of the last answer back.",
    "comparison": "Took the comparison back.",
    "turn": "The last question and its answer are left out of what follows. They stay logged.",
    None: "There is nothing to take back.",
}
_SHOWN: Final = 100
"""Characters of a text in a list."""


class ChatSession:
    """Reads lines until there are none, and answers each.

    Args:
        conversation: what is asked.
        keyboard: where lines come from.
        runner: of the conversation's event loop.
    """

    def __init__(
        self, conversation: Conversation, keyboard: Keyboard, runner: asyncio.Runner
    ) -> None:
        self._conversation, self._keyboard, self._runner = conversation, keyboard, runner
        self.n_failures = 0
        """Lines that could not be answered."""

    def run(self) -> None:
        """Answer line by line, to the end of the lines or `/quit`."""
        while True:
            try:
                line = self._keyboard.line(f"{self._conversation.role}> ")
            except KeyboardInterrupt:
                sys.stdout.write("\n")
                return
            if line is None or line.strip() == "/quit":
                return
            with self._told():
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
        hint = f" Did you mean {near[0]}?" if near else " /help lists what there is."
        self._refuse(f"There is no command {_line(name)}.{hint}")

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
        for number, one in ((1, pair.first), (2, pair.second)):
            console.answer(f"Answer {number}:", style="bold")
            sys.stdout.write(f"{console.printable(one.response)}\n")
        sys.stdout.flush()
        if pair.first.is_same_answer(pair.second):
            self._conversation.keep(pair, pair.first)
            console.answer("Both answers are equal: there is nothing to prefer.")
            return
        key = self._keyboard.choice("[1 or 2 is better; Enter: neither] ", "12")
        if key is None:
            self._conversation.keep(pair, pair.first)
            console.answer("No choice. The conversation goes on with answer 1.")
            return
        better: Interaction = self._wait(self._conversation.choose(pair, int(key)))
        number = 1 if better is pair.first else 2
        console.answer(f"Answer {number} is better. The conversation goes on with it.")

    def _undo(self, _rest: str) -> None:
        console.answer(_UNDONE[self._wait(self._conversation.undo())])

    def _history(self, rest: str) -> None:
        n = int(rest) if rest.isdecimal() and rest.isascii() and len(rest) < 5 else 10
        found = self._wait(self._conversation.history(n))
        if not found:
            console.answer("There are no answers yet.")
        for one in found:
            answer, mark = one.interaction, one.rating
            when = datetime.fromtimestamp(answer.created_us / 1e6).astimezone()
            words = "unrated" if mark is None else mark.words
            why = "" if mark is None or mark.reason is None else f" ({mark.reason})"
            # Nobody shall know whose answer it is before it is rated.
            who = answer.model if mark is None else answered_by(answer)
            console.answer(f"{when:%Y-%m-%d %H:%M}  {words}{why}  {who}")
            console.answer(f"  asked     {_line(answer.asked[-1].content)}")
            console.answer(f"  answered  {_line(answer.response)}")
            if answer.thinking is not None:
                console.answer(f"  thinking  {_line(answer.thinking)}")

    def _status(self, _rest: str) -> None:
        found = self._wait(self._conversation.counts())
        if not found.roles:
            console.answer("There are no answers yet.")
        for role, counts in found.roles.items():
            console.answer(f"{role}: {counts.words}")
        if found.n_comparisons:
            console.answer(f"{plural(found.n_comparisons, 'comparison')} of two answers")
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
    def _told(self) -> Iterator[None]:
        """Tell what a line failed with, and go on."""
        try:
            yield
        except KeyboardInterrupt:
            sys.stdout.write("\n")
            console.say("Stopped; that answer is not logged.", "yellow")
        except (EvaluationFault, ConvergenceError, LookupError) as error:
            sys.stdout.flush()
            self._refuse(one_line(str(error), 2_000, redacted_text))


def answered_by(answer: Interaction) -> str:
    """Return the model of an answer, and its adapter."""
    version = answer.adapter_version
    return answer.model if version is None else f"{answer.model} with adapter {version}"


def _line(text: str) -> str:
    return one_line(console.printable(text), _SHOWN, redacted_text)
