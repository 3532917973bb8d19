"""Bearer tokens with scopes, named by environment variables.

The registry stores a token's SHA-256, so neither memory nor the time of a comparison reveals it.
The service refuses to start with weak tokens, its only lock.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from convergence_core.errors import ConfigurationError, Problem
from tasks.secrets.process_redaction import hide
from tasks.secrets.redaction import Redactor

Scope = Literal["select", "update", "chat", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
LEAST_LENGTH = 32
"""Minimum characters of a token; 43 hold 256 bits in base 64."""
LEAST_VARIETY = 10
"""Minimum number of different characters in a token."""
_FIX = (
    'Make one with `python -c "import secrets; print(secrets.token_urlsafe(32))"` and export it '
    "under that name."
)


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token and its scopes."""

    name: str
    """Name of the environment variable."""
    scopes: frozenset[Scope]

    def may(self, *scopes: Scope) -> bool:
        """Return whether the token has one of these scopes; ``admin`` implies all."""
        return "admin" in self.scopes or not self.scopes.isdisjoint(scopes)


class TokenRegistry:
    """Known tokens."""

    def __init__(self, by_secret: Mapping[str, Token]) -> None:
        """Store the digest of each secret."""
        self._by_digest = {_digest(secret.encode()): token for secret, token in by_secret.items()}

    def of(self, authorization: bytes | None) -> Token | None:
        """Return the token of an ``Authorization`` header; ``None`` if it is unknown."""
        if authorization is None or authorization[:7].lower() != b"bearer ":
            return None
        return self._by_digest.get(_digest(authorization[7:].strip()))


def read_tokens(
    specs: Sequence[str], environment: Mapping[str, str] | None = None
) -> TokenRegistry:
    """Return the named tokens, and redact them from everything that this process stores.

    Args:
        specs: ``NAME`` or ``NAME=scope,scope``: an environment variable and its scopes, by default
            all.
        environment: replaces the environment of the process.

    Raises:
        ConfigurationError: no token is named, or a token is unset, weak, repeated or without a
            scope.
    """
    values = os.environ if environment is None else environment
    problems: list[Problem] = []
    tokens: dict[str, Token] = {}
    if not specs:
        problems.append(_problem("must name an environment variable that holds a token", _FIX))
    for spec in specs:
        name, equals, listed = spec.partition("=")
        scopes = [scope.strip() for scope in listed.split(",")] if equals else list(SCOPES)
        secret = values.get(name, "")
        problem = _problem_of(name, scopes, secret, tokens)
        if problem is None:
            tokens[secret] = Token(name, frozenset(scope for scope in SCOPES if scope in scopes))
        else:
            problems.append(problem)
    if problems:
        raise ConfigurationError(problems)
    hide(Redactor(values=tokens))
    return TokenRegistry(tokens)


def _problem_of(
    name: str, scopes: Sequence[str], secret: str, tokens: Mapping[str, Token]
) -> Problem | None:
    unknown = ", ".join(scope for scope in scopes if scope not in SCOPES)
    if unknown:
        rule = f"must have scopes among {', '.join(SCOPES)}"
        return _problem(rule, f"Write e.g. {name}=select,update.", unknown)
    if not secret:
        return _problem("must name a variable that is set", _FIX, name)
    weakness = weakness_of(secret)
    if weakness is not None:
        return _problem(f"must name a token that is not weak: {name} {weakness}", _FIX)
    if secret in tokens:
        other = tokens[secret].name
        return _problem(f"must name different tokens; {name} and {other} are the same", _FIX)
    return None


def weakness_of(secret: str) -> str | None:
    """Return why a token is weak; ``None`` if it is strong."""
    if len(secret) < LEAST_LENGTH:
        return f"has fewer than {LEAST_LENGTH} characters"
    if not secret.isascii() or not secret.isprintable() or " " in secret:
        return "has characters that a header cannot carry"
    if len(set(secret)) < LEAST_VARIETY:
        return f"has fewer than {LEAST_VARIETY} different characters"
    half = len(secret) // 2
    if any(secret == (secret[:n] * len(secret))[: len(secret)] for n in range(1, half + 1)):
        return "repeats itself"
    return None


def _problem(rule: str, fix: str, value: str = "") -> Problem:
    return Problem(key="--token", rule=rule, value=value, fix=fix)


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()
