"""`OutgoingEnvelope`: the `_meta` and the mirrored headers of the requests of one connection in the stateless era."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Raw

from greenroom.protocol.dialect import STATELESS_DIALECT
from greenroom.protocol.envelope import CLIENT_CAPABILITIES_KEY, CLIENT_INFO_KEY, LOG_LEVEL_KEY, PROTOCOL_VERSION_KEY
from greenroom.protocol.jsonrpc import encode, encode_request, is_object
from greenroom.protocol.methods import TASKS_EXTENSION
from greenroom.protocol.mirrored_headers import BadHeaderAnnotation, header_plan_of, standard_headers_for
from greenroom.protocol.serialization import is_array

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from greenroom.protocol.jsonrpc import RequestId
    from greenroom.protocol.mirrored_headers import HeaderPlan
    from greenroom.transports.client.interfaces import Headers

VERSION: Final = STATELESS_DIALECT.version
_MOST_TOOLS: Final = 10_000


def stateless_capabilities(
    declared: Mapping[str, Any], *, tasks: bool = True, extensions: Sequence[str] = ()
) -> dict[str, Any]:
    """The capabilities of each request, from those of a handshake: without what only a session has, and with the extensions of this client."""
    found = {name: value for name, value in declared.items() if name != "tasks"}
    if is_object(roots := found.get("roots")):
        found["roots"] = {name: value for name, value in roots.items() if name != "listChanged"}
    own: dict[str, Any] = {id: {} for id in ((TASKS_EXTENSION, *extensions) if tasks else extensions)}
    if own:
        given = found.get("extensions")
        found["extensions"] = {**own, **(given if is_object(given) else {})}
    return found


class OutgoingEnvelope:
    """The description of this client in each request. Everything that does not change is encoded once."""

    def __init__(self, client_info: Mapping[str, Any], capabilities: Mapping[str, Any]) -> None:
        """Raises `LocalProtocolError` for a value that cannot be written."""
        self.capabilities = capabilities
        self._fixed: dict[str, Any] = {
            PROTOCOL_VERSION_KEY: VERSION,
            CLIENT_INFO_KEY: Raw(encode(client_info)),
            CLIENT_CAPABILITIES_KEY: Raw(encode(capabilities)),
        }
        self._alone = Raw(encode(self._fixed))
        """The `_meta` of a request that has nothing more to say."""

    def meta(
        self, given: object = None, *, token: str | int | None = None, level: str | None = None
    ) -> dict[str, Any] | Raw:
        """The `_meta` of a request. `given` is the caller's own, whose members of the protocol are replaced."""
        if token is None and level is None and not given:
            return self._alone
        meta = {**given, **self._fixed} if is_object(given) else dict(self._fixed)
        if token is not None:
            meta["progressToken"] = token
        if level is not None:
            meta.setdefault(LOG_LEVEL_KEY, level)
        return meta

    def request(
        self,
        id: RequestId,
        method: str,
        params: Mapping[str, Any] | None,
        *,
        token: str | int | None = None,
        level: str | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> bytes:
        """The encoded request; `more` are further params. Raises `LocalProtocolError` for params that cannot be written."""
        if params is None:
            params = {}
        meta = self.meta(params.get("_meta"), token=token, level=level)
        if more is None:
            return encode_request(id, method, {**params, "_meta": meta})
        return encode_request(id, method, {**params, **more, "_meta": meta})


class ToolHeaders:
    """The headers that calls of the listed tools need, and the tools whose annotations are invalid.

    A server that lists ever new names makes the oldest ones forgotten.
    """

    def __init__(self) -> None:
        self._plans: dict[str, HeaderPlan] = {}
        self.left_out: dict[str, str] = {}
        """Why tools were left out of a list, by name."""
        self._seen: dict[str, None] = {}

    def begin_list(self) -> None:
        """All tools are about to be listed, page by page."""
        self._seen.clear()

    def end_list(self) -> None:
        """All tools were listed: forget those that were left out before, and are not in the list any more."""
        for name in self.left_out.keys() - self._seen.keys():
            del self.left_out[name]

    def plan_of(self, params: Mapping[str, Any] | None) -> HeaderPlan | None:
        """The plan for a call with these params."""
        name = None if params is None else params.get("name")
        return self._plans.get(name) if isinstance(name, str) else None

    def learn(self, result: dict[str, Any]) -> dict[str, str]:
        """Take the plans of a page of tools, and remove those from it whose annotations are invalid. Returns why, for names that are new."""
        tools = result.get("tools")
        if not is_array(tools):
            return {}
        kept: list[Any] = []
        found: dict[str, str] = {}
        for tool in tools:
            name = tool.get("name") if is_object(tool) else None
            if not isinstance(name, str):
                kept.append(tool)
                continue
            try:
                plan = header_plan_of(tool.get("inputSchema"))
            except BadHeaderAnnotation as error:
                if self.left_out.get(name) != str(error):
                    found[name] = str(error)
                _keep(self.left_out, name, str(error))
                _keep(self._seen, name, None)
                self._plans.pop(name, None)
                continue
            kept.append(tool)
            self.left_out.pop(name, None)
            if plan is not None:
                _keep(self._plans, name, plan)
            else:
                self._plans.pop(name, None)
        result["tools"] = kept
        return found


T = TypeVar("T")


def _keep(table: dict[str, T], name: str, value: T) -> None:
    table.pop(name, None)
    table[name] = value
    if len(table) > _MOST_TOOLS:
        del table[next(iter(table))]


def mirrored_headers(method: str, params: Mapping[str, Any] | None, plan: HeaderPlan | None = None) -> Headers:
    """The headers of a request over HTTP, which repeat parts of it. `plan` is that of the tool that is called.

    Raises `LocalProtocolError` for a value that no header can express.
    """
    standard = standard_headers_for(method, params, VERSION)
    return standard if plan is None or params is None else (*standard, *plan.headers_for(params.get("arguments")))
