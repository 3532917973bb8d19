"""Network environment: proxies and certificates, checked before the first call.

httpx rejects `[::1]` and IPv6 networks in `NO_PROXY`, and treats an IPv4 network as one address.
Our connections support all of them. Other clients in this process get in `no_proxy` the entries
that httpx can read: Python and curl prefer it to `NO_PROXY`, which stays unchanged.
"""

import contextlib
import importlib.util
import ipaddress
import os
import ssl
from functools import cache
from pathlib import Path
from typing import Final
from urllib.request import getproxies

from convergence_core.errors import ConfigurationError

_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy")
_SCHEMES: Final = ("http", "https", "socks5", "socks5h")
_CERTIFICATES: Final = {"SSL_CERT_FILE": "cafile", "SSL_CERT_DIR": "capath"}
"""Variable → argument of ``ssl.create_default_context``; the first one set applies, as in httpx.
"""


def check_network_environment() -> None:
    """Check the variables that HTTP clients read, and rewrite `no_proxy` for httpx.

    Raises:
        ConfigurationError: a proxy's address, a certificate file or the key log cannot be used.
    """
    for name in [name for name in os.environ if name.lower() in _PROXIES]:
        _check_proxy(name, os.environ[name])
    if any(os.environ.get(name) for name in (*_CERTIFICATES, "SSLKEYLOGFILE")):
        certificates()
    if entries := _exemptions():
        _write_exemptions(entries)


def is_loopback(host: str) -> bool:
    """Return whether an address is reachable only from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def exempt_from_proxies(address: str) -> None:
    """Let every client of this process reach ``address`` (host and port) without a proxy."""
    if any(getproxies().get(scheme) for scheme in ("http", "https", "all")):
        _write_exemptions([*_exemptions(), address])


def proxy_of(scheme: str, host: str, port: int | None) -> str | None:
    """Return the address of the proxy for an origin; ``None`` means connect directly."""
    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    if not proxy or any(_covers(entry, host, port) for entry in _exemptions()):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


@cache
def certificates() -> ssl.SSLContext:
    """Return the trusted certificates, cached because reading them dominates a client's start.

    Raises:
        ConfigurationError: the environment names a file or folder that cannot be used.
    """
    key_log = os.environ.get("SSLKEYLOGFILE")
    if key_log:
        try:
            Path(key_log).open("ab").close()
        except OSError as error:
            raise _refusal(
                "SSLKEYLOGFILE", "must name a file that can be written", _reason(error)
            ) from None
    name = next((name for name in _CERTIFICATES if os.environ.get(name)), None)
    if name is None:
        import certifi  # noqa: PLC0415 - as httpx does

        return ssl.create_default_context(cafile=certifi.where())
    rule = "must name a readable file of certificates in PEM form"
    if name == "SSL_CERT_DIR":
        rule = "must name a folder of certificates"
        if not any(Path(part).is_dir() for part in os.environ[name].split(os.pathsep)):
            raise _refusal(name, rule, "there is no such folder")
    try:
        if name == "SSL_CERT_FILE":
            return ssl.create_default_context(cafile=os.environ[name])
        return ssl.create_default_context(capath=os.environ[name])
    except OSError as error:  # ssl.SSLError too
        raise _refusal(name, rule, _reason(error)) from None


def _check_proxy(name: str, address: str) -> None:
    import httpx  # noqa: PLC0415 - only where a proxy is set

    if not address.strip():
        return
    full = address if "://" in address else f"http://{address}"
    try:
        url = httpx.URL(full)
    except httpx.InvalidURL:
        url = httpx.URL("")
    shown = str(url.copy_with(userinfo=b"")) if url.host else "an address that cannot be read"
    if url.scheme not in _SCHEMES or not url.host:
        rule = "must be the address of a proxy, such as http://proxy.example.com:3128"
        raise ConfigurationError.of(name, rule, "Correct the variable, or unset it.", value=shown)
    if url.scheme.startswith("socks") and importlib.util.find_spec("socksio") is None:
        rule = "must name an HTTP proxy, because SOCKS needs the missing package socksio"
        fix = "Run `pip install socksio`, or unset the variable."
        raise ConfigurationError.of(name, rule, fix, value=shown)


def _refusal(name: str, rule: str, reason: str) -> ConfigurationError:
    fix = "Correct the variable, or unset it."
    return ConfigurationError.of(name, rule, fix, value=f"{os.environ[name]} ({reason})")


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _exemptions() -> list[str]:
    """Return the entries of `NO_PROXY` and `no_proxy` without duplicates."""
    named = (os.environ.get("NO_PROXY", ""), os.environ.get("no_proxy", ""))
    entries = (entry.strip() for names in named for entry in names.split(","))
    return list(dict.fromkeys(entry for entry in entries if entry))


def _write_exemptions(entries: list[str]) -> None:
    readable = [text for entry in entries for text in [_for_httpx(entry)] if text]
    os.environ["no_proxy"] = ",".join(dict.fromkeys(readable))


def _for_httpx(entry: str) -> str:
    """Return an entry in httpx's form; empty if it has none."""
    import httpx  # noqa: PLC0415 - only where hosts are exempt

    network = _network(entry)
    if network is not None and network.version == 6:
        return str(network.network_address) if network.num_addresses == 1 else ""
    with contextlib.suppress(httpx.InvalidURL):
        httpx.URL(entry if "://" in entry else f"all://*{entry}")
        return entry
    return ""


def _covers(entry: str, host: str, port: int | None) -> bool:
    if entry == "*":
        return True
    network = _network(entry)
    if network is not None:
        with contextlib.suppress(ValueError):
            return ipaddress.ip_address(host) in network
        return False
    name = entry.rpartition("://")[2]
    bare, _, number = name.rpartition(":")
    if bare and number.isdigit():
        if port != int(number):
            return False
        name = bare
    name = name.strip("[]").lower().removeprefix("*").removeprefix(".")
    return host.lower() == name or host.lower().endswith(f".{name}")


def _network(entry: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    address, slash, length = entry.partition("/")
    with contextlib.suppress(ValueError):
        return ipaddress.ip_network(f"{address.strip('[]')}{slash}{length}", strict=False)
    return None
