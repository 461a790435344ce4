"""``greenroom serve``: a server of the user's own code, on stdin and stdout or over HTTP."""

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

    from anyio.abc import Process

    from greenroom.auth.client.oauth_login import OAuth
    from greenroom.config.host_config import ServerConfig
    from greenroom.server import Server
    from greenroom.transports.http_config import HttpConfig

    from .click_app import CommandOption


class TypedSettings(NamedTuple):
    """What was typed of settings: by the names of their fields, and as the words themselves."""

    http: Mapping[str, Any] = MappingProxyType({})
    server: Mapping[str, Any] = MappingProxyType({})
    words: Sequence[str] = ()
    of_http_alone: Sequence[str] = ()
    """The options that nothing but HTTP has a use for."""


_NOTHING: Final = TypedSettings()


def typed_settings(given: Mapping[str, Any]) -> TypedSettings:
    """The settings in what click found, by the options' names. Raises `CommandFailed` for a file that cannot be read."""
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
            raise UsageError(f"{option.opts[0]} {' and '.join(stands_alone)} stand alone")
        return stands_alone.get(value[0], value)
    if option.name == "keyfile_password_file":
        try:
            return Path(value).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, ValueError) as error:
            raise CommandFailed(FAILED, f"{option.opts[0]}: {value} cannot be read: {error}") from None
    return value


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
    """Serve it until a signal comes, or the client on stdin has gone."""
    if stdio and http is not None:
        raise UsageError("either --stdio or --http: a server has one of them here")
    if workers is not None and http is None:
        raise UsageError("--workers is for --http: on stdio there is one client, and one process")
    if origin and http is None:
        raise UsageError("--origin is for --http: on stdio nobody is a web page")
    typed = typed_settings(given)
    if typed.of_http_alone and http is None:
        raise UsageError(f"{typed.of_http_alone[0]} is for --http: it says nothing of stdio")
    grace, drain = given["grace"], typed.http.get("drain_grace")
    if grace is not None and drain is not None and drain > grace:
        raise UsageError(
            f"--drain-grace {drain:g} is longer than --grace {grace:g}, after which the program has ended: type --grace {drain:g} alone"
        )
    if config is not None and (server is not None or workers is not None or watch):
        other = server or ("--workers" if workers is not None else "--watch")
        follows = ": it follows its file anyway" if other == "--watch" else ""
        raise UsageError(f"--config serves the servers of a file, and goes without {other}{follows}")
    if config is None and server is None:
        raise UsageError("say which server: module:server or file.py, or --config FILE for the servers of a file")
    if only and config is None:
        raise UsageError("--only is for --config: it names servers of that file")
    if watch and http is None:
        raise UsageError(
            "--watch is for --http: a client on stdio would lose what it said with the process that heard it"
        )
    where = None if http is None else http_config(http, origin, typed)
    if server is not None and http is not None and watch:
        words = [server, "--http", http, *(word for each in origin for word in ("--origin", each)), *typed.words]
        words += [] if workers is None else ["--workers", str(workers)]
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
            beside = {"allowed_origins": origin, "workers": workers, "grace": grace is not None}
            beside |= {name: given[name] for name in ("inspect", "log_json")}
            _warn_unused_run_settings(server, {*typed.http, *(name for name, value in beside.items() if value)})
        with nullcontext() if server is None else report_author_errors(server):
            found.run(
                "stdio" if where is None else "http",
                config=where,
                inspect=given["inspect"],
                workers=workers,
                grace=grace,
            )
    return OK


def _import_server(server: str, *, stdio: bool) -> Server:
    """On stdio, what its import prints goes to stderr: stdout belongs to the protocol from the first moment."""
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


def _warn_unused_run_settings(server: str, said: set[str]) -> None:
    """What the file says in its own `run()`, and was not typed."""
    if unused := [each for each in settings_of_run(server) if each not in said]:
        what = f"the run() of {server} is not called here, and what it says is not used"
        echo(f"greenroom: {what}: {', '.join(unused)}; say it with options", error=True)


