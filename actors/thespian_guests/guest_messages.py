"""The messages between a Thespian program and a `Guest`: plain values that can be pickled.

Each request has one answer, which carries the request's `ticket`. Thespian's `ask` returns whatever message comes next, so a program that asks more than once must
compare the tickets. `Updated` and `Ended` come later, with the ticket of the `Subscribe`.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import uuid4

from greenroom.errors import ConfigError
from greenroom.supervision.cluster.foreign_actor import is_simple, private_endpoint
from greenroom.supervision.cluster.thespian_patches import ActorSystemException

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.supervision.cluster.thespian_patches import ActorAddress, ActorSystem

TIMEOUT: Final = 30.0


def _ticket() -> str:
    return uuid4().hex


# --- requests


@dataclass(frozen=True)
class Request:
    """The base of requests. One without an answer after `timeout` seconds is answered with `Failed`."""

    timeout: float = field(default=TIMEOUT, kw_only=True)
    ticket: str = field(default_factory=_ticket, kw_only=True)

    def problem(self) -> str | None:
        """The mistake in the request, as text; None if there is none."""
        seconds: Any = self.timeout
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not (0 < seconds < math.inf):
            return f"timeout is more than 0 seconds, not {seconds!r}"
        for name in ("server", "tool", "uri", "name"):
            value: Any = getattr(self, name, "")
            if not isinstance(value, str) and not (value is None and name == "server"):
                return f"{name} is a text, not {value!r}"
        return None


@dataclass(frozen=True)
class Connect(Request):
    """Connect to a node, now and whenever the link breaks. The key is given, or is in a file that only its owner can read."""

    address: str
    key_file: str | None = None
    key: bytes = field(default=b"", repr=False)

    def problem(self) -> str | None:
        """The mistake in the request, as text; None if there is none."""
        address, file, key = cast("tuple[Any, Any, Any]", (self.address, self.key_file, self.key))
        if not isinstance(address, str):
            return f"address is a text, not {address!r}"
        if not isinstance(file, str | os.PathLike | None):
            return f"key_file is a path, not a {type(file).__name__}"
        if not isinstance(key, bytes):
            return f"key is bytes, not a {type(key).__name__}"
        return super().problem()


@dataclass(frozen=True)
class CallTool(Request):
    """Call a tool. Answered with a `ToolResult`, whose `is_error` is set by the tool itself."""

    server: str
    tool: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class _List(Request):
    """List what one server offers, or what all do. Answered with `Listed`."""

    server: str | None = None


class ListTools(_List):
    """List tools."""


class ListResources(_List):
    """List resources."""


class ListResourceTemplates(_List):
    """List resource templates."""


class ListPrompts(_List):
    """List prompts."""


@dataclass(frozen=True)
class _OfResource(Request):
    """A request about one resource."""

    server: str
    uri: str


class ReadResource(_OfResource):
    """Read a resource. Answered with `ResourceContents`."""


@dataclass(frozen=True)
class GetPrompt(Request):
    """Get a prompt. Arguments are texts. Answered with `PromptMessages`."""

    server: str
    name: str
    arguments: dict[str, str] = field(default_factory=dict[str, str])


class Subscribe(_OfResource):
    """Subscribe to the changes of a resource. Answered with `Subscribed`; an `Updated` comes for each change until `Unsubscribe`."""


class Unsubscribe(_OfResource):
    """End a subscription. Answered with `Unsubscribed`, also when there is none."""


@dataclass(frozen=True)
class ListServers(Request):
    """List the servers and their states. Answered with `Servers`."""


# --- answers


@dataclass(frozen=True)
class Answer:
    """The base of answers; `ticket` is that of the request."""

    ticket: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class Connected(Answer):
    """The node is connected."""

    address: str


@dataclass(frozen=True)
class ToolResult(Answer):
    """The result of a tool, as it is on the wire."""

    content: list[dict[str, Any]]
    structured: dict[str, Any] | None = None
    is_error: bool = False
    meta: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """The texts of all blocks."""
        return "\n".join(str(block.get("text", "")) for block in self.content if block.get("type") == "text")


@dataclass(frozen=True)
class Listed(Answer):
    """Definitions as they are on the wire, by server; `away` says why servers are missing."""

    items: dict[str, list[dict[str, Any]]]
    away: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class ResourceContents(Answer):
    """The contents of a resource, each with `text`, or `blob` in base64."""

    contents: list[dict[str, Any]]

    @property
    def text(self) -> str:
        """The texts of all contents."""
        return "\n".join(str(one["text"]) for one in self.contents if "text" in one)


@dataclass(frozen=True)
class PromptMessages(Answer):
    """The messages of a prompt."""

    messages: list[dict[str, Any]]
    description: str | None = None


@dataclass(frozen=True)
class _AboutResource(Answer):
    """An answer about one resource."""

    server: str
    uri: str


class Subscribed(_AboutResource):
    """The subscription has begun."""


class Unsubscribed(_AboutResource):
    """The subscription has ended."""


@dataclass(frozen=True)
class Servers(Answer):
    """The servers by name, each with its state (`ready`, `degraded`, `parked` …), and the cause of the state."""

    states: dict[str, str]
    causes: dict[str, str] = field(default_factory=dict[str, str])


REASONS: Final = frozenset(
    {"not_connected", "away", "refused", "lost", "timeout", "peer_error", "unknown_server", "bad_request", "busy"}
    | {"too_large", "unsendable", "unreadable", "crashed", "replaced", "closed", "internal"}
)
"""The reasons of `Failed` that come from guest and node; the client's own errors have others."""


