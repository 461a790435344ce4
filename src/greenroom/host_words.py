"""What a host is asked for, once it runs: tools by names that say whose they are, for a program and for its model; resources, prompts, pins."""

from __future__ import annotations

import logging
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar, cast, overload

from greenroom.actors.client.errors import NotReady
from greenroom.actors.client.task_only import is_task_only
from greenroom.actors.federation.agent import AS_SET, Agent
from greenroom.actors.federation.federation_errors import InvalidArguments, NoSeparator, UnknownServer
from greenroom.protocol.definitions import Prompt, Resource, ResourceTemplate, Tool
from greenroom.protocol.pins import Pins
from greenroom.protocol.received import read_page, read_tool_reply
from greenroom.protocol.reply_values import Promise

from .client import NO_PROMISE, ClientTools, Promises
from .errors import suggests

if TYPE_CHECKING:
    import os
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from greenroom.actors.client.seam import Line, Progress
    from greenroom.actors.federation.federation import Federation
    from greenroom.actors.federation.offering import Part
    from greenroom.actors.federation.tool_catalogue import ToolCatalogue
    from greenroom.protocol.pins import PinReport
    from greenroom.protocol.received import PromptReply, ResourceReply, ToolReply

    from .client_words import ClientWords

P = ParamSpec("P")
T = TypeVar("T")
_log: Final = logging.getLogger("greenroom.agent")


