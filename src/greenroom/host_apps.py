"""`HostApps`: the apps of a host's tools (MCP Apps, `io.modelcontextprotocol/ui`): their documents, what these may reach, and the calls that they make.

::

    async with Host({"games": "https://games.example/mcp"}, apps=True) as host:
        app = await host.apps.open("games:scores")                 # None for a tool without an app
        show(app.html, policy=app.policy, allow=app.allow)         # in a sandboxed frame, of another origin than the host's own
        reply = await app.call("next_round", {"round": 2})         # a call that the document makes

The document is a program of a stranger. What it may reach is what the server has declared, read here strictly: an entry that is no origin is left out, so that
it adds nothing to the policy. It calls tools of its own server alone, of those that are for apps, and each call passes the host's consent and pins as any other.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, get_args

from greenroom.actors.apps import (
    APP_TYPE,
    CSP_MEMBERS,
    AppCsp,
    AppView,
    Permission,
    check_app_uri,
    is_app_domain,
    is_origin,
)
from greenroom.actors.catalogue import RegistrationError
from greenroom.protocol.serialization import is_array, is_object
from greenroom.supervision import visible

from .errors import GreenroomError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from greenroom.protocol.content import Contents
    from greenroom.protocol.received_results import ResourceReply, ToolReply

    from .host import Host

_logger: Final = logging.getLogger("greenroom.apps")
_MOST_ORIGINS: Final = 64
"""The most origins of one kind: each makes the policy longer, and browsers limit headers."""
_SHOWN: Final = 200
_NOTHING: Final = "'none'"
_OWN: Final = "'self'"
_FEATURES: Final[Mapping[str, str]] = {"clipboardWrite": "clipboard-write"}
"""Permissions whose feature has another name in a frame's `allow`."""


class AppRefused(GreenroomError):
    """A document that is none of an app, or a call that it may not make."""

    def __init__(self, uri: str, why: str) -> None:
        """`why` completes the sentence that begins with the URI."""
        super().__init__(uri, why)
        self.uri = uri
        self.why = why

    def __str__(self) -> str:
        return f"{visible(self.uri, _SHOWN)}: {self.why}"


@dataclass(frozen=True, slots=True)
class HostedApp:
    """The document of an app, as its server has sent it, and what it asks for. Made by `HostApps.open` and `read`."""

    server: str
    """The host's own name for the server. Show it beside the document, which may claim to be another's."""
    uri: str
    html: str = field(repr=False)
    view: AppView
    """The origins that the document may reach, and its wishes: the valid entries of the server's declaration."""
    left_out: Sequence[str]
    """Invalid entries of that declaration, for the server's author."""
    _host: Host = field(repr=False, compare=False)

    @property
    def policy(self) -> str:
        """The Content-Security-Policy for the document: it allows what the server has declared, and nothing else."""
        csp = self.view.csp or AppCsp()
        resources = "".join(f" {each}" for each in csp.resource_domains)
        connected, framed = " ".join(csp.connect_domains) or _NOTHING, " ".join(csp.frame_domains) or _NOTHING
        return "; ".join(
            (
                "default-src 'none'",
                f"script-src 'self' 'unsafe-inline'{resources}",
                f"style-src 'self' 'unsafe-inline'{resources}",
                f"img-src 'self' data:{resources}",
                f"font-src 'self'{resources}",
                f"media-src 'self' data:{resources}",
                f"connect-src {connected}",
                f"frame-src {framed}",
                f"base-uri {' '.join(csp.base_uri_domains) or _OWN}",
                "object-src 'none'",
                "form-action 'none'",
            )
        )

    @property
    def allow(self) -> str:
        """The frame's `allow` attribute, if the host grants all that the document asks for: capabilities of the browser, such as the camera."""
        return "; ".join(_FEATURES.get(each, each) for each in self.view.permissions)

    async def call(self, tool: str, arguments: Mapping[str, Any] | None = None) -> ToolReply:
        """Make a call of the document: of a tool of its own server, by its name there. Pass the reply's `raw` back to the document.

        Raises `AppRefused` for a tool that is not for apps, and as `Host.call_tool`.
        """
        host = self._host
        host.check_open()
        found = await host.router.find(host.router.name_of(self.server, tool))
        if (found.server, found.tool) != (self.server, tool) or not found.is_for_apps:
            _logger.warning("%s asked for %s, which is not for apps", self, visible(tool, _SHOWN))
            raise AppRefused(self.uri, f"its server keeps the tool {visible(tool, _SHOWN)} from apps")
        _logger.info("%s calls %s", self, visible(tool, _SHOWN))
        return await host.call_tool(found.name, dict(arguments or {}))

    async def read_resource(self, uri: str) -> ResourceReply:
        """Read a resource for the document: of its own server."""
        return await self._host.server(self.server).read_resource(uri)

    def __str__(self) -> str:
        return f"the app {visible(self.uri, _SHOWN)} of {self.server}"


