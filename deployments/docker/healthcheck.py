"""Health check of a container: exit code 0 where ``HEALTH_URL`` answers.

Or where there is none. A refusal (401 of the HTTP API, which wants a token for everything) is a sign of life as well.
"""

import os
import sys
import urllib.error
import urllib.request

_BROKEN = 500


def main() -> int:
    """Ask once; return the exit code."""
    url = os.environ.get("HEALTH_URL", "")
    if not url:
        return 0
    try:
        with urllib.request.urlopen(url, timeout=8) as answer:  # noqa: S310 - the container's own
            return int(answer.status >= _BROKEN)
    except urllib.error.HTTPError as error:
        return int(error.code >= _BROKEN)
    except OSError:
        return 1


if __name__ == "__main__":
    sys.exit(main())
