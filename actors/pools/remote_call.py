"""One call that is to run in a worker, as home has it: its principal, what is sent, and which caller gets the outcome.

It is made by the job's own process, kept by the scheduler while it waits and by a worker proxy while it runs, and answered once: `Caller` takes the
first answer, and drops the rest.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from contextvars import copy_context
from dataclasses import InitVar, dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from greenroom.actors.catalogue import quota_key_of_job
from greenroom.errors import GreenroomError
from greenroom.protocol.jsonrpc import to_float
from greenroom.supervision.cluster import CannotTravel, value_codec
from greenroom.supervision.cluster.flow_control import Receipts, answer_in_task

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Hashable, Mapping
    from contextvars import Context

    from greenroom.actors.catalogue_entries import CatalogueEntry
    from greenroom.actors.worker_interfaces import Job
    from greenroom.supervision import Caller, Pid


@dataclass(slots=True, eq=False)
class RemoteCall:
    """A call. Made in the job's process: what cannot be sent is that process's error."""

    job: Job
    entry: CatalogueEntry
    node: InitVar[str]
    principal: Hashable = field(init=False)
    """The principal whose part of the pool it takes."""
    payload: bytes = field(init=False)
    facts: list[bytes | str | None] = field(init=False)
    """The three of the session that may be anything, state, auth and principal: as bytes, or why they cannot travel."""
    caller: Caller[CallOutcome] = field(init=False)
    proxy: Pid | None = None
    """The worker proxy that has it, once it is with a worker; the scheduler writes it."""
    number: int = 0
    """Which call of that worker it is."""
    taken: Receipts = field(default_factory=lambda: Receipts(_OFTEN))
    """The words of its handler that have come."""
    moves: int = 0
    """How many workers had it and did not even begin with it."""
    is_dropped: bool = False
    """Whether the caller is gone."""
    _parts: BytesIO | None = None
    _context: Context = field(default_factory=copy_context)
    _questions: set[asyncio.Task[Any]] = field(default_factory=set["asyncio.Task[Any]"])

    def __post_init__(self, node: str) -> None:
        job, facts = self.job, self.job.facts
        self.principal = quota_key_of_job(job)
        self.facts = [_packed(each, node) for each in (facts.state, facts.peer.auth, facts.peer.principal)]
        self.payload = payload_to_bytes(
            CallPayload(
                job.request_id,
                job.method,
                dict(job.params),
                job.task,
                facts.session_id,
                facts.version,
                facts.peer.transport,
                facts.peer.address,
                dict(facts.client_info),
                dict(facts.client_capabilities),
            )
        )

    @property
    def is_unwanted(self) -> bool:
        """Whether no caller waits for it any more: then it is not begun anew."""
        return self.is_dropped or bool(self.job.cancelled)

    def take(self, piece: bytes) -> None:
        """A part of a response that comes in several."""
        if self._parts is None:
            self._parts = BytesIO()
        self._parts.write(piece)

    def put_together(self) -> bytes:
        """All the parts that have come. They lie where they will stay: to copy them now, all at once, would hold up all other calls."""
        parts, self._parts = self._parts or BytesIO(), None
        return parts.getvalue()

    def settle(self, outcome: CallOutcome) -> None:
        """This came of it."""
        for each in self._questions:
            each.cancel()
        self.caller.reply(outcome)

    def ask(self, asker: Caller[Any], method: str, params: dict[str, Any], timeout: float | None) -> None:
        """Ask the peer, in the job's own process: what it has open ends with it."""
        task = answer_in_task(asker, self.job.peer_channel.ask(method, params, timeout), self._context)
        self._questions.add(task)
        task.add_done_callback(self._questions.discard)


# --- What a handler in a worker sees of its session: the facts as home has them, where they are data.
# What cannot travel (an open connection in `ctx.state`) is missed only by the handler that asks for it.


class NotInWorker(GreenroomError):
    """Something of the session that only the server's own process has."""


def _packed(value: Any, node: str) -> bytes | str | None:
    if value is None:
        return None
    try:
        return value_codec.encode(value, node)
    except CannotTravel as error:
        return str(error)


def _unpacked(data: bytes | str | None, what: str) -> Any:
    """A value, when it is wanted: its class may be in a module that nothing else needs."""
    if data is None:
        return None
    if isinstance(data, str):
        raise NotInWorker(f"{what} is not there in a worker process: {data}")
    return value_codec.decode(data)


class PeerSnapshot:
    """The caller, as a worker knows it."""

    __slots__ = ("_auth", "_principal", "address", "transport")

    proxied: Final = None
    forwarded: Final = ""
    """A worker has one call at a time, and shares nothing out."""

    def __init__(self, payload: CallPayload, auth: bytes | str | None, principal: bytes | str | None) -> None:
        """As home says."""
        self.transport = payload.transport
        self.address = payload.address
        self._auth = auth
        self._principal = principal

    @property
    def auth(self) -> Any:
        """What is known of them."""
        return _unpacked(self._auth, "ctx.auth")

    @property
    def principal(self) -> Any:
        """The principal of the call."""
        return _unpacked(self._principal, "ctx.principal")


class SessionSnapshot:
    """Of one call's session."""

    __slots__ = ("_state", "client_capabilities", "client_info", "peer", "session_id", "version")

    def __init__(self, payload: CallPayload, data: list[bytes | str | None]) -> None:
        """As home says."""
        self._state, auth, principal = data
        self.session_id = payload.session_id
        self.version = payload.version
        self.peer = PeerSnapshot(payload, auth, principal)
        self.client_info: Mapping[str, Any] = payload.client_info
        self.client_capabilities: Mapping[str, Any] = payload.client_capabilities

    @property
    def state(self) -> Any:
        """What the server's own `init` made for the session."""
        return _unpacked(self._state, "ctx.state")


