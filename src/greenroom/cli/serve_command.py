"""``greenroom serve``: serves a server of the user's code, or a gateway from a configuration file, on stdin and stdout or over HTTP."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio

from .click_app import echo, styled
from .exit_codes import FAILED, OK, CommandFailed, UsageError
from .serve_options import SERVE_OPTIONS
from .server_loader import load_server, report_author_errors, split_server_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from anyio.abc import Process

    from greenroom.auth.client.oauth_login import OAuth
    from greenroom.config.host_config import ServerConfig
    from greenroom.observe.admin_settings import Admin
    from greenroom.server import Server
    from greenroom.transports.http_config import HttpConfig

    from .click_app import CommandOption


class TypedSettings(NamedTuple):
    """The typed settings: values by field name, and the typed words."""

    http: Mapping[str, Any] = MappingProxyType({})
    server: Mapping[str, Any] = MappingProxyType({})
    words: Sequence[str] = ()
    of_http_alone: Sequence[str] = ()
    """Typed options that apply to HTTP only."""


_NOTHING: Final = TypedSettings()


def typed_settings(given: Mapping[str, Any]) -> TypedSettings:
    """The settings among the options that click parsed. Raises `CommandFailed` for a file that cannot be read."""
    found: dict[str, dict[str, Any]] = {"http": {}, "server": {}}
    words: list[str] = []
    of_http: list[str] = []
    for option in SERVE_OPTIONS:
        value = given.get(str(option.name))
        if value is None or value == () or (option.kind == "flag" and not value):
            continue
        words += _option_words(option, value)
        fields = [each.split(".") for each in option.setting.split()]
        if fields and all(kind == "http" for kind, _ in fields):
            of_http.append(option.opts[0])
        for kind, name in fields:
            found[kind][name] = _option_value(option, value)
    return TypedSettings(found["http"], found["server"], words, of_http)


def _option_words(option: CommandOption, value: Any) -> Iterator[str]:
    if option.is_flag:
        yield (option.opts if value else option.secondary_opts)[0]
    else:
        for each in value if option.multiple else (value,):
            yield from (option.opts[0], json.dumps(each) if option.kind == "json" else str(each))


def _option_value(option: CommandOption, value: Any) -> Any:
    if value == "none" and option.unset:
        return None
    if option.multiple:
        stands_alone = {"none": (), "any": "any"} if option.name == "allowed_host" else {"none": ()}
        if len(value) > 1 and not stands_alone.keys().isdisjoint(value):
            raise UsageError(f"{option.opts[0]} {' and '.join(stands_alone)} cannot be combined with other values")
        return stands_alone.get(value[0], value)
    if option.name not in ("keyfile_password_file", "seal_keys_file"):
        return value
    try:
        written = Path(value).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise CommandFailed(FAILED, f"{option.opts[0]}: {value} cannot be read: {error}") from None
    return tuple(written.split()) if option.name == "seal_keys_file" else written.rstrip("\r\n")


def serve(  # noqa: PLR0913 - a keyword for each option that decides what is done
    *,
    server: str | None,
    config: Path | None,
    only: Sequence[str],
    stdio: bool,
    http: str | None,
    origin: Sequence[str],
    workers: int | None,
    watch: bool,
    **given: Any,
) -> int:
    """Serve until a signal arrives, or the client closes stdin."""
    if stdio and http is not None:
        raise UsageError("give either --stdio or --http, not both")
    if workers is not None and http is None:
        raise UsageError("--workers is only for --http: stdio has one client and one process")
    if origin and http is None:
        raise UsageError("--origin is only for --http: a client on stdio has no web origin")
    typed = typed_settings(given)
    if typed.of_http_alone and http is None:
        raise UsageError(f"{typed.of_http_alone[0]} is only for --http: it has no effect on stdio")
    grace, drain = given["grace"], typed.http.get("drain_grace")
    if grace is not None and drain is not None and drain > grace:
        raise UsageError(
            f"--drain-grace {drain:g} is longer than --grace {grace:g}, after which the program ends: type --grace {drain:g} alone"
        )
    if config is not None and (server is not None or workers is not None or watch):
        other = server or ("--workers" if workers is not None else "--watch")
        follows = ": it reloads its file in any case" if other == "--watch" else ""
        raise UsageError(f"--config serves the servers of a file and cannot be combined with {other}{follows}")
    if config is None and server is None:
        raise UsageError("name a server: module:server or file.py, or --config FILE for the servers of a file")
    if only and config is None:
        raise UsageError("--only is only for --config: it names servers of that file")
    if watch and http is None:
        raise UsageError(
            "--watch is only for --http: a client on stdio would lose its session with the restarted process"
        )
    where = None if http is None else http_config(http, origin, typed)
    admin = admin_settings(given)
    if server is not None and http is not None and watch:
        words = [server, "--http", http, *(word for each in origin for word in ("--origin", each)), *typed.words]
        words += [] if workers is None else ["--workers", str(workers)]
        words += [word for name in _ADMIN_OPTIONS if given[name] for word in _admin_words(name, given[name])]
        words += ["--otel"] if given["otel"] else []
        file = server if server.endswith(".py") else server.rpartition(":")[0]
        folder = Path(file).resolve().parent if file.endswith(".py") else Path.cwd()
        return serve_and_watch(words, folder, max(grace or 0.0, drain or 0.0))
    from greenroom.console_log import LogOptions  # noqa: PLC0415 - not for help

    with LogOptions(access=not given["no_access_log"], json=given["log_json"]).applied():
        found = (
            gateway_from_file(config, only) if config is not None else _import_server(str(server), stdio=where is None)
        )
        _apply_settings(found, typed.server)
        if server is not None and where is not None:
            beside = {"allowed_origins": origin, "workers": workers, "grace": grace is not None, "admin": admin}
            beside |= {name: given[name] for name in ("inspect", "log_json")}
            _warn_unused_run_settings(server, {*typed.http, *(name for name, value in beside.items() if value)})
        with (
            _telemetry(found.settings.name) if given["otel"] else nullcontext(),
            nullcontext() if server is None else report_author_errors(server),
        ):
            found.run(
                "stdio" if where is None else "http",
                config=where,
                inspect="acts" if given["inspect_acts"] else given["inspect"],
                workers=workers,
                grace=grace,
                admin=admin,
            )
    return OK


_ADMIN_OPTIONS: Final = ("admin", "admin_acts", "admin_faults", "admin_key_file")
_OBSERVE: Final = "observe"
_OPERATE: Final = "operate"


def _admin_words(name: str, value: Any) -> Sequence[str]:
    option = f"--{name.replace('_', '-')}"
    return (option,) if value is True else (option, str(value))


def admin_settings(given: Mapping[str, Any]) -> Admin | None:
    """The settings of the admin listener among the options that click parsed. Raises `UsageError`, and `CommandFailed` for a file that cannot be read."""
    where, file = given["admin"], given["admin_key_file"]
    if where is None:
        if other := next((name for name in _ADMIN_OPTIONS if given[name]), None):
            raise UsageError(f"{_admin_words(other, True)[0]} is only for --admin: type --admin as well")  # noqa: FBT003 - as a flag
        return None
    from greenroom.errors import ConfigError  # noqa: PLC0415 - not for help
    from greenroom.observe.admin_settings import Admin  # noqa: PLC0415 - as above
    from greenroom.transports.http_config import is_loopback  # noqa: PLC0415 - as above

    host, port = parse_host_port(where, "--admin")
    acts, faults = given["admin_acts"], given["admin_faults"]
    if file is None:
        if not is_loopback(host):
            raise UsageError(
                f"--admin {where} can be reached from other machines: name a file with the key that it asks for, with --admin-key-file FILE; "
                "or leave out the host"
            )
        return Admin(host=host, port=port, acts=acts, faults=faults)
    from greenroom.auth.shared_secrets import APIKeyAuth  # noqa: PLC0415 - as above

    try:
        key = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise CommandFailed(FAILED, f"--admin-key-file: {file} cannot be read: {error}") from None
    try:
        auth = APIKeyAuth({key: {"subject": "admin", "scopes": [_OBSERVE, _OPERATE]}})
        return Admin(host=host, port=port, acts=acts, faults=faults, auth=auth, scope=_OBSERVE, act_scope=_OPERATE)
    except ConfigError as error:
        raise UsageError(f"--admin: {error}") from None


def _telemetry(name: str) -> AbstractContextManager[None]:
    """Traces and metrics, until the server stops. Raises `CommandFailed` where something has to be installed."""
    try:
        from greenroom.observe.open_telemetry import telemetry_of_environment  # noqa: PLC0415 - few servers are traced
    except ModuleNotFoundError as error:
        raise CommandFailed(FAILED, f"--otel: {error}") from None
    return telemetry_of_environment(name)


def _import_server(server: str, *, stdio: bool) -> Server:
    """Import the server; on stdio, output of the import goes to stderr, because stdout carries the protocol from the start."""
    if not stdio:
        return load_server(server)
    from greenroom.transports.stdio import StandardStreams  # noqa: PLC0415 - not for help

    streams = StandardStreams()
    try:
        return load_server(server)
    finally:
        streams.give_back()


def _apply_settings(server: Server, settings: Mapping[str, Any]) -> None:
    from greenroom.actors.settings import BadSetting  # noqa: PLC0415 - not for help

    try:
        if settings:
            server.set_up(**settings)
    except BadSetting as error:
        raise UsageError(_as_option(error.name, "server", error)) from None


def _warn_unused_run_settings(server: str, typed_names: set[str]) -> None:
    """Warn about settings in the file's own `run()` that were not typed as options."""
    if unused := [each for each in settings_of_run(server) if each not in typed_names]:
        what = f"greenroom serve does not call the run() of {server} and ignores its settings"
        echo(f"greenroom: {what}: {', '.join(unused)}; set them with options", error=True)


