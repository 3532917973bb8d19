"""Labels: people's own judgements of cases, which are hidden from the judge."""

import copy

from convergence_core.judges.report import JudgeMode
from convergence_core.records import Case, Json
from tasks.json_values import MISSING, Missing, parse_path, pick
from tasks.metrics.judge.verdicts import BEST

_WORDS = {"true": True, "pass": True, "yes": True, "false": False, "fail": False, "no": False}


def label_at(case: Case, path: str) -> "Json | Missing":
    """Return the label of a case, ``MISSING`` where it has none; null is none.

    Args:
        case: the test case.
        path: dotted path that begins with ``input`` or ``expected``.
    """
    found = pick({"input": case.input, "expected": case.expected}, path)
    return MISSING if found is None else found


def is_label_path(path: str) -> bool:
    """Whether a dotted path can lead to a label: it begins with ``input`` or ``expected``."""
    try:
        return parse_path(path)[0] in ("input", "expected")
    except ValueError:
        return False


def rating_of(label: Json) -> float | None:
    """Return a label as a rating from 1 to 10; ``None``: it is none. Texts may hold numbers."""
    if isinstance(label, str):
        try:
            label = float(label)
        except ValueError:
            return None
    if isinstance(label, bool) or not isinstance(label, (int, float)):
        return None
    return float(label) if 1 <= label <= BEST else None


def passed_of(label: Json) -> bool | None:
    """Return a label as pass or fail: true and false, 1 and 0, or their words; ``None``: none."""
    if isinstance(label, str):
        label = label.strip().casefold()
        return _WORDS[label] if label in _WORDS else {"1": True, "0": False}.get(label)
    if isinstance(label, (bool, int, float)) and label in (0, 1):
        return bool(label)
    return None


def is_label(mode: JudgeMode, label: Json) -> bool:
    """Whether a label is of the form of the mode; pairs have none."""
    if mode == "rating":
        return rating_of(label) is not None
    return mode == "pass_fail" and passed_of(label) is not None


def hidden(case: Case, path: str | None) -> tuple[Json, Json]:
    """Return the input and the expected value of a case without its label.

    A judge that reads the label agrees with it for the wrong reason.
    """
    if path is None or isinstance(label_at(case, path), Missing):
        return case.input, case.expected
    root: dict[str, Json] = {"input": case.input, "expected": case.expected}
    root = copy.deepcopy(root)
    *way, last = parse_path(path)
    here: Json = root
    for part in way:
        here = here[str(part)] if isinstance(here, dict) else here[int(part)]  # type: ignore[index]  # ``label_at`` went this way
    if isinstance(here, list):
        here[int(last)] = None  # the places of its neighbours stay theirs
    elif isinstance(here, dict) and here is root:
        here[str(last)] = None
    elif isinstance(here, dict):
        del here[str(last)]
    return root["input"], root["expected"]
