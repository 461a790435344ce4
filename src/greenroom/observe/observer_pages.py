"""The observer: the pages of `/observe/`, their streams, and the forms that act.

A page is whole without a script. With one, it opens a stream of its fragments: each view is made and rendered at most once a second for all viewers with the same
rights, and a fragment is sent when it has changed. Who may see and do what is decided before (`admin_app`); here an act needs the viewer's right once more.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import msgspec

from greenroom.errors import GreenroomError
from greenroom.supervision import visible
from greenroom.supervision.kernel.process_lookup import shared_task
from greenroom.transports.quart_door import Blueprint, Response, request

from .page_templates import STATIC, PageTemplates, link
from .schema_form import FormFault, form_arguments, form_fields
from .view_models import VIEW_TYPES, ActOutcome, NowView, ToolsView, ViewQuery

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable

    from .admin_access import AdminAccess, Viewer
    from .view_models import View

_ALSO: Final = {"now": "tree", "faults": "tree"}
"""Views whose pages show another one as well."""
MOST_STREAMS: Final = 48
"""Open streams of all viewers; the listener has room for more connections, so pages are served when no stream is."""
_SHARE: Final = 4
"""With `Admin.auth`, one principal can have one in so many of them."""
_PERIOD: Final = 1.0
_QUIET: Final = 15.0
"""After so many seconds without a fragment a comment is sent: a peer that has gone is noticed."""
_LONGEST_STREAM: Final = 600.0
"""A viewer that shows credentials with each request has to show them again after so many seconds."""
_MOST_RENDERED: Final = 64
_LONGEST_VALUE: Final = 300
_LARGEST_NUMBER: Final = 1 << 53
_LINE_ENDS: Final = re.compile(r"\r\n|\r|\n")
"""What ends a line of an event: a text that has one must not begin a field of its own."""


@dataclass(frozen=True, slots=True)
class ActText:
    """How an act is asked for: a question, what it does, and the view that shows it."""

    question: str
    effect: str
    view: str


ACTS: Final = {
    "kill": ActText(
        "Kill this process?", "It ends at once and cleans nothing up. Its supervisor decides what is restarted.", "tree"
    ),
    "restart": ActText(
        "Restart this?", "It is stopped in order and started again; calls that it runs are lost.", "tree"
    ),
    "retry": ActText("Try to reach this server now?", "The next attempt is made at once.", "upstreams"),
    "park": ActText(
        "Park this server?", "Its connection is closed, and calls to it fail until it is retried.", "upstreams"
    ),
    "cancel": ActText("Cancel this call?", "Its handler is cancelled, and its caller gets an error.", "calls"),
    "cancel_task": ActText("Cancel this task?", "Its work is cancelled, and it ends as cancelled.", "tasks"),
    "recycle": ActText(
        "Recycle this pool?", "Its processes are replaced by new ones, each when it has done its work.", "pools"
    ),
    "drain": ActText(
        "Drain this program?",
        "It is not ready any more, so that no new calls are sent to it; calls in progress go on, until it is undrained.",
        "now",
    ),
    "undrain": ActText("Undrain this program?", "It is ready again, so that calls are sent to it.", "now"),
    "inject": ActText(
        "Inject this fault?", "It happens to the running program, with all that depends on the process.", "faults"
    ),
    "replay": ActText(
        "Send this request again?",
        "It is sent to this program as a new request, by a client inside it. A tool runs again.",
        "wire",
    ),
}


class ViewSource(Protocol):
    """What the pages show and do: an `Observatory`."""

    async def view(self, name: str, query: ViewQuery) -> View:
        """A view of the program."""
        ...

    async def act(self, act: str, target: str, principal: str, **more: Any) -> ActOutcome:
        """Act on the program."""
        ...

    def recording(self) -> AsyncIterable[bytes]:
        """The messages that are kept, as lines of JSON."""
        ...


@dataclass(frozen=True, slots=True)
class _Rights:
    """What the fragments need to know of a viewer. They are shared between viewers, so they have nothing of any one."""

    may_act: bool
    may_inject_faults: bool


class ObserverPages:
    """The pages of one listener."""

    def __init__(self, source: ViewSource, access: AdminAccess) -> None:
        self._source = source
        self._access = access
        self.templates: PageTemplates | None = None
        self._rendered: OrderedDict[tuple[Any, ...], tuple[float, asyncio.Task[dict[str, str]]]] = OrderedDict()
        self.streams = Counter[str]()
        """The open streams of each principal."""

    def blueprint(self) -> Blueprint:
        """The pages for an application, which has checked who asks."""
        pages = Blueprint("observer", __name__, static_folder=STATIC, template_folder="templates")
        pages.record_once(lambda state: self._use(state.app.jinja_env))
        pages.add_url_rule("/", "now", self._now)
        pages.add_url_rule("/live/<name>", "live", self._live)
        pages.add_url_rule("/act", "confirm", self._confirm, methods=["GET"])
        pages.add_url_rule("/act", "act", self._act, methods=["POST"])
        pages.add_url_rule("/try", "try", self._try, methods=["POST"])
        pages.add_url_rule("/wire.jsonl", "recording", self._recording)
        pages.add_url_rule("/<path:name>", "view", self._show)
        return pages

    def _use(self, environment: Any) -> None:
        self.templates = PageTemplates(environment)

    # --- pages

    async def _now(self) -> Response:
        return await self._page("now")

    async def _show(self, name: str) -> Response:
        if name not in VIEW_TYPES or name == "now":
            return await self._refuse(404, "There is no such page.")
        return await self._page(name)

    async def _page(self, name: str) -> Response:
        query = _query()
        if query is None:
            return await self._refuse(400, "This address has a value that cannot be read.")
        viewer = self._access.viewer
        try:
            values = await self._values(name, query)
        except GreenroomError as error:
            return await self._refuse(503, f"This cannot be shown now: {visible(str(error), _LONGEST_VALUE)}")
        view = values["v"]
        if isinstance(view, ToolsView) and view.schema is not None:
            values |= {"fields": form_fields(view.schema), "schema_text": _schema_text(view.schema)}
        return await self._html(name, live=link(f"live/{name}", query), viewer=viewer, **values)

    async def _values(self, name: str, query: ViewQuery) -> dict[str, Any]:
        """What a view's template needs."""
        now = cast("NowView", await self._source.view("now", ViewQuery()))
        view = now if name == "now" else await self._source.view(name, query)
        other = _ALSO.get(name)
        also = (
            None if other is None else await self._source.view(other, ViewQuery(text=query.text, worker=query.worker))
        )
        return {"v": view, "now": now, "query": query, "also": also}

    async def _html(self, name: str, status: int = 200, **values: Any) -> Response:
        assert self.templates is not None, "the blueprint is registered"
        return _response(await self.templates.page(name, **values), "text/html", status)

    async def _refuse(self, status: int, text: str) -> Response:
        return await self._html(
            "refused", status, viewer=self._access.viewer, heading="This is not possible", text=text
        )

    # --- streams

    async def _live(self, name: str) -> Response:
        query = _query()
        if name not in VIEW_TYPES or query is None:
            return _response("There is no such stream.\n", "text/plain", 404)
        viewer = self._access.viewer
        own = MOST_STREAMS // _SHARE if self._access.has_principals else MOST_STREAMS
        if self.streams.total() >= MOST_STREAMS or self.streams[viewer.name] >= own:
            return _response("Too many pages are open; close one.\n", "text/plain", 503)
        if request.method == "HEAD":  # it has no end that its sender would see
            return _response("", "text/event-stream")
        response = _response(self._events(name, query, viewer), "text/event-stream")
        response.headers["x-accel-buffering"] = "no"
        response.timeout = None
        return response

    async def _events(self, name: str, query: ViewQuery, viewer: Viewer) -> AsyncGenerator[bytes]:
        """The fragments of a view as server-sent events, for as long as the viewer may see them."""
        loop = asyncio.get_running_loop()
        sent: dict[str, str] = {}
        last = begun = loop.time()
        self.streams[viewer.name] += 1
        try:
            while self._may_go_on(viewer, begun):
                try:
                    fragments = await self._fragments(name, query, viewer)
                except GreenroomError:  # what is observed stops or is started again: the page keeps what it has
                    fragments = {}
                changed = [each for each in fragments.items() if sent.get(each[0]) != each[1]]
                sent.update(changed)
                if changed or loop.time() - last >= _QUIET:
                    last = loop.time()
                    yield b"".join(_event(event, text) for event, text in changed) or b": still here\n\n"
                await asyncio.sleep(_PERIOD)
            yield _event("over", "")
        finally:
            self.streams[viewer.name] -= 1
            self.streams += Counter()  # forgets those without any

    def _may_go_on(self, viewer: Viewer, begun: float) -> bool:
        now = asyncio.get_running_loop().time()
        return self._access.is_signed_in(viewer, now) if viewer.key else now - begun < _LONGEST_STREAM

    async def _fragments(self, name: str, query: ViewQuery, viewer: Viewer) -> dict[str, str]:
        """The fragments of a view, which all viewers with the same rights share for a second."""
        rights = _Rights(viewer.may_act, viewer.may_inject_faults)
        key = (name, query, rights)
        now = asyncio.get_running_loop().time()
        found = self._rendered.get(key)
        if found is None or now - found[0] >= _PERIOD * 0.9:  # a stream's period is at least that long
            found = self._rendered[key] = now, shared_task(self._render(name, query, rights))
            self._rendered.move_to_end(key)
            if len(self._rendered) > _MOST_RENDERED:
                self._rendered.popitem(last=False)
        return await asyncio.shield(found[1])

    async def _render(self, name: str, query: ViewQuery, rights: _Rights) -> dict[str, str]:
        assert self.templates is not None, "the blueprint is registered"
        return await self.templates.fragments(name, viewer=rights, **await self._values(name, query))

    # --- acts

    async def _confirm(self) -> Response:
        """The second step of each act: a page, or the same in a dialog."""
        act = request.args.get("act", "")
        text, viewer = ACTS.get(act), self._access.viewer
        if text is None:
            return await self._refuse(404, "There is no such act.")
        if not _may(viewer, act):
            return await self._refuse(403, "You may look, not act.")
        given: dict[str, Any] = {
            name: request.args.get(name, "")[:_LONGEST_VALUE] for name in ("target", "worker", "kind")
        }
        return await self._html(
            "act",
            viewer=viewer,
            act=act,
            heading="Confirm",
            question=text.question,
            effect=text.effect,
            back=text.view,
            **given,
        )

    async def _act(self) -> Response:
        form, viewer = await _form(), self._access.viewer
        act = form.get("act", "")
        text = ACTS.get(act)
        if text is None:
            return await self._refuse(404, "There is no such act.")
        if not _may(viewer, act):
            return await self._refuse(403, "You may look, not act.")
        more = {name: value[:_LONGEST_VALUE] for name in ("worker", "kind") if (value := form.get(name, ""))}
        outcome = await self._source.act(act, form.get("target", "")[:_LONGEST_VALUE], viewer.name, **more)
        return await self._outcome(outcome, link(text.view))

    async def _try(self) -> Response:
        """Call a tool with what was filled in."""
        form, viewer = await _form(), self._access.viewer
        if not _may(viewer, "try"):
            return await self._refuse(403, "You may look, not act.")
        tool, program, worker = (form.get(name, "")[:_LONGEST_VALUE] for name in ("tool", "program", "worker"))
        query = ViewQuery(tool=tool, program=program, worker=worker)
        view = cast("ToolsView", await self._source.view("tools", query))
        if view.schema is None or not view.can_try:
            return await self._refuse(404, "There is no such tool, or it cannot be tried.")
        try:
            arguments = form_arguments(view.schema, form)
        except FormFault as fault:
            outcome = ActOutcome(act="try", target=tool, is_done=False, text=str(fault))
        else:
            outcome = await self._source.act(
                "try", tool, viewer.name, program=program, worker=worker, arguments=arguments
            )
        return await self._outcome(outcome, link("tools", query))

    async def _outcome(self, outcome: ActOutcome, back: str) -> Response:
        heading = "Done" if outcome.is_done else "Not done"
        return await self._html(
            "outcome",
            200 if outcome.is_done else 409,
            viewer=self._access.viewer,
            heading=heading,
            outcome=outcome,
            back=back,
        )

    # --- the recording

    async def _recording(self) -> Response:
        response = _response(self._source.recording(), "application/jsonl")
        response.headers["content-disposition"] = 'attachment; filename="greenroom-wire.jsonl"'
        return response


