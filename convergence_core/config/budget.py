"""``budget``, ``cache``, ``prices``, ``llm``: what calls may cost, and who answers for judges."""

import re
from typing import Any, Literal, TypeAlias

from pydantic import Field, model_validator

from convergence_core.config.base import EnvName, Section, Text

EPOCH_PATTERN = r"^(run|off|forever|[1-9][0-9]{0,4}[smhdw])$"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}

Epoch: TypeAlias = Literal["run", "off", "forever"]

LLM_PROVIDERS = ("openai", "azure", "groq", "gemini")
"""Providers that the name of a judge's model may begin with."""


def provider_of(model: object) -> str | None:
    """Return the provider that a model's name begins with; ``None``: it names none."""
    found = re.match(rf"({'|'.join(LLM_PROVIDERS)})/.", model) if isinstance(model, str) else None
    return found[1] if found else None


class BudgetConfig(Section):
    """What a run may spend: over its targets, judges and all other calls together."""

    max_usd: float | None = Field(default=None, gt=0, le=1e9)
    """US dollars at most. Before each call its worst case is reserved. Absent: no limit."""
    max_calls: int | None = Field(default=None, ge=1, le=10**15)
    """Calls at most, retries included. Absent: no limit."""
    max_tokens: int | None = Field(default=None, ge=1, le=10**15)
    """Tokens at most, prompts and answers. Absent: no limit."""
    max_minutes: float | None = Field(default=None, gt=0, le=525_600)
    """Minutes of work at most, from when the run begins or goes on: what Prefect needs to start does
    not count, nor does the time between a stop and its resume. Absent: no limit."""
    allow_unknown_prices: bool = False
    """Whether calls whose price is unknown may be made under `max_usd`; they count as nothing
    there, and are counted apart."""


class CacheConfig(Section):
    """Which stored answers are used again; a plain `7d` stands for `{epoch: 7d}`."""

    epoch: str = Field(default="run", pattern=EPOCH_PATTERN)
    """`run`: answers of this run (also after a resume); `off`: of the same evaluation only, after
    a resume; `forever`: of any run in this store; a duration like `7d` or `12h`: of any run, if
    they are not older when this run begins. Failures are never used again."""

    @property
    def shared(self) -> bool:
        """Whether answers of other runs may be used."""
        return self.epoch not in ("run", "off")

    @property
    def max_age_s(self) -> float | None:
        """Age in seconds beyond which an answer of another run is not used; ``None``: none."""
        found = re.fullmatch(r"([0-9]+)([smhdw])", self.epoch)
        return None if found is None else float(found[1]) * _SECONDS[found[2]]


class PriceConfig(Section):
    """Prices of one model, or of a kind of target (`http`, `function`, by `request` only)."""

    input: float | None = Field(default=None, ge=0, le=1e9)
    """US dollars per million tokens of the prompt; stands beside `output`."""
    output: float | None = Field(default=None, ge=0, le=1e9)
    """US dollars per million tokens of the answer, reasoning included."""
    cached_input: float | None = Field(default=None, ge=0, le=1e9)
    """The same for tokens of the prompt read from the provider's cache. Absent: as `input`."""
    cache_write: float | None = Field(default=None, ge=0, le=1e9)
    """The same for tokens of the prompt written to the provider's cache. Absent: as `input`."""
    request: float | None = Field(default=None, ge=0, le=1e9)
    """US dollars for each request, whatever its length. Absent: as the shipped table says, or
    none."""
    batch_factor: float | None = Field(default=None, ge=0, le=1)
    """What batch requests cost relative to others. Absent: there is no batch price."""
    max_output_tokens: int | None = Field(default=None, ge=1)
    """Longest answer of the model; bounds a call that sets no limit of its own."""


class LlmConfig(Section):
    """A chat model that judges, behind an OpenAI-compatible endpoint."""

    model: Text
    """Name of the model; a leading `openai/`, `azure/`, `groq/` or `gemini/` names the provider."""
    endpoint: Text | None = None
    """URL. Absent: that of the provider which `model` names; `azure` has none. The original's
    `base_url` is read too."""
    api_key_env: EnvName | None = None
    """Environment variable that holds the key. Absent: no key is sent, which only an `endpoint` of
    your own can do without."""
    temperature: float | None = Field(default=0.0, ge=0, le=2)
    """How random its answers are. `null`: not sent, for models that refuse it."""
    max_tokens: int = Field(default=500, ge=1, le=1_000_000)
    """Longest answer, in tokens."""
    timeout_seconds: float = Field(default=60.0, gt=0, le=86_400)
    """Longest duration of one call, in seconds."""
    max_response_bytes: int = Field(default=10_000_000, ge=1_000, le=1_000_000_000)
    """Most bytes of an answer, after decompression; a larger one is not read to its end."""
    parallel_workers: int = Field(default=4, ge=1, le=512)
    """Calls in flight at most."""

    @model_validator(mode="before")
    @classmethod
    def _empty_is_absent(cls, value: Any) -> Any:
        """As elsewhere, but a temperature left empty is one that is not sent."""
        if not isinstance(value, dict):
            return value
        known = cls.model_fields.keys() - {"temperature"}
        return {key: item for key, item in value.items() if item is not None or key not in known}
