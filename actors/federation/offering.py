"""`Offering`: an immutable snapshot of an upstream's lists (tools, resources, templates, prompts), and the difference between two.

Readers take the current snapshot and keep it as long as they like; each fetch makes a new one.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias, cast, get_args

from greenroom.actors.client.errors import TooManyPages
from greenroom.protocol.cache_hints import received_cache
from greenroom.protocol.errors import BadAnswer, ErrorCode, PeerError
from greenroom.protocol.methods import is_declared
from greenroom.protocol.mirrored_headers import BadHeaderAnnotation, header_plan_of, without_header_annotations

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from greenroom.actors.catalogue import Kind
    from greenroom.actors.client.interfaces import Line, ServerWelcome
    from greenroom.protocol.mirrored_headers import HeaderPlan

Part: TypeAlias = Literal["tools", "resources", "templates", "prompts"]
PARTS: Final[tuple[Part, ...]] = get_args(Part)

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


def _nothing() -> Mapping[str, Any]:
    return _NOTHING


class ListSpec(NamedTuple):
    """How the protocol names one of a server's lists."""

    method: str
    key: str
    """The member of a page that contains the entries."""
    capability: str
    name: str
    """The member of an entry that identifies it."""
    kind: Kind

    @property
    def changed(self) -> str:
        """The method of the notification that this list has changed."""
        return f"notifications/{self.capability}/list_changed"


LISTS: Final[Mapping[Part, ListSpec]] = {
    "tools": ListSpec("tools/list", "tools", "tools", "name", "tool"),
    "resources": ListSpec("resources/list", "resources", "resources", "uri", "resource"),
    "templates": ListSpec(
        "resources/templates/list", "resourceTemplates", "resources", "uriTemplate", "resource_template"
    ),
    "prompts": ListSpec("prompts/list", "prompts", "prompts", "name", "prompt"),
}


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference between two versions of one list, by name. A renamed entry is removed and added."""

    added: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()
    changed: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    @classmethod
    def between(cls, before: Mapping[str, Any], after: Mapping[str, Any]) -> Difference:
        """The difference between two lists by name."""
        changed = (name for name in before.keys() & after.keys() if before[name] != after[name])
        return cls(frozenset(after.keys() - before.keys()), frozenset(before.keys() - after.keys()), frozenset(changed))


@dataclass(frozen=True, slots=True)
class Differences:
    """The differences of all lists."""

    tools: Difference = Difference()
    resources: Difference = Difference()
    templates: Difference = Difference()
    prompts: Difference = Difference()

    def __bool__(self) -> bool:
        return any(getattr(self, part) for part in PARTS)


@dataclass(frozen=True, slots=True)
class Offering:
    """A snapshot of the lists: definitions by name, URI or template. `version` counts the snapshots that differed."""

    tools: Mapping[str, Mapping[str, Any]] = field(default_factory=_nothing, repr=False)
    resources: Mapping[str, Mapping[str, Any]] = field(default_factory=_nothing, repr=False)
    templates: Mapping[str, Mapping[str, Any]] = field(default_factory=_nothing, repr=False)
    prompts: Mapping[str, Mapping[str, Any]] = field(default_factory=_nothing, repr=False)
    version: int = 0
    left_out: Mapping[Part, int] = field(default_factory=dict[Part, int])
    """How many entries were left out, because they had no name or the name of another entry."""
    header_plans: Mapping[str, HeaderPlan] = field(default_factory=_nothing, repr=False, compare=False)
    """The arguments that HTTP headers repeat, by the name of the tool that annotates them (`x-mcp-header`)."""
    bad_annotations: Mapping[str, str] = field(default_factory=_nothing, repr=False, compare=False)
    """Tools with an invalid annotation, and why it is invalid. They can be called all the same."""

    def part(self, part: Part) -> Mapping[str, Mapping[str, Any]]:
        """One list by its name."""
        return cast("Mapping[str, Mapping[str, Any]]", getattr(self, part))

    def with_lists(self, lists: Mapping[Part, Iterable[Any]]) -> Offering:
        """A snapshot with these lists in place of the old ones; the same object when nothing has changed."""
        left_out = dict(self.left_out)
        parts: dict[Part, Mapping[str, Any]] = {}
        for part, entries in lists.items():
            parts[part], left_out[part] = _by_name(entries, LISTS[part].name)
        same = all(parts[part] == self.part(part) for part in parts)
        if same and all(self.left_out.get(part, 0) == left_out[part] for part in parts):
            return self
        changed = cast("dict[str, Any]", dict(parts))
        if "tools" in parts:
            changed["header_plans"], changed["bad_annotations"] = _read_annotations(parts["tools"])
        return replace(self, version=self.version + (not same), left_out=left_out, **changed)

    def listable(self, tool: str) -> Mapping[str, Any]:
        """The definition of a tool as clients may get it: without annotations, where one of them is invalid, as they would refuse the tool."""
        definition = self.tools[tool]
        return without_header_annotations(definition) if tool in self.bad_annotations else definition

    def until(self, later: Offering) -> Differences:
        """The differences from this snapshot to a later one."""
        if later is self:
            return Differences()
        return Differences(*(Difference.between(self.part(part), later.part(part)) for part in PARTS))


EMPTY_OFFERING: Final = Offering()


def _by_name(entries: Iterable[Any], key: str) -> tuple[Mapping[str, Any], int]:
    """Entries by name, the first of each name, and the number that was left out."""
    found: dict[str, Any] = {}
    left_out = 0
    for entry in entries:
        name: Any = cast("dict[str, Any]", entry).get(key) if isinstance(entry, dict) else None
        if not isinstance(name, str) or not name or name in found:
            left_out += 1
        else:
            found[name] = entry
    return MappingProxyType(found), left_out


def _read_annotations(tools: Mapping[str, Mapping[str, Any]]) -> tuple[Mapping[str, HeaderPlan], Mapping[str, str]]:
    """The plans of the tools that annotate arguments, and the tools with an invalid annotation."""
    plans: dict[str, HeaderPlan] = {}
    bad: dict[str, str] = {}
    for name, definition in tools.items():
        try:
            plan = header_plan_of(definition.get("inputSchema"))
        except BadHeaderAnnotation as error:
            bad[name] = str(error)
        else:
            if plan is not None:
                plans[name] = plan
    return MappingProxyType(plans), MappingProxyType(bad)


# --- Fetching: all pages of a list.


class FetchedList(NamedTuple):
    """All entries of a list, and what its server says about keeping them."""

    entries: list[Any]
    fresh_until: float
    """The time on the loop's clock until when all pages are fresh; already over where the server says nothing."""
    public: bool
    """Whether the list is the same for all callers."""


