"""Imperfect prompt writer: edits succeed half the time, and any of them may do harm.

Every optimizer's edit adds ``N_EDITED`` properties: first those whose symptoms the request shows, then those of a named
operator, then any that the prompt lacks. Each gets its sentence with probability ``SUCCESS``, otherwise filler; half
of them go to a random place. An edit drops another sentence of the parent with probability ``LOSS``.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.prompts.world import World, sentences_of

N_EDITED: Final = 2
SUCCESS: Final = 0.5
LOSS: Final = 0.2
_AT_END: Final = 0.5

FILLERS: Final = (
    "Please take this seriously.", "Our customers matter to us.", "Take a deep breath.",
    "This is important for the company.", "Be excellent.", "Thank you for your help.",
    "Keep a positive attitude at all times.", "We rely on your judgement.",
)  # fmt: skip
OF_OPERATOR: Final = {
    "try-catch-style": ("fallback", "language"),
    "expansion": ("terms", "example", "role"),
    "constraint-addition": ("facts", "format", "priority"),
    "task-decomposition": ("steps", "check"),
}
"""Operator → its properties in ``shop``; in other worlds it has none."""
_TAGGED: Final = {
    name: re.compile(rf"<{name}>(.*?)</{name}>", re.DOTALL)
    for name in ("operator", "prompt", "failures")
}
_N_PROMPTS: Final = re.compile(r"^Write (\d+) prompts ", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """Writer of a run. It knows the wording of properties, but not which ones help."""

    world: World
    rng: np.random.Generator

    def edit(self, operator: str, parents: Sequence[str], shown: str = "") -> str:
        """Return an operator's prompt.

        Args:
            operator: ``reflect`` reads symptoms, ``blind`` adds any properties; others as in the engine.
            parents: One prompt, or two to merge.
            shown: Text of the failures.
        """
        listed = sentences_of(parents[0]) if parents else [self.world.start]
        if operator == "context-reduction":
            first, *rest = listed
            return self._lossy(
                [first, *(s for s in rest if not (self._is_filler(s) and self._succeeds()))]
            )
        there = {self.world.property_of(sentence) for sentence in listed}
        if operator == "merge" and len(parents) > 1:
            added = [
                sentence
                for sentence in sentences_of(parents[1])
                if not self._is_filler(sentence)
                and self.world.property_of(sentence) not in there
                and self._succeeds()
            ]
            at_end = 0.0
        else:
            added, at_end = (
                [self._sentence(n) for n in self._wanted(operator, shown, there)],
                _AT_END,
            )
        for sentence in added:
            is_last = self.rng.random() < at_end
            listed.insert(
                len(listed) if is_last else int(self.rng.integers(1, len(listed) + 1)), sentence
            )
        return self._lossy(listed)

    def _wanted(self, operator: str, shown: str, there: set[str | None]) -> list[str]:
        """Return the properties that an edit adds."""
        properties = self.world.properties
        if operator in ("reflect", "induce"):
            places = {name: shown.find(p.symptom) for name, p in properties.items()}
            names = sorted((n for n, at in places.items() if at >= 0), key=places.__getitem__)
            return [name for name in names if name not in there][:N_EDITED]
        pool = [n for n in OF_OPERATOR.get(operator, ()) if n in properties] or [*properties]
        lacking = [name for name in pool if name not in there]
        return [*map(str, self.rng.permutation(lacking)[:N_EDITED])]

    def _sentence(self, name: str) -> str:
        """Return the sentence from an attempt to write a property."""
        if self._succeeds():
            return str(self.rng.choice(self.world.properties[name].sentences))
        return self._filler()

    def _lossy(self, listed: list[str]) -> str:
        if len(listed) > 2 and self.rng.random() < LOSS:
            listed.pop(int(self.rng.integers(1, len(listed))))
        return " ".join(listed)

    def _is_filler(self, sentence: str) -> bool:
        return self.world.property_of(sentence) is None

    def _filler(self) -> str:
        return str(self.rng.choice(FILLERS))

    def _succeeds(self) -> bool:
        return bool(self.rng.random() < SUCCESS)

    def answer(self, content: str) -> str:
        """Answer a request of the engine."""
        tagged = {name: pattern.findall(content) for name, pattern in _TAGGED.items()}
        n = _N_PROMPTS.search(content)
        texts = [
            self.edit(tagged["operator"][0].strip(), tagged["prompt"], "".join(tagged["failures"]))
            for _ in range(int(n[1]) if n else 1)
        ]
        return "<diagnosis>as shown</diagnosis>" + "".join(
            f"<prompt>{text}</prompt>" for text in texts
        )
