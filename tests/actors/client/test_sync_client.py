"""`SyncClient`: no loop, no await, any thread; and its node ends with it."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from greenroom import (
    Client,
    Command,
    ConfigError,
    Context,
    PeerError,
    RequestCancelled,
    RequestTimeout,
    SamplingRequest,
    Server,
    SyncClient,
    ToolFailed,
)
from greenroom.actors.client.errors import ClientClosed, Unsupported
from greenroom.supervision import BackgroundNode
from greenroom.transports import ConnectFailed

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
from greenroom import Server
server = Server("child")
@server.tool
def add(a: int, b: int) -> int:
    return a + b
server.run()
"""


def make_server() -> Server:
    server = Server("script")

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.sample("hello")).text

    @server.tool
    async def waits(ctx: Context) -> None:
        await ctx.progress(1, 2)
        await ctx.cancelled.wait()

    @server.tool(long_running=True)
    async def job() -> int:
        return 7

    @server.resource("script://x")
    def x() -> str:
        return "contents"

    @server.prompt
    def hello(name: str) -> str:
        return f"hello {name}"

    @server.completion("name", prompt="hello")
    def names(value: str) -> list[str]:
        return [f"{value}a"]

    return server


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_a_script_has_all_the_words(mode: str) -> None:
    def shout(request: SamplingRequest) -> str:
        return request.text.upper()

    with SyncClient(make_server(), sampling=shout, mode=mode) as client:
        assert client.call("add", a=1, b=2) == 3
        assert client.call("add", a=1, b=2, into=float) == 3.0
        assert client.call_tool("add", {"a": 1, "b": 2}).structured_content == (
            {"result": 3} if mode == "legacy" else 3
        )
        assert client.call("ask") == "HELLO"
        assert [tool.name for tool in client.list_tools()] == ["add", "ask", "job", "waits"]
        assert [resource.uri for resource in client.list_resources()] == ["script://x"]
        assert client.list_resource_templates() == []
        assert [prompt.name for prompt in client.list_prompts()] == ["hello"]
        assert client.read_resource("script://x").text == "contents"
        assert client.get_prompt("hello", name="Ada").text == "hello Ada"
        assert client.complete("hello", "name", "b").values == ["ba"]
        assert client.server_info["name"] == "script"
        assert client.protocol_version == ("2025-11-25" if mode == "legacy" else mode)
        assert (client.instructions, "tools" in client.server_capabilities) == (None, True)
        assert client.status.phase.value == "ready"
        assert client.request("ping") == {}
        assert client.ping() >= 0
        client.set_log_level("error")
        client.notify("notifications/initialized")
    assert "script" in repr(client)


def test_errors_come_as_they_are() -> None:
    with SyncClient(make_server()) as client:
        with pytest.raises(PeerError):
            client.call("no such tool")
        with pytest.raises(ToolFailed):
            client.call("add", a="x")
        with pytest.raises(RequestTimeout):
            client.within(0.05).call("waits")
    with pytest.raises(ConnectFailed), SyncClient("http://127.0.0.1:9/mcp"):
        pass
    with pytest.raises(ConfigError):
        SyncClient("nowhere")


def test_a_call_may_be_followed_and_cancelled() -> None:
    steps: list[float] = []
    with SyncClient(make_server()) as client:
        call = client.start_tool("waits")
        for step in call.progress():
            steps.append(step.progress)
            call.cancel("enough")
        with pytest.raises(RequestCancelled, match="enough"):
            call.result()
    assert steps == [1]


def test_changes_are_read_one_by_one() -> None:
    server = make_server()
    with SyncClient(server) as client:
        with client.subscribe("script://x") as updates:
            server.notify_resource_updated("script://x")
            assert next(updates).params["uri"] == "script://x"
        with client.listen("notifications/tools/list_changed") as updates:
            server.notify_list_changed("tool")
            assert next(updates).method == "notifications/tools/list_changed"


def test_tasks_are_waited_for() -> None:
    with SyncClient(make_server(), mode="legacy") as client:
        task = client.call_tool("job", task=True).task
        assert task is not None
        assert client.tasks_wait(task).status == "completed"
        assert client.tasks_get(task).id == task.id
        assert client.tasks_result(task).data == {"result": 7}
        assert len(client.tasks_list()) == 1
        with pytest.raises(PeerError):
            client.tasks_cancel(task)


@pytest.mark.row("26-T11")
def test_tasks_of_the_stateless_era_are_waited_for() -> None:
    with SyncClient(make_server()) as client:
        assert client.call("job") == 7
        task = client.call_tool("job", task=True).task
        assert task is not None
        client.tasks_update(task, {"no such question": {}})
        assert client.tasks_wait(task).result is not None
        assert client.tasks_result(task).data == 7
        assert client.tasks_cancel(task).status == "completed"
        with pytest.raises(Unsupported, match="tasks/list"):
            client.tasks_list()


def test_threads_share_a_client_and_clients_a_node() -> None:
    def both(n: int) -> int:
        return one.call("add", a=n, b=1, into=int) + two.call("add", a=n, b=1, into=int)

    with (
        BackgroundNode() as node,
        SyncClient(make_server(), node=node) as one,
        SyncClient(make_server(), node=node) as two,
    ):
        with ThreadPoolExecutor(8) as pool:
            sums = list(pool.map(both, range(50)))
        assert sums == [2 * n + 2 for n in range(50)]


def test_nothing_is_left_of_it() -> None:
    before = set(threading.enumerate())
    client = SyncClient(make_server())
    for _ in range(2):
        with client:
            assert client.call("add", a=1, b=1) == 2
        client.close()
    assert [
        thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("greenroom-node")
    ] == []


def test_a_client_that_is_closed_says_so() -> None:
    client = SyncClient(make_server())
    with pytest.raises(ClientClosed):
        client.ping()
    with client, client.subscribe("script://x") as updates:
        client.close()
        with pytest.raises(ClientClosed):
            next(updates)
    with pytest.raises(ClientClosed):
        client.call("add", a=1, b=1)


def test_a_command_is_started_and_ended(tmp_path: Path) -> None:
    program = tmp_path / "child.py"
    program.write_text(PROGRAM)
    with SyncClient([sys.executable, str(program)]) as client:
        assert client.call("add", a=1, b=2) == 3


@pytest.mark.row("CT-10")
async def test_a_command_is_a_target_in_full_and_in_short(tmp_path: Path) -> None:
    program = tmp_path / "child.py"
    program.write_text(PROGRAM)
    for target in (Command(sys.executable, program), [sys.executable, str(program)]):
        async with Client(target) as client:
            assert await client.call("add", a=1, b=2) == 3


def test_a_function_that_blocks_does_not_block_the_others() -> None:
    free = threading.Event()

    def model(request: SamplingRequest) -> str:
        free.wait(10)
        return request.text

    with SyncClient(make_server(), sampling=model) as client, ThreadPoolExecutor(1) as pool:
        asking = pool.submit(client.call, "ask")
        assert client.call("add", a=1, b=2) == 3
        free.set()
        assert asking.result(10) == "hello"