_COVERED_BY_SERVE: Final = frozenset({"host", "port", "access_log"})
"""Settings that `--http` and `--no-access-log` always determine."""


def settings_of_run(server: str) -> Sequence[str]:
    """The names of the settings that the server's file passes to `server.run("http", …)`.

    They are read from the syntax tree: `greenroom serve` runs the server itself, so that call is never executed.
    """
    place, _ = split_server_name(server)
    path = place if place.endswith(".py") else getattr(sys.modules.get(place), "__file__", None)
    try:
        tree = ast.parse(Path(path or "").read_bytes())
    except (OSError, SyntaxError, ValueError):  # an extension module or an archive has no readable source
        return ()
    made = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found: dict[str, None] = {}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "run"):
            continue
        if not (node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == "http"):
            continue
        for given in node.keywords:
            value = made.get(given.value.id) if isinstance(given.value, ast.Name) else given.value
            inner = value.keywords if given.arg == "config" and isinstance(value, ast.Call) else [given]
            found.update((each.arg, None) for each in inner if each.arg is not None)
    return [each for each in found if each not in _COVERED_BY_SERVE]


def http_config(http: str, origin: Sequence[str], typed: TypedSettings = _NOTHING) -> HttpConfig:
    """The listener's configuration. Raises `UsageError`."""
    from greenroom.errors import ConfigError  # noqa: PLC0415 - not for help
    from greenroom.transports.http_config import HttpConfig, is_loopback  # noqa: PLC0415 - as above
    from greenroom.transports.http_request import AllowedHosts, AllowedOrigins, parse_origin  # noqa: PLC0415 - as above

    host, port = parse_host_port(http)
    allowed: Any = None
    if not origin:
        if not is_loopback(host):
            raise UsageError(
                f"{host} can be reached from other machines: name the web pages that may call with --origin ORIGIN, "
                "--origin none or --origin any (programs may call in any case); or listen on 127.0.0.1"
            )
    elif len(origin) > 1 and {"none", "any"} & set(origin):
        raise UsageError("--origin none and --origin any cannot be combined with other origins")
    elif origin[0] in ("none", "any"):
        allowed = () if origin[0] == "none" else "any"
    elif wrong := [each for each in origin if each != "null" and parse_origin(each) is None]:
        raise UsageError(f"--origin is written scheme://host[:port], or null, none or any, not {wrong[0]!r}")
    else:
        allowed = tuple(origin)
    try:
        config = HttpConfig(host=host, port=port, allowed_origins=allowed, **typed.http)
        AllowedHosts(config)
        AllowedOrigins(config)
    except ConfigError as error:
        raise UsageError(_as_option(str(error).partition(" ")[0], "http", error)) from None
    return config


