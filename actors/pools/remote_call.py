"""A call that runs in a worker: the server's side of it, what is sent, what the handler sees there of the session, and who has started it.

A `RemoteCall` is made by the job's process, kept by the scheduler while it waits and by a worker proxy while it runs, and answered once: `Caller` takes the first
reply, and drops later ones.
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
from greenroom.protocol.dialect import dialect_of
from greenroom.protocol.input_required import RecordedAnswer  # noqa: TC001 - msgspec reads the annotations
from greenroom.protocol.jsonrpc import to_float
from greenroom.supervision.cluster import CannotTravel, value_codec
from greenroom.supervision.cluster.flow_control import Receipts, answer_in_task
from greenroom.supervision.event_bus import bus

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Hashable, Mapping
    from contextvars import Context

    from greenroom.actors.catalogue_entries import CatalogueEntry
    from greenroom.actors.worker_interfaces import Job
    from greenroom.event_types import Outcome
    from greenroom.protocol.dialect import Dialect
    from greenroom.protocol.input_required import InputRequired, RecordedAnswers
    from greenroom.supervision import Caller, Pid


@dataclass(slots=True, eq=False)
class RemoteCall:
    """One call. It is made in the job's process, so that errors of encoding are that process's."""

    job: Job
    entry: CatalogueEntry
    node: InitVar[str]
    principal: Hashable = field(init=False)
    """The principal whose share of the pool it takes."""
    payload: bytes = field(init=False)
    facts: list[bytes | str | None] = field(init=False)
    """Encoded state, auth and principal of the session; a text says why one cannot be sent."""
    caller: Caller[CallOutcome] = field(init=False)
    proxy: Pid | None = None
    """The proxy of the worker that has it; the scheduler sets it."""
    number: int = 0
    """The number of the call among those of that worker."""
    taken: Receipts = field(default_factory=lambda: Receipts(_OFTEN))
    """Counts the handler's messages that have arrived."""
    moves: int = 0
    """How many workers had it and did not start it."""
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
                _remote_input(job),
                None if bus.tracer is None else (bus.tracer.home, dict(bus.tracer.carrier(0))),
            )
        )

    @property
    def is_unwanted(self) -> bool:
        """Whether no caller waits for it, so that it is not started again."""
        return self.is_dropped or bool(self.job.cancelled)

    def note_start(self) -> None:
        """Its worker has no call before it any more."""
        if self.job.observed is not None:
            self.job.observed.reached("process")

    def take(self, piece: bytes) -> None:
        """Take a part of a response that comes in several."""
        if self._parts is None:
            self._parts = BytesIO()
        self._parts.write(piece)

    def put_together(self) -> bytes:
        """All parts of the response. `BytesIO.getvalue` copies nothing here; to join a list of parts would copy a large response in one go, and delay all other calls."""
        parts, self._parts = self._parts or BytesIO(), None
        return parts.getvalue()

    def settle(self, outcome: CallOutcome) -> None:
        """Reply to the caller, and cancel the questions that are still open."""
        for each in self._questions:
            each.cancel()
        self.caller.reply(outcome)

    def ask(
        self, asker: Caller[Any], method: str, params: dict[str, Any], timeout: float | None, key: str | None
    ) -> None:
        """Send a request to the peer in the job's own process, whose end cancels it."""
        task = answer_in_task(asker, self.job.peer_channel.ask(method, params, timeout, key), self._context)
        self._questions.add(task)
        task.add_done_callback(self._questions.discard)


# --- What a handler in a worker sees of its session: the server's values, where they are data.
# A value that cannot be sent, such as an open connection in `ctx.state`, is an error only for a handler that uses it.


class NotInWorker(GreenroomError):
    """A value of the session exists only in the server's own process."""


def _remote_input(job: Job) -> RemoteInput | None:
    given = job.input
    if given is None or job.task is not None:
        return None
    return RemoteInput(None if given.responses is None else dict(given.responses), given.recorded, given.state)


