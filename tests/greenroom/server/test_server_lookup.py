"""How workers find a program's server, how a host's servers are found by their ids, and runs from another thread."""

from __future__ import annotations

import sys
import threading
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Host, Server
from greenroom.actors.federation.federation_errors import UnknownServer
from greenroom.errors import ConfigError
from greenroom.multi_worker_server import application_of
from greenroom.program_runner import GaveUp, run
from greenroom.supervision import GenServer, child

if TYPE_CHECKING:
    from pathlib import Path

SERVED = """
from greenroom import Server

server = Server("found")
other = "no server"
"""


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module with a server in it."""
    (tmp_path / "served_here.py").write_text(SERVED)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "served_here", raising=False)
    module = __import__("served_here")
    monkeypatch.setitem(sys.modules, "served_here", module)
    return module


def test_a_server_at_the_top_of_a_module_is_found_by_its_name(served: Any) -> None:
    application = application_of(served.server)

    assert str(application) == "served_here:server"
    assert application.load() is served.server
    again = application.load()
    served.server = "something else by now"
    with pytest.raises(ConfigError, match="served_here:server is no Server when another process imports it, but 'som"):
        application.load()
    assert again is not served.server


def test_a_server_that_cannot_be_imported_is_an_error_with_a_remedy() -> None:
    with pytest.raises(ConfigError, match=r"workers cannot find this server: .* at the top of a module"):
        application_of(Server("nowhere"))


@pytest.mark.parametrize("file", ["program.py", "gone.py", None])
def test_a_server_of_the_program_itself_is_found_where_that_is_in_a_file(
    file: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = ModuleType("__main__")
    server = Server("main")
    main.server = server  # type: ignore[attr-defined]
    if file is not None:
        (tmp_path / "program.py").touch()
        main.__file__ = str(tmp_path / file)
    monkeypatch.setitem(sys.modules, "__main__", main)
    if file == "program.py":
        application = application_of(server)
        assert (str(application), application.main is not None) == ("__main__:server", True)
    else:
        with pytest.raises(ConfigError, match="this program is in no file, from which workers could import it"):
            application_of(server)


async def test_a_server_of_a_host_is_known_for_as_long_as_it_is_there() -> None:
    up = Server("up")

    @up.tool
    def add(a: int, b: int) -> int:
        return a + b

    async with Host({"up": up}) as host:
        found = host.server("up")
        assert repr(found) == "<HostedServer up>"
        assert await found.within(60.0).call("add", a=1, b=2) == 3
        await host.remove("up")
        with pytest.raises(UnknownServer, match="up"):
            await found.call("add", a=1, b=2)
        with pytest.raises(UnknownServer, match="up"):
            host.server("up")


class Fleeting(GenServer):
    """Comes up, and cannot be kept alive."""

    def init(self) -> Any:
        self.cast_self()

    def cast_self(self) -> None:
        self.ref().cast(Fleeting.fall)

    def fall(self) -> None:
        raise LookupError("cannot go on")


class Unborn(GenServer):
    """A server that fails to start."""

    def init(self) -> Any:
        raise LookupError("cannot begin")


def outcome(*given: Any, **options: Any) -> BaseException | None:
    """How a run ends in a thread that hears no signals."""
    ended: list[BaseException | None] = []

    def live() -> None:
        try:
            run(*given, **options)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            ended.append(error)
        else:
            ended.append(None)

    thread = threading.Thread(target=live)
    thread.start()
    thread.join(60.0)
    (end,) = ended
    return end


def test_a_run_ends_with_its_listeners_or_reports_which_one_failed() -> None:
    async def over(_: Any) -> None:
        return

    assert outcome(list, over) is None
    gave_up = outcome(lambda: [child(Fleeting)])
    assert isinstance(gave_up, GaveUp)
    assert str(gave_up).startswith("the server has ended: ")
    unborn = outcome(lambda: [child(Unborn)])
    assert "cannot begin" in str(unborn)


@pytest.mark.parametrize("grace", [-1.0, float("nan")])
def test_a_grace_that_is_none_is_refused(grace: float) -> None:
    with pytest.raises(ValueError, match="grace must be 0 seconds or more"):
        run(list, grace=grace)
