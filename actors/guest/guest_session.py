"""A guest session: the process for one guest that is connected. It has the guest's requests under way, and what it has subscribed to.

Each request is a job of its own, linked to the guest session; it is answered once, by the job or, when that has died, for it. When the link is over, or the
guest session ends, so do they, and what they have asked of upstreams is cancelled.
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
"""How many requests of one guest may be under way,"""
MOST_SUBSCRIPTIONS: Final = 1000
"""and how many resources it may follow."""
_LONGEST: Final = 24 * 3600.0
_BACKLOG: Final = 4 * TO_GUEST
"""How much may wait for a guest that does not read."""
_LARGE: Final = 4096
_TOGETHER: Final = MOST_ITEMS // 4
"""After so many items what was said goes out: the guest takes no more than four times as many in one payload."""


class JobAnswer(NamedTuple):
    """From a job: the answer, unless it was dropped meanwhile, and its number is another's."""

    job: Pid
    kind: str
    fields: Mapping[str, Any]


class SubscriptionNews(NamedTuple):
    """From the follower of a resource, of which that guest may have another follower by now: what has become of it."""

    subscription: Pid
    item: list[Any]


class GuestSession(GenServer):
    """One guest."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, services: GuestServices, link: Link, acceptor: Pid) -> None:
        """What its requests are made of, its link, and the acceptor, which tells it that the guest is gone."""
        self._services = services._replace(who=link)
        self._link = link
        self._acceptor = acceptor
        self._posted = 0
        self._jobs: dict[int, Pid] = {}
        self._ids: dict[Pid, int] = {}
        self._subscriptions: dict[tuple[str, str], Pid] = {}
        self._keys: dict[Pid, tuple[str, str]] = {}
        self._joined: dict[Pid, dict[int, float]] = {}
        """Of each subscription that is not answered yet, which requests want the same, and until when."""

    def init(self) -> None:
        """Monitor the acceptor: the events of the link come from it, and its end is that of all links."""
        monitor(self._acceptor)

    def handle_info(self, message: Any) -> Stop | None:
        """The guest's words, and its jobs'."""
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
        """End the jobs and subscriptions: the guest cannot be told of them any more."""
        for pid in (*self._ids, *self._subscriptions.values()):
            kill(pid)
        self._link.close()

    # --- what the guest says

    def on_link_over(self) -> Stop:
        """The guest is gone."""
        return Stop(NORMAL)

    def on_data(self, data: bytes) -> Stop | None:
        """Something has come."""
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
        """The guest does not wait for it any more."""
        pid = self._jobs.pop(id, None)
        if pid is None or self._joined.get(pid, {}).pop(id, None) is not None:
            return
        self._ids.pop(pid, None)
        kill(pid)
        self._join_anew(pid)

    def _subscribe(self, id: int, key: tuple[str, str], seconds: float) -> None:
        subscription = self._subscriptions.get(key)
        if subscription is not None and subscription in self._joined:  # what is heard of the first holds for it
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
        """A subscription is forgotten. If it was given up after its time, that says nothing of requests that joined later: they begin another."""
        key, joined = self._keys.pop(pid, None), self._joined.pop(pid, {})
        if key is not None and self._subscriptions.get(key) == pid:
            del self._subscriptions[key]
        for id, until in joined.items():
            del self._jobs[id]
            if key is not None:
                self._subscribe(id, key, max(0.0, until - _now()))

    # --- what it hears

    def _on_answer(self, job: Pid, kind: str, fields: Mapping[str, Any]) -> None:
        id = self._ids.pop(job, None)
        if id is None:
            return  # it was dropped
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
        """A job is over. One that has not answered has died."""
        key = self._keys.pop(pid, None)
        follows = key is not None and self._subscriptions.get(key) == pid
        if key is not None and follows:
            del self._subscriptions[key]
        id = self._ids.pop(pid, None)
        unanswered = [*([] if id is None else [id]), *self._joined.pop(pid, ())]
        for each in unanswered:
            del self._jobs[each]
            self._answer(each, *failed_answer("crashed", f"what was to answer it has ended: {reason}"))
        if key is not None and follows and not unanswered:
            self._post(["ended", *key, f"what followed it has ended: {reason}"])


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _job(
    session: Ref[GuestSession], services: GuestServices, kind: str, fields: Mapping[str, Any], seconds: float
) -> None:
    """A process: one request."""
    session.send(JobAnswer(self_pid(), *await answer_request(services, kind, fields, seconds)))


async def _follow_resource(
    session: Ref[GuestSession], services: GuestServices, key: tuple[str, str], seconds: float
) -> None:
    """A process: one resource, from its subscription on."""
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
            async for told in updates:
                session.send(SubscriptionNews(me, ["updated", server, uri, told.gap]))
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


# --- What a guest is answered: each kind of request, put to a federation.
# Whatever is asked here has one outcome, and all that can go wrong with an upstream is an outcome as well: a reason for programs, and a text.

if TYPE_CHECKING:
    Fields = Mapping[str, Any]
    Outcome = tuple[str, dict[str, Any]]


PATIENCE: Final = 2.0
"""How long a list of all waits for a server that has never said what it offers, in seconds."""


class GuestRequestRefused(GreenroomError):
    """It cannot be asked like this; `reason` is a word."""

    def __init__(self, reason: str, text: str) -> None:
        """What is wrong with it."""
        super().__init__(text)
        self.reason = reason


class GuestServices(NamedTuple):
    """What requests are made of: the servers, and the agent that decides which tools may be called, by pins and by consent."""

    federation: Federation
    router: ToolRouter | None = None
    who: Hashable = None
    """The principal: of requests that wait for one server, the guests take turns."""


async def answer_request(services: GuestServices, kind: str, fields: Fields, seconds: float) -> Outcome:
    """The answer's kind, and what is in it."""
    try:
        async with asyncio.timeout(seconds):
            return await _HANDLERS[kind](services, fields, seconds)
    except TimeoutError as error:
        return failed_answer("timeout", f"no answer within {seconds:.3g} s" if not str(error) else str(error))
    except GreenroomError as error:
        return answer_for_error(error)


