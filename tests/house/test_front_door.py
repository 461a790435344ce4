"""The front door loads little, all its names load, and its table agrees with the imports for type checkers."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import greenroom

from . import lazy_names
from .tree import Source, Tree, current_tree


def test_every_name_of_the_door_loads() -> None:
    for name in greenroom.__all__:
        assert getattr(greenroom, name) is not None


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = greenroom.Nonsense  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


def test_dir_lists_names_that_are_not_loaded_yet() -> None:
    assert set(greenroom.__all__) <= set(dir(greenroom))


@pytest.fixture
def door(root: Path) -> Source:
    return next(source for source in current_tree(root).sources if source.module == "greenroom")


def test_the_table_the_imports_for_type_checkers_and_all_agree(root: Path, door: Source) -> None:
    assert lazy_names.drifted(current_tree(root)) == []
    for_checkers = lazy_names.imported(door)
    assert for_checkers == greenroom._HOMES
    assert {*" ".join(for_checkers.values()).split(), "__version__"} == set(greenroom.__all__)


def test_an_outdated_table_is_reported_and_rewritten(tmp_path: Path) -> None:
    text = (
        "if TYPE_CHECKING:\n    from .a import B as B\n    from .a import hidden\n_HOMES: Final[dict[str, str]] = {}\n"
    )
    tree = Tree({"auth/__init__.py": text})
    assert lazy_names.drifted(tree) == [
        "auth/__init__.py: its table of names is out of date: python -m tests.house --write"
    ]
    (tmp_path / "auth").mkdir()
    lazy_names.write(tmp_path, tree)
    written = (tmp_path / "auth" / "__init__.py").read_text(encoding="utf-8")
    assert '    "greenroom.auth.a": "B",\n' in written
    assert lazy_names.drifted(Tree({"auth/__init__.py": written})) == []


@pytest.mark.parametrize("room", ["greenroom.auth", "greenroom.host", "greenroom.transports"])
def test_every_name_of_a_room_loads(room: str) -> None:
    module = importlib.import_module(room)
    assert set(module.__all__) <= set(dir(module))
    assert [name for name in module.__all__ if getattr(module, name) is None] == []


def test_import_loads_no_room() -> None:
    program = "import sys, greenroom; print(*sorted(name for name in sys.modules if name.startswith('greenroom')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert done.stdout.split() == ["greenroom"]


def test_a_server_over_http_loads_quart_with_the_first_page_and_not_before() -> None:
    program = """
import sys
from greenroom import Client, HttpConfig, Server
from greenroom.supervision import run
from greenroom.transports.client.fetch import Fetcher
from greenroom.transports.client.http_address import Guard

def loaded() -> set[str]:
    return {"anyio", "h11", "httpx", "hypercorn", "quart", "thespian"} & sys.modules.keys()

async def main() -> None:
    server = Server("weather")
    async with server.started():
        url = await server.listen(config=HttpConfig(port=0))
        async with Client(url) as client:
            await client.ping()
        print(sorted(loaded()))
        fetch = Fetcher(Guard(loopback=True))
        print((await fetch(url.removesuffix("mcp"))).body, "quart" in loaded())

run(main)
"""
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, check=True, text=True)
    before, after = done.stdout.splitlines()
    assert before == "[]"
    assert "weather" in after
    assert after.endswith("True")


@pytest.mark.parametrize("room", ["actors", "auth", "supervision", "transports"])
def test_a_room_cannot_be_imported_without_greenroom(room: str) -> None:
    done = subprocess.run([sys.executable, "-P", "-c", f"import {room}"], capture_output=True, check=False, text=True)
    assert "ModuleNotFoundError" in done.stderr


@pytest.mark.row("OP-06")
def test_server_client_and_host_come_from_one_door() -> None:
    for name in ("Server", "Client", "SyncClient", "Host"):
        assert getattr(greenroom, name).__module__.startswith("greenroom.")


OPTIONAL_PACKAGES = (
    *(
        "host",
        "host_files",
        "hosted_server",
        "config",
        "actors.consent.consent",
        "actors.elicitation",
        "actors.federation",
    ),
    *("actors.mentions", "actors.output", "auth.client", "actors.gateway", "supervision.cluster"),
    *(
        "multi_worker_server",
        "actors.ensemble",
        "thespian",
        "thespian_tools",
        "actors.thespian_guests",
        "testing",
        "wire_probe",
    ),
    *("pytest_plugin", "supervision.testing", "auth.testing", "cli", "inspect_socket", "moved", "observe"),
)
"""Hosts, gateways, clusters, Thespian, testing and the command line: no plain server or client loads them."""


def users_need() -> list[str]:
    """The requirements of greenroom and of its extras."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    return [*project["dependencies"], *(one for extra in extras for one in extra)]


def others_loaded(make: str, *others: str) -> list[str]:
    """The modules of these parts of greenroom, and of other libraries, that a program has loaded after the expression `make`."""
    program = f"import sys, greenroom; greenroom.{make}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, check=True, text=True)
    libraries = {"h11", *(re.split(r"\W", each)[0] for each in users_need())} - {"msgspec"}
    ours = tuple(f"greenroom.{other}." for other in others)
    return [name for name in done.stdout.split() if name in libraries or f"{name}.".startswith(ours)]


@pytest.mark.parametrize("make", ["Client", "SyncClient"])
def test_an_http_client_loads_nothing_of_servers_hosts_gateways_or_clusters(make: str) -> None:
    others = (
        "server",
        "decorators",
        "run_options",
        "asgi_mount",
        "program_runner",
        "mcp_server",
        "actors.pools",
        "actors.company",
    )
    assert others_loaded(f"{make}('http://127.0.0.1:9/mcp')", *OPTIONAL_PACKAGES, *others) == []


def test_a_server_loads_nothing_of_clients_hosts_gateways_or_clusters() -> None:
    others = (
        "client",
        "client_callbacks",
        "client_methods",
        "sync_client",
        "actors.client",
        "transports.client.interfaces",
    )
    assert others_loaded("Server('weather')", *OPTIONAL_PACKAGES, *others) == []


@pytest.mark.row("FM-05")
def test_no_models_library_is_loaded_or_needed() -> None:
    models = (
        "anthropic",
        "openai",
        "google-genai",
        "mistralai",
        "litellm",
        "langchain",
        "llama",
        "transformers",
        "mcp",
    )
    assert [one for one in users_need() if one.startswith(models)] == []
