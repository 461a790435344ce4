"""What a handler in a worker sees of its session: the facts as home has them, where they are data.

What cannot travel (an open connection in `ctx.state`) is missed only by the handler that asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from greenroom.errors import GreenroomError
from greenroom.supervision.cluster import CannotTravel, values

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.actors.jobs import Facts

    from .words import Errand


class NotHere(GreenroomError):
    """Something of the session that only the server's own process has."""


def packed(facts: Facts, node: str) -> list[bytes | str | None]:
    """The three that may be anything: state, auth and principal; as bytes, or why they cannot travel."""
    return [_packed(each, node) for each in (facts.state, facts.peer.auth, facts.peer.principal)]


def _packed(value: Any, node: str) -> bytes | str | None:
    if value is None:
        return None
    try:
        return values.encode(value, node)
    except CannotTravel as error:
        return str(error)


class _Packed:
    """Some values, unpacked when they are wanted: their classes may be in modules that nobody else needs."""

    __slots__ = ("_values",)

    def __init__(self, data: list[bytes | str | None]) -> None:
        self._values = data

    def get(self, place: int, what: str) -> Any:
        data = self._values[place]
        if data is None:
            return None
        if isinstance(data, str):
            raise NotHere(f"{what} is not there in a worker process: {data}")
        return values.decode(data)


class FarPeer:
    """Who calls."""

    __slots__ = ("_packed", "address", "transport")

    proxied: Final = None
    forwarded: Final = ""
    """A worker has one call at a time, and shares nothing out."""

    def __init__(self, transport: str, address: str, packed: _Packed) -> None:
        """As home says."""
        self.transport = transport
        self.address = address
        self._packed = packed

    @property
    def auth(self) -> Any:
        """What is known of them."""
        return self._packed.get(1, "ctx.auth")

    @property
    def principal(self) -> Any:
        """Whose call it is."""
        return self._packed.get(2, "ctx.principal")


class FarFacts:
    """Of one call's session."""

    __slots__ = ("_packed", "client_capabilities", "client_info", "peer", "session_id", "version")

    def __init__(self, errand: Errand, data: list[bytes | str | None]) -> None:
        """As home says."""
        self._packed = _Packed(data)
        self.session_id = errand.session_id
        self.version = errand.version
        self.peer = FarPeer(errand.transport, errand.address, self._packed)
        self.client_info: Mapping[str, Any] = errand.client_info
        self.client_capabilities: Mapping[str, Any] = errand.client_capabilities

    @property
    def state(self) -> Any:
        """What the server's own `init` made for the session."""
        return self._packed.get(0, "ctx.state")
