"""The result of reading configuration files: frozen values, whose reprs show no secrets.

Each server is a `ServerConfig`, whatever file and format it comes from. Permissions, limits and sign-in are enforced elsewhere; here they are kept as written,
with their lines.
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
    """Restarts of a server: how many are allowed, and the back-off between attempts."""

    intensity: int = 3
    period: float = 60.0
    first: float = 0.1
    factor: float = 2.0
    longest: float = 30.0
    jitter: float = 0.5
    park_after: int | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """How many requests a server gets at once, and how many may wait."""

    concurrent: int = 16
    queue: int = 256


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Timeouts of a server, in seconds."""

    connect: float = 30.0
    tool: float = 60.0
    request: float = 30.0
    grace: float = 10.0
    ping: float | None = None


@dataclass(frozen=True, slots=True)
class ToolLimits:
    """Limits for answers of one tool; None is the server's limit."""

    output_tokens: int | None = None
    output_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits for answers of a server."""

    output_tokens: int = TOKENS
    output_bytes: int = BYTES
    message_bytes: int = 16 * 1024 * 1024
    """The transport refuses larger messages."""
    tools: Mapping[str, ToolLimits] = field(default_factory=dict[str, ToolLimits])


@dataclass(frozen=True, slots=True)
class OAuthConfig:
    """The OAuth client of this program, if it was registered with an authorization server beforehand."""

    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    issuer: str | None = None
    authorization_endpoint: str | None = None
    token_endpoint: str | None = None
    client_metadata_url: str | None = None
    scopes: tuple[str, ...] = ()
    account: str = "default"
    port: int | None = None
    """The local port of the redirect; None is the port from the environment, or any free port."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ServerConfig:
    """A configured server, with variables expanded. Two are equal if they configure the same, wherever they stand."""

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
    mode: str | None = None
    """As `ClientSettings.mode`; None is the host's."""
    isolation: Literal["none", "process"] = "none"
    away: Literal["mark", "withdraw", "keep"] = "mark"
    disabled: bool = False
    restart: RestartPolicy = field(default_factory=RestartPolicy)
    budget: Budget = field(default_factory=Budget)
    timeouts: Timeouts = field(default_factory=Timeouts)
    limits: ServerLimits = field(default_factory=ServerLimits)
    rules: tuple[Rule, ...] = ()
    """Permission rules for its tools, each with its line."""
    written: Mapping[str, Any] = field(default_factory=dict[str, Any], compare=False)
    """The table as it stands in the file, variables not expanded; it may be shown."""

    def __repr__(self) -> str:
        return f"<ServerConfig {self.name}, {self.transport}, {self.source}{', disabled' if self.disabled else ''}>"

    def has_same_effect(self, other: ServerConfig) -> bool:
        """Whether both configure the same; rules may stand in different lines."""
        return replace(self, rules=()) == replace(other, rules=()) and _rule_texts(self.rules) == _rule_texts(
            other.rules
        )

    def connects_as(self, other: ServerConfig) -> bool:
        """Whether a running server of `other` can stay: the differences do not concern its connection."""
        return self.limits.message_bytes == other.limits.message_bytes and all(
            getattr(self, one.name) == getattr(other, one.name)
            for one in fields(self)
            if one.compare and one.name not in _READ_AT_EACH_CALL
        )


def _rule_texts(rules: tuple[Rule, ...]) -> list[tuple[str, str, str | None]]:
    return [(one.verdict, one.pattern, one.server) for one in rules]


_READ_AT_EACH_CALL: Final = frozenset({"limits", "rules"})
"""Settings that are read at each call, so that a change needs no restart of the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostConfig:
    """A configuration: its servers, the settings for all servers, and its mistakes."""

    servers: Mapping[str, ServerConfig] = field(default_factory=dict[str, ServerConfig])
    """Servers without a mistake; some may be `disabled`."""
    failed: Mapping[str, tuple[Mistake, ...]] = field(default_factory=dict[str, "tuple[Mistake, ...]"])
    """Servers with mistakes, and the mistakes."""
    rules: tuple[Rule, ...] = ()
    """Rules for all servers."""
    output: OutputLimit = field(default_factory=OutputLimit)
    """The limit for answers of servers that have no limits of their own."""
    oauth_port: int = 0
    """The local port of OAuth redirects, unless a server has its own; 0 is any free port."""
    mistakes: tuple[Mistake, ...] = ()
    files: tuple[Path, ...] = ()
    """All paths that were looked for, existing or not: a change of one of them requires a new reading."""
    project: Path | None = None
    """The project's folder."""
    doubtful: bool = False
    """Whether some rules could not be read: then no rule allows anything."""
    allows_at_rest: bool = False
    """Whether a server that is wrong, disabled or replaced has rules that allow something."""

    @property
    def good(self) -> bool:
        """Whether the configuration has no mistakes except warnings."""
        return all(one.harmless for one in self.mistakes)

    @property
    def enabled(self) -> dict[str, ServerConfig]:
        """The servers that are not disabled."""
        return {name: one for name, one in self.servers.items() if not one.disabled}

    @property
    def ruled(self) -> bool:
        """Whether any rule allows something, or an unreadable rule may: then a tool without a rule needs consent.

        Rules that deny or ask affect only the tools that they name.
        """
        rules = (*self.rules, *(rule for one in self.servers.values() for rule in one.rules))
        return self.doubtful or self.allows_at_rest or any(one.verdict == "allow" for one in rules)

    @property
    def permissions(self) -> Permissions:
        """All rules. If none allows anything, a tool without a rule is allowed; a host without a consent of its own behaves so."""
        rules = (*self.rules, *(rule for one in self.servers.values() for rule in one.rules))
        return Permissions(rules, otherwise="ask" if self.ruled else "allow")

    @property
    def limits(self) -> OutputLimits:
        """The limits for each server's answers to a model."""
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
