"""Rows of files that other tools export, read one after the other."""

import csv
import gzip
import io
import json
import os
import struct
import sys
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import orjson

from tasks.inputs.foreign_cases.case_forms import SkippedCaseError
from tasks.json_values import NotJsonError, to_json
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line
from tasks.version import install_command

MAX_LINE = 64 * 2**20
"""Bytes of a line; a longer one is left out."""
MAX_DOCUMENT = 2**30
"""Bytes of a file that is one JSON document, which is held in memory whole."""
_LIST_KEYS = ("data", "examples", "items", "samples")
_ZSTD = 93
"""Zstandard, among the methods of zip files."""
_LOCAL_HEADER = 30
"""Bytes of a member's header before its name."""
_LINES = (".jsonl", ".ndjson", ".log")


class MissingPackageError(ValueError):
    """A file needs a package that is not installed."""

    def __init__(self) -> None:
        super().__init__(
            f"is compressed by Zstandard: run `{install_command('inspect')}`, or convert it by "
            "`inspect log convert --to json`"
        )


def rows_of(path: Path) -> Iterator[Any]:
    """Yield the rows of a file: JSON lines, a JSON list, CSV or parquet; ``.gz`` of these.

    A row that cannot be read is yielded as the reason, a ``SkippedCaseError``.

    Raises:
        ValueError: the file holds no rows.
        OSError: it cannot be read.
    """
    name = path.name.lower().removesuffix(".gz")
    if name.endswith(".parquet"):
        yield from _of_frame(path)
        return
    with _opened(path) as stream:
        if name.endswith((".csv", ".tsv")):
            yield from _of_table(stream, "\t" if name.endswith(".tsv") else ",")
        elif name.endswith(_LINES) or _is_lines(path):
            yield from _of_lines(stream)
        else:
            yield from _of_document(stream)


def _opened(path: Path) -> IO[bytes]:
    stream: Any = gzip.open if path.name.lower().endswith(".gz") else open
    return stream(path, "rb")  # type: ignore[no-any-return]  # both read bytes


def _is_lines(path: Path) -> bool:
    """Whether the first line of a ``.json`` file is JSON by itself, and others follow."""
    with _opened(path) as stream:
        first, second = stream.readline(MAX_LINE), stream.readline(16)
    try:
        return bool(second.strip()) and isinstance(orjson.loads(first), dict)
    except orjson.JSONDecodeError:
        return False


def _of_lines(stream: IO[bytes]) -> Iterator[Any]:
    number = 0
    while line := stream.readline(MAX_LINE):
        number += 1
        if len(line) >= MAX_LINE and not line.endswith(b"\n"):
            while (more := stream.readline(MAX_LINE)) and not more.endswith(b"\n"):
                continue
            yield SkippedCaseError(f"a line of more than {MAX_LINE // 2**20} MB")
        elif not line.isspace():
            try:
                yield orjson.loads(line)
            except orjson.JSONDecodeError:
                yield SkippedCaseError("a line is no JSON")


