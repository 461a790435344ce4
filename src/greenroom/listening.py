"""Where a server listens, as people say it and as they are told, and who looks at those who come."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from greenroom.transports.http_config import HttpConfig

from .errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Generator

    from greenroom.auth.gate import Gate
    from greenroom.auth.seam import Provider
    from greenroom.transports.binding import Binding


def gate_of(auth: Provider | None, required_scopes: Collection[str]) -> Gate | None:
    """The gate of a server, if it asks who comes. Raises `ConfigError`."""
    if auth is None:
        if required_scopes:
            raise ConfigError("required_scopes are nothing without auth: say how callers show who they are")
        return None
    from greenroom.auth.gate import Gate  # noqa: PLC0415 - a server on stdio has none

    return Gate(auth, required_scopes=required_scopes)


def urls_of(binding: Binding, config: HttpConfig) -> list[str]:
    """Where it listens, for people and clients."""
    scheme = "https" if config.is_tls else "http"
    return [
        f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{config.path}" for host, port in binding.addresses
    ]


def http_config(config: HttpConfig | None, host: str | None, port: int | None) -> HttpConfig:
    """What was set up, with the address that was named beside it."""
    if config is not None and not isinstance(cast("object", config), HttpConfig):
        raise ConfigError(f"config must be HttpConfig(…), not {config!r}")
    given: dict[str, Any] = {"host": host, "port": port}
    given = {word: value for word, value in given.items() if value is not None}
    return HttpConfig(**given) if config is None else replace(config, **given)


def bound(config: HttpConfig) -> Binding:
    """The sockets that it says. Raises `CannotListen`."""
    from greenroom.transports.binding import Binding  # noqa: PLC0415 - as above

    return Binding(config.host, config.port, backlog=config.backlog, send_buffer=config.send_buffer)


@contextmanager
def unless_it_fails(config: HttpConfig) -> Generator[Binding]:
    """The same, closed again when the block that has a use for them fails."""
    with ExitStack() as undone:
        binding = bound(config)
        undone.callback(binding.close)
        yield binding
        undone.pop_all()
