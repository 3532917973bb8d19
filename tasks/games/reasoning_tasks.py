"""Tasks of reasoning-gym as games: seeded items with the library's verifiers."""

import functools
import importlib.metadata
import importlib.util
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from convergence_core.errors import ConvergenceError
from convergence_core.games.game import Facts, Feed, Scores, Turn, Turns
from convergence_core.ports import Ask
from tasks.games.line_process import LineProcess, NoReplyError
from tasks.version import install_command

CHILD: Final = Path(__file__).with_name("reasoning_child.py")
PACKAGE: Final = "reasoning-gym"
AUDIT_VERSION: Final = 1
"""Version of the checks of ``audit``; raise it with every change of them."""
MOST_ANSWER: Final = 10_000
"""Maximum characters of an answer; a longer one scores 0 without the verifier."""
MOST_SEED: Final = 2**31
MOST_JUNK: Final = 0.01
"""Maximum score of an answer without content."""
JUNK: Final = ("I do not know.", "", None, "x", "lorem ipsum")
"""Answers without content; ``None`` is a missing answer."""
HOSTILE: Final = (
    "NaN",
    "1e999",
    "9" * 5_000,
    "[" * 5_000,
    '{"a":' * 1_000,
    "\x00\ud800",
    "__import__('os').system('exit')",
    "9**9**9**9",
)
"""Answers that must not make a verifier hang. If it raises, they score 0."""
_TAGGED: Final = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


class ReasoningGymError(ConvergenceError):
    """Package reasoning-gym is missing, or its process does not start."""


@dataclass(frozen=True, slots=True)
class ReasoningItem:
    """One task."""

    question: str
    answer: str | None
    """Reference answer of the generator; ``None`` if it gives none."""
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class VerifierVerdict:
    """A verifier's result for an answer."""

    score: float
    """In [0, 1]."""
    reason: str = ""
    """Why there is no score: the verifier raised, took too long, or was kept from evaluating."""
    has_hung: bool = False


def why_missing() -> str:
    """Return why no task can be made here, with a command that fixes it; empty if tasks can."""
    if importlib.util.find_spec("reasoning_gym") is None:
        return (
            "Package reasoning-gym is not installed: it comes with the extra `games` "
            f"({install_command('games')})."
        )
    return ""


def installed_version() -> str:
    """Return the version of the package.

    Raises:
        ReasoningGymError: the package is missing.
    """
    if why := why_missing():
        raise ReasoningGymError(why)
    return importlib.metadata.version(PACKAGE)


class ReasoningLibrary:
    """The library in its own process, which is killed and restarted if it hangs.

    Args:
        limit_s: Seconds allowed for one item or one verdict.
        hash_seed: Hash seed of the process, for generators whose items depend on set order.

    Raises:
        ReasoningGymError: the package is missing.
    """

    def __init__(self, limit_s: float = 20.0, hash_seed: int = 0) -> None:
        if why := why_missing():
            raise ReasoningGymError(why)
        self.limit_s = limit_s
        # Keep our environment from the library's code, which could read it.
        self._process = LineProcess(
            [str(CHILD)], {"PYTHONHASHSEED": str(hash_seed)}, {"what": "generators"}
        )

    @property
    def version(self) -> str:
        """Version of the package."""
        return installed_version()

    def generators(self) -> tuple[str, ...]:
        """Return the names of all generators."""
        return tuple(self._exchange({"what": "generators"})["generators"])

    def item(self, generator: str, seed: int) -> ReasoningItem:
        """Return the item of a seed.

        Raises:
            ReasoningGymError: the generator raises or takes too long.
        """
        answer = self._exchange({"what": "item", "generator": generator, "seed": seed})
        if "raised" in answer:
            raise ReasoningGymError(f"Generator {generator!r} makes no item: {answer['raised']}")
        return ReasoningItem(answer["question"], answer["answer"], answer["metadata"])

    def verdict(self, generator: str, seed: int, answer: str | None) -> VerifierVerdict:
        """Return the verifier's score of an answer; 0 with the reason if it raises."""
        if answer is not None and len(answer) > MOST_ANSWER:
            return VerifierVerdict(0.0, f"the answer has more than {MOST_ANSWER:,} characters")
        request = {"what": "score", "generator": generator, "seed": seed, "answer": answer}
        reply = self._exchange(request)
        if "raised" in reply:
            why = reply["raised"] if reply["refused"] else f"the verifier raised {reply['raised']}"
            return VerifierVerdict(0.0, why, has_hung="hung" in reply)
        score = float(reply["score"])
        if not 0.0 <= score <= 1.0:  # NaN too
            return VerifierVerdict(0.0, f"the verifier gave {score}, outside [0, 1]")
        return VerifierVerdict(score, reply["reason"])

    def close(self) -> None:
        """Kill the process."""
        self._process.close()

    def __enter__(self) -> "ReasoningLibrary":
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the process."""
        self.close()

    def _exchange(self, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            self._process.start()
        except NoReplyError as error:
            raise ReasoningGymError(
                f"The process of reasoning-gym does not start: it gave {error}. Reinstall the extra "
                f"({install_command('games')} --force-reinstall)."
            ) from error
        try:
            return self._process.ask(request, self.limit_s)
        except NoReplyError as error:
            return {"raised": str(error), "refused": False, "hung": True}


@dataclass(frozen=True, slots=True)
class ReasoningGame:
    """A generator as a game: the role ``solver`` gets an item's question and answers it.

    The protocol computes the verdict and stores it in the facts, so scoring a stored play needs no
    library.
    """

    library: ReasoningLibrary
    generator: str
    version: int = 1
    roles: ClassVar[tuple[str, ...]] = ("solver",)
    cost: ClassVar[Mapping[str, int]] = {"solver": 1}
    feeds: ClassVar[Feed] = "players"
    grounded: ClassVar[bool] = True

    @property
    def id(self) -> str:
        """Name of the generator with ``-`` for ``_``, after ``reasoning-``."""
        return f"reasoning-{self.generator.replace('_', '-')}"

    def protocol(self, rng: np.random.Generator) -> Turns:
        """Pose one item's question; the facts hold the item and the verdict."""
        seed = int(rng.integers(MOST_SEED))
        item = self.library.item(self.generator, seed)
        text = f"{item.question}\nReply with the answer alone."
        reply = yield Ask(role="solver", text=text)
        verdict = self.library.verdict(self.generator, seed, answer_of(reply))
        return {
            "library": f"{PACKAGE} {self.library.version}",
            "generator": self.generator,
            "seed": seed,
            "score": verdict.score,
            "reason": verdict.reason,
        }

    def score(self, turns: Sequence[Turn], facts: Facts) -> Scores:  # noqa: ARG002 - the protocol's signature
        """Return the verdict."""
        score, reason = facts["score"], facts["reason"]
        return Scores(by_role={"solver": float(score)}, reason=str(reason))  # type: ignore[arg-type]  # by the protocol


