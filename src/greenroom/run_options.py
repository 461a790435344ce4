"""Checks of a server's options, its listening sockets and URLs, its authentication and its shutdown times."""

from __future__ import annotations

import math
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from inspect import signature
from typing import TYPE_CHECKING, Any, Final, cast

from greenroom.actors.settings import Settings
from greenroom.supervision import visible
from greenroom.transports.http_config import HttpConfig

from . import program_runner
from .errors import ConfigError, unknown_option

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Mapping, Sequence

    from greenroom.auth.auth_gate import AuthGate
    from greenroom.auth.auth_info import AuthProvider
    from greenroom.transports.listening_sockets import Binding


_OTHER_LIBRARIES_OPTIONS: Final = {
    "host": 'server.run("http", host=…)',
    "port": 'server.run("http", port=…)',
    "path": 'server.run("http", config=HttpConfig(path=…))',
    "lifespan": "@server.lifespan, on an `async def` with one `yield`",
    "tools": "server.tool(function), for each of them",
    "middleware": "hooks=Hooks(around=…), one function",
    "dependencies": "the program's own environment: none is made for it",
    "log_level": 'logging.getLogger("greenroom").setLevel(…)',
    "debug": "settings=Settings(expose_errors=True)",
    "mask_error_details": "settings=Settings(expose_errors=…)",
    "token_verifier": "auth=CustomAuth(…)",
    "stateless_http": "settings=Settings(sessions=False)",
    "json_response": "nothing: an answer is JSON where there is nothing to stream",
}
"""Options of other libraries' servers, and their equivalents here."""


