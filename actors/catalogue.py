"""The catalogue of a company: everything that is registered, as an immutable snapshot, and which peers may use it.

Readers take `catalogue_ref.current` and keep it while their call lasts; it never changes under them. A writer makes a new catalogue and publishes it by one
assignment, so half a change can never be seen, even if the writer dies. The reference belongs to the company, so registrations survive a crash of the
registrar, which is the only writer while the company runs.
"""

from __future__ import annotations

import threading
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, cast

import msgspec

from greenroom.auth.auth_info import AuthInfo
from greenroom.errors import GreenroomError
from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.jsonrpc import encode
from greenroom.protocol.mirrored_headers import METHOD_HEADER, NAME_HEADER, NAME_PARAMS, decode_header_value
from greenroom.protocol.pagination import page, read_cursor
from greenroom.protocol.revision_downgrade import downgrade
from greenroom.transports.open_connections import address_of, host_in, is_proxied, source_of

from .settings import cache_members, server_info

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from greenroom.protocol.dialect import Dialect
    from greenroom.transports.interfaces import Peer

    from .catalogue_entries import CatalogueEntry, CompletionEntry, PromptEntry, ResourceEntry, TemplateEntry, ToolEntry
    from .extensions import Extension, ExtensionMethod
    from .mounted_entries import MountedEntries
    from .settings import Settings
    from .worker_interfaces import Job, SessionFacts


Kind: TypeAlias = Literal["tool", "resource", "resource_template", "prompt", "completion"]
KINDS: Final[tuple[Kind, ...]] = ("tool", "resource", "resource_template", "prompt", "completion")

_NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})


class RegistrationError(GreenroomError, ValueError):
    """Something cannot be registered; the message says what to do about it."""


class NotFound(GreenroomError, LookupError):
    """Nothing of that kind has that name."""

    def __init__(self, kind: Kind, name: Hashable) -> None:
        super().__init__(kind, name)
        self.kind = kind
        self.name = name

    def __str__(self) -> str:
        return f"there is no {self.kind.replace('_', ' ')} {self.name!r}"


