"""The observer's pages as text: a view, put into its template. It knows views and templates, and no requests.

Each view has a template of its name. A block of it that is called `live_…` is a fragment: the page has it in an element with `sse-swap`, and a stream sends it anew
when it has changed. Every text is escaped, since most of them are a peer's.
"""

from __future__ import annotations

import hashlib
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

import msgspec

from .admin_access import ROOT
from .page_formats import FILTERS
from .process_views import Turns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .view_models import ProcessView, ViewQuery

FOLDER: Final = Path(__file__).parent
STATIC: Final = "static"
LIVE: Final = "live_"
"""How the names of blocks begin that are sent anew when they have changed."""
_MOST_ADDRESSES: Final = 4096
"""Addresses and ids that are kept: a page is made each second, and most of it is as before."""
_MOST_NEIGHBOURS: Final = 24
"""Of each kind, in the graph of a process; the lists beside it have all."""

MENU: Final = (
    ("Overview", (("now", "Now"), ("tree", "Tree"), ("crashes", "Crashes"))),
    (
        "Traffic",
        (
            ("sessions", "Sessions"),
            ("upstreams", "Upstreams"),
            ("calls", "Calls"),
            ("tools", "Tools"),
            ("wire", "Wire"),
        ),
    ),
    ("Work", (("pools", "Pools"), ("tasks", "Tasks"), ("questions", "Questions"))),
    ("Engine", (("loop", "Loop and threads"), ("faults", "Faults"))),
)
"""The views that are reached from everywhere. `process` and `call` are reached from rows."""
SECTIONS: Final = {"process": "tree", "call": "calls"}
HEADINGS: Final = {name: title for _, views in MENU for name, title in views} | {"process": "Process", "call": "Call"}


class PageTemplates:
    """The templates, ready to be filled. `environment` is one of Jinja2's that finds them."""

    def __init__(self, environment: Any) -> None:
        """The environment is not changed: a copy of it escapes everything, and renders at once."""
        env = environment.overlay(
            autoescape=True, enable_async=False, trim_blocks=True, lstrip_blocks=True, cache_size=100
        )
        env.filters = {**env.filters, **FILTERS}
        env.globals = {**env.globals, "link": link, "asset": asset, "key": key, "menu": MENU, "graph_data": graph_data}
        env.globals["ui"] = env.get_template("parts.html").module
        self.environment = env

    async def page(self, name: str, **values: Any) -> str:
        """A whole page; `name` is that of its template without the ending."""
        usual = {
            "heading": HEADINGS.get(name, "greenroom"),
            "section": SECTIONS.get(name, name),
            "now": None,
            "live": "",
        }
        template = self.environment.get_template(f"{name}.html")
        return await _in_turns(template.generate({**usual, **values}), Turns())

    async def fragments(self, name: str, **values: Any) -> dict[str, str]:
        """The fragments of a view by the names of their events."""
        given = {"section": SECTIONS.get(name, name), **values}
        turns = Turns()
        return {
            block.removeprefix(LIVE): await _in_turns(function(template.new_context(given)), turns)
            for template in map(self.environment.get_template, ("base.html", f"{name}.html"))
            for block, function in template.blocks.items()
            if block.startswith(LIVE)
        }


async def _in_turns(pieces: Iterable[str], turns: Turns) -> str:
    """The text of these pieces. Two hundred rows take 20 ms, which no call should wait for, so other code runs in between."""
    done: list[str] = []
    for piece in pieces:
        done.append(piece)
        if turns.is_over():
            await turns.rest()
    return "".join(done)


def link(name: str, query: ViewQuery | None = None, **changes: Any) -> str:
    """The address of a view or of another page below the root, with a query and changes of it; what is empty is left out."""
    parts: dict[str, Any] = {} if query is None else msgspec.structs.asdict(query)
    # What is zero or false is the default of each field.
    given = tuple((key, 1 if value is True else value) for key, value in {**parts, **changes}.items() if value)
    return _address("" if name == "now" else name, given)


@lru_cache(_MOST_ADDRESSES)
def _address(path: str, given: tuple[tuple[str, Any], ...]) -> str:
    return f"{ROOT}{path}{'?' if given else ''}{urlencode(given)}"


def key(*parts: object) -> str:
    """An id for an element, from texts that may have any letters: one without blanks, and another one for other parts."""
    return ":".join(_quoted(str(part)) for part in parts)


@lru_cache(_MOST_ADDRESSES)
def _quoted(part: str) -> str:
    return quote(part, safe="")


@cache
def asset(path: str) -> str:
    """The address of a file in `static`; it changes with the file, so that a browser may keep what it has."""
    digest = hashlib.sha256((FOLDER / STATIC / path).read_bytes()).hexdigest()
    return f"{ROOT}{STATIC}/{path}?v={digest[:12]}"


def graph_data(view: ProcessView) -> str:
    """A process and its neighbours as nodes and edges, as JSON for the page's script."""
    if view.row is None:
        return ""
    nodes: dict[str, dict[str, str]] = {
        view.pid: {"id": view.pid, "label": view.row.name or view.row.label, "side": "self"}
    }
    edges: list[dict[str, str]] = []
    kinds = (
        ("parent", view.ancestors[:1], "tree", False),
        ("child", view.children, "tree", True),
        ("link", view.links, "link", True),
        ("monitor", view.monitors, "monitor", False),
        ("monitor", view.watching, "monitor", True),
    )
    for side, refs, kind, is_outward in kinds:
        for each in refs[:_MOST_NEIGHBOURS]:
            nodes.setdefault(each.pid, {"id": each.pid, "label": each.label, "side": side})
            ends = (view.pid, each.pid) if is_outward else (each.pid, view.pid)
            edges.append({"source": ends[0], "target": ends[1], "kind": kind})
    return msgspec.json.encode({"nodes": [*nodes.values()], "edges": edges}).decode()
