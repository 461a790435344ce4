"""``greenroom tree``: shows the processes of a running server or host, and what each of them does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from greenroom.inspect_socket import read_snapshot

from .click_app import clear_screen, echo, styled
from .command_output import print_json
from .exit_codes import UNREACHABLE, CommandFailed, visible
from .inspect_connection import chosen_socket

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_STYLES = {"ready": "good", "starting": "odd", "stopping": "odd", "stopped": "odd"}
_MOST_LISTED = 12
"""Above this number, processes of one kind under one parent are counted instead of listed."""


def tree(*, which: str | None, watch: bool, every: bool, json: bool) -> None:
    """Show the tree once, or every second with `watch`."""
    path = chosen_socket(which)
    while True:
        snapshot = _read_tree(path)
        if json:
            print_json(snapshot)
        else:
            if watch:
                clear_screen()
            for line in tree_lines(snapshot, every=every):
                echo(line)
        if not watch:
            return
        time.sleep(1.0)


def _read_tree(path: Path) -> Mapping[str, Any]:
    try:
        return read_snapshot(path)
    except OSError as error:
        raise CommandFailed(UNREACHABLE, f"{path}: {error.strerror or error}: the program may have ended") from None


def tree_lines(snapshot: Mapping[str, Any], *, every: bool = False) -> Iterator[str]:
    """The tree as lines. Many processes of one kind are one line, unless `every` is set."""
    late = f", {snapshot['lag'] * 1000:.0f} ms late" if snapshot["lag"] > 0.05 else ""  # noqa: PLR2004 - what a user would notice
    leaked = f", {snapshot['leaked']} leaked" if snapshot["leaked"] else ""
    count = len(snapshot["processes"])
    yield f"{styled(snapshot['name'], 'name')} (process {snapshot['pid']}): {count} processes{late}{leaked}"
    for url in snapshot["urls"]:
        yield f"  {url}"
    below: dict[str | None, list[Mapping[str, Any]]] = {}
    known = {each["pid"] for each in snapshot["processes"]}
    servers: Sequence[Mapping[str, Any]] = snapshot.get("servers", ())
    of = {each["pid"]: each for each in servers}
    for each in snapshot["processes"]:
        below.setdefault(each["parent"], []).append({**each, "server": of.get(each["pid"])})
    for each in servers:
        if each["pid"] not in known:  # parked, or between two attempts: no process runs for it
            below.setdefault(each["parent"], []).append(_server_without_process(each))
    roots = [each for parent, some in below.items() if parent not in known for each in some]
    yield from _branches(roots, below, "", every=every)


def _branches(
    some: Sequence[Mapping[str, Any]], below: Mapping[str | None, list[Mapping[str, Any]]], before: str, *, every: bool
) -> Iterator[str]:
    lines: list[tuple[str, Mapping[str, Any] | None]] = []
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for each in some:
        kinds.setdefault(each["behaviour"], []).append(each)
    for kind, alike in kinds.items():
        leaves = [each for each in alike if each["pid"] not in below and not each["server"]]
        if len(leaves) > _MOST_LISTED and not every:
            busy = sum(each["activity"] != "idle" for each in leaves)
            lines.append((f"{len(leaves)} of {kind}{styled(f', {busy} at work', 'odd') if busy else ''}", None))
            lines += [(_process_line(each), each) for each in alike if each["pid"] in below or each["server"]]
        else:
            lines += [(_process_line(each), each) for each in alike]
    for place, (text, shown) in enumerate(lines):
        last = place == len(lines) - 1
        yield f"{before}{'└─ ' if last else '├─ '}{text}"
        if shown is not None:
            yield from _branches(below.get(shown["pid"], ()), below, before + ("   " if last else "│  "), every=every)


def _server_without_process(server: Mapping[str, Any]) -> Mapping[str, Any]:
    """A tree node for an upstream server that has no process at the moment."""
    nothing = {"names": (), "activity": "idle", "waiting": 0, "bound": None, "calls": None}
    return {**nothing, "pid": "", "behaviour": "UpstreamTree", "label": f"upstream {server['id']}", "server": server}


def _process_line(each: Mapping[str, Any]) -> str:
    notes: list[str] = [] if each["server"] is None else list(_server_notes(each["server"]))
    if each["activity"] != "idle":
        notes.append(styled(each["activity"], "bad" if each["activity"] == "dying" else "odd"))
    if each["waiting"]:
        bound = f" of {each['bound']}" if each["bound"] else ""
        notes.append(f"{each['waiting']}{bound} waiting")
    if each["calls"]:
        notes.append(f"waits for {each['calls']}")
    name = visible(each["names"][0] if each["names"] else each["label"])
    pid = f" {styled(each['pid'], 'dim')}" if each["pid"] else ""
    return f"{name}{pid}{'  ' + ', '.join(notes) if notes else ''}"


def _server_notes(server: Mapping[str, Any]) -> Iterator[str]:
    """Notes on a host's server: its state, the reason, the next attempt, and its calls."""
    state, reason, url = (visible(server[part]) for part in ("state", "reason", "sign_in_url"))
    shown = styled(state.replace("_", " "), _STYLES.get(state, "bad"))
    yield f"{shown}: {reason}" if reason else shown
    if state == "ready" and (revision := server.get("revision")):  # programs of an older greenroom do not say it
        yield f"speaks {visible(revision)}"
    if url and url not in reason:
        yield f"sign in at {url}"
    if (due := server["next_attempt"]) is not None:
        yield f"next attempt in {due:.1f} s" if due else "attempt under way"
    if count := server["in_progress"]:
        yield f"{count} call{'s' if count > 1 else ''} in progress"
