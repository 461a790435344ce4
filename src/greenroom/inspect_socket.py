"""The inspect socket: shows a program to its own user, from another terminal.

It is off by default: `server.run(…, inspect=True)`, `greenroom serve --inspect`, and `inspectable("my host")` in any other program. The socket has mode 0600 in
a folder of greenroom's with mode 0700, and a peer of another user gets nothing. A client that sends nothing gets one snapshot, taken without a message to any
process; others ask for views, follow events, and with `inspect="acts"` act on the program (`greenroom.inspect_protocol`). `InspectListener` is a process without
callers; if it dies, its supervisor opens a new socket.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import stat
import struct
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NotRequired, TypedDict

import msgspec

from greenroom.supervision import (
    GenServer,
    Pid,
    child,
    current_node,
    current_process,
    snapshot,
    start,
    stop,
    visible,
    whereis,
)
from greenroom.supervision.acceptor import BACKLOG, serve, stream_protocol

from .errors import ConfigError
from .inspect_protocol import SnapshotRequest

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator, Callable, Sequence

    from greenroom.actors.federation.upstream import Upstream
    from greenroom.actors.federation.upstream_manager import UpstreamManager
    from greenroom.supervision import ChildSpec, ExitReason
    from greenroom.supervision.acceptor import Acceptor

    from .inspect_protocol import Inspect
    from .inspect_requests import InspectedProgram

log: Final = logging.getLogger("greenroom.inspect")
_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]")
_SUFFIX: Final = ".sock"
_LONGEST_PATH: Final = 100
"""The longest socket path in bytes; the system's own limit is 104 or 108."""
_TIMEOUT: Final = 5.0
_LARGEST_SNAPSHOT: Final = 64 * 1024 * 1024
"""The largest snapshot in bytes; it has some hundred bytes for each process."""
_LONGEST_TEXT: Final = 500
"""The longest shown reason or URL of a server in characters: it may be a peer's text."""
_UPSTREAM_MANAGER: Final = "greenroom.actors.federation.upstream_manager"


class _ProcessShape(TypedDict):
    pid: str
    label: str
    behaviour: str
    names: list[str]
    parent: str | None
    activity: str
    waiting: int
    waiting_bytes: int
    bound: int | None
    tasks: int
    calls: str | None


class _ServerShape(TypedDict):
    """One server of a host. `pid` is its supervisor, which may have ended, and `parent` that supervisor's supervisor."""

    id: str
    pid: str | None
    parent: str | None
    state: str
    reason: str
    next_attempt: float | None
    in_progress: int
    sign_in_url: str
    revision: str


class _SnapshotShape(TypedDict):
    """The snapshot that an inspect socket sends."""

    name: str
    pid: int
    urls: list[str]
    node: str
    lag: float
    leaked: int
    workers: int
    busy_workers: int
    processes: list[_ProcessShape]
    servers: NotRequired[list[_ServerShape]]
    """Missing in snapshots of older versions."""


@dataclass(frozen=True, slots=True)
class InspectSocket:
    """An inspect socket of a running program."""

    path: Path

    @property
    def pid(self) -> int:
        """The id of the program's process."""
        return int(self.path.stem.partition("-")[0])

    @property
    def name(self) -> str:
        """The name of the program."""
        return self.path.stem.partition("-")[2]


