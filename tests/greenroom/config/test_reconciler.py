"""The reconciler and the file watcher on virtual time, with a host whose steps a test can make fail."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.config.config_sync import ConfigSync
from greenroom.config.host_config import HostConfig, ServerConfig
from greenroom.config.mistakes import BadConfig, Mistake, Source
from greenroom.errors import ConfigError
from greenroom.supervision import ActorError, AlreadyRegistered, Supervisor, kill, start, stop, whereis
from greenroom.transports.client.errors import ConnectFailed
from greenroom.transports.client.server_command import Command

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

HERE = Source("greenroom.toml", 1)


def config(*files: Path, **servers: str) -> HostConfig:
    """A configuration of servers, each with a command."""
    made = {name: ServerConfig(name=name, source=HERE, command=command) for name, command in servers.items()}
    return HostConfig(servers=made, files=files)


def bad(told: str = "wrong") -> HostConfig:
    return HostConfig(mistakes=(Mistake(HERE, None, None, told),))


class Rooms:
    """A host whose requests take a while. Two requests at once for a server are recorded as an error, and a test can make requests fail."""

    def __init__(self) -> None:
        self.here: dict[str, str] = {}
        self.log: list[str] = []
        self.busy: set[str] = set()
        self.clashes: list[str] = []
        """Servers that had two changes at the same time."""
        self.failures: list[Exception] = []
        self.seconds = 0.5
        self.ignores_requests = False
        """Whether a change is made although its caller is killed."""

    async def _does(self, what: str, name: str, command: str | None) -> None:
        if name in self.busy:
            self.clashes.append(name)
        self.busy.add(name)
        self.log.append(f"{what} {name}")
        try:
            if self.ignores_requests:
                self._has(name, command)
            await asyncio.sleep(self.seconds)
            if self.failures:
                raise self.failures.pop(0)
            self._has(name, command)
        finally:
            self.busy.discard(name)

    def _has(self, name: str, command: str | None) -> None:
        if command is None:
            self.here.pop(name, None)
        else:
            self.here[name] = command

    async def add(self, id: str, server: Any) -> None:
        if id in self.here:
            raise AlreadyRegistered(id, None)  # type: ignore[arg-type]
        await self._does("add", id, _command(server))

    async def replace(self, id: str, server: Any, *, ready_within: float = 0.0) -> None:
        assert id in self.here
        await self._does("replace", id, _command(server))

    async def remove(self, id: str) -> None:
        assert id in self.here
        await self._does("remove", id, None)

    async def forget(self, id: str) -> None:
        return

    def has(self, id: str) -> bool:
        return id in self.here


def _command(spec: Any) -> str:
    assert isinstance(spec.route, Command)
    return spec.route.words[0]


@asynccontextmanager
async def started_sync(first: HostConfig, **options: Any) -> AsyncGenerator[tuple[ConfigSync, Rooms]]:
    """A running `ConfigSync` with such a host."""
    rooms = Rooms()
    made = ConfigSync(first, options.pop("read", lambda: first), **options)
    rooms.here = {name: _command(spec) for name, spec in made.initial_specs().items()}
    held: list[HostConfig] = []
    made.attach(rooms, held.append)
    top = await start(Supervisor, [made.child_spec()])
    yield made, rooms
    await stop(top)
    assert rooms.clashes == []


async def test_of_many_changes_in_a_row_only_the_last_is_carried_out() -> None:
    async with started_sync(config(a="1", b="2")) as (made, rooms):
        first = asyncio.create_task(made.reload(config(a="x", b="2")))
        await asyncio.sleep(0.1)
        others = [asyncio.create_task(made.reload(config(a=f"{n}", b="2", c=f"{n}"))) for n in range(100)]
        await asyncio.gather(first, *others)
        assert rooms.here == {"a": "99", "b": "2", "c": "99"}
        assert sorted(rooms.log) == ["add c", "replace a", "replace a"]


async def test_servers_do_not_wait_for_each_other() -> None:
    async with started_sync(config()) as (made, rooms):
        before = asyncio.get_running_loop().time()
        await made.reload(config(**{f"s{n}": "x" for n in range(20)}))
        assert len(rooms.here) == 20
        assert asyncio.get_running_loop().time() - before < 1


async def test_a_failed_step_is_recorded_and_repeated() -> None:
    async with started_sync(config()) as (made, rooms):
        rooms.failures = [ConnectFailed("no")]
        await made.reload(config(a="1"))
        assert str(made.failures["a"]) == "no"
        await asyncio.sleep(2)
        assert (rooms.here, made.failures) == ({"a": "1"}, {})


async def test_a_permanent_failure_is_not_repeated_until_the_configuration_changes() -> None:
    async with started_sync(config()) as (made, rooms):
        rooms.failures = [ConfigError("never")]
        await made.reload(config(a="1"))
        await asyncio.sleep(60)
        assert rooms.log == ["add a"]
        await made.reload(config(a="2"))
        assert rooms.here == {"a": "2"}
        assert made.failures == {}


async def test_a_trouble_ends_with_its_server() -> None:
    async with started_sync(config()) as (made, rooms):
        rooms.failures = [ConfigError("never")]
        await made.reload(config(a="1"))
        await made.reload(config())
        assert made.failures == {}


async def test_the_failure_of_a_change_is_forgotten_when_the_change_is_taken_back() -> None:
    async with started_sync(config(a="1")) as (made, rooms):
        rooms.failures = [ConfigError("never")]
        await made.reload(config(a="2"))
        assert str(made.failures["a"]) == "never"
        await made.reload(config(a="1"))
        assert (rooms.here, made.failures) == ({"a": "1"}, {})


async def test_a_wrong_configuration_is_refused_and_nothing_is_done() -> None:
    async with started_sync(config(a="1")) as (made, rooms):
        with pytest.raises(BadConfig, match="wrong"):
            await made.reload(bad())
        assert (rooms.log, set(made.config.servers)) == ([], {"a"})


@pytest.mark.parametrize("seed", range(10))
async def test_a_restarted_reconciler_continues_the_work(seed: int) -> None:
    source = random.Random(seed)
    async with started_sync(config(a="0", b="0")) as (made, rooms):
        for turn in range(5):
            wanted = {name: f"{turn}" for name in "abcd" if source.random() < 0.7}
            assert made.accept(config(**wanted))
            for _ in range(2):
                await asyncio.sleep(source.random())
                victim = whereis(made.name(source.choice(["reconciler", "jobs", "sync_tree"])))
                if victim is not None:
                    kill(victim)
            await asyncio.sleep(20)
            assert rooms.here == wanted
            assert {name: one.command for name, one in made.running.items()} == wanted


@pytest.mark.parametrize("change", ["remove", "replace", "add"])
async def test_an_interrupted_change_that_is_taken_back_leaves_what_is_wanted(change: str) -> None:
    was = config() if change == "add" else config(a="1")
    async with started_sync(was) as (made, rooms):
        rooms.ignores_requests = True
        interrupted = asyncio.create_task(made.reload(config() if change == "remove" else config(a="2")))
        await asyncio.sleep(0.1)
        jobs = whereis(made.name("jobs"))
        assert jobs is not None
        assert made.accept(was)
        kill(jobs)
        with pytest.raises(ActorError):
            await interrupted
        await asyncio.sleep(20)
        assert rooms.here == {name: one.command for name, one in was.enabled.items()}
        assert (set(made.running), made.interrupted) == (set(was.enabled), set())


async def test_a_reload_between_two_reconcilers_waits_for_the_next_one() -> None:
    async with started_sync(config(a="1")) as (made, rooms):
        reconciler = whereis(made.name("reconciler"))
        assert reconciler is not None
        kill(reconciler)
        assert whereis(made.name("reconciler")) is None
        await made.reload(config(a="2"))
        assert (rooms.here, rooms.log) == ({"a": "2"}, ["replace a"])


# --- the watcher


class Files:
    """A file with one word per server, and the readings of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reads = 0
        self.write("a=1")

    def write(self, text: str) -> None:
        self.path.write_text(text, encoding="utf-8")

    def read(self) -> HostConfig:
        self.reads += 1
        text = self.path.read_text(encoding="utf-8")
        found = config(self.path, **dict(word.split("=") for word in text.split())) if "!" not in text else bad(text)
        return replace(found, files=(self.path,))


