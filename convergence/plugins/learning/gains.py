"""Information gain of a thought, at hand with and without ``await``."""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class InformationGain:
    """What a thought was worth on one outcome."""

    nats: float
    p_with: float
    """Probability of the outcome with the thought; NaN: nothing was asked."""
    p_without: float
    note: str = ""
    """How the probabilities were had; empty: they were given."""

    def __float__(self) -> float:
        """Return the gain in nats."""
        return self.nats


class PendingGain(Coroutine[Any, Any, InformationGain]):
    """A gain that is asked for when it is awaited, or when its numbers are first read.

    Without ``await`` the model is asked by an event loop of another thread, and the reader waits. A
    client that is bound to the loop it was made in needs ``await``.
    """

    def __init__(
        self,
        ask: Callable[[], Coroutine[Any, Any, InformationGain]],
        gain: InformationGain | None = None,
    ) -> None:
        """Prepare to ask; ``found``: there is nothing to ask."""
        self._ask = ask
        self._gain = gain
        self._steps: Generator[Any, None, InformationGain] | None = None

    @property
    def value(self) -> InformationGain:
        """The gain; asks for it and waits if no one has awaited it.

        Raises:
            EvaluationFault: the model failed.
        """
        if self._gain is None:
            context = contextvars.copy_context()
            with ThreadPoolExecutor(1) as pool:
                self._gain = pool.submit(context.run, asyncio.run, self._ask()).result()
        return self._gain

    @property
    def nats(self) -> float:
        """The gain."""
        return self.value.nats

    @property
    def p_with(self) -> float:
        """Probability of the outcome with the thought."""
        return self.value.p_with

    @property
    def p_without(self) -> float:
        """Probability of the outcome without."""
        return self.value.p_without

    @property
    def note(self) -> str:
        """How the probabilities were had."""
        return self.value.note

    def __float__(self) -> float:
        """Return the gain in nats."""
        return self.value.nats

    def __repr__(self) -> str:
        return f"PendingGain({'not asked yet' if self._gain is None else self._gain})"

    # -- awaited, or driven by a loop

    def __await__(self) -> Generator[Any, None, InformationGain]:
        """Ask, once however often it is awaited."""
        if self._gain is None:
            self._gain = yield from self._ask().__await__()
        return self._gain

    def _driven(self) -> Generator[Any, None, InformationGain]:
        if self._steps is None:
            self._steps = self.__await__()
        return self._steps

    def send(self, value: Any) -> Any:
        """See ``Coroutine``."""
        return self._driven().send(value)

    def throw(
        self,
        typ: type[BaseException] | BaseException,
        val: BaseException | object = None,
        tb: TracebackType | None = None,
    ) -> Any:
        """See ``Coroutine``."""
        error = typ if isinstance(typ, BaseException) else val
        if not isinstance(error, BaseException):
            error = typ() if isinstance(typ, type) else typ
        return self._driven().throw(error.with_traceback(tb))

    def close(self) -> None:
        """See ``Coroutine``."""
        if self._steps is not None:
            self._steps.close()
