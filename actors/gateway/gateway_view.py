"""The view that clients of a gateway have: the upstreams' lists, under names that are legal for every client and every model.

A view is a snapshot, made again when an upstream's lists change. An entry that the server itself has registered under the same name wins: the
upstream's is left out with a warning.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, unquote

from greenroom.actors.apps import APP_SCHEME
from greenroom.actors.federation.tool_router import same_objects
from greenroom.protocol.provider_rules import ProviderNames
from greenroom.protocol.serialization import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from greenroom.actors.catalogue import Catalogue
    from greenroom.actors.federation.offering import Offering, Upstreams
    from greenroom.actors.federation.tool_catalogue import FederatedTool, ToolCatalogue
    from greenroom.actors.federation.tool_router import ToolRouter
    from greenroom.protocol.mirrored_headers import HeaderPlan

    from .client_connections import ClientConnection

_log: Final = logging.getLogger("greenroom.gateway")


class UpstreamRef(NamedTuple):
    """A tool or prompt of an upstream: the server's id, and the name there."""

    server: str
    name: str
    definition: Mapping[str, Any] = MappingProxyType({})
    """A tool's definition, as its server sent it."""
    header_plan: HeaderPlan | None = None
    """The arguments of a tool that HTTP headers repeat."""


@dataclass(frozen=True, slots=True)
class GatewayView:
    """The lists of a gateway at one moment."""

    tools: Mapping[str, UpstreamRef]
    prompts: Mapping[str, UpstreamRef]
    lists: Mapping[str, Mapping[str, Mapping[str, Any]]]
    """By list method: the entries by their sort key."""


def view_of(
    tools: ToolCatalogue, offerings: Mapping[str, Offering], own: Catalogue, addresses: UpstreamUris, prefix: str
) -> GatewayView:
    """The view of these upstreams beside the server's own catalogue."""
    separator = tools.separator
    tool_origins: dict[str, UpstreamRef] = {}
    listed_tools: dict[str, Mapping[str, Any]] = {}
    names = ProviderNames([prefix + one.name for one in tools], separator)
    for one in tools:
        name = names.of(prefix + one.name)
        if own.tool(name) is not None:
            _log_hidden("tool", name, one.server)
            continue
        tool_origins[name] = UpstreamRef(one.server, one.tool, one.definition, one.header_plan)
        # Whether a client is offered tasks depends on its revision: see `era_bridge.listed_tool`.
        listed = {key: value for key, value in one.listed_as(name).items() if key != "execution"}
        listed_tools[name] = addresses.tool(one.server, listed)
    prompts: dict[str, UpstreamRef] = {}
    listed_prompts: dict[str, Mapping[str, Any]] = {}
    found = {f"{prefix}{id}{separator}{name}": (id, name) for id, one in offerings.items() for name in one.prompts}
    names = ProviderNames(found, separator)
    for full, (id, name) in found.items():
        public = names.of(full)
        if own.prompt(public) is not None:
            _log_hidden("prompt", public, id)
            continue
        prompts[public] = UpstreamRef(id, name)
        listed_prompts[public] = {**offerings[id].prompts[name], "name": public}
    return GatewayView(
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
    offerings: Iterable[tuple[str, Offering]], part: Any, member: str, addresses: UpstreamUris
) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for id, offering in offerings:
        for uri, entry in offering.part(part).items():
            outward = addresses.outward(id, uri)
            found[outward] = {**entry, member: outward}
    return found


def _log_hidden(kind: str, name: str, server: str) -> None:
    _log.warning("the %s %s of %s is left out: the gateway's own server has one of that name", kind, name, server)


class ClientUpstreams:
    """The host's upstreams as one client sees them: some offer other lists on the client's own connection."""

    def __init__(self, upstreams: Upstreams, connections: Mapping[str, ClientConnection]) -> None:
        """`connections` are the client's own connections by server id; everything else comes from the host's upstreams."""
        self._upstreams = upstreams
        self._connections = connections
        self.ids, self.line, self.serial = upstreams.ids, upstreams.line, upstreams.serial
        self.refusal, self.timeout, self.freshen = upstreams.refusal, upstreams.timeout, upstreams.freshen

    def _own(self, id: str) -> Offering | None:
        connection = self._connections.get(id)
        return None if connection is None else connection.own_offering

    def known(self, id: str) -> Offering | None:
        """The server's lists for this client."""
        return self._own(id) or self._upstreams.known(id)

    def shown(self, id: str) -> Offering | None:
        """The lists to show to this client."""
        return self._own(id) or self._upstreams.shown(id)

    async def offering(self, id: str, *, timeout: float | None = 30.0) -> Offering:
        """The same, waiting for the first fetch if need be."""
        return self.known(id) or await self._upstreams.offering(id, timeout=timeout)


