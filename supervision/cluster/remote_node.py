"""One other node, as this node keeps it: the processes of it that are held here, the calls under way, and the items that wait to be sent.

While the other node is being dialled, items wait. When it is lost, all its processes that are held here die with `NoConnection`, and callers, links and monitors
get that as they get any death. `Peers` owns these objects; they are no processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from greenroom.supervision.kernel import links, process_messages
from greenroom.supervision.kernel import process as lifecycle
from greenroom.supervision.kernel.errors import ActorError, MailboxFull, NotRegistered
from greenroom.supervision.kernel.process_messages import (
    NO_CONNECTION,
    NO_PROCESS,
    Crash,
    Shutdown,
    as_reason,
    make_pid,
)

from . import link_protocol
from .addresses import CannotTravel
from .framing import LARGEST, LinkRefused
from .remote_process import RemoteCaller, RemoteProcess, RemoteWatch
from .value_codec import RemoteError, decode, encode, split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from greenroom.supervision.behaviours.replies import Caller
    from greenroom.supervision.kernel.node import Node
    from greenroom.supervision.kernel.process import Process
    from greenroom.supervision.kernel.process_lookup import On
    from greenroom.supervision.kernel.process_messages import ExitReason, Pid

    from .link import Link

ROOM: Final = 256 * 1024 * 1024
"""How many bytes may wait for one link. Beyond that `cast` returns False, and calls raise `MailboxFull`."""


class RemoteNode:
    """This node's state about one other, from dialling it to losing it."""

    def __init__(self, node: Node, name: str) -> None:
        """Not connected yet; the incarnation of that node is unknown."""
        self.node = node
        self.name = name
        self.life: int | None = None
        self.link: Link | None = None
        self.lost = False
        self.watches: dict[int, RemoteWatch] = {}  # their watches of processes here
        self.callers: dict[int, RemoteCaller] = {}  # their calls to processes here
        self.calls: dict[int, Caller[Any]] = {}  # our calls
        self._numbers: dict[Caller[Any], int] = {}
        self.armed: dict[int, RemoteProcess] = {}  # our watches; they keep their processes alive
        self._proxies: WeakValueDictionary[Pid, RemoteProcess] = WeakValueDictionary()
        self._number = 0
        self._backlog: list[tuple[int | None, bytes]] = []
        self._backlog_bytes = 0

    def __repr__(self) -> str:
        return f"<RemoteNode {self.name}{', lost' if self.lost else '' if self.link else ', not connected yet'}>"

    # --- the link

    def connect(self, link: Link, life: int) -> None:
        """Send what has waited. Items meant for an earlier incarnation of that node are dropped."""
        self.life, self.link = life, link
        backlog, self._backlog, self._backlog_bytes = self._backlog, [], 0
        for meant, item in backlog:
            if meant in (None, life):
                link.post(item)
        self._bury_all(NO_PROCESS, but=life)

    def lose(self) -> None:
        """The other node is lost: end all that depends on it."""
        if self.lost:
            return
        self.lost, self.link = True, None
        self._backlog, self._backlog_bytes = [], 0
        for watch in tuple(self.watches.values()):
            watch.drop()
        for caller in tuple(self.callers.values()):
            caller.drop()
        self.watches.clear()
        self.callers.clear()
        self._bury_all(NO_CONNECTION)
        for ours in tuple(self.calls.values()):  # calls by name, whose process was unknown
            ours.on_exit(NO_CONNECTION)
        self.calls.clear()
        self._numbers.clear()

    def _bury_all(self, reason: ExitReason, but: int | None = None) -> None:
        """Mark all held processes dead, but not those of the incarnation `but`, nor those addressed by name."""
        for proxy in dict.fromkeys((*self.armed.values(), *self._proxies.values())):
            if but is None or not (proxy.named or proxy.pid.incarnation == but):
                self.mark_dead(proxy, reason)

    def mark_dead(self, proxy: RemoteProcess, reason: ExitReason) -> None:
        """Mark a process of that node dead."""
        if not proxy.life:
            self._proxies.pop(proxy.pid, None)
            proxy.reason = reason
            lifecycle.complete_exit(proxy)

    # --- the processes of the other node

    def process(self, pid: Pid) -> RemoteProcess | None:
        """The process with that pid; None for another incarnation of its node."""
        if self.link is not None and pid.incarnation != self.life:
            return None
        proxy = self._proxies.get(pid)
        if proxy is None:
            proxy = self._proxies[pid] = RemoteProcess(self.node, self, pid)
        return proxy

    def named(self, name: On) -> RemoteProcess:
        """The process registered by that name there, if any. Raises `CannotTravel`."""
        encode(name.name, self.node.name)
        return RemoteProcess(self.node, self, make_pid(self.name, self.life or 0, 0), name)

    def there(self, serial: int) -> RemoteProcess | None:
        """The process that an item of the other node refers to."""
        return None if self.life is None else self.process(make_pid(self.name, self.life, serial))

    def known(self, serial: int) -> RemoteProcess | None:
        """The same, if it is held here already."""
        return None if self.life is None else self._proxies.get(make_pid(self.name, self.life, serial))

    # --- out

    @property
    def has_room(self) -> bool:
        """Whether more may be sent now."""
        return (self._backlog_bytes if self.link is None else self.link.waiting) < ROOM

    def post(self, *item: Any, to: RemoteProcess | None = None) -> None:
        """Send an item; with `to`, it is dropped when that process's node has a new incarnation by then. Raises `CannotTravel`."""
        if self.lost:
            return
        encoded = encode(list(item), self.node.name)
        if len(encoded) > LARGEST - 5:
            raise CannotTravel(
                f"a message of {len(encoded)} bytes cannot travel to another node: at most {LARGEST - 5}"
            )
        if self.link is not None:
            self.link.post(encoded)
        else:
            self._backlog.append((None if to is None or to.named else to.pid.incarnation, encoded))
            self._backlog_bytes += len(encoded)

    def post_reason(self, *item: Any, to: RemoteProcess | None = None) -> None:
        """Send an item that ends with an exit reason; a reason that cannot be encoded is sent as a text."""
        try:
            self.post(*item, to=to)
        except CannotTravel:
            self.post(*item[:-1], _sendable_reason(item[-1]), to=to)

    # --- our calls and watches

    def call(self, proxy: RemoteProcess, caller: Caller[Any], kind: int, *rest: Any) -> None:
        """Send a call or request; the reply goes to `caller`."""
        number = self._number = self._number + 1
        me = caller.process
        self.post(kind, number, None if me is None or me.is_remote else me.pid.serial, proxy.to, *rest, to=proxy)
        if not self.lost:
            self.calls[number] = caller
            self._numbers[caller] = number

    def pop_caller(self, number: int) -> Caller[Any] | None:
        """Take the caller of a call whose reply has come; None when it has stopped waiting."""
        caller = self.calls.pop(number, None)
        if caller is not None:
            del self._numbers[caller]
        return caller

    def forget(self, proxy: RemoteProcess, caller: Caller[Any]) -> None:
        """The caller has stopped waiting: tell the other node, unless the reply has just come."""
        number = self._numbers.pop(caller, None)
        if number is not None:
            del self.calls[number]
            self.post(link_protocol.FORGET, number, to=proxy)

    def arm(self, proxy: RemoteProcess) -> int:
        """Watch a process of the other node; returns the number of the watch."""
        number = self._number = self._number + 1
        self.post(link_protocol.WATCH, number, proxy.to, to=proxy)
        self.armed[number] = proxy
        return number

    def disarm(self, proxy: RemoteProcess, number: int) -> None:
        """End a watch."""
        if self.armed.pop(number, None) is not None:
            self.post(link_protocol.UNWATCH, number, to=proxy)