class Catalogue:
    """Everything that is registered. `version` counts the changes since the company began."""

    __slots__ = ("_by_kind", "_by_uri", "extensions", "mounted", "pages", "version")

    def __init__(
        self,
        by_kind: Mapping[Kind, Mapping[Hashable, CatalogueEntry]] = _NOTHING,
        by_uri: Mapping[str, ResourceEntry] = _NOTHING,
        version: int = 0,
        extensions: Mapping[str, Extension] = _NOTHING,
        mounted: MountedEntries | None = None,
    ) -> None:
        self._by_kind = by_kind
        self._by_uri = by_uri
        self.version = version
        self.extensions = extensions
        """The server's extensions of the protocol, by their identifiers."""
        self.mounted = mounted
        """The entries of mounted hosts, which change by themselves; None without such hosts."""
        self.pages: dict[Hashable, Any] = {}
        """Values computed from this snapshot once: lists, sets of scopes."""

    def all(self, kind: Kind) -> Mapping[Hashable, CatalogueEntry]:
        """The entries of a kind by name, in the order of their registration."""
        return self._by_kind.get(kind, _NOTHING)

    def count(self, kind: Kind) -> int:
        """The number of entries of a kind."""
        return len(self.all(kind))

    def find(self, kind: Kind, name: Hashable) -> CatalogueEntry | None:
        """The entry of that name."""
        return self.all(kind).get(name)

    def tool(self, name: str) -> ToolEntry | None:
        """The tool of that name."""
        return cast(
            "ToolEntry | None", self._by_kind.get("tool", _NOTHING).get(name)
        )  # not by `find`: this is on the path of every call

    def prompt(self, name: str) -> PromptEntry | None:
        """The prompt of that name."""
        return cast("PromptEntry | None", self.find("prompt", name))

    def completion(self, reference: str, name: str, argument: str) -> CompletionEntry | None:
        """The completion for an argument of a prompt, or for a variable of a template."""
        return cast("CompletionEntry | None", self.find("completion", (reference, name, argument)))

    @property
    def isolated(self) -> list[CatalogueEntry]:
        """The entries that run in processes of their own."""
        return [entry for kind in KINDS for entry in self.all(kind).values() if entry.handler.pool is not None]

    def resource(self, uri: str) -> ResourceEntry | None:
        """The resource with exactly that URI."""
        return self._by_uri.get(uri)

    def matching(self, uri: str) -> tuple[TemplateEntry, dict[str, str]] | None:
        """The first template that matches the URI, and its variables."""
        for entry in cast("Mapping[str, TemplateEntry]", self.all("resource_template")).values():
            variables = entry.template.match(uri)
            if variables is not None:
                return entry, variables
        return None

    def method(self, name: str) -> ExtensionMethod | None:
        """The request method of that name that an extension has."""
        for extension in self.extensions.values():
            if (found := extension.methods.get(name)) is not None:
                return found
        return None

    def extended(self, extension: Extension) -> Catalogue:
        """A catalogue with this extension. Raises `RegistrationError` if its identifier, or a method's name, is taken."""
        if extension.id in self.extensions:
            raise RegistrationError(f"extension {extension.id!r}: the server has it already, and it can be there once")
        for name in extension.methods:
            if (other := self.method(name)) is not None:
                raise RegistrationError(
                    f"method {name!r}: {other.extension_id} has it already: give the one of {extension.id} another name"
                )
        extensions = MappingProxyType({**self.extensions, extension.id: extension})
        return Catalogue(self._by_kind, self._by_uri, self.version + 1, extensions, self.mounted)

    def with_mounted(self, mounted: MountedEntries) -> Catalogue:
        """A catalogue with the entries of mounted hosts, in place of those that it had."""
        return Catalogue(self._by_kind, self._by_uri, self.version + 1, self.extensions, mounted)

    def put(self, entry: CatalogueEntry, *, replace: bool = True, alone: bool = False) -> Catalogue:
        """A catalogue with this entry added or replaced. Raises `RegistrationError` if the name or URI is taken.

        `alone` for a worker's catalogue, which has this one entry, and not what the entry refers to.
        """
        entries = self.all(entry.kind)
        before = entries.get(entry.name)
        if before is not None and not replace:
            raise RegistrationError(
                f"there is a {entry.kind.replace('_', ' ')} {entry.name!r} already: give this one another name, "
                f"or replace that one with server.registry.register_{entry.kind}({entry.name!r}, …)"
            )
        if entry.kind == "tool" and cast("ToolEntry", entry).app is not None and not alone:
            from .apps import check_app  # noqa: PLC0415 - few tools have an app

            check_app(cast("ToolEntry", entry), self.resource)
        by_uri = self._by_uri
        if entry.kind == "resource":
            by_uri = self._with_uri(cast("ResourceEntry", entry), cast("ResourceEntry | None", before))
        return self._with(entry.kind, {**entries, entry.name: entry}, by_uri)

    def drop(self, kind: Kind, name: Hashable) -> Catalogue:
        """A catalogue without that entry; this one if there is no such entry."""
        entries = self.all(kind)
        if name not in entries:
            return self
        left = {each: entry for each, entry in entries.items() if each != name}
        by_uri = self._by_uri
        if kind == "resource":
            uri = cast("ResourceEntry", entries[name]).uri
            by_uri = MappingProxyType({each: entry for each, entry in by_uri.items() if each != uri})
        return self._with(kind, left, by_uri)

    def _with_uri(self, entry: ResourceEntry, before: ResourceEntry | None) -> Mapping[str, ResourceEntry]:
        there = self._by_uri.get(entry.uri)
        if there is not None and there.name != entry.name:
            raise RegistrationError(
                f"the resource {there.name!r} is at {entry.uri} already: give {entry.name!r} a URI of its own"
            )
        kept = self._by_uri if before is None else {k: v for k, v in self._by_uri.items() if k != before.uri}
        return MappingProxyType({**kept, entry.uri: entry})

    def _with(
        self, kind: Kind, entries: dict[Hashable, CatalogueEntry], by_uri: Mapping[str, ResourceEntry]
    ) -> Catalogue:
        by_kind: dict[Kind, Mapping[Hashable, CatalogueEntry]] = {**self._by_kind, kind: MappingProxyType(entries)}
        return Catalogue(MappingProxyType(by_kind), by_uri, self.version + 1, self.extensions, self.mounted)


class CatalogueRef:
    """The reference to the current catalogue. Reading is one attribute, from any thread."""

    __slots__ = ("_lock", "current")

    def __init__(self, catalogue: Catalogue | None = None) -> None:
        self.current = Catalogue() if catalogue is None else catalogue
        self._lock = threading.Lock()

    def write(self, change: Callable[[Catalogue], Catalogue]) -> bool:
        """Publish what `change` makes of the current catalogue.

        If it raises, nothing changes. Whether the catalogue is a new one.
        """
        with self._lock:
            before = self.current
            after = change(before)
            self.current = after
        return after is not before


# --- Lists, page by page, as each revision knows them: answered from the snapshot, without a process.
# A list is sorted and fitted once for each snapshot, revision and relevant set of scopes, and each page is encoded
# once, so that a request only adds its id.

_MAX_CACHED_LISTS: Final = 256
"""How many lists of one snapshot are cached: there may be as many as there are sets of scopes."""