def changed_lists(method: str) -> tuple[Part, ...]:
    """The lists that a notification with this method announces as changed."""
    return tuple(part for part, each in LISTS.items() if each.changed == method)


_SHORTEST_KEPT: Final = 5.0
"""Seconds for which a list is not fetched again for its age alone, whatever its server says."""
_UNSAID_KEPT: Final = 60.0
"""The same for a list of the stateless era whose server neither says how long it is fresh nor announces its changes."""


def seconds_to_keep(part: Part, said: float, welcome: ServerWelcome | None, *, is_heard: bool = True) -> float:
    """For how many seconds a list is shown before its server is asked again. `said` are those for which the server calls it fresh.

    A server that says nothing about time is relied on to announce changes, and one with sessions to keep its list unless it does. `is_heard` is False
    while announcements of the stateless era do not arrive.
    """
    if said > 0:
        return max(said, _SHORTEST_KEPT)
    if welcome is None or not welcome.is_stateless:
        return math.inf
    announced = is_heard and is_declared(welcome.capabilities, f"{LISTS[part].capability}.listChanged")
    return math.inf if announced else _UNSAID_KEPT


async def fetch_lists(line: Line, parts: Collection[Part], most: int) -> dict[Part, FetchedList]:
    """These lists of a server. Raises as `fetch_all_pages`."""
    return {part: await fetch_list(line, part, most) for part in PARTS if part in parts}


async def fetch_list(line: Line, part: Part, most: int) -> FetchedList:
    """One of a server's lists, over all pages; empty where it has none. Raises as `fetch_all_pages`."""
    what, welcome = LISTS[part], line.welcome
    none = FetchedList([], math.inf, public=True)
    if welcome is None or what.capability not in welcome.capabilities:
        return none
    try:
        return await fetch_all_pages(line, what.method, what.key, most)
    except PeerError as error:
        if error.code == ErrorCode.METHOD_NOT_FOUND:
            return none  # many servers declare resources and do not implement templates
        raise


async def fetch_all_pages(line: Line, method: str, key: str, most: int) -> FetchedList:
    """All entries of a list. Raises `ClientError`, and `PeerError` for an invalid page."""
    entries: list[Any] = []
    seen: set[str] = set()
    cursor: str | None = None
    fresh_until, public = math.inf, True
    loop = asyncio.get_running_loop()
    while True:
        page = await line.request(method, None if cursor is None else {"cursor": cursor})
        found = page.get(key)
        if not isinstance(found, list):
            raise BadAnswer(f"the server answered {method} without a list of {key}")
        entries += found
        hint = received_cache(page)
        fresh_until, public = min(fresh_until, loop.time() + hint.seconds), public and hint.public
        following: Any = page.get("nextCursor")
        if following is None:
            return FetchedList(entries, fresh_until, public)
        if not isinstance(following, str):
            raise BadAnswer(f"the server answered {method} with a cursor that is not a string")
        cursor = following
        if cursor in seen or len(seen) + 1 >= most:
            again = "returned the same cursor twice" if cursor in seen else f"has more than {most} pages"
            raise TooManyPages(f"{method} of {line.name} {again}")
        seen.add(cursor)


# --- The interface that tool routers, hosts and gateways use: servers by id, the line to each, and its lists.
# The federation implements it; so do tests, and programs that get their servers from elsewhere.


class Upstreams(Protocol):
    """Servers by id."""

    def ids(self) -> Collection[str]:
        """The ids of the present servers."""
        ...

    def line(self, id: str) -> Line | None:
        """The line to a server; None for an unknown id."""
        ...

    def serial(self, id: str) -> int | None:
        """A number that changes when the server with this id is replaced; None for an unknown id."""
        ...

    def known(self, id: str) -> Offering | None:
        """The server's lists as last fetched, without waiting; None before the first fetch. The same object while nothing changes."""
        ...

    async def freshen(self, *parts: Part) -> None:
        """Fetch these lists again from servers that no longer call them fresh, and wait for that a moment. Failures leave the lists as they are."""

    def shown(self, id: str) -> Offering | None:
        """The lists to show to clients: an unreachable server may show none, or tools marked as not available."""
        ...

    def refusal(self, id: str) -> Exception | None:
        """The error with which calls fail now, before they are sent; None if they would be sent, or wait for the server to start."""
        ...

    def timeout(self, id: str, method: str) -> float | None:
        """The default timeout of such a request to this server; None is no limit."""
        ...

    async def offering(self, id: str, *, timeout: float | None = ...) -> Offering:
        """The server's lists, waiting for the first fetch if need be. Raises `ClientError` or `PeerError`."""
        ...
