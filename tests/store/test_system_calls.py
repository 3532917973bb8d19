"""The order of system calls on which durability rests, as ``strace`` sees it."""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.children import run_child
from tests.support.store_rows import RUN

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("strace") is None,
    reason="needs strace",
)
UNFINISHED = " <unfinished ...>"
CALLS = "trace=fsync,fdatasync,rename,renameat,renameat2,write"


def traced(path: Path, module: str, *arguments: object) -> list[str]:
    """Run a child under strace and return its calls, one line each, with the files' paths."""
    output = path / "trace"
    # -f follows threads and -y names the files of descriptors.
    run_child(module, *arguments, prefix=("strace", "-f", "-y", "-e", CALLS, "-o", str(output)))
    return list(whole_calls(output.read_text().splitlines()))


def whole_calls(lines: list[str]) -> Iterator[str]:
    """Yield calls as they end; strace splits one during which another thread calls."""
    begun: dict[str, str] = {}
    for line in lines:
        pid = line.split()[0]
        if line.endswith(UNFINISHED):
            begun[pid] = line.removesuffix(UNFINISHED)
        elif " resumed>" in line:
            yield begun.pop(pid) + line.partition(" resumed>")[2]
        else:
            yield line


def first(lines: list[str], pattern: str, start: int = 0) -> int:
    for number, line in enumerate(lines[start:], start):
        if re.search(pattern, line):
            return number
    raise AssertionError(f"no call matches {pattern} after line {start}")


def test_a_file_is_synced_then_renamed_then_its_folder_is_synced(tmp_path):
    lines = traced(tmp_path, "tests.store.publisher", tmp_path / "store", RUN, 1, 0)
    durable = []
    for table in ("payloads", "candidates", "evaluations", "estimates", "attempts", "generations"):
        folder = rf"/live/{table}/run_id={RUN}"
        synced = first(lines, rf"fsync\(\d+<.*{folder}/\.g00000\.parquet\.\w+\.tmp>\) += 0")
        renamed = first(lines, rf"rename.*{folder}/\.g00000.*{folder}/g00000\.parquet.* = 0")
        folder_synced = first(lines, rf"fsync\(\d+<[^>]*{folder}>\) += 0", renamed)
        assert synced < renamed < folder_synced
        durable.append((synced, folder_synced))
    *others, (marker_synced, marker_durable) = durable
    assert max(end for _, end in others) < marker_synced, "the marker came before a file"
    assert marker_durable < first(lines, r'write\(1<.*"0')


def test_the_wal_is_synced_between_the_commit_and_the_acknowledgement(tmp_path):
    arguments = (tmp_path / "store", tmp_path / "paid", 3, 1)
    lines = traced(tmp_path, "tests.store.asker", *arguments)
    position = 0
    for number in range(3):
        paid = first(lines, rf'write\(\d+<.*/paid>, "{number}\\n"', position)
        claimed = first(lines, r"fsync\(\d+<.*-wal>\) += 0", position)
        assert claimed < paid, "a call was paid before its claim was durable"
        settled = first(lines, r"fsync\(\d+<.*-wal>\) += 0", paid)
        position = first(lines, rf'write\(1<.*, "{number}', paid)
        assert settled < position, "an answer was acknowledged before it was durable"
