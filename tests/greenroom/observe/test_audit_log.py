"""The audit log: one line for each call of a server, to its owner alone, without arguments and results."""

from __future__ import annotations

import json
import logging
import os
import resource
import stat
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples
from tests.heard_events import NumberTracer

from greenroom import Client, ConfigError, Server, ToolError
from greenroom.event_types import CallEnded, CallStarted
from greenroom.observe import AuditLog
from greenroom.supervision.event_bus import bus
from greenroom.transports.interfaces import Peer
from greenroom.wire_probe import WireProbe

SENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def make_server() -> Server:
    server = Server("audited")

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    def fail(text: str) -> str:
        raise ToolError(text)

    return server


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(each) for each in path.read_text(encoding="ascii").splitlines()]


async def test_each_call_of_a_server_is_a_line_without_arguments(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    async with make_server().started() as company:
        with AuditLog(path):
            async with WireProbe(company, peer=Peer("test", "192.0.2.1:5", ("", "ada", ""))) as probe:
                await probe.call("echo", text="swordfish")
                await probe.call("fail", text="swordfish")
                (info,) = await company.peers.all()
        async with Client(make_server()) as client:
            await client.call_tool("echo", {"text": "unheard"})
    lines = lines_of(path)
    assert [(each["method"], each["name"], each["outcome"]) for each in lines] == [
        ("initialize", None, "result"),
        ("tools/call", "echo", "result"),
        ("tools/call", "fail", "tool_error"),
    ]
    assert {(each["principal"], each["principal_kind"], each["address"]) for each in lines} == {
        ("ada", "named", "192.0.2.1:5")
    }
    assert {each["program"] for each in lines} == {"audited"}
    assert all(each["seconds"] >= 0 and each["session"].endswith("…") for each in lines)
    text = path.read_text(encoding="ascii")
    assert "swordfish" not in text
    assert info.id not in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_lines_have_the_ids_of_the_trace(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="greenroom.audit")
    async with WireProbe(make_server()) as probe:
        with AuditLog():
            await probe.request("ping", {"_meta": {"traceparent": SENT}})
            bus.tracer = NumberTracer()
            try:
                await probe.request("ping")
            finally:
                bus.tracer = None
    first, second = (json.loads(each.message) for each in caplog.records if each.name == "greenroom.audit")
    assert (first["trace_id"], first["span_id"]) == ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
    assert int(second["trace_id"], 16) == int(second["span_id"], 16) > 0


def test_a_file_that_others_can_read_or_that_is_a_link_or_a_folder_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    path.touch(0o644)
    with pytest.raises(ConfigError, match=f"chmod 600 {path}"):
        AuditLog(path).install()
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(OSError, match="symbolic links"):
        AuditLog(tmp_path / "link").install()
    with pytest.raises(ConfigError, match="is a folder"):
        AuditLog(tmp_path).install()
    os.mkfifo(tmp_path / "fifo", 0o600)
    with pytest.raises(OSError, match="fifo"):  # at once: it has no reader
        AuditLog(tmp_path / "fifo").install()
    assert bus.listener is None


def emit(call: int, **changes: Any) -> None:
    listener = bus.listener
    assert listener is not None
    said: dict[str, Any] = {"call": call, "side": "server", "program": "p", "way": "session", "method": "m", **changes}
    listener(CallStarted(**said))
    listener(CallEnded(**said, outcome="result", seconds=1.0))


def test_lines_that_a_full_disk_does_not_take_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "audit"
    with AuditLog(path) as audit:
        kept, audit._file = audit._file, os.open("/dev/full", os.O_WRONLY)
        emit(1)
        emit(2)
        os.close(audit._file)
        audit._file = kept
        emit(3)
        emit(4)
    assert [each.get("lost_before") for each in lines_of(path)] == [2, None]
    assert [each.levelname for each in caplog.records if each.name == "greenroom.audit"] == ["ERROR"]


def test_a_line_that_a_full_disk_takes_in_part_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    with AuditLog(path):
        emit(1)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, limits[1]))
        try:
            emit(2)
            emit(3)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        emit(4)
    first, part, last = path.read_text().splitlines()
    assert part == first[:10]
    assert (json.loads(last)["event"], json.loads(last)["lost_before"]) == ("audit", 2)


def test_lines_go_to_a_new_file_after_a_rotation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, old, older = tmp_path / "audit", tmp_path / "audit.1", tmp_path / "audit.2"
    looks: list[float] = [0.0]
    monkeypatch.setattr("greenroom.observe.audit_log.time", SimpleNamespace(monotonic=lambda: looks[0]))
    with AuditLog(path):
        emit(1)
        path.rename(older)
        emit(2)  # no look at the path in the same second
        looks[0] += 1
        emit(3)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        path.rename(old)
        path.touch(0o644)  # as with `create 0644`: a line must not get into a file that others can read
        for call in (4, 5):
            looks[0] += 1
            emit(call, name=f"{call}")
        assert path.read_bytes() == b""
        path.chmod(0o600)
        looks[0] += 1
        emit(6)
        path.unlink()
        looks[0] += 1
        emit(7)
    assert [len(lines_of(each)) for each in (older, old, path)] == [2, 3, 1]
    (told,) = [each.message for each in caplog.records if each.name == "greenroom.audit"]
    assert f"chmod 600 {path}" in told


@settings(max_examples=examples(100))
@given(text=st.text(max_size=600))
def test_whatever_a_peer_calls_itself_a_line_stays_one_line(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "audit"
        with AuditLog(path):
            emit(1, name=text, principal=text)
        written = path.read_bytes()
    (line,) = written.splitlines()
    assert json.loads(line)["name"] == (text[:256] or None)
    assert line.isascii()
    assert not any(each < ord(" ") for each in line)
