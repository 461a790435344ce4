"""The tool router: the tools of all servers as one catalogue, and calls by name routed to the right server.

It is no process. The federation keeps the servers' lists, and the router makes the catalogue again whenever one of them changes. A server that
does not answer is left out with a warning, after a short wait.

Arguments are checked against the tool's own schema before a call is sent: the caller (mostly a model) gets all mistakes at once, and
the server is not bothered with them.
"""

from __future__ import annotations

import asyncio
import logging
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from greenroom.actors.client.errors import RequestTimeout, Unavailable
from greenroom.actors.client.task_only_tools import call_as_task, is_task_only
from greenroom.actors.consent.rules import ConsentDenied
from greenroom.actors.offloaded_validation import run_check
from greenroom.errors import ConfigError, GreenroomError
from greenroom.protocol.provider_rules import title_of
from greenroom.protocol.received_results import read_tool_reply
from greenroom.protocol.serialization import is_object
from greenroom.protocol.tool_formats import (
    NotAToolCall,
    call_shape,
    called_name,
    can_show,
    read_call,
    to_anthropic,
    to_gemini,
    to_openai,
    to_result,
)
from greenroom.protocol.tool_pins import ToolRefused, tool_hash
from greenroom.protocol.validation import BadSchema, Validator
from greenroom.protocol.validation_errors import STEPS_IN_THREAD, StepsExceeded, too_costly_reason

from .federation_errors import (
    InvalidArguments,
    MisconfiguredServer,
    NoSeparator,
    ToolCollision,
    UnknownServer,
    UnknownTool,
)
from .tool_catalogue import FederatedTool, Naming, ToolCatalogue, merge
from .upstream_spec import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from greenroom.actors.client.interfaces import Line
    from greenroom.actors.consent.consent import Consent
    from greenroom.actors.output.output_limits import OutputLimiter
    from greenroom.protocol.provider_rules import Provider
    from greenroom.protocol.received_results import ToolReply
    from greenroom.protocol.tool_pins import PinComparison, Pins, Policy
    from greenroom.protocol.validation_errors import StepMeter, ValidationProblem

    from .offering import Offering, Upstreams
    from .tool_catalogue import Aliases

_log: Final = logging.getLogger("greenroom.agent")

Invalid: TypeAlias = Literal["raise", "result", "send"]
"""The policy for invalid arguments: raise `InvalidArguments`, return a result with `isError` that lists the problems, or send them all the same."""

AS_SET: Final[Any] = ...
"""The timeout that is set for the server: see `UpstreamSpec.tool_timeout`."""
_MOST_PIN_WARNINGS: Final = 20
_CONSENT_TRIES: Final = 3
"""How often consent is asked for one call whose tool changes in the meantime."""


