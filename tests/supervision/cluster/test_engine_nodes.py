"""A node's process: its settings, its limits, its output, its end, and what it leaves."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from greenroom.errors import ConfigError
from greenroom.supervision import Crash, GenServer, ProcessExited, Ref, StartFailed, is_alive, wait_down
from greenroom.supervision.cluster import os_processes
from greenroom.supervision.cluster.cluster import NodeOwner
from greenroom.supervision.cluster.cluster_settings import ClusterSettings, MainModule, NodeSpec, ProcessLimits
from greenroom.supervision.cluster.node_engine import NodeEngine
from greenroom.supervision.cluster.node_records import EXIT_MEMORY, NodeFailed, NodeLost, ProcessEnding
from greenroom.supervision.cluster.remote_spawn import start_on

from .engine_fixtures import PATIENCE, Hand, Stage, eventually, gone, spec, staged

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

pytestmark = pytest.mark.greenroom(clock="real")

MEGA = 1024 * 1024


class Tool(GenServer):
    """A server with anything that a user's code may do."""

    def where(self) -> tuple[str, list[str], str | None, str]:
        return str(Path.cwd()), sys.path, os.environ.get("FROM_THE_SPEC"), sys.modules["__main__"].__name__

    def thespians_environment(self) -> list[str]:
        return [name for name in os.environ if name.startswith("THESP")]

    def handlers(self) -> dict[str, bool]:
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1)
        return {number.name: signal.getsignal(number) is signal.SIG_DFL for number in numbers}

    def limits(self) -> tuple[int, int, int]:
        return (
            resource.getrlimit(resource.RLIMIT_DATA)[0],
            resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            resource.getrlimit(resource.RLIMIT_CORE)[0],
        )

    def take_memory(self, megabytes: int) -> str:
        try:
            return str(len(bytearray(megabytes * MEGA)))
        except MemoryError:
            return "MemoryError"

    def print_lines(self, count: int) -> None:
        for number in range(count):
            print(f"line {number}")  # noqa: T201 - it goes to the log at home

    def say(self) -> None:
        print("to stdout")  # noqa: T201 - as above
        print("to stderr", file=sys.stderr)  # noqa: T201 - as above
        logging.getLogger("of.a.library").warning("a warning")
        logging.getLogger("of.a.library").debug("a detail")

    def write(self) -> None:
        """Write more to the descriptors than a pipe holds."""
        for _ in range(100):
            os.write(1, b"x" * 65536)
            os.write(2, b"x" * 65536)
        subprocess.run(["head", "-c", "1000000", "/dev/zero"], check=True)

    def read_input(self) -> str:
        return os.read(0, 10).decode()

    def crash(self) -> None:
        ctypes.string_at(0)

    def exhaust_cpu(self) -> None:
        used = time.process_time()
        resource.setrlimit(resource.RLIMIT_CPU, (int(used) + 1, int(used) + 10))
        while True:
            pass

    def descriptors(self) -> dict[int, str]:
        found: dict[int, str] = {}
        for entry in Path("/proc/self/fd").iterdir():
            with suppress(OSError):
                found[int(entry.name)] = str(entry.readlink())
        return found

    def leave_behind(self) -> list[int]:
        """A program in a session of its own, and a fork."""
        executed = subprocess.Popen(["sleep", "1000"], start_new_session=True).pid
        forked = os.fork()
        if forked == 0:
            os.setsid()
            signal.pause()
        return [executed, forked]

    def linger(self) -> None:
        threading.Event().wait()


async def tool(stage: Stage, host: Ref[NodeOwner]) -> Ref[Tool]:
    return await start_on(await host.call(NodeOwner.node_name), Tool)


@asynccontextmanager
async def ending_of(host: Ref[NodeOwner]) -> AsyncGenerator[asyncio.Future[ProcessEnding]]:
    """How the node ends after this block."""
    told: asyncio.Future[ProcessEnding] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(wait_down(host, PATIENCE))
    await asyncio.sleep(0)
    yield told
    reason = await waiting
    assert isinstance(reason, Crash)
    assert isinstance(reason.error, NodeLost)
    told.set_result(reason.error.ending)


async def test_a_child_runs_on_the_node_of_its_spec(tmp_path: Path) -> None:
    async with staged() as stage:
        host = await stage.host(cwd=str(tmp_path), env={"FROM_THE_SPEC": "yes"})
        cwd, path, found, _ = await (await tool(stage, host)).call(Tool.where)
        assert Path(cwd) == tmp_path
        assert path[1:] == sys.path
        assert found == "yes"
        assert "yes" not in repr(NodeSpec(env={"FROM_THE_SPEC": "yes"}))


