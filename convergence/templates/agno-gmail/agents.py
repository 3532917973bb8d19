"""An agent that manages a Gmail mailbox."""

import json
from typing import Any

from agno.agent import Agent
from agno.tools.google.gmail import GmailTools
from gmail_service import service
from google.auth.transport.requests import Request
from google.oauth2.credentials import Credentials
from google_auth_httplib2 import AuthorizedHttp
from googleapiclient.discovery import build
from googleapiclient.http import HttpRequest
from httplib2 import Http

REAL = "https://gmail.googleapis.com"
NAME = "GMAIL_AUTHORIZED_USER"
READING = {"get_emails_from_user", "get_latest_emails", "get_unread_emails", "search_emails"}
WRITING = {"send_email", "create_draft_email"}
TOOLS = {"writing": WRITING, "reading": READING, "all": READING | WRITING}


class OneRequest(HttpRequest):
    """A request with its own connection, because the client's serves only one thread.

    Agents call tools concurrently.
    """

    def __init__(self, http: AuthorizedHttp, *args: Any, **more: Any) -> None:
        super().__init__(AuthorizedHttp(http.credentials, http=Http()), *args, **more)

    def execute(self, *args: Any, **more: Any) -> Any:
        """Send the request and close the connection."""
        try:
            return super().execute(*args, **more)
        finally:
            self.http.close()


def make(params: dict[str, Any], context: Any) -> Agent:
    """Return an agent with Gmail's tools: simulated unless the configuration lists credentials."""
    is_real = NAME in context.secrets
    if is_real:
        creds = Credentials.from_authorized_user_info(json.loads(context.secret(NAME)))
        creds.refresh(Request())
    else:
        creds = Credentials(token=service.new_token())
    tools = GmailTools(
        creds=creds, include_tools=sorted(TOOLS[params["toolkit"]]), add_instructions=False
    )
    url = REAL if is_real else service.url
    # The toolkit cannot set the address of Google's client, so this function builds the client.
    tools._service = build(
        "gmail",
        "v1",
        http=AuthorizedHttp(creds, http=Http()),
        requestBuilder=OneRequest,
        client_options={"api_endpoint": url},
    )
    if not is_real:
        context.rewrite(url, REAL)
    return Agent(
        model=context.model(temperature=params["temperature"]),
        instructions=params["instructions"],
        tools=[tools],
    )