@asynccontextmanager
async def watched(path: Path) -> AsyncGenerator[tuple[ConfigSync, Rooms, Files]]:
    files = Files(path)
    async with started_sync(files.read(), read=files.read, watch=1.0) as (made, rooms):
        await asyncio.sleep(1)
        files.reads = 0
        yield made, rooms, files


async def test_a_change_is_read_when_it_has_come_to_rest(tmp_path: Path) -> None:
    async with watched(tmp_path / "f") as (_, rooms, files):
        await asyncio.sleep(60)
        assert files.reads == 0
        files.write("a=1 b=2")
        await asyncio.sleep(3)
        assert rooms.here == {"a": "1", "b": "2"}
        assert files.reads == 1


@pytest.mark.parametrize("how", ["replaced", "gone and back"])
async def test_a_file_may_be_another_one(tmp_path: Path, how: str) -> None:
    async with watched(tmp_path / "f") as (made, rooms, files):
        if how == "replaced":
            (tmp_path / "g").write_text("b=2", encoding="utf-8")
            (tmp_path / "g").replace(files.path)
        else:
            files.path.rename(tmp_path / "away")
            made.read = lambda: bad("gone")
            await asyncio.sleep(5)
            assert rooms.here == {"a": "1"}
            made.read = files.read
            files.write("b=2")
        await asyncio.sleep(5)
        assert rooms.here == {"b": "2"}