_COVERED_BY_SERVE: Final = frozenset({"host", "port", "access_log"})
"""By `--http`, and by `--no-access-log`, which is there or not."""


def settings_of_run(server: str) -> Sequence[str]:
    """What the file of a loaded server gives to `server.run("http", …)`, by name: `greenroom serve` runs it itself, and never comes to that line."""
    place, _ = split_server_name(server)
    path = place if place.endswith(".py") else getattr(sys.modules.get(place), "__file__", None)
    try:
        tree = ast.parse(Path(path or "").read_bytes())
    except (OSError, SyntaxError, ValueError):  # an extension, or an archive: it was imported all the same
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
    """Where to listen, and how. Raises `UsageError`."""
    from greenroom.errors import ConfigError  # noqa: PLC0415 - not for help
    from greenroom.transports.http_config import HttpConfig, is_loopback  # noqa: PLC0415 - as above
    from greenroom.transports.http_request import AllowedHosts, AllowedOrigins, parse_origin  # noqa: PLC0415 - as above

    host, port = parse_host_port(http)
    allowed: Any = None
    if not origin:
        if not is_loopback(host):
            raise UsageError(
                f"{host} can be reached from other machines: say which web pages may call, with --origin and theirs, "
                "--origin none or --origin any (programs may call whatever it says); or listen on 127.0.0.1"
            )
    elif len(origin) > 1 and {"none", "any"} & set(origin):
        raise UsageError("--origin none and --origin any stand alone")
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
    """A setting's error, with the option for its name."""
    known = {each: option.opts[0] for option in SERVE_OPTIONS for each in option.setting.split()}
    option = known.get(f"{kind}.{name}")
    return str(error) if option is None else str(error).replace(name, option, 1)


