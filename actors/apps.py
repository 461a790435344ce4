"""MCP Apps (`io.modelcontextprotocol/ui`): tools whose results a host shows in a user interface, which is an HTML document that the server offers.

The document is a resource with a `ui://` URI. A tool names it, and a host that has the extension shows the document, in a sandbox, with the tool's
result. For every other host the tool is an ordinary one, and its result is text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast, get_args

from greenroom.protocol.extension_ids import APPS_ID, declared_extensions
from greenroom.protocol.handler_results import json_text
from greenroom.protocol.serialization import is_array

from .catalogue import RegistrationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .catalogue import Catalogue
    from .catalogue_entries import ResourceEntry, ToolEntry
    from .context import Context

APP_TYPE: Final = "text/html;profile=mcp-app"
"""The MIME type of an app's document."""
APP_SCHEME: Final = "ui://"
APPS_SETTINGS: Final[Mapping[str, Any]] = {"mimeTypes": [APP_TYPE]}

Audience: TypeAlias = Literal["model", "app"]
"""Callers of a tool: the host's model, or the app's document."""
Permission: TypeAlias = Literal["camera", "microphone", "geolocation", "clipboardWrite"]
"""A capability of the browser that a document asks for."""

_ORIGIN: Final = re.compile(
    r"(?:https?|wss?)://(?:\*\.)?[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?(?::[0-9]{1,5})?"
)
_DOMAIN: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")
_URI: Final = re.compile(r"ui://[^\s{}<>\"\\^`|]+")
_DOCUMENT: Final = re.compile(r"<(?:!doctype\s+html\b|html\b)", re.IGNORECASE)
_MOST_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class App:
    """The app of a tool: ``@server.tool(app=App("ui://board"))``. `Server.app` registers the document and returns one.

    `uri` is the document in which a host shows the tool's results; None for a tool that only the document of another tool calls. `visibility` names
    the callers of the tool: without "model", a host keeps it from its model. That is no access control, which `scopes` are.
    """

    uri: str | None = None
    visibility: Sequence[Audience] = ("model", "app")

    def __post_init__(self) -> None:
        if self.uri is not None:
            check_app_uri(self.uri)
        visibility: Any = self.visibility
        if not _is_collection(visibility) or not visibility:
            raise RegistrationError(f'visibility must be a list of "model" and "app", not {visibility!r}')
        for each in visibility:
            if each not in get_args(Audience):
                raise RegistrationError(f'visibility must be a list of "model" and "app", and {each!r} is neither')

    def to_wire(self) -> dict[str, Any]:
        """The tool's `_meta.ui`."""
        wire: dict[str, Any] = {} if self.uri is None else {"resourceUri": self.uri}
        return {**wire, "visibility": list(dict.fromkeys(self.visibility))}


@dataclass(frozen=True, slots=True, kw_only=True)
class AppCsp:
    """The origins that a document may reach, as `https://api.example.com` or `https://*.example.com`. A host forbids all others."""

    connect_domains: Collection[str] = ()
    """For requests: fetch, XHR, WebSocket."""
    resource_domains: Collection[str] = ()
    """For images, scripts, styles, fonts and media."""
    frame_domains: Collection[str] = ()
    """For documents inside of this one."""
    base_uri_domains: Collection[str] = ()
    """For the document's base address."""

    def __post_init__(self) -> None:
        for name in CSP_MEMBERS:
            origins: Any = getattr(self, name)
            if not _is_collection(origins):
                raise RegistrationError(f"{name} is a list of origins, not {origins!r}")
            for each in origins:
                # A blank or a semicolon would add a directive of its own to the policy.
                if not is_origin(each):
                    raise RegistrationError(
                        f'{name}: an origin is like "https://api.example.com" or "https://*.example.com", without a path, not {each!r}'
                    )

    def to_wire(self) -> dict[str, Any]:
        """The member `csp` of a document's `_meta.ui`."""
        found = {wire: list(getattr(self, name)) for name, wire in CSP_MEMBERS.items()}
        return {name: origins for name, origins in found.items() if origins}


CSP_MEMBERS: Final[Mapping[str, str]] = {
    "connect_domains": "connectDomains",
    "resource_domains": "resourceDomains",
    "frame_domains": "frameDomains",
    "base_uri_domains": "baseUriDomains",
}
"""The members of `AppCsp`, each with its name on the wire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppView:
    """How a host shows an app's document."""

    csp: AppCsp | None = None
    """The origins that the document may reach; none without it."""
    permissions: Collection[Permission] = ()
    """Capabilities of the browser that the document asks for. A host may refuse them."""
    domain: str | None = None
    """An origin of its own for the document, where the host offers one; its form differs between hosts."""
    prefers_border: bool | None = None
    """Whether the host draws a border; None leaves it to the host."""

    def __post_init__(self) -> None:
        if self.csp is not None and not isinstance(cast("object", self.csp), AppCsp):
            raise RegistrationError(f"csp must be AppCsp(connect_domains=[…]), not {self.csp!r}")
        permissions: Any = self.permissions
        if not _is_collection(permissions):
            raise RegistrationError(f"permissions is a list of names, not {permissions!r}")
        for each in permissions:
            if each not in get_args(Permission):
                raise RegistrationError(f"permissions: there are {', '.join(get_args(Permission))}, and no {each!r}")
        if self.domain is not None and not is_app_domain(self.domain):
            raise RegistrationError(f"domain must be the name of a host, without a scheme, not {self.domain!r}")
        if self.prefers_border not in (None, True, False):
            raise RegistrationError(f"prefers_border must be True, False or None, not {self.prefers_border!r}")

    def to_wire(self) -> dict[str, Any]:
        """The document's `_meta.ui`."""
        wire: dict[str, Any] = {}
        if self.csp is not None:
            wire["csp"] = self.csp.to_wire()
        if self.permissions:
            wire["permissions"] = {name: {} for name in get_args(Permission) if name in self.permissions}
        if self.domain is not None:
            wire["domain"] = self.domain
        if self.prefers_border is not None:
            wire["prefersBorder"] = self.prefers_border
        return wire