def _of_document(stream: IO[bytes]) -> Iterator[Any]:
    content = stream.read(MAX_DOCUMENT + 1)
    if len(content) > MAX_DOCUMENT:
        raise ValueError("is one JSON document of more than 1 GB; export JSON lines")
    try:
        found = orjson.loads(content.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as error:
        raise ValueError(f"must be JSON: {error.msg} (line {error.lineno})") from None
    del content
    if isinstance(found, dict):
        lists = [found[key] for key in _LIST_KEYS if isinstance(found.get(key), list)]
        found = lists[0] if lists else [found]
    if not isinstance(found, list):
        raise ValueError("must hold a list of rows")
    yield from found


def _of_table(stream: IO[bytes], delimiter: str) -> Iterator[Any]:
    csv.field_size_limit(min(MAX_LINE, sys.maxsize))
    with io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
        for row in csv.DictReader(text, delimiter=delimiter):
            if None in row or None in row.values():
                yield SkippedCaseError("a line has another number of columns than the first")
            else:
                yield {name: _cell(value) for name, value in row.items() if value}


def _cell(value: str) -> Any:
    """Return a cell, decoded where it is a JSON object, list or text."""
    if value[:1] in ("{", "[", '"'):
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return value
    return value


def _of_frame(*paths: Path, is_arrow: bool = False) -> Iterator[Any]:
    import polars as pl  # noqa: PLC0415 - only those who have such files pay for it

    for path in paths:
        try:
            frame = pl.read_ipc_stream(path) if is_arrow else pl.read_parquet(path)
        except (pl.exceptions.PolarsError, OSError) as error:
            kind = "an Arrow stream" if is_arrow else "parquet"
            raise ValueError(
                f"{path.name} must be {kind}: {one_line(str(error), 200, redacted_text)}"
            ) from None
        for row in frame.iter_rows(named=True):
            try:
                yield {name: to_json(value) for name, value in row.items()}
            except NotJsonError:
                yield SkippedCaseError("a value that JSON cannot carry, such as an image")


# -- Inspect


def inspect_samples(path: Path) -> Iterator[Any]:
    """Yield the samples of a log of Inspect, ``.eval`` or ``.json``.

    Raises:
        ValueError: it is no log.
        MissingPackageError: it is compressed by a method that needs a package.
        OSError: it cannot be read.
    """
    if path.suffix != ".eval":
        yield from rows_of(path)
        return
    try:
        with path.open("rb") as stream, zipfile.ZipFile(path) as log:
            for info in sorted(log.infolist(), key=lambda one: one.filename):
                if info.filename.startswith("samples/") and info.filename.endswith(".json"):
                    yield _member(log, stream, info)
    except zipfile.BadZipFile:
        raise ValueError("must be a log of Inspect, a zip file") from None


def _member(log: zipfile.ZipFile, stream: IO[bytes], info: zipfile.ZipInfo) -> Any:
    if info.file_size > MAX_DOCUMENT:
        return SkippedCaseError("a sample of more than 1 GB")
    try:
        content = _of_zstd(stream, info) if info.compress_type == _ZSTD else log.read(info)
        # Scores of a log may be NaN, which is no JSON.
        return json.loads(content, parse_constant=lambda _: None)
    except (ValueError, zipfile.BadZipFile):
        return SkippedCaseError("a sample is no JSON")


def _of_zstd(stream: IO[bytes], info: zipfile.ZipInfo) -> bytes:
    """Return a member that is compressed by Zstandard, which Python's zipfile reads from 3.14 on.

    Raises:
        MissingPackageError: the package that decompresses it is missing.
        BadZipFile: it is damaged.
    """
    try:
        import zstandard  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingPackageError from None
    stream.seek(info.header_offset)
    header = stream.read(_LOCAL_HEADER)
    n_name, n_extra = struct.unpack("<HH", header[26:])
    stream.seek(n_name + n_extra, os.SEEK_CUR)
    try:
        found = (
            zstandard.ZstdDecompressor()
            .decompressobj()
            .decompress(stream.read(info.compress_size))
        )
    except zstandard.ZstdError:
        raise zipfile.BadZipFile from None
    if len(found) != info.file_size or zlib.crc32(found) != info.CRC:
        raise zipfile.BadZipFile
    return found


# -- Hugging Face


def hugging_face_rows(folder: Path, split: str | None) -> Iterator[Any]:
    """Yield the rows of a dataset on disk: what ``save_to_disk`` wrote, or a folder of files.

    Raises:
        ValueError: it is no such folder, or it has several splits and none is named.
        OSError: it cannot be read.
    """
    if folder.is_file():
        yield from rows_of(folder)
        return
    if (folder / "dataset_dict.json").is_file():
        names = orjson.loads((folder / "dataset_dict.json").read_bytes())["splits"]
        folder /= _chosen(split, names)
    if (folder / "state.json").is_file():
        state = orjson.loads((folder / "state.json").read_bytes())
        if state.get("_indices_data_files"):
            raise ValueError("has an index of rows; call `flatten_indices()` before it is saved")
        yield from _of_frame(
            *(folder / one["filename"] for one in state["_data_files"]), is_arrow=True
        )
        return
    suffixes = (".parquet", ".jsonl", ".json", ".csv", ".tsv", ".gz")
    files = sorted(file for file in folder.rglob("*") if file.suffix in suffixes)
    by_split: dict[str, list[Path]] = {}
    for file in files:
        by_split.setdefault(file.name.split(".")[0].split("-")[0], []).append(file)
    if not by_split:
        raise ValueError("must be a dataset on disk: a folder with state.json, or data files")
    for file in by_split[_chosen(split, list(by_split))]:
        yield from rows_of(file)


def _chosen(split: str | None, names: list[str]) -> str:
    if split is None and len(names) == 1:
        return names[0]
    if split not in names:
        asked = "has several splits" if split is None else f"has no split {split!r}"
        raise ValueError(f"{asked}; name one by --split: {', '.join(names)}")
    return split
