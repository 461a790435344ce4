"""The audit log: one JSON line for each call that a server has answered, with its caller and its outcome, and never with arguments or results."""

from __future__ import annotations

import json
import logging
import os
import stat
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from greenroom.errors import ConfigError
from greenroom.event_types import CallEnded, CallStarted
from greenroom.supervision.event_bus import bus

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from greenroom.event_types import Event

log: Final = logging.getLogger("greenroom.audit")
_PRIVATE: Final = 0o600
_SAFELY: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Not in other programs, no link, and without waiting for the reader of a FIFO."""
_LONGEST: Final = 256
"""Characters of each text: a peer chooses names and ids."""
_LOOK_INTERVAL: Final = 1.0
"""Seconds between two looks at whether the path is still that of the open file."""
_TRACE_PARTS: Final = 4
"""Of a `traceparent`: version, trace, span and flags."""


class _Origin(NamedTuple):
    """What is told at the start of a call, and not at its end."""

    session: str
    request: str
    trace: tuple[str, str] | None


class AuditLog:
    """Writes a line for each call, from `install` to `uninstall`, or in a `with` block.

    The lines go to a file that only its owner can read, which is made or appended to; without a `path` they are records of the logger `greenroom.audit`, at INFO.
    Several processes may have the same file, and it may be renamed or deleted meanwhile, as by logrotate: further lines go to a new one, within a second.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self._path = path
        self._file: int | None = None
        self._identity: tuple[int, int] | None = None
        """The device and the inode of the open file."""
        self._looks_at = 0.0
        self._is_misplaced = False
        """Whether the lines go to a renamed file, since none could be opened in its place."""
        self._open: dict[int, _Origin] = {}
        self._lost = 0
        self._is_torn = False
        """Whether the last line is there in part: the disk was full in the middle of it."""
        # Reentrant: the collector of garbage may run code that emits events in the middle of a line.
        self._lock = threading.RLock()
        self._unsubscribe: Callable[[], None] | None = None

    def install(self) -> Self:
        """Begin. Raises `ConfigError` for a file that others can read, or that is no file, and `OSError` for one that cannot be written."""
        if self._unsubscribe is None:
            if self._path is not None:
                self._open_path(self._path)
            self._unsubscribe = bus.subscribe(self._on_event)
        return self

    def uninstall(self) -> None:
        """End. What was written stays."""
        unsubscribe, self._unsubscribe = self._unsubscribe, None
        if unsubscribe is None:
            return
        unsubscribe()
        self._open.clear()
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def __enter__(self) -> Self:
        return self.install()

    def __exit__(self, *_: object) -> None:
        self.uninstall()

    def _on_event(self, event: Event) -> None:
        if isinstance(event, CallStarted):
            if event.side == "server":
                self._open[event.call] = _Origin(event.session, event.request, _trace_of(event.call, event))
        elif isinstance(event, CallEnded) and event.side == "server":
            origin = self._open.pop(event.call, None)
            if origin is not None:
                # A tracer that was installed after this has its span now, and had none when the call began.
                self._write(_line_of(event, origin, origin.trace or _trace_of(event.call, None)))

    def _write(self, data: dict[str, Any]) -> None:
        if self._path is None:
            log.info("%s", json.dumps(data), extra={"greenroom": data})
            return
        if self._lost:
            data["lost_before"] = self._lost
        line = f"{json.dumps(data)}\n".encode()
        with self._lock:
            self._follow(self._path)
            left = b"\n" + line if self._is_torn else line
            try:
                while left and self._file is not None:
                    written = os.write(self._file, left)
                    left = left[written:]
                    self._is_torn = bool(left)
            except OSError as error:
                if not self._lost:
                    log.error("the audit log %s cannot be written: %s", self._path, error)  # noqa: TRY400 - the error says it all
                self._lost += 1
            else:
                self._lost = 0

    def _follow(self, path: str | Path) -> None:
        """Open the file anew where the path is not that of the open one any more: a rotation of logs has renamed it."""
        now = time.monotonic()
        if self._file is None or now < self._looks_at:
            return
        self._looks_at = now + _LOOK_INTERVAL
        try:
            if _identity_at(path) != self._identity:
                old = self._file
                self._open_path(path)
                os.close(old)
        except (OSError, ConfigError) as error:
            if not self._is_misplaced:
                self._is_misplaced = True
                log.error("%s cannot be opened again, and the old file takes all lines: %s", path, error)  # noqa: TRY400 - as above

    def _open_path(self, path: str | Path) -> None:
        file = _open_private(path)
        found = os.fstat(file)
        self._file, self._identity = file, (found.st_dev, found.st_ino)
        self._looks_at = time.monotonic() + _LOOK_INTERVAL
        self._is_torn = self._is_misplaced = False


def _identity_at(path: str | Path) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _line_of(ended: CallEnded, origin: _Origin, trace: tuple[str, str] | None) -> dict[str, Any]:
    data: dict[str, Any] = {
        "event": "audit",
        "at": datetime.fromtimestamp(ended.at, UTC).isoformat(timespec="milliseconds"),
        "program": ended.program,
        "principal": ended.principal or None,
        "principal_kind": ended.principal_kind,
        "address": ended.address or None,
        "method": ended.method,
        "name": ended.name or None,
        "outcome": ended.outcome,
        "code": ended.code,
        "seconds": round(ended.seconds, 6),
        "way": ended.way,
        "session": origin.session or None,
        "request": origin.request or None,
        "task": ended.task or None,
        "trace_id": None if trace is None else trace[0],
        "span_id": None if trace is None else trace[1],
    }
    return {key: value[:_LONGEST] if isinstance(value, str) else value for key, value in data.items()}


def _trace_of(call: int, started: CallStarted | None) -> tuple[str, str] | None:
    """The ids of the call's span; without a tracer, those that came with the request."""
    if bus.tracer is not None:
        return bus.tracer.ids_of(call)
    for carrier in () if started is None else (started.trace, started.http_trace):
        parts = (carrier or {}).get("traceparent", "").split("-")
        if len(parts) >= _TRACE_PARTS:
            return parts[1], parts[2]
    return None


def _open_private(path: str | Path) -> int:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _SAFELY, _PRIVATE)
    except IsADirectoryError:
        raise ConfigError(f"AuditLog: {path} is a folder: name a file") from None
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or stat.S_IMODE(found.st_mode) & 0o077:
        os.close(descriptor)
        raise ConfigError(f"AuditLog: {path} must be a file that its owner alone can read: chmod 600 {path}")
    return descriptor
