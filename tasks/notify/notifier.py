"""Send a short text where a person reads it: to a webhook, or to one that speaks Slack's form.

An address is a secret, for whoever has it may write there. So it is named by its environment
variable, read where it is used, and no error shows it.
"""

import os
from dataclasses import dataclass
from typing import Literal, TypeAlias

import httpx

from convergence_core.errors import ConfigurationError, NotificationError, Problem
from tasks.secrets.process_redaction import hide
from tasks.secrets.redaction import Redactor

Form: TypeAlias = Literal["webhook", "slack"]
"""``webhook``: a JSON object with ``event``, ``system`` and ``text``; ``slack``: with ``text`` alone,
which Slack, Mattermost, Rocket.Chat and others take."""
TIMEOUT_S = 20.0
_HTTP_MAY_PASS = 429
_HTTP_SERVER = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What is told."""

    event: str
    """Name of what happened, e.g. ``convergence.drift``."""
    system: str
    text: str

    def body(self, form: Form) -> dict[str, str]:
        """Return what is sent."""
        if form == "slack":
            return {"text": self.text}
        return {"event": self.event, "system": self.system, "text": self.text}


def send(notice: Notice, env_name: str, form: Form) -> None:
    """Post a notice to the address that an environment variable holds.

    Raises:
        ConfigurationError: the variable is not set, or holds no address.
        NotificationError: the notice did not arrive; the error says whether it may next time.
    """
    url = os.environ.get(env_name, "").strip()
    hide(Redactor([env_name]))
    if not url.startswith(("https://", "http://")):
        rule = "must hold an address that begins with https://"
        raise ConfigurationError(
            [
                Problem(
                    key=env_name,
                    rule=rule if url else "must be set where the worker runs",
                    value="",
                    fix=f"Set it before the worker starts: `export {env_name}=https://…`.",
                )
            ]
        )
    try:
        # The answer's body says nothing that is needed, and is left where it is.
        with httpx.stream("POST", url, json=notice.body(form), timeout=TIMEOUT_S) as answer:
            status = answer.status_code
    except httpx.InvalidURL:
        raise NotificationError(
            f"{env_name}: must hold an address, but what it holds is none", may_pass=False
        ) from None
    except httpx.TransportError as error:  # its text may show the address
        raise NotificationError(
            f"{env_name}: its address cannot be reached ({type(error).__name__})", may_pass=True
        ) from None
    if not httpx.codes.is_success(status):
        may_pass = status == _HTTP_MAY_PASS or status >= _HTTP_SERVER
        raise NotificationError(f"{env_name}: its address answered {status}", may_pass=may_pass)