def socket_folder() -> Path:
    """The folder of the sockets. Raises `ConfigError` if it is not accessible to this user alone."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    try:
        path = Path(runtime) / "greenroom" if runtime else Path(tempfile.gettempdir()) / f"greenroom-{os.geteuid()}"
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"a program with inspect needs a folder for its socket, but there is none: {error.strerror}; "
            "set XDG_RUNTIME_DIR to a writable folder, or leave out inspect"
        ) from None
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise ConfigError(f"{path} must be a folder that only you can open: remove it, or set XDG_RUNTIME_DIR")
    return path


def inspect_sockets() -> Sequence[InspectSocket]:
    """All inspect sockets; sockets of programs that have died are removed."""
    found: list[InspectSocket] = []
    for path in sorted(socket_folder().glob(f"*-*{_SUFFIX}")):
        if not path.stem.partition("-")[0].isdigit():
            continue
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as sock:
            sock.settimeout(_TIMEOUT)
            try:
                sock.connect(str(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
            except OSError:
                continue
            else:
                found.append(InspectSocket(path))
    return found


def read_snapshot(path: Path) -> dict[str, Any]:
    """Read a snapshot from a socket. Raises `OSError`, and `ConfigError` if it is no inspect socket."""
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as sock:
        sock.settimeout(_TIMEOUT)
        sock.connect(str(path))
        data = bytearray()
        # A program of an older version sends without being asked, and closes with this request unread: then the system says so after what was sent.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            sock.sendall(msgspec.json.encode(SnapshotRequest()) + b"\n")
        with contextlib.suppress(ConnectionResetError):
            while part := sock.recv(1 << 16):
                data += part
                if len(data) > _LARGEST_SNAPSHOT:
                    raise ConfigError(f"{path} sent more than {_LARGEST_SNAPSHOT} bytes: is it an inspect socket?")
    try:
        return dict(msgspec.json.decode(data, type=_SnapshotShape))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} sent nothing that can be read: is it an inspect socket?") from error


class InspectListener(GenServer):
    """Answers on a program's inspect socket."""

    def __init__(self, name: str, urls: Callable[[], Sequence[str]], inspect: Inspect = True) -> None:  # noqa: FBT002 - it is no flag
        """`name` is the program's name, `urls` returns where it serves. With "acts", clients may act on the program."""
        self.name = name
        self.urls = urls
        self.path = Path()
        self._may_act = inspect == "acts"
        self._acceptor: Acceptor | None = None
        self._program: InspectedProgram | None = None

    async def init(self) -> None:
        """Open the socket."""
        self.path = socket_folder() / f"{os.getpid()}-{_file_name(self.name)}{_SUFFIX}"
        if len(os.fsencode(self.path)) > _LONGEST_PATH:
            raise ConfigError(f"{self.path} is too long for a socket: set XDG_RUNTIME_DIR to a shorter path")
        # It has its name when it listens, and not before: commands take one that does not for that of a program that has died.
        coming = self.path.with_suffix(".new")
        coming.unlink(missing_ok=True)
        current_process("listen").add_exit_waiter(self)
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.bind(str(coming))

            # chmod after bind, since umask is process-wide and not thread-safe; until then the folder's mode keeps other users out.
            coming.chmod(0o600)
            sock.listen(BACKLOG)
            sock.setblocking(False)  # noqa: FBT003 - its only argument
            coming.replace(self.path)  # also of one that an earlier listener of this process has left
            self._program = self._inspected()
            self._acceptor = serve(stream_protocol(self._serve), [sock], log)
        except BaseException:
            sock.close()
            coming.unlink(missing_ok=True)
            raise

    def on_exit(self, reason: ExitReason) -> None:  # noqa: ARG002 - closed for any reason
        """Close and remove the socket. Not in `terminate`, which a process that is killed does not reach."""
        if self._acceptor is not None:
            self._acceptor.close()
        if self._program is not None:
            self._program.stop()
        self.path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._program is not None and _is_same_user(writer.get_extra_info("socket")):
                await self._program.serve(reader, writer)
        finally:
            writer.close()

    def _inspected(self) -> InspectedProgram:
        from .inspect_requests import InspectedProgram  # noqa: PLC0415 - it loads what the views need
        from .observe.observatory import Observatory  # noqa: PLC0415 - as above

        observatory = Observatory(self.name, urls=self.urls, acts=self._may_act)
        observatory.start()
        return InspectedProgram(self.as_data, observatory)

    def as_data(self) -> dict[str, Any]:
        """The snapshot as JSON data."""
        taken = snapshot()
        return {
            **_shape_members(_SnapshotShape, taken),
            "name": self.name,
            "pid": os.getpid(),
            "urls": list(self.urls()),
            "processes": [
                {**_shape_members(_ProcessShape, each), "activity": "dying" if each.dying else each.activity}
                for each in taken.processes
            ],
            "servers": _servers(),
        }


def _shape_members(shape: Any, value: object) -> dict[str, Any]:
    """The members of a shape that the value has; process identifiers as text."""
    found = {name: getattr(value, name) for name in shape.__annotations__ if hasattr(value, name)}
    return {name: str(member) if isinstance(member, Pid) else member for name, member in found.items()}


def _servers() -> list[_ServerShape]:
    """All servers of the hosts on this node, including those that are being added or removed."""
    module: Any = sys.modules.get(_UPSTREAM_MANAGER)
    if module is None:  # no host runs here; the import would block the loop of a program without one
        return []
    behaviours: list[Any] = [process.behaviour.inner for process in current_node().processes.values()]
    managers: list[UpstreamManager] = [each for each in behaviours if isinstance(each, module.UpstreamManager)]
    # Once each: a manager that is ending and its successor may be here side by side.
    federations = dict.fromkeys(each.federation for each in managers)
    return [
        _server(each, whereis(federation.name("upstreams")))
        for federation in federations
        for some in (federation.members, federation.arriving, federation.leaving)
        for each in some.values()
    ]


def _server(upstream: Upstream, parent: Pid | None) -> _ServerShape:
    standing = upstream.status
    return {
        "id": visible(upstream.id),
        "pid": None if upstream.pid is None else str(upstream.pid),
        "parent": None if parent is None else str(parent),
        "state": standing.state.value,
        "reason": visible(standing.reason, _LONGEST_TEXT),
        "next_attempt": standing.next_attempt,
        "in_progress": standing.in_progress,
        "sign_in_url": visible(standing.sign_in_url, _LONGEST_TEXT),
        "revision": standing.revision,
    }


def inspect_child(name: str, urls: Callable[[], Sequence[str]] = tuple, *, inspect: Inspect = True) -> ChildSpec[Any]:
    """The spec of an `InspectListener` as a child of any supervisor."""
    return child(InspectListener, name, urls, inspect).but(id="inspect socket", restart="transient")


@contextlib.asynccontextmanager
async def inspectable(
    name: str, urls: Callable[[], Sequence[str]] = tuple, *, inspect: Inspect = True
) -> AsyncGenerator[Path]:
    """Open an inspect socket for the node of this loop during the block. With `inspect="acts"`, its user may act on the program as well."""
    listener = await start(InspectListener, name, urls, inspect)
    try:
        yield socket_folder() / f"{os.getpid()}-{_file_name(name)}{_SUFFIX}"
    finally:
        await stop(listener)


def _file_name(name: str) -> str:
    return _NAME.sub("_", name)[:40]


def _is_same_user(sock: Any) -> bool:
    """Whether the peer is a process of this user or of root. If the system does not tell, the folder's mode protects the socket."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    _, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return uid in (0, os.geteuid())