async def test_thespian_has_left_no_trace_in_it() -> None:
    async with staged() as stage:
        one = await tool(stage, await stage.host())
        assert await one.call(Tool.thespians_environment) == []
        assert all((await one.call(Tool.handlers)).values())


async def test_its_descriptors_lead_nowhere_of_ours() -> None:
    """The open descriptors: null, Thespian's own two or three sockets, the link, the death pipe twice, the notes; no pipe or socket of another process."""
    async with staged() as stage:
        await stage.host()
        first = await (await tool(stage, await stage.host())).call(Tool.descriptors)
        assert [first[number] for number in (0, 1, 2)] == ["/dev/null"] * 3
        kinds = [where.partition(":")[0] for where in first.values()]
        assert kinds.count("pipe") == 2, first
        assert kinds.count("socket") <= 10, first


async def test_its_main_module_is_the_applications(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text("import sys\nclass Answer: pass\nif __name__ == '__main__':\n    sys.exit('it was run')\n")
    async with staged() as stage:
        host = await stage.host(main=MainModule(path=str(script)))
        assert (await (await tool(stage, host)).call(Tool.where))[3] == "__mp_main__"


async def refused(stage: Stage, **wanted: object) -> str:
    with pytest.raises(StartFailed) as failure:
        await stage.cluster.start_node(spec(**wanted))
    cause = failure.value.__cause__
    assert isinstance(cause, NodeFailed)
    return str(cause)


async def test_a_main_module_that_runs_the_program_is_refused_with_what_to_do(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text("import sys\nsys.exit(3)\n")
    async with staged() as stage:
        why = await refused(stage, main=MainModule(path=str(script)))
        assert "__main__" in why
        assert "server.py" in why


async def test_a_module_that_cannot_be_imported_is_told(tmp_path: Path) -> None:
    async with staged() as stage:
        assert "no_such_module" in await refused(stage, preload=("no_such_module",))
        assert is_alive(await stage.host())


async def test_a_module_that_is_never_done_is_ended(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text("import time\ntime.sleep(1000)\n")
    async with staged() as stage:
        wanted = NodeSpec(path=(str(tmp_path), *sys.path), preload=("endless",), start_timeout=0.5)
        with pytest.raises(StartFailed) as failure:
            await stage.cluster.start_node(wanted)
        assert "not ready within 0.5 s" in str(failure.value)
        await eventually(
            lambda: (
                not [
                    seen for seen in os_processes.descendants(os.getpid()) if os_processes.name_of(seen) == "gr-node-1"
                ]
            )
        )


async def test_a_nodes_process_has_its_limits() -> None:
    async with staged() as stage:
        host = await stage.host(limits=ProcessLimits(memory=256 * MEGA, open_files=100))
        one = await tool(stage, host)
        assert await one.call(Tool.limits) == (256 * MEGA, 100, 0)
        assert await one.call(Tool.take_memory, 100) == str(100 * MEGA)
        assert await one.call(Tool.take_memory, 300) == "MemoryError"


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"memory": 1000}, "67108864 bytes or more"),
        ({"cpu": 0}, "more than 0 seconds"),
        ({"open_files": True}, "64 descriptors or more"),
    ],
)
def test_limits_that_cannot_be_are_refused(limits: dict[str, int], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ProcessLimits(**limits)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: NodeSpec(name=""), "1 to 128"),
        (lambda: NodeSpec(start_timeout=0), "more than 0 seconds"),
        (lambda: NodeSpec(preload="json"), "tuple of modules"),  # type: ignore[arg-type]
        (lambda: ClusterSettings(bind="0.0.0.0"), "all its networks"),
        (lambda: ClusterSettings(bind="localhost"), "IPv4 address"),
        (lambda: ClusterSettings(port=70000), "1 to 65535"),
        (MainModule, "one of them"),
    ],
)
def test_specs_that_cannot_be_are_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make()


async def test_output_and_logs_of_a_node_reach_the_application(caplog: pytest.LogCaptureFixture) -> None:
    async with staged() as stage:
        one = await tool(stage, await stage.host())
        with caplog.at_level(logging.INFO):
            await one.call(Tool.say)
            await eventually(lambda: "a warning" in caplog.messages)
        told = {record.getMessage(): (record.name, record.levelno) for record in caplog.records}
        assert told["to stdout"] == ("greenroom.node", logging.INFO)
        assert told["to stderr"] == ("greenroom.node", logging.WARNING)
        assert told["a warning"] == ("of.a.library", logging.WARNING)
        assert "a detail" not in told


