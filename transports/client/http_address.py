"""Where an HTTP server is: a URL, taken apart once, and how much of it may be shown."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urljoin, urlsplit

from greenroom.errors import ConfigError

_PORTS: Final = {"http": 80, "https": 443}
_LONGEST: Final = 8192


@dataclass(frozen=True, slots=True)
class Address:
    """One URL. Its repr, and `description`, have neither the user nor the query in it."""

    scheme: str
    host: str
    port: int
    target: str = field(repr=False)
    """Path and query."""
    path: str = field(repr=False)
    login: str = field(default="", repr=False)
    """What `Authorization` says for the user and the password that stood in the URL, if any."""
    veiled: bool = field(default=False, repr=False)
    """Whether the path may be a secret as well, as where a variable stands for some of it."""

    @classmethod
    def of(cls, url: str) -> Address:
        """Raises `ConfigError` for what is no URL of HTTP; the message does not repeat it."""
        if len(url) > _LONGEST or not url.isascii() or not url.isprintable() or " " in url:
            raise ConfigError("a URL has neither spaces nor line breaks, and other characters only percent-encoded")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:  # whose message repeats a part of it, and that may be one of a password
            raise ConfigError("this is no URL: its host or its port is none") from None
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ConfigError("a server's URL begins with http:// or https://, and names a host")
        login = ""
        if parts.username is not None:
            secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            login = f"Basic {b64encode(secret).decode()}"
        path = parts.path or "/"
        target = f"{path}?{parts.query}" if parts.query else path
        return cls(parts.scheme, parts.hostname, _PORTS[parts.scheme] if port is None else port, target, path, login)

    @property
    def secure(self) -> bool:
        """Whether it is spoken to within TLS."""
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """What `Host` says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return f"{self.scheme}://{self.authority}"

    @property
    def url(self) -> str:
        """All of it, but for the user."""
        return f"{self.origin}{self.target}"

    @property
    def description(self) -> str:
        """What people may see."""
        return f"{self.origin}{'/…' if self.veiled else self.path}"

    def beside(self, location: str) -> Address | None:
        """Where a reference leads that the server gave, if that is the same origin: nobody else is told anything."""
        if not location.isprintable():  # some of which is passed over when URLs are joined
            return None
        try:
            found = Address.of(urljoin(self.url, location))
        except ValueError:  # which a `ConfigError` is as well
            return None
        if found.origin != self.origin or found.login:
            return None
        return Address(found.scheme, found.host, found.port, found.target, found.path, self.login, self.veiled)
