"""`Host`: what a program writes to use many servers at once, for itself or for its model.

::

    async with Host({"git": Command("uvx", "mcp-server-git"), "web": "http://127.0.0.1:8000/mcp"}) as host:
        log = await host.call("git:log", {"n": 3})
        tools = await host.to_anthropic()             # or to_openai(): names that the provider takes
        answer = await host.run(block)                # what the model wanted done, in the provider's own shape

It is no process. Behind it is a federation, whose servers are each kept by a supervisor of its own: one that does not come up, dies or hangs
is nobody else's affair. Servers are added, replaced and removed while it runs.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar, overload

from greenroom.actors.client.settings import ClientSettings
from greenroom.actors.federation.agent import PATIENCE, TIMEOUT, Agent
from greenroom.actors.federation.agent_errors import InvalidArguments, NoSeparator, UnknownServer
from greenroom.actors.federation.federation import Federation
from greenroom.actors.federation.specs import UpstreamSpec
from greenroom.protocol.definitions import Prompt, Resource, ResourceTemplate, Tool
from greenroom.protocol.pins import Pins
from greenroom.protocol.received import read_page, read_tool_reply
from greenroom.supervision import whereis
from greenroom.supervision.kernel.current import node_of

from .answering import Callbacks, check_roots
from .errors import ConfigError
from .hosted import HostedServer
from .hosting import Hosting
from .server import Server
from .targets import Guest, route_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from types import TracebackType

    from greenroom.actors.client.handler import ClientHandler
    from greenroom.actors.client.seam import Line, Progress
    from greenroom.actors.federation.agent import Invalid
    from greenroom.actors.federation.specs import Change, Standing
    from greenroom.actors.federation.tool_catalogue import Aliases, ToolCatalogue
    from greenroom.protocol.pins import PinReport, Policy
    from greenroom.protocol.received import PromptReply, ResourceReply, ToolReply
    from greenroom.supervision import ChildSpec

    from .answering import Roots
    from .client_tools import ClientTools
    from .client_words import ClientWords
    from .targets import Target

    SomeServer: TypeAlias = Target | UpstreamSpec
    SomePins: TypeAlias = Pins | Mapping[str, Any] | str | os.PathLike[str]

T = TypeVar("T")


class Host:
    """Many servers, by ids that a program gives them."""

    def __init__(  # noqa: PLR0913 - which servers, how their tools are called, and a function for each thing that they may ask or say
        self,
        servers: Mapping[str, SomeServer] | None = None,
        *,
        separator: str = ":",
        aliases: Aliases | None = None,
        invalid: Invalid = "raise",
        pins: SomePins | None = None,
        policy: Policy = "report",
        sampling: Callable[[str, Any], Any] | None = None,
        elicitation: Callable[[str, Any], Any] | None = None,
        url_elicitation: Callable[[str, Any], Any] | None = None,
        roots: Roots | Callable[[str], Any] | None = None,
        on_log: Callable[[str, Any], Any] | None = None,
        settings: ClientSettings | None = None,
        patience: float = PATIENCE,
        name: str = "host",
    ) -> None:
        """`servers` are URLs, commands, `Server`s, routes, or an `UpstreamSpec` where more is to be said of one.

        `sampling`, `elicitation`, `url_elicitation`, `roots` and `on_log` are as a client's, and get the server's id first. `pins` are a file
        or a mapping, and by `policy` a tool that is not as it was pinned is only reported, or refused. `patience` is how long a
        catalogue waits for a server that has never said what it offers.
        """
        if roots is not None and not callable(roots):
            check_roots(roots)
        self._answers: dict[str, Any] = {
            "sampling": sampling,
            "elicitation": elicitation,
            "url_elicitation": url_elicitation,
            "roots": roots,
            "on_log": on_log,
        }
        self._settings = settings or ClientSettings()
        self._separator = separator
        self._guests: dict[str, Guest] = {}
        self._turns: dict[str, int] = {}
        self._specs = {id: self._spec(id, server) for id, server in (servers or {}).items()}
        self.federation = Federation(self._specs, name=name)
        """The servers as actors have them."""
        self._pin_file = pins if isinstance(pins, str | os.PathLike) else None
        self.agent = Agent(
            self.federation,
            separator=separator,
            aliases=aliases,
            invalid=invalid,
            pins=_pins(pins),
            policy=policy,
            patience=patience,
        )
        """All tools as one set."""
        self._words: dict[str, HostedServer] = {}
        self._hosting = Hosting(self.child_spec)
        self._holders = 0

    def __repr__(self) -> str:
        return f"<Host of {', '.join(self.federation.ids() or self._specs) or 'nobody'}>"

    def _spec(self, id: str, server: SomeServer) -> UpstreamSpec:
        if not id or self._separator in id:
            raise ConfigError(f"a server's id is a text without {self._separator!r} in it, not {id!r}")
        self._guests.pop(id, None)
        if isinstance(server, Server):
            self._guests[id] = Guest(server)
        self._turns[id] = self._turns.get(id, 0) + 1
        spec = server if isinstance(server, UpstreamSpec) else UpstreamSpec(route_of(server), settings=self._settings)
        return spec if spec.handler is not None else replace(spec, handler=lambda: self._handler(id))

    def _handler(self, id: str) -> ClientHandler:
        told: dict[str, Any] = {word: partial(one, id) if callable(one) else one for word, one in self._answers.items()}
        return Callbacks(**told)

    # --- life

    def child_spec(self) -> ChildSpec[Any]:
        """All of it as a child of anybody's supervisor; it then needs no `async with`."""
        return self.federation.child_spec()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Begin with all servers, and wait for none. Each time that it is opened it has to be closed."""
        entered: list[Guest] = []
        try:
            if not self._holders:
                for guest in tuple(self._guests.values()):
                    await guest.enter()
                    entered.append(guest)
            await self._hosting.hold()
        except BaseException:
            for guest in entered:
                await guest.leave()
            raise
        self._holders += 1

    async def close(self) -> None:
        """Let go of it. What is under way gets `ClientClosed`."""
        self._holders -= 1
        try:
            await self._hosting.let_go()
        finally:
            if not self._holders:
                for guest in tuple(self._guests.values()):
                    await guest.leave()

    @property
    def _runs(self) -> bool:
        return node_of(asyncio.get_running_loop()) is not None and whereis(self.federation.name("steward")) is not None

    # --- who is in it

    async def add(self, id: str, server: SomeServer) -> None:
        """One more. It need not be reachable yet. Raises `AlreadyRegistered`."""
        if id in self._specs:
            raise ConfigError(f"there is a server called {id!r}: replace it, or remove it first")
        spec = self._spec(id, server)
        if self._runs:
            await self._enter(id)
            await self.federation.start(id, spec)
        else:
            self.federation.first = {**self.federation.first, id: spec}
        self._specs[id] = spec

    async def replace(self, id: str, server: SomeServer, *, ready_within: float = 30.0, keep_old: bool = False) -> None:
        """Another one under the same id. What is under way comes to its end on the old one.

        With `keep_old`, a new one that is not ready in time is given up, and `Unavailable` raised.
        """
        self._known(id)
        before = self._guests.get(id)
        spec = self._spec(id, server)
        await self._enter(id)
        await self.federation.replace(id, spec, ready_within=ready_within, keep_old=keep_old)
        self._specs[id] = spec
        if before is not None:
            await before.leave()

    async def remove(self, id: str, grace: float | None = None) -> None:
        """One less; what is under way has so many seconds to end. Raises `UnknownServer`."""
        self._known(id)
        await self.federation.stop(id, grace)
        self._specs.pop(id, None)
        self._words.pop(id, None)
        guest = self._guests.pop(id, None)
        if guest is not None:
            await guest.leave()

    async def _enter(self, id: str) -> None:
        guest = self._guests.get(id)
        if guest is not None:
            await guest.enter()

    def _known(self, id: str) -> None:
        if id not in self._specs:
            raise UnknownServer(id, self._specs)

    def server(self, id: str) -> ClientTools:
        """One server, with all the words of a client. Raises `UnknownServer`."""
        self._known(id)
        words = self._words.get(id)
        if words is None:
            words = self._words[id] = HostedServer(self.federation, id)
        return words

    def connection(self, id: str, handler: ClientHandler) -> tuple[ChildSpec[Any], Line]:
        """Another connection to one of the servers, for somebody of its own: the child that keeps it, and the line."""
        self._known(id)
        return replace(self._specs[id], handler=lambda: handler).connected(id)

    def turn(self, id: str) -> int:
        """Which server it is that has this id now: another number after it was replaced. Raises `UnknownServer`."""
        self._known(id)
        return self._turns[id]

    # --- how they are

    def status(self) -> dict[str, Standing]:
        """How each of them is: its state, and why it is not ready."""
        return self.federation.standings()

    def watch(self) -> AsyncGenerator[Standing]:
        """How each of them is, and each change of that."""
        return self.federation.watch()

    def changes(self) -> AsyncGenerator[Change]:
        """What is different in what they offer, from now on."""
        return self.federation.changes()

    def retry(self, id: str) -> None:
        """Try now: whatever was parked, backs off or has its breaker open."""
        self.federation.retry(id)

    # --- tools

    async def catalogue(self) -> ToolCatalogue:
        """All tools, whose they are, which servers are left out and why, and what has become of what was pinned."""
        return await self.agent.catalogue()

    async def tools(self) -> list[Tool]:
        """All tools under their names here. Raises `ToolCollision`."""
        return list(read_page(Tool, {"tools": await self.agent.list_tools()}).items)

    async def to_anthropic(self) -> list[dict[str, Any]]:
        """All tools as one provider takes them."""
        return await self.agent.to_anthropic()

    async def to_openai(self) -> list[dict[str, Any]]:
        """All tools as the other takes them."""
        return await self.agent.to_openai()

    async def from_anthropic_call(self, call: Any) -> tuple[str, dict[str, Any]]:
        """What a model wants: the tool's name here, and the arguments."""
        return await self.agent.from_anthropic_call(call)

    async def from_openai_call(self, call: Any) -> tuple[str, dict[str, Any]]:
        """What a model wants: the tool's name here, and the arguments."""
        return await self.agent.from_openai_call(call)

    async def run(self, call: Any, *, timeout: float | None = TIMEOUT) -> dict[str, Any]:
        """Do what a model wants, and give back what it gets, in its provider's shape: whatever goes wrong is a result as well."""
        return await self.agent.run(call, timeout=timeout)

    @overload
    async def call(
        self, name: str, arguments: Mapping[str, Any] | None = ..., /, *, into: type[T], **more: Any
    ) -> T: ...

    @overload
    async def call(
        self, name: str, arguments: Mapping[str, Any] | None = ..., /, *, into: Any = ..., **more: Any
    ) -> Any: ...

    async def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, /, *, into: Any = None, **more: Any
    ) -> Any:
        """Call a tool for its value, as a client's `call` does. Raises what that raises, `InvalidArguments`, and what a wrong name raises."""
        given = {**(arguments or {}), **more}
        tool = await self.agent.checked(name, given)
        return await self.server(tool.server).call(tool.tool, given, into=into)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: Callable[[Progress], Any] | None = None,
        timeout: float | None = TIMEOUT,
        meta: Mapping[str, Any] | None = None,
    ) -> ToolReply:
        """Call a tool, and have all that it answered. Arguments that do not fit are raised, or are a reply, as `invalid` says."""
        given = dict(arguments or {})
        try:
            tool = await self.agent.checked(name, given, timeout=timeout)
        except InvalidArguments as error:
            return read_tool_reply(self.agent.excused(error))
        words = HostedServer(self.federation, tool.server).within(timeout)
        return await words.call_tool(tool.tool, given, on_progress=on_progress, meta=meta)

    # --- resources and prompts

    async def resources(self) -> list[Resource]:
        """All resources of the servers that have said what they offer, by URIs that say whose they are: `git:file:///x`."""
        entries = [{**one, "uri": self._name(id, uri)} for id, uri, one in self._offered("resources")]
        return list(read_page(Resource, {"resources": entries}).items)

    async def resource_templates(self) -> list[ResourceTemplate]:
        """All templates, likewise."""
        entries = [{**one, "uriTemplate": self._name(id, uri)} for id, uri, one in self._offered("templates")]
        return list(read_page(ResourceTemplate, {"resourceTemplates": entries}).items)

    async def prompts(self) -> list[Prompt]:
        """All prompts, likewise."""
        entries = [{**one, "name": self._name(id, name)} for id, name, one in self._offered("prompts")]
        return list(read_page(Prompt, {"prompts": entries}).items)

    async def read_resource(self, uri: str) -> ResourceReply:
        """What is in a resource, by its URI here."""
        words, own = self._split(uri)
        return await words.read_resource(own)

    async def get_prompt(self, name: str, arguments: Mapping[str, Any] | None = None, /, **more: Any) -> PromptReply:
        """A prompt with these arguments, by its name here."""
        words, own = self._split(name)
        return await words.get_prompt(own, arguments, **more)

    def _offered(self, part: Any) -> list[tuple[str, str, Mapping[str, Any]]]:
        known = {id: self.federation.known(id) for id in self.federation.ids()}
        return [
            (id, name, one)
            for id, offering in known.items()
            if offering is not None
            for name, one in offering.part(part).items()
        ]

    def _name(self, id: str, name: str) -> str:
        return f"{id}{self._separator}{name}"

    def _split(self, name: str) -> tuple[ClientWords, str]:
        id, found, own = name.partition(self._separator)
        if not found:
            raise NoSeparator(name, self._specs)
        return self.server(id), own

    # --- pins

    async def pin_report(self) -> PinReport | None:
        """What has become of the tools that were pinned; None when there are no pins."""
        return (await self.agent.catalogue()).pins

    async def pin(self) -> Pins:
        """Approve of all tools as they are now: those of servers that are away stay as they were pinned. Written to the file, if there is one."""
        offered = self._offered("tools")
        known = {id for id in self.federation.ids() if self.federation.known(id) is not None}
        before = self.agent.pins or Pins()
        gone = [id for id in before.to_json() if id.partition(":")[0] in known]
        pins = before.pinned({f"{id}:{name}": one for id, name, one in offered}, gone)
        if self._pin_file is not None:
            pins.save(self._pin_file)
        self.agent.pins = pins
        return pins


def _pins(given: SomePins | None) -> Pins | None:
    if given is None or isinstance(given, Pins):
        return given
    return Pins.load(given) if isinstance(given, str | os.PathLike) else Pins(given)
