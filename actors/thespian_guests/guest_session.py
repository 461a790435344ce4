"""The session of one connected guest: a process with its requests under way and its subscriptions.

The acceptor of the listener passes it what the guest sends. Each request is a job: a process linked to the session, which answers it once; for a job that dies, the
session answers. When the link is over or the session ends, its jobs end, and their requests to upstreams are cancelled.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from greenroom.actors.client.errors import ClientError, RequestLost
from greenroom.errors import GreenroomError
from greenroom.protocol.errors import LocalProtocolError, PeerError, RequestCancelled
from greenroom.protocol.jsonrpc import is_object
from greenroom.protocol.serialization import is_array
from greenroom.protocol.serialization import is_object as is_mapping
from greenroom.supervision import NORMAL, Down, Exit, GenServer, Ref, Stop, kill, monitor, self_pid, spawn_link

from .guest_wire import MOST_ITEMS, TO_GUEST, TO_NODE, BadItem, ItemTooLarge, pack_item, unpack_items

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Mapping

    from greenroom.actors.client.interfaces import Line
    from greenroom.actors.federation.federation import Federation
    from greenroom.actors.federation.offering import Part
    from greenroom.actors.federation.tool_router import ToolRouter
    from greenroom.supervision import ExitReason, Pid
    from greenroom.supervision.cluster.link import Link

MOST: Final = 256
"""How many requests of one guest may be under way."""
MOST_SUBSCRIPTIONS: Final = 1000
"""How many resources one guest may follow."""
_LONGEST: Final = 24 * 3600.0
_BACKLOG: Final = 4 * TO_GUEST
"""How many bytes may wait for a guest that does not read."""
_LARGE: Final = 4096
_TOGETHER: Final = MOST_ITEMS // 4
"""Flush after so many items: the guest accepts four times as many in one payload."""


class JobAnswer(NamedTuple):
    """From a job: the answer. `job` tells whether its request number still belongs to it."""

    job: Pid
    kind: str
    fields: Mapping[str, Any]


class SubscriptionNews(NamedTuple):
    """From the subscription of a resource: an item for the guest. `subscription` tells whether it is still the current one."""

    subscription: Pid
    item: list[Any]


class GuestSession(GenServer):
    """The process of one connected guest."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, services: GuestServices, link: Link, acceptor: Pid) -> None:
        """The services for its requests, its link, and the acceptor, which reports the end of the link."""
        self._services = services._replace(who=link)
        self._link = link
        self._acceptor = acceptor
        self._posted = 0
        self._jobs: dict[int, Pid] = {}
        self._ids: dict[Pid, int] = {}
        self._subscriptions: dict[tuple[str, str], Pid] = {}
        self._keys: dict[Pid, tuple[str, str]] = {}
        self._joined: dict[Pid, dict[int, float]] = {}
        """For each subscription that is not answered yet: the requests for the same resource that came later, and their deadlines."""

    def init(self) -> None:
        """Monitor the acceptor, which owns all links and passes on their events."""
        monitor(self._acceptor)

    def handle_info(self, message: Any) -> Stop | None:
        """Dispatch a message of the guest, a job or a subscription."""
        match message:
            case JobAnswer(job, kind, fields):
                self._on_answer(job, kind, fields)
            case SubscriptionNews(subscription, item):
                self._on_news(subscription, item)
            case Exit(pid, reason):
                self._on_job_ended(pid, reason)
            case Down():
                return Stop(NORMAL)
            case _:
                pass
        return None

    def terminate(self, reason: ExitReason) -> None:  # noqa: ARG002 - however it ends
        """Kill the jobs and subscriptions: the guest cannot be answered any more."""
        for pid in (*self._ids, *self._subscriptions.values()):
            kill(pid)
        self._link.close()

    # --- called by the acceptor

    def on_link_over(self) -> Stop:
        """The link is over."""
        return Stop(NORMAL)

    def on_data(self, data: bytes) -> Stop | None:
        """The guest has sent a payload."""
        try:
            for item in unpack_items(data, TO_NODE):
                self._on_item(item)
        except BadItem as error:
            self._link.offence = str(error)
            self._link.end(self._link.offence)
            return Stop(NORMAL)
        return None

    def _on_item(self, item: list[Any]) -> None:
        match item:
            case ["ask", int(id), str(kind), fields, int() | float() as seconds] if (
                is_object(fields) and id not in self._jobs
            ):
                self._ask(id, kind, fields, min(max(0.0, float(seconds)), _LONGEST))
            case ["drop", int(id)]:
                self._drop(id)
            case ["ping"]:
                self._post(["pong"])
            case _:
                raise BadItem(f"an item of the kind {str(item[0])[:40]!r} that this version does not know")

    def _ask(self, id: int, kind: str, fields: Mapping[str, Any], seconds: float) -> None:
        if kind == "Unsubscribe":
            key = (str(fields.get("server")), str(fields.get("uri")))
            pid = self._subscriptions.pop(key, None)
            if pid is not None:
                kill(pid)
            self._answer(id, "Unsubscribed", {"server": key[0], "uri": key[1]})
        elif len(self._jobs) >= MOST:
            self._answer(id, *failed_answer("busy", f"{MOST} requests of this guest are under way"))
        elif kind == "Subscribe":
            self._subscribe(id, (str(fields.get("server")), str(fields.get("uri"))), seconds)
        elif kind in KINDS:
            self._begin(id, spawn_link(_job, self._me, self._services, kind, dict(fields), seconds))
        else:
            self._answer(id, *failed_answer("bad_request", f"there is no request of the kind {kind[:40]!r}"))

    @property
    def _me(self) -> Ref[GuestSession]:
        return Ref(self.pid, None)

    def _begin(self, id: int, pid: Pid) -> None:
        self._jobs[id] = pid
        self._ids[pid] = id

    def _drop(self, id: int) -> None:
        """The guest does not wait for this request any more."""
        pid = self._jobs.pop(id, None)
        if pid is None or self._joined.get(pid, {}).pop(id, None) is not None:
            return
        self._ids.pop(pid, None)
        kill(pid)
        self._join_anew(pid)

    def _subscribe(self, id: int, key: tuple[str, str], seconds: float) -> None:
        subscription = self._subscriptions.get(key)
        if subscription is not None and subscription in self._joined:  # it gets the answer of the first
            self._joined[subscription][id] = _now() + seconds
            self._jobs[id] = subscription
        elif subscription is not None:
            self._answer(id, "Subscribed", {"server": key[0], "uri": key[1]})
        elif len(self._subscriptions) >= MOST_SUBSCRIPTIONS:
            self._answer(id, *failed_answer("busy", f"this guest follows {MOST_SUBSCRIPTIONS} resources already"))
        else:
            pid = spawn_link(_follow_resource, self._me, self._services, key, seconds)
            self._subscriptions[key] = pid
            self._keys[pid] = key
            self._joined[pid] = {}
            self._begin(id, pid)

    def _join_anew(self, pid: Pid) -> None:
        """Forget a subscription. If it failed by its timeout, later requests for the same resource may have time left: begin another one for them."""
        key, joined = self._keys.pop(pid, None), self._joined.pop(pid, {})
        if key is not None and self._subscriptions.get(key) == pid:
            del self._subscriptions[key]
        for id, until in joined.items():
            del self._jobs[id]
            if key is not None:
                self._subscribe(id, key, max(0.0, until - _now()))

    # --- messages of jobs

    def _on_answer(self, job: Pid, kind: str, fields: Mapping[str, Any]) -> None:
        id = self._ids.pop(job, None)
        if id is None:
            return  # the request was dropped
        del self._jobs[id]
        self._answer(id, kind, fields)
        if kind != "Failed" or fields["reason"] != "timeout":
            for each in self._joined.pop(job, ()):
                del self._jobs[each]
                self._answer(each, kind, fields)
        if kind == "Failed":
            self._join_anew(job)

    def _on_news(self, subscription: Pid, item: list[Any]) -> None:
        key = (item[1], item[2])
        if self._subscriptions.get(key) == subscription:
            if item[0] == "ended":
                del self._subscriptions[key]
            self._post(item)

    def _answer(self, id: int, kind: str, fields: Mapping[str, Any]) -> None:
        try:
            self._post(["answer", id, kind, dict(fields)])
        except (ItemTooLarge, LocalProtocolError) as error:
            reason = "too_large" if isinstance(error, ItemTooLarge) else "unsendable"
            self._post(["answer", id, *failed_answer(reason, f"the answer cannot be sent: {error}")])

    def _post(self, item: list[Any]) -> None:
        data = pack_item(item, TO_GUEST)
        if self._link.waiting > _BACKLOG:
            self._link.end("it does not read what it has asked for")
            return
        self._link.post(data)
        self._posted += 1
        if len(data) > _LARGE or self._posted % _TOGETHER == 0:
            self._link.flush()

    def _on_job_ended(self, pid: Pid, reason: ExitReason) -> None:
        """A job has ended. If it has not answered, it has died."""
        key = self._keys.pop(pid, None)
        follows = key is not None and self._subscriptions.get(key) == pid
        if key is not None and follows:
            del self._subscriptions[key]
        id = self._ids.pop(pid, None)
        unanswered = [*([] if id is None else [id]), *self._joined.pop(pid, ())]
        for each in unanswered:
            del self._jobs[each]
            self._answer(each, *failed_answer("crashed", f"the process that was to answer it has ended: {reason}"))
        if key is not None and follows and not unanswered:
            self._post(["ended", *key, f"what followed it has ended: {reason}"])


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _job(
    session: Ref[GuestSession], services: GuestServices, kind: str, fields: Mapping[str, Any], seconds: float
) -> None:
    """The process of one request."""
    session.send(JobAnswer(self_pid(), *await answer_request(services, kind, fields, seconds)))


