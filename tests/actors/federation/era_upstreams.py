"""A fake upstream that speaks one era at a time, and can be deployed anew as the other one between two requests."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tests.actors.client.fake_server import SILENCE, After

from greenroom.protocol.dialect import STATELESS_DIALECT
from greenroom.protocol.envelope import SUBSCRIPTION_ID_KEY, is_enveloped
from greenroom.protocol.errors import ErrorCode, PeerError
from greenroom.protocol.jsonrpc import JsonRpcNotification, JsonRpcRequest

from .fake_upstreams import Upstairs

if TYPE_CHECKING:
    from greenroom.protocol.jsonrpc import RequestId
    from greenroom.transports.client.errors import TransportError

REMOVED: Final = frozenset(
    {"ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "tasks/list", "tasks/result"}
)
FILTERS: Final = {"tools": "toolsListChanged", "prompts": "promptsListChanged", "resources": "resourcesListChanged"}
EITHER_ERA: Final = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "logging": {},
}


class _JudgedAnswers(dict[str, Any]):
    """Answers by method, each given only to a request of the present era."""

    def __init__(self, stage: EraUpstream, answers: dict[str, Any]) -> None:
        super().__init__(answers)
        self._stage = stage

    def get(self, method: str, default: Any = None) -> Any:
        return partial(self._stage.judged, super().get(method, default))


class EraUpstream(Upstairs):
    """A server of the stateless era, or of the handshake era, as `stateless` says at the moment of a request."""

    def __init__(self, *tools: str, stateless: bool = True, **options: Any) -> None:
        options.setdefault("capabilities", EITHER_ERA)
        super().__init__(*tools, **options)
        self.stateless = stateless
        self.hints: dict[str, Any] = {}
        """Further members of the results of the stateless era."""
        self.listens: dict[RequestId, dict[str, Any]] = {}
        """The filters of the open listens, by their ids."""
        self.executed: list[JsonRpcRequest] = []
        """The requests that were of the right era, and so were acted on."""
        self.answers = _JudgedAnswers(self, self.answers)
        self.answers["server/discover"] = self.discover
        self.answers["subscriptions/listen"] = self.listen

    def judged(self, answer: Any, request: JsonRpcRequest) -> Any:
        """The answer, if the request is of the era that is spoken now."""
        enveloped = is_enveloped(request.params)
        if enveloped and not self.stateless:
            if request.method == "server/discover":
                return PeerError(ErrorCode.METHOD_NOT_FOUND, "unknown method")
            return PeerError(ErrorCode.INVALID_REQUEST, "Bad Request: there is no session")
        if self.stateless and not enveloped:
            supported = {"supported": [STATELESS_DIALECT.version], "requested": "2025-11-25"}
            return PeerError(ErrorCode.UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", supported)
        if self.stateless and request.method in REMOVED:
            return PeerError(ErrorCode.METHOD_NOT_FOUND, "unknown method")
        self.executed.append(request)
        return self._finished(answer(request) if callable(answer) else answer)

    def _finished(self, answer: Any) -> Any:
        match answer:
            case After(seconds, later):
                return After(seconds, self._finished(later))
            case dict() if self.stateless:
                result: dict[str, Any] = {"resultType": "complete", **self.hints, **answer}
                return result
            case _:
                return answer

    def executions(self, method: str) -> int:
        """How often such a request was acted on."""
        return sum(request.method == method for request in self.executed)

    # --- the stateless era

    def discover(self, _: JsonRpcRequest) -> dict[str, Any]:
        """The server's description."""
        return {
            "supportedVersions": [STATELESS_DIALECT.version],
            "capabilities": dict(self.capabilities),
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "stage", "version": "1"}},
        }

    def listen(self, request: JsonRpcRequest) -> object:
        """Acknowledge the whole filter, and keep the listen open."""
        wanted: dict[str, Any] = request.params["notifications"]
        self.listens = {**self.listens, request.id: wanted}
        self._tell(request.id, "notifications/subscriptions/acknowledged", {"notifications": wanted})
        return SILENCE

    def changed(self, what: str = "tools") -> None:
        """Announce a changed list, in the way of the present era."""
        if not self.stateless:
            super().changed(what)
            return
        for id, wanted in self.listens.items():
            if wanted.get(FILTERS[what]) is True:
                self._tell(id, f"notifications/{what}/list_changed", {})

    def updated(self, uri: str) -> None:
        """Announce a changed resource."""
        if not self.stateless:
            super().updated(uri)
            return
        for id, wanted in self.listens.items():
            if uri in wanted.get("resourceSubscriptions", ()):
                self._tell(id, "notifications/resources/updated", {"uri": uri})

    def _tell(self, id: RequestId, method: str, params: dict[str, Any]) -> None:
        self.wire.say(JsonRpcNotification(method, {**params, "_meta": {SUBSCRIPTION_ID_KEY: id}}))

    # --- a new deployment

    def deploy(self, *, stateless: bool) -> None:
        """Speak this era from now on, on the wires that are open, as a server behind a proxy does."""
        self.stateless = stateless
        self.listens = {}

    async def redeploy(self, error: TransportError, *, stateless: bool) -> None:
        """Speak this era from now on; the wire breaks."""
        self.deploy(stateless=stateless)
        await self.wire.break_off(error)


class _RenamedAnswers(_JudgedAnswers):
    """Answers that tests of the handshake era set, under the names of the stateless one."""

    def __setitem__(self, method: str, answer: Any) -> None:
        if method == "ping" and answer == {}:
            answer = self._stage.discover
        super().__setitem__("server/discover" if method in ("initialize", "ping") else method, answer)


class StatelessUpstairs(EraUpstream):
    """An upstream of the stateless era for tests that were written for a handshake: `server/discover` stands for `initialize` and for `ping`."""

    def __init__(self, *tools: str, **options: Any) -> None:
        super().__init__(*tools, **options)
        self.answers = _RenamedAnswers(self, dict(self.answers))

    def _welcome(self, request: JsonRpcRequest) -> dict[str, Any]:
        return self.discover(request)

    def asked(self, method: str) -> list[JsonRpcRequest]:
        """All requests of that method. A wire's first `server/discover` is its greeting, and each further one a ping."""
        if method not in ("initialize", "ping"):
            return super().asked(method)
        found: list[JsonRpcRequest] = []
        for wire in self.wires:
            asked = [one for one in wire.heard if isinstance(one, JsonRpcRequest) and one.method == "server/discover"]
            found += asked[:1] if method == "initialize" else asked[1:]
        return found
