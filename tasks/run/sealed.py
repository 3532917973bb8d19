"""Values that pass through Prefect unread."""

from typing import Generic, TypeVar

T = TypeVar("T")


class Sealed(Generic[T]):
    """Carries a value into a task as it is.

    Prefect walks every task input in search of futures, through lists, mappings and dataclasses; a
    generation's trials hold tens of thousands of values and no future.
    """

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __repr__(self) -> str:
        """Say what is inside without showing it, for it may be long or private."""
        return f"Sealed({type(self.value).__name__})"