def check_options(make: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for an unknown option, with what to write instead."""
    taken = signature(make).parameters
    if any(each.kind is each.VAR_KEYWORD for each in taken.values()):
        return  # a derived class checks its own options
    known = [each for each in taken if each != "self"]
    settings = [each.name for each in fields(Settings)]
    for option in options.keys() - set(known):
        elsewhere = {each: f"write settings=Settings({each}=…)" for each in settings}
        elsewhere |= {each: f"here that is {there}" for each, there in _OTHER_LIBRARIES_OPTIONS.items()}
        otherwise = f"it has {', '.join(known)}, and all that Settings has"
        raise ConfigError(unknown_option("a server", option, [*known, *settings], elsewhere, otherwise))


def check_inspect(inspect: object) -> None:
    """Raise `ConfigError` for a value of `inspect` that says nothing."""
    if inspect not in (True, False, "acts"):
        raise ConfigError(f'inspect must be True, False or "acts", not {inspect!r}')


def check_run(
    transport: object,
    *,
    host: object = None,
    port: object = None,
    config: object = None,
    workers: object = None,
    grace: object = None,
) -> None:
    """Raise `ConfigError` for options that do not fit together, with what to write instead."""
    if isinstance(transport, int):
        raise ConfigError(
            f'transport is "stdio" or "http", not {transport!r}: write server.run("http", port={transport})'
        )
    if transport not in ("stdio", "http"):
        also = (
            ': "http" is Streamable HTTP, and HttpConfig(old_sse=True) serves SSE beside it'
            if isinstance(transport, str)
            else ""
        )
        raise ConfigError(f'transport is "stdio" or "http", not {transport!r}{also}')
    if transport == "stdio":
        if workers is not None:
            raise ConfigError('workers are for "http": stdio has one peer and one process')
        given = [word for word, value in (("host", host), ("port", port), ("config", config)) if value is not None]
        if given:
            raise ConfigError(
                f'{given[0]} is for "http", but the default transport is stdio: write server.run("http", {given[0]}=…)'
            )
    if workers is not None:
        from .multi_worker_server import check_workers  # noqa: PLC0415 - what has no workers does not load what starts them

        check_workers(workers)
    if grace is not None and (
        not isinstance(grace, int | float) or isinstance(grace, bool) or not 0 <= grace < math.inf
    ):
        raise ConfigError(f"grace must be a number of seconds, 0 or more, not {grace!r}")


def check_admin(admin: object) -> None:
    """Raise `ConfigError` for a value that has no settings of an admin listener, with what to write instead."""
    from .observe.admin_settings import Admin  # noqa: PLC0415 - only for programs that ask for it

    if not isinstance(admin, Admin):
        instead = f"Admin(port={admin})" if type(admin) is int else "Admin()"
        raise ConfigError(f"admin must be Admin(…), not {admin!r}: write admin={instead}, from greenroom.observe")


def check_store(store: object) -> None:
    """Raise `ConfigError` for an object that is no task store, before the first task ends."""
    if store is not None and (isinstance(store, type) or not all(hasattr(store, word) for word in ("open", "close"))):
        raise ConfigError(f'task_store must be a store, such as SqliteTasks("tasks.db"), not {store!r}')


def auth_gate_of(
    auth: AuthProvider | Sequence[AuthProvider] | None, required_scopes: Collection[str]
) -> AuthGate | None:
    """The auth gate of a server with authentication. Raises `ConfigError`."""
    if isinstance(cast("object", required_scopes), str):
        raise ConfigError(f"required_scopes must be a list of scopes, as in [{required_scopes!r}], not a text")
    several: Any = isinstance(auth, list | tuple)
    for each in cast("Sequence[object]", auth) if several else () if auth is None else (auth,):
        if isinstance(each, type) or not hasattr(each, "authenticate"):
            # The repr may be a key.
            raise ConfigError(
                f"auth must be BearerAuth(…), OAuthResource(…), CustomAuth(…) or another provider of greenroom.auth, or a list of them, not "
                f"{f'the class {each.__name__}' if isinstance(each, type) else f'a {type(each).__name__}'}"
            )
    if auth is None:
        if required_scopes:
            raise ConfigError("required_scopes need auth: configure how callers authenticate")
        return None
    from greenroom.auth.auth_gate import AuthGate, ProviderChain  # noqa: PLC0415 - a server on stdio has none

    if several:
        auth = ProviderChain(cast("Sequence[AuthProvider]", auth))
    return AuthGate(cast("AuthProvider", auth), required_scopes=required_scopes)


def urls_of(binding: Binding, config: HttpConfig) -> list[str]:
    """The URLs of a listener."""
    scheme = "https" if config.is_tls else "http"
    return [
        f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{config.path}" for host, port in binding.addresses
    ]


def announce_urls(name: str, urls: Sequence[str]) -> None:
    """Write the URLs to stderr."""
    for url in urls:
        print(f"greenroom: {visible(name)} serves on {url}", file=sys.stderr, flush=True)  # noqa: T201


def http_config(config: HttpConfig | None, host: str | None, port: int | None) -> HttpConfig:
    """The configuration with the host and port that were given beside it."""
    if config is not None and not isinstance(cast("object", config), HttpConfig):
        raise ConfigError(f"config must be HttpConfig(…), not {config!r}")
    given: dict[str, Any] = {"host": host, "port": port}
    given = {word: value for word, value in given.items() if value is not None}
    return HttpConfig(**given) if config is None else replace(config, **given)


def grace_periods(config: HttpConfig, grace: float | None) -> tuple[HttpConfig, float]:
    """The program's grace, and `config` with the part of it for calls in progress. Raises `ConfigError`.

    If either setting is None, the other one decides.
    """
    drain_grace = config.drain_grace
    if grace is None:
        grace = program_runner.GRACE if drain_grace is None else program_runner.grace_with_calls(drain_grace)
    elif drain_grace is not None and drain_grace > grace:
        raise ConfigError(
            f"drain_grace={drain_grace:g} is longer than grace={grace:g}, when the program ends: write grace={drain_grace:g} alone, "
            "and calls have as long as it allows"
        )
    most = program_runner.grace_of_calls(grace)
    return replace(config, drain_grace=most if drain_grace is None else min(drain_grace, most)), grace


def bind_sockets(config: HttpConfig) -> Binding:
    """Bind the sockets of a configuration. Raises `CannotListen`."""
    from greenroom.transports.listening_sockets import Binding  # noqa: PLC0415 - as above

    return Binding(config.host, config.port, backlog=config.backlog, send_buffer=config.send_buffer)


@contextmanager
def closed_on_failure(config: HttpConfig) -> Generator[Binding]:
    """Bind the sockets, and close them if the block fails."""
    with ExitStack() as undone:
        binding = bind_sockets(config)
        undone.callback(binding.close)
        yield binding
        undone.pop_all()
