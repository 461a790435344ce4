"""The messages between a Thespian program and a `Guest`: plain values that pickle.

Every request has exactly one answer, which carries the request's `ticket`: Thespian's `ask` takes whatever message comes next, so a program that
asks more than once compares the two. An `Updated` or an `Ended` comes later, of what was subscribed to, with the ticket of that request.
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


# --- what is asked


@dataclass(frozen=True)
class GuestRequest:
    """Anything that is asked. `timeout` is after how many seconds it is answered with `Failed`, whatever happens."""

    timeout: float = field(default=TIMEOUT, kw_only=True)
    ticket: str = field(default_factory=_ticket, kw_only=True)

    def problem(self) -> str | None:
        """What is wrong with it, if anything is."""
        seconds: Any = self.timeout
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not (0 < seconds < math.inf):
            return f"timeout is more than 0 seconds, not {seconds!r}"
        for name in ("server", "tool", "uri", "name"):
            value: Any = getattr(self, name, "")
            if not isinstance(value, str) and not (value is None and name == "server"):
                return f"{name} is a text, not {value!r}"
        return None


@dataclass(frozen=True)
class Connect(GuestRequest):
    """Reach a node there, now and whenever the connection breaks. Its key is in a file that its owner alone can read, or is given."""

    address: str
    key_file: str | None = None
    key: bytes = field(default=b"", repr=False)

    def problem(self) -> str | None:
        """As of any."""
        address, file, key = cast("tuple[Any, Any, Any]", (self.address, self.key_file, self.key))
        if not isinstance(address, str):
            return f"address is a text, not {address!r}"
        if not isinstance(file, str | os.PathLike | None):
            return f"key_file is a path, not a {type(file).__name__}"
        if not isinstance(key, bytes):
            return f"key is bytes, not a {type(key).__name__}"
        return super().problem()


@dataclass(frozen=True)
class CallTool(GuestRequest):
    """Call a tool. Answered with a `ToolAnswer`, whose `is_error` is the tool's own affair."""

    server: str
    tool: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class _List(GuestRequest):
    """What one server offers, or what all do. Answered with `Listed`."""

    server: str | None = None


class ListTools(_List):
    """The tools."""


class ListResources(_List):
    """The resources."""


class ListResourceTemplates(_List):
    """The resource templates."""


class ListPrompts(_List):
    """The prompts."""


@dataclass(frozen=True)
class _OfResource(GuestRequest):
    """About one resource."""

    server: str
    uri: str


class ReadResource(_OfResource):
    """What is in a resource. Answered with `ResourceContents`."""


@dataclass(frozen=True)
class GetPrompt(GuestRequest):
    """A prompt with these arguments, which are texts. Answered with `PromptMessages`."""

    server: str
    name: str
    arguments: dict[str, str] = field(default_factory=dict[str, str])


class Subscribe(_OfResource):
    """Hear of each change of a resource. Answered with `Subscribed`; an `Updated` comes for each change, until `Unsubscribe`."""


class Unsubscribe(_OfResource):
    """Hear of it no more. Answered with `Unsubscribed`, also when nothing was subscribed to."""


@dataclass(frozen=True)
class ListServers(GuestRequest):
    """Which servers there are, and how they are. Answered with `Servers`."""


# --- what is answered


@dataclass(frozen=True)
class GuestAnswer:
    """Anything that is heard; `ticket` says of which request."""

    ticket: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class Connected(GuestAnswer):
    """The node is reached."""

    address: str


@dataclass(frozen=True)
class ToolAnswer(GuestAnswer):
    """What a tool answered, as it is on the wire."""

    content: list[dict[str, Any]]
    structured: dict[str, Any] | None = None
    is_error: bool = False
    meta: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """All its texts."""
        return "\n".join(str(block.get("text", "")) for block in self.content if block.get("type") == "text")