def _as_option(name: str, kind: str, error: Exception) -> str:
    """The text of a setting's error with the option's name instead of the field's."""
    known = {each: option.opts[0] for option in SERVE_OPTIONS for each in option.setting.split()}
    option = known.get(f"{kind}.{name}")
    return str(error) if option is None else str(error).replace(name, option, 1)


def parse_host_port(text: str, option: str = "--http") -> tuple[str, int]:
    """Parse `HOST:PORT`, or a port on 127.0.0.1."""
    host, _, port = text.rpartition(":")
    if not port.isdigit() or not 0 <= int(port) < 1 << 16:
        raise UsageError(f"{option} is HOST:PORT, or a PORT of 127.0.0.1, not {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)


# --- ``greenroom serve --config FILE``: a gateway to the servers of a file.


def gateway_from_file(file: Path, only: Sequence[str] = ()) -> Server:
    """A gateway to the servers of the file (or `only` some of them) that reloads the file when it changes.

    A server with a mistake is logged and left out. Raises `BadConfig` if no server is left, and `UsageError`.
    """
    from greenroom.config.config_reader import read  # noqa: PLC0415 - as above
    from greenroom.config.mistakes import BadConfig, known_servers  # noqa: PLC0415 - not for help
    from greenroom.config.sign_in import oauth_of  # noqa: PLC0415 - as above
    from greenroom.host import Host  # noqa: PLC0415 - as above
    from greenroom.server import Server  # noqa: PLC0415 - as above

    if not file.is_file():
        raise UsageError(f"--config: the file {file} does not exist")
    found = read(file)
    if strange := [each for each in only if each not in found.enabled and each not in found.failed]:
        hint = known_servers(strange[0], [*found.enabled, *found.failed])
        raise UsageError(f"--only: {file} has no server {strange[0]!r}; {hint}")
    wrong = [one for one in found.mistakes if not one.harmless and (not only or one.server in (None, *only))]
    if wrong and not any(not only or each in only for each in found.enabled):
        raise BadConfig(wrong)
    if not found.enabled:
        raise UsageError(f"--config: {file} has no enabled server: add one as [server.NAME] with command or url")

    def sign_in(server: ServerConfig) -> OAuth | None:
        # A gateway opens no browser: it uses the login that `greenroom login` stored, and its errors tell clients to run that command.
        return oauth_of(server, port=found.oauth_port, browser=None, named=True)

    host = Host.from_config(file, sign_in=sign_in, only=tuple(only) or None, watch=True)
    front = Server("greenroom")
    front.mount(host)
    return front


# --- ``greenroom serve --watch``: the server runs in a child process, which is stopped and started again when one of its files changes.
# A file that does not compile is reported and causes no restart: the running server stays.

_POLL_INTERVAL: Final = 0.3
_GRACE: Final = 10.0
"""Seconds that the server may take to stop, in addition to its own --grace."""
_SKIPPED_FOLDERS: Final = frozenset({"__pycache__", "node_modules", "build", "dist", "site-packages"})
_MOST: Final = 5000


def python_files(folder: Path) -> Mapping[Path, int]:
    """The Python files below a folder with their modification times; virtual environments and hidden folders are skipped."""
    found: dict[Path, int] = {}
    for place, folders, names in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name not in _SKIPPED_FOLDERS
            and not (Path(place) / name / "pyvenv.cfg").exists()
        ]
        for name in names:
            if name.endswith(".py") and len(found) < _MOST:
                path = Path(place) / name
                try:
                    found[path] = path.stat().st_mtime_ns
                except OSError:
                    continue  # deleted since the folder was listed
    return found