def parse_host_port(text: str) -> tuple[str, int]:
    """`HOST:PORT`, or a port of this machine's own."""
    host, _, port = text.rpartition(":")
    if not port.isdigit() or not 0 <= int(port) < 1 << 16:
        raise UsageError(f"--http is HOST:PORT, or a PORT of 127.0.0.1, not {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)


# --- ``greenroom serve --config FILE``: a gateway to the servers of a file, without any code.


def gateway_from_file(file: Path, only: Sequence[str] = ()) -> Server:
    """A server that serves those of the file, or `only` some of them, and follows the file.

    What is wrong with one server is logged, and keeps no other from anything. Raises `BadConfig` where none is left, and `UsageError`.
    """
    from greenroom.config.config_reader import read  # noqa: PLC0415 - as above
    from greenroom.config.mistakes import BadConfig, known_servers  # noqa: PLC0415 - not for help
    from greenroom.config.sign_in import oauth_of  # noqa: PLC0415 - as above
    from greenroom.host import Host  # noqa: PLC0415 - as above
    from greenroom.server import Server  # noqa: PLC0415 - as above

    if not file.is_file():
        raise UsageError(f"--config: there is no file {file}")
    found = read(file)
    if strange := [each for each in only if each not in found.enabled and each not in found.failed]:
        there = known_servers(strange[0], [*found.enabled, *found.failed])
        raise UsageError(f"--only: {file} has no server {strange[0]!r}; {there}")
    wrong = [one for one in found.mistakes if not one.harmless and (not only or one.server in (None, *only))]
    if wrong and not any(not only or each in only for each in found.enabled):
        raise BadConfig(wrong)
    if not found.enabled:
        raise UsageError(f"--config: {file} has no server to serve: write one as [server.NAME] with command or url")

    def sign_in(server: ServerConfig) -> OAuth | None:
        # A gateway opens no browser: its login is what `greenroom login` has kept, and its clients are told what to run.
        return oauth_of(server, port=found.oauth_port, browser=None, named=True)

    host = Host.from_config(file, sign_in=sign_in, only=tuple(only) or None, watch=True)
    front = Server("greenroom")
    front.mount(host)
    return front


# --- ``greenroom serve --watch``: the server in a process of its own, which ends in order and begins anew when one of its files changes.
# A file that does not even compile is told and changes nothing: the server that runs goes on.

_POLL_INTERVAL: Final = 0.3
_GRACE: Final = 10.0
"""Seconds that the server may take to stop, and as many beyond its own grace where that is set."""
_SKIPPED_FOLDERS: Final = frozenset({"__pycache__", "node_modules", "build", "dist", "site-packages"})
_MOST: Final = 5000


def python_files(folder: Path) -> Mapping[Path, int]:
    """The Python files below a folder, each with when it was changed; environments and what is hidden are passed over."""
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
                    continue  # it was there a moment ago
    return found


def changed_files(before: Mapping[Path, int], after: Mapping[Path, int]) -> list[Path]:
    """Which have changed, came or went."""
    return sorted(path for path in {*before, *after} if before.get(path) != after.get(path))


def first_syntax_error(paths: Sequence[Path]) -> str | None:
    """The first of them that is no Python, and why."""
    for path in paths:
        try:
            compile(path.read_bytes(), str(path), "exec")
        except FileNotFoundError:
            continue
        except (SyntaxError, ValueError, OSError) as error:
            return f"{path}: {error}"
    return None


async def start_process(words: Sequence[str]) -> Process:
    """A process, with the terminal for what it says."""
    return await anyio.open_process(words, stdin=subprocess.DEVNULL, stdout=None, stderr=None)


async def stop_process(process: Process, grace: float = 0.0) -> None:
    """In order; and if that takes longer than `grace` and ours, at once. Not to be cancelled."""
    with anyio.CancelScope(shield=True):
        if process.returncode is None:
            process.terminate()
            with anyio.move_on_after(grace + _GRACE):
                await process.wait()
            if process.returncode is None:
                process.kill()
        await process.wait()


def serve_and_watch(words: Sequence[str], folder: Path, grace: float = 0.0) -> int:
    """Serve, and look at the files, until a signal comes."""
    return anyio.run(_serve_until_signal, words, folder, grace)


async def _serve_until_signal(words: Sequence[str], folder: Path, grace: float) -> int:
    """Ctrl-C, SIGTERM, or the SIGHUP of a terminal that closes, ends the server in order. One that was ignored (nohup) still is."""
    wanted = (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()))
    heard = [each for each in wanted if signal.getsignal(each) is not signal.SIG_IGN]
    with anyio.open_signal_receiver(*heard) as signals:  # until the server has ended: a second signal changes nothing
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_restart_on_change, words, folder, grace)
            await anext(aiter(signals))
            tasks.cancel_scope.cancel()
    return 0  # as the server itself does when it is told to stop


async def _restart_on_change(words: Sequence[str], folder: Path, grace: float) -> None:
    seen = python_files(folder)
    words = [sys.executable, "-P", "-m", "greenroom.cli", "serve", *words]
    served = await start_process(words)
    ended = False
    try:
        while True:
            await anyio.sleep(_POLL_INTERVAL)
            now = await anyio.to_thread.run_sync(python_files, folder)
            if different := changed_files(seen, now):
                seen = now
                broken = first_syntax_error(different)
                if broken is not None:
                    echo(styled(f"greenroom: {broken}: the server goes on as it was", "bad"), error=True)
                    continue
                names = ", ".join(path.name for path in different[:3])
                echo(styled(f"greenroom: {names} changed: beginning anew", "dim"), error=True)
                await stop_process(served, grace)
                served = await start_process(words)
                ended = False
            elif not ended and served.returncode is not None:
                ended = True
                text = f"greenroom: the server has ended with {served.returncode}: it begins anew when a file changes"
                echo(styled(text, "bad"), error=True)
    finally:
        await stop_process(served, grace)
