"""The tool catalogue: a snapshot of the tools of all servers, under full names made of the server's id and the tool's name.

Two tools with the same full name are an error that names both: neither hides the other. An alias, another name for a tool, solves that.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from greenroom.errors import ConfigError
from greenroom.protocol.provider_rules import ProviderNames, claude_name, provider_name
from greenroom.protocol.serialization import is_array, is_object
from greenroom.protocol.tool_formats import refusal_reasons

from .federation_errors import NoSeparator, ToolCollision, UnknownServer, UnknownTool

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from greenroom.actors.apps import Audience
    from greenroom.protocol.mirrored_headers import HeaderPlan
    from greenroom.protocol.provider_rules import Provider
    from greenroom.protocol.tool_pins import PinReport, Pins, Policy

    from .offering import Offering

ToolId: TypeAlias = "tuple[str, str]"
"""A server's id, and the tool's name at that server."""

Aliases: TypeAlias = "Mapping[str | ToolId, str]"
"""Another name for a tool: by `"git:log"`, or by `("git", "log")` where the id has a separator of its own."""


@dataclass(frozen=True, slots=True)
class FederatedTool:
    """A tool, and the server that has it."""

    name: str
    """The full name."""
    server: str
    tool: str
    """The tool's name at its server."""
    definition: Mapping[str, Any] = field(repr=False)
    """The definition as its server sent it."""
    shown: Mapping[str, Any] | None = field(default=None, repr=False)
    """The definition to list instead: while its server is away, or where a client would refuse the tool for a wrong annotation."""
    header_plan: HeaderPlan | None = field(default=None, repr=False, compare=False)
    """The arguments that HTTP headers of a call repeat; None for a tool without any."""

    @property
    def pin_id(self) -> str:
        """The id of its pin, which does not depend on aliases."""
        return f"{self.server}:{self.tool}"

    @property
    def is_for_models(self) -> bool:
        """Whether a model may see and call it; its server may keep it for the user interface of an app (`_meta.ui.visibility`)."""
        return self._is_for("model")

    @property
    def is_for_apps(self) -> bool:
        """Whether the document of an app of the same server may call it."""
        return self._is_for("app")

    @property
    def app_uri(self) -> str | None:
        """The URI of the document that shows its results, as the server has written it; None for a tool without an app."""
        uri: Any = self._ui.get("resourceUri")
        if uri is None:  # servers from before the extension was stable
            meta: Any = self.definition.get("_meta")
            uri = meta.get("ui/resourceUri") if is_object(meta) else None
        return uri if isinstance(uri, str) else None

    @property
    def _ui(self) -> Mapping[str, Any]:
        meta: Any = self.definition.get("_meta")
        shown: Any = meta.get("ui") if is_object(meta) else None
        return shown if is_object(shown) else {}

    def _is_for(self, audience: Audience) -> bool:
        visibility: Any = self._ui.get("visibility")
        return not is_array(visibility) or audience in visibility

    def listed_as(self, name: str) -> dict[str, Any]:
        """The definition to list, under this name."""
        return {**(self.definition if self.shown is None else self.shown), "name": name}


class Naming:
    """How full names are made and read: server id, separator, tool name."""

    def __init__(self, separator: str = ":", aliases: Aliases | None = None) -> None:
        """Raises `ConfigError` for an empty alias or separator, and `ToolCollision` for one alias of two tools."""
        if not separator:
            raise ConfigError("the separator between a server and its tool is one character or more")
        self.separator = separator
        self._aliases: dict[ToolId, str] = {}
        self._back: dict[str, ToolId] = {}
        for given, alias in (aliases or {}).items():
            id = self._tool_id(given)
            if not alias:
                raise ConfigError(f"the alias of {given!r} is empty")
            other = self._back.setdefault(alias, id)
            if other != id:
                raise ToolCollision(alias, other, id)
            self._aliases[id] = alias

    def _tool_id(self, given: str | ToolId) -> ToolId:
        if not isinstance(given, str):
            return given
        server, found, tool = given.partition(self.separator)
        if not found:
            raise ConfigError(
                f"an alias is for a server's tool, as in {{'git{self.separator}log': 'history'}}, not for {given!r}"
            )
        return server, tool

    def name_of(self, server: str, tool: str) -> str:
        """The full name of a tool."""
        return self._aliases.get((server, tool)) or f"{server}{self.separator}{tool}"

    def may_be(self, name: str, server: str) -> bool:
        """Whether a full name, ours or a provider's, looks like that of a tool of this server."""
        return name.startswith((f"{server}{self.separator}", provider_name(f"{server}{self.separator}x")[:-1]))

    def candidates(self, name: str, ids: Collection[str]) -> list[ToolId]:
        """The servers and tools that a name may mean, the likeliest first. Raises `NoSeparator` or `UnknownServer`.

        The name is split at the first separator. Only an id that contains the separator makes a second reading possible.
        """
        if (alias := self._back.get(name)) is not None:
            return [alias]
        places = [at for at in range(1, len(name)) if name.startswith(self.separator, at)]
        found = [(name[:at], name[at + len(self.separator) :]) for at in places if name[:at] in ids]
        found = [one for one in found if one not in self._aliases]  # an alias replaces the full name
        if found:
            return found
        if self.separator not in name:
            raise NoSeparator(name, self._back)
        raise UnknownServer(name.partition(self.separator)[0], ids)


