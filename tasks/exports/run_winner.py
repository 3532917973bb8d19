"""Configuration that a finished run recommends, with its request."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from convergence_core.config.api import CHAT_KINDS
from convergence_core.errors import ConfigurationError
from convergence_core.ports import RunRecord
from convergence_core.records import Params
from convergence_core.result import RunResult, verdict_of
from tasks.exports.winner_forms import Winner, WinnerForm, placeholder_case
from tasks.inputs.loader import Loaded, load
from tasks.secrets.redaction import Secrets, secret_name


def winner_of(
    record: RunRecord, result: RunResult, form: WinnerForm, config: Path | None
) -> Winner | None:
    """Return the recommendation of a finished run; ``None`` if there is none.

    Args:
        record: Record of the run.
        result: Result of the run.
        form: Target form; forms with a request reload the configuration.
        config: Configuration file; ``None`` means the run's own.

    Raises:
        ConfigurationError: the configuration is unreadable or now has other parameters.
    """
    if result.winner is None:
        return None
    params = dict(result.winner.params)
    request, key = None, None
    if form is WinnerForm.PROMPTFOO:
        request, key = _request_of(loaded_of(record, config), params)
    return Winner(
        system=record.name,
        note=f"{verdict_of(result).sentence} {result.title.capitalize()} by run {record.label}.",
        params=params,
        request=request,
        key_env=key,
    )


def loaded_of(record: RunRecord, config: Path | None) -> Loaded:
    """Return the current configuration of a run.

    Args:
        record: Record of the run.
        config: Configuration file; ``None`` means the run's own.

    Raises:
        ConfigurationError: it is missing or unreadable.
    """
    path = config or (None if record.config_path is None else Path(record.config_path))
    if path is None or not path.is_file():
        rule = "must name the configuration of the run, which was moved"
        fix = "Name it: `--config optimization.yaml`."
        raise ConfigurationError.of("--config", rule, fix, value=str(path or ""))
    return load(path)


def _request_of(loaded: Loaded, params: Params) -> tuple[Mapping[str, Any] | None, str | None]:
    """Return a chat model's request with these parameters, and the variable of its key."""
    from tasks.targets.chat import ChatTarget  # noqa: PLC0415 - brings httpx

    configuration = loaded.configuration
    if configuration.api.kind not in CHAT_KINDS:
        return None, None
    missing = configuration.search_space.parameters.keys() - params.keys()
    if missing:
        rule = "must have the parameters of the run, but it lacks one that is there now"
        fix = "Name the configuration as it was when the run started by --config."
        raise ConfigurationError.of("search_space.parameters", rule, fix, value=min(missing))
    target = ChatTarget(configuration, secrets=Secrets(), workers=1)
    request = target.request(params, placeholder_case(loaded.cases))
    assert isinstance(request, dict)  # noqa: S101 - made by the target
    return request, secret_name(configuration.api)
