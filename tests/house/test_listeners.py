"""All listeners accept connections through `supervision/acceptor.py`: asyncio's own servers fill the log when descriptors run out."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .tree import current_tree

if TYPE_CHECKING:
    from pathlib import Path

SERVERS = {"create_server", "create_unix_server", "start_server", "start_unix_server"}
ACCEPTING = {
    "supervision/acceptor.py": "the one place",
    "supervision/cluster/thespian_system.py": "a listening socket that is polled, in a process that has a dozen files open",
    "src/greenroom/testing/faulty_routes.py": "a network for tests, whose connections fail on demand",
}


def accepts(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute):
        return False
    of_a_socket = any(word in ast.unparse(call.func.value).lower() for word in ("sock", "listen"))
    return call.func.attr in SERVERS or (call.func.attr == "accept" and of_a_socket)


def test_every_listener_survives_running_out_of_descriptors(root: Path) -> None:
    found = {
        source.path
        for source in current_tree(root).sources
        if any(isinstance(each, ast.Call) and accepts(each) for each in source.nodes)
    }
    assert found == set(ACCEPTING)
