"""`ClientSettings`: the settings of a client's connection, checked when they are made. Times are seconds; None is no limit where it is allowed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

from greenroom.actors.settings import BadSetting
from greenroom.errors import suggests
from greenroom.protocol.dialect import HANDSHAKE_VERSIONS, LATEST_DIALECT, STATELESS_DIALECT
from greenroom.protocol.extension_ids import id_problem
from greenroom.protocol.jsonrpc import is_object
from greenroom.supervision import Backoff

if TYPE_CHECKING:
    from collections.abc import Mapping

_TIMES: Final = ("init_timeout", "probe_timeout", "ping_timeout", "close_grace")
_TIMES_OR_NONE: Final = ("request_timeout", "ping_interval", "server_request_timeout")
_COUNTS: Final = (
    "ping_failure_threshold",
    "max_pages",
    "max_server_requests",
    "max_pending",
    "max_rounds",
    "max_updates",
    "max_progress",
)
AUTO: Final = "auto"
LEGACY: Final = "legacy"
_MODES: Final = (AUTO, LEGACY, STATELESS_DIALECT.version, *HANDSHAKE_VERSIONS)


def _client_info() -> Mapping[str, Any]:
    return {"name": "greenroom", "version": "0"}


@suggests("ClientSettings", {"timeout": "write request_timeout=…", "protocol_version": "write mode=…"})
@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """The settings of a client's connection: what it declares, its timeouts and its limits."""

    client_info: Mapping[str, Any] = field(default_factory=_client_info)
    """The client's name and version, which the server gets in the handshake, or with each request."""
    capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Capabilities to declare instead of those that follow from the handler. True is short for `{}`, False or None removes one, `list_changed` is `listChanged`."""
    mode: str = AUTO
    """Which protocol is spoken. "auto" asks the server (`server/discover`) and falls back to a handshake; "legacy" begins with the handshake.

    A revision of the handshake era is asked for in the handshake, and an older one that the server chooses is accepted. The stateless revision
    is spoken, or nothing.
    """

    request_timeout: float | None = 30.0
    """How long a request may take; None for no limit."""
    init_timeout: float = 30.0
    """How long one attempt to open the connection may take: connecting, `server/discover` and the handshake together.

    A program that has not answered `server/discover` by then, within the `probe_timeout`, is started once more and gets the handshake.
    """
    probe_timeout: float = 10.0
    """How long a server that is reached otherwise than by HTTP may take to answer `server/discover` before it gets `initialize`."""
    close_grace: float = 5.0
    """How long a wire may take to close in order."""

    ping_interval: float | None = None
    """Seconds between pings of a ready connection; None sends none."""
    ping_timeout: float = 5.0
    """How long the answer to a ping may take."""
    ping_failure_threshold: int = 3
    """The wire is closed after this many pings in a row without an answer."""

    backoff: Backoff = field(default_factory=Backoff)
    """How long to wait between attempts. The first one after a loss is made at once, if it had been ready for `backoff.quiet` seconds or
    this is the first loss since."""
    park_after: int | None = None
    """The connection is parked until `retry` after this many failed attempts."""

    follow_tasks: bool = True
    """Whether a server of the stateless era may make a task of any call. The client then waits for the task's result in place of the reply."""

    max_pages: int = 1000
    """The most pages of one list that are fetched."""
    max_pending: int = 10_000
    """The most requests that wait or are under way at once."""
    max_rounds: int = 16
    """How often the server may answer one request with questions."""
    max_server_requests: int = 64
    """The most requests and questions from the server that are handled at once."""
    server_request_timeout: float | None = 600.0
    """How long the handler may take for one request from the server."""
    max_updates: int = 1024
    """The most unread notifications that are kept for a reader, and for the handler."""
    max_progress: int = 64
    """The most unread progress notifications that are kept for a request."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value: Any = getattr(self, each.name)
            if value is None and each.name in _TIMES_OR_NONE:
                continue
            if each.name in _TIMES + _TIMES_OR_NONE and not _is_seconds(value):
                raise BadSetting(each.name, value, "a number of seconds, more than 0")
            if (each.name in _COUNTS or (each.name == "park_after" and value is not None)) and not _is_count(value):
                raise BadSetting(each.name, value, "a whole number, 1 or more")
        if self.mode not in _MODES:
            raise BadSetting("mode", self.mode, f"one of {', '.join(_MODES)}")
        info: Any = self.client_info
        for name in ("name", "version"):
            if not isinstance(info.get(name), str):
                raise BadSetting("client_info", dict(info), f"an object with a text as its {name}")
        extensions: Any = self.capabilities.get("extensions")
        for id in extensions if is_object(extensions) else ():
            if problem := id_problem(id):
                raise BadSetting("capabilities", str(id)[:80], f"the identifier of an extension: {problem}")

    @property
    def handshake_version(self) -> str:
        """The revision that a handshake asks for."""
        return self.mode if self.mode in HANDSHAKE_VERSIONS else LATEST_DIALECT.version

    @property
    def may_discover(self) -> bool:
        """Whether the server may be asked whether it speaks the stateless revision."""
        return self.mode in (AUTO, STATELESS_DIALECT.version)

    @property
    def may_initialize(self) -> bool:
        """Whether a handshake may begin the connection."""
        return self.mode != STATELESS_DIALECT.version

    def declared(self, handled: Mapping[str, Any]) -> dict[str, Any]:
        """The capabilities to declare: those of the handler, with the ones that were set in their place; extensions of both."""
        theirs, own = expand(handled), expand(self.capabilities, keep=True)
        if is_object(theirs.get("extensions")) and is_object(own.get("extensions")):
            own["extensions"] = {**theirs["extensions"], **own["extensions"]}
        return {name: value for name, value in {**theirs, **own}.items() if value is not None}


SETTING_HINTS: Final = {each.name: f"write settings=ClientSettings({each.name}=…)" for each in fields(ClientSettings)}
"""The text to write for a setting that a client or a host was given as an option, for `suggests`."""


def expand(short: Mapping[str, Any], *, keep: bool = False) -> dict[str, Any]:
    """Capabilities as on the wire: True becomes `{}`, and those that are off are left out (or None with `keep`, to remove one of the handler's)."""
    full: dict[str, Any] = {}
    for name, value in short.items():
        if value is None or value is False:
            if keep:
                full[_word(name)] = None
        elif value is True:
            full[_word(name)] = {}
        elif is_object(value):
            full[_word(name)] = {
                _word(part): {} if member is True and name == "extensions" else member
                for part, member in value.items()
                if member is not None and member is not False
            }
        else:
            full[_word(name)] = value
    return full


def _word(name: str) -> str:
    return "listChanged" if name == "list_changed" else name


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
