"""Starting processes as OTP does: the starter goes on when `init` is done, or gets the reason why it failed."""

from __future__ import annotations

import abc
import asyncio
from typing import Any

import pytest

from greenroom.supervision import (
    IGNORE,
    KILLED,
    NORMAL,
    SHUTDOWN,
    AlreadyRegistered,
    Continue,
    Crash,
    Exit,
    GenServer,
    Ignore,
    Node,
    NoReply,
    Options,
    ProcessExited,
    Ref,
    Shutdown,
    StartFailed,
    StartIgnored,
    StartTimeout,
    Stop,
    exit,
    inbox,
    is_alive,
    kill,
    link,
    self_pid,
    spawn,
    start,
    start_link,
    start_monitor,
    wait_down,
    whereis,
)
from greenroom.supervision.behaviours.refs import process_of

from .sample_servers import Log, forever, shut_down, turns

ERROR = KeyError("x")


class Begins(GenServer):
    """Runs a given function in `init`."""

    def __init__(self, seconds: float | None = None, result: Any = None, *, tasks: bool = False) -> None:
        self.seconds = seconds
        self.result = result
        self.tasks = tasks
        self.begun: list[Any] = []

    def init(self) -> Any:
        if self.tasks:
            self.task = asyncio.ensure_future(slow_to_end(0.5))
        return self.outcome() if self.seconds is None else self.wait(self.seconds)

    async def wait(self, seconds: float) -> Any:
        await asyncio.sleep(seconds)
        return self.outcome()

    def outcome(self) -> Any:
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result

    def handle_continue(self, token: object) -> None:
        self.begun.append(token)

    def handle_info(self, message: object) -> None:
        self.begun.append(message)

    def read(self) -> list[Any]:
        return self.begun


async def slow_to_end(seconds: float) -> None:
    try:
        await forever()
    finally:
        await asyncio.sleep(seconds)


both = pytest.mark.parametrize("seconds", [None, 0.25], ids=["sync", "async"])


@pytest.mark.otp("proc_lib_SUITE", "sync_start_nolink")
@both
async def test_start_returns_when_init_is_done(seconds: float | None) -> None:
    ref = await start(Begins, seconds)
    assert asyncio.get_running_loop().time() == (seconds or 0)
    assert await ref.call(Begins.read) == []


@both
@pytest.mark.parametrize("result", [Continue("token"), NoReply(then=Continue("token"))], ids=["bare", "NoReply"])
async def test_init_may_go_on_before_any_message(seconds: float | None, result: Any) -> None:
    starting = asyncio.ensure_future(Options(name="begins").start(Begins, seconds, result))
    await turns()
    Ref[Begins]("begins").send("message")
    ref = await starting
    assert await ref.call(Begins.read) == ["token", "message"]


@pytest.mark.otp("proc_lib_SUITE", "init_dont_hang")
@pytest.mark.otp("proc_lib_SUITE", "sync_start_nolink")
@both
@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (ERROR, Crash(ERROR)),
        (Stop(Shutdown("no")), Shutdown("no")),
        (Stop(NORMAL), NORMAL),
        (Stop(ERROR), Crash(ERROR)),
    ],
    ids=str,
)
async def test_a_start_that_fails_says_why(seconds: float | None, result: Any, reason: Any, node: Node) -> None:
    for begin in (start, start_link, start_monitor):
        async with inbox() as me:
            with pytest.raises(StartFailed) as caught:
                await begin(Begins, seconds, result)
            assert caught.value.reason == reason
            assert caught.value.__cause__ is getattr(reason, "error", None)
            await turns()
            assert me.pending() == (), "the starter is told by the exception, and by nothing else"
    assert node.processes == {}


@both
async def test_init_may_choose_not_to_run(seconds: float | None, node: Node) -> None:
    for begin in (start, start_link, start_monitor):
        async with inbox() as me:
            with pytest.raises(StartIgnored, match=r"Begins <node\.\d+> chose not to run"):
                await begin(Begins, seconds, IGNORE)
            assert me.pending() == ()
    assert node.processes == {}
    assert isinstance(IGNORE, Ignore)


@pytest.mark.parametrize("result", [7, "text", Stop(NORMAL, "reply")], ids=str)
async def test_init_cannot_return_just_anything(result: Any) -> None:
    with pytest.raises(StartFailed, match="crash: BadReturn: init returned"):
        await start(Begins, None, result)


async def test_the_constructors_arguments_have_to_fit(node: Node) -> None:
    wrong: Any = Begins
    with pytest.raises(StartFailed, match=r"crash: TypeError: .*unexpected keyword argument 'secnds'"):
        await start(wrong, secnds=1)
    assert node.processes == {}


async def test_a_class_that_cannot_be_started_leaves_nothing_behind(node: Node) -> None:
    class Abstract(GenServer, abc.ABC):
        @abc.abstractmethod
        def finish(self) -> None: ...

    async with inbox():
        for begin in (start, start_link):
            with pytest.raises(TypeError, match="abstract"):
                await begin(Abstract)
            for what in (int, "text", forever):
                with pytest.raises(TypeError, match="cannot be started: give a class that derives from GenServer"):
                    await begin(what)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="an instance of GenServer cannot be started: give the class"):
                await begin(GenServer())  # type: ignore[arg-type]
        assert len(node.processes) == 1


@both
async def test_a_failed_start_is_over_when_its_tasks_are(seconds: float | None) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(2):
        began = loop.time()
        with pytest.raises(StartFailed):
            await Options(name="begins").start(Begins, seconds, ERROR, tasks=True)
        # The task of a start that was over at once had not begun. Else its successor would meet what it leaves.
        assert loop.time() - began == (0 if seconds is None else seconds + 0.5)
        assert whereis("begins") is None


