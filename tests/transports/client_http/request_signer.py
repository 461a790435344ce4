"""Credentials that sign each request, as proofs of possession do, in a form that can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class RequestSigner:
    """The signature is the number of the request, its method, its URL and the newest nonce."""

    def __init__(self) -> None:
        self.signed: list[str] = []
        self.nonces: list[tuple[str, str]] = []
        self.refusals = 0

    async def headers(self) -> Mapping[str, str]:
        """Never asked for by a wire."""
        raise AssertionError

    async def headers_for(self, method: str, url: str) -> Mapping[str, str]:
        """Sign one request."""
        nonce = self.nonces[-1][1] if self.nonces else "none"
        self.signed.append(f"{len(self.signed)} {method} {url} {nonce}")
        return {"authorization": "DPoP token", "dpop": self.signed[-1]}

    def on_nonce(self, url: str, nonce: str) -> None:
        """Keep the nonce."""
        self.nonces.append((url, nonce))

    async def refused(self, status: int, challenge: str, sent: Mapping[str, str]) -> bool:
        """Another signature may do."""
        assert sent["dpop"] in self.signed, (status, challenge)
        self.refusals += 1
        return True