def _sendable_reason(reason: ExitReason) -> ExitReason:
    """A reason that cannot be encoded, as a text."""
    if isinstance(reason, Shutdown):
        try:
            return Shutdown(str(reason.detail))
        except Exception:  # noqa: BLE001 - whatever a user's __str__ does
            return Shutdown(object.__repr__(reason.detail))
    error = reason.error if isinstance(reason, Crash) else ActorError(str(reason))
    return Crash(RemoteError(type(error).__name__, str(reason)))


# --- Items from the other node: each is handled by itself, so that one which fails does not affect the others.


def handle_batch(remote: RemoteNode, payload: bytes) -> None:
    """Handle a batch of items. Raises `LinkRefused` for bytes that are none."""
    try:
        batch: list[list[Any]] = decode(payload)
    except Exception:  # noqa: BLE001 - some value in it cannot be decoded here: find out which, and what waits for it
        batch = list(_decode_singly(remote, payload))
    if type(batch) is not list:
        raise LinkRefused("a message that no node of this version sends")
    for item in batch:
        if remote.lost:
            return
        try:
            _HANDLERS[item[0]](remote, *item[1:])
        except Exception as error:  # noqa: BLE001 - one item that makes no sense must not affect the others
            _report(remote, f"an item from {remote.name} could not be handled", error)