async def _follow_resource(
    session: Ref[GuestSession], services: GuestServices, key: tuple[str, str], seconds: float
) -> None:
    """The process of one subscription."""
    server, uri = key
    me = self_pid()
    begun = False
    try:
        line = line_of(services, {"server": server})
        updates = line.subscribe(uri)
        async with asyncio.timeout(seconds):
            await updates.__aenter__()
        try:
            begun = True
            session.send(JobAnswer(me, "Subscribed", {"server": server, "uri": uri}))
            async for update in updates:
                session.send(SubscriptionNews(me, ["updated", server, uri, update.gap]))
        finally:
            await updates.__aexit__(None, None, None)
        why = "there is nothing more to hear of it"
    except TimeoutError:
        why = ""
        session.send(JobAnswer(me, *failed_answer("timeout", f"no answer within {seconds:.3g} s")))
    except (GreenroomError, ClientError, PeerError) as error:
        why = str(error)
        if not begun:
            session.send(JobAnswer(me, *answer_for_error(error)))
    if begun:
        session.send(SubscriptionNews(me, ["ended", server, uri, why]))


# --- Answering requests: each kind of request is put to a federation.
# Each request has one answer; an error of an upstream is an answer as well, with a reason for programs and a text.

if TYPE_CHECKING:
    Fields = Mapping[str, Any]
    Outcome = tuple[str, dict[str, Any]]


