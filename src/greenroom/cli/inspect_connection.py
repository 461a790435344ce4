"""A connection to the inspect socket of a running program, for the commands that look into one.

It blocks, with a limit of time for each answer. What the program answers is read by the structs of the views: fields that are not known here are ignored, so
that a newer program can be looked at.
"""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from greenroom.inspect_protocol import ActRequest, FollowRequest, LinkRequest, ViewRequest
from greenroom.inspect_socket import inspect_sockets
from greenroom.observe.view_models import VIEW_TYPES, ActOutcome
from greenroom.observe.view_rows import Notice

from .exit_codes import DENIED, FAILED, UNREACHABLE, USAGE, CommandFailed, UsageError, visible

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from greenroom.inspect_protocol import ActName, InspectRequest
    from greenroom.observe.view_models import View

_TIMEOUT: Final = 10.0
_LARGEST_LINE: Final = 16 * 1024 * 1024
"""The longest line of an answer in bytes: a view has at most some hundred rows."""
_EXIT_CODES: Final = {"denied": DENIED, "invalid": USAGE}
_OLDER: Final = "runs an older greenroom, which only `greenroom tree` can show: restart it with this version"


class _Reply(msgspec.Struct):
    """The answer to a request: one of the two is set."""

    ok: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: str = ""
    kind: str = ""


class ProgramRefused(CommandFailed):
    """The program does not answer this request; the text says why."""


class ProgramGone(CommandFailed):
    """The program has ended, or does not answer in time."""


def chosen_socket(which: str | None) -> Path:
    """The socket of the program with this name, process number or path; without one, of the only program. Raises `ProgramGone`, `UsageError`."""
    if which is not None and which.endswith(".sock"):
        return Path(which)
    found = inspect_sockets()
    if which is not None:
        found = [each for each in found if which in (each.name, str(each.pid))]
    if len(found) == 1:
        return found[0].path
    if not found:
        what = (
            "no running program can be inspected" if which is None else f"no running program {which!r} can be inspected"
        )
        raise ProgramGone(UNREACHABLE, f"{what}: start it with --inspect, or run(…, inspect=True)")
    names = ", ".join(f"{each.name} ({each.pid})" for each in found)
    raise UsageError(f"name one of them: {names}")


class InspectConnection:
    """Asks a running program, one request after the other."""

    def __init__(self, path: Path) -> None:
        """Raises `ProgramGone`."""
        self._path = path
        self._data = bytearray()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_TIMEOUT)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise self._gone(error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; a thread that waits for an answer stops waiting."""
        with contextlib.suppress(OSError):  # the peer has closed it
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def view(self, name: str, **query: Any) -> View:
        """A view of the program. Raises `ProgramGone`, `ProgramRefused`."""
        found: View = self._decoded(self._ask(ViewRequest(name=name, query=query)), VIEW_TYPES[name])
        return found

    def act(self, act: ActName, target: str) -> ActOutcome:
        """Act on the program. Raises `ProgramGone`, `ProgramRefused`."""
        outcome: ActOutcome = self._decoded(self._ask(ActRequest(act=act, target=target)), ActOutcome)
        return outcome

    def observe_link(self) -> str:
        """A fresh address of the program's page. Raises `ProgramGone`, `ProgramRefused`."""
        return str(self._decoded(self._ask(LinkRequest()), str))

    def follow(self, request: FollowRequest) -> Iterator[Notice]:
        """The events that the request names, until the program ends. Raises `ProgramGone`, `ProgramRefused`."""
        self._ask(request)
        self._socket.settimeout(None)
        while line := self._line():
            yield self._decoded(line, Notice)

    def _ask(self, request: InspectRequest) -> bytes | msgspec.Raw:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # an older program answers before it is asked
            self._socket.sendall(msgspec.json.encode(request) + b"\n")
        line = self._line()
        if not line:
            raise self._gone(None)
        reply: _Reply = self._decoded(line, _Reply)
        if reply.ok is not msgspec.UNSET:
            return reply.ok
        if not reply.error:
            raise ProgramRefused(FAILED, f"{self._path} {_OLDER}")
        raise ProgramRefused(_EXIT_CODES.get(reply.kind, FAILED), visible(reply.error, 1000))

    def _line(self) -> bytes:
        """The next line; empty at the end. A line that the end cuts off is given as it is, since older programs write no line end."""
        searched = 0
        while (end := self._data.find(b"\n", searched)) < 0:
            searched = len(self._data)
            try:
                part = self._socket.recv(1 << 16)
            except ConnectionResetError:  # an older program has closed with our request unread
                part = b""
            except OSError as error:
                raise self._gone(error) from None
            if not part:
                end = len(self._data)
                break
            self._data += part
            if len(self._data) > _LARGEST_LINE:
                raise ProgramRefused(
                    FAILED, f"{self._path} sent a line of more than {_LARGEST_LINE} bytes: is it an inspect socket?"
                )
        line = bytes(self._data[:end])
        del self._data[: end + 1]
        return line

    def _decoded(self, data: bytes | msgspec.Raw, shape: Any) -> Any:
        try:
            return msgspec.json.decode(data, type=shape)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise ProgramRefused(
                FAILED, f"{self._path} sent nothing that can be read: is it an inspect socket?"
            ) from None

    def _gone(self, error: OSError | None) -> ProgramGone:
        why = (
            "it has closed the connection"
            if error is None
            else "no answer in time"
            if isinstance(error, TimeoutError)
            else error.strerror or str(error)
        )
        return ProgramGone(UNREACHABLE, f"{self._path}: {why}: the program may have ended")