class _SortedList(NamedTuple):
    """All entries of a kind, in the wire form of one revision."""

    keys: list[str]
    wires: list[Any]
    is_partial: bool
    """Whether entries of this kind need scopes, so that other callers may see another list."""
    pages: dict[int, msgspec.Raw]
    """Encoded pages, by their first index; at most one for each item."""


class Listing(NamedTuple):
    """One of the methods that list entries."""

    method: str
    kind: Kind
    member: str
    """The name of the list in the result."""
    key: Callable[[Any], str]
    """The sort key."""


def _name(entry: Any) -> str:
    name: str = entry.name
    return name


LISTINGS: Final = (
    Listing("tools/list", "tool", "tools", _name),
    Listing("resources/list", "resource", "resources", _name),
    Listing("resources/templates/list", "resource_template", "resourceTemplates", _name),
    Listing("prompts/list", "prompt", "prompts", _name),
)


def list_answer(listing: Listing) -> Callable[[Catalogue, Mapping[str, Any], Settings, SessionFacts], Any]:
    """The function that answers this method with an encoded result."""

    def answer(catalogue: Catalogue, params: Mapping[str, Any], settings: Settings, facts: SessionFacts) -> msgspec.Raw:
        size = settings.page_size
        whole = _sorted_list(catalogue, listing, facts)
        cursor = params.get("cursor")
        if cursor == "" and facts.dialect.is_stateless:  # there it is a cursor as any other, and no list has given it
            read_cursor(cursor, listing.kind)
        part, following = page(whole.keys, cursor, size, listing.kind)
        kept = whole.pages.get(part.start)
        if kept is not None:
            return kept
        result: dict[str, Any] = {listing.member: whole.wires[part]}
        if following is not None:
            result["nextCursor"] = following
        if facts.dialect.is_stateless:
            hint = cache_members(settings, listing.method, private=whole.is_partial)
            result = facts.dialect.finish(listing.method, result, server_info(settings), hint)
        encoded = msgspec.Raw(encode(result))
        # Pages are kept encoded, as `msgspec.Raw`, which is copied into the reply: encoding fifty tools for each client
        # would hold up the session's loop. Only pages that begin where this snapshot's own cursors do are kept.
        if part.start % size == 0:
            whole.pages[part.start] = encoded
        return encoded

    return answer


def _sorted_list(catalogue: Catalogue, listing: Listing, facts: SessionFacts) -> _SortedList:
    key = (listing.kind, facts.version, visible_scopes(listing.kind, catalogue, facts.peer))
    kept = catalogue.pages.get(key)
    if kept is None:
        seen = [entry for entry in catalogue.all(listing.kind).values() if may_use(entry, facts.peer)]
        entries: list[Any] = sorted(seen, key=listing.key)
        wires = [wire_of(entry, facts.dialect) for entry in entries]
        fitted = downgrade(listing.method, {listing.member: wires}, facts.version)
        is_partial = any(getattr(entry, "scopes", ()) for entry in catalogue.all(listing.kind).values())
        kept = _SortedList([listing.key(entry) for entry in entries], fitted[listing.member], is_partial, {})
        if len(catalogue.pages) < _MAX_CACHED_LISTS:
            catalogue.pages[key] = kept
    whole: _SortedList = kept
    return whole


def wire_of(entry: Any, dialect: Dialect) -> dict[str, Any]:
    """An entry as lists of that revision show it."""
    wire = dict(entry.wire)
    bare = None if dialect.wraps_values else getattr(entry, "bare_output", None)
    if bare is not None:
        wire["outputSchema"] = bare
    return wire


# --- Access by scopes: one policy for lists and for calls. Pure functions.
# An entry with scopes is for peers to which all of them were granted. Other peers do not see it in a list, and their
# calls do not reach it. Where the caller is unknown (stdio, memory, a server without authentication), no peer may use
# it. Subscriptions and completions follow the entry that they are for.


if TYPE_CHECKING:
    Reached = Callable[[Mapping[str, Any], Catalogue], Sequence[Any]]


class MissingScopes(McpError):
    """The call needs scopes that were not granted."""

    def __init__(self, scopes: Sequence[str]) -> None:
        """`scopes` are all that the call needs."""
        self.scopes = tuple(scopes)
        needed = list(self.scopes)
        message = f"Not allowed: this needs the scopes {' '.join(needed)}"
        super().__init__(ErrorCode.INVALID_REQUEST, message, {"required_scopes": needed})

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.scopes,)


def may_use(entry: Any, peer: Peer) -> bool:
    """Whether a peer may use this entry."""
    scopes: Sequence[str] = getattr(entry, "scopes", ())
    return not scopes or (isinstance(peer.auth, AuthInfo) and peer.auth.has(scopes))