@dataclass(frozen=True)
class Failed(Answer):
    """The request failed. `reason` is a fixed word for programs, `text` is for people.

    `peer_error` is the server's own error, with its `code` and `data` in `data`. After `lost` the request may have been carried out or not. After `away` and `refused`,
    which concern the node itself, nothing was sent.
    """

    reason: str
    text: str
    data: dict[str, Any] = field(default_factory=dict[str, Any])


ANSWERS: Final[Mapping[str, type[Answer]]] = {
    each.__name__: each
    for each in (ToolResult, Listed, ResourceContents, PromptMessages, Subscribed, Unsubscribed, Servers, Failed)
}
"""The answers of a node, by their names on the wire."""


# --- events of a subscription


@dataclass(frozen=True)
class Updated(_AboutResource):
    """A resource has changed. With `gap` it may have: the node was away, and changes in between are unknown."""

    gap: bool = False


@dataclass(frozen=True)
class Ended(_AboutResource):
    """A subscription is over; `text` says why."""

    text: str


# --- Requests from outside of the guest's system: a program's thread gets the answer to its own request and no other message.

_SLACK: Final = 1.0


def ask(system: Any, guest: Any, request: Request) -> Answer:
    """Send a request to a guest, and wait for the answer; `Failed` when there is no guest. Raises `ConfigError` for a subscription, which needs an actor."""
    until = time.monotonic() + request.timeout + _SLACK
    if is_simple(system):
        return _answer(system, guest, request, until)
    if isinstance(request, Subscribe):
        raise ConfigError("a subscription needs an actor that receives its events: have an actor send the Subscribe")
    with private_endpoint(system) as mine:
        try:
            return _answer(mine, guest, request, until)
        except ActorSystemException as error:
            return Failed("away", f"the guest cannot be reached: {error}", ticket=request.ticket)


def _answer(mine: ActorSystem, guest: ActorAddress, request: Request, until: float) -> Answer:
    """Other messages are dropped. The simple system has a single endpoint, where answers to earlier requests may still arrive."""
    message: Any = mine.ask(guest, request, request.timeout + _SLACK)
    while message is not None:
        if (
            isinstance(message, Answer)
            and message.ticket == request.ticket
            and not isinstance(message, Updated | Ended)
        ):
            return message
        message = mine.listen(max(0.0, until - time.monotonic()))
    return Failed("away", "the guest is not there, or has not answered in time", ticket=request.ticket)
