"""Import of production traces: CPU seconds and memory of a file of many spans."""

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tasks.inputs.foreign_cases.case_import import CaseForm, import_cases

AGENTS = 7
REPEATED = 10
"""Of this many questions one is a repetition."""


def lines(n: int) -> Iterator[str]:
    """Yield lines of the Collector's file exporter, one span of about a kilobyte each."""
    padding = "context of the question, as retrieval gave it. " * 8
    for number in range(n):
        asked = number - 1 if number % REPEATED == 1 else number
        messages = [
            {"role": "system", "parts": [{"type": "text", "content": "Answer briefly."}]},
            {"role": "user", "parts": [{"type": "text", "content": f"{padding}{asked}?"}]},
        ]
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "m",
            "gen_ai.agent.name": f"agent {number % AGENTS}",
            "gen_ai.conversation.id": f"c{number // 3}",
            "gen_ai.input.messages": json.dumps(messages),
        }
        pairs = [{"key": key, "value": {"stringValue": text}} for key, text in attributes.items()]
        span = {"name": "chat m", "traceId": f"{number:032x}", "attributes": pairs}
        yield json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}) + "\n"


def main() -> None:
    """Write the file, import it, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spans", type=int, default=1_000_000)
    n = parser.parse_args().spans
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "spans.jsonl"
        with source.open("w", encoding="utf-8") as stream:
            stream.writelines(lines(n))
        started = time.process_time()
        found = import_cases(source, Path(folder) / "cases.jsonl", CaseForm.OPENTELEMETRY)
        seconds = time.process_time() - started
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        size = source.stat().st_size / 2**20
    print(f"{n:,} spans, {size:,.0f} MB: {seconds:.0f} CPU s, {memory:.0f} MB at most")
    print(
        f"{found.n_distinct:,} distinct, {found.n_repeated:,} repeated, {found.n_written} written"
    )


if __name__ == "__main__":
    main()
