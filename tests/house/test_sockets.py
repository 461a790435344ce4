"""Each module that listens is listed here with its protection: no socket is open to other programs on a user's machine, or to a page in a browser."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from .tree import Source, current_tree

LISTENERS = {
    "actors/thespian_guests/guest_listener.py": "a socket in a folder of the user's, mode 0600; each end proves that it has the guests' key",
    "src/greenroom/inspect_socket.py": 'a socket in a folder of the user\'s, mode 0600; it answers this user alone, acts only with inspect="acts", and bounds what it reads',
    "supervision/acceptor.py": "it listens for other modules, which are in `INDIRECT_LISTENERS`",
    "supervision/cluster/thespian_patches.py": "a probe, closed again: whether a port is free",
    "supervision/cluster/thespian_system.py": "a probe, closed again: whether an address is this machine's",
    "transports/listening_sockets.py": "the HTTP listener: Host and Origin are checked, and a provider authenticates the caller; between workers, a socket in a folder of the user's, mode 0600, which requires a secret",
}
"""Modules that bind a socket, and the protection of that socket."""

INDIRECT_LISTENERS = {
    "auth/client/interactive_flows.py": "on 127.0.0.1, during a login; it accepts an unguessable state, once; the page is fixed and contains no script",
    "auth/testing/fake_auth_server.py": "for tests, on 127.0.0.1: an authorization server that lets every user sign in",
    "src/greenroom/testing/faulty_routes.py": "for tests, on 127.0.0.1: a route to a server, which authenticates its callers itself",
    "supervision/cluster/addresses.py": "links of nodes: both ends prove that they have the key before anything else is read",
}
"""Modules that listen through another module, or through asyncio."""

PAGES = {
    "auth/client/interactive_flows.py",
    "auth/testing/fake_auth_endpoints.py",
    "src/greenroom/observe/admin_app.py",
    "src/greenroom/observe/observer_pages.py",
}
"""Modules that serve HTML: each escapes all text, and sends a policy that allows no script, or the observer's own files alone."""

BIND_CALLS = {"bind"}
LISTEN_CALLS = {
    "start_server",
    "start_unix_server",
    "create_server",
    "create_unix_server",
    "tcp_sockets",
    "unix_socket",
}


def calls(source: Source, names: set[str]) -> bool:
    """Whether a module calls a function of these names on a socket or with an address. `bind` of a signature is excluded by the name before it."""
    for node in source.nodes:
        if isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Name) and function.id in names:
                return True
            if isinstance(function, ast.Attribute) and function.attr in names:
                owner = ast.unparse(function.value)
                if function.attr != "bind" or owner.rpartition(".")[2] in ("sock", "probe", "listening"):
                    return True
    return False


@pytest.fixture(name="sources", scope="module")
def _sources() -> list[Source]:
    return current_tree(Path(__file__).parents[2]).sources


def test_each_module_that_binds_a_socket_is_listed(sources: list[Source]) -> None:
    assert {each.path for each in sources if calls(each, BIND_CALLS)} == set(LISTENERS)


def test_each_module_that_listens_through_another_is_listed(sources: list[Source]) -> None:
    found = {each.path for each in sources if calls(each, LISTEN_CALLS)}
    assert found - set(LISTENERS) == set(INDIRECT_LISTENERS)


def test_each_module_that_serves_html_is_listed(sources: list[Source]) -> None:
    # The document of an app is a resource of a server, and no page of a listener.
    assert {each.path for each in sources if re.search(r"text/html(?!;profile=mcp-app)", each.text)} == PAGES


@pytest.mark.parametrize("new", ["sock.bind(('0.0.0.0', 80))", "probe.bind(x)", "asyncio.start_server(f, '0.0.0.0')"])
def test_a_new_listener_is_found(new: str) -> None:
    assert calls(Source("auth/x.py", "greenroom.auth.x", f"{new}\n"), BIND_CALLS | LISTEN_CALLS)
