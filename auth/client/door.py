"""What a program may give as `auth` of a client, and the credentials that it means."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from greenroom.errors import ConfigError
from greenroom.transports.client.seam import FixedHeaders

from .reaching import check_server_url

if TYPE_CHECKING:
    from greenroom.transports.client.seam import Credentials

_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/:]+=*\Z")


class SignIn(Protocol):
    """A way to log in: `OAuth`, `ClientCredentials`, `EnterpriseManaged`, `GivenTokens`."""

    def credentials(self, url: str) -> Credentials:
        """For one server."""
        ...


Auth: TypeAlias = "str | SignIn | Credentials"


def credentials_for(auth: Auth, url: str) -> Credentials:
    """A text is a bearer token. Raises `ConfigError`."""
    if isinstance(auth, str):
        if not _TOKEN.match(auth):
            raise ConfigError("a bearer token is one word of letters, digits and -._~+/, without `Bearer` before it")
        check_server_url(url)
        return FixedHeaders({"authorization": f"Bearer {auth}"})
    make = getattr(auth, "credentials", None)
    if make is not None:
        made: Credentials = make(url)
        return made
    if hasattr(auth, "headers") and hasattr(auth, "refused"):
        return auth  # type: ignore[return-value]  # it has both
    raise ConfigError(f"auth is a token, OAuth(…) or another way to log in, not {type(auth).__name__}")
