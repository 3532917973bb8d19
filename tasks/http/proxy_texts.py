"""Texts with which proxies and gateways answer in a server's place, also with status 200.

They say that the server was not reached, or had nothing there, and nothing about a candidate.
Envoy, nginx, HAProxy, Varnish, Traefik, Kubernetes' ingress, Cloudflare, AWS and ngrok write these.
"""

import re
from typing import Final

_LONGEST: Final = 2_000
"""Longer plain texts are answers: those of proxies are a line or a short page."""
_MARKUP = re.compile(r"\s*<(?:!doctype|html|head|\?xml)\b", re.IGNORECASE)
_SAID = re.compile(
    r"""^\W*(?:http/[\d.]+\s+|error[\s:]+|status[\s:]+)?(?:[45]\d\d\W+)?(?:the\s)?(?:
      upstream\s(?:connect\serror|request\stimeout|timed\sout|prematurely\sclosed|unavailable|error)
    | no\shealthy\supstream | no\s(?:cluster|route)\smatche[sd] | no\s(?:available\s)?(?:server|backend)s?\b
    | (?:stream|request|response|gateway|backend|connection)\stime(?:d\s?)?[-\s]?out
    | bad\sgateway | gateway\s(?:time-?out|error) | internal\s(?:server\s)?error | server\serror\b(?!\s[a-z])
    | service\s(?:is\s)?(?:currently\s|temporarily\s)?unavailable | temporarily\sunavailable
    | too\smany\s(?:requests|connections) | rate\slimit\sexceeded | local_rate_limited
    | server\s(?:is\s)?(?:too\sbusy|overloaded) | overloaded(?:_error)?\W*$
    | default\sbackend\s-\s404 | 404\spage\snot\sfound | fault\sfilter\sabort | rbac:\saccess\sdenied
    | connect(?:ion)?\s(?:refused|reset|error|failure|failed|closed|aborted|terminated)
    | error\scode:\s\d{3,4}\s*$ | backend\sfetch\sfailed | guru\smeditation | dns\s(?:cache|resolution)
    | client\ssent\san[ ]http\srequest\sto\san[ ]https\sserver | endpoint\srequest\stimed\sout
    | err_ngrok_\d+ | tunnel\s\S+\snot\sfound | application\s(?:error\b(?!\s[a-z])|failed\sto\srespond)
    | (?:upstream|origin)\sserver\b | econn(?:refused|reset) | socket\shang\sup
    | (?:request\s)?forbidden\s*$ | unauthorized\s*$ | not\sfound\s*$ | (?:site|page)\s(?:is\s)?under\smaintenance
    )""",
    re.IGNORECASE | re.VERBOSE,
)


def is_of_proxy(text: str) -> bool:
    """Whether a plain text is a page, or begins as what proxies say when they reach no server."""
    return _MARKUP.match(text) is not None or (
        len(text) <= _LONGEST and _SAID.match(text) is not None
    )
