"""`Host.from_config`: a host whose servers come from configuration files, and follow their changes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from greenroom.actors.consent.consent import Consent
from greenroom.actors.federation.upstream_spec import UpstreamState

from .errors import ConfigError

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Mapping

    from greenroom.actors.client.settings import ClientSettings
    from greenroom.actors.federation.federation import Federation
    from greenroom.actors.federation.upstream_spec import UpstreamStatus
    from greenroom.actors.output.output_limits import OutputLimiter
    from greenroom.auth.client.auth_option import Auth
    from greenroom.config.config_sync import ConfigSync, SyncStep
    from greenroom.config.configured_upstreams import SignIn
    from greenroom.config.host_config import HostConfig, ServerConfig

WATCH = 1.0
"""The default interval in seconds at which files are checked for changes."""


@dataclass(frozen=True, slots=True)
class ServerReport:
    """The state of one configured server."""

    name: str
    state: Literal["connected", "connecting", "needs_sign_in", "failed", "disabled"]
    reason: str = ""
    """Why it failed: the mistake in its configuration, or the error."""
    next_attempt: float | None = None
    """Seconds until the next attempt: 0 while one is under way, None when none is due."""
    in_progress: int = 0
    """Calls that are under way or queued."""
    sign_in_url: str = ""
    """The URL at which a user has to sign in first; empty if that is not the problem."""
    revision: str = ""
    """The revision of the protocol that was agreed on last; empty before the first connection."""
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])
    """Tools that are not listed because a header annotation of theirs is invalid, by name, and why it is."""

    def __str__(self) -> str:
        return f"{self.name}: {self.state}{f' ({self.reason})' if self.reason else ''}"


class HostFiles:
    """The part of a host that follows configuration files. Base class of `Host`."""

    limiter: OutputLimiter | None
    consent: Consent | None
    federation: Federation
    _config_sync: ConfigSync | None = None
    _follows = False
    """Whether the files' rules are those of its consent; otherwise only their denials hold."""

    @classmethod
    def from_config(  # noqa: PLR0913 - the files, the values to fill in, and the sign-in
        cls,
        *paths: str | os.PathLike[str],
        watch: bool | float = False,
        environment: Mapping[str, str] | None = None,
        project: str | os.PathLike[str] | None = None,
        inputs: Mapping[str, str] | None = None,
        sign_in: SignIn | None = None,
        settings: ClientSettings | None = None,
        consent: Consent | None = None,
        only: Collection[str] | None = None,
        **options: Any,
    ) -> Self:
        """A host of the servers in these files, later ones overriding earlier ones; without any, in the user's and the project's files.

        A file is `greenroom.toml`, or JSON in the format of Claude, Cursor and VS Code. A mistake in one server is logged and affects no other:
        `config.mistakes` has all of them, `reports()` the state of each server. `BadConfig` is raised only when no file can be read at all.
        With `watch` the files are checked every second (or that many), and their changes applied. `inputs` answer the inputs of VS Code files,
        `project` is the project's folder, `sign_in` makes the login for a server: by default a user with a browser signs in, if the program has
        a terminal; otherwise a server without a login fails at once with what to type. Without `consent` the files' rules hold, and where they ask,
        the answer is no; without rules every tool is allowed that matches its pin. A `consent` with rules of its own goes by those, and by what the
        files deny. `only` are the names of the servers to include. `options` are those of `Host`; unless they have `verdicts`, which servers have a handshake
        is remembered in the user's folder for state.
        """
        from greenroom.actors.client.era_verdict_file import EraVerdictFile  # noqa: PLC0415 - a host without files needs none of it
        from greenroom.config.config_reader import read  # noqa: PLC0415 - as above
        from greenroom.config.config_sync import ConfigSync  # noqa: PLC0415 - as above
        from greenroom.config.mistakes import BadConfig  # noqa: PLC0415 - as above

        def again() -> HostConfig:
            found = read(*paths, environment=environment, project=project, inputs=inputs)
            if only is None:
                return found
            return replace(
                found,
                servers={name: each for name, each in found.servers.items() if name in only},
                failed={name: each for name, each in found.failed.items() if name in only},
                mistakes=tuple(one for one in found.mistakes if one.server is None or one.server in only),
            )

        every = WATCH if watch is True else float(watch) if watch else None
        config = again()
        if paths and not (config.servers or config.failed) and not config.good:
            raise BadConfig([one for one in config.mistakes if not one.harmless])

        def usual(server: ServerConfig) -> Auth | None:
            from greenroom.config.sign_in import default_sign_in  # noqa: PLC0415 - few sign in anywhere

            return default_sign_in(config.oauth_port, named=bool(paths))(server)

        signs_in = sign_in or usual
        sync = ConfigSync(
            config, again, settings=settings, sign_in=signs_in, watch=every, allows_by_default=consent is None
        )
        chosen_consent = Consent() if consent is None else consent
        follows = consent is None or not chosen_consent.permissions
        options.setdefault("verdicts", EraVerdictFile())
        made: Any = cls
        host: Self = made(
            sync.initial_specs(), consent=chosen_consent, limits=config.limits, settings=settings, **options
        )
        host._config_sync, host._follows = sync, follows
        sync.attach(cast("Any", host), host._apply_config)
        host._apply_config(sync.config)
        return host

    def _apply_config(self, config: HostConfig) -> None:
        """Apply the limits and rules of a configuration, which are read at each call."""
        if self.limiter is not None:
            self.limiter.limits = config.limits
        if self.consent is not None:
            rules = self._files().rules
            self.consent.permissions = rules if self._follows else rules.beside(self.consent.permissions)

    def _files(self) -> ConfigSync:
        if self._config_sync is None:
            raise ConfigError("this host has no configuration files: make it with Host.from_config(…)")
        return self._config_sync

    @property
    def config(self) -> HostConfig:
        """The applied configuration. Raises `ConfigError` for a host that was not made from files."""
        return self._files().config

    async def reload(self, config: HostConfig | None = None) -> tuple[SyncStep, ...]:
        """Apply this configuration, or the files as they are now. Returns when all servers match it.

        Only changed servers are touched, and their calls under way finish on the old server. Raises `BadConfig` for a configuration with
        mistakes; then nothing is changed.
        """
        return await self._files().reload(config)

    def _failures(self) -> dict[str, str]:
        """Configured servers that could not be made, and why."""
        sync = self._config_sync
        if sync is None:
            return {}
        failures = {name: sync.failure_text(name) for name in sync.failures}
        return failures | {name: "; ".join(map(str, mistakes)) for name, mistakes in sync.config.failed.items()}

    def reports(self) -> dict[str, ServerReport]:
        """The state of each configured server. A failed one is retried all the time."""
        config, failures, standings = self._files().config, self._failures(), self.federation.statuses()
        found: dict[str, ServerReport] = {}
        for name in (*config.servers, *config.failed):
            server = config.servers.get(name)
            if server is not None and server.disabled:
                found[name] = ServerReport(name, "disabled")
            elif name in failures:
                found[name] = ServerReport(name, "failed", failures[name])
            else:
                found[name] = _report(name, standings.get(name))
        return found

    async def started(self, within: float = 30.0) -> dict[str, ServerReport]:
        """Wait until each configured server is connected, or has failed once, for at most this many seconds."""
        reports = self.reports()
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                news = self.federation.watch()
                while any(one.state == "connecting" for one in reports.values()):
                    await anext(news)
                    reports = self.reports()
        return reports


def _report(name: str, standing: UpstreamStatus | None) -> ServerReport:
    if standing is None:
        return ServerReport(name, "connecting")
    beside = standing.next_attempt, standing.in_progress, standing.sign_in_url, standing.revision, standing.left_out
    if standing.state is UpstreamState.STARTING:
        return ServerReport(name, "connecting", "", *beside)
    if standing.state is UpstreamState.READY:
        return ServerReport(name, "connected", "", *beside)
    if standing.state is UpstreamState.NEEDS_SIGN_IN:
        return ServerReport(name, "needs_sign_in", standing.reason, *beside)
    return ServerReport(name, "failed", standing.reason or standing.state.value, *beside)
