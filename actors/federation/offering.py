"""What an upstream offers at one moment, over all pages of its lists: an immutable snapshot, and what differs between two.

A reader takes the current snapshot and keeps it as long as it likes. A fetch makes a new one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias, cast, get_args

from greenroom.actors.client.errors import TooManyPages
from greenroom.protocol.errors import BadAnswer, ErrorCode, PeerError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from greenroom.actors.catalogue import Kind
    from greenroom.actors.client.interfaces import Line

Part: TypeAlias = Literal["tools", "resources", "templates", "prompts"]
PARTS: Final[tuple[Part, ...]] = get_args(Part)

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


def _nothing() -> Mapping[str, Any]:
    return _NOTHING


class ListSpec(NamedTuple):
    """One of a server's lists, as the protocol has it."""

    method: str
    key: str
    """The member of a page that has the entries."""
    capability: str
    name: str
    """The member of an entry by which it is known."""
    kind: Kind

    @property
    def changed(self) -> str:
        """The notification that says that the list has changed."""
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
    """Of one list: which names are new, are gone, or mean something else now. A renamed one is gone, and new."""

    added: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()
    changed: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    @classmethod
    def between(cls, before: Mapping[str, Any], after: Mapping[str, Any]) -> Difference:
        """From one list by name to another."""
        changed = (name for name in before.keys() & after.keys() if before[name] != after[name])
        return cls(frozenset(after.keys() - before.keys()), frozenset(before.keys() - after.keys()), frozenset(changed))


@dataclass(frozen=True, slots=True)
class Differences:
    """Of all lists."""

    tools: Difference = Difference()
    resources: Difference = Difference()
    templates: Difference = Difference()
    prompts: Difference = Difference()

    def __bool__(self) -> bool:
        return any(getattr(self, part) for part in PARTS)


@dataclass(frozen=True, slots=True)
class Offering:
    """A snapshot: by name, URI or template, what the server said of it. `version` counts the snapshots that differed."""

    tools: Mapping[str, Mapping[str, Any]] = field(default_factory=_nothing, repr=False)
    resources: Mapping[str, Mapping[str, Any]] = field(default_factory=_nothing, repr=False)
    templates: Mapping[str, Mapping[str, Any]] = field(default_factory=_nothing, repr=False)
    prompts: Mapping[str, Mapping[str, Any]] = field(default_factory=_nothing, repr=False)
    version: int = 0
    left_out: Mapping[Part, int] = field(default_factory=dict[Part, int])
    """How many entries had no name, or one that another had already: such a name would be ambiguous."""

    def part(self, part: Part) -> Mapping[str, Mapping[str, Any]]:
        """One of the lists."""
        return cast("Mapping[str, Mapping[str, Any]]", getattr(self, part))

    def with_lists(self, lists: Mapping[Part, Iterable[Any]]) -> Offering:
        """With these lists instead of the old ones. The same object, when nothing is different."""
        left_out = dict(self.left_out)
        parts: dict[Part, Mapping[str, Any]] = {}
        for part, entries in lists.items():
            parts[part], left_out[part] = _by_name(entries, LISTS[part].name)
        same = all(parts[part] == self.part(part) for part in parts)
        if same and all(self.left_out.get(part, 0) == left_out[part] for part in parts):
            return self
        return replace(self, version=self.version + (not same), left_out=left_out, **cast("dict[str, Any]", parts))

    def until(self, later: Offering) -> Differences:
        """What is different in a later one."""
        if later is self:
            return Differences()
        return Differences(*(Difference.between(self.part(part), later.part(part)) for part in PARTS))


EMPTY_OFFERING: Final = Offering()


def _by_name(entries: Iterable[Any], key: str) -> tuple[Mapping[str, Any], int]:
    """Entries by name, the first of each, and how many were left out."""
    found: dict[str, Any] = {}
    left_out = 0
    for entry in entries:
        name: Any = cast("dict[str, Any]", entry).get(key) if isinstance(entry, dict) else None
        if not isinstance(name, str) or not name or name in found:
            left_out += 1
        else:
            found[name] = entry
    return MappingProxyType(found), left_out


# --- How it is fetched: all pages of a list.


def changed_lists(method: str) -> tuple[Part, ...]:
    """The lists that this notification says have changed."""
    return tuple(part for part, each in LISTS.items() if each.changed == method)


async def fetch_lists(line: Line, parts: Collection[Part], most: int) -> dict[Part, list[Any]]:
    """These lists of a server. Raises as `fetch_all_pages`."""
    return {part: await fetch_list(line, part, most) for part in PARTS if part in parts}


async def fetch_list(line: Line, part: Part, most: int) -> list[Any]:
    """One of a server's lists, over all pages; empty where it has none. Raises as `fetch_all_pages`."""
    what, welcome = LISTS[part], line.welcome
    if welcome is None or what.capability not in welcome.capabilities:
        return []
    try:
        return await fetch_all_pages(line, what.method, what.key, most)
    except PeerError as error:
        if error.code == ErrorCode.METHOD_NOT_FOUND:
            return []  # many declare resources, and know nothing of templates
        raise


async def fetch_all_pages(line: Line, method: str, key: str, most: int) -> list[Any]:
    """All entries of a list. Raises `ClientError`, and `PeerError` for what is no page."""
    entries: list[Any] = []
    seen: set[str] = set()
    cursor: str | None = None
    while True:
        page = await line.request(method, None if cursor is None else {"cursor": cursor})
        found = page.get(key)
        if not isinstance(found, list):
            raise BadAnswer(f"the server answered {method} without a list of {key}")
        entries += found
        following: Any = page.get("nextCursor")
        if following is None:
            return entries
        if not isinstance(following, str):
            raise BadAnswer(f"the server answered {method} with a cursor that is no text")
        cursor = following
        if cursor in seen or len(seen) + 1 >= most:
            again = "comes back to a page that was there before" if cursor in seen else f"has more than {most} pages"
            raise TooManyPages(f"{method} of {line.name} {again}")
        seen.add(cursor)


# --- What an agent, a host and a gateway need of a federation: its servers, the way to each, and what each of them offers.
# The federation implements it; so may a test, or a program that has its servers from somewhere else.


class Upstreams(Protocol):
    """Servers by their ids."""

    def ids(self) -> Collection[str]:
        """The servers in it just now."""
        ...

    def line(self, id: str) -> Line | None:
        """The way to a server; None when there is no such server."""
        ...

    def serial(self, id: str) -> int | None:
        """Which server it is that has this id now: another number after it was replaced; None when there is none."""
        ...

    def known(self, id: str) -> Offering | None:
        """What it offers as far as that is known, at once; None when it was never asked. The same object as long as nothing has changed."""
        ...

    def shown(self, id: str) -> Offering | None:
        """The same as it is to be listed: a server that is away may show nothing, or tools that say so."""
        ...

    def refusal(self, id: str) -> Exception | None:
        """Why calls of it fail just now, before they are sent; None where they would go, or wait for it to be started."""
        ...

    def timeout(self, id: str, method: str) -> float | None:
        """How long such a request of a server may take whose caller does not say; None for no limit."""
        ...

    async def offering(self, id: str, *, timeout: float | None = ...) -> Offering:
        """What it offers. Asked of the server where that is not known. Raises `ClientError` or `PeerError`."""
        ...