def reached_entries(method: str, params: Mapping[str, Any], catalogue: Catalogue, peer: Peer) -> Sequence[Any]:
    """The entries that a request reaches; its params were checked before.

    Raises `MissingScopes` if its peer may not use one of them, with the scopes of all of them.
    """
    find = _ENTRY_FINDERS.get(method)
    if find is None:
        return ()
    found = find(params, catalogue)
    if not all(may_use(entry, peer) for entry in found):
        raise MissingScopes(_scopes_of(found))
    return found


def announced_scopes(headers: Mapping[str, str], catalogue: Catalogue) -> Sequence[str] | None:
    """The scopes of the entries that a request will reach as its headers announce it, before it is read; None for a client that announces nothing.

    So a request that lacks the server's own scopes, or any credentials, learns at once what else the operation needs.
    """
    method, name = headers.get(METHOD_HEADER), headers.get(NAME_HEADER, "")
    if method is None:
        return None
    if (extended := catalogue.method(method)) is not None:
        return extended.scopes
    find = _ENTRY_FINDERS.get(method)
    param = NAME_PARAMS.get(method)
    if find is None or param is None or not name or len(name) > _LONGEST_NAME:
        return ()
    try:
        return _scopes_of(find({param: decode_header_value(name)}, catalogue))
    except ValueError:  # a malformed header names no entry; the request is refused in any case
        return ()


def _scopes_of(entries: Sequence[Any]) -> Sequence[str]:
    return tuple(dict.fromkeys(scope for entry in entries for scope in getattr(entry, "scopes", ())))


def visible_scopes(kind: Kind, catalogue: Catalogue, peer: Peer) -> frozenset[str]:
    """The scopes of this peer that decide which entries of a kind it sees."""
    key = ("scopes", kind)
    asked: frozenset[str] | None = catalogue.pages.get(key)
    if asked is None:
        asked = frozenset(scope for entry in catalogue.all(kind).values() for scope in getattr(entry, "scopes", ()))
        catalogue.pages[key] = asked
    if not asked or not isinstance(peer.auth, AuthInfo):
        return _NO_SCOPES
    return asked & (peer.auth.scopes or _NO_SCOPES)


def _tool(params: Mapping[str, Any], catalogue: Catalogue) -> Sequence[Any]:
    return _as_sequence(catalogue.tool(params["name"]))


def _prompt(params: Mapping[str, Any], catalogue: Catalogue) -> Sequence[Any]:
    return _as_sequence(catalogue.prompt(params["name"]))


def _resource(params: Mapping[str, Any], catalogue: Catalogue) -> Sequence[Any]:
    exact = catalogue.resource(params["uri"])
    if exact is not None:
        return (exact,)
    found = catalogue.matching(params["uri"])
    return () if found is None else (found[0],)


def _completion_targets(params: Mapping[str, Any], catalogue: Catalogue) -> Sequence[Any]:
    reference = params["ref"]
    if reference.get("type") == "ref/prompt":
        return _as_sequence(catalogue.prompt(str(reference.get("name"))))
    templates: Any = catalogue.all("resource_template").values()
    return [entry for entry in templates if entry.uri_template == reference.get("uri")]


def _as_sequence(entry: Any) -> Sequence[Any]:
    return () if entry is None else (entry,)


_NO_SCOPES: Final[frozenset[str]] = frozenset()
_LONGEST_NAME: Final = 2048
"""The longest announced name that is looked up: callers without credentials can send one."""
_ENTRY_FINDERS: Final[Mapping[str, Reached]] = {
    "tools/call": _tool,
    "prompts/get": _prompt,
    "resources/read": _resource,
    "resources/subscribe": _resource,
    "completion/complete": _completion_targets,
}


# --- The caller that shared limits are counted by, so that one peer cannot use all of them.
# Without authentication the address stands for the principal. The clients of a trusted proxy (the loopback addresses
# unless the settings say otherwise) have no address of their own: nothing is counted for them.

if TYPE_CHECKING:
    Caller: TypeAlias = tuple[str, Hashable]


def caller_key(peer: Peer) -> Caller | None:
    """The principal, or the address; None for a peer that cannot be told from others."""
    if peer.principal is not None:
        return ("principal", peer.principal)
    host = host_in(peer.address)
    if address_of(host) is None or is_proxied(peer):
        return None
    return ("address", source_of(host))


def quota_key(peer: Peer, session: Hashable) -> Hashable:
    """The key that a call's share of a limit is counted by: the caller, or else the session."""
    return caller_key(peer) or ("session", session)


def quota_key_of_job(job: Job) -> Hashable:
    """The same for a job. A request without a session has a key of its own."""
    return quota_key(job.facts.peer, job.facts.session_id or job.session)
