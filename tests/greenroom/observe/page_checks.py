"""What the observer's pages are given in tests, and what their HTML is held against: views with hostile texts in every field, and a reader of pages."""

from __future__ import annotations

import random
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import inspect

from greenroom.observe.admin_access import ROOT, AdminAccess, Viewer
from greenroom.observe.admin_settings import Admin
from greenroom.observe.observer_pages import ACTS, ObserverPages
from greenroom.observe.view_models import VIEW_TYPES, ActOutcome, View, ViewQuery
from greenroom.transports.quart_door import make_application

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

MARK: Final = "zzmark"
"""The name of an element, an attribute and a script that must never come to be."""
HOSTILE: Final = (
    f"<{MARK}>",
    f'"><{MARK}>',
    f"'><{MARK}/>",
    f"<script>{MARK}()</script>",
    f"</pre></title></textarea><{MARK}>",
    f'" onclick="{MARK}()" x="',
    f"<img src=x onerror={MARK}()>",
    "javascript:" + MARK + "()",
    "{{7*7}}{% raw %}{{ config }}",
    "\u202eedoc\u2066 rtl",
    "\x00\x07\x1b[31m red",
    "<!-- ", "]]>", "&lt;b&gt;", "event: over\ndata: x\n\n",
    "\N{HEADPHONE} " * 3,
    "x" * 10_000,
)  # fmt: skip
_VOID: Final = frozenset({"meta", "link", "img", "input", "br", "hr", "rect", "polygon", "polyline"})
_ONE_OF_EACH: Final = 2


class HostileValues:
    """Makes views whose texts are hostile, each another one, and whose numbers are extreme."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._made = 0

    def text(self) -> str:
        self._made += 1
        return f"{self._made} {HOSTILE[self._made % len(HOSTILE)]}"

    def view(self, name: str) -> Any:
        """A view; nothing of it is left out."""
        return self._value(inspect.type_info(VIEW_TYPES[name]))

    def _value(self, kind: Any, name: str = "") -> Any:  # noqa: PLR0911 - one line for each kind of type
        match kind:
            case inspect.StructType():
                fields = {each.name: self._value(each.type, each.name) for each in kind.fields}
                return kind.cls(**fields)
            case inspect.UnionType():
                return self._value(next(each for each in kind.types if not isinstance(each, inspect.NoneType)), name)
            case inspect.LiteralType():
                return self._random.choice(kind.values)
            case inspect.ListType() if name == "acts":
                return sorted(ACTS)[:3]
            case inspect.ListType():
                return [self._value(kind.item_type, name) for _ in range(_ONE_OF_EACH)]
            case inspect.DictType():
                if name == "schema":
                    described = {
                        "type": "string",
                        "description": self.text(),
                        "enum": [self.text()],
                        "default": self.text(),
                    }
                    return {
                        "properties": {self.text(): described, self.text(): {"default": {self.text(): 1}}},
                        "required": [self.text()],
                    }
                return {self.text(): self._value(kind.value_type) for _ in range(_ONE_OF_EACH)}
            case inspect.StrType():
                return self.text()
            case inspect.BoolType():
                return True
            case inspect.IntType():
                self._made += 1
                return self._random.randrange(40) if name == "depth" else self._made * self._random.choice((1, 10**12))
            case inspect.FloatType():
                self._made += 1
                if name in ("at", "ends_at", "first_at", "last_at"):
                    return 1.8e9 + self._made
                return self._random.choice((0.001, 5.0, 4e9, 1e300))
            case inspect.AnyType():
                return self.text()
            case _:
                raise AssertionError(f"no value for {kind}")


class FakeProgram:
    """Gives the pages their views, and keeps what they do."""

    def __init__(self, views: dict[str, View] | None = None) -> None:
        self.views: dict[str, View] = {
            name: kind(at=1.8e9, program="weather", **_NEEDED.get(name, {})) for name, kind in VIEW_TYPES.items()
        }
        self.views.update(views or {})
        self.asked: list[tuple[str, ViewQuery]] = []
        self.acts: list[tuple[str, str, str, dict[str, Any]]] = []

    async def view(self, name: str, query: ViewQuery) -> View:
        self.asked.append((name, query))
        return self.views[name]

    async def act(self, act: str, target: str, principal: str, **more: Any) -> ActOutcome:
        self.acts.append((act, target, principal, more))
        return ActOutcome(
            act=act, target=target, is_done=target != "nothing", text=f"{act} of {target}", result='{"a":1}'
        )

    async def recording(self) -> AsyncIterator[bytes]:
        for line in (b'{"a":1}\n', b'{"b":2}\n'):
            yield line


_NEEDED: Final[dict[str, dict[str, Any]]] = {"process": {"pid": "<a.1>"}, "call": {"call": 1}}


class Site:
    """The pages as an application, and a viewer."""

    def __init__(self, program: FakeProgram, *, may_act: bool = True, may_inject: bool = True) -> None:
        self.program = program
        self.access = AdminAccess(Admin(acts=may_act, faults=may_inject))
        found = self.access.viewer_of(self.access.sign_in("ada", 0.0, may_act=True), 0.0)
        assert found is not None
        self.viewer: Viewer = found
        self.pages = ObserverPages(program, self.access)
        self.app = make_application()
        self.app.before_request(self._enter)
        self.app.register_blueprint(self.pages.blueprint(), url_prefix=ROOT.rstrip("/"))
        self.client = self.app.test_client()

    async def _enter(self) -> None:
        self.access.enter(self.viewer)

    async def get(self, path: str) -> tuple[int, str]:
        response = await self.client.get(path)
        return response.status_code, await response.get_data(as_text=True)

    async def post(self, path: str, **form: str) -> tuple[int, str]:
        response = await self.client.post(path, form=form)
        return response.status_code, await response.get_data(as_text=True)

    @asynccontextmanager
    async def stream(self, path: str) -> AsyncGenerator[EventReader]:
        """The events of a stream, which is closed after the block."""
        client: Any = self.client
        async with client.request(path) as connection:
            await connection.send_complete()
            yield EventReader(connection)
            await connection.disconnect()


class EventReader:
    """Reads server-sent events."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._rest = ""

    async def next(self) -> tuple[str, str]:
        """The next event: its name and its data."""
        while "\n\n" not in self._rest:
            self._rest += (await self._connection.receive()).decode()
        event, _, self._rest = self._rest.partition("\n\n")
        lines = event.split("\n")
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        return lines[0].removeprefix("event: "), "\n".join(data)


