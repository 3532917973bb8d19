"""Flow runs that wait for a person, and a person who has answered elsewhere."""

from typing import Literal, TypeAlias

Release: TypeAlias = Literal["released", "nobody", "unreachable"]
"""``nobody``: that flow run waits for nothing, or no server is known."""


def release(flow_run_id: str) -> Release:
    """Let a flow run go on that waits for an adoption which has happened."""
    from tasks.prefect_support.settings import prepare  # noqa: PLC0415 - must come before Prefect

    prepare(quiet=True)
    from deployments.nightly import services  # noqa: PLC0415 - takes a second

    url = services.api_url()
    if url is None:
        return "nobody"
    import httpx  # noqa: PLC0415 - comes with Prefect's client
    from prefect.exceptions import ObjectNotFound  # noqa: PLC0415 - takes seconds
    from prefect.settings import PREFECT_API_URL, temporary_settings  # noqa: PLC0415 - as above

    from tasks.run.approval import release as release_there  # noqa: PLC0415 - as above

    with temporary_settings(updates={PREFECT_API_URL: url}):
        try:
            return "released" if release_there(flow_run_id) else "nobody"
        except ObjectNotFound:  # it belongs to another server
            return "nobody"
        except httpx.TransportError:
            return "unreachable"
