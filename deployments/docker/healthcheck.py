"""Health check of a container: exit code 0 if ``HEALTH_URL`` answers or is unset.

A refusal (401 of the HTTP API, which always requires a token) also counts as an answer.
"""

import os
import sys
import urllib.error
import urllib.request

_BROKEN = 500


def main() -> int:
    """Send one request and return the exit code."""
    url = os.environ.get("HEALTH_URL", "")
    if not url:
        return 0
    try:
        with urllib.request.urlopen(url, timeout=8) as answer:  # noqa: S310 - the container's address
            return int(answer.status >= _BROKEN)
    except urllib.error.HTTPError as error:
        return int(error.code >= _BROKEN)
    except OSError:
        return 1


if __name__ == "__main__":
    sys.exit(main())