def _of_agent(
    word: Callable[Concatenate[Agent, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[HostWords, P], Coroutine[Any, Any, T]]:
    """A word of the host's agent as one of the host, once that is open; with its signature and what is written of it."""
    name = word.__name__

    @wraps(word)
    async def asked(self: HostWords, /, *args: P.args, **kwargs: P.kwargs) -> T:
        self.check_open()
        ask: Callable[P, Coroutine[Any, Any, T]] = getattr(self.agent, name)
        return await ask(*args, **kwargs)

    return asked


class HostWords:
    """The words. `Host` has the servers."""

    federation: Federation
    agent: Agent
    _pin_file: str | os.PathLike[str] | None = None

    def server(self, id: str) -> HostedServer:
        """One server, with all the words of a client."""
        raise NotImplementedError

    def check_open(self) -> None:
        """Raise `NotReady` unless the host is open."""
        raise NotImplementedError

    # --- tools

    async def catalogue(self) -> ToolCatalogue:
        """All tools, whose they are, which servers are left out and why, and what has become of what was pinned."""
        self.check_open()
        return await self.agent.catalogue()

    async def tools(self) -> list[Tool]:
        """All tools under their names here. Raises `ToolCollision`."""
        self.check_open()
        return list(read_page(Tool, {"tools": await self.agent.list_tools()}).items)

    to_anthropic = _of_agent(Agent.to_anthropic)
    to_openai = _of_agent(Agent.to_openai)
    to_gemini = _of_agent(Agent.to_gemini)
    from_anthropic_call = _of_agent(Agent.from_anthropic_call)
    from_openai_call = _of_agent(Agent.from_openai_call)
    from_gemini_call = _of_agent(Agent.from_gemini_call)
    run = _of_agent(Agent.run)

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
        self.check_open()
        given = {**(arguments or {}), **more}
        tool = await self.agent.checked(name, given)
        return await self.server(tool.server).call(tool.tool, given, into=into)

    @suggests(
        "call_tool()", otherwise="a tool's arguments are one dict: call_tool(name, {{'{0}': …}}), or call(name, {0}=…)"
    )
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: Callable[[Progress], Any] | None = None,
        timeout: float | None = AS_SET,
        meta: Mapping[str, Any] | None = None,
    ) -> ToolReply:
        """Call a tool, and have all that it answered. Arguments that do not fit are raised, or are a reply, as `invalid` says."""
        self.check_open()
        given = dict(arguments or {})
        try:
            tool = await self.agent.checked(name, given, timeout=timeout)
        except InvalidArguments as error:
            return read_tool_reply(self.agent.excused(error))
        words = HostedServer(self.federation, tool.server)
        if timeout is not AS_SET:
            words = words.within(timeout)
        return await words.call_tool(tool.tool, given, on_progress=on_progress, meta=meta)

    # --- resources and prompts

    async def resources(self) -> list[Resource]:
        """All resources of the servers that have said what they offer, by URIs that say whose they are: `git:file:///x`."""
        entries = [{**one, "uri": self._name(id, uri)} for id, uri, one in await self._listed("resources")]
        return list(read_page(Resource, {"resources": entries}).items)

    async def resource_templates(self) -> list[ResourceTemplate]:
        """All templates, likewise."""
        entries = [{**one, "uriTemplate": self._name(id, uri)} for id, uri, one in await self._listed("templates")]
        return list(read_page(ResourceTemplate, {"resourceTemplates": entries}).items)

    async def prompts(self) -> list[Prompt]:
        """All prompts, likewise."""
        entries = [{**one, "name": self._name(id, name)} for id, name, one in await self._listed("prompts")]
        return list(read_page(Prompt, {"prompts": entries}).items)

    async def read_resource(self, uri: str) -> ResourceReply:
        """What is in a resource, by its URI here."""
        words, own = self._split(uri)
        return await words.read_resource(own)

    async def get_prompt(self, name: str, arguments: Mapping[str, Any] | None = None, /, **more: Any) -> PromptReply:
        """A prompt with these arguments, by its name here."""
        words, own = self._split(name)
        return await words.get_prompt(own, arguments, **more)

    async def _listed(self, part: Part) -> list[tuple[str, str, Mapping[str, Any]]]:
        """The same, once all of them have listed it: where it was not wanted before, they are asked only now."""
        self.check_open()
        for id, error in (await self.federation.listed(part, timeout=self.agent.patience)).items():
            _log.warning("the %s of %s are left out: %s", part, id, error)
        return self._offered(part)

    def _offered(self, part: Part) -> list[tuple[str, str, Mapping[str, Any]]]:
        known = {id: self.federation.known(id) for id in self.federation.ids()}
        return [
            (id, name, one)
            for id, offering in known.items()
            if offering is not None
            for name, one in offering.part(part).items()
        ]

    def _name(self, id: str, name: str) -> str:
        return f"{id}{self.agent.separator}{name}"

    def _split(self, name: str) -> tuple[HostedServer, str]:
        self.check_open()
        id, found, own = name.partition(self.agent.separator)
        if not found:
            error = NoSeparator(name)
            error.separator = self.agent.separator
            raise error
        return self.server(id), own

    # --- pins

    async def pin_report(self) -> PinReport | None:
        """What has become of the tools that were pinned; None when there are no pins."""
        self.check_open()
        return (await self.agent.catalogue()).pins

    async def pin(self) -> Pins:
        """Approve of all tools as they are now: those of servers that are away stay as they were pinned. Written to the file, if there is one."""
        self.check_open()
        offered = self._offered("tools")
        known = {id for id in self.federation.ids() if self.federation.known(id) is not None}
        before = self.agent.pins or Pins()
        gone = [id for id in before.to_json() if id.partition(":")[0] in known]
        pins = before.pinned({f"{id}:{name}": one for id, name, one in offered}, gone)
        if self._pin_file is not None:
            pins.save(self._pin_file)
        self.agent.pins = pins
        return pins


# --- One server of a host, with all the words that a client has for its own: its line outlives the server's restarts and replacements.

NOT_OPEN: Final = "the host is not open: write `async with host:` around what uses it"


class HostedServer(ClientTools):
    """Made by `Host.server`."""

    def __init__(self, federation: Federation, id: str) -> None:
        """The federation, and the server's id in it."""
        self._federation = federation
        self._id = id
        self.promises = _Offered(federation, id)

    def __repr__(self) -> str:
        return f"<HostedServer {self._id}>"

    @property
    def line(self) -> Line:
        """The way to the server."""
        line = self._federation.line(self._id)
        if line is None and self._id in self._federation.first:
            raise NotReady(NOT_OPEN)
        if line is None:
            raise UnknownServer(self._id, self._federation.ids())
        return line

    def _is_task_only(self, name: str) -> bool | None:
        """Whether the server takes calls of this tool as tasks only: as its list says, which the federation keeps."""
        offering = self._federation.known(self._id)
        return None if offering is None else is_task_only(offering.tools.get(name))

    def _call_timeout(self) -> float | None:
        """How long a call of a tool may take that says nothing of it."""
        return self._federation.timeout(self._id, "tools/call")

    def within(self, seconds: float | None) -> HostedServer:
        """The same words with another deadline; None waits for ever."""
        view = HostedServer(self._federation, self._id)
        view._timeout = seconds
        return view


class _Offered(Promises):
    """What tools promise, from the lists that the federation keeps anyway; asked for where it has not had them yet."""

    def __init__(self, federation: Federation, id: str) -> None:
        super().__init__()
        self._federation = federation
        self._id = id
        self._serial = 0

    def begin(self, name: str, words: ClientWords) -> Callable[[], Awaitable[tuple[Promise, bool]]]:
        """What the tool of the server that has the id now promises: by the time of the reply another one may have it, or none."""
        upstream = self._federation.roster.get(self._id)
        if upstream is None:
            return super().begin(name, words)
        if upstream.serial != self._serial:
            self._serial = upstream.serial
            self.forget()
        generation, offering = upstream.line.status.generation, upstream.own_offering

        async def promised() -> tuple[Promise, bool]:
            known = offering if upstream.line.status.generation == generation else None
            known = known or upstream.own_offering
            if known is not None:
                tool = known.tools.get(name)
                return Promise(None if tool is None else cast("Any", tool.get("outputSchema"))), True
            if self._federation.serial(self._id) != upstream.serial:
                return NO_PROMISE, True
            return await self.of(name, words), True

        return promised
