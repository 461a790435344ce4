"""The page of shared limits names tests that exist, and the figures of the code."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING

import pytest

from greenroom import Pool, ResponseCache, Server, Settings
from greenroom.actors import exchange_table
from greenroom.actors.elicitation.bridge import LIMIT
from greenroom.actors.federation.upstream_spec import UpstreamSpec
from greenroom.actors.output.output_limits import MOST_FILES
from greenroom.actors.subscriptions import MAILBOX_LIMIT
from greenroom.actors.thespian_guests.guest_listener import _STRANGERS, MOST_GUESTS
from greenroom.auth import auth_gate, jwks_and_introspection
from greenroom.auth import shared_secrets as basic
from greenroom.auth.client import interactive_flows as landing
from greenroom.supervision.cluster.peers import _HANDSHAKES
from greenroom.transports.http_config import HttpConfig

if TYPE_CHECKING:
    from pathlib import Path

_MIB = 1024 * 1024
MOUNTED = inspect.signature(Server.mount).parameters["most"].default
UPSTREAM = UpstreamSpec.__dataclass_fields__
FIGURES = {
    "Connections of a listener": (HttpConfig().max_connections,),
    "Sessions,": (Settings().max_sessions, Settings().max_sessions_per_principal),
    "Requests without a session": (Settings().max_exchanges, Settings().max_exchanges_per_principal),
    "Calls without a session": (
        Settings().max_parked,
        Settings().max_parked_per_principal,
        int(Settings().parked_timeout),
        exchange_table.MOST_PARKED_BYTES // _MIB,
        exchange_table.MOST_PARKED_BYTES_EACH // _MIB,
    ),
    "Threads of one tool": (Settings().tool_threads, Settings().principal_threads),
    "Calls that wait for a pool": (Pool().queue,),
    "Tasks |": (Settings().max_tasks_in_all, Settings().max_tasks, Settings().max_tasks_kept),
    "Announcements of changes": (MAILBOX_LIMIT,),
    "Credential checks": (auth_gate.CHECKS_AT_ONCE, auth_gate.MOST_WAITING),
    "Password hashes": (basic.HASHES_AT_ONCE, basic.MOST_QUEUED),
    "Introspection requests": (jwks_and_introspection.REQUESTS_AT_ONCE,),
    "A gateway's connections": (MOUNTED,),
    "Lists and resources": (ResponseCache().max_entries, ResponseCache().max_bytes // _MIB),
    "Requests at one upstream server": (UPSTREAM["concurrent"].default, UPSTREAM["queue"].default),
    "Questions for the user": (LIMIT,),
    "Stored answers": (MOST_FILES,),
    "Guests": (MOST_GUESTS,),
    "Handshakes of nodes": (_HANDSHAKES, _STRANGERS),
    "Connections to the page": (landing.MOST_CONNECTIONS,),
}


@pytest.fixture(name="rows")
def _rows(root: Path) -> list[str]:
    text = (root / "docs/reference/shared-bounds.md").read_text(encoding="utf-8")
    return [
        line for line in text.splitlines() if line.startswith("| ") and "---" not in line and "Shown by" not in line
    ]


def test_each_row_names_tests_that_exist(root: Path, rows: list[str]) -> None:
    for row in rows:
        shown = re.findall(r"`(tests/[^`]+)`", row.split("|")[-2])
        assert shown, row
        assert all((root / each).exists() for each in shown), row


def test_the_figures_are_those_of_the_code(rows: list[str]) -> None:
    for name, figures in FIGURES.items():
        (row,) = [each for each in rows if each.startswith(f"| {name}")]
        for figure in figures:
            assert re.search(rf"(?<![\d,]){figure:,}(?!,?\d)", row), (row, figure)
