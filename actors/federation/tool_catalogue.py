"""The tools of all servers under names that say whose they are: a snapshot, made of what each server offers.

Two tools that would have the same name are an error that names both, never one that quietly hides the other. An alias gives a tool
another name; it is what solves that.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from greenroom.errors import ConfigError
from greenroom.protocol.provider_rules import ProviderNames, claude_name, provider_name
from greenroom.protocol.tool_formats import refusal_reasons

from .federation_errors import NoSeparator, ToolCollision, UnknownServer, UnknownTool

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from greenroom.protocol.provider_rules import Provider
    from greenroom.protocol.tool_pins import PinReport, Pins, Policy

    from .offering import Offering

ToolId: TypeAlias = "tuple[str, str]"
"""A server's id, and the name that the tool has there."""

Aliases: TypeAlias = "Mapping[str | ToolId, str]"
"""Another name for a tool: by `"git:log"`, or by `("git", "log")` where the id has a separator of its own."""


@dataclass(frozen=True, slots=True)
class FederatedTool:
    """A tool, and whose it is."""

    name: str
    """What it is called here."""
    server: str
    tool: str
    """What it is called there."""
    definition: Mapping[str, Any] = field(repr=False)
    """What its server says of it, as the wire has it."""
    shown: Mapping[str, Any] | None = field(default=None, repr=False)
    """What is listed instead, where its server is away."""

    @property
    def pin_id(self) -> str:
        """What it is pinned as, whatever it is called here."""
        return f"{self.server}:{self.tool}"

    def listed_as(self, name: str) -> dict[str, Any]:
        """The definition as it is listed, under this name."""
        return {**(self.definition if self.shown is None else self.shown), "name": name}


class Naming:
    """How names are made and read: whose tool, the separator, what it is called there."""

    def __init__(self, separator: str = ":", aliases: Aliases | None = None) -> None:
        """Raises `ConfigError` for aliases that say nothing, or the same."""
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
        """What a tool is called here."""
        return self._aliases.get((server, tool)) or f"{server}{self.separator}{tool}"

    def may_be(self, name: str, server: str) -> bool:
        """Whether a name, here or at a provider, sounds like that of a tool of this server."""
        return name.startswith((f"{server}{self.separator}", provider_name(f"{server}{self.separator}x")[:-1]))

    def candidates(self, name: str, ids: Collection[str]) -> list[ToolId]:
        """Whose tool a name may mean, the likeliest first. Raises `NoSeparator` or `UnknownServer`.

        It is split at the first separator. Only where an id has a separator of its own, there is a second possibility.
        """
        if (alias := self._back.get(name)) is not None:
            return [alias]
        places = [at for at in range(1, len(name)) if name.startswith(self.separator, at)]
        found = [(name[:at], name[at + len(self.separator) :]) for at in places if name[:at] in ids]
        found = [one for one in found if one not in self._aliases]  # an alias is instead of the name, not besides
        if found:
            return found
        if self.separator not in name:
            raise NoSeparator(name, self._back)
        raise UnknownServer(name.partition(self.separator)[0], ids)


@dataclass(frozen=True)
class ToolCatalogue:
    """All tools by their names here, at one moment."""

    tools: Mapping[str, FederatedTool]
    skipped: Mapping[str, Exception] = field(default_factory=dict[str, Exception])
    """Servers whose tools are not in it, and why."""
    pins: PinReport | None = None
    """What has become of what was pinned; None when nothing is."""
    separator: str = ":"
    withdrawn: Mapping[str, FederatedTool] = field(default_factory=dict[str, FederatedTool])
    """Tools that are not listed while their server is away. A name that was listed before still means them."""
    _refusals: dict[Provider, Mapping[str, str]] = field(
        default_factory=dict["Provider", "Mapping[str, str]"], repr=False
    )

    def __iter__(self) -> Iterator[FederatedTool]:
        return iter(self.tools.values())

    def __len__(self) -> int:
        return len(self.tools)

    @cached_property
    def provider_names(self) -> ProviderNames:
        """Their names at models' providers."""
        return ProviderNames((*self.tools, *self.withdrawn), self.separator)

    @cached_property
    def claude_names(self) -> Mapping[str, str]:
        """The names here by what Claude Code would call them, `mcp__git__log`; those that two tools would have are left out."""
        found: dict[str, list[str]] = {}
        for one in (*self.tools.values(), *self.withdrawn.values()):
            found.setdefault(claude_name(one.server, one.tool), []).append(one.name)
        return {name: tools[0] for name, tools in found.items() if len(tools) == 1}

    def for_providers(self, without: Collection[str] = ()) -> list[dict[str, Any]]:
        """The definitions under names that every provider takes, but for these tools."""
        names = self.provider_names
        return [one.listed_as(names.of(one.name)) for one in self.tools.values() if one.name not in without]

    def refused_by(self, provider: Provider) -> Mapping[str, str]:
        """Which of them a provider would refuse, by their names here, and why."""
        if provider not in self._refusals:
            names = self.provider_names
            found = {
                one.name: refusal_reasons(provider, one.listed_as(names.of(one.name))) for one in self.tools.values()
            }
            self._refusals[provider] = {name: "; ".join(why) for name, why in found.items() if why}
        return self._refusals[provider]

    def named(self, name: str) -> str:
        """The catalogue's name for what a provider, or any other caller, calls by this name. Raises `UnknownTool`, which suggests names of the same kind."""
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
    """The catalogue of what these servers offer; what is refused by the pins is not in it. Raises `ToolCollision`.

    `shown` is what is to be listed of it, for servers of which that is not all.
    """
    tools: dict[str, FederatedTool] = {}
    for server, offering in offerings.items():
        for tool, definition in offering.tools.items():
            name = naming.name_of(server, tool)
            other = tools.setdefault(name, FederatedTool(name, server, tool, definition))
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
            listed = offering.tools.get(one.tool)
            if listed is None:
                withdrawn[name] = tools.pop(name)
            else:
                tools[name] = replace(one, shown=listed)
    return ToolCatalogue(MappingProxyType(tools), {}, report, naming.separator, withdrawn)