def changed_files(before: Mapping[Path, int], after: Mapping[Path, int]) -> list[Path]:
    """The files that were changed, added or removed."""
    return sorted(path for path in {*before, *after} if before.get(path) != after.get(path))


def first_syntax_error(paths: Sequence[Path]) -> str | None:
    """The first file that does not compile, and why; None if all do."""
    for path in paths:
        try:
            compile(path.read_bytes(), str(path), "exec")
        except FileNotFoundError:
            continue
        except (SyntaxError, ValueError, OSError) as error:
            return f"{path}: {error}"
    return None


async def start_process(words: Sequence[str]) -> Process:
    """Start a process that writes to this terminal."""
    return await anyio.open_process(words, stdin=subprocess.DEVNULL, stdout=None, stderr=None)


async def stop_process(process: Process, grace: float = 0.0) -> None:
    """Terminate the process, and kill it after `grace` and our own limit. Shielded from cancellation."""
    with anyio.CancelScope(shield=True):
        if process.returncode is None:
            process.terminate()
            with anyio.move_on_after(grace + _GRACE):
                await process.wait()
            if process.returncode is None:
                process.kill()
        await process.wait()


def serve_and_watch(words: Sequence[str], folder: Path, grace: float = 0.0) -> int:
    """Serve, and restart on file changes, until a signal arrives."""
    return anyio.run(_serve_until_signal, words, folder, grace)


