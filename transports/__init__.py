"""The transports: HTTP, stdio and TLS for servers, and the client's ends of them in `transports.client`.

Each transport is a process. What it needs of sessions and authentication is declared in `interfaces` as Protocols, so that this package
imports nothing from `actors` or `auth`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from greenroom.lazy_names import load_name

if TYPE_CHECKING:
    from .client.errors import ConnectFailed as ConnectFailed
    from .client.errors import ConnectionLost as ConnectionLost
    from .client.errors import HttpError as HttpError
    from .client.errors import NodeEnded as NodeEnded
    from .client.errors import NotMcp as NotMcp
    from .client.errors import ProcessDied as ProcessDied
    from .client.errors import RequestTooLarge as RequestTooLarge
    from .client.errors import ResponseTooLarge as ResponseTooLarge
    from .client.errors import SessionGone as SessionGone
    from .client.errors import SilentTooLong as SilentTooLong
    from .client.errors import TransportError as TransportError
    from .client.errors import Unauthorized as Unauthorized
    from .client.errors import WireFull as WireFull
    from .client.fetch import Fetcher as Fetcher
    from .client.http_address import Guard as Guard
    from .client.http_route import HttpRoute as HttpRoute
    from .client.http_route import SseRoute as SseRoute
    from .client.http_settings import HttpSettings as HttpSettings
    from .client.http_settings import Trust as Trust
    from .client.interfaces import FixedHeaders as FixedHeaders
    from .client.server_command import Command as Command
    from .http_config import HttpConfig as HttpConfig

# Each module and the names that this package exports from it. `python -m tests.house --write` derives it from the imports above.
_HOMES: Final[dict[str, str]] = {
    "greenroom.transports.client.errors": "ConnectFailed ConnectionLost HttpError NodeEnded NotMcp ProcessDied "
    "RequestTooLarge ResponseTooLarge SessionGone SilentTooLong "
    "TransportError Unauthorized WireFull",
    "greenroom.transports.client.fetch": "Fetcher",
    "greenroom.transports.client.http_address": "Guard",
    "greenroom.transports.client.http_route": "HttpRoute SseRoute",
    "greenroom.transports.client.http_settings": "HttpSettings Trust",
    "greenroom.transports.client.interfaces": "FixedHeaders",
    "greenroom.transports.client.server_command": "Command",
    "greenroom.transports.http_config": "HttpConfig",
}

__all__ = sorted(" ".join(_HOMES.values()).split())  # noqa: PLE0605  # pyright: ignore[reportUnsupportedDunderAll] - the table says which


if not TYPE_CHECKING:  # under TYPE_CHECKING, type checkers would accept any name

    def __getattr__(name: str) -> object:
        """Import `name` on first use."""
        return load_name(__name__, _HOMES, name)


def __dir__() -> list[str]:
    """List names that are not imported yet as well."""
    return sorted({*globals(), *__all__})
