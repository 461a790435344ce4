"""Premises without processes: each bench is a room in this node, so that what pools decide can be tested in virtual time."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from greenroom.actors.company import Company
from greenroom.actors.entries import completion_entry, prompt_entry, resource_entry, template_entry, tool_entry
from greenroom.actors.handlers import CompletionOptions, PromptOptions, ResourceOptions, TemplateOptions, ToolOptions
from greenroom.actors.pools.pools import Bench, Premises
from greenroom.actors.pools.worker_main import Seat
from greenroom.actors.settings import Settings
from greenroom.probe import WireProbe
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
from greenroom.supervision.cluster.node_records import Ending, NodeLost

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from greenroom.actors.pools.pool import Pool
    from greenroom.actors.pools.remote_call import Claims
    from greenroom.supervision import ChildSpec, Pid, Ref


class Room(GenServer):
    """Stands for the process; the worker in it goes with it."""

    async def seat(self, *args: Any, **limits: Any) -> Ref[Any]:
        try:
            self.inside = await start_link(Seat, *args, **limits)
        except StartFailed as error:
            raise Reject(error) from None
        return self.inside


class LocalBench(Bench):
    def __init__(self, who: Ref[Room], pool: Pool) -> None:
        self.who: Ref[Any] = who
        self.opener: Pid = self_pid()
        self.pool = pool
        self.ends = 0
        self.claims: Claims | None = None
        self.switched: list[bool] = []

    async def seat(self, home: Ref[Any], settings: Mapping[str, Any], plans: Mapping[int, bytes]) -> Ref[Any]:
        claims = None if self.claims is None else self.claims.path
        return await self.who.within(None).call(
            Room.seat, home, settings, plans, memory=self.pool.memory_limit, claims=claims
        )

    @property
    def is_open(self) -> bool:
        return is_alive(self.who)

    def busy(self, on: bool) -> None:  # noqa: FBT001 - a switch
        self.switched.append(on)

    def end(self) -> None:
        self.ends += 1
        self.lose(Ending(signal=9, asked=True))

    def lose(self, ending: Ending) -> None:
        """As if its process had ended so."""
        exit(self.who, Crash(NodeLost("room", ending)))

    def kill(self) -> None:
        kill(self.who)


class LocalPremises(Premises):
    """Opens as many as are wanted; `refuses` is raised instead."""

    def __init__(self) -> None:
        self.benches: list[LocalBench] = []
        self.attempts = 0
        self.refuses: Exception | None = None
        self.claims: Callable[[], Claims | None] = lambda: None

    @property
    def open_rooms(self) -> int:
        return sum(bench.is_open for bench in self.benches)

    def child_spec(self) -> ChildSpec[Any]:
        return child(DynamicSupervisor).but(id="rooms")

    async def open(self, pool: Pool) -> LocalBench:
        self.attempts += 1
        if self.refuses is not None:
            raise self.refuses
        bench = LocalBench(await start_link(Room), pool)
        bench.claims = self.claims()
        self.benches.append(bench)
        return bench


class House:
    """A company, and what is registered in it."""

    def __init__(self, premises: LocalPremises) -> None:
        self.premises = premises
        self.company = Company(Settings(name="test"), premises=premises)

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
        self.company.shelf.write(lambda catalogue: catalogue.put(entry))

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
