"""Files that a page offers for download."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFile:
    """One file."""

    name: str
    content: bytes
    media_type: str