class HostApps:
    """The apps of one host's tools: `host.apps`."""

    def __init__(self, host: Host) -> None:
        """Made by `Host.apps`."""
        self._host = host

    def __repr__(self) -> str:
        return f"<HostApps of {self._host!r}>"

    async def uri_of(self, tool: str) -> str | None:
        """The URI of the document that shows a tool's results, by the tool's full name; None for a tool without an app.

        Raises as `Host.call` for a wrong name, and `AppRefused` for a URI that is none of a document.
        """
        self._host.check_open()
        uri = (await self._host.router.find(tool)).app_uri
        return None if uri is None else _checked(uri)

    async def open(self, tool: str) -> HostedApp | None:
        """The document that shows a tool's results, read from its server; None for a tool without an app. Raises as `uri_of` and `read`."""
        self._host.check_open()
        found = await self._host.router.find(tool)
        return None if found.app_uri is None else await self.read(found.server, found.app_uri)

    async def read(self, server: str, uri: str) -> HostedApp:
        """The document of this URI. Raises `AppRefused` if what the server sends is no document of an app."""
        reply = await self._host.server(server).read_resource(_checked(uri))
        if len(reply.contents) != 1 or reply.contents[0].uri != uri:
            raise AppRefused(uri, "the server has answered with something else than this document")
        (document,) = reply.contents
        kind = (document.mime_type or "").replace(" ", "").lower()
        if kind != APP_TYPE:
            raise AppRefused(uri, f"its type is {visible(kind, _SHOWN) or 'not said'}, and must be {APP_TYPE}")
        view, left_out = read_view(document.meta)
        for each in left_out[:_MOST_ORIGINS]:
            _logger.warning("%s of %s declares what is left out: %s", visible(uri, _SHOWN), server, each)
        return HostedApp(server, uri, _text(document), view, left_out, self._host)


def _checked(uri: str) -> str:
    try:
        check_app_uri(uri)
    except RegistrationError as error:
        raise AppRefused(uri, visible(str(error), 2 * _SHOWN)) from None
    return uri


def _text(document: Contents) -> str:
    if document.blob is None:
        return document.text or ""
    try:
        return document.blob.decode()
    except UnicodeDecodeError:
        raise AppRefused(document.uri, "it is not UTF-8") from None


def read_view(meta: Mapping[str, Any] | None) -> tuple[AppView, list[str]]:
    """The declaration in a document's `_meta.ui` without its invalid entries, and descriptions of these.

    A declaration that is left out makes the document's policy stricter, never wider.
    """
    left_out: list[str] = []

    def member(values: Mapping[str, Any], path: str, name: str, kind: str, is_valid: Any) -> Any:
        value: Any = values.get(name)
        if value is None or is_valid(value):
            return value
        left_out.append(f"{path}{name} must be {kind}, not {_short(value)}")
        return None

    ui: Any = member(meta or {}, "", "ui", "an object", is_object) or {}
    csp: Any = member(ui, "ui.", "csp", "an object", is_object)
    permissions: Any = member(ui, "ui.", "permissions", "an object", is_object) or {}
    granted = tuple(
        name
        for name in get_args(Permission)
        if member(permissions, "ui.permissions.", name, "an object", is_object) is not None
    )
    domain: str | None = member(ui, "ui.", "domain", "the name of a host", is_app_domain)
    border: bool | None = member(ui, "ui.", "prefersBorder", "true or false", _is_bool)
    found: dict[str, tuple[str, ...]] = {}
    for name, wire in CSP_MEMBERS.items():
        listed: Any = member(csp or {}, "ui.csp.", wire, "a list of origins", is_array) or ()
        origins = tuple(dict.fromkeys(each for each in listed if is_origin(each)))
        found[name] = origins[:_MOST_ORIGINS]
        wrong = next((each for each in listed if not is_origin(each)), None)
        if wrong is not None:
            left_out.append(f"ui.csp.{wire} has values that are no origins, such as {_short(wrong)}")
        if len(origins) > _MOST_ORIGINS:
            left_out.append(f"ui.csp.{wire} has {len(origins)} origins, and {_MOST_ORIGINS} are taken")
    view = AppView(
        csp=None if csp is None else AppCsp(**found), permissions=granted, domain=domain, prefers_border=border
    )
    return view, left_out


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _short(value: object) -> str:
    return visible(repr(value)[: 2 * _SHOWN], _SHOWN)