class ViewCache:
    """Caches the view of one set of lists, and makes it again when any list has changed."""

    def __init__(self, router: ToolRouter, upstreams: Upstreams, addresses: UpstreamUris, prefix: str) -> None:
        """`router` is the tool router over these `upstreams`."""
        self.router = router
        self.upstreams = upstreams
        self._uris = addresses
        self._prefix = prefix
        self._made: tuple[Mapping[str, FederatedTool], dict[str, Offering], Catalogue, GatewayView] | None = None

    def view(self, catalogue: ToolCatalogue, own: Catalogue) -> GatewayView:
        """The view beside the server's own catalogue."""
        known = {id: self.upstreams.known(id) for id in self.upstreams.ids()}
        offerings = {id: one for id, one in known.items() if one is not None}
        made = self._made
        if made is not None and made[0] is catalogue.tools and made[2] is own and same_objects(made[1], offerings):
            return made[3]
        view = view_of(catalogue, offerings, own, self._uris, self._prefix)
        self._made = (catalogue.tools, offerings, own, view)
        return view


# --- URIs of upstreams as clients of the gateway see them: `upstream://git/file:///x` is `file:///x` of `git`.
# After the server's id follows the upstream's own URI, unchanged, so that templates stay templates and the mapping can be reversed. Two servers
# with a resource of the same URI stay distinct. The document of an app keeps its scheme, by which hosts know it: `ui://upstream/git/log` is `ui://log`.

SCHEME: Final = "upstream"
_WEB: Final = ("http://", "https://")


class UpstreamUris:
    """Maps the upstreams' URIs to those of one gateway, and back."""

    def __init__(self, prefix: str = "") -> None:
        """`prefix` tells two gateways of one server apart."""
        self._prefix = prefix
        self._begin = f"{SCHEME}://"
        self._apps_begin = f"{APP_SCHEME}{SCHEME}/"

    def outward(self, server: str, uri: str) -> str:
        """The gateway's URI, or template, for an upstream's one."""
        name = quote(self._prefix + server, safe="")
        if uri.startswith(APP_SCHEME):
            return f"{self._apps_begin}{name}/{uri.removeprefix(APP_SCHEME)}"
        return f"{self._begin}{name}/{uri}"

    def inward(self, uri: str) -> tuple[str, str] | None:
        """The server's id and its own URI for a gateway's URI; None for a URI that is not of this gateway."""
        is_app = uri.startswith(self._apps_begin)
        if not is_app and not uri.startswith(self._begin):
            return None
        server, slash, own = uri[len(self._apps_begin if is_app else self._begin) :].partition("/")
        name = unquote(server)
        if not slash or not name.startswith(self._prefix) or quote(name, safe="") != server:
            return None
        return name[len(self._prefix) :], f"{APP_SCHEME}{own}" if is_app else own

    def tool(self, server: str, definition: dict[str, Any]) -> dict[str, Any]:
        """Map the URI of the document in which a host shows the results of a tool."""
        meta: Any = definition.get("_meta")
        shown: Any = meta.get("ui") if is_object(meta) else None
        uri: Any = shown.get("resourceUri") if is_object(shown) else None
        if not is_object(meta) or not is_object(shown) or not isinstance(uri, str):
            return definition
        return {**definition, "_meta": {**meta, "ui": {**shown, "resourceUri": self.outward(server, uri)}}}

    # --- results of upstreams

    def contents(self, server: str, result: Mapping[str, Any]) -> dict[str, Any]:
        """Map the URIs of a `resources/read` result."""
        contents = result.get("contents")
        return {**result, "contents": [self._with_uri(server, one) for one in contents] if is_array(contents) else []}

    def tool_result(self, server: str, result: Mapping[str, Any], listed: Container[str]) -> dict[str, Any]:
        """Map the URIs of a `tools/call` result. A web address is kept, unless it is in the server's list."""
        content = result.get("content")
        if not is_array(content):
            return dict(result)
        return {**result, "content": [self._block(server, one, listed) for one in content]}

    def prompt(self, server: str, result: Mapping[str, Any], listed: Container[str]) -> dict[str, Any]:
        """Map the URIs of a `prompts/get` result."""
        messages = result.get("messages")
        if not is_array(messages):
            return dict(result)
        return {**result, "messages": [self._message(server, one, listed) for one in messages]}

    def _message(self, server: str, message: Any, listed: Container[str]) -> Any:
        if not is_object(message) or "content" not in message:
            return message
        return {**message, "content": self._block(server, message["content"], listed)}

    def _block(self, server: str, block: Any, listed: Container[str]) -> Any:
        match block:
            case {"type": "resource_link", "uri": str(uri)}:
                return block if uri.startswith(_WEB) and uri not in listed else self._with_uri(server, block)
            case {"type": "resource", "resource": resource}:
                return {**block, "resource": self._with_uri(server, resource)}
            case _:
                return block

    def _with_uri(self, server: str, value: Any) -> Any:
        if is_object(value) and isinstance(uri := value.get("uri"), str):
            return {**value, "uri": self.outward(server, uri)}
        return value
