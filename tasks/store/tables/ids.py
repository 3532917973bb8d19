"""Ids of runs: ULIDs, which sort by time."""

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def new_run_id(now_us: int, rng_bytes: bytes) -> str:
    """Return a ULID: 48 bits of milliseconds and 80 random bits as 26 characters.

    Args:
        now_us: microseconds since the epoch.
        rng_bytes: 10 random bytes.

    Raises:
        ValueError: not 10 bytes, or a time that 48 bits of milliseconds cannot hold.
    """
    if len(rng_bytes) != 10:
        raise ValueError(f"a run id needs 10 random bytes, but got {len(rng_bytes)}")
    milliseconds = now_us // 1_000
    if not 0 <= milliseconds < 1 << 48:
        raise ValueError(f"a run id cannot hold the time {now_us} µs")
    number = milliseconds << 80 | int.from_bytes(rng_bytes, "big")
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))


def label_of(system: str, run_id: str) -> str:
    """Return a run's short name for people, e.g. ``support_bot-7f3a``."""
    return f"{system}-{run_id[-4:].lower()}"


def begun_us(run_id: str) -> int:
    """Return when a run began by its id: microseconds since the epoch, to the millisecond below.

    Raises:
        ValueError: it is no ULID.
    """
    number = 0
    for character in run_id:
        number = number << 5 | _ALPHABET.index(character)
    return (number >> 80) * 1_000
