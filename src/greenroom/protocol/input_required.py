"""Questions of the stateless era: a reply that asks the client for input, the retry that brings it, and the state in between.

A server cannot send requests in this era. It ends a call with `inputRequests`, and the client sends the call again with `inputResponses` and the same
`requestState`. Both are the client's to change: responses are checked by the method of their question, and the state is sealed for one principal and one
request.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec import Raw, Struct

from greenroom.errors import GreenroomError

from . import methods
from .errors import BadAnswer, ErrorCode, LocalProtocolError, McpError
from .jsonrpc import encode, is_object
from .methods import PeerSide
from .revision_downgrade import prepare_params
from .sealing import LONGEST_SEAL, BadSeal
from .serialization import to_jsonable
from .versions import STATELESS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .sealing import KeyRing

INPUT_REQUIRED: Final = "input_required"
"""The `resultType` of a reply that asks for input."""
MAY_ASK: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""The methods whose reply may ask for input."""
QUESTION_METHODS: Final = frozenset({"elicitation/create", "sampling/createMessage", "roots/list"})
MOST_RESPONSES: Final = 256
"""How many questions a reply may ask, and how many responses a retry may bring, those that are ignored included."""
LONGEST_KEY: Final = 128
"""The longest key of a question, in characters."""
MOST_ROUNDS: Final = 32
"""How often a handler may end with questions where its client is asked while the call goes on."""
MOST_RECORDED: Final = 64 * 1024
"""Bytes of recorded answers that a state may carry."""

JsonObject: TypeAlias = "dict[str, Any]"


# --- The reply that asks, and the retry.


def input_required_result(
    questions: Mapping[str, tuple[str, Mapping[str, Any] | Raw]], state: str | None = None
) -> dict[str, Any]:
    """The result that asks the client these questions, which are method and params by key. Params may be encoded.

    Raises `LocalProtocolError` when there is nothing to ask and no state, or when a question is none that a client may be asked.
    """
    if not questions and state is None:
        raise LocalProtocolError(
            "a reply that requires input needs a question or a state: without both the client could only repeat its request"
        )
    if len(questions) > MOST_RESPONSES:
        raise LocalProtocolError(f"a reply may ask {MOST_RESPONSES} questions at once, not {len(questions)}")
    for key, (method, _) in questions.items():
        if method not in QUESTION_METHODS:
            raise LocalProtocolError(f"{method} cannot be asked in a reply: only {', '.join(sorted(QUESTION_METHODS))}")
        check_key(key)
    result: dict[str, Any] = {"resultType": INPUT_REQUIRED}
    if questions:
        result["inputRequests"] = {
            key: {"method": method, "params": params if type(params) is Raw else dict(params)}
            for key, (method, params) in questions.items()
        }
    if state is not None:
        result["requestState"] = state
    return result


def check_key(key: object) -> str:
    """Check the key of a question. Raises `LocalProtocolError`."""
    if not isinstance(key, str) or not 0 < len(key) <= LONGEST_KEY:
        raise LocalProtocolError(
            f"the key of a question must be a text of 1 to {LONGEST_KEY} characters, not {key!r:.200}"
        )
    return key


class RetryFields(NamedTuple):
    """The two fields that a retry has more than the first request; None where the client has not sent them."""

    responses: Mapping[str, dict[str, Any]] | None
    state: str | None


NO_RETRY: Final = RetryFields(None, None)
"""The fields of a first request."""


def read_responses(params: Mapping[str, Any]) -> RetryFields:
    """The responses and the state in the params of a request. Raises `McpError` (-32602) for malformed ones.

    The responses are not checked against their questions: see `check_response`. Responses to questions that were not asked are to be ignored.
    """
    responses: Any = params.get("inputResponses", _ABSENT)
    if responses is not _ABSENT:
        if not is_object(responses):
            raise _invalid('"inputResponses" must be an object')
        if len(responses) > MOST_RESPONSES:
            raise _invalid(f'"inputResponses" may have {MOST_RESPONSES} members, and has {len(responses)}')
        for key, response in responses.items():
            if not is_object(response):
                raise _invalid(f"the input response {json.dumps(key[:LONGEST_KEY])} must be an object")
    state: Any = params.get("requestState", _ABSENT)
    if state is not _ABSENT:
        if type(state) is not str:
            raise _invalid('"requestState" must be a string')
        if len(state) > LONGEST_SEAL:
            raise _invalid(f'"requestState" may have {LONGEST_SEAL} characters, and has {len(state)}')
    return RetryFields(None if responses is _ABSENT else responses, None if state is _ABSENT else state)