def _decode_singly(remote: RemoteNode, payload: bytes) -> Iterator[list[Any]]:
    try:
        parts = split(payload)
    except Exception as error:
        raise LinkRefused("a message that no node of this version sends") from error
    for raw in parts:
        try:
            yield decode(raw)
        except Exception as error:  # noqa: BLE001 - reported to the process that waits for it
            refused = _unreadable(remote, raw, error)
            if refused is not None:
                yield refused


def _unreadable(remote: RemoteNode, raw: bytes, error: Exception) -> list[Any] | None:
    """Replace an item whose value cannot be decoded here: the waiting caller or watcher gets an error, and an end stays an end."""
    wrong = CannotTravel(
        f"a value from {remote.name} cannot be decoded on {remote.node.name}: {type(error).__name__}: {error}"
    )
    wrong.__cause__ = error
    try:
        parts = split(raw)
        kind = decode(parts[0])
        if kind in (link_protocol.CALL, link_protocol.ASK):
            remote.post(link_protocol.FAIL, decode(parts[1]), wrong)
        elif kind == link_protocol.WATCH:
            remote.post(
                link_protocol.GONE, decode(parts[1]), NO_PROCESS
            )  # no process here is registered under a name that cannot be decoded here
        elif kind in (link_protocol.REPLY, link_protocol.FAIL):
            return [link_protocol.FAIL, decode(parts[1]), wrong]
        elif kind in (
            link_protocol.GONE,
            link_protocol.CUT,
            link_protocol.EXIT,
            link_protocol.EXITED,
            link_protocol.STOP,
        ):
            return [*(decode(part) for part in parts[:-1]), Crash(wrong)]
        else:
            _report(remote, f"a message from {remote.name} was dropped", wrong)
    except Exception as broken:
        raise LinkRefused("a message that no node of this version sends") from broken
    return None


def _report(remote: RemoteNode, what: str, error: Exception) -> None:
    remote.node.loop.call_exception_handler({"message": what, "exception": error})


# --- one handler for each kind of item


def _here(remote: RemoteNode, to: Any) -> Process | None:
    return remote.node.processes.get(to) if type(to) is int else remote.node.names.get(to[0])


def _deliver(remote: RemoteNode, to: Any, *entry: Any) -> None:
    process = _here(remote, to)
    if process is not None:
        process.deliver(entry)


def _send(remote: RemoteNode, to: Any, message: Any) -> None:
    _deliver(remote, to, process_messages.INFO, message)


