"""Check of an adapter's weights, read with NumPy alone.

A trainer that was killed, a full disk or a diverged loss leaves files that a server would load, or would
take down with it. Each tensor is read and held against the header of safetensors (an 8-byte length, JSON,
then the values without a gap) and PEFT's settings: A is (r, n_in), B is (n_out, r).
"""

import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from convergence_core.errors import AdapterRefusedError
from tasks.store.feedback.adapter_files import CONFIG_FILE, WEIGHTS_FILE, open_plain

_LONGEST_HEADER = 100_000_000
"""Bytes, as safetensors itself limits it."""
_LONGEST_CONFIG = 1_000_000
_TYPES: Final[Mapping[str, str]] = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
"""Type of a tensor → NumPy's; of BF16 its bits."""
_MATRIX = re.compile(r"(.+)\.lora_([AB])(?:\.default)?\.weight")
_CUT = 80
"""Characters of a name in a message."""
_Count = Annotated[int, Field(strict=True, ge=0)]


class _FaultyError(Exception):
    """What is wrong with an adapter, in words."""


class _Tensor(BaseModel):
    """Entry of a header of safetensors."""

    dtype: Literal["F64", "F32", "F16", "BF16"]
    shape: tuple[_Count, ...]
    data_offsets: tuple[_Count, _Count]
    """First byte after the header, and the end."""


_Header: Final = TypeAdapter(dict[str, _Tensor])


def weights_problem(folder: Path) -> str | None:
    """Return what is wrong with an adapter's files; ``None`` means its weights can be loaded."""
    try:
        with open_plain(folder / CONFIG_FILE) as descriptor:
            config = _object(_read(descriptor, 0, _LONGEST_CONFIG), CONFIG_FILE)
        with open_plain(folder / WEIGHTS_FILE) as descriptor:
            _check_weights(descriptor, config)
    except AdapterRefusedError as error:
        return str(error).rstrip(".")
    except _FaultyError as fault:
        return str(fault)
    return None


def _check_weights(descriptor: int, config: Mapping[str, Any]) -> None:
    if config.get("peft_type") != "LORA":
        raise _FaultyError(f"{CONFIG_FILE} must say `peft_type: LORA`")
    tensors, begin = _header(descriptor)
    ranks: dict[str, dict[str, int]] = {}
    is_changing = False
    for name, tensor in tensors:
        match = _MATRIX.fullmatch(name)
        if match is None or len(tensor.shape) != 2 or 0 in tensor.shape:
            raise _FaultyError(
                f"`{name[:_CUT]}` must be a matrix lora_A or lora_B, but has "
                f"{len(tensor.shape)} dimensions, the first ones {tensor.shape[:4]}"
            )
        values = _values(descriptor, tensor, begin)
        n_bad = int(values.size - np.count_nonzero(np.isfinite(values)))
        if n_bad:
            raise _FaultyError(
                f"{n_bad:,} of {values.size:,} values of `{name[:_CUT]}` are NaN or infinite"
            )
        layer, which = match.groups()
        ranks.setdefault(layer, {})[which] = tensor.shape[0 if which == "A" else 1]
        is_changing = is_changing or (which == "B" and bool(values.any()))
    _check_ranks(ranks, config)
    if not is_changing:
        raise _FaultyError("every lora_B is zero, so it would change nothing")


def _check_ranks(ranks: Mapping[str, Mapping[str, int]], config: Mapping[str, Any]) -> None:
    if not ranks:
        raise _FaultyError(f"{WEIGHTS_FILE} holds no weights")
    has_one_rank = not config.get("rank_pattern")
    for layer, layer_ranks in ranks.items():
        if set(layer_ranks) != {"A", "B"}:
            raise _FaultyError(f"`{layer[:_CUT]}` must have both lora_A and lora_B")
        wanted = config.get("r") if has_one_rank else layer_ranks["A"]
        if not layer_ranks["A"] == layer_ranks["B"] == wanted:
            raise _FaultyError(
                f"`{layer[:_CUT]}` must have the rank {wanted}, but lora_A has {layer_ranks['A']} and lora_B "
                f"{layer_ranks['B']}"
            )


def _header(descriptor: int) -> tuple[list[tuple[str, _Tensor]], int]:
    """Return the tensors of a file of safetensors and where their values begin."""
    size = os.fstat(descriptor).st_size
    length = int.from_bytes(_read(descriptor, 0, 8), "little")
    begin = 8 + length
    if size < 8 or length > _LONGEST_HEADER or begin > size:
        raise _FaultyError(f"{WEIGHTS_FILE} is cut off, or not a safetensors file")
    header = _object(_read(descriptor, 8, length), f"the header of {WEIGHTS_FILE}")
    header.pop("__metadata__", None)
    try:
        entries = _Header.validate_python(header)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(map(str, first["loc"]))
        raise _FaultyError(
            f"the header of {WEIGHTS_FILE} is wrong at `{name[:_CUT]}`: {first['msg']}"
        ) from None
    tensors = sorted(entries.items(), key=lambda entry: entry[1].data_offsets)
    at = 0
    for name, tensor in tensors:
        start, end = tensor.data_offsets
        n_bytes = math.prod(tensor.shape) * np.dtype(_TYPES[tensor.dtype]).itemsize
        if start != at or end - start != n_bytes:
            raise _FaultyError(
                f"`{name[:_CUT]}` must have the {n_bytes:,} bytes of its shape from {at:,} on, but has "
                f"those from {start:,} to {end:,}"
            )
        at = end
    if begin + at != size:
        raise _FaultyError(f"{WEIGHTS_FILE} must have {begin + at:,} bytes, but has {size:,}")
    return tensors, begin


def _values(descriptor: int, tensor: _Tensor, begin: int) -> "np.ndarray[Any, Any]":
    start, end = tensor.data_offsets
    data = _read(descriptor, begin + start, end - start)
    values = np.frombuffer(data, dtype=_TYPES[tensor.dtype])
    if tensor.dtype == "BF16":  # the upper half of a single
        values = (values.astype("<u4") << 16).view("<f4")
    return values


def _object(data: bytes, noun: str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise _FaultyError(f"{noun} must be a JSON object")
    return value


def _read(descriptor: int, start: int, length: int) -> bytes:
    """Return at most so many bytes; fewer where the file ends."""
    parts, at = [], start
    while at < start + length and (part := os.pread(descriptor, start + length - at, at)):
        parts.append(part)
        at += len(part)
    return b"".join(parts)
