"""What fetches from a URL that the program itself has named: keys and introspection of an issuer, which may be on this machine."""

from __future__ import annotations

from urllib.parse import urlsplit

from greenroom.transports.client.fetch import Fetcher
from greenroom.transports.client.guard import Guard, is_local


def own_fetcher(url: str) -> Fetcher:
    """To public addresses, and to this machine where the URL is there. It follows no redirect, so none leads from elsewhere to this machine."""
    return Fetcher(Guard(loopback=is_local(urlsplit(url).hostname or "")))