async def _serve_until_signal(words: Sequence[str], folder: Path, grace: float) -> int:
    """Run until Ctrl-C, SIGTERM or SIGHUP, then stop the server in order. A signal that was ignored before (nohup) stays ignored."""
    wanted = (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()))
    handled = [each for each in wanted if signal.getsignal(each) is not signal.SIG_IGN]
    with anyio.open_signal_receiver(
        *handled
    ) as signals:  # stays open until the server has stopped, so a second signal has no effect
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_restart_on_change, words, folder, grace)
            await anext(aiter(signals))
            tasks.cancel_scope.cancel()
    return 0  # like a server that is stopped by a signal


async def _restart_on_change(words: Sequence[str], folder: Path, grace: float) -> None:
    known_files = python_files(folder)
    words = [sys.executable, "-P", "-m", "greenroom.cli", "serve", *words]
    served = await start_process(words)
    ended = False
    try:
        while True:
            await anyio.sleep(_POLL_INTERVAL)
            now = await anyio.to_thread.run_sync(python_files, folder)
            if different := changed_files(known_files, now):
                known_files = now
                broken = first_syntax_error(different)
                if broken is not None:
                    echo(styled(f"greenroom: {broken}: the running server stays", "bad"), error=True)
                    continue
                names = ", ".join(path.name for path in different[:3])
                echo(styled(f"greenroom: {names} changed: restarting", "dim"), error=True)
                await stop_process(served, grace)
                served = await start_process(words)
                ended = False
            elif not ended and served.returncode is not None:
                ended = True
                text = f"greenroom: the server has ended with {served.returncode}: it is restarted when a file changes"
                echo(styled(text, "bad"), error=True)
    finally:
        await stop_process(served, grace)
