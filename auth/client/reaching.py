"""How far a login may reach: a server on this machine may have its authorization server here, too; no other may send us here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from greenroom.errors import ConfigError
from greenroom.transports.client.fetch import Fetcher
from greenroom.transports.client.guard import Guard, is_local
from greenroom.transports.client.http_address import Address

if TYPE_CHECKING:
    from greenroom.transports.client.http_tls import Trust


def fetcher_for(url: str, *, private: bool = False, trust: Trust | None = None) -> Fetcher:
    """For what a server at that URL has us fetch. Raises `ConfigError` when nothing secret can be sent there at all."""
    address = check_server_url(url)
    return Fetcher(Guard(loopback=is_local(address.host), private=private), trust=trust)


def check_server_url(url: str) -> Address:
    """Raises `ConfigError` for a server that a token would travel to in the open."""
    address = Address.of(url)
    if not address.secure and not is_local(address.host):
        raise ConfigError(f"{address.origin} is not https: a token would be read by whoever is between")
    return address
