"""What is offered, page by page, as each revision knows it: answered from the snapshot, without a process.

A list is sorted and fitted once for each snapshot, revision and set of scopes that matters, and each page is encoded once; all that is left to do for a peer is
its request's id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from greenroom.protocol.fitting import fit
from greenroom.protocol.json import encode
from greenroom.protocol.pages import page

from .scopes import may_use, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .catalogue import Catalogue, Kind
    from .jobs import Facts
    from .settings import Settings


_KEPT: Final = 256
"""How many lists of one snapshot are kept: there may be as many as there are sets of scopes."""


class _List(NamedTuple):
    """All of a kind, as one revision is told of it."""

    keys: list[str]
    wires: list[Any]
    pages: dict[int, msgspec.Raw]
    """Whole pages, encoded, by where they begin; there are no more of them than of items."""


class Listing(NamedTuple):
    """One of the methods that list."""

    method: str
    kind: Kind
    member: str
    """What the list is called in the result."""
    key: Callable[[Any], str]
    """What it is sorted by."""


def _name(entry: Any) -> str:
    name: str = entry.name
    return name


LISTINGS: Final = (
    Listing("tools/list", "tool", "tools", _name),
    Listing("resources/list", "resource", "resources", _name),
    Listing("resources/templates/list", "resource_template", "resourceTemplates", _name),
    Listing("prompts/list", "prompt", "prompts", _name),
)


def answer_of(listing: Listing) -> Callable[[Catalogue, Mapping[str, Any], Settings, Facts], Any]:
    """The function that answers this method: a result that is encoded already."""

    def answer(catalogue: Catalogue, params: Mapping[str, Any], settings: Settings, facts: Facts) -> msgspec.Raw:
        size = settings.page_size
        whole = _whole(catalogue, listing, facts)
        part, following = page(whole.keys, params.get("cursor"), size, listing.kind)
        kept = whole.pages.get(part.start)
        if kept is not None:
            return kept
        result: dict[str, Any] = {listing.member: whole.wires[part]}
        if following is not None:
            result["nextCursor"] = following
        encoded = msgspec.Raw(encode(result))
        if part.start % size == 0:  # where a cursor of this very snapshot begins; any other is worked out anew
            whole.pages[part.start] = encoded
        return encoded

    return answer


def _whole(catalogue: Catalogue, listing: Listing, facts: Facts) -> _List:
    key = (listing.kind, facts.version, visible(listing.kind, catalogue, facts.peer))
    kept = catalogue.pages.get(key)
    if kept is None:
        seen = [entry for entry in catalogue.all(listing.kind).values() if may_use(entry, facts.peer)]
        entries: list[Any] = sorted(seen, key=listing.key)
        wires = [dict(entry.wire) for entry in entries]
        fitted = fit(listing.method, {listing.member: wires}, facts.version)
        kept = _List([listing.key(entry) for entry in entries], fitted[listing.member], {})
        if len(catalogue.pages) < _KEPT:
            catalogue.pages[key] = kept
    whole: _List = kept
    return whole
