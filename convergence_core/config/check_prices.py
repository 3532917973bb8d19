"""Rules of ``prices``: what an entry must tell, and of what."""

from convergence_core.config.api import CHAT_KINDS, ApiKind
from convergence_core.config.budget import PriceConfig
from convergence_core.config.models import Configuration
from convergence_core.config.report import Report
from convergence_core.config.source import Path
from convergence_core.config.tree import fields_of, is_default

_KIND: Path = ("api", "kind")
_BY_REQUEST: tuple[ApiKind, ...] = ("http", "function")
"""Kinds of target that are priced by request."""
_REQUEST_FIX = "Write only e.g. `request: 0.002`, US dollars for each request."


def check_prices(configuration: Configuration, report: Report) -> None:
    """Check each entry of ``prices``."""
    for name, price in configuration.prices.items():
        path: Path = ("prices", name)
        if name in _BY_REQUEST:
            _check_kind(name, price, configuration.api.kind, report)
        elif name in CHAT_KINDS:
            rule = "must be the name of a model, not of a provider"
            report.add(path, rule, "Write e.g. `gpt-4o-mini`.", of_key=True)
        else:
            _check_model(price, path, report)


def _check_kind(name: str, price: PriceConfig, kind: ApiKind, report: Report) -> None:
    path: Path = ("prices", name)
    if kind != name:
        rule = f"has no effect with kind `{kind}`"
        report.add(path, rule, "Remove it.", of_key=True, about=(_KIND,))
        return
    for key in fields_of(PriceConfig):
        if key != "request" and not is_default(price, key):
            rule = f"has no effect on kind `{name}`, which is priced by request"
            report.add((*path, key), rule, _REQUEST_FIX, of_key=True)
    if price.request is None:
        rule = f"is required by kind `{name}`"
        report.add((*path, "request"), rule, _REQUEST_FIX, of_key=True, about=(path,))


def _check_model(price: PriceConfig, path: Path, report: Report) -> None:
    of_tokens = ("input", "output", "cached_input", "cache_write")
    written = [key for key in of_tokens if getattr(price, key) is not None]
    lacking = [key for key in ("input", "output") if getattr(price, key) is None]
    about = ((*path, "input"), (*path, "output"))
    if written and lacking:
        rule = f"is required beside `{written[0]}`"
        fix = "Write both `input` and `output`, in US dollars per million tokens."
        report.add((*path, lacking[0]), rule, fix, of_key=True, about=about)
    elif all(is_default(price, key) for key in fields_of(PriceConfig)):
        rule = "must tell a price, or something else of the model"
        fix = "Write e.g. `{input: 0.15, output: 0.6}`, US dollars per million tokens."
        report.add(path, rule, fix, of_key=True, about=(path,))
