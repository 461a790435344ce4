"""Whoever ends our children when we cannot: one small shell beside the program, which waits for the program's death.

A program that is killed with SIGKILL, or by the kernel, ends nothing any more. So a shell holds the reading end of a pipe whose only
writer is this program, and is told which process groups are ours. When the pipe ends, the groups that are left get a moment to see the
end of their input, then SIGTERM, then SIGKILL.

No child escapes between its start and the moment it is told of: what is told *before* the start is the pipe that will be its input. The
child holds the writing end, too, until it executes its program (Python closes everything on that); so by the time the shell sees the
end, the child is what it will be, and the shell finds it by its input in /proc.

It is a shell because that is small: a start of half a millisecond and a tenth of a megabyte of its own, where a Python takes
fifteen times as long and thirty times as much. It runs for as long as there are children.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import subprocess
import threading
from typing import Final

log = logging.getLogger("greenroom.command")

SHELL: Final = "/bin/sh"
_SCRIPT: Final = r"""
trap '' HUP INT QUIT TERM TSTP TTIN TTOU
groups=' ' pipes=' '
while read -r sign what pipe; do
  case $sign in
  '?') pipes="$pipes$what " ;;
  '!') case $pipes in *" $what "*) pipes="${pipes%% $what *} ${pipes#* $what }" ;; esac ;;
  +) groups="$groups$what "
     case $pipes in *" $pipe "*) pipes="${pipes%% $pipe *} ${pipes#* $pipe }" ;; esac ;;
  -) case $groups in *" $what "*) groups="${groups%% $what *} ${groups#* $what }" ;; esac ;;
  esac
done
if [ "$pipes" != ' ' ]; then
  for found in $(ls -l /proc/[0-9]*/fd/0 | sed -n 's|.*/proc/\([0-9]*\)/fd/0 -> pipe:\[\([0-9]*\)\]$|\1:\2|p'); do
    case $pipes in *" ${found#*:} "*) groups="$groups${found%%:*} " ;; esac
  done
fi
[ "$groups" = ' ' ] && exit
sleep 1
for group in $groups; do kill -s TERM -- -$group; kill -s CONT -- -$group; done
sleep 1
for group in $groups; do kill -s KILL -- -$group; done
"""


class Guardian:
    """This program's. Any thread may speak to it."""

    def __init__(self) -> None:
        """Nothing runs before there is something to guard."""
        self._renew()

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._groups: set[int] = set()
        self._expected: set[int] = set()
        self._lifeline: int | None = None
        self._pid = 0
        self._missing = False

    @property
    def pid(self) -> int:
        """Of the shell; 0 while there is none."""
        return 0 if self._lifeline is None else self._pid

    def expect(self, pipe: int) -> None:
        """A child is about to be started whose input is the pipe of that inode. Raises `OSError` when there is no room for a shell."""
        with self._lock:
            self._expected.add(pipe)
            self._tell(f"? {pipe}")

    def guard(self, group: int, pipe: int) -> None:
        """It was started: it leads that group."""
        with self._lock:
            self._expected.discard(pipe)
            self._groups.add(group)
            self._mention(f"+ {group} {pipe}")

    def failed(self, pipe: int) -> None:
        """It was not."""
        with self._lock:
            self._expected.discard(pipe)
            if self._lifeline is not None:
                self._mention(f"! {pipe}")
            self._rest()

    def dismiss(self, group: int) -> None:
        """Nobody of that group is left."""
        with self._lock:
            if group in self._groups:
                self._groups.discard(group)
                self._mention(f"- {group}")
                self._rest()

    def forget(self) -> None:
        """This is a forked child of the program: the children are not its own, and neither is the shell."""
        if self._lifeline is not None:
            with contextlib.suppress(OSError):
                os.close(self._lifeline)
        self._renew()

    def _mention(self, word: str) -> None:
        """Tell it, or the next one, which will be told everything: a child that runs is not given up for want of a shell."""
        with contextlib.suppress(OSError):
            self._tell(word)

    def _tell(self, word: str) -> None:
        if self._missing:
            return
        for _ in range(2):
            if self._lifeline is None:
                self._begin()
                return  # which has told it everything
            try:
                os.write(self._lifeline, f"{word}\n".encode())
            except OSError:  # somebody has killed it, or it was stopped until the pipe was full
                self._end()
            else:
                return

    def _begin(self) -> None:
        reading, writing = os.pipe()
        words = [*(f"? {pipe}\n" for pipe in self._expected), *(f"+ {group}\n" for group in self._groups)]
        try:
            shell = subprocess.Popen(  # noqa: S603 - our own words
                [SHELL, "-c", _SCRIPT],
                stdin=reading,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={"PATH": os.defpath},
                start_new_session=True,
            )
        except OSError as error:
            os.close(writing)
            if not isinstance(error, FileNotFoundError | PermissionError):
                raise  # it is there, and there is no room for it: nor for a child
            self._missing = True
            log.warning("nobody will end the server processes should this program be killed: no %s (%s)", SHELL, error)
            return
        else:
            _wake_at_end(reading, shell.pid)
        finally:
            os.close(reading)
        self._pid, shell.returncode = shell.pid, 0  # waited for here, and by nobody else
        self._lifeline = writing
        os.write(writing, "".join(words).encode())
        os.set_blocking(writing, False)

    def _rest(self) -> None:
        if not self._groups and not self._expected and self._lifeline is not None:
            self._end()

    def _end(self) -> None:
        assert self._lifeline is not None
        # Killed first, so that it neither acts on the end of the pipe nor is waited for.
        with contextlib.suppress(OSError):
            os.kill(self._pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.waitpid(self._pid, 0)
        os.close(self._lifeline)
        self._lifeline = None


def _wake_at_end(reading: int, pid: int) -> None:
    """A shell that is stopped would read no end: the kernel sends it SIGCONT with whatever comes through the pipe, its end too (Linux alone can)."""
    signalled = getattr(fcntl, "F_SETSIG", None)
    if signalled is not None:
        with contextlib.suppress(OSError):  # not in this sandbox
            fcntl.fcntl(reading, signalled, signal.SIGCONT)
            fcntl.fcntl(reading, fcntl.F_SETOWN, pid)
            fcntl.fcntl(reading, fcntl.F_SETFL, fcntl.fcntl(reading, fcntl.F_GETFL) | os.O_ASYNC)


guardian = Guardian()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=guardian.forget)