def _cast(remote: RemoteNode, to: Any, method: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    _deliver(remote, to, process_messages.CAST, method, tuple(args), kwargs)


def _tell(remote: RemoteNode, to: Any, request: Any) -> None:
    _deliver(remote, to, process_messages.TELL, request)


def _stop(remote: RemoteNode, to: Any, reason: ExitReason) -> None:
    process = _here(remote, to)
    if process is not None:
        process.deliver_exempt((process_messages.STOP, as_reason(reason)))


def _call(  # noqa: PLR0913, PLR0917 - the item's parts
    remote: RemoteNode, number: int, source: int | None, to: Any, method: Any, args: list[Any], kwargs: Any
) -> None:
    _begin(remote, number, source, to, lambda caller: (process_messages.CALL, method, tuple(args), kwargs, caller))


def _ask(remote: RemoteNode, number: int, source: int | None, to: Any, request: Any) -> None:
    _begin(remote, number, source, to, lambda caller: (process_messages.ASK, request, caller))


def _begin(
    remote: RemoteNode, number: int, source: int | None, to: Any, entry: Callable[[RemoteCaller], tuple[Any, ...]]
) -> None:
    process = _here(remote, to)
    if process is None:
        if type(to) is int:
            remote.post(link_protocol.EXITED, number, NO_PROCESS)
        else:
            remote.post(link_protocol.FAIL, number, NotRegistered(NO_PROCESS, to[0]))
        return
    caller = RemoteCaller(remote, process, source, number)
    remote.callers[number] = caller
    process.add_exit_waiter(caller)
    if not process.deliver(entry(caller)) and not process.life:
        caller.fail(MailboxFull(str(process), process.limit or 0))


def _reply(remote: RemoteNode, number: int, value: Any) -> None:
    caller = remote.pop_caller(number)
    if caller is not None:
        caller.reply(value)


def _fail(remote: RemoteNode, number: int, error: BaseException) -> None:
    caller = remote.pop_caller(number)
    if caller is not None:
        caller.fail(error)


def _exited(remote: RemoteNode, number: int, reason: ExitReason) -> None:
    caller = remote.pop_caller(number)
    if caller is not None:
        caller.on_exit(as_reason(reason))


def _forget(remote: RemoteNode, number: int) -> None:
    caller = remote.callers.pop(number, None)
    if caller is not None:
        caller.drop()


def _watch(remote: RemoteNode, number: int, to: Any) -> None:
    process = _here(remote, to)
    if process is None:
        remote.post(link_protocol.GONE, number, NO_PROCESS)
    else:
        watch = remote.watches[number] = RemoteWatch(remote, process, number)
        process.add_exit_waiter(watch)


def _unwatch(remote: RemoteNode, number: int) -> None:
    watch = remote.watches.pop(number, None)
    if watch is not None:
        watch.drop()


def _gone(remote: RemoteNode, number: int, reason: ExitReason) -> None:
    proxy = remote.armed.pop(number, None)
    if proxy is not None:
        remote.mark_dead(proxy, as_reason(reason))


def _link(remote: RemoteNode, source: int, to: int) -> None:
    process, proxy = _here(remote, to), remote.there(source)
    if proxy is None:
        return
    if process is None or process.life:
        remote.post(link_protocol.CUT, to, source, NO_PROCESS)
    else:
        links.link_locally(process, proxy)


def _unlink(remote: RemoteNode, source: int, to: int) -> None:
    process, proxy = _here(remote, to), remote.known(source)
    if process is not None and proxy is not None:
        links.unlink_locally(process, proxy)


def _cut(remote: RemoteNode, source: int, to: int, reason: ExitReason) -> None:
    process, proxy = _here(remote, to), remote.known(source)
    if process is None or proxy is None or proxy not in links.linked(process):
        return  # it was unlinked meanwhile
    links.unlink_locally(process, proxy)
    lifecycle.signal(process, proxy.pid, as_reason(reason))


def _exit(remote: RemoteNode, source: int, to: Any, reason: ExitReason) -> None:
    process = _here(remote, to)
    if process is not None:
        lifecycle.signal(process, make_pid(remote.name, remote.life or 0, source), as_reason(reason))


def _kill(remote: RemoteNode, to: Any) -> None:
    process = _here(remote, to)
    if process is not None:
        lifecycle.kill(process)


def _beat(remote: RemoteNode) -> None:
    """A heartbeat; the link has noted the time."""


_HANDLERS: Final[dict[int, Callable[..., None]]] = {
    link_protocol.SEND: _send,
    link_protocol.CAST: _cast,
    link_protocol.TELL: _tell,
    link_protocol.CALL: _call,
    link_protocol.ASK: _ask,
    link_protocol.REPLY: _reply,
    link_protocol.FAIL: _fail,
    link_protocol.EXITED: _exited,
    link_protocol.FORGET: _forget,
    link_protocol.WATCH: _watch,
    link_protocol.UNWATCH: _unwatch,
    link_protocol.GONE: _gone,
    link_protocol.LINK: _link,
    link_protocol.UNLINK: _unlink,
    link_protocol.CUT: _cut,
    link_protocol.EXIT: _exit,
    link_protocol.KILL: _kill,
    link_protocol.STOP: _stop,
    link_protocol.BEAT: _beat,
}