async def test_a_file_that_changes_a_hundred_times_a_second_is_read_now_and_then(tmp_path: Path) -> None:
    async with watched(tmp_path / "f") as (_, rooms, files):
        for number in range(1000):
            files.write(f"a={number} b={number}")
            await asyncio.sleep(0.01)
        assert 3 <= files.reads <= 6
        assert len(rooms.log) <= 2 * files.reads
        await asyncio.sleep(5)
        assert rooms.here == {"a": "999", "b": "999"}


async def test_a_bad_file_changes_nothing_and_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with watched(tmp_path / "f") as (made, rooms, files):
        files.write("half!")
        await asyncio.sleep(3)
        files.path.touch()
        await asyncio.sleep(3)
        assert (rooms.here, rooms.log) == ({"a": "1"}, [])
        assert [record.message for record in caplog.records].count("greenroom.toml:1: half!") == 1
        assert [one.what for one in made.latest.mistakes] == ["half!"]
        files.write("a=2")
        await asyncio.sleep(3)
        assert rooms.here == {"a": "2"}


async def test_a_reading_during_a_change_is_discarded(tmp_path: Path) -> None:
    async with watched(tmp_path / "f") as (made, rooms, files):
        torn = iter(["b=2 torn!", "b=2"])

        def read() -> HostConfig:
            found = files.read()
            files.write(next(torn, "b=2"))
            return found

        files.write("c=3")
        made.read = read
        await asyncio.sleep(2.5)
        made.read = files.read
        files.write("b=2")
        await asyncio.sleep(5)
        assert rooms.here == {"b": "2"}
        assert "add c" not in rooms.log


async def test_a_watcher_that_dies_misses_nothing(tmp_path: Path) -> None:
    async with watched(tmp_path / "f") as (made, rooms, files):
        files.write("a=1 b=2")
        watcher = whereis(made.name("watcher"))
        assert watcher is not None
        kill(watcher)
        await asyncio.sleep(3)
        assert rooms.here == {"a": "1", "b": "2"}
