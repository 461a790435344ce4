"""Processes where the system has no `/proc`: `ps` lists them, and what it does not tell is not guessed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from greenroom.supervision.cluster import os_processes

ME = os.getpid()
LISTED = f"""    1     0 Ss   launchd
  {ME}     1 R+   python
 4321  {ME} S    gr-daemon
 4322  4321 Z    gr-node-1
"""


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file under /proc; and what `ps` says."""

    def listed(command: list[str], **_: Any) -> Any:
        assert command[0] == "/bin/ps"
        return SimpleNamespace(stdout=LISTED)

    def nowhere(path: str) -> Path:
        return Path("/nowhere", path.lstrip("/"))

    monkeypatch.setattr(os_processes, "Path", nowhere)
    monkeypatch.setattr(subprocess, "run", listed)


@pytest.mark.usefixtures("elsewhere")
def test_ps_is_asked_who_there_is() -> None:
    seen = os_processes.all_processes()
    assert seen[4321] == os_processes.OsProcess(4321, ME, "S", "gr-daemon")
    assert os_processes.children() == [4321]
    assert os_processes.descendants(ME) == [4321]  # who is only to be reaped does not live
    assert os_processes.descendants(ME, named="gr-") == [4321]


@pytest.mark.usefixtures("elsewhere")
def test_process_names_come_from_ps() -> None:
    assert os_processes.name_of(4321) == "gr-daemon"
    assert os_processes.name_of(99) == ""


@pytest.mark.usefixtures("elsewhere")
def test_unknown_values_are_not_guessed() -> None:
    assert os_processes.start_tick(ME) == 0
    assert os_processes.is_alive(ME)
    assert not os_processes.was_started_with(ME, "GREENROOM_NODE", "a")
    assert os_processes.status_of_dead(ME) is None
    assert not os_processes.has_ended(ME, None)


def test_a_process_of_another_user_counts_as_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(pid: int, number: int) -> None:
        assert (pid, number) == (1, 0)
        raise PermissionError

    monkeypatch.setattr(os, "kill", refused)
    assert os_processes.is_alive(1)


def test_a_signal_to_a_process_that_has_gone_is_a_noop() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    os_processes.send_signal(signal.SIGTERM, child.pid)
    assert not os_processes.is_alive(child.pid)


def test_a_process_without_a_pidfd_is_found_by_its_pid() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert os_processes.has_ended(child.pid, None)


def test_where_there_is_no_way_to_be_called_anything_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    before = Path("/proc/self/comm").read_text()
    os_processes.set_process_name("a name")
    assert Path("/proc/self/comm").read_text() == before


def test_a_name_is_cut_between_letters() -> None:
    assert os_processes.truncated_name("gr-a-node") == "gr-a-node"
    assert os_processes.truncated_name("gr-" + "\N{SNOWMAN}" * 9) == "gr-" + "\N{SNOWMAN}" * 4