_ABSENT: Final = object()


def check_response(method: str, response: dict[str, Any], key: str) -> dict[str, Any]:
    """Check the response to a question by its method, and return it. Raises `McpError` (-32602) that names the key."""
    try:
        methods.check_result(method, response)
    except BadAnswer as error:
        raise bad_response(key, error) from None
    return response


def bad_response(key: str, error: BadAnswer) -> McpError:
    """The error for a response that does not fit its question."""
    data = {"key": key, "reason": "bad_response"}
    return McpError(
        ErrorCode.INVALID_PARAMS, f"Invalid params: the input response {json.dumps(key)}: {error.message}", data
    )


def _invalid(problem: str) -> McpError:
    return McpError(ErrorCode.INVALID_PARAMS, f"Invalid params: {problem}")


# --- What a question needs of the client.


def required_capabilities(method: str, params: Mapping[str, Any], declared: Mapping[str, Any]) -> dict[str, Any] | None:
    """The capabilities that a client must declare to be asked this, as an object; None if it has declared them.

    An `elicitation` without modes is one of forms alone.
    """
    return undeclared([(method, params)], declared)


def undeclared(
    questions: Iterable[tuple[str, Mapping[str, Any]]], declared: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The capabilities that a client must declare to be asked all of these, as one object; None if it has declared them."""
    needed = {
        path
        for method, params in questions
        for path in methods.required_capabilities(method, params, PeerSide.CLIENT, STATELESS)
    }
    return (
        capability_object(sorted(needed)) if any(not methods.is_declared(declared, path) for path in needed) else None
    )


def capability_object(paths: Iterable[str]) -> dict[str, Any]:
    """The capabilities object that declares these dotted paths: `sampling.tools` is `{"sampling": {"tools": {}}}`."""
    found: dict[str, Any] = {}
    for path in paths:
        here = found
        for name in path.split("."):
            here = here.setdefault(name, {})
    return found


def missing_capability_error(required: Mapping[str, Any], what: str = "this request") -> McpError:
    """The error for a request that needs capabilities which it does not declare (-32021)."""
    names = " and ".join(sorted(_paths_of(required)))
    return McpError(
        ErrorCode.MISSING_REQUIRED_CLIENT_CAPABILITY,
        f"{what} needs the client capability {names}: declare it in the request's _meta",
        {"requiredCapabilities": dict(required)},
    )


def _paths_of(required: Mapping[str, Any], before: str = "") -> Iterable[str]:
    for name, inner in required.items():
        if is_object(inner) and inner:
            yield from _paths_of(inner, f"{before}{name}.")
        else:
            yield f"{before}{name}"


# --- Digests: the identity of a request and of a question.

_RETRY_FIELDS: Final = frozenset({"_meta", "inputResponses", "requestState"})
_DIGEST: Final = 16
_sorted_json = msgspec.json.Encoder(order="deterministic")


def request_digest(method: str, params: Mapping[str, Any]) -> bytes:
    """The identity of a request through all of its rounds: its method and params, without `_meta` and what a retry adds."""
    return _digest(b"request", method, params)


def question_digest(method: str, params: Mapping[str, Any]) -> bytes:
    """The identity of a question: equal questions have equal digests, in every process."""
    return _digest(b"question", method, params)


def _digest(kind: bytes, method: str, params: Mapping[str, Any]) -> bytes:
    salient = {name: value for name, value in params.items() if name not in _RETRY_FIELDS}
    try:
        text = _sorted_json.encode([method, salient])
    except (TypeError, ValueError, RecursionError):
        encode(salient)  # raises `LocalProtocolError` with the reason
        raise
    return blake2b(text, digest_size=_DIGEST, person=kind).digest()


def default_key(method: str, digest: bytes) -> str:
    """The key of a question that was given none. The same question has the same key, whatever has been asked before it."""
    return f"{method.partition('/')[0]}-{digest[:_KEY_BYTES].hex()}"


_KEY_BYTES: Final = 6


# --- The answers of a call so far, so that its handler can run again and asks nothing twice.


class RecordedAnswer(Struct, frozen=True, array_like=True):
    """An answer, and the digest of its question."""

    question: bytes
    answer: JsonObject


class RecordedAnswers:
    """The answers to a call's questions, in the order in which they came.

    A handler that runs again `take`s the answer to each question that was asked before; equal questions get their answers in turn.
    """

    __slots__ = ("_kept", "_left", "_size")

    def __init__(self, recorded: Sequence[RecordedAnswer] | None = ()) -> None:
        """`recorded` are those of an earlier run; None when they were too many to keep."""
        self._kept: list[RecordedAnswer] | None = None if recorded is None else list(recorded)
        self._left = list(recorded or ())
        self._size = sum(map(_size_of, self._left))

    @property
    def recorded(self) -> list[RecordedAnswer] | None:
        """All answers, for the next state; None when they are more than `MOST_RECORDED` bytes: a handler cannot run again then without asking twice."""
        return None if self._kept is None else list(self._kept)

    def take(self, question: bytes) -> dict[str, Any] | None:
        """The next answer of the earlier run to a question with this digest, once; None if there is none left."""
        for place, each in enumerate(self._left):
            if each.question == question:
                return self._left.pop(place).answer
        return None

    def find(self, question: bytes) -> dict[str, Any] | None:
        """The first answer to a question with this digest, which stays; None if there is none."""
        return next((each.answer for each in self._kept or () if each.question == question), None)

    def put(self, question: bytes, answer: dict[str, Any]) -> None:
        """Record the answer to the question with this digest, in place of earlier ones."""
        if self._kept is not None:
            self._size -= sum(_size_of(each) for each in self._kept if each.question == question)
            self._kept = [each for each in self._kept if each.question != question]
        self.add(question, answer)

    def add(self, question: bytes, answer: dict[str, Any]) -> None:
        """Record a new answer to the question with this digest. Beyond `MOST_RECORDED` bytes none are kept any more."""
        if self._kept is None:
            return
        new = RecordedAnswer(question, answer)
        self._size += _size_of(new)
        if self._size > MOST_RECORDED:
            self._kept = None
        else:
            self._kept.append(new)


def _size_of(recorded: RecordedAnswer) -> int:
    return _DIGEST + len(encode(recorded.answer))


# --- The state: sealed for its principal, and opened for the same request before it expires.

_PURPOSE: Final = "request state"

StateProblem: TypeAlias = Literal["tampered", "expired", "other_request"]


class BadRequestState(McpError):
    """A `requestState` that is refused (-32602). `data.reason` says why, as far as the caller may know.

    A state of another principal is "tampered", as is one with a key that this server no longer has: a caller cannot find out whether it was ever valid. The other two
    reasons are only told to its own principal.
    """

    def __init__(self, reason: StateProblem, detail: str = "") -> None:
        """`detail` is for this server's log."""
        super().__init__(ErrorCode.INVALID_PARAMS, f"Invalid params: {_PROBLEMS[reason]}", {"reason": reason})
        self.reason = reason
        self.detail = detail

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, self.detail)


