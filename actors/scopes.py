"""Access by scopes: one policy for what is listed and for what is called. Pure.

An entry with scopes is for peers to which all of them were granted. No other peer sees it in a list, and no other peer's call reaches it; where
the caller is unknown (stdio, memory, a server without authentication), no peer does. Subscriptions and completions go by what they are for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from greenroom.auth.grants import AuthInfo
from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.transports.open_connections import address_of, host_in, is_proxied, source_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from greenroom.transports.seam import Peer

    from .catalogue import Catalogue, Kind
    from .jobs import Job

if TYPE_CHECKING:
    Reached = Callable[[Mapping[str, Any], Catalogue], Sequence[Any]]


class MissingScopes(McpError):
    """The call needs more than was granted."""

    def __init__(self, scopes: Sequence[str]) -> None:
        """`scopes` are all that it needs."""
        self.scopes = tuple(scopes)
        needed = list(self.scopes)
        message = f"Not allowed: this needs the scopes {' '.join(needed)}"
        super().__init__(ErrorCode.INVALID_REQUEST, message, {"required_scopes": needed})

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.scopes,)


def may_use(entry: Any, peer: Peer) -> bool:
    """Whether a peer may use what is registered."""
    scopes: Sequence[str] = getattr(entry, "scopes", ())
    return not scopes or (isinstance(peer.auth, AuthInfo) and peer.auth.has(scopes))


def reached(method: str, params: Mapping[str, Any], catalogue: Catalogue, peer: Peer) -> Sequence[Any]:
    """What is registered that a request reaches. The params were checked before. Raises `MissingScopes` for what its peer may not use."""
    find = _REACHED.get(method)
    if find is None:
        return ()
    found = find(params, catalogue)
    for entry in found:
        if not may_use(entry, peer):
            raise MissingScopes(entry.scopes)
    return found


def visible(kind: Kind, catalogue: Catalogue, peer: Peer) -> frozenset[str]:
    """Which scopes decide what this peer sees of a kind: those that it has, of all that are asked for there."""
    key = ("scopes", kind)
    asked: frozenset[str] | None = catalogue.pages.get(key)
    if asked is None:
        asked = frozenset(scope for entry in catalogue.all(kind).values() for scope in getattr(entry, "scopes", ()))
        catalogue.pages[key] = asked
    if not asked or not isinstance(peer.auth, AuthInfo):
        return _NONE
    return asked & (peer.auth.scopes or _NONE)


def _tool(params: Mapping[str, Any], catalogue: Catalogue) -> Sequence[Any]:
    return _found(catalogue.tool(params["name"]))


def _prompt(params: Mapping[str, Any], catalogue: Catalogue) -> Sequence[Any]:
    return _found(catalogue.prompt(params["name"]))


def _resource(params: Mapping[str, Any], catalogue: Catalogue) -> Sequence[Any]:
    exact = catalogue.resource(params["uri"])
    if exact is not None:
        return (exact,)
    found = catalogue.matching(params["uri"])
    return () if found is None else (found[0],)


def _completed(params: Mapping[str, Any], catalogue: Catalogue) -> Sequence[Any]:
    reference = params["ref"]
    if reference.get("type") == "ref/prompt":
        return _found(catalogue.prompt(str(reference.get("name"))))
    templates: Any = catalogue.all("resource_template").values()
    return [entry for entry in templates if entry.uri_template == reference.get("uri")]


def _found(entry: Any) -> Sequence[Any]:
    return () if entry is None else (entry,)


_NONE: Final[frozenset[str]] = frozenset()
_REACHED: Final[Mapping[str, Reached]] = {
    "tools/call": _tool,
    "prompts/get": _prompt,
    "resources/read": _resource,
    "resources/subscribe": _resource,
    "completion/complete": _completed,
}


# --- Which principal a peer is, as far as that can be told: what shared bounds are counted by, so that one peer cannot take all of them.
# Without authentication the address stands for the principal. The clients of a trusted proxy, the loopback addresses unless the
# settings say otherwise, cannot be told apart by it: nothing is counted for them.

if TYPE_CHECKING:
    Caller: TypeAlias = tuple[str, Hashable]


def caller_of(peer: Peer) -> Caller | None:
    """The principal, or the address; None for a peer that can be told from no other."""
    if peer.principal is not None:
        return ("principal", peer.principal)
    host = host_in(peer.address)
    if address_of(host) is None or is_proxied(peer):
        return None
    return ("address", source_of(host))


def share_of(peer: Peer, session: Hashable) -> Hashable:
    """What a call's part of a shared bound is counted by: as `caller_of` says, else the session."""
    return caller_of(peer) or ("session", session)


def whose(job: Job) -> Hashable:
    """The same for a job; of a request that stands alone it is its own."""
    return share_of(job.facts.peer, job.facts.session_id or job.session)
