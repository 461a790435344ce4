"""What a configuration comes to: frozen values, which say nothing of secrets when they are printed.

Each server is one `ServerConfig`, whatever file it stands in and however that writes it. What others enforce (permissions, limits, sign-in) is kept
here as it was written, with the line where it stands.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from greenroom.actors.consent.rules import Permissions
from greenroom.actors.output.output_limits import BYTES, TOKENS, OutputLimit, OutputLimits

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from greenroom.actors.consent.rules import Rule

    from .mistakes import Mistake, Source

Transport: TypeAlias = Literal["stdio", "http", "sse"]


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How often it may die, and how long to wait before it is tried again."""

    intensity: int = 3
    period: float = 60.0
    first: float = 0.1
    factor: float = 2.0
    longest: float = 30.0
    jitter: float = 0.5
    park_after: int | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """How much may be asked of it at once."""

    concurrent: int = 16
    queue: int = 256


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long things may take, in seconds."""

    connect: float = 30.0
    tool: float = 60.0
    request: float = 30.0
    grace: float = 10.0
    ping: float | None = None


@dataclass(frozen=True, slots=True)
class ToolLimits:
    """How much one tool may answer to a model; None is as its server may."""

    output_tokens: int | None = None
    output_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """How much a server may answer."""

    output_tokens: int = TOKENS
    output_bytes: int = BYTES
    message_bytes: int = 16 * 1024 * 1024
    """What is larger is refused by the transport."""
    tools: Mapping[str, ToolLimits] = field(default_factory=dict[str, ToolLimits])


@dataclass(frozen=True, slots=True)
class OAuthConfig:
    """This program's identity at an authorization server, as far as that was agreed beforehand."""

    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    issuer: str | None = None
    authorization_endpoint: str | None = None
    token_endpoint: str | None = None
    client_metadata_url: str | None = None
    scopes: tuple[str, ...] = ()
    account: str = "default"
    port: int | None = None
    """Where the user comes back to on this machine; None is as the environment says, or any that is free."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ServerConfig:
    """One server, with its variables in place. Two are equal when they would do the same, wherever they stand."""

    name: str
    source: Source = field(compare=False)
    transport: Transport = "stdio"
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    inherit: tuple[str, ...] = ()
    cwd: str | None = None
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    oauth: Literal["off", "auto", "manual"] = "off"
    oauth_config: OAuthConfig | None = None
    isolation: Literal["none", "process"] = "none"
    away: Literal["mark", "withdraw", "keep"] = "mark"
    disabled: bool = False
    restart: RestartPolicy = field(default_factory=RestartPolicy)
    budget: Budget = field(default_factory=Budget)
    timeouts: Timeouts = field(default_factory=Timeouts)
    limits: ServerLimits = field(default_factory=ServerLimits)
    rules: tuple[Rule, ...] = ()
    """What its tools may do, each with the line that says so."""
    written: Mapping[str, Any] = field(default_factory=dict[str, Any], compare=False)
    """As it stands in the file, its variables not in place: what may be shown."""

    def __repr__(self) -> str:
        return f"<ServerConfig {self.name}, {self.transport}, {self.source}{', disabled' if self.disabled else ''}>"

    def has_same_effect(self, other: ServerConfig) -> bool:
        """Whether a server of the other has nothing to do for this one: a rule may stand in another line."""
        return replace(self, rules=()) == replace(other, rules=()) and _rule_texts(self.rules) == _rule_texts(
            other.rules
        )

    def connects_as(self, other: ServerConfig) -> bool:
        """Whether a server that runs by the other need not be touched for this one: what is different is nothing that its connection knows."""
        return self.limits.message_bytes == other.limits.message_bytes and all(
            getattr(self, one.name) == getattr(other, one.name)
            for one in fields(self)
            if one.compare and one.name not in _READ_AT_EACH_CALL
        )


def _rule_texts(rules: tuple[Rule, ...]) -> list[tuple[str, str, str | None]]:
    return [(one.verdict, one.pattern, one.server) for one in rules]


_READ_AT_EACH_CALL: Final = frozenset({"limits", "rules"})
"""What is looked up at each call: when it changes, no server has to be started anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostConfig:
    """All that was read: which servers there are, what holds for all of them, and what is wrong."""

    servers: Mapping[str, ServerConfig] = field(default_factory=dict[str, ServerConfig])
    """Those without a mistake; some may be `disabled`."""
    failed: Mapping[str, tuple[Mistake, ...]] = field(default_factory=dict[str, "tuple[Mistake, ...]"])
    """Those with one, and what it is."""
    rules: tuple[Rule, ...] = ()
    """What holds for all servers."""
    output: OutputLimit = field(default_factory=OutputLimit)
    """How much a model gets of an answer of a server that has no limits of its own."""
    oauth_port: int = 0
    """Where users who sign in come back to, unless a server says otherwise; 0 is any port that is free."""
    mistakes: tuple[Mistake, ...] = ()
    files: tuple[Path, ...] = ()
    """Whatever was looked for, whether it is there or not: when one of them changes, all is to be read again."""
    project: Path | None = None
    """The folder that the project is in."""
    doubtful: bool = False
    """Whether rules could not be read: then none allows anything."""
    allows_at_rest: bool = False
    """Whether there are rules that allow something in the block of a server that cannot run, is not to, or was replaced."""

    @property
    def good(self) -> bool:
        """Whether nothing is wrong with it that matters."""
        return all(one.harmless for one in self.mistakes)

    @property
    def enabled(self) -> dict[str, ServerConfig]:
        """The servers that are to run."""
        return {name: one for name, one in self.servers.items() if not one.disabled}

    @property
    def ruled(self) -> bool:
        """Whether any rule allows something, or may have: then what none of them is about is asked about.

        Rules that only deny or ask are about what they name, and nothing else.
        """
        rules = (*self.rules, *(rule for one in self.servers.values() for rule in one.rules))
        return self.doubtful or self.allows_at_rest or any(one.verdict == "allow" for one in rules)

    @property
    def permissions(self) -> Permissions:
        """All rules. Where none allows anything, what none is about is allowed: so has it a host that is given no consent of its own."""
        rules = (*self.rules, *(rule for one in self.servers.values() for rule in one.rules))
        return Permissions(rules, otherwise="ask" if self.ruled else "allow")

    @property
    def limits(self) -> OutputLimits:
        """How much a model gets of each server's answers."""
        tools: dict[str, OutputLimit] = {}
        for name, server in self.servers.items():
            for tool, own in server.limits.tools.items():
                tokens = server.limits.output_tokens if own.output_tokens is None else own.output_tokens
                most = server.limits.output_bytes if own.output_bytes is None else own.output_bytes
                tools[f"{name}:{tool}"] = OutputLimit(tokens, most)
        servers = {
            name: OutputLimit(one.limits.output_tokens, one.limits.output_bytes) for name, one in self.servers.items()
        }
        return OutputLimits(self.output, servers, tools)