def answer_of(reply: str) -> str:
    """Return the last part of a reply in ``<answer>`` tags, or the whole reply if it has none."""
    tagged = _TAGGED.findall(reply)
    return str(tagged[-1] if tagged else reply).strip()


@functools.cache
def generator_names() -> tuple[str, ...]:
    """Return the names of the installed version's generators.

    Raises:
        ReasoningGymError: the package is missing.
    """
    with ReasoningLibrary() as library:
        return library.generators()


def check_names(names: Iterable[str], known: Sequence[str]) -> None:
    """Refuse a name that is no generator's.

    Raises:
        ReasoningGymError: a name is unknown.
    """
    if unknown := sorted({*names} - {*known}):
        raise ReasoningGymError(
            f"{PACKAGE} {installed_version()} has no generator {unknown[0]!r}. It has: {', '.join(known)}."
        )


def audit(
    names: Sequence[str] | None = None, *, n_seeds: int = 3, limit_s: float = 20.0
) -> Iterator[tuple[str, str]]:
    """Audit generators of the installed version; yield each with its reason for rejection.

    The reason is empty if the generator is admitted: its reference answer scores 1, answers
    without content score at most ``MOST_JUNK`` and raise nothing, no hostile answer hangs, and the
    same seed gives the same item in another process.

    Args:
        names: Names of generators; empty or ``None`` means all.
        n_seeds: Items per generator, at least 1.
        limit_s: Seconds allowed for one item or one verdict.

    Raises:
        ReasoningGymError: the package is missing, or a name is no generator's.
    """
    with ReasoningLibrary(limit_s, 1) as library, ReasoningLibrary(limit_s, 2) as other:
        known = library.generators()
        check_names(names or (), known)
        for name in names or known:
            reasons = (_why_rejected(library, other, name, seed) for seed in range(n_seeds))
            yield name, next((reason for reason in reasons if reason), "")


def _why_rejected(library: ReasoningLibrary, other: ReasoningLibrary, name: str, seed: int) -> str:
    try:
        item, again = library.item(name, seed), other.item(name, seed)
    except ReasoningGymError as error:
        return str(error)
    if item != again:
        return f"seed {seed} gives another item in another process"
    if not isinstance(item.answer, str):
        return "it gives no reference answer"
    verdict = library.verdict(name, seed, answer_of(item.answer))
    if verdict.score < 1.0:
        return f"its reference answer scores {verdict.score:g}" + (
            f": {verdict.reason}" if verdict.reason else ""
        )
    return next(_of_answers(library, name, seed, answer_of(item.answer)), "")


def _of_answers(library: ReasoningLibrary, name: str, seed: int, right: str) -> Iterator[str]:
    for junk in JUNK:
        verdict = library.verdict(name, seed, junk)
        if verdict.score > MOST_JUNK and junk != right:
            yield f"the answer {junk!r} scores {verdict.score:g}"
        if verdict.reason.startswith("the verifier raised"):
            yield f"at the answer {junk!r} {verdict.reason}"
    for hostile in HOSTILE:
        verdict = library.verdict(name, seed, hostile)
        if verdict.has_hung:
            yield f"at the answer {hostile[:20]!r} {verdict.reason}"