def _packed(value: Any, node: str) -> bytes | str | None:
    if value is None:
        return None
    try:
        return value_codec.encode(value, node)
    except CannotTravel as error:
        return str(error)


def _unpacked(data: bytes | str | None, what: str) -> Any:
    """Decode a value when it is used: its class may be in a module that nothing else needs."""
    if data is None:
        return None
    if isinstance(data, str):
        raise NotInWorker(f"{what} is not there in a worker process: {data}")
    return value_codec.decode(data)


class PeerSnapshot:
    """The caller, as a handler in a worker sees it."""

    __slots__ = ("_auth", "_principal", "address", "transport")

    proxied: Final = None
    forwarded: Final = ""
    """Not used: a worker has one call at a time, and no bulkheads."""

    def __init__(self, payload: CallPayload, auth: bytes | str | None, principal: bytes | str | None) -> None:
        self.transport = payload.transport
        self.address = payload.address
        self._auth = auth
        self._principal = principal

    @property
    def auth(self) -> Any:
        """The result of the caller's authentication."""
        return _unpacked(self._auth, "ctx.auth")

    @property
    def principal(self) -> Any:
        """The principal of the call."""
        return _unpacked(self._principal, "ctx.principal")


class SessionSnapshot:
    """The session of one call, as a handler in a worker sees it."""

    __slots__ = ("_state", "client_capabilities", "client_info", "peer", "session_id", "version")

    def __init__(self, payload: CallPayload, data: list[bytes | str | None]) -> None:
        self._state, auth, principal = data
        self.session_id = payload.session_id
        self.version = payload.version
        self.peer = PeerSnapshot(payload, auth, principal)
        self.client_info: Mapping[str, Any] = payload.client_info
        self.client_capabilities: Mapping[str, Any] = payload.client_capabilities

    @property
    def dialect(self) -> Dialect:
        """The rules of the session's revision."""
        return dialect_of(self.version)

    @property
    def state(self) -> Any:
        """The result of the server's `init` for the session."""
        return _unpacked(self._state, "ctx.state")


# --- The messages between the server (its worker proxy) and a worker: lists that begin with one of these numbers, and small structs as bytes.
# ::
#     server -> worker   PLAN n, spec            the handler number n; before its first call
#                        RUN call, n, payload    start this call
#                        CANCEL call, why        its caller has stopped waiting: set its cancellation
#                        STOP call               end it, as far as that is possible from inside
#                        CREDIT call, count, size  so many of its messages have arrived
#     worker -> server   SAY call, what, *args   a message for the peer, by the method `what` of the call's channel
#                        TOUCH call              its handler has reported something that is not sent
#                        EXPECT call, ids        the peer is about to get these URL elicitations
#                        BROADCAST call, what, *args  a change for all sessions of the company
#                        INTERRUPT_STREAM call, retry  close the call's stream for now
#                        PART call, piece        a part of a long response
#                        DONE call, *outcome     the end of the call; its body is empty when it came in parts
# The server numbers the calls, and a worker runs one at a time. One link carries everything in order, so nothing that a handler sends arrives after its result. A
# question of a handler to the peer is an ordinary call to the server: call, method, params, timeout. `RUN` is not one, since the locks below decide who has started
# a call, and taking it back needs no message.

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
"""The worker gets a `CREDIT` after so many messages of its handler."""
TOUCHES: Final = 0.25
"""At least so many seconds lie between two `TOUCH` of a call. The server adds them to the allowed silence, so that none is missed."""
PIECE: Final = 255 * 1024
"""The length of a part: with its envelope it fits into one frame of the link."""


class RemoteInput(msgspec.Struct, array_like=True):
    """The `RoundInput` of a call, as a worker sees it: the server's own process asks the questions."""

    responses: dict[str, dict[str, Any]] | None
    recorded: list[RecordedAnswer] | None
    state: Any

    def asking_result(self, required: InputRequired, answers: RecordedAnswers) -> dict[str, Any]:
        """Raise it on: `execute_job` sends it to the server."""
        required.answers = answers
        raise required


