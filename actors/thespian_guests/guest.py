"""The guest: an actor in a Thespian program's own, unpatched system, which talks to one node over a keyed link.

It takes the requests in `guest_messages`, and answers each once: with the node's answer, or with `Failed` when the time is over, or the node is gone or cannot be
reached. It reconnects when the node is back, and subscribes again.

It does not block: Thespian watches the link's descriptor. Where a system cannot do that the guest polls, by wakeups. In Thespian's simple system, where nothing runs
between requests, it waits for the answer of each request, no longer than its timeout. It raises nothing into Thespian, which would deliver the message again.
"""

from __future__ import annotations

import logging
import random
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.errors import ConfigError, GreenroomError
from greenroom.protocol.errors import LocalProtocolError
from greenroom.supervision import Backoff
from greenroom.supervision.cluster import LinkRefused
from greenroom.supervision.cluster.polling_link import PollingLink
from greenroom.supervision.cluster.thespian_patches import (
    Actor,
    ActorExitRequest,
    ActorSystemMessage,
    ThespianWatch,
    WakeupMessage,
)

from . import guest_messages
from .guest_wire import (
    KIND,
    TO_GUEST,
    TO_NODE,
    BadItem,
    ItemTooLarge,
    guest_link_key,
    pack_item,
    payload_limit,
    unpack_items,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.supervision.cluster.thespian_patches import ActorAddress

    from .guest_messages import Request

    Key = tuple[str, str]

MOST: Final = 256
_HANDSHAKE: Final = 5.0
_BEAT: Final = 10.0
_SILENCE: Final = 3 * _BEAT
_PAUSES: Final = Backoff(first=0.05, longest=5.0)
_CHANCE: Final = (
    random.SystemRandom()
)  # any other generator would give guests that were forked from one program the same numbers
_LOOK: Final = 0.02
"""How often it polls, in seconds, where the system does not watch the descriptor."""
_SOON: Final = 0.005
_AFTER_FAULT: Final = 1.0
"""How soon the guest goes on after an error of its own, in seconds: the same work is due then, and may fail again."""

_log: Final = logging.getLogger("greenroom.guest")


class Guest(Actor):
    """One link to one node. Make it with `system.createActor(Guest)`, and send it a `Connect` first."""

    def __init__(self, capabilities: Mapping[str, Any] | None = None) -> None:
        """`capabilities` are the system's."""
        super().__init__()
        can = capabilities or {}
        self._can_watch = bool(can.get("Thespian Watch Supported"))
        self._is_simple = can.get("Thespian ActorSystem Name") == "simpleSystem"
        self._host: guest_messages.Connect | None = None
        self._link: PollingLink | None = None
        self._connect_request: OpenGuestRequest | None = None
        self._waiting: dict[int, OpenGuestRequest] = {}
        """The requests without an answer, except a `Connect`. The code that removes a request answers it, and no other code does."""
        self._subscribers: dict[Key, list[ResourceSubscriber]] = {}
        """Several actors may follow a resource; the node gets one subscription."""
        self._restoring: dict[int, Key] = {}
        """Subscriptions that are renewed after a reconnection, by the number of the request."""
        self._last = 0
        self._tries = 0
        self._last_failure: guest_messages.Failed | None = None
        self._dial_at: float | None = None
        self._dialled = self._last_heard = self._last_sent = 0.0
        self._armed: float | None = None
        self._is_settled = False
        """Whether the current request is kept here, or was answered."""

    def receiveMessage(self, message: Any, sender: ActorAddress) -> ThespianWatch | None:  # noqa: N802 - Thespian's name
        """Handle one message."""
        self._is_settled = False
        try:
            self._handle(message, sender)
        except Exception as error:  # noqa: BLE001 - it is logged and answered; Thespian would deliver the message again
            _log.exception("a guest could not deal with a %s", type(message).__name__)
            if isinstance(message, guest_messages.Request) and (self._take_out(message) or not self._is_settled):
                self.send(
                    sender, guest_messages.Failed("internal", f"{type(error).__name__}: {error}", ticket=message.ticket)
                )
            self._arm(_AFTER_FAULT)
        link = self._link
        if link is None or not self._can_watch or link.over is not None:
            return None
        return ThespianWatch([link.fileno()])

    def _handle(self, message: Any, sender: ActorAddress) -> None:
        if isinstance(message, guest_messages.Request):
            self._run_due()  # note what has become of the link before anything is sent over it
        match message:
            case guest_messages.Connect():
                self._connect(message, sender)
                self._is_settled = True
            case guest_messages.Request():
                self._ask(message, sender)
                self._is_settled = True
            case ActorExitRequest():
                self._on_exit()
                return
            case WakeupMessage():
                self._armed = None
            case ActorSystemMessage() | guest_messages.Answer():
                pass
            case _:
                what = f"a guest does not know what to do with a {type(message).__name__}"
                self.send(sender, guest_messages.Failed("bad_request", what))
        self._run_due()
        if self._is_simple and isinstance(message, guest_messages.Request):
            self._wait_here(message)
        self._arm()

    def _take_out(self, request: guest_messages.Request) -> bool:
        """Remove a request, so that nothing else answers it. False when it was not there."""
        if self._connect_request is not None and self._connect_request.request is request:
            self._connect_request = None
            return True
        id = self._id_of(request)
        return id is not None and self._waiting.pop(id, None) is not None

    def _id_of(self, request: guest_messages.Request) -> int | None:
        return next((id for id, one in self._waiting.items() if one.request is request), None)

    # --- the link

    def _connect(self, request: guest_messages.Connect, sender: ActorAddress) -> None:
        if (problem := request.problem()) is not None:
            self.send(sender, guest_messages.Failed("bad_request", problem, ticket=request.ticket))
            return
        self._fail_hello("replaced", "it was told to connect elsewhere")
        self._hang_up("lost", "the guest was told to connect again; the request may have been done or not")
        self._host = request
        self._connect_request = OpenGuestRequest(request, sender, time.monotonic() + request.timeout)
        self._tries = 0
        self._dial_at = time.monotonic()

    def _dial(self) -> None:
        assert self._host is not None
        self._dialled = time.monotonic()
        self._dial_at = self._dialled + _PAUSES.longest  # in case dialling raises
        try:
            key = guest_link_key(self._host.key if self._host.key_file is None else self._host.key_file)
            self._link = PollingLink(self._host.address, key, "guest", kind=KIND, largest=payload_limit(TO_GUEST))
            self._dial_at = None
        except (ConfigError, LinkRefused, ValueError, OverflowError) as error:
            self._refused(str(error))
        except OSError as error:
            self._retry(str(error))

    def _on_up(self) -> None:
        """The handshake is done."""
        assert self._host is not None
        self._tries = 0
        self._last_failure = None
        self._last_sent = self._last_heard = time.monotonic()
        if self._connect_request is not None:
            connecting, self._connect_request = self._connect_request, None
            self.send(connecting.sender, guest_messages.Connected(self._host.address, ticket=connecting.request.ticket))
        for server, uri in tuple(self._subscribers):
            self._last += 1
            self._restoring[self._last] = server, uri
            self._post(["ask", self._last, "Subscribe", {"server": server, "uri": uri}, guest_messages.TIMEOUT])
        for id in [id for id, one in self._waiting.items() if not one.sent]:
            self._send(id)

    def _hang_up(self, reason: str, text: str) -> None:
        """The link is over: fail all waiting requests."""
        link, self._link = self._link, None
        if link is not None:
            link.close()
        self._restoring.clear()
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            if one.sent:
                self._fail(one, reason, text, maybe_done=True)
            else:
                self._fail(one, "away", text)

    def _retry(self, text: str, reason: str = "away") -> None:
        """The link has broken, or could not be made: try again, later each time."""
        self._last_failure = guest_messages.Failed(reason, text)
        self._hang_up("lost", text)
        self._dial_at = time.monotonic() + _PAUSES.delay(self._tries, _CHANCE)
        self._tries += 1

    def _refused(self, text: str) -> None:
        """The node refuses the guest. Try again only after long pauses: a wrong key may be corrected."""
        self._tries = 20
        self._retry(text, "refused")
        self._fail_hello("refused", text)

    def _on_exit(self) -> None:
        """The guest ends."""
        self._hang_up("closed", "the guest has ended")
        self._fail_hello("closed", "the guest has ended")

    def _fail_hello(self, reason: str, text: str) -> None:
        """Answer the waiting `Connect`, if there is one, with this error."""
        connecting, self._connect_request = self._connect_request, None
        if connecting is not None:
            self._fail(connecting, reason, text)

    # --- requests

    def _ask(self, request: guest_messages.Request, sender: ActorAddress) -> None:
        one = OpenGuestRequest(request, sender, 0.0)
        if (problem := request.problem()) is not None:
            self._fail(one, "bad_request", problem)
            return
        one.until = time.monotonic() + request.timeout
        if isinstance(request, guest_messages.Unsubscribe) and (
            self._forget((request.server, request.uri), sender) or self._link is None or not self._link.up
        ):  # other actors still follow it; or the node is away, and will not be asked for it again
            self.send(sender, guest_messages.Unsubscribed(request.server, request.uri, ticket=request.ticket))
        elif self._host is None:
            self._fail(one, "not_connected", "send the guest a Connect first")
        elif self._link is None and self._dial_at is not None and self._last_failure is not None:
            self._fail(one, self._last_failure.reason, f"the node cannot be reached: {self._last_failure.text}")
        elif len(self._waiting) >= MOST:
            self._fail(one, "busy", f"{MOST} requests are under way")
        else:
            self._last += 1
            self._waiting[self._last] = one
            if self._link is not None and self._link.up:
                self._send(self._last)

    def _send(self, id: int) -> None:
        """Send a request to the node."""
        one = self._waiting[id]
        one.sent = True
        request = one.request
        fields = {name: value for name, value in vars(request).items() if name not in ("timeout", "ticket")}
        kind = type(request).__name__
        left = max(0.0, one.until - time.monotonic())
        try:
            self._post(["ask", id, kind, fields, left])
        except (ItemTooLarge, LocalProtocolError) as error:
            reason = "too_large" if isinstance(error, ItemTooLarge) else "bad_request"
            del self._waiting[id]
            self._fail(one, reason, f"it cannot be sent: {error}")

    def _fail(self, one: OpenGuestRequest, reason: str, text: str, **data: Any) -> None:
        self.send(one.sender, guest_messages.Failed(reason, text, data, ticket=one.request.ticket))

    def _post(self, item: list[Any]) -> None:
        assert self._link is not None
        self._link.post([pack_item(item, TO_NODE)])
        self._last_sent = time.monotonic()

    # --- received data

    def _run_due(self) -> None:
        """Do all that is due: dial, read, write, time requests out."""
        now = time.monotonic()
        if self._dial_at is not None and now >= self._dial_at:
            self._dial()
        link = self._link
        if link is not None:
            was_up = link.up
            payloads = link.pump()
            if link.up and not was_up:
                self._on_up()
                payloads += link.pump()
            self._read(payloads, now)
            self._check_link(link, now)
        for id, one in [(id, one) for id, one in self._waiting.items() if now >= one.until]:
            del self._waiting[id]
            if one.sent and self._link is not None and self._link.up:
                self._post(["drop", id])
            self._fail(one, "timeout", f"no answer within {one.request.timeout:g} s")
        connecting = self._connect_request
        if connecting is not None and now >= connecting.until:
            why = "" if self._last_failure is None else f": {self._last_failure.text}"
            self._fail_hello("away", f"the node was not reached within {connecting.request.timeout:g} s{why}")
        if self._link is not None:
            self._link.flush()

    def _read(self, payloads: list[bytes], now: float) -> None:
        try:
            for payload in payloads:
                self._last_heard = now
                for item in unpack_items(payload, TO_GUEST):
                    self._on_item(item)
        except BadItem as error:
            self._retry(f"the node has sent an item that cannot be read: {error}")

    def _check_link(self, link: PollingLink, now: float) -> None:
        """Check whether the link is still good."""
        if self._link is not link:
            return
        if isinstance(link.over, LinkRefused):
            self._refused(str(link.over))
        elif link.over is not None:
            self._retry(str(link.over))
        elif not link.up:
            if now - self._dialled > _HANDSHAKE:
                self._retry(f"it did not shake hands within {_HANDSHAKE:g} s")
        elif now - self._last_heard > _SILENCE and not self._is_simple:
            self._retry(f"the node has sent nothing for {now - self._last_heard:.0f} s")
        elif now - self._last_sent > _BEAT and not self._is_simple:
            self._post(["ping"])

    def _on_item(self, item: list[Any]) -> None:
        match item:
            case ["answer", int(id), str(kind), dict()]:
                self._on_answer(id, kind, item[3])
            case ["updated", str(server), str(uri), bool(gap)]:
                self._on_updated(server, uri, gap=gap)
            case ["ended", str(server), str(uri), str(text)]:
                self._on_ended(server, uri, text)
            case ["pong"]:
                pass
            case _:
                raise BadItem(f"an item of the kind {str(item[0])[:40]!r}")

    def _on_updated(self, server: str, uri: str, *, gap: bool) -> None:
        for each in self._subscribers.get((server, uri), ()):
            self.send(each.sender, guest_messages.Updated(server, uri, gap, ticket=each.ticket))

    def _on_ended(self, server: str, uri: str, text: str) -> None:
        for each in self._subscribers.pop((server, uri), ()):
            self.send(each.sender, guest_messages.Ended(server, uri, text, ticket=each.ticket))

    def _on_answer(self, id: int, kind: str, fields: Mapping[str, Any]) -> None:
        restored = self._restoring.pop(id, None)
        if restored is not None:
            if kind == "Subscribed":
                self._on_updated(*restored, gap=True)
            else:
                self._on_ended(*restored, str(fields.get("text", kind)))
            return
        one = self._waiting.pop(id, None)
        if one is None:
            return  # it has timed out
        try:
            answer = guest_messages.ANSWERS[kind](**fields, ticket=one.request.ticket)
        except (KeyError, TypeError) as error:
            self._fail(one, "unreadable", f"the node answers what this version cannot read: {kind} ({error})")
            return
        if isinstance(answer, guest_messages.Subscribed):
            key = answer.server, answer.uri
            self._forget(key, one.sender)  # its events carry the ticket of its latest request
            self._subscribers.setdefault(key, []).append(ResourceSubscriber(one.sender, one.request.ticket))
        self.send(one.sender, answer)

    def _forget(self, key: Key, sender: ActorAddress) -> bool:
        """Remove a subscriber; returns whether there are others. They are in a list, since Thespian's addresses have equality and no hash."""
        left = [each for each in self._subscribers.pop(key, ()) if each.sender != sender]
        if left:
            self._subscribers[key] = left
        return bool(left)

    # --- time

    def _due(self) -> float | None:
        """The time of the next thing to do, if nothing comes."""
        times = [one.until for one in self._waiting.values()]
        now = time.monotonic()
        if self._connect_request is not None:
            times.append(self._connect_request.until)
        if self._dial_at is not None:
            times.append(self._dial_at)
        link = self._link
        if link is not None:
            if link.waiting:
                times.append(now + _SOON)
            if link.over is not None:
                times.append(now)
            elif not link.up:
                times.append(self._dialled + _HANDSHAKE)
            elif not self._is_simple:
                times.append(self._last_sent + _BEAT)
            if not self._can_watch and (self._waiting or self._subscribers or not link.up):
                times.append(now + _LOOK)
        return min(times, default=None)

    def _arm(self, least: float = 0.0) -> None:
        """Ask for a wakeup by then, unless an earlier one is pending. Wakeups cannot be cancelled: later ones find nothing to do."""
        due, now = self._due(), time.monotonic()
        if due is None or (self._armed is not None and self._armed <= max(due, now + least)):
            return
        self._armed = max(due, now + least)
        self.wakeupAfter(timedelta(seconds=self._armed - now))

    def _wait_here(self, request: guest_messages.Request) -> None:
        """In the simple system: wait here until the request is answered."""
        while (self._connect_request is not None and self._connect_request.request is request) or self._id_of(
            request
        ) is not None:
            due = self._due()
            seconds = 0.0 if due is None else max(0.0, due - time.monotonic())
            if self._link is not None:
                self._link.wait(min(seconds, _LOOK) if self._link.waiting else seconds)
            else:
                time.sleep(min(seconds, _LOOK))
            try:
                self._run_due()
            except GreenroomError as error:
                _log.warning("a guest is in trouble: %s", error)


@dataclass(slots=True, eq=False)
class OpenGuestRequest:
    """A request that has no answer yet."""

    request: Request
    sender: ActorAddress
    until: float
    sent: bool = False
    """Whether it was sent; else it waits for a link."""


class ResourceSubscriber(NamedTuple):
    """An actor that has subscribed, with the ticket of its request."""

    sender: ActorAddress
    ticket: str