def is_origin(value: object) -> bool:
    """Whether a value is an origin for a document's policy, as `https://api.example.com` or `https://*.example.com`."""
    return isinstance(value, str) and _ORIGIN.fullmatch(value) is not None


def is_app_domain(value: object) -> bool:
    """Whether a value is the name of a host, which a document may ask for as its own origin."""
    return isinstance(value, str) and _DOMAIN.fullmatch(value) is not None


def _is_collection(value: object) -> bool:
    return isinstance(value, Collection) and not isinstance(value, str | bytes)


def check_app_uri(uri: object) -> None:
    """Raise `RegistrationError` for a value that is no URI of an app's document."""
    if not isinstance(uri, str) or not _URI.fullmatch(uri):
        raise RegistrationError(f'the document of an app has a URI such as "ui://board", not {uri!r:.200}')


def app_of(what: str, given: Any) -> App | None:
    """The app of a tool, from the option `app`: an `App`, or the URI of its document."""
    match given:
        case None | App():
            return given
        case str():
            try:
                return App(given)
            except RegistrationError as error:
                raise RegistrationError(f"{what}: app: {error}") from None
        case _:
            raise RegistrationError(f'{what}: app must be App("ui://…"), or the URI, not {given!r}')


def check_app(entry: ToolEntry, documents: Callable[[str], ResourceEntry | None]) -> None:
    """Raise `RegistrationError` when the document of a tool's app is not registered, or is no document of an app."""
    app = entry.app
    if app is None or app.uri is None:
        return
    document = documents(app.uri)
    if document is None:
        raise RegistrationError(
            f"tool {entry.name!r}: there is no resource {app.uri}: register its document first, as in "
            f'board = server.app({app.uri!r}, Path("board.html")), and give the tool app=board'
        )
    if document.mime_type != APP_TYPE:
        raise RegistrationError(
            f"tool {entry.name!r}: the resource {app.uri} is {document.mime_type}, and the document of an app is {APP_TYPE}: leave out its mime_type"
        )


def has_apps(catalogue: Catalogue) -> bool:
    """Whether a tool with an app, or a document of one, is registered."""
    known: bool | None = catalogue.pages.get(APPS_ID)
    if known is None:
        tools: Any = catalogue.all("tool").values()
        documents: Any = catalogue.all("resource").values()
        known = any(each.app is not None for each in tools) or any(each.mime_type == APP_TYPE for each in documents)
        catalogue.pages[APPS_ID] = known
    return known


def shows_apps(ctx: Context) -> bool:
    """Whether the client of this call shows apps: it has declared the extension, with the type of their documents."""
    settings = declared_extensions(ctx.client_capabilities).get(APPS_ID)
    types = None if settings is None else settings.get("mimeTypes")
    return is_array(types) and APP_TYPE in types


def with_text(entry: ToolEntry, result: dict[str, Any]) -> dict[str, Any]:
    """The result of a tool with an app, with a text for clients that show no app."""
    content: Sequence[Any] = result.get("content") or ()
    if any(block.get("type") == "text" and block.get("text") for block in content):
        return result
    data = result.get("structuredContent")
    text = f"{entry.definition.title or entry.name}: done" if data is None else json_text(data)
    return {**result, "content": [*content, {"type": "text", "text": text}]}


def document_of(uri: str, html: Any) -> Callable[..., Any]:
    """The function that returns an app's document, of a text, a file, or a function. Raises `RegistrationError`."""
    if isinstance(html, str):
        _check_document(uri, html, 'a file is given as Path("board.html")')

        async def text() -> str:
            return html

        return text
    if isinstance(html, PathLike):
        path = Path(cast("PathLike[str]", html)).absolute()

        def read() -> str:
            # Read at each request, so that a page can be worked on while the server runs.
            with path.open("rb") as file:
                data = file.read(_MOST_BYTES + 1)
            if len(data) > _MOST_BYTES:
                raise ValueError(f"{path} has more than {_MOST_BYTES} bytes")
            return data.decode()

        try:
            whole = read()
        except (OSError, ValueError) as error:
            raise RegistrationError(f"app {uri}: {path} cannot be read: {error}") from None
        _check_document(uri, whole, f"{path} is a part of one")
        return read
    if callable(html):
        return cast("Callable[..., Any]", html)
    raise RegistrationError(
        f'app {uri}: its document is a text, a Path("board.html"), or a function that returns the text, not {html!r:.200}'
    )


def _check_document(uri: str, html: str, otherwise: str) -> None:
    head = html.lstrip()
    while head.startswith("<!--") and (end := head.find("-->")) >= 0:
        head = head[end + 3 :].lstrip()
    if not _DOCUMENT.match(head):
        raise RegistrationError(
            f"app {uri}: its document must be a whole one, which begins with <!doctype html>: {otherwise}"
        )