# --- What home and a worker say to each other: lists that begin with one of these numbers, and small structs as bytes.
# ::
#     home -> worker     PLAN n, plan          what handler n is; before the first call of it
#                      RUN call, n, payload   begin with this call
#                      CANCEL call, why      its caller does not wait any more: raise its flag
#                      STOP call             end it, as far as that can be done from inside
#                      HEARD call, count, size  so many more of its words have arrived
#     worker -> home     SAY call, what, *args something for the peer, by the method `what` of the call's voice
#                      TOUCH call            its handler has reported something that is not sent
#                      EXPECT call, ids
#                      TELL call, what, *args  something for all that listen to the company
#                      AWAY call, retry      close the call's stream for now
#                      PART call, piece      of a long response, before the last
#                      DONE call, *outcome   the last of a call; its body is empty when that came in parts
# Calls are counted by home, and a worker main process has one at a time. All of it goes over one link, which keeps the order: nothing that a handler says
# arrives behind its result. What a handler asks the peer is a call of the kernel's to home, which ends with either of them: call, method, params,
# timeout. The calls that a worker runs are none, since a file decides which process has one: taking a call back needs no message.

PLAN: Final = 1
RUN: Final = 2
CANCEL: Final = 3
STOP: Final = 4
CREDIT: Final = 6

SAY: Final = 11
EXPECT: Final = 15
INTERRUPT_STREAM: Final = 16
DONE: Final = 17
BROADCAST: Final = 18
PART: Final = 20
TOUCH: Final = 22

_OFTEN: Final = 256
"""After so many words of a handler it is told that they have come."""
TOUCHES: Final = 0.25
"""How many seconds lie between two `TOUCH` of a call at least; home adds them to its time of silence, so that none is missed."""
PIECE: Final = 255 * 1024
"""How long a part is: it fits into one frame of the link, with what stands around it."""


class CallPayload(msgspec.Struct, array_like=True, frozen=True):
    """What a worker has to know of one call."""

    request_id: str | int
    method: str
    params: dict[str, Any]
    task: str | None
    session_id: str
    version: str
    transport: str
    address: str
    client_info: dict[str, Any]
    client_capabilities: dict[str, Any]


class CallOutcome(NamedTuple):
    """How a call has ended in its worker: exactly one of the first three. It travels as a list, so that a large body is not wrapped twice."""

    body: bytes | None = None
    """The whole encoded response."""
    error: list[Any] | None = None
    """A JSON-RPC error: code, message, data."""
    why: str | None = None
    """There is neither, and this is why: a clause that follows "Tool execution failed:"."""
    crash: list[str] | None = None
    """What was raised, if it crashed besides: its type, what it says, and where."""
    worn: bool = False
    """Whether the worker had better be replaced."""


payload_to_bytes: Final = msgspec.json.Encoder().encode
payload_from_bytes: Final = msgspec.json.Decoder(CallPayload, float_hook=to_float).decode


# --- Whether a worker begins with a call that was sent ahead to it. Decided once, between two processes that do not wait for each other.
# A worker that has several calls lying before it need not be waited for after each. But one of them may last, and then those behind it are to go
# elsewhere, while the worker may just be about to begin with them. So each call has a byte of a file in memory, and the process that has locked that
# byte has the call: the worker before it begins, home before it gives the call to another worker. The system grants a lock to one of them, whatever
# the other is at.
# A lock ends with its process, and a handler that closes all descriptors has lost those of its worker, which goes on. So the process with the lock
# also writes down that it has the call, and only a process that finds nothing written has it. That stays true when either of them is dead, and so home
# knows of each call that a lost worker had before it whether that was begun.

_MARKS: Final = 4096
"""How many marks there are: many more than calls that one worker can have before it, so that the file does not grow."""


class StartLocks:
    """One end of such a file."""

    def __init__(self, fd: int) -> None:
        """`fd` is kept, and closed in the end."""
        self._fd = fd

    @classmethod
    def made(cls) -> StartLocks | None:
        """A new one, at home; None where the system has no such files."""
        try:
            return cls(os.memfd_create("greenroom-claims", os.MFD_CLOEXEC))
        except (AttributeError, OSError):
            return None

    @classmethod
    def opened(cls, path: str | None) -> StartLocks | None:
        """The other end, by the path that home has given; None where that leads nowhere."""
        if path is None:
            return None
        try:
            return cls(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        except OSError:
            return None

    @property
    def path(self) -> str:
        """Where another process of the same user finds it."""
        return f"/proc/{os.getpid()}/fd/{self._fd}"

    def begin(self, call: int) -> bool:
        """In the worker: have that call, and say so for good. False when home has it, or when that cannot be known any more."""
        if not self._lock(call):
            return False
        if self._mark(call):
            return True
        with contextlib.suppress(OSError):
            fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, call)
        return False

    def take(self, call: int) -> bool:
        """At home: have that call, for good. False when its worker has begun it; or when that cannot be known any more."""
        return self._lock(call) and self._mark(call)

    def _mark(self, call: int) -> bool:
        """Write down that this process has the call. False when the other has."""
        place, mark = call % _MARKS, _mark(call)
        try:
            return os.pread(self._fd, 1, place) != mark and os.pwrite(self._fd, mark, place) == 1
        except OSError:
            return False

    def _lock(self, call: int) -> bool:
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, call)
        except (OSError, ValueError):  # the other has it; or the file is closed
            return False
        return True

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """No call is to be decided any more."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)


def _mark(call: int) -> bytes:
    """Another one than the call had that stood in the same place before."""
    return bytes((1 + call // _MARKS % 255,))