@dataclass(frozen=True)
class Listed(GuestAnswer):
    """Definitions as they are on the wire, by server; and why servers are left out."""

    items: dict[str, list[dict[str, Any]]]
    away: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class ResourceContents(GuestAnswer):
    """What is in a resource: one or several, each with `text`, or `blob` in base64."""

    contents: list[dict[str, Any]]

    @property
    def text(self) -> str:
        """All its texts."""
        return "\n".join(str(one["text"]) for one in self.contents if "text" in one)


@dataclass(frozen=True)
class PromptMessages(GuestAnswer):
    """A prompt: messages for a model."""

    messages: list[dict[str, Any]]
    description: str | None = None


@dataclass(frozen=True)
class _AboutResource(GuestAnswer):
    """About one resource."""

    server: str
    uri: str


class Subscribed(_AboutResource):
    """From now on you hear of it."""


class Unsubscribed(_AboutResource):
    """From now on you do not."""


@dataclass(frozen=True)
class Servers(GuestAnswer):
    """The servers by name, each with its state (`ready`, `degraded`, `parked` …); and why it is in that."""

    states: dict[str, str]
    causes: dict[str, str] = field(default_factory=dict[str, str])


REASONS: Final = frozenset(
    {"not_connected", "away", "refused", "lost", "timeout", "peer_error", "unknown_server", "bad_request", "busy"}
    | {"too_large", "unsendable", "unreadable", "crashed", "replaced", "closed", "internal"}
)
"""The words of `Failed` that are ours; besides these there are those of the client's own errors."""


@dataclass(frozen=True)
class Failed(GuestAnswer):
    """There is no other answer. `reason` is a word for programs, `text` says it to people.

    `peer_error` is the server's own error, with `code` and `data` in `data`. After `lost` it may have been done or not. `away` and `refused` are
    said of the node itself, and nothing was sent.
    """

    reason: str
    text: str
    data: dict[str, Any] = field(default_factory=dict[str, Any])


ANSWERS: Final[Mapping[str, type[GuestAnswer]]] = {
    each.__name__: each
    for each in (ToolAnswer, Listed, ResourceContents, PromptMessages, Subscribed, Unsubscribed, Servers, Failed)
}
"""What a node answers, by its name on the wire."""


# --- what is heard later


@dataclass(frozen=True)
class Updated(_AboutResource):
    """A resource has changed; with `gap`, it may have: the node was away, and what was missed is unknown."""

    gap: bool = False


@dataclass(frozen=True)
class Ended(_AboutResource):
    """A subscription is over, and why."""

    text: str


# --- Asking a guest from outside of its system: a program's thread, which gets the answer to what it has asked and no other.

_SLACK: Final = 1.0


def ask(system: Any, guest: Any, request: GuestRequest) -> GuestAnswer:
    """The answer, of the guest at that address in an `ActorSystem`; a `Failed` when there is no guest to give one. A subscription is an actor's: raises `ConfigError`."""
    until = time.monotonic() + request.timeout + _SLACK
    if is_simple(system):
        return _answer(system, guest, request, until)
    if isinstance(request, Subscribe):
        raise ConfigError("whoever subscribes has to be there to hear: have an actor send the Subscribe")
    with private_endpoint(system) as mine:
        try:
            return _answer(mine, guest, request, until)
        except ActorSystemException as error:
            return Failed("away", f"the guest cannot be reached: {error}", ticket=request.ticket)


def _answer(mine: ActorSystem, guest: ActorAddress, request: GuestRequest, until: float) -> GuestAnswer:
    """Other messages that come are dropped; in the simple system, which has one endpoint, they are those that were not listened to."""
    heard: Any = mine.ask(guest, request, request.timeout + _SLACK)
    while heard is not None:
        if isinstance(heard, GuestAnswer) and heard.ticket == request.ticket and not isinstance(heard, Updated | Ended):
            return heard
        heard = mine.listen(max(0.0, until - time.monotonic()))
    return Failed("away", "the guest is not there, or has not answered in time", ticket=request.ticket)
