"""Addresses of object storage on loopback, each with the environment that leads to it.

``s3://`` and ``gs://`` are spoken by a server of ours, ``s3://`` also by moto's and ``az://`` by Azurite,
which is Microsoft's; the last two are asked where they are installed.
"""

import base64
import hashlib
import hmac
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import formatdate
from functools import cache
from pathlib import Path
from typing import Any, Final

import httpx

from tests.support.object_server import ObjectServer, object_server

SECRET: Final = "s3cr3t/5e2b61f0a9"  # noqa: S105 - of servers that live as long as the tests
CLIENT_EMAIL: Final = "tester@project.example"
AZURE_KEY: Final = base64.b64encode(SECRET.encode()).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """An empty bucket, as Azure says: container."""

    url: str
    """Where a store may begin in it."""
    environment: Mapping[str, str] = field(repr=False)
    """What a process must have in its environment to use it."""
    server: ObjectServer | None = None
    """What serves it, if that is ours."""

    @property
    def store(self) -> Any:
        """A client of its own, which looks at what is there."""
        from obstore.store import from_url

        return from_url(self.url, client_options={"allow_http": True})

    def objects(self) -> dict[str, tuple[str, datetime]]:
        """Return each object's name, entity tag and time: a PUT of the same bytes changes one."""
        found = (one for page in self.store.list() for one in page)
        return {one["path"]: (one["e_tag"], one["last_modified"]) for one in found}


@contextmanager
def our_place(scheme: str, folder: Path) -> Iterator[Place]:
    """Serve ``s3`` or ``gs`` ourselves."""
    with object_server(scheme) as (server, endpoint):
        known = _for_s3(endpoint) if scheme == "s3" else _for_google(endpoint, folder)
        yield Place(url=f"{scheme}://results/nightly", environment=known, server=server)


def _for_s3(endpoint: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "tester",
        "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1",
    }  # fmt: skip


def _for_google(endpoint: str, folder: Path) -> dict[str, str]:
    """Write a service account's file, with whose key the client signs its token."""
    account = {
        "type": "service_account", "client_email": CLIENT_EMAIL, "private_key_id": "1",
        "private_key": private_key(),
    }  # fmt: skip
    path = folder / "service-account.json"
    path.write_text(json.dumps(account))
    return {"GOOGLE_BASE_URL": endpoint, "GOOGLE_SERVICE_ACCOUNT": str(path)}


@cache
def private_key() -> str:
    """Return a key of RSA as PEM, the same one in all of a process."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    return (
        rsa.generate_private_key(65537, 2048)
        .private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        .decode()
    )


def azurite() -> str | None:
    """Return the command of Azurite's blob service; ``None``: it is not installed."""
    return shutil.which(os.environ.get("AZURITE", "azurite-blob"))


@contextmanager
def azure_server() -> Iterator[str]:
    """Serve blobs, kept in memory; give the endpoint of an account."""
    command = azurite()
    assert command is not None
    process = subprocess.Popen(
        [
            command, "--inMemoryPersistence", "--silent", "--disableTelemetry",
            "--blobHost", "127.0.0.1", "--blobPort", "0",
        ],
        env={**os.environ, "AZURITE_ACCOUNTS": f"tester:{AZURE_KEY}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        told = ""
        while (found := re.search(r"listens on (http://\S+)", told)) is None:
            line = process.stdout.readline()
            assert line, f"Azurite ended: {told}"
            told += line
        yield f"{found[1]}/tester"
    finally:
        process.terminate()
        process.communicate()


def az_place(endpoint: str, container: str) -> Place:
    """Make a container, which obstore cannot: the request is signed here, by Azure's Shared Key."""
    date = formatdate(usegmt=True)
    version = "2021-12-02"
    path = f"{httpx.URL(endpoint).path}/{container}"
    signed = "\n".join([
        "PUT", *[""] * 11, f"x-ms-date:{date}", f"x-ms-version:{version}",
        f"/tester{path}", "restype:container",
    ])  # fmt: skip
    signature = hmac.digest(base64.b64decode(AZURE_KEY), signed.encode(), hashlib.sha256)
    httpx.put(
        f"{endpoint}/{container}?restype=container",
        headers={
            "x-ms-date": date, "x-ms-version": version,
            "Authorization": f"SharedKey tester:{base64.b64encode(signature).decode()}",
        },
    ).raise_for_status()  # fmt: skip
    return Place(
        url=f"az://{container}/nightly",
        environment={
            "AZURE_STORAGE_ACCOUNT_NAME": "tester", "AZURE_STORAGE_ACCOUNT_KEY": AZURE_KEY,
            "AZURE_STORAGE_ENDPOINT": endpoint,
        },
    )  # fmt: skip


@contextmanager
def moto_server() -> Iterator[str]:
    """Serve moto's S3; give its endpoint."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-c", f"from moto.server import main; main(['-p', '{port}'])"],
        env={**os.environ, "AWS_ACCESS_KEY_ID": "tester"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        endpoint = f"http://127.0.0.1:{port}"
        transport = httpx.HTTPTransport(retries=20)
        with httpx.Client(transport=transport, timeout=60) as client:
            client.get(endpoint).raise_for_status()
        yield endpoint
    finally:
        process.terminate()
        process.wait()


def moto_place(endpoint: str, bucket: str) -> Place:
    """Make a bucket: moto asks for no signature."""
    httpx.put(f"{endpoint}/{bucket}").raise_for_status()
    return Place(url=f"s3://{bucket}/nightly", environment=_for_s3(endpoint))