class CallPayload(msgspec.Struct, array_like=True, frozen=True):
    """The part of a call that is sent to a worker."""

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
    input: RemoteInput | None = None
    carried: tuple[str, dict[str, str]] | None = None
    """The trace of the call, and the module that continues it."""


class CallOutcome(NamedTuple):
    """How a call has ended in its worker: exactly one of the first three or the last is set. It is sent as a list, so that a large body is not encoded twice."""

    body: bytes | None = None
    """The encoded response."""
    error: list[Any] | None = None
    """A JSON-RPC error: code, message, data."""
    why: str | None = None
    """Why there is neither: a clause to follow "Tool execution failed:"."""
    crash: list[str] | None = None
    """The exception, if the call crashed as well: type, message, traceback."""
    worn: bool = False
    """Whether the worker should be replaced."""
    asks: list[Any] | None = None
    """The questions with which the handler has ended (key, method, params), their state, and the answers that it has read."""
    is_error: bool = False
    """Whether the response is a tool's result with `isError`."""
    cause: Outcome = "process_ended"
    """What `why` means in events."""


payload_to_bytes: Final = msgspec.json.Encoder().encode
payload_from_bytes: Final = msgspec.json.Decoder(CallPayload, float_hook=to_float).decode


# --- Locks that decide which process has started a call: the worker that it was sent ahead to, or the server that takes it back for another worker.
# Sending calls ahead saves a round trip after each. But a call may last, and then those behind it should move to another worker, while their worker may be about to
# start them. To ask the worker would mean to wait for one that is busy, or hung. So each call has a byte of a memory file: the process that has locked that byte
# (`fcntl.lockf`) has the call, and the system grants the lock to one process, whatever the other does at that time.
# A lock ends with its process, and POSIX drops all locks of a process when it closes any descriptor of the file, as a handler does that closes all descriptors. So the
# holder of the lock also writes a mark into the byte, and a call belongs to the process that found no mark. Marks outlive both processes: the server knows of each
# call that a lost worker had whether it was started.

_MARKS: Final = 4096
"""How many marks the file has: many more than calls that one worker can have, so that it need not grow."""


class StartLocks:
    """One end, the server's or the worker's, of a file of start locks."""

    def __init__(self, fd: int) -> None:
        """Takes over `fd`, and closes it in the end."""
        self._fd = fd

    @classmethod
    def made(cls) -> StartLocks | None:
        """Make a file, in the server; None where the system has no memory files."""
        try:
            return cls(os.memfd_create("greenroom-claims", os.MFD_CLOEXEC))
        except (AttributeError, OSError):
            return None

    @classmethod
    def opened(cls, path: str | None) -> StartLocks | None:
        """Open the server's file by its path; None where that fails."""
        if path is None:
            return None
        try:
            return cls(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        except OSError:
            return None

    @property
    def path(self) -> str:
        """The path by which another process of the same user can open it."""
        return f"/proc/{os.getpid()}/fd/{self._fd}"

    def begin(self, call: int) -> bool:
        """In the worker: take the call in order to start it. False when the server has it, or when that cannot be known any more."""
        if not self._lock(call):
            return False
        if self._mark(call):
            return True
        with contextlib.suppress(OSError):
            fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, call)
        return False

    def take(self, call: int) -> bool:
        """In the server: take the call back. False when its worker has started it, or when that cannot be known any more."""
        return self._lock(call) and self._mark(call)

    def _mark(self, call: int) -> bool:
        """Write this process's mark. False when the other process's is there."""
        place, mark = call % _MARKS, _mark(call)
        try:
            return os.pread(self._fd, 1, place) != mark and os.pwrite(self._fd, mark, place) == 1
        except OSError:
            return False

    def _lock(self, call: int) -> bool:
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, call)
        except (OSError, ValueError):  # the other process has it, or the file is closed
            return False
        return True

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the file: no call can be taken any more."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)


def _mark(call: int) -> bytes:
    """The mark of a call: different from that of the earlier call with the same byte."""
    return bytes((1 + call // _MARKS % 255,))