_PROBLEMS: Final[Mapping[str, str]] = {
    "tampered": '"requestState" is not one that this server made for this caller: send it back unchanged. A call that it belonged to may have done things: begin again without it only if that is harmless',
    "expired": '"requestState" has expired. What its call has done until then stays done: begin again without it only if that is harmless',
    "other_request": '"requestState" belongs to another request: send it with the method and params that it came for',
}


class RequestState(Struct, frozen=True, kw_only=True, array_like=True):
    """The state that a server has its client keep between two rounds of a call."""

    expires: float
    """Unix time."""
    request: bytes
    """The `request_digest` of the request that it came for."""
    round: int = 1
    """The number of the round that ended with it."""
    exchange: str = ""
    """The id of the parked call that goes on with the retry; empty if none waits."""
    answers: list[RecordedAnswer] | None = msgspec.field(default_factory=list[RecordedAnswer])
    """The answers so far; None when they were too many to keep."""
    value: Any = None
    """The author's own value, as JSON."""

    def seal(self, ring: KeyRing, owner: str) -> str:
        """The text for the client. It opens for the same owner alone: the text of its principal.

        Raises `LocalProtocolError` for a state that is too long.
        """
        return ring.seal(_PURPOSE, encode(self), _owner_bytes(owner))

    @classmethod
    def open(
        cls, ring: KeyRing, text: str, owner: str, method: str, params: Mapping[str, Any], now: float
    ) -> RequestState:
        """The state in a client's text. `now` is Unix time. Raises `BadRequestState`."""
        try:
            found = _state_decoder.decode(ring.open(_PURPOSE, text, _owner_bytes(owner)))
        except BadSeal as error:
            raise BadRequestState("tampered", error.reason) from None
        except (msgspec.MsgspecError, ValueError):  # sealed by another version of greenroom, with the same key
            raise BadRequestState("expired", "format") from None
        if found.expires <= now:
            raise BadRequestState("expired")
        this = request_digest(method, params)
        if found.request != this:
            raise BadRequestState("other_request")
        return found


