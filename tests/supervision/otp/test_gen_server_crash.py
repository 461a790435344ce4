"""Crashes: their reasons, the processes that are told, and the reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import (
    BadReturn,
    Continue,
    Crash,
    CrashReport,
    Down,
    Exit,
    GenServer,
    Node,
    ProcessExited,
    Report,
    Shutdown,
    Stop,
    Unexpected,
    inbox,
    is_alive,
    self_pid,
    send,
    spawn,
    start,
    start_link,
    start_monitor,
    stop,
    wait_down,
)

from .servers import Crashed, Stopped, Subject, crash_reports, raised_in

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from greenroom.supervision import ExitReason


async def dies_of(asked: Any) -> ExitReason:
    """The reason that the caller gets."""
    with pytest.raises(ProcessExited) as exited:
        await asked
    return exited.value.reason


@pytest.mark.otp("gen_server_SUITE", "crash")
@pytest.mark.parametrize("detail", [None, "a detail"])
@pytest.mark.parametrize("how", ["quits", "stops", "returns"])
async def test_a_server_that_shuts_down_in_a_call_tells_caller_and_link_and_reports_nothing(
    how: str, detail: str | None, node: Node
) -> None:
    reports: list[Report] = []
    node.reports.subscribe(reports.append)
    async with inbox() as me:
        ref = await start_link(Subject)
        asked: dict[str, Callable[[], Awaitable[Any]]] = {
            "quits": lambda: ref.call(Subject.exit_shutdown, detail),
            "stops": lambda: ref.call(Subject.stop_shutdown, detail),
            "returns": lambda: ref.ask(Stop(Shutdown(detail))),
        }
        assert await dies_of(asked[how]()) == Shutdown(detail)
        assert await me.receive() == Exit(ref.pid, Shutdown(detail))
        assert reports == []


@pytest.mark.otp("gen_server_SUITE", "crash")
@pytest.mark.otp("gen_server_SUITE", "error_format_status")
@pytest.mark.parametrize("kind", ["alone", "linked"])
async def test_a_crash_has_one_reason_for_all_watchers_and_one_report(kind: str, node: Node) -> None:
    reports: list[Report] = []
    node.reports.subscribe(reports.append)
    error = Crashed("in a call")
    async with inbox() as me:
        ref = await (start_link if kind == "linked" else start)(Subject, None, "state 4")
        assert await dies_of(ref.call(Subject.crash, error)) == Crash(error)
        if kind == "linked":
            assert await me.receive() == Exit(ref.pid, Crash(error))
        (report,) = reports
        assert isinstance(report, CrashReport)
        assert (report.pid, report.label, report.reason, report.during) == (ref.pid, "Subject", Crash(error), "handler")
        assert report.last_message == "call crash(Crashed('in a call'))"
        assert "state='state 4'" in str(report.state)
        assert report.client == f"inbox {me.pid}"
        assert "ref.call(Subject.crash, error)" in report.client_stack
        assert raised_in(error) == "crash"
        assert me.pending() == ()


async def test_a_report_names_a_client_that_waits_for_a_queued_call_in_a_process(node: Node) -> None:
    reports = crash_reports(node)
    async with inbox() as me:
        ref = await start(Subject)

        async def client() -> None:
            ref.cast(Subject.ping)  # so that the server is not idle, and the call is queued
            send(me.pid, self_pid())
            await dies_of(ref.call(Subject.crash, Crashed()))

        pid = spawn(client)
        assert await me.receive() == pid
        await wait_down(ref)
        assert str(pid) in str(reports[0].client)
        assert "await dies_of(ref.call" in reports[0].client_stack


async def test_a_state_that_cannot_be_shown_loses_no_report_and_changes_no_reason(node: Node) -> None:
    class Unspeakable:
        def __repr__(self) -> str:
            raise OSError

    reports = crash_reports(node)
    stopped = Stopped()
    async with inbox() as me:
        ref = await start_link(Subject, None, Unspeakable())
        assert await ref.call(Subject.stop, stopped) == "ok"
        assert await me.receive() == Exit(ref.pid, Crash(stopped))
        (report,) = reports
        assert "state=<Unspeakable" in str(report.state)


class Bare(GenServer):
    """Has no callback but init."""

    def __init__(self, first: Any = None) -> None:
        self.first = first

    def init(self) -> Any:
        return self.first


def unexpected(node: Node) -> list[Unexpected]:
    found: list[Unexpected] = []
    node.reports.subscribe(lambda report: found.append(report) if isinstance(report, Unexpected) else None)
    return found


@pytest.mark.otp("gen_server_SUITE", "undef_handle_call")
async def test_a_request_to_a_server_without_handle_call_is_the_callers_error(node: Node) -> None:
    ref = await start(Bare)
    with pytest.raises(TypeError, match="Bare answers no ask"):
        await ref.ask("anything")
    assert is_alive(ref)


@pytest.mark.otp("gen_server_SUITE", "undef_handle_cast")
@pytest.mark.otp("gen_server_SUITE", "undef_handle_info")
async def test_a_message_to_a_server_without_a_callback_for_it_is_reported_and_dropped(node: Node) -> None:
    reports = unexpected(node)
    async with inbox() as me:
        ref, _ = await start_monitor(Bare)
        ref.tell("hello")
        ref.send("hej")
        await stop(ref)
        assert [(report.label, report.kind, report.message) for report in reports] == [
            ("Bare", "cast", "'hello'"),
            ("Bare", "message", "'hej'"),
        ]
        assert len(me) == 1


@pytest.mark.otp("gen_server_SUITE", "undef_handle_continue")
async def test_a_server_without_handle_continue_starts_and_then_crashes(node: Node) -> None:
    async with inbox() as me:
        ref, watch = await start_monitor(Bare, Continue("go on"))
        match await me.receive(timeout=5):
            case Down(pid=pid, reason=Crash(error=BadReturn() as error)) as down:
                assert (down.ref, pid) == (watch, ref.pid)
                assert "Bare asked to continue with 'go on' but has no handle_continue" in str(error)
            case other:
                pytest.fail(f"{other!r}")


@pytest.mark.otp("gen_server_SUITE", "undef_in_handle_info")
async def test_an_error_inside_a_callback_is_a_crash_and_no_missing_callback(node: Node) -> None:
    class Broken(Bare):
        def handle_info(self, message: Any) -> Any:
            return self.there_is_no_such_method(message)  # type: ignore[attr-defined]

    reports = unexpected(node)
    async with inbox() as me:
        ref, watch = await start_monitor(Broken)
        ref.send("hej")
        down = await me.receive(timeout=5)
        assert (down.ref, type(down.reason.error)) == (watch, AttributeError)
        assert reports == []
