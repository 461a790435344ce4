"""What a provider is: somebody who looks at a request's headers, and says who that is, or why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from greenroom.supervision import ChildSpec
    from greenroom.transports.seam import Refusal

    from .errors import Denied
    from .info import AuthInfo


class Asking(NamedTuple):
    """The request that wants to come in. Header names are lower-cased."""

    method: str
    path: str
    headers: Mapping[str, str]
    address: str = ""
    query: str = ""


class Notice(Protocol):
    """A document that anybody may read. A provider that has one has it as `notice`."""

    @property
    def paths(self) -> Collection[str]:
        """Where it is to be found, from the root of whatever is served."""
        ...

    async def read(self, asking: Asking) -> Refusal:
        """The answer to whoever asks for it, by whatever method."""
        ...


class Provider(Protocol):
    """One way to know who calls."""

    @property
    def headers(self) -> Sequence[str]:
        """The request headers that it reads, lower-cased: browsers have to be told of them."""
        ...

    def children(self) -> Sequence[ChildSpec[Any]]:
        """The processes that it needs: whoever serves with it starts them."""
        ...

    async def authenticate(self, asking: Asking) -> AuthInfo:
        """Who it is. Raises `Denied`; anything else that it raises is its own bug, and lets nobody in."""
        ...

    async def challenge(self, denied: Denied, asking: Asking) -> Refusal:
        """How the no is told: status, `WWW-Authenticate`, body."""
        ...
