"""Imports of servers in Python code: `module:server`, `file.py:server`, `file.py`.

Output of the imported code goes to stderr, because a command's stdout is its answer. An exception of that code is reported with its line in the author's
file. `server.run()` without a `__main__` guard ends the import, as it does in workers.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import traceback
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .exit_codes import FAILED, CommandFailed, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from types import ModuleType

    from greenroom.server import Server


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """The target of a command and its connection options, as typed."""

    target: str | None
    command: Sequence[str] | None
    era: str | None = None
    timeout: float | None = None
    header: Sequence[str] = ()
    env: Sequence[str] = ()
    config: Path | None = None
    verbose: bool = False
    callbacks: Mapping[str, Any] = field(default_factory=dict[str, Any])


def is_server_name(target: str) -> bool:
    """Whether the target names a server in Python code: `module:server`, `file.py:server`, `file.py`."""
    path, _, _ = target.rpartition(":")
    module = path or target
    return target.endswith(".py") or module.endswith(".py") or (bool(path) and module.replace(".", "_").isidentifier())


def is_url(target: str) -> bool:
    """Whether the target is an http or https URL. Raises `UsageError` for another scheme."""
    scheme, found, _ = target.partition("://")
    if found and scheme.lower() not in ("http", "https"):
        raise UsageError(f"{scheme}:// cannot reach a server: write http:// or https://")
    return bool(found)


def parse_pairs(option: str, texts: Sequence[str], *, bare: bool = False) -> dict[str, str]:
    """All values of `--env` or `--header` as a dict; `bare` strips spaces around a variable's value as well. Raises `UsageError`."""
    separator, form = ("=", "NAME=value") if option == "--env" else (":", "'Name: value'")
    found: dict[str, str] = {}
    for text in texts:
        name, there, value = text.partition(separator)
        if not there or not name.strip():
            raise UsageError(f"{option} is written {form}")  # the typed text is not quoted: it may be a secret
        found[name.strip()] = value.strip() if bare or separator == ":" else value
    return found


def split_server_name(name: str) -> tuple[str, str]:
    """The module or file, and the server's name in it (empty if not given)."""
    place, _, attribute = (name, "", "") if name.endswith(".py") else name.rpartition(":")
    return (place, attribute) if place else (attribute, "")


def load_server(name: str) -> Server:
    """Import a server. Raises `UsageError` that lists the servers of the module, and `CommandFailed` with the line at which its code failed."""
    from greenroom.server import Server  # noqa: PLC0415 - `--help` needs none

    place, attribute = split_server_name(name)
    with stdout_to_stderr():
        module = _import_file(Path(place)) if place.endswith(".py") else _import_module(place)
    servers = {key: value for key, value in vars(module).items() if isinstance(value, Server)}
    if attribute:
        found: Any = module
        for step in attribute.split("."):
            found = getattr(found, step, None)
        if not isinstance(found, Server):
            there = f"it has {', '.join(servers)}" if servers else "it has none"
            raise UsageError(f"{place} has no server called {attribute!r}: {there}")
        return found
    if len(set(map(id, servers.values()))) != 1:
        there = (
            f"it has {', '.join(servers)}: say which, as in {place}:{next(iter(servers))}" if servers else "it has none"
        )
        raise UsageError(f"{place} should have one server: {there}")
    return next(iter(servers.values()))


@contextlib.contextmanager
def report_author_errors(name: str) -> Generator[None]:
    """Report an exception of the server's own code as `CommandFailed`, with its line; other exceptions pass unchanged."""
    place, _ = split_server_name(name)
    folder = Path(place).resolve().parent if place.endswith(".py") else Path.cwd()
    try:
        yield
    except (CommandFailed, UsageError, OSError):
        raise
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None:
            if _own_frames(folder, cause):
                raise CommandFailed(FAILED, _failure_text(place, folder, cause, "has failed")) from cause
            cause = cause.__cause__
        raise


@contextlib.contextmanager
def stdout_to_stderr() -> Generator[None]:
    """Send stdout to stderr while the block runs: prints of Python, and output of C code and child processes by replacing descriptor 1."""
    before = sys.stdout
    if before is not None:
        before.flush()
    try:
        kept = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # descriptor 1 or 2 is closed, so output cannot get into the answer
        kept = -1
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        if kept >= 0:
            if before is not None:
                before.flush()
            os.dup2(kept, 1)
            os.close(kept)


def _import_module(name: str) -> ModuleType:
    from greenroom.actors.pools.handler_spec import import_until_stopped  # noqa: PLC0415 - as above

    here = Path.cwd()
    if str(here) not in sys.path:
        sys.path.insert(0, str(here))
    return _run_import(name, here, lambda: import_until_stopped(name), wanted=name)


def _import_file(path: Path) -> ModuleType:
    """Import a file under its own name, so that workers and other modules import the same module.

    A file whose name another module has (a file named json.py) is run as a program instead: an import of the name would bring the other module.
    """
    from greenroom.actors.pools.handler_spec import import_until_stopped, run_file  # noqa: PLC0415 - as above

    if not path.is_file():
        raise UsageError(f"the file {path} does not exist")
    whole = path.resolve()
    folder = str(whole.parent)
    importlib.invalidate_caches()
    own = _is_importable_as(whole)
    if folder not in sys.path:
        # A file that shadows another module's name must not do so for other imports: its folder goes last in the path then.
        sys.path.insert(0 if own else len(sys.path), folder)
    return _run_import(
        str(path), whole.parent, lambda: import_until_stopped(whole.stem) if own else run_file(str(whole))
    )


def _is_importable_as(file: Path) -> bool:
    """Whether `import name` loads this file, and no installed or standard module has that name."""
    name = file.stem
    known = sys.modules.get(name)
    if known is not None:
        return _is_from(file, getattr(known, "__file__", None))
    if "." in name or name in sys.stdlib_module_names:
        return False
    there, elsewhere = PathFinder.find_spec(name, [str(file.parent)]), importlib.util.find_spec(name)
    return there is not None and all(_is_from(file, each.origin) for each in (there, elsewhere) if each is not None)


def _is_from(file: Path, origin: str | None) -> bool:
    return origin is not None and Path(origin).resolve() == file


def _run_import(place: str, folder: Path, load: Callable[[], ModuleType], *, wanted: str = "") -> ModuleType:
    """Run an import and report its failure. `wanted` is the module's name, if the module may be missing."""
    from greenroom.actors.pools.handler_spec import importing  # noqa: PLC0415 - as above

    try:
        with importing():
            return load()
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{wanted}.".startswith(f"{error.name}."):
            raise UsageError(
                f"the module {wanted!r} is neither in this folder nor on the path of {sys.executable}"
            ) from None
        raise CommandFailed(FAILED, _failure_text(place, folder, error)) from error


def _failure_text(place: str, folder: Path, error: BaseException, failed: str = "cannot be loaded") -> str:
    """The exception of the server's code, with the last line of that code in the traceback."""
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    own = _own_frames(folder, error)
    where = f" ({os.path.relpath(own[-1].filename)}, line {own[-1].lineno})" if own else ""
    return f"{place} {failed}: {what}{where}"


def _own_frames(folder: Path, error: BaseException) -> list[traceback.FrameSummary]:
    """The frames of the traceback that are in files below the folder."""
    return [each for each in traceback.extract_tb(error.__traceback__) if _is_below(folder, each.filename)]


def _is_below(folder: Path, file: str) -> bool:
    path = Path(file)
    return path.is_relative_to(folder) and not {"site-packages", "dist-packages"} & set(path.parts)
