"""The package exports links, processes and machines, and loads only the parts that are used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from greenroom.supervision import cluster


def loaded(program: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after that code."""
    program = f"{program}; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, check=True, text=True)
    return set(done.stdout.split())


def test_every_name_loads_and_is_named_before() -> None:
    assert set(cluster.__all__) <= set(dir(cluster))
    assert [name for name in cluster.__all__ if getattr(cluster, name) is None] == []


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = cluster.Nonsense  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


def test_the_table_and_the_imports_for_type_checkers_agree() -> None:
    tree = ast.parse(Path(cluster.__file__).read_text(encoding="utf-8"))
    for_checkers = {
        alias.name: f"{cluster.__name__}.{node.module}"
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    engine = {name: home for home, names in cluster._HOMES.items() for name in names.split()}
    assert for_checkers == engine
    assert set(engine) < set(cluster.__all__)


def test_linking_nodes_loads_no_engine_and_starting_them_no_thespian() -> None:
    links = loaded("from greenroom.supervision.cluster import Peers, start_on")
    assert not set(cluster._HOMES) & links
    engine = loaded("from greenroom.supervision.cluster import *")
    assert "greenroom.supervision.cluster.node_engine" in engine
    assert not {name for name in engine if name.partition(".")[0] == "thespian"}