@dataclass(frozen=True)
class ToolCatalogue:
    """All tools by full name, at one moment."""

    tools: Mapping[str, FederatedTool]
    skipped: Mapping[str, Exception] = field(default_factory=dict[str, Exception])
    """Servers whose tools are missing, and why."""
    pins: PinReport | None = None
    """The comparison with the pins; None without pins."""
    separator: str = ":"
    withdrawn: Mapping[str, FederatedTool] = field(default_factory=dict[str, FederatedTool])
    """Tools that are not listed while their server is away; calls by their names still find them."""
    _refusals: dict[Provider, Mapping[str, str]] = field(
        default_factory=dict["Provider", "Mapping[str, str]"], repr=False
    )

    def __iter__(self) -> Iterator[FederatedTool]:
        return iter(self.tools.values())

    def __len__(self) -> int:
        return len(self.tools)

    @cached_property
    def provider_names(self) -> ProviderNames:
        """The tools' names at providers of models."""
        return ProviderNames((*self.tools, *self.withdrawn), self.separator)

    @cached_property
    def claude_names(self) -> Mapping[str, str]:
        """Full names by the names that Claude Code gives (`mcp__git__log`), without those that two tools would share."""
        found: dict[str, list[str]] = {}
        for one in (*self.tools.values(), *self.withdrawn.values()):
            found.setdefault(claude_name(one.server, one.tool), []).append(one.name)
        return {name: tools[0] for name, tools in found.items() if len(tools) == 1}

    def for_providers(self, without: Collection[str] = ()) -> list[dict[str, Any]]:
        """The definitions under names that every provider accepts, without these tools."""
        names = self.provider_names
        return [one.listed_as(names.of(one.name)) for one in self.tools.values() if one.name not in without]

    def refused_by(self, provider: Provider) -> Mapping[str, str]:
        """The tools that a provider would refuse, by full name, and why."""
        if provider not in self._refusals:
            names = self.provider_names
            found = {
                one.name: refusal_reasons(provider, one.listed_as(names.of(one.name))) for one in self.tools.values()
            }
            self._refusals[provider] = {name: "; ".join(why) for name, why in found.items() if why}
        return self._refusals[provider]

    def named(self, name: str) -> str:
        """The full name for a name that a provider or another caller uses. Raises `UnknownTool`, which suggests names of the same kind."""
        if name in self.tools or name in self.withdrawn:
            return name
        found = self.provider_names.back(name) or self.claude_names.get(name)
        if found is None:
            raise UnknownTool(name, self.tools if self.separator in name else self.provider_names)
        return found


def merge(
    offerings: Mapping[str, Offering],
    naming: Naming,
    *,
    shown: Mapping[str, Offering] | None = None,
    pins: Pins | None = None,
    policy: Policy = "report",
) -> ToolCatalogue:
    """The catalogue of these servers' tools, without those that the pins refuse. Raises `ToolCollision`.

    `shown` are the lists to show, for servers where these differ.
    """
    tools: dict[str, FederatedTool] = {}
    for server, offering in offerings.items():
        for tool, definition in offering.tools.items():
            name = naming.name_of(server, tool)
            shown_as = offering.listable(tool) if tool in offering.bad_annotations else None
            found = FederatedTool(name, server, tool, definition, shown_as, offering.header_plans.get(tool))
            other = tools.setdefault(name, found)
            if (other.server, other.tool) != (server, tool):
                raise ToolCollision(name, (other.server, other.tool), (server, tool))
    report = None
    if pins is not None:
        absent = [id for id in pins.to_json() if id.partition(":")[0] not in offerings]
        report = pins.compare({one.pin_id: one.definition for one in tools.values()}, policy, absent)
        tools = {name: one for name, one in tools.items() if one.pin_id not in report.refused}
    withdrawn: dict[str, FederatedTool] = {}
    for server, offering in (shown or {}).items():
        for name, one in [(name, one) for name, one in tools.items() if one.server == server]:
            if one.tool in offering.tools:
                tools[name] = replace(one, shown=offering.listable(one.tool))
            else:
                withdrawn[name] = tools.pop(name)
    return ToolCatalogue(MappingProxyType(tools), {}, report, naming.separator, withdrawn)