def observer_blueprint(source: ViewSource, access: AdminAccess) -> Blueprint:
    """The observer's pages for the admin listener."""
    return ObserverPages(source, access).blueprint()


def _may(viewer: Viewer, act: str) -> bool:
    return viewer.may_inject_faults if act == "inject" else viewer.may_act


async def _form() -> dict[str, str]:
    """The form that was sent; of a field that is there twice, the first."""
    given: Any = await cast("Any", request).form
    return {str(name): str(value) for name, value in given.items()}


def _query() -> ViewQuery | None:
    """What the address asks for; None if a value has the wrong type."""
    given = {
        name: value[:_LONGEST_VALUE]
        for name, value in request.args.items()
        if name in ViewQuery.__struct_fields__ and value
    }
    try:
        query = msgspec.convert(given, ViewQuery, strict=False)
    except msgspec.ValidationError:
        return None
    return query if 0 <= query.page < _LARGEST_NUMBER and 0 <= query.call < _LARGEST_NUMBER else None


def _response(body: Any, kind: str, status: int = 200) -> Response:
    response = Response(body, status=status)
    response.content_type = f"{kind}; charset=utf-8"
    return response


def _event(name: str, text: str) -> bytes:
    lines = "".join(f"data: {line}\n" for line in _LINE_ENDS.split(text))
    return f"event: {name}\n{lines}\n".encode()


def _schema_text(schema: dict[str, Any]) -> str:
    return visible(msgspec.json.format(msgspec.json.encode(schema), indent=2).decode(), 20_000, lines=True)