@pytest.mark.otp("proc_lib_SUITE", "sync_start_link_timeout")
@pytest.mark.otp("proc_lib_SUITE", "sync_start_timeout")
async def test_an_init_that_takes_too_long_is_killed() -> None:
    async with inbox() as me:
        for begin in (Options(timeout=1.0).start, Options(timeout=1.0).start_link, Options(timeout=1.0).start_monitor):
            with pytest.raises(StartTimeout, match="did not start within 1 s") as caught:
                await begin(Begins, 10**6)
            assert caught.value.reason == KILLED
            await turns()
            assert me.pending() == ()
    assert asyncio.get_running_loop().time() == 3.0


async def test_an_init_that_fails_in_time_is_no_timeout() -> None:
    with pytest.raises(StartFailed) as caught:
        await Options(timeout=1.0).start(Begins, 0.5, ERROR)
    assert not isinstance(caught.value, StartTimeout)
    assert is_alive(await Options(timeout=1.0).start(Begins, 0.5))


async def test_an_init_that_is_killed_fails_the_start() -> None:
    async with inbox() as me:
        for end, reason in ((kill, KILLED), (shut_down, SHUTDOWN)):
            starting = asyncio.ensure_future(Options(name="begins").start_link(Begins, 10**6))
            await turns()
            end("begins")
            with pytest.raises(StartFailed) as caught:
                await starting
            assert caught.value.reason == reason
            await turns()
            assert me.pending() == ()


@pytest.mark.parametrize("linked", [False, True])
async def test_a_start_that_is_cancelled_takes_the_process_down_and_not_the_starter(*, linked: bool) -> None:
    async with inbox(trap_exit=False) as me:
        for moment in (0.5, 1.0):
            options = Options(name=f"begins at {moment}")
            starting = asyncio.ensure_future((options.start_link if linked else options.start)(Begins, 1.0))
            await asyncio.sleep(moment)
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            await turns()
            assert whereis(options.name) is None or not starting.cancelled()
            assert is_alive(me.pid)


async def test_a_starter_that_dies_takes_the_start_with_it(node: Node) -> None:
    async def starts() -> None:
        await start_link(Begins, 10**6)

    pid = spawn(starts)
    await turns()
    kill(pid)
    assert await wait_down(pid) == KILLED
    await turns()
    assert node.processes == {}


async def test_a_dying_process_cannot_start_linked_processes() -> None:
    outcome: list[Any] = []

    async def tries() -> None:
        try:
            await forever()
        finally:
            try:
                await start_link(Log)
            except ProcessExited as error:
                outcome.append(error.reason)
            outcome.append(await start(Log))

    pid = spawn(tries)
    await turns()
    exit(pid, SHUTDOWN)
    await wait_down(pid)
    assert outcome[0] == SHUTDOWN
    assert is_alive(outcome[1])


async def test_the_parent_is_known_and_its_exit_stops_one_that_traps() -> None:
    class Child(Log):
        traps_exit = True

        def terminate(self, reason: Any) -> None:
            ended.append(reason)

    ended: list[Any] = []
    async with inbox("mother") as me:
        ref = await start_link(Child)
        process = process_of(ref)
        assert process is not None
        assert [str(each) for each in process.ancestors()] == [f"mother {me.pid}"]
        exit(ref, Shutdown("go"))
        assert await me.receive() == Exit(ref.pid, Shutdown("go"))
    assert ended == [Shutdown("go")]


@pytest.mark.otp("proc_lib_SUITE", "sync_start_link")
async def test_a_child_that_links_itself_elsewhere_in_init_is_linked_to_both() -> None:
    other = await start(Log)

    class Ties(GenServer):
        def init(self) -> None:
            link(other)

    async with inbox() as me:
        ref = await start_link(Ties)
        kill(other)
        assert await me.receive() == Exit(ref.pid, KILLED)


async def test_a_process_can_be_talked_to_while_it_starts() -> None:
    starting = asyncio.ensure_future(Options(name="begins").start(Begins, 1.0))
    await turns()
    asking = asyncio.ensure_future(Ref[Begins]("begins").call(Begins.read))
    await asyncio.sleep(0.5)
    assert not asking.done()
    await starting
    assert await asking == []


async def test_a_process_that_ends_itself_in_init_has_not_started() -> None:
    class Ends(GenServer):
        def __init__(self, result: Any) -> None:
            exit(self_pid(), SHUTDOWN)
            self.result = result

        def init(self) -> Any:
            return self.result

    for result in (None, Continue("x"), IGNORE):
        with pytest.raises(StartFailed) as caught:
            await start(Ends, result)
        assert caught.value.reason == SHUTDOWN


@pytest.mark.parametrize(
    ("field", "value"),
    [("timeout", 0), ("timeout", -1), ("timeout", float("nan")), ("mailbox", 0), ("kill_grace", -1)],
)
def test_bad_options_are_refused_with_the_field_named(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{field} must"):
        Options(**{field: value})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"^{field} must"):
        Options().but(**{field: value})


async def test_options_name_and_label_the_process() -> None:
    ref = await Options(name="n", label="the label").start(Log)
    process = process_of(ref)
    assert str(process) == f"the label {ref.pid}"
    with pytest.raises(AlreadyRegistered):
        await Options(name="n").start(Log)


async def test_a_hundred_thousand_starts_in_a_row_let_the_loop_turn(node: Node) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(tick())
    for _ in range(10_000):
        await start(Log)
    task.cancel()
    assert ticks > 20
    assert len(node.processes) == 10_000