PATIENCE: Final = 2.0
"""How long a list of all servers waits for one that has never listed anything, in seconds."""


class GuestRequestRefused(GreenroomError):
    """A request that cannot be made; `reason` is a fixed word."""

    def __init__(self, reason: str, text: str) -> None:
        """`text` says what is wrong."""
        super().__init__(text)
        self.reason = reason


class GuestServices(NamedTuple):
    """The services that answer the requests: the federation, and the tool router, which decides by pins and consent which tools may be called."""

    federation: Federation
    router: ToolRouter | None = None
    who: Hashable = None
    """The principal. Guests take turns among the requests that wait for one server."""


async def answer_request(services: GuestServices, kind: str, fields: Fields, seconds: float) -> Outcome:
    """The kind and the fields of the answer."""
    try:
        async with asyncio.timeout(seconds):
            return await _HANDLERS[kind](services, fields, seconds)
    except TimeoutError as error:
        return failed_answer("timeout", f"no answer within {seconds:.3g} s" if not str(error) else str(error))
    except GreenroomError as error:
        return answer_for_error(error)


def answer_for_error(error: BaseException) -> Outcome:
    """The answer for an error."""
    if isinstance(error, PeerError):
        return failed_answer("peer_error", error.message, code=error.code, data=error.data)
    if isinstance(error, RequestLost):
        return failed_answer(error.reason, str(error), maybe_done=error.maybe_done)
    if isinstance(error, RequestCancelled):  # its reason is free text of the canceller, or empty
        return failed_answer(
            "cancelled", f"the request was cancelled: {error.reason}" if error.reason else "the request was cancelled"
        )
    reason = getattr(error, "reason", None)
    return failed_answer(reason if isinstance(reason, str) else "failed", str(error))


def failed_answer(reason: str, text: str, **data: Any) -> Outcome:
    """A `Failed` answer."""
    return "Failed", {"reason": reason, "text": text, "data": data}


