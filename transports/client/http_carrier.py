"""The seam between a wire and what carries its HTTP: one request out, and one answer back, piece by piece.

There are two that carry. `Pool` is ours, straight on the event loop's transports. `ThroughHttpx` is for what users bring: a client or a
transport of httpx, or a proxy. Everything here happens in the loop's thread, and nothing blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from .errors import TransportError
    from .http_address import Address
    from .http_reader import Head

Headers: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be carried. `headers` say nothing of how long the body is, which is the carrier's to know."""

    method: str
    address: Address
    headers: Headers
    body: bytes = b""
    urgent: bool = False
    """It does not wait for others to be done: somebody there may be waiting for it before they can be."""


class Asker(Protocol):
    """Who gets the answer: one `head`, any number of `body`, and one `end`; or, at any point of that, `failed` and nothing after it."""

    def head(self, head: Head) -> None:
        """The answer begins."""

    def body(self, data: bytes) -> None:
        """More of it."""

    def end(self) -> None:
        """That was all."""

    def failed(self, error: TransportError, *, unseen: bool) -> None:
        """Nothing more will come. `unseen` says that not a byte of the request has left."""


class Errand(Protocol):
    """One order under way."""

    @property
    def left(self) -> bool:
        """Whether anything of it may have left."""
        ...

    def drop(self) -> None:
        """Nobody wants the answer: the asker hears nothing more. Nothing when it is over."""

    def pause(self) -> None:
        """Let the answer wait where it is."""

    def resume(self) -> None:
        """Go on."""


class Carrier(Protocol):
    """What carries orders."""

    def begin(self, order: Order, asker: Asker) -> Errand:
        """Take one on. Nothing is told to the asker before this has returned."""
        ...

    async def close(self) -> None:
        """Drop everything, and let go of the connections."""
