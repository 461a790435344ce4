"""The page about the packages is current, and its costs are those that a program measures."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from . import packages
from .packages import Cost, Graph
from .tree import Tree, current_tree

if TYPE_CHECKING:
    from pathlib import Path

PAGE = "# House\n" + "\n".join(
    f"{packages.BEGIN.format(name)}\nold\n{packages.END.format(name)}"
    for name in ("the drawing", "the table of packages")
)
COUNT = "import sys, greenroom; greenroom.{}; print(sum(each.split('.')[0] == 'greenroom' for each in sys.modules))"


@pytest.fixture(scope="module")
def graph(root: Path) -> Graph:
    return Graph(current_tree(root))


def small(**files: str) -> Graph:
    """A graph of a few modules: `__` in a name is a slash, and `init` is a package's own file."""
    return Graph(
        Tree({f"{name.replace('__', '/').replace('/init', '/__init__')}.py": text for name, text in files.items()})
    )


def test_the_page_is_current(root: Path) -> None:
    written = (root / packages.PAGE).read_text(encoding="utf-8")
    assert packages.current(written, packages.page(written, current_tree(root))), f"run `{packages.COMMAND}`"


@pytest.mark.parametrize("name", ["Client", "Host"])
def test_a_program_loads_as_many_modules_as_the_page_says(graph: Graph, name: str) -> None:
    program = [sys.executable, "-P", "-c", COUNT.format(name)]
    done = subprocess.run(program, capture_output=True, check=True, text=True)
    assert graph.cost(graph.homes("greenroom")[name]).modules == int(done.stdout)


def test_an_import_counts_when_a_module_is_loaded_later_or_never() -> None:
    graph = small(
        auth__init="",
        auth__a="import httpx, json\nfrom greenroom.protocol import b\nif TYPE_CHECKING:\n    import greenroom.config",
        auth__c="class Some:\n    def f(self):\n        from greenroom.transports import d",
        src__greenroom__protocol__init="",
        src__greenroom__protocol__b="x = 1",
        src__greenroom__config__init="",
        transports__init="",
        transports__d="",
    )
    assert graph.needs["greenroom.auth"] == {"greenroom.protocol"}
    assert graph.later["greenroom.auth"] == {"greenroom.transports"}
    assert graph.cost("greenroom.auth.a") == Cost(4, graph.size(["greenroom.auth.a"]) + 5, ("httpx",))
    assert graph.cost("greenroom.auth.c").modules == 2


def test_a_lazily_loaded_name_counts_as_the_module_that_defines_it() -> None:
    door = "if TYPE_CHECKING:\n    from greenroom.server import Server\ndef __getattr__(name): ..."
    graph = small(
        src__greenroom__init=door,
        src__greenroom__server="",
        src__greenroom__cli__init="",
        src__greenroom__cli__a="from greenroom import Server",
    )
    assert graph.cost("greenroom.cli.a").modules == 4


def test_packages_that_import_each_other_are_named() -> None:
    graph = small(
        auth__init="from greenroom.auth.client import a",
        auth__client__init="",
        auth__client__a="import greenroom.auth",
        actors__init="import greenroom.auth",
    )
    assert graph.import_cycles() == [["greenroom.auth", "greenroom.auth.client"]]
    assert "- `auth`, `auth.client`" in packages.drawing(graph)


def test_a_package_without_a_purpose_and_a_purpose_without_a_package_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packages, "PURPOSES", {"config": "files"})
    assert packages.unlisted(small(auth__init="")) == [
        "tests/house/packages.py: PURPOSES has no line for auth",
        "tests/house/packages.py: PURPOSES has config, which does not exist",
    ]
    with pytest.raises(SystemExit, match="PURPOSES has no line for auth"):
        packages.page(PAGE, Tree({"auth/__init__.py": ""}))


def test_both_parts_are_written_between_their_marks(root: Path, tmp_path: Path) -> None:
    file = tmp_path / packages.PAGE
    file.parent.mkdir(parents=True)
    file.write_text(PAGE, encoding="utf-8")
    tree = current_tree(root)
    assert packages.write(tmp_path, tree) == file
    written = file.read_text(encoding="utf-8")
    assert "\nold\n" not in written
    assert "│ auth.client " in written
    assert "| `auth.client` |" in written
    assert packages.current(written, packages.page(written, tree))
    with pytest.raises(SystemExit, match="no <!-- the drawing"):
        packages.page("# House", tree)


def test_sizes_have_a_tolerance_and_counts_have_none() -> None:
    assert packages.current("3 modules, 100 KB", "3 modules, 109 KB")
    assert not packages.current("3 modules, 100 KB", "3 modules, 120 KB")
    assert not packages.current("3 modules, 100 KB", "4 modules, 100 KB")