def line_of(services: GuestServices, fields: Fields) -> Line:
    """The line to the named server. Raises `GuestRequestRefused`."""
    server = fields.get("server")
    line = services.federation.line(server, services.who) if isinstance(server, str) else None
    if line is None:
        there = ", ".join(services.federation.ids()) or "none"
        raise GuestRequestRefused("unknown_server", f"there is no server {server!r} here; there is {there}")
    return line


def _text(fields: Fields, name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise GuestRequestRefused("bad_request", f"{name} is a text, not {value!r:.60}")
    return value


async def _list(part: Part, services: GuestServices, fields: Fields, seconds: float) -> Outcome:
    """A server that does not answer in time is left out, unless it alone was asked. So are tools that differ from their pins, if those are refused."""
    federation, router = services.federation, services.router
    one = fields.get("server")
    if one is not None:
        line_of(services, fields)
    ids = list(federation.ids()) if one is None else [one]
    patience = seconds * 0.8 if one is not None else min(seconds * 0.8, PATIENCE)
    federation.keep(part)
    asking = (federation.offering(id, timeout=patience, parts=(part,)) for id in ids)
    found = await asyncio.gather(*asking, return_exceptions=True)
    items: dict[str, Any] = {}
    away: dict[str, str] = {}
    for id, offering in zip(ids, found, strict=True):
        if isinstance(offering, GreenroomError):
            if one is not None:
                raise offering
            away[id] = str(offering)
        elif isinstance(offering, BaseException):
            raise offering
        else:
            items[id] = [dict(each) for each in offering.part(part).values()]
    if part == "tools" and router is not None and router.pins is not None:
        allowed = {(tool.server, tool.tool) for tool in router.snapshot()}
        items = {id: [each for each in tools if (id, each["name"]) in allowed] for id, tools in items.items()}
    return "Listed", {"items": items, "away": away}


async def _call(services: GuestServices, fields: Fields, seconds: float) -> Outcome:
    router = services.router
    params: dict[str, Any] = {"name": _text(fields, "tool"), "arguments": fields.get("arguments") or {}}
    line = line_of(services, fields)
    if router is not None:
        name = router.name_of(fields["server"], params["name"])
        await router.checked(name, params["arguments"], timeout=seconds)
    result = await line.request("tools/call", params, timeout=seconds)
    return "ToolResult", {
        "content": _objects(result.get("content")),
        "structured": result.get("structuredContent"),
        "is_error": result.get("isError") is True,
        "meta": result.get("_meta"),
    }


async def _read(services: GuestServices, fields: Fields, seconds: float) -> Outcome:
    result = await line_of(services, fields).request("resources/read", {"uri": _text(fields, "uri")}, timeout=seconds)
    return "ResourceContents", {"contents": _objects(result.get("contents"))}


async def _prompt(services: GuestServices, fields: Fields, seconds: float) -> Outcome:
    params: dict[str, Any] = {"name": _text(fields, "name"), "arguments": fields.get("arguments") or {}}
    result = await line_of(services, fields).request("prompts/get", params, timeout=seconds)
    return "PromptMessages", {
        "messages": _objects(result.get("messages")),
        "description": result.get("description"),
    }


async def _servers(services: GuestServices, fields: Fields, seconds: float) -> Outcome:  # noqa: ARG001 - the signature of all handlers
    standings = services.federation.statuses()
    return "Servers", {
        "states": {id: standing.state.value for id, standing in standings.items()},
        "causes": {id: str(standing.cause) for id, standing in standings.items() if standing.cause is not None},
    }


def _objects(value: Any) -> list[Any]:
    return [one for one in value if is_mapping(one)] if is_array(value) else []


_HANDLERS: Final[Mapping[str, Callable[[GuestServices, Fields, float], Awaitable[Outcome]]]] = {
    "CallTool": _call,
    "ReadResource": _read,
    "GetPrompt": _prompt,
    "ListServers": _servers,
    "ListTools": partial(_list, "tools"),
    "ListResources": partial(_list, "resources"),
    "ListResourceTemplates": partial(_list, "templates"),
    "ListPrompts": partial(_list, "prompts"),
}
KINDS: Final = frozenset(_HANDLERS)
"""The requests with one answer; the session handles subscriptions itself."""

__all__ = ["KINDS", "GuestRequestRefused", "answer_for_error", "answer_request", "failed_answer", "line_of"]
