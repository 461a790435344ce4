"""The main function of the daemon's process: it makes the process fit to fork, imports and patches Thespian, and runs the `Daemon`."""

from __future__ import annotations

import contextlib
import gc
import hmac
import logging
import os
import resource
import secrets
import signal
import socket
import threading
import traceback
from importlib import import_module
from typing import Final

from . import bootstrap, os_processes
from .bootstrap import InheritedState, change_environment, close_private_fds, name_of_forks, send_log_line
from .daemon import Daemon
from .daemon_protocol import DaemonFailed, DaemonSocket, StartDaemon
from .node_records import EngineFailed

_PERIOD: Final = "0:01"
"""Minutes and seconds: how often machines register with the convention. With Thespian's default a lost machine is noticed after 22 minutes."""
_MISSES: Final = "3"


def main(control: socket.socket, death_pipe: int) -> None:
    """Run the daemon. `control` is the socket to the application, `death_pipe` the reading end of the death pipe."""
    application = DaemonSocket(control)
    try:
        daemon = _set_up(application, death_pipe)
        try:
            daemon.start()
            daemon.run()
        finally:
            daemon.finish()
    except (EOFError, bootstrap.ApplicationGone):
        pass
    except EngineFailed as error:
        application.send(DaemonFailed(str(error)))
        os._exit(1)
    except BaseException:  # noqa: BLE001 - the application gets the error; there is no other receiver
        application.send(DaemonFailed(traceback.format_exc()))
        os._exit(1)
    os._exit(0)


def _set_up(application: DaemonSocket, death_pipe: int) -> Daemon:
    begin = application.next()
    if not isinstance(begin, StartDaemon):
        raise EngineFailed(f"the first message is not StartDaemon: {begin!r}")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)  # it ends with the application, or when told to
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    os_processes.set_process_name("gr-daemon")
    os_processes.adopt_orphans()
    notes, write = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    notes.setblocking(False)  # noqa: FBT003 - socket's own word
    write.setblocking(False)  # noqa: FBT003 - socket's own word
    InheritedState.notes = write
    InheritedState.key = begin.key
    change_environment("THESPIAN_BASE_IPADDR", begin.bind)
    _import_thespian(begin)
    for name in begin.preload:
        import_module(name)
    if threading.active_count() != 1:
        raise EngineFailed(
            f"one of {', '.join(begin.preload)} starts threads, and modules that are imported before processes are forked must not"
        )
    import_module(
        f"{__package__}.node_main"
    )  # every node needs it: imported here once, before the forks, instead of in each process
    from .thespian_system import ThespianSystem  # noqa: PLC0415 - it imports Thespian, which `_import_thespian` had to patch first

    os.register_at_fork(after_in_child=_after_fork)
    bootstrap.arm_forks(death_pipe)
    waking = bootstrap.resume_when_application_ends(death_pipe)
    if waking is not None:
        InheritedState.private.add(waking)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.close(null)
    daemon = Daemon(application, begin, death_pipe, notes, ThespianSystem)
    gc.collect()
    gc.freeze()  # frozen objects are not written to by later collections, so their pages stay shared with the forks
    return daemon


def _import_thespian(begin: StartDaemon) -> None:
    """Import Thespian and patch it.

    Thespian looks up this machine's name when it is imported, which can take seconds where DNS is slow or away. The name is not needed, as the address is given,
    so both functions of `socket` are replaced during the import.
    """
    if begin.convention:
        change_environment("CONVENTION_REREGISTRATION_PERIOD", _PERIOD)
        change_environment("CONVENTION_RESTART_PERIOD", _PERIOD)
        change_environment("CONVENTION_REGISTRATION_MISS_MAX", _MISSES)
    names = socket.gethostname, socket.getfqdn
    socket.gethostname = lambda: "localhost"
    socket.getfqdn = lambda name="": name or "localhost"
    try:
        from . import thespian_patches as hardening  # noqa: PLC0415 - see above
    finally:
        socket.gethostname, socket.getfqdn = names
    hardening.PatchCallbacks.on_note = send_log_line
    hardening.PatchCallbacks.on_exit = bootstrap.report_exit
    hardening.install_patches(_thespian_key(begin), begin.bind)
    logging.lastResort = None


def _thespian_key(begin: StartDaemon) -> bytes:
    """The key that seals Thespian's frames: random for a single machine; derived from the cluster's key for a convention."""
    if not begin.convention:
        return secrets.token_bytes(32)
    return hmac.digest(begin.key, b"greenroom: the systems of a convention", "sha256")


def _after_fork() -> None:
    if InheritedState.node:
        os_processes.set_process_name(name_of_forks(InheritedState.pid))
        return
    close_private_fds()
    os_processes.set_process_name("gr-thespian")