async def test_of_more_than_there_is_room_for_the_number_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async with staged() as stage:
        one = await tool(stage, await stage.host())
        with caplog.at_level(logging.INFO):
            await one.call(Tool.print_lines, 20_000)
            await eventually(lambda: any("lines of output were dropped" in text for text in caplog.messages))
        assert "line 0" in caplog.messages
        assert sum(text.startswith("line ") for text in caplog.messages) < 5_000


async def test_its_standard_streams_never_hold_it_up() -> None:
    async with staged() as stage:
        one = await tool(stage, await stage.host())
        await one.call(Tool.write)
        assert await one.call(Tool.read_input) == ""


async def test_where_it_was_when_it_crashed_is_known() -> None:
    async with staged() as stage:
        host = await stage.host()
        one = await tool(stage, host)
        async with ending_of(host) as told:
            with pytest.raises(ProcessExited):
                await one.call(Tool.crash)
        ending = await told
        assert ending.signal == signal.SIGSEGV
        assert "SIGSEGV" in str(ending)
        assert "in crash" in ending.words
        assert "in crash" not in str(ending)


async def test_more_cpu_than_its_limit_is_its_end() -> None:
    async with staged(ClusterSettings(heartbeat=PATIENCE)) as stage:
        host = await stage.host()
        one = await tool(stage, host)
        async with ending_of(host) as told:
            with pytest.raises(ProcessExited):
                await one.within(None).call(Tool.exhaust_cpu)
        assert "CPU time" in str(await told)


async def test_an_exit_code_is_told() -> None:
    async with staged() as stage:
        host = await stage.host()
        hand = await stage.hand(host)
        async with ending_of(host) as told:
            hand.cast(Hand.end_with, 7)
        ending = await told
        assert ending.code == 7
        assert "exited with code 7" in str(ending)


async def test_processes_started_by_a_node_end_with_it() -> None:
    async with staged() as stage:
        host, other = await stage.host(), await stage.host()
        left = await (await tool(stage, host)).call(Tool.leave_behind)
        others = await (await tool(stage, other)).call(Tool.leave_behind)
        os.kill(await host.call(NodeOwner.process_id), signal.SIGKILL)
        await wait_down(host)
        await gone(*left)
        assert all(os_processes.is_alive(pid) for pid in others)
    await gone(*others)


async def test_a_worker_that_does_not_stop_is_killed() -> None:
    async with staged() as stage:
        host = await stage.host(stop_timeout=0.2)
        one = await tool(stage, host)
        one.cast(Tool.linger)
        began = time.monotonic()
        ending = await stage.cluster.engine.within(PATIENCE).call(
            NodeEngine.end_node, await host.call(NodeOwner.node_name)
        )
        assert time.monotonic() - began < 5 * (0.2 + 0.5)
        assert ending.signal == signal.SIGTERM
        assert "which greenroom sent" in str(ending)
        assert "in linger" in ending.words


async def test_many_at_once() -> None:
    async with staged() as stage:
        hosts = await asyncio.gather(*(stage.host() for _ in range(20)))
        assert len({await host.call(NodeOwner.process_id) for host in hosts}) == 20


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (ProcessEnding.of_status(0), "exited with code 0"),
        (ProcessEnding.of_status(-11), "was ended by signal 11 (SIGSEGV)"),
        (ProcessEnding(signal=9, asked=True), "was ended by signal 9 (SIGKILL), which greenroom sent"),
        (ProcessEnding(signal=9), "the system may have been out of memory"),
        (ProcessEnding(signal=24), "more CPU time than its limit"),
        (ProcessEnding(signal=6, memory=64 * MEGA), "its memory limit is 64 MiB"),
        (ProcessEnding(code=EXIT_MEMORY, memory=64 * MEGA), "out of memory (its limit is 64 MiB)"),
        (ProcessEnding(signal=9, hung=True), "did not answer any more"),
        (ProcessEnding(lost=True), "its exit status is unknown"),
        (ProcessEnding(signal=63), "signal 63"),
    ],
)
def test_an_ending_says_in_words_what_happened(ending: ProcessEnding, words: str) -> None:
    assert words in str(ending)