def answer_for_error(error: BaseException) -> Outcome:
    """What is said of an error."""
    if isinstance(error, PeerError):
        return failed_answer("peer_error", error.message, code=error.code, data=error.data)
    if isinstance(error, RequestLost):
        return failed_answer(error.reason, str(error), maybe_done=error.maybe_done)
    if isinstance(error, RequestCancelled):  # its reason is free text of the canceller, or none
        return failed_answer(
            "cancelled", f"the request was cancelled: {error.reason}" if error.reason else "the request was cancelled"
        )
    reason = getattr(error, "reason", None)
    return failed_answer(reason if isinstance(reason, str) else "failed", str(error))


def failed_answer(reason: str, text: str, **data: Any) -> Outcome:
    """A `Failed`."""
    return "Failed", {"reason": reason, "text": text, "data": data}


def line_of(services: GuestServices, fields: Fields) -> Line:
    """The way to the server that is asked. Raises `GuestRequestRefused`."""
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
    """A server that does not answer in time is left out, unless it alone was asked; so is a tool that is not as it was pinned, if such are refused."""
    federation, agent = services.federation, services.router
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
    if part == "tools" and agent is not None and agent.pins is not None:
        allowed = {(tool.server, tool.tool) for tool in agent.snapshot()}
        items = {id: [each for each in tools if (id, each["name"]) in allowed] for id, tools in items.items()}
    return "Listed", {"items": items, "away": away}


async def _call(services: GuestServices, fields: Fields, seconds: float) -> Outcome:
    agent = services.router
    params: dict[str, Any] = {"name": _text(fields, "tool"), "arguments": fields.get("arguments") or {}}
    line = line_of(services, fields)
    if agent is not None:
        name = agent.name_of(fields["server"], params["name"])
        await agent.checked(name, params["arguments"], timeout=seconds)
    result = await line.request("tools/call", params, timeout=seconds)
    return "ToolAnswer", {
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


async def _servers(services: GuestServices, fields: Fields, seconds: float) -> Outcome:  # noqa: ARG001 - as all of them
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
"""What is asked and answered once; subscriptions are the guest session's own."""

__all__ = ["KINDS", "GuestRequestRefused", "answer_for_error", "answer_request", "failed_answer", "line_of"]
