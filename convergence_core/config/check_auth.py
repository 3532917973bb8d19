"""Rules of ``api.auth`` and of the headers beside it."""

import re

from convergence_core.config.api import ApiConfig, AuthConfig
from convergence_core.config.report import Report
from convergence_core.config.secrecy import has_known_secret
from convergence_core.config.shown import shown
from convergence_core.config.source import Path
from convergence_core.config.tree import is_default

_KIND: Path = ("api", "kind")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def check_auth(api: ApiConfig, report: Report) -> None:
    """Check what each type of authentication needs, and that no header is sent twice."""
    if api.kind != "function":
        _check_keys(api.auth, report)
    _check_headers(api, report)


def _check_keys(auth: AuthConfig, report: Report) -> None:
    path: Path = ("api", "auth")
    kind: tuple[Path, ...] = ((*path, "type"), _KIND)
    needs = {
        "none": (),
        "bearer": ("token_env",),
        "api_key": ("token_env",),
        "basic": ("username", "password_env"),
    }[auth.type]
    for key in needs:
        if getattr(auth, key) is None:
            rule = f"is required by auth type `{auth.type}`"
            fix = f"Add `{key}:` with the name of an environment variable, e.g. `API_KEY`."
            if key == "username":
                fix = "Add `username:`."
            report.add((*path, key), rule, fix, of_key=True, about=kind)
    uses = {*needs, "header_name"} if auth.type == "api_key" else set(needs)
    for key in ("token_env", "header_name", "username", "password_env"):
        if key in uses or is_default(auth, key):
            continue
        if auth.type == "none" and "type" in auth.model_fields_set and key == "token_env":
            continue  # the original demanded it even then
        rule = f"has no effect with auth type `{auth.type}`"
        wanted = "basic" if key in {"username", "password_env"} else "api_key"
        fix = f"Write `type: {wanted}`, or remove it."
        if key == "token_env":
            fix = "Write `type: bearer` or `type: api_key`, or remove it."
        report.add((*path, key), rule, fix, of_key=True, about=kind)


def _check_headers(api: ApiConfig, report: Report) -> None:
    auth_header = {"bearer": "authorization", "basic": "authorization"}.get(api.auth.type, "")
    if api.auth.type == "api_key":
        auth_header = api.auth.header_name.lower()
    seen: dict[str, str] = {}
    for name, value in api.request.headers.items():
        path: Path = ("api", "request", "headers", name)
        if _HEADER_NAME.fullmatch(name) is None:
            rule = "must be the name of an HTTP header"
            report.add(path, rule, "Use letters, digits and `-`.", of_key=True)
        if re.search(r"[\r\n\0]", value) or not (value.isascii()):
            rule, fix = "must be one line of ASCII text", "Remove line breaks and other letters."
            report.add(
                path, rule, fix, value="" if has_known_secret(value) else shown(value, name)
            )
        if name.lower() in seen:
            rule = f"must be written once, but `{seen[name.lower()]}` is the same header"
            report.add(path, rule, "Remove one of them.", of_key=True)
        elif name.lower() == auth_header:
            rule = f"must not stand beside `api.auth`, whose type `{api.auth.type}` sets it"
            report.add(path, rule, "Remove it.", of_key=True, about=(("api", "auth"),))
        seen[name.lower()] = name
