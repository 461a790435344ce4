"""The desk of one node: takes errands of the others for sessions that live here, and hears what all nodes are to hear.

Who sends it messages: the doors of other nodes (`Errand`), its own company (`updated` and the like), the desks of the others (`heard`), and whoever
brings nodes together (`meet`). It waits for nobody: an errand is handed to the session, and whatever comes of that is the answer, the session's
end included. When it dies, whoever waits on another node hears so; its successor begins with a gap, after which everybody, here and there, is told
again of all that they wait for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from greenroom.actors.session import Session
from greenroom.actors.subscriptions import tell_changed, tell_gap, tell_updated
from greenroom.actors.visits import Visited, find_visited
from greenroom.supervision import (
    CallTimeout,
    Exit,
    GenServer,
    NoReply,
    ProcessExited,
    child,
    current_node,
    link,
    receive,
    request,
    spawn,
)
from greenroom.transports.seam import Answer

from .node_messages import (
    CONFIRM,
    DESK,
    END,
    LISTEN,
    NOTIFY,
    ONCE,
    REQUEST,
    RESPOND,
    Errand,
    Gone,
    Lent,
    Taken,
    Unknown,
    unpacked,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from greenroom.actors.catalogue import Kind
    from greenroom.actors.company import Company
    from greenroom.supervision import Caller, ChildSpec, Pid, Ref, Request
    from greenroom.transports.seam import Feed

_FLUSH: Final = object()


class _Done(NamedTuple):
    """A session has answered, or is gone."""

    asked: Request[Any]
    caller: Caller[Any]
    errand: Errand


class Desk(GenServer):
    """One on each node of an ensemble."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, company: Company, others: Sequence[Ref[Desk]], renew: Callable[[], object]) -> None:
        """`others` are the desks of all other nodes, by name, whether they are there or not. `renew` reads certificates again."""
        self._company = company
        self._others = tuple(others)
        self._renew = renew
        self._lists: dict[Kind, None] = {}
        self._resources: dict[str, Mapping[str, Any]] = {}
        self._armed = False

    def init(self) -> None:
        """What was to be told when a predecessor died, was not."""
        for each in self._others:
            each.cast(Desk.heard_gap)

    # --- errands

    def handle_call(self, request: Any, caller: Caller[Any]) -> NoReply:
        """Somebody has come to another node who has, or says that they have, a session here."""
        if not isinstance(request, Errand):
            return super().handle_call(request, caller)  # type: ignore[return-value]
        errand, company, kind = request, self._company, request.kind
        if kind == ONCE:
            message, version, quiet = errand.what
            self._aside(caller, lambda: _once(company, errand, unpacked(message), version, quiet))
            return NoReply()
        handle = company.find(errand.session, errand.peer)
        if handle is None:
            caller.reply(Unknown())
        elif kind == CONFIRM:
            caller.reply(Taken())
        elif handle.channel is not None and kind == REQUEST:
            self._aside(
                caller, lambda: _taken(handle.request(unpacked(errand.what[0])))
            )  # it may have to wait for room
        else:
            self._hand_over(handle.ref, errand, caller)
        return NoReply()

    def _hand_over(self, session: Ref[Session], errand: Errand, caller: Caller[Any]) -> None:
        kind, what = errand.kind, errand.what
        if kind == REQUEST:
            asked = request(session, Session.request, unpacked(what[0]), errand.peer, what[1])
        elif kind == NOTIFY:
            asked = request(session, Session.notify, unpacked(what))
        elif kind == RESPOND:
            asked = request(session, Session.respond, unpacked(what))
        elif kind == LISTEN:
            asked = request(session, Session.listen, what)
        else:
            asked = request(session, Session.end)
        me, done = self.ref(), _Done(asked, caller, errand)
        asked.when_done(lambda: me.send(done))
        caller.when_over(asked.abandon)  # whoever gave up there is a reader that left here

    def _aside(self, caller: Caller[Any], work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Have something done that may take time, and answer with what comes of it."""
        process = current_node().process(spawn(_answered, caller, work))
        if process is not None:
            process.await_death(caller)

    def _settle(self, done: _Done) -> None:
        asked, caller, errand = done
        if caller.over:
            return
        try:
            value = asked.result()
        except ProcessExited:
            caller.reply(Gone())
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, it is for whoever asked
            caller.fail(error)
            return
        if errand.kind in (REQUEST, LISTEN) and value is not None and not isinstance(value, tuple):
            caller.reply(_lent(value, errand))
        else:
            caller.reply(value if errand.kind == REQUEST else Taken())

    # --- what all are to hear

    def updated(self, uri: str, extra: Mapping[str, Any]) -> None:
        """A resource has changed, and its readers here have been told."""
        self._resources[uri] = extra
        self._arm()

    def list_changed(self, kind: Kind) -> None:
        """What all nodes offer has changed."""
        self._lists[kind] = None
        self._arm()

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            self.ref().send(_FLUSH)  # behind what waits already: all of that is told in one piece

    def _flush(self) -> None:
        self._armed = False
        lists, self._lists = list(self._lists), {}
        resources, self._resources = self._resources, {}
        for each in self._others:
            each.cast(Desk.heard, lists, resources)

    def heard(self, lists: Sequence[Kind], resources: Mapping[str, Mapping[str, Any]]) -> None:
        """Another node says so."""
        company = self._company
        for kind in lists:
            tell_changed(company.subscriptions, company.board, kind)
        for uri, extra in resources.items():
            tell_updated(company.subscriptions, company.board, uri, extra)

    def heard_gap(self) -> None:
        """Another node may have had something to tell, and did not."""
        tell_gap(self._company.subscriptions, self._company.board)

    def completed(self, elicitation_id: str) -> None:
        """A user has done with the page that somebody's peer sent them to."""
        found = find_visited(current_node(), self._company, elicitation_id)
        if found is not None:
            found.send(Visited(elicitation_id))

    def broadcast(self, method: str, params: Mapping[str, Any]) -> NoReply:
        """Send a notification to everybody here; the answer is to how many sessions."""
        self._aside(self.caller, lambda: self._company.peers.broadcast_here(method, params))
        return NoReply()

    def renew_certificates(self) -> None:
        """Read them again."""
        self._renew()

    # --- acquaintance

    def is_there(self) -> bool:
        """It is, if it can say so."""
        return True

    def meet(self, name: str, addresses: Sequence[str]) -> None:
        """Another node is there, and this is where."""
        elsewhere: Any = current_node().elsewhere
        elsewhere.introduce(name, tuple(addresses))

    def handle_info(self, message: Any) -> None:
        """An errand is done, or it is time to tell."""
        if type(message) is _Done:
            self._settle(message)
        elif message is _FLUSH:
            self._flush()
        elif type(message) is not Exit:
            super().handle_info(message)


def _lent(feed: Feed, errand: Errand) -> Lent:
    return Lent(feed.name, spawn(lend, feed, errand.home))


async def _once(company: Company, errand: Errand, message: Any, version: str, quiet: float | None) -> Any:
    reply = await company.once(errand.peer, message, version, quiet)
    return reply if reply is None or isinstance(reply, Answer) else _lent(reply, errand)


async def _taken(work: Coroutine[Any, Any, object]) -> Taken:
    await work
    return Taken()


async def _answered(caller: Caller[Any], work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    try:
        answer: Answer | Any = await work()
    except ProcessExited:
        answer = Gone()
    caller.reply(answer)


def desk_child(company: Company, others: Sequence[Ref[Desk]], renew: Callable[[], object]) -> ChildSpec[Ref[Desk]]:
    """The desk, as a child of whatever serves on a node."""
    return child(Desk, company, others, renew).but(id="desk", name=DESK)


__all__ = ["DESK", "END", "Desk", "desk_child"]


# --- Lending a feed to another node: the process that has it here, and gives the events to whoever asks there, a batch for each question.
# So nothing is on its way that was not asked for, and what nobody has fetched stays where the session keeps it for those who come back. It is tied to
# the desk that it was lent to: when that node is lost, nobody reads here any more.

UNFETCHED: Final = 10.0
"""Seconds after which a feed that nobody has asked for is taken back: whoever was to have it has gone away meanwhile."""


async def lend(feed: Feed, home: Pid) -> None:
    """Until it has ended; whoever has it there ends this process when they leave."""
    patience: float | None = UNFETCHED
    try:
        link(home)
        while True:
            caller = await receive(timeout=patience)
            patience = None
            events = await feed.next()
            caller.reply(None if events is None else [tuple(event) for event in events])
            if events is None:
                return
    except CallTimeout:
        return
    finally:
        feed.leave()
