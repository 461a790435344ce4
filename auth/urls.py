"""URLs that stand for somebody: issuers and resources, which are compared by their parts, and checked before anybody is sent there. Pure."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from greenroom.errors import ConfigError

if TYPE_CHECKING:
    from urllib.parse import SplitResult

_PORTS = {"http": 80, "https": 443}
_LONGEST = 2048
_STRANGE = frozenset(' "<>\\^`{|}')


def covers(resource: str, server: str) -> bool:
    """Whether that resource is the server, or what it is part of: same origin, and a path that leads to it."""
    try:
        one, other = urlsplit(resource), urlsplit(server)
        same = origin_of(one) == origin_of(other)
    except ValueError:
        return False
    above = one.path.rstrip("/")
    return same and one.hostname is not None and (other.path.rstrip("/") == above or other.path.startswith(f"{above}/"))


def same_resource(one: str, other: str) -> bool:
    """Whether two URLs mean one resource: they differ at most in the case of the host, a port that is understood, and a slash at the end."""
    return covers(one, other) and covers(other, one) and _query(one) == _query(other)


def origin_of(parts: SplitResult) -> tuple[str, str | None, int | None]:
    """Scheme, host and effective port. Raises `ValueError` for a port that is none."""
    port = parts.port
    scheme = parts.scheme.lower()
    return scheme, parts.hostname, _PORTS.get(scheme) if port is None else port


def resource_url(value: Any, name: str = "resource", *, query: bool = True) -> str:
    """An absolute http(s) URL without a fragment. Raises `ConfigError`."""
    parts = _parts(value, name)
    if parts.fragment or "#" in value:
        raise ConfigError(f"{name} must have no fragment: {value!r}")
    if not query and (parts.query or "?" in value):
        raise ConfigError(f"{name} must have no query: {value!r}")
    return str(value)


def issuer_url(value: Any, *, insecure: bool = False) -> str:
    """An issuer: absolute, without query or fragment, https unless it is on this machine. Raises `ConfigError`."""
    url = resource_url(value, "an authorization server", query=False)
    parts = urlsplit(url)
    if parts.scheme.lower() != "https" and not insecure and not _is_local(parts.hostname or ""):
        raise ConfigError(
            f"the authorization server {url} is not https: nobody is sent there, "
            "unless allow_insecure_authorization_servers=True says so"
        )
    return url


def _parts(value: Any, name: str) -> SplitResult:
    if not isinstance(value, str) or len(value) > _LONGEST or not value.isascii() or not value.isprintable():
        raise ConfigError(f"{name} must be an absolute http or https URL, not {value!r:.200}")
    try:
        parts = urlsplit(value)
        if origin_of(parts)[0] in _PORTS and parts.hostname and parts.username is None and not set(value) & _STRANGE:
            return parts
    except ValueError:
        pass
    raise ConfigError(f"{name} must be an absolute http or https URL, not {value!r:.200}")


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"  # names that only look like an address are names


def _query(url: str) -> str:
    return urlsplit(url).query