class ToolRouter:
    """Lists and calls the tools of several servers, for a program or for its model."""

    def __init__(  # noqa: PLR0913 - each parameter is a policy of its own
        self,
        federation: Upstreams,
        *,
        separator: str = ":",
        aliases: Aliases | None = None,
        invalid: Invalid = "raise",
        pins: Pins | None = None,
        policy: Policy = "report",
        patience: float = PATIENCE,
        consent: Consent | None = None,
        limiter: OutputLimiter | None = None,
    ) -> None:
        """`patience` is how long a catalogue waits for a server whose lists are not known yet.

        `consent` decides about each call, `limiter` cuts results that are for a model.
        """
        self._upstreams = federation
        self.separator = separator
        """The separator between a server's id and the name of its tool."""
        self._naming = Naming(separator, aliases)
        if invalid not in ("raise", "result", "send"):
            raise ConfigError(f"invalid is 'raise', 'result' or 'send', not {invalid!r}")
        self._invalid: Invalid = invalid
        self.pins = pins
        """The pins that tools are compared with; None when nothing is pinned."""
        self._policy: Policy = policy
        self.patience = patience
        """How long to wait for the lists of a server, in seconds."""
        self._consent = consent
        self._limiter = limiter
        self.misconfigured: Callable[[], Mapping[str, str]] = dict
        """Configured servers that could not be made, and why, with file and line. Set by the host."""
        self._made: tuple[dict[str, Offering], dict[str, Offering], ToolCatalogue, Pins | None] | None = None
        self._validators: dict[tuple[str, str], tuple[Mapping[str, Any], Validator | None]] = {}
        self._told: set[str] = set()
        self._skipped: set[str] = set()
        self._refused: set[tuple[str, str, str]] = set()
        self._waited: dict[str, int | None] = {}
        """Servers for which a catalogue has waited in vain, with their serials: it does not wait for them again."""

    def with_upstreams(self, upstreams: Upstreams) -> ToolRouter:
        """A copy with the same names, pins and consent, over the lists that the servers offer to one client."""
        other = copy(self)
        other._reset(upstreams)  # noqa: SLF001 - of this class
        return other

    def _reset(self, upstreams: Upstreams) -> None:
        self._upstreams = upstreams
        self._made = None
        self._validators = {}
        self._told, self._skipped = set(self._told), set(self._skipped)

    # --- the catalogue

    async def catalogue(self) -> ToolCatalogue:
        """All tools of all servers that answer. Raises `ToolCollision`."""
        upstreams = self._upstreams
        await upstreams.freshen("tools")
        known = {id: upstreams.known(id) for id in upstreams.ids()}
        missing = [id for id, offering in known.items() if offering is None]
        if not missing:
            return self.snapshot()
        loop = asyncio.get_running_loop()
        began = loop.time()
        answers = await asyncio.gather(
            *(upstreams.offering(id, timeout=0.0 if self._waited_in_vain(id) else self.patience) for id in missing),
            return_exceptions=True,
        )
        took = loop.time() - began
        skipped: dict[str, Exception] = {}
        for id, answer in zip(missing, answers, strict=True):
            if isinstance(answer, Exception):
                skipped[id] = answer
                if took >= self.patience:
                    self._waited[id] = upstreams.serial(id)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                known[id] = answer
                self._waited.pop(id, None)
        return self._merged({id: one for id, one in known.items() if one is not None}, skipped)

    def _waited_in_vain(self, id: str) -> bool:
        """Whether a catalogue has already waited for this server, which has not been ready since."""
        return id in self._waited and self._waited[id] == self._upstreams.serial(id)

    def wait_again_for(self, id: str) -> None:
        """Let the next catalogue wait for this server again: it is being retried."""
        self._waited.pop(id, None)

    def snapshot(self) -> ToolCatalogue:
        """All tools that are known now, without waiting. Raises `ToolCollision`."""
        upstreams = self._upstreams
        return self._merged({id: one for id in upstreams.ids() if (one := upstreams.known(id)) is not None}, {})

    def _merged(self, offerings: dict[str, Offering], skipped: dict[str, Exception]) -> ToolCatalogue:
        """The catalogue of these offerings; the last one if nothing has changed."""
        upstreams = self._upstreams
        shown = {id: one for id in offerings if (one := upstreams.shown(id)) is not None and one is not offerings[id]}
        made = self._made
        if (
            made is None
            or made[3] is not self.pins
            or not (same_objects(made[0], offerings) and same_objects(made[1], shown))
        ):
            made = self._made = (offerings, shown, self._fresh(offerings, shown), self.pins)
        catalogue = made[2]
        for id in {one.server for one in catalogue.withdrawn.values()}:
            if (refusal := upstreams.refusal(id)) is not None:
                skipped[id] = refusal
        if not skipped:
            self._skipped.clear()
            return catalogue
        for id, error in skipped.items():
            if id not in self._skipped:
                _log.warning("the tools of %s are left out: %s", id, error)
        self._skipped = set(skipped)
        return replace(catalogue, skipped=skipped)

    def _fresh(self, offerings: dict[str, Offering], shown: dict[str, Offering]) -> ToolCatalogue:
        """Make a catalogue. Differences from the pins are logged once."""
        catalogue = merge(offerings, self._naming, shown=shown, pins=self.pins, policy=self._policy)
        self._validators = {id: one for id, one in self._validators.items() if id[0] in offerings}
        if catalogue.pins is not None:
            found = {str(one) for one in catalogue.pins.findings.values() if one.kind != "same"}
            for text in sorted(found - self._told)[:_MOST_PIN_WARNINGS]:
                _log.warning("%s", text)
            self._told = found
        return catalogue

    async def list_tools(self, *, for_models: bool = False) -> list[dict[str, Any]]:
        """The definitions of all tools that are not denied, under their full names; `for_models` leaves out those that are only for apps."""
        return [
            one.listed_as(one.name)
            for one in await self.catalogue()
            if (one.is_for_models or not for_models) and not self.denies(one.server, one.tool)
        ]

    def denies(self, server: str, tool: str) -> bool:
        """Whether the rules deny this tool; a denied tool is not listed."""
        return self._consent is not None and self._consent.denies(server, tool)

    async def to_anthropic(self) -> list[dict[str, Any]]:
        """The catalogue in Anthropic's format, under names that are legal there.

        A tool for which the provider would refuse the whole request is left out with a warning.
        """
        return to_anthropic(await self._for("anthropic"))

    async def to_openai(self) -> list[dict[str, Any]]:
        """The catalogue in OpenAI's format, likewise."""
        return to_openai(await self._for("openai"))

    async def to_gemini(self) -> list[dict[str, Any]]:
        """The catalogue in Gemini's format, likewise: declarations for `tools=[{"function_declarations": await host.to_gemini()}]`."""
        return to_gemini(await self._for("gemini"))

    async def _for(self, provider: Provider) -> list[dict[str, Any]]:
        """The definitions for a provider, without the tools that it would refuse; those are logged once."""
        catalogue = await self.catalogue()
        refused = catalogue.refused_by(provider)
        for name, why in refused.items():
            if (provider, name, why) not in self._refused:
                _log.warning("%s is left out for %s: %s", name, title_of(provider), why)
        self._refused = {one for one in self._refused if one[0] != provider}
        self._refused |= {(provider, name, why) for name, why in refused.items()}
        denied = {one.name for one in catalogue if not one.is_for_models or self.denies(one.server, one.tool)}
        return catalogue.for_providers({*refused, *denied})

    # --- finding a tool

    async def find(self, name: str, *, timeout: float | None = AS_SET) -> FederatedTool:
        """The tool of this name. Raises `NoSeparator`, `UnknownServer`, `UnknownTool`, `ToolRefused`, or the error of a server that does not answer."""
        if name.startswith("mcp__") and self.separator not in name:
            name = (await self.catalogue()).claude_names.get(name, name)
        ids = self._upstreams.ids()
        found: list[FederatedTool] = []
        names: list[str] = []
        for server, tool in self._candidates(name, ids):
            if server not in ids:
                raise self.unknown(server)
            offering = await self._awaited(server, timeout)
            definition = offering.tools.get(tool)
            if definition is not None:
                found.append(FederatedTool(name, server, tool, definition))
            names += [self._naming.name_of(server, other) for other in offering.tools]
        if not found:
            raise UnknownTool(name, names)
        if len(found) > 1:
            raise ToolCollision(name, (found[0].server, found[0].tool), (found[1].server, found[1].tool))
        self._admit(found[0])
        return found[0]

    async def _awaited(self, server: str, timeout: float | None) -> Offering:
        """The lists of a server. While it is being started, a call waits as long as its deadline and the patience allow."""
        seconds = self._upstreams.timeout(server, "tools/call") if timeout is AS_SET else timeout
        if seconds is None or seconds >= self.patience:
            return await self._upstreams.offering(server, timeout=self.patience)
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        try:
            return await self._upstreams.offering(server, timeout=seconds)
        except Unavailable as error:
            if loop.time() < until:
                raise
            raise RequestTimeout("tools/call", seconds) from error

    def _candidates(self, name: str, ids: Collection[str]) -> list[tuple[str, str]]:
        """The servers and tools that a name may mean. For a name without a server's, the error suggests the full names of tools called so."""
        try:
            return self._naming.candidates(name, ids)
        except NoSeparator as error:
            having = (one.name for one in self.snapshot() if one.tool == name)
            error.separator = self.separator
            error.suggestions = tuple(islice(having, 3)) or error.suggestions
            raise
        except UnknownServer as error:
            raise self.unknown(error.name) from None

    def unknown(self, server: str) -> UnknownServer:
        """The error for an unknown server id; with the mistake, where the server is configured wrongly."""
        why = self.misconfigured().get(server)
        return UnknownServer(server, self._upstreams.ids()) if why is None else MisconfiguredServer(server, why)

    def missing(self, name: str, skipped: Mapping[str, Exception]) -> tuple[str, Exception] | None:
        """For an unknown tool name: the server whose tool it may be, if the lists of that server are not known; and why they are not."""
        why: dict[str, Exception] = {id: self.unknown(id) for id in self.misconfigured()}
        why.update(skipped)
        found = [id for id in why if self._naming.may_be(name, id)]
        id = max(
            found, key=len, default=None
        )  # the longest id: a name with `a__b` belongs to the server `a__b` rather than to `a`
        return None if id is None else (id, why[id])

    def _admit(self, tool: FederatedTool) -> None:
        """Raise `ToolRefused` for a tool that differs from its pin, if that is the policy."""
        if self.pins is None or self._policy == "report":
            return
        report = self.snapshot().pins
        finding = None if report is None else report.refused.get(tool.pin_id)
        if finding is not None:
            raise ToolRefused(finding)

    def name_of(self, server: str, tool: str) -> str:
        """The full name of a server's tool."""
        return self._naming.name_of(server, tool)

    async def checked(
        self, name: str, arguments: Mapping[str, Any], *, timeout: float | None = AS_SET
    ) -> FederatedTool:
        """The tool of this name, if these arguments are valid and the call is allowed.

        Raises as `find`, and `InvalidArguments` (unless invalid ones are sent) and `ConsentDenied`.
        """
        for _ in range(_CONSENT_TRIES):
            tool = await self.find(name, timeout=timeout)
            if (refusal := self._upstreams.refusal(tool.server)) is not None:
                raise refusal  # before the user is asked for consent
            if self._invalid != "send" and (problems := await self._problems(tool, arguments)):
                raise InvalidArguments(name, problems)
            if await self._consented(tool, arguments):
                return tool
        raise ConsentDenied(name, "it has become another tool whenever it was allowed")

    async def permitted(
        self, server: str, tool: str, arguments: Mapping[str, Any], *, timeout: float | None
    ) -> int | None:
        """Wait until this tool of this server may be called. Returns the serial of the server that this holds for.

        Raises `UnknownTool`, `ToolRefused`, `ConsentDenied`.
        """
        name = self.name_of(server, tool)
        for _ in range(_CONSENT_TRIES):
            definition = (await self._upstreams.offering(server, timeout=timeout)).tools.get(tool)
            if (refusal := self._upstreams.refusal(server)) is not None:
                raise refusal
            if definition is None:
                raise UnknownTool(name, ())
            found = FederatedTool(name, server, tool, definition)
            self._admit(found)
            if await self._consented(found, arguments):
                return self._upstreams.serial(server)
        raise ConsentDenied(name, "it has become another tool whenever it was allowed")

    def may_ask_users(self, server: str) -> bool:
        """Whether this server may ask users who answer for themselves, as those of a gateway do: unless the rules deny that."""
        return self._consent is None or not self._consent.denies_elicitation(server)

    async def _consented(self, tool: FederatedTool, arguments: Mapping[str, Any]) -> bool:
        """Ask for consent. False when the server or its tool changed while the user decided. Raises `ConsentDenied`."""
        if self._consent is None:
            return True
        serial = self._upstreams.serial(tool.server)
        await self._consent.tool(tool.server, tool.tool, tool.definition, arguments, self._finding(tool))
        offering = self._upstreams.known(tool.server)
        now = None if offering is None else offering.tools.get(tool.tool)
        if now is None or self._upstreams.serial(tool.server) != serial:
            return False
        return now is tool.definition or tool_hash(now) == tool_hash(tool.definition)

    def _finding(self, tool: FederatedTool) -> PinComparison | None:
        """The comparison of this tool with its pin, where there are pins."""
        report = None if self.pins is None else self.snapshot().pins
        return None if report is None else report.findings.get(tool.pin_id)

    def _line(self, server: str) -> Line:
        line = self._upstreams.line(server)
        if line is None:
            raise self.unknown(server)
        return line

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = AS_SET,
        more: Mapping[str, Any] | None = None,
        shape: str = "",
        on_reply: Callable[[str, ToolReply], object] | None = None,
    ) -> dict[str, Any]:
        """Call a tool. Returns the result as on the wire, cut to what fits a reply of this `shape`; `isError` is not raised.

        `more` are further members of the params: `task`, `_meta`. The name is split at the first separator. `on_reply` is called with the tool's
        full name and the whole reply, before it is cut. Raises as `checked`, and the errors of the request.
        """
        given = dict(arguments or {})
        try:
            tool = await self.checked(name, given, timeout=timeout)
        except InvalidArguments as error:
            return self.invalid_arguments_result(error)
        params = {**(more or {}), "name": tool.tool, "arguments": given}
        line = self._line(tool.server)
        if is_task_only(tool.definition) and "task" not in params:
            seconds = self._upstreams.timeout(tool.server, "tools/call") if timeout is AS_SET else timeout
            result = await call_as_task(line, params, timeout=seconds)
        else:
            options = {"as_task": True} if "task" in params else {}
            result = await line.begin("tools/call", params, timeout=timeout, **options).result()
        if on_reply is not None:
            on_reply(tool.name, read_tool_reply(result))
        if self._limiter is None:
            return result
        return self._limiter.limited(tool.server, tool.tool, result, partial(can_show, shape))

    async def _problems(self, tool: FederatedTool, arguments: Mapping[str, Any]) -> list[ValidationProblem]:
        """The problems of these arguments, by the server's own schema."""
        key = (tool.server, tool.tool)

        def check(meter: StepMeter) -> list[ValidationProblem]:
            kept = self._validators.get(key)
            if kept is None or kept[0] is not tool.definition:
                kept = self._validators[key] = (tool.definition, _validator(tool, meter))
            return [] if kept[1] is None else kept[1].check(arguments, meter)

        try:
            return await run_check(check, tool.server)
        except StepsExceeded:
            return [too_costly_reason(STEPS_IN_THREAD)]

    def invalid_arguments_result(self, error: InvalidArguments) -> dict[str, Any]:
        """The error as a tool result, if that is the policy; else it is raised."""
        if self._invalid == "raise":
            raise error
        return error_result(error)

    # --- models

    async def from_anthropic_call(self, call: Any) -> tuple[str, dict[str, Any]]:
        """Read a model's call: the tool's full name, and the arguments. Raises `BadCall` or `UnknownTool`."""
        read = read_call(call)
        try:
            return _named_for_models(self.snapshot(), read.name), read.arguments
        except UnknownTool:  # perhaps of a server whose lists are not known yet
            catalogue = await self.catalogue()
        try:
            return _named_for_models(catalogue, read.name), read.arguments
        except UnknownTool:
            if (missing := self.missing(read.name, catalogue.skipped)) is not None:
                raise missing[1] from None
            raise

    from_openai_call = from_gemini_call = (
        from_anthropic_call  # one reader for all: the shape of a call says which provider made it
    )

    async def run(
        self,
        call: Any,
        *,
        timeout: float | None = AS_SET,
        on_reply: Callable[[str, ToolReply], object] | None = None,
    ) -> dict[str, Any]:
        """Run a model's call. Returns the tool result in the provider's own format.

        Failures are results as well, with a text that the model can act on: an unknown name, invalid arguments, an unreachable server. Only
        a catalogue that cannot be made (`ToolCollision`) is raised, since no model can do anything about it, and `NotAToolCall`, for a value
        that is no tool call.

        `call` is a `tool_use` block, a tool call or `function_call` item, or a `functionCall` part, as a dict or as an object of the provider's SDK.
        `on_reply` is called with the tool's full name and the server's whole reply, if there is one, for example to show it in an app.
        """
        id, shape = call_shape(call)
        replies: list[tuple[str, ToolReply]] = []

        def keep(name: str, reply: ToolReply) -> None:
            replies.append((name, reply))

        try:
            name, arguments = await self.from_anthropic_call(call)
            result = await self.call_tool(
                name, arguments, timeout=timeout, shape=shape, on_reply=None if on_reply is None else keep
            )
        except (ToolCollision, NotAToolCall):
            raise
        except GreenroomError as error:
            result = error_result(error)
        if on_reply is not None and replies:
            on_reply(*replies[0])  # here, where its exceptions are the program's, and no text for the model
        return to_result(id, shape, result, called_name(call))


def _named_for_models(catalogue: ToolCatalogue, name: str) -> str:
    """The full name of the tool that a model calls so. A tool that is kept from models is unknown to them."""
    found = catalogue.named(name)
    tool = catalogue.tools.get(found)
    if tool is not None and not tool.is_for_models:
        raise UnknownTool(name, ())
    return found


def error_result(error: Exception) -> dict[str, Any]:
    """The error as a tool result, so that a model can read it and correct the call."""
    return {"content": [{"type": "text", "text": str(error)}], "isError": True}


def _validator(tool: FederatedTool, meter: StepMeter) -> Validator | None:
    """The validator of a tool's arguments; None when its schema cannot be used, so that the server checks them."""
    schema = tool.definition.get("inputSchema")
    if not is_object(schema):
        return None
    try:
        return Validator(schema, meter=meter)
    except BadSchema as error:
        _log.warning("the arguments of %s are not checked: %s", tool.name, error)
        return None


def same_objects(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether both mappings have the same keys with identical objects."""
    return one.keys() == other.keys() and all(one[id] is other[id] for id in one)