_state_decoder = msgspec.json.Decoder(RequestState)


def _owner_bytes(owner: str) -> bytes:
    return owner.encode("utf-8", "surrogatepass")


# --- The stateless form: a handler that ends with its questions, and runs again with the answers.


class InputQuestion(Protocol):
    """A question as a value."""

    @property
    def key(self) -> str:
        """Its key among the questions of a reply."""
        ...

    @property
    def method(self) -> str:
        """The method that asks it."""
        ...

    @property
    def params(self) -> Mapping[str, Any]:
        """The params as the author has written them, for a request."""
        ...

    @property
    def wire_params(self) -> Mapping[str, Any]:
        """The params as they are sent in the stateless era."""
        ...


class InputRequired(GreenroomError):
    """Raise or return it to end a call with questions. The client sends the call again with the answers, and the handler runs from its beginning.

    Nothing waits in between, so any server with the same keys can go on. Answers are in `ctx.answers`, and `state` is `ctx.request_state` of that run.
    """

    def __init__(self, *questions: InputQuestion, state: Any = None) -> None:
        """`state` is any JSON value; the client can neither read nor change it.

        Raises `LocalProtocolError` for what no client would accept, and for two questions with one key.
        """
        super().__init__(*questions)
        self.questions = questions
        try:
            self.state = to_jsonable(state)
        except TypeError as error:
            raise LocalProtocolError(f"the state of an InputRequired must be a JSON value: {error}") from None
        self.answers: RecordedAnswers | None = None
        """The answers that the handler has read, if it runs in another process."""
        self.asked: list[tuple[str, Mapping[str, Any]]] = [(each.method, each.wire_params) for each in questions]
        """Method and params of each question."""
        keys = [check_key(question.key) for question in questions]
        if len(set(keys)) < len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise LocalProtocolError(f"two questions have the key {twice!r}: give one of them another, with key=")

    def __str__(self) -> str:
        return f"the client has to answer first: {', '.join(each.key for each in self.questions) or 'nothing'}"

    def to_wire(  # noqa: PLR0913 - each is another fact
        self,
        ring: KeyRing,
        owner: str,
        method: str,
        params: Mapping[str, Any],
        *,
        expires: float,
        round_number: int = 1,
        answers: RecordedAnswers | None = None,
    ) -> dict[str, Any]:
        """The result, with a sealed state for this request of this owner. `answers` are those that have been read.

        Raises `LocalProtocolError` when they are too many to record: without them the handler would ask the same questions for ever.
        """
        recorded = [] if answers is None else answers.recorded
        if recorded is None:
            raise LocalProtocolError(
                f"the answers so far have more than {MOST_RECORDED} bytes, which a state cannot carry: keep them elsewhere, and put their id in state="
            )
        state = RequestState(
            expires=expires,
            request=request_digest(method, params),
            round=round_number,
            answers=recorded,
            value=self.state,
        )
        questions = {each.key: (each.method, each.wire_params) for each in self.questions}
        return input_required_result(questions, state.seal(ring, owner))


def stateless_params(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """The params of a question as the stateless era sends them, checked. Raises `LocalProtocolError`."""
    return prepare_params(method, to_jsonable(dict(params)), STATELESS)
