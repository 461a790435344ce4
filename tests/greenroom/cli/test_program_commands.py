"""status, logs, calls, wire, retry, park and restart, at programs that run in this process."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any, Literal

import pytest
from tests.greenroom.cli.test_inspect_requests import ended, started

from greenroom import Client, Command, Host, Server
from greenroom.cli import program_commands
from greenroom.cli.command_table import COMMANDS
from greenroom.cli.exit_codes import UsageError
from greenroom.cli.inspect_connection import InspectConnection, ProgramGone, ProgramRefused
from greenroom.cli.program_commands import call_text, duration, event_text, frame_text, frames_after
from greenroom.event_types import FramePassed
from greenroom.inspect_protocol import EVENT_GROUPS
from greenroom.inspect_socket import inspectable
from greenroom.observe import view_rows as rows
from greenroom.observe.admin_settings import Admin
from greenroom.supervision.event_bus import bus

from .test_inspect_socket import saying

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Typed

    Type = Callable[..., Typed]

pytestmark = pytest.mark.greenroom(clock="real")


async def test_status_has_the_program_and_a_line_for_each_server(typed: Type) -> None:
    host = Host({"up": Server("up"), "broken": Command("/no/such/program")})
    async with host, inspectable("my-host"):
        await host.tools()
        seen = await asyncio.to_thread(typed, "status")
        told = json.loads((await asyncio.to_thread(typed, "status", "my-host", "--json")).out)
    assert (seen.code, seen.err) == (0, "")
    first, head, *lines = seen.out.splitlines()
    assert first.startswith("my-host (process ")
    assert head.split() == ["UPSTREAM", "STATE", "SINCE", "WHY", "NEXT", "PID", "CALLS", "FAIL", "P95", "RST"]
    found = {line.split()[0]: line for line in lines}
    assert found["up"].split()[1] == "ready"
    assert "/no/such/program" in found["broken"].replace("…", "")[:200] or "there is no" in found["broken"]
    assert [each["upstream"] for each in told["upstreams"]] == ["up", "broken"]
    assert told["program"]["program"] == "my-host"


async def test_status_prints_a_fresh_link_to_the_page(typed: Type) -> None:
    server = Server("weather")
    async with inspectable("weather"):
        without = await asyncio.to_thread(typed, "status", "--link")
        async with server.started(admin=Admin(port=0)):
            links = {(await asyncio.to_thread(typed, "status", "--link")).out.strip() for _ in range(2)}
    assert (without.code, "start it with --admin" in without.err) == (1, True)
    assert len(links) == 2
    assert all(each.startswith("http://127.0.0.1:") and "/observe/?" in each for each in links)


async def test_messages_are_followed_on_all_pages_each_once_and_in_order() -> None:
    def passed(direction: Literal["in", "out"], body: bytes) -> None:
        assert bus.detail_listener is not None
        event = FramePassed(side="server", program="shop", direction=direction, transport="http", body=body)
        bus.detail_listener(event)

    async with inspectable("shop") as path:
        with await asyncio.to_thread(InspectConnection, path) as program:
            _, before = await asyncio.to_thread(frames_after, program, "", 0)  # from now on they are kept
            for number in range(250):
                passed("in", b'{"jsonrpc":"2.0","id":%d,"method":"ping"}' % number)
            passed("out", b'{"jsonrpc":"2.0","id":0,"result":{}}')
            _, found = await asyncio.to_thread(frames_after, program, "shop", 0)
            _, last = await asyncio.to_thread(frames_after, program, "shop", found[-2].number)
    assert before == []
    assert [(each.request, each.kind) for each in found] == [
        *((str(number), "request") for number in range(250)),
        ("0", "result"),
    ]
    assert [each.kind for each in last] == ["result"]


def test_the_help_names_the_groups_of_events() -> None:
    (option,) = [
        each for command in COMMANDS if command.name == "logs" for each in command.params if each.name == "kind"
    ]
    assert f": {', '.join(EVENT_GROUPS)}, or an event's own name" in str(getattr(option, "about", ""))


async def test_calls_are_shown_with_outcome_and_time_and_filtered(typed: Type) -> None:
    server = Server("weather")

    @server.tool
    def forecast(city: str) -> str:
        return city

    @server.tool
    def broken() -> None:
        raise ValueError("no")

    async with inspectable("weather"), Client(server) as client:
        await client.call("forecast", city="Oslo")
        with pytest.raises(Exception, match="broken"):
            await client.call("broken")
        everything = await asyncio.to_thread(typed, "calls", "--no-follow")
        failed = await asyncio.to_thread(typed, "calls", "weather", "--failed", "--no-follow", "--json")
        slow = await asyncio.to_thread(typed, "calls", "--slower", "2min", "--no-follow")
        one = await asyncio.to_thread(typed, "calls", "--tool", "forecast", "--no-follow", "--last", "1")
    assert "result" in everything.out
    assert "forecast" in everything.out
    names = {json.loads(line)["data"]["name"] for line in failed.out.splitlines()}
    assert names == {"broken"}
    assert (slow.code, slow.out) == (0, "")
    (line,) = one.out.splitlines()
    assert line.split()[1] == "result"


async def test_logs_follow_until_the_program_ends(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    del folder
    async with inspectable("weather") as path:
        following = asyncio.ensure_future(
            asyncio.to_thread(
                program_commands.logs,
                which=str(path),
                kind=("calls",),
                level=None,
                tool=(),
                outcome=("deadline",),
                stderr=None,
                last=None,
                follow=None,
                json=False,
            )
        )
        text = ""
        while "deadline" not in text:
            assert bus.listener is not None
            bus.listener(started())
            bus.listener(ended())
            bus.listener(ended(outcome="deadline", name="\x1b[2J"))
            await asyncio.sleep(0)
            text += capfd.readouterr().out
    await following
    assert "warning CallEnded" in text
    assert "result" not in text
    assert "\x1b" not in text


async def test_what_a_server_writes_to_its_standard_error_is_shown(folder: Path) -> None:
    program = folder / "noisy.py"
    program.write_text(
        "import sys\nfrom greenroom import Server\nserver = Server('noisy')\n"
        "@server.tool\ndef speak(text: str) -> None:\n    print(text, file=sys.stderr, flush=True)\nserver.run()\n"
    )
    host = Host({"noisy": Command(sys.executable, str(program)), "other": Command(sys.executable, str(program))})
    printed: list[str] = []
    async with host, inspectable("h") as path:
        await host.tools()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(program_commands, "echo", printed.append)
            following = asyncio.ensure_future(asyncio.to_thread(_stderr, str(path)))
            while not printed:
                await host.call("other:speak", text="from another one")
                await host.call("noisy:speak", text="a \x1b[31mline")
    await following
    assert set(printed) == {"a \\x1b[31mline"} or set(printed) == {"a \\u001b[31mline"}


def _stderr(path: str) -> None:
    program_commands.logs(
        which=path, kind=(), level=None, tool=(), outcome=(), stderr="noisy", last=None, follow=None, json=False
    )


async def test_a_server_that_a_program_has_not_is_named(typed: Type) -> None:
    async with Host({"up": Server("up")}) as host, inspectable("h"):
        await host.tools()
        seen = await asyncio.to_thread(typed, "logs", "--stderr", "git")
        filtered = await asyncio.to_thread(typed, "logs", "--stderr", "up", "--level", "error")
    assert (seen.code, "no server 'git'; it has up" in seen.err) == (1, True)
    assert (filtered.code, "takes no filters" in filtered.err) == (2, True)


async def test_acts_are_refused_unless_the_program_allows_them(typed: Type) -> None:
    async with Host({"up": Server("up")}) as host:
        await host.tools()
        async with inspectable("h"):
            refused = await asyncio.to_thread(typed, "park", "up")
        assert (refused.code, 'inspect="acts"' in refused.err) == (6, True)
        assert host.status()["up"].state.value == "ready"
        async with inspectable("h", inspect="acts"):
            parked = await asyncio.to_thread(typed, "park", "up", "h")
            assert (parked.code, parked.err) == (0, "")
            assert host.status()["up"].state.value == "parked"
            assert (await asyncio.to_thread(typed, "retry", "up")).code == 0
            wrong = await asyncio.to_thread(typed, "restart", "nothing")
            assert (wrong.code, wrong.out) == (1, "")


@pytest.mark.parametrize(
    ("text", "seconds"), [("200ms", 0.2), ("1.5s", 1.5), ("2min", 120.0), ("3", 3.0), (" 4 s ", 4.0)]
)
def test_a_duration_has_a_unit(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "-1s", "1h", "1..5s"])
def test_another_text_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError, match="is no duration: write 200ms"):
        duration(text)


def test_lines_escape_what_others_wrote() -> None:
    bad = "\x1b[2J\u202e\n"
    notice = rows.Notice(
        number=1,
        at=0.0,
        kind=bad,
        level="error",
        text=bad,
        data={"name": bad, "outcome": "tool_error", "seconds": 0.5, "code": bad},
    )
    frame = rows.FrameRow(
        number=1, at=0.0, side="server", program=bad, direction="in", kind="request", size=3, method=bad, body=bad
    )
    for line in (event_text(notice), call_text(notice), frame_text(frame)):
        assert line.isprintable()
    assert "tool error" in call_text(notice)


# --- programs that are older, or no programs


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "it has closed the connection: the program may have ended"),
        (b'{"name": "x", "pid": 1, "processes": []}', "runs an older greenroom, which only `greenroom tree` can show"),
        (b"{\n", "sent nothing that can be read"),
        (b"[" * 100_000 + b"\n", "sent nothing that can be read"),
        (b'{"ok": {}}\n', "sent nothing that can be read"),
        (b'{"error": "\\u001b[2J no", "kind": "failed"}\n', "\\u001b[2J no"),
    ],
    ids=lambda data: repr(data)[:30],
)
def test_what_is_no_answer_is_reported(tmp_path: Path, data: bytes, says: str) -> None:
    path = tmp_path / "s"
    with (
        saying(path, data),
        InspectConnection(path) as program,
        pytest.raises((ProgramGone, ProgramRefused)) as refused,
    ):
        program.view("now")
    assert says in str(refused.value).replace("\\x1b", "\\u001b")


def test_an_answer_without_an_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("greenroom.cli.inspect_connection._LARGEST_LINE", 100_000)
    path = tmp_path / "s"
    with saying(path, b" " * 10_000_000), InspectConnection(path) as program:
        with pytest.raises(ProgramRefused, match="more than 100000 bytes"):
            program.view("now")
        program.close()


def test_a_program_that_is_not_there_is_said_to_have_ended(typed: Type, tmp_path: Path) -> None:
    seen = typed("status", str(tmp_path / "none.sock"))
    assert (seen.code, "the program may have ended" in seen.err) == (4, True)
    assert typed("logs", "nobody").code == 4


def test_top_says_what_to_install(typed: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] == "textual"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.delitem(sys.modules, "greenroom.cli.top_screen", raising=False)
    seen = typed("top")
    assert (seen.code, "pip install 'greenroom[textual]'" in seen.err) == (4, True)


def test_top_needs_a_terminal(typed: Type) -> None:
    seen = typed("top")
    assert (seen.code, "needs a terminal" in seen.err) == (2, True)


def test_only_top_loads_textual(typed: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] == "textual"]:
        monkeypatch.delitem(sys.modules, name)
    for words in (("status",), ("logs",), ("calls",), ("tree",)):
        assert typed(*words).code == 4
    found: list[Any] = [each for each in sys.modules if each.partition(".")[0] == "textual"]
    assert found == []
