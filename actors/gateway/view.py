"""What clients of a gateway are shown: everything that the upstreams offer, under names that are legal for every client and every model.

A snapshot, made anew when an upstream offers something else. What the server itself has registered under the same name comes first: the
upstream's is then left out, and that is said in the log.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.protocol.provider_names import ProviderNames

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from greenroom.actors.catalogue import Catalogue
    from greenroom.actors.federation.offering import Offering
    from greenroom.actors.federation.tool_catalogue import ToolCatalogue

    from .addresses import Addresses

_log: Final = logging.getLogger("greenroom.gateway")


class Origin(NamedTuple):
    """Whose something is, and what it is called there."""

    server: str
    name: str


@dataclass(frozen=True, slots=True)
class View:
    """At one moment."""

    tools: Mapping[str, Origin]
    prompts: Mapping[str, Origin]
    lists: Mapping[str, Mapping[str, Mapping[str, Any]]]
    """By method: what is listed, by what it is sorted by."""


def view_of(
    tools: ToolCatalogue, offerings: Mapping[str, Offering], own: Catalogue, addresses: Addresses, prefix: str
) -> View:
    """The view of these upstreams, beside what the server has itself."""
    separator = tools.separator
    tool_origins: dict[str, Origin] = {}
    listed_tools: dict[str, Mapping[str, Any]] = {}
    names = ProviderNames([prefix + one.name for one in tools], separator)
    for one in tools:
        name = names.of(prefix + one.name)
        if own.tool(name) is not None:
            _hidden("tool", name, one.server)
            continue
        tool_origins[name] = Origin(one.server, one.tool)
        # No task of an upstream's is carried through here, so none is offered.
        listed_tools[name] = {
            key: value for key, value in {**one.definition, "name": name}.items() if key != "execution"
        }
    prompts: dict[str, Origin] = {}
    listed_prompts: dict[str, Mapping[str, Any]] = {}
    found = {f"{prefix}{id}{separator}{name}": (id, name) for id, one in offerings.items() for name in one.prompts}
    names = ProviderNames(found, separator)
    for full, (id, name) in found.items():
        public = names.of(full)
        if own.prompt(public) is not None:
            _hidden("prompt", public, id)
            continue
        prompts[public] = Origin(id, name)
        listed_prompts[public] = {**offerings[id].prompts[name], "name": public}
    return View(
        tool_origins,
        prompts,
        {
            "tools/list": listed_tools,
            "prompts/list": listed_prompts,
            "resources/list": _addressed(offerings.items(), "resources", "uri", addresses),
            "resources/templates/list": _addressed(offerings.items(), "templates", "uriTemplate", addresses),
        },
    )


def _addressed(
    offerings: Iterable[tuple[str, Offering]], part: Any, member: str, addresses: Addresses
) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for id, offering in offerings:
        for uri, entry in offering.part(part).items():
            outward = addresses.outward(id, uri)
            found[outward] = {**entry, member: outward}
    return found


def _hidden(kind: str, name: str, server: str) -> None:
    _log.warning("the %s %s of %s is left out: the gateway's own server has one of that name", kind, name, server)
