"""Cases that a reviewer approved, appended to their file."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from convergence_core.errors import ConfigurationError
from convergence_core.records import Case, Json
from tasks.inputs.loader import Loaded, load
from tasks.store.layout import FILE_MODE

_KEY = "evaluation.test_cases.approved"


def input_of(prompt: str, cases: Sequence[Case], field: str | None) -> Json:
    """Return the input of a new case: the prompt where the other cases have theirs.

    Args:
        prompt: what was asked.
        cases: those that there are.
        field: of the input that holds the prompt; ``None``: as the other cases show.

    Raises:
        ConfigurationError: they do not show it.
    """
    if field is not None:
        return {field: prompt}
    shapes = [one.input for one in cases]
    if all(isinstance(one, str) for one in shapes):
        return prompt
    names = {tuple(one) if isinstance(one, dict) else () for one in shapes}
    if len(names) == 1 and len(only := names.pop()) == 1:
        return {only[0]: prompt}
    rule = "must name the field of a case's input that holds the prompt, where inputs have several"
    raise ConfigurationError.of("--field", rule, "Write e.g. `--field question`.")


def append_case(loaded: Loaded, case: dict[str, Json]) -> Path:
    """Append a case to the file of those that were approved, durably; return the file.

    One that is there already, by its id, is not appended again. Where the configuration with it would be
    refused, the file stays as it was.

    Raises:
        ConfigurationError: the configuration names no such file, or would be refused with the case.
    """
    name = loaded.configuration.evaluation.test_cases.approved
    if name is None or loaded.config_path is None:
        fix = "Add e.g. `approved: approved_cases.jsonl` below `test_cases`."
        raise ConfigurationError.of(_KEY, "must name the file that approved cases go to", fix)
    file = loaded.base_dir / name
    if case["id"] in {one.case_id for one in loaded.cases}:
        return file
    line = json.dumps(case, ensure_ascii=False) + "\n"
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, FILE_MODE)
    with os.fdopen(descriptor, "ab") as stream:
        before = stream.tell()
        stream.write(line.encode())
        stream.flush()
        os.fsync(stream.fileno())
        try:
            load(loaded.config_path)
        except ConfigurationError:
            stream.truncate(before)
            if not before:
                file.unlink()
            raise
    return file
