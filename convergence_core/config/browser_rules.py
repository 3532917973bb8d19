"""Rules of browser sessions: the fields of Browserbase's request that creates one.

Field names, choices and bounds are those of ``POST /v1/sessions`` as the provider's SDK 1.22 has them.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from convergence_core.config.api import ApiConfig
from convergence_core.config.problems import Report, guessed, listing
from convergence_core.config.secrecy import shown
from convergence_core.config.source import Path
from convergence_core.records import Json

MIN_SESSION_S: Final = 60
"""Shortest time-out of a session, in seconds."""
MAX_SESSION_S: Final = 21_600
"""Longest time-out of a session, in seconds."""
REGIONS: Final = ("us-west-2", "us-east-1", "eu-central-1", "ap-southeast-1")

_SYSTEMS = ("windows", "mac", "linux", "mobile", "tablet")
_PLACEHOLDER = re.compile(r"\{[A-Za-z_]")
_Rule: TypeAlias = Callable[[Json], str | None]
"""Returns what a value must be; ``None``: it is."""


@dataclass(frozen=True, slots=True)
class SessionProblem:
    """A field of a session's request that breaks a rule."""

    path: tuple[str, ...]
    rule: str
    fix: str
    value: Json = None
    of_key: bool = False
    """Whether the field itself may not stand there."""

    @property
    def told(self) -> str:
        """The problem as one sentence."""
        value = "" if self.of_key else f", but got {shown(self.value)}"
        return f"`{'.'.join(self.path)}` {self.rule}{value}. {self.fix}"


def _truth(value: Json) -> str | None:
    return None if isinstance(value, bool) else "must be true or false"


def _text(value: Json) -> str | None:
    return None if isinstance(value, str) and value else "must be a text"


def _whole(low: int, high: int) -> _Rule:
    def rule(value: Json) -> str | None:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return None if is_whole and low <= value <= high else f"must be {low} to {high}, whole"  # type: ignore[operator]  # a number

    return rule


def _one_of(*choices: str) -> _Rule:
    return lambda value: None if value in choices else f"must be one of {', '.join(choices)}"


def _texts(value: Json) -> str | None:
    is_list = isinstance(value, list) and all(isinstance(item, str) for item in value)
    return None if is_list else "must be a list of texts"


def _proxies(value: Json) -> str | None:
    if isinstance(value, bool):
        return None
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        return "must be true, false or a list of proxies"
    if any("password" in item for item in value if isinstance(item, Mapping)):
        return "must hold no password, which would be stored with the request"
    return None


_FIELDS: Mapping[str, "_Rule | Mapping[str, _Rule | Mapping[str, _Rule]]"] = {
    "browserSettings": {
        **dict.fromkeys(
            (
                *("advancedStealth", "blockAds", "ignoreCertificateErrors", "logSession"),
                *("recordSession", "solveCaptchas", "verified"),
            ),
            _truth,
        ),
        **dict.fromkeys(
            ("captchaImageSelector", "captchaInputSelector", "extensionId"),
            _text,
        ),
        "allowedDomains": _texts,
        "context": {"id": _text, "persist": _truth},
        "os": _one_of(*_SYSTEMS),
        "viewport": {"width": _whole(1, 10_000), "height": _whole(1, 10_000)},
    },
    "extensionId": _text,
    "keepAlive": _truth,
    "projectId": _text,
    "proxies": _proxies,
    "proxySettings": {"caCertificates": _texts},
    "region": _one_of(*REGIONS),
    "timeout": _whole(MIN_SESSION_S, MAX_SESSION_S),
}
"""Fields of a session and their rules; ``userMetadata`` holds the mark by which sessions are swept."""


def session_problems(body: Json) -> Iterator[SessionProblem]:
    """Yield what is wrong with the request of a session; placeholders are taken for right.

    Args:
        body: as written, or with its placeholders filled.
    """
    yield from _problems_of({} if body is None else body, _FIELDS, ())


def _problems_of(
    value: Json,
    fields: Mapping[str, "_Rule | Mapping[str, _Rule | Mapping[str, _Rule]]"],
    path: tuple[str, ...],
) -> Iterator[SessionProblem]:
    if not isinstance(value, dict):
        yield SessionProblem(path, "must be a mapping", "Write fields of a session.", value)
        return
    for key, item in value.items():
        here = (*path, key)
        known = fields.get(key)
        if known is None:
            fix = guessed(key, list(fields), f"Known are {listing(sorted(fields))}.")
            if here == ("userMetadata",):
                fix = "Remove it: a run marks its sessions there, to find and release them."
            yield SessionProblem(here, "is no field of a Browserbase session", fix, of_key=True)
        elif isinstance(item, str) and _PLACEHOLDER.search(item):
            continue
        elif isinstance(known, Mapping):
            yield from _problems_of(item, known, here)
        elif (rule := known(item)) is not None:
            yield SessionProblem(here, rule, "Correct or remove it.", item)


def check_session(api: ApiConfig, report: Report) -> None:
    """Check the session that a target of kind ``browserbase`` asks for, and that it has a script."""
    if api.function is None:
        fix = "Add `function:` with the script, e.g. `scrape.py:run`."
        report.require("api.function", "by kind `browserbase`", fix, about=("api.kind",))
    for problem in session_problems(api.request.body):
        at: Path = ("api", "request", "body", *problem.path)
        value = "" if problem.of_key else shown(problem.value)
        report.add(at, problem.rule, problem.fix, value=value, of_key=problem.of_key)