class PageReader(HTMLParser):
    """Reads a page or a fragment, and keeps what is wrong with it."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.wrong: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.forms: list[tuple[str, str]] = []
        self.files: list[str] = []
        self.regions: list[str] = []
        self.texts: list[str] = []
        self.labels: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        self.wrong += [f"<{tag}> is not closed" for tag in self._open]
        self.wrong += [
            f"the id {each!r} is there twice" for each in {each for each in self.ids if self.ids.count(each) > 1}
        ]
        self.wrong += [f"{each!r} labels, and is not there" for each in self.labels if each not in self.ids]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if len(given) != len(attrs):
            self.wrong.append(f"<{tag}> has an attribute twice")
        if tag not in _VOID:
            self._open.append(tag)
        if tag in (MARK, "style", "iframe", "object", "base") or (tag == "script" and set(given) != {"src", "defer"}):
            self.wrong.append(f"<{tag} {given}>")
        self.wrong += [
            f"{name} in <{tag}>"
            for name in given
            if name.startswith("on") or name in ("style", "hx-on", "hx-vals", MARK)
        ]
        if (found := given.get("id")) is not None:
            self.ids.append(found)
            if not found or found != "".join(found.split()):
                self.wrong.append(f"the id {found!r}")
        self.labels += given.get("aria-labelledby", "").split()
        for name in ("href", "src", "action"):
            if name in given:
                (self.links if tag == "a" else self.files if name != "action" else []).append(given[name])
                if not given[name].startswith((ROOT, "#")):
                    self.wrong.append(f"{name}={given[name][:80]!r} leads elsewhere")
        if tag == "form":
            self.forms.append((given.get("method", "get"), given["action"]))
        if "sse-swap" in given:
            self.regions.append(given["sse-swap"])
        self.texts += given.values()

    def handle_endtag(self, tag: str) -> None:
        if tag in _VOID:
            return
        if not self._open or self._open.pop() != tag:
            self.wrong.append(f"</{tag}> closes nothing")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.handle_endtag(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        self.wrong.append(f"a comment: {data[:40]!r}")

    def unknown_decl(self, data: str) -> None:
        self.wrong.append(f"a declaration: {data[:40]!r}")


def encoded(view: View) -> bytes:
    """A view as it goes to another process."""
    return msgspec.json.encode(view)
