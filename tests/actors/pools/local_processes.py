"""A process provider without processes: each worker runs in this node, so that the decisions of pools can be tested in virtual time."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from greenroom.actors.catalogue_entries import (
    completion_entry,
    prompt_entry,
    resource_entry,
    template_entry,
    tool_entry,
)
from greenroom.actors.company import Company
from greenroom.actors.handler_options import (
    CompletionOptions,
    PromptOptions,
    ResourceOptions,
    TemplateOptions,
    ToolOptions,
)
from greenroom.actors.pools.pools import ProcessProvider, WorkerProcess
from greenroom.actors.pools.worker_main import WorkerMain
from greenroom.actors.settings import Settings
from greenroom.supervision import (
    Crash,
    DynamicSupervisor,
    GenServer,
    Reject,
    StartFailed,
    Supervisor,
    child,
    exit,
    is_alive,
    kill,
    self_pid,
    start,
    start_link,
)
from greenroom.supervision.cluster.node_records import NodeLost, ProcessEnding
from greenroom.wire_probe import WireProbe

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from greenroom.actors.pools.pool_options import Pool
    from greenroom.actors.pools.remote_call import StartLocks
    from greenroom.supervision import ChildSpec, Pid, Ref


class Room(GenServer):
    """Stands for the process; the worker in it goes with it."""

    async def start_main(self, *args: Any, **limits: Any) -> Ref[Any]:
        try:
            self.inside = await start_link(WorkerMain, *args, **limits)
        except StartFailed as error:
            raise Reject(error) from None
        return self.inside


class LocalWorkerProcess(WorkerProcess):
    def __init__(self, owner: Ref[Room], pool: Pool) -> None:
        self.owner: Ref[Any] = owner
        self.os_pid = 4711
        self.warmer: Pid = self_pid()
        self.pool = pool
        self.ends = 0
        self.locks: StartLocks | None = None
        self.switched: list[bool] = []

    async def start_main(self, home: Ref[Any], settings: Mapping[str, Any], specs: Mapping[int, bytes]) -> Ref[Any]:
        locks = None if self.locks is None else self.locks.path
        return await self.owner.within(None).call(
            Room.start_main, home, settings, specs, memory=self.pool.memory_limit, locks=locks
        )

    @property
    def is_open(self) -> bool:
        return is_alive(self.owner)

    def busy(self, on: bool) -> None:  # noqa: FBT001 - a switch
        self.switched.append(on)

    def end(self) -> None:
        self.ends += 1
        self.lose(ProcessEnding(signal=9, asked=True))

    def lose(self, ending: ProcessEnding) -> None:
        """As if its process had ended so."""
        exit(self.owner, Crash(NodeLost("room", ending)))

    def kill(self) -> None:
        kill(self.owner)


class LocalProvider(ProcessProvider):
    """Opens as many as are wanted; `refuses` is raised instead."""

    def __init__(self) -> None:
        self.processes: list[LocalWorkerProcess] = []
        self.attempts = 0
        self.refuses: Exception | None = None
        self.locks: Callable[[], StartLocks | None] = lambda: None

    @property
    def open_processes(self) -> int:
        return sum(process.is_open for process in self.processes)

    def child_spec(self) -> ChildSpec[Any]:
        return child(DynamicSupervisor).but(id="rooms")

    async def open(self, pool: Pool) -> LocalWorkerProcess:
        self.attempts += 1
        if self.refuses is not None:
            raise self.refuses
        process = LocalWorkerProcess(await start_link(Room), pool)
        process.locks = self.locks()
        self.processes.append(process)
        return process


class House:
    """A company, and what is registered in it."""

    def __init__(self, provider: LocalProvider) -> None:
        self.provider = provider
        self.company = Company(Settings(name="test"), process_provider=provider)

    def tool(self, function: Callable[..., Any], isolation: Any, name: str | None = None, **options: Any) -> None:
        self._put(tool_entry(name or function.__name__, function, ToolOptions(isolation=isolation, **options)))

    def resource(self, uri: str, function: Callable[..., Any], isolation: Any) -> None:
        self._put(resource_entry(uri, function, ResourceOptions(uri=uri, isolation=isolation)))

    def template(self, text: str, function: Callable[..., Any], isolation: Any) -> None:
        self._put(template_entry(text, function, TemplateOptions(uri_template=text, isolation=isolation)))

    def prompt(self, function: Callable[..., Any], isolation: Any) -> None:
        self._put(prompt_entry(function.__name__, function, PromptOptions(isolation=isolation)))

    def completion(self, reference: tuple[str, str, str], function: Callable[..., Any], isolation: Any) -> None:
        self._put(completion_entry(reference, function, CompletionOptions(isolation=isolation)))

    def _put(self, entry: Any) -> None:
        self.company.catalogue_ref.write(lambda catalogue: catalogue.put(entry))

    async def open(self) -> None:
        self.top = await start(Supervisor, [self.company.child_spec()])

    @asynccontextmanager
    async def probe(self, **options: Any) -> AsyncGenerator[WireProbe]:
        """A peer of it."""
        async with WireProbe(self.company, **options) as probe:
            yield probe


def text_of(result: dict[str, Any]) -> str:
    """The one text in a result."""
    (block,) = result["content"]
    return cast("str", block["text"])
