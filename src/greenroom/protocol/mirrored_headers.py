"""Fields of a request that its HTTP headers repeat, so that proxies can route by them without reading bodies: `Mcp-Method`, `Mcp-Name`, `Mcp-Param-*`.

Revision 2026-07-28. Pure, and for both sides: a client writes the headers, a server compares them with the body and refuses a request whose
parts disagree, since a proxy may have acted on the one and the handler would act on the other. Header names are lower case here, as in the
dict of `transports.http_request.headers_by_name`; a header that came twice has a value there that equals nothing.

A tool's parameters are mirrored where their schema has `x-mcp-header`. `header_plan_of` finds them once, when a tool is registered or listed.
"""

from __future__ import annotations

import binascii
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.errors import GreenroomError

from .errors import ErrorCode, LocalProtocolError, McpError
from .serialization import is_array, is_object
from .validation_errors import path_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .schema_compiler import Subschema

VERSION_HEADER: Final = "mcp-protocol-version"
METHOD_HEADER: Final = "mcp-method"
NAME_HEADER: Final = "mcp-name"
PARAMETER_PREFIX: Final = "mcp-param-"
ANNOTATION: Final = "x-mcp-header"
RESERVED_HEADERS: Final = (
    *("accept", "accept-encoding", "connection", "content-length", "content-type", "host", "last-event-id"),
    *(METHOD_HEADER, NAME_HEADER, VERSION_HEADER, "mcp-session-id", "te", "trailer", "transfer-encoding", "upgrade"),
)
"""Headers of requests that the transport writes, and no configuration."""

NAME_PARAMS: Final[Mapping[str, str]] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""The methods with an `Mcp-Name`, and the member of their params that it repeats. An extension's methods belong here, too."""

SAFE_INTEGER: Final = 2**53 - 1
"""The largest integer that every JSON parser reads exactly."""

_SPELLED: Final = {VERSION_HEADER: "MCP-Protocol-Version", METHOD_HEADER: "Mcp-Method", NAME_HEADER: "Mcp-Name"}
_OPEN: Final = "=?base64?"
_CLOSE: Final = "?="
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[\x20-\x7e\t]*")
_INTEGER: Final = re.compile(r"(-?(?:0|[1-9][0-9]{0,15}))(?:\.0+)?")
_MIRRORED_TYPES: Final = ("string", "integer", "boolean")
_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
_LONGEST_SHOWN: Final = 60
_MOST_PLACES: Final = 2_000
"""How many subschemas an annotated schema may have: a foreign one is searched on the event loop, in 25 ms at most."""


class HeaderMismatch(McpError):
    """A mirrored header is missing or invalid, or differs from the body. `data.header` names it."""

    def __init__(self, header: str, why: str) -> None:
        """`why` is the rest of the sentence, with what to send. It never has a value of an argument, which may be a secret."""
        super().__init__(ErrorCode.HEADER_MISMATCH, f"Header mismatch: {header} {why}", {"header": header})
        self.header = header
        self.why = why

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.header, self.why)


class BadHeaderAnnotation(GreenroomError, ValueError):
    """An `x-mcp-header` in a tool's input schema is invalid, and with it the tool. Says where, why, and what to write."""


def is_mirrored_header(name: str) -> bool:
    """Whether a header of this lower-case name mirrors a part of the body, apart from the version's."""
    return name in (METHOD_HEADER, NAME_HEADER) or name.startswith(PARAMETER_PREFIX)


# --- Values. A header may have visible ASCII, blanks and tabs, and parsers strip its edges. Other values travel as base64 between two markers.


def encode_header_value(text: str) -> str:
    """The text as the value of a mirrored header. Raises `LocalProtocolError` for a lone surrogate."""
    if _is_plain(text) and text.strip() == text and not (text.startswith(_OPEN) and text.endswith(_CLOSE)):
        return text
    try:
        return f"{_OPEN}{binascii.b2a_base64(text.encode(), newline=False).decode()}{_CLOSE}"
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"cannot be written as a header: a lone surrogate in a string: {error}") from None


def decode_header_value(value: str) -> str:
    """The text of a mirrored header. Raises `ValueError`, whose message continues a sentence that begins with the header's name.

    Strict: of all spellings in base64 only the one that an encoder writes is accepted, so that no two parsers read two texts.
    """
    if _VALUE.fullmatch(value) is None:
        raise ValueError(
            "has characters that no header may have, or came twice: send it once, with other texts as =?base64?…?="
        )
    if not (value.startswith(_OPEN) and value.endswith(_CLOSE)):
        return value
    inside = value[len(_OPEN) : -len(_CLOSE)].encode()
    try:
        # The markers may not share their question mark.
        if len(value) >= len(_OPEN) + len(_CLOSE):
            raw = binascii.a2b_base64(inside, strict_mode=True)
            if binascii.b2a_base64(raw, newline=False) == inside:
                return raw.decode()
    except ValueError:
        pass
    raise ValueError("is not valid base64 of a UTF-8 text between =?base64? and ?=")


def _is_plain(text: str) -> bool:
    """Whether all characters are visible ASCII or blanks."""
    return text.isascii() and text.isprintable()


def _text_of(value: Any) -> str | None:
    """The text that stands for an argument; None for null, and for a list or object, which no header can express.

    Raises `ValueError`, like `decode_header_value`, for an integer that not every parser reads exactly.
    """
    if isinstance(value, str):
        return str.__str__(value)
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, float):
        if not value.is_integer():
            return repr(value) if math.isfinite(value) else None
    elif not isinstance(value, int):
        return None
    if not -SAFE_INTEGER <= value <= SAFE_INTEGER:
        raise ValueError(
            f"can only repeat integers from -{SAFE_INTEGER} to {SAFE_INTEGER}: take a string for larger ones"
        )
    return str(int(value))


def _agrees(sent: str, text: str, value: Any) -> bool:
    """Whether a header's value stands for an argument, whose text is given. Raises `ValueError` for an invalid one."""
    if sent == text and _is_plain(sent) and not sent.startswith(_OPEN):
        return True  # by far the most
    decoded = decode_header_value(sent)
    if decoded == text:
        return True
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    number = _INTEGER.fullmatch(decoded)  # 42.0 is 42
    return number is not None and int(number[1]) == value


# --- The standard headers


def check_standard_headers(
    method: str,
    params: Mapping[str, Any] | None,
    headers: Mapping[str, str],
    version: str | None,
    *,
    required: bool = True,
) -> None:
    """Compare a request's headers with its body. Raises `HeaderMismatch`.

    `version` is the envelope's; None compares no version. A notification's headers are not `required`, but must be true where they are there.
    Params without the name that the method needs are left to the check of the params.
    """
    if version is not None:
        _check_plain_header(VERSION_HEADER, headers, version, "params._meta", required=required)
    _check_plain_header(METHOD_HEADER, headers, method, "method", required=required)
    member = NAME_PARAMS.get(method)
    name = None if member is None or params is None else params.get(member)
    if not isinstance(name, str):
        return
    sent = headers.get(NAME_HEADER)
    if sent is None:
        if required:
            raise HeaderMismatch("Mcp-Name", f"is missing: send the value of params.{member} in it")
        return
    try:
        same = _agrees(sent, name, name)
    except ValueError as error:
        raise HeaderMismatch("Mcp-Name", str(error)) from None
    if not same:
        raise HeaderMismatch("Mcp-Name", f"differs from params.{member}: send the same value in both")


def _check_plain_header(name: str, headers: Mapping[str, str], said: str, where: str, *, required: bool) -> None:
    """Compare a header that has no other spelling than the body's."""
    sent = headers.get(name)
    if (sent == said and _is_plain(said)) or (sent is None and not required):
        return
    if sent is None:
        raise HeaderMismatch(_SPELLED[name], f"is missing: send {_shown(said)}, as in {where}")
    raise HeaderMismatch(
        _SPELLED[name], f"is {_shown(sent)}, and {where} says {_shown(said)}: send the same visible ASCII in both"
    )


def _shown(text: str) -> str:
    return ascii(text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…")


def standard_headers_for(method: str, params: Mapping[str, Any] | None, version: str) -> tuple[tuple[str, str], ...]:
    """The standard headers of a request. Raises `LocalProtocolError` for a method that no header can express."""
    if not _is_plain(method) or method.strip() != method:
        raise LocalProtocolError(f"the method {_shown(method)} cannot be sent over HTTP: name it in visible ASCII")
    found = ((VERSION_HEADER, version), (METHOD_HEADER, method))
    member = NAME_PARAMS.get(method)
    name = None if member is None or params is None else params.get(member)
    return (*found, (NAME_HEADER, encode_header_value(name))) if isinstance(name, str) else found


# --- The headers of a tool's arguments


class MirroredParameter(NamedTuple):
    """One annotated property: its header in lower case and as it was written, and the path of its value in the arguments."""

    header: str
    spelled: str
    path: tuple[str, ...]

    @property
    def place(self) -> str:
        """The path as text."""
        return f"arguments.{path_text(self.path)}"

    def value_in(self, arguments: Any) -> Any:
        """The value in the arguments; None for none."""
        for name in self.path:
            arguments = arguments.get(name) if is_object(arguments) else None
        return arguments


@dataclass(frozen=True, slots=True)
class HeaderPlan:
    """The mirrored parameters of one tool."""

    parameters: tuple[MirroredParameter, ...]

    def check(self, arguments: Any, headers: Mapping[str, str]) -> None:
        """Compare a call's headers with its arguments. Raises `HeaderMismatch`.

        A header without a value in the body is refused, too: a proxy would act on a value that the tool never sees. A value of a wrong type that
        no header can express is left to the check of the arguments, whose error a model can read.
        """
        for parameter in self.parameters:
            value = parameter.value_in(arguments)
            sent = headers.get(parameter.header)
            if sent is None and value is None:
                continue
            try:
                text = _text_of(value)
                if sent is None:
                    if text is None:
                        continue
                    why = f"is missing: send the value of {parameter.place} in it"
                elif text is not None and _agrees(sent, text, value):
                    continue
                else:
                    why = f"{'has no value' if value is None else 'differs from the value'} in {parameter.place}: send the same in both, or neither"
            except ValueError as error:
                why = str(error)
            raise HeaderMismatch(parameter.spelled, why)

    def headers_for(self, arguments: Any) -> tuple[tuple[str, str], ...]:
        """The headers of a call; no header for a value that is null, absent, or a list or object.

        Raises `LocalProtocolError` for an integer that may not be mirrored.
        """
        found: list[tuple[str, str]] = []
        for parameter in self.parameters:
            try:
                text = _text_of(parameter.value_in(arguments))
            except ValueError as error:
                raise LocalProtocolError(f"{parameter.place}: the header {parameter.spelled} {error}") from None
            if text is not None:
                found.append((parameter.header, encode_header_value(text)))
        return tuple(found)


def header_plan_of(input_schema: Any, *, ours: bool = False) -> HeaderPlan | None:
    """The plan of a tool's mirrored parameters; None for a tool without any. Raises `BadHeaderAnnotation`.

    `ours`: the tool is one of this program, which may not mirror a secret. A client has to call a foreign tool that does.
    """
    if not is_object(input_schema) or not _is_annotated(input_schema):
        return None
    from .schema_compiler import Subschema, subschemas_of  # noqa: PLC0415 - few tools have annotations

    found: dict[str, MirroredParameter] = {}
    # Each subschema, with the names of the properties that lead to it; None where anything else leads to it.
    places: list[tuple[Subschema, tuple[str, ...] | None]] = [(Subschema((), input_schema), ())]
    for place, names in places:  # the list grows
        if len(places) > _MOST_PLACES:
            raise BadHeaderAnnotation(
                f"{ANNOTATION} is in a schema that is too large: it has more than {_MOST_PLACES} subschemas"
            )
        if ANNOTATION in place.schema:
            parameter = _mirrored_parameter(place, names, ours=ours)
            if (other := found.setdefault(parameter.header, parameter)) is not parameter:
                raise BadHeaderAnnotation(
                    f"{path_text(parameter.path)}: the {ANNOTATION} of {path_text(other.path)} is the same, as upper and lower case make "
                    "no difference: give each property a name of its own"
                )
        for keyword, inner in subschemas_of(place):
            through = names is not None and keyword == "properties"
            places.append((inner, (*(names or ()), str(inner.path[-1])) if through else None))
    return HeaderPlan(tuple(found.values())) if found else None


def without_header_annotations(definition: Mapping[str, Any]) -> dict[str, Any]:
    """A tool's definition without any `x-mcp-header` in its input schema, for clients that would refuse the tool for a wrong one."""
    return {**definition, "inputSchema": _unannotated(definition.get("inputSchema"), by_name=False)}


_SCHEMAS_BY_NAME: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
"""Keywords whose members are schemas: there the annotation's name may be that of a property."""
_VALUES: Final = frozenset({"const", "enum", "default", "examples"})
"""Keywords whose members are values, and are kept as they are."""


def _unannotated(value: Any, *, by_name: bool) -> Any:
    if is_array(value):
        return [_unannotated(each, by_name=False) for each in value]
    if not is_object(value):
        return value
    if by_name:
        return {name: _unannotated(each, by_name=False) for name, each in value.items()}
    return {
        name: each if name in _VALUES else _unannotated(each, by_name=name in _SCHEMAS_BY_NAME)
        for name, each in value.items()
        if name != ANNOTATION
    }


def _is_annotated(schema: Any) -> bool:
    """Whether the annotation's name is anywhere in it."""
    left: list[Any] = [schema]
    for inner in left:  # the list grows
        if type(inner) in _SCALARS:  # most are, and the other two checks are slower
            continue
        if is_object(inner):
            if ANNOTATION in inner:
                return True
            left += inner.values()
        elif is_array(inner):
            left += inner
    return False


def _mirrored_parameter(place: Subschema, names: tuple[str, ...] | None, *, ours: bool) -> MirroredParameter:
    """The parameter of an annotated subschema. Raises `BadHeaderAnnotation`."""
    if not names:
        raise BadHeaderAnnotation(
            f"{path_text(place.path) or 'the root of the schema'}: {ANNOTATION} has no effect here: annotate a property that is reached "
            "through `properties` alone, not through items, anyOf (which `| None` becomes), $ref, $defs and the like"
        )
    where, name, kind = path_text(names), place.schema[ANNOTATION], place.schema.get("type")
    if not isinstance(name, str) or _TOKEN.fullmatch(name) is None:
        shown = _shown(name) if isinstance(name, str) else type(name).__name__
        raise BadHeaderAnnotation(
            f"{where}: {ANNOTATION} is the end of a header's name, one or more letters, digits or any of !#$%&'*+-.^_`|~, and not {shown}: "
            f'write for example "{ANNOTATION}": "Region"'
        )
    if kind not in _MIRRORED_TYPES:
        what = f"its type is {_shown(kind)}" if isinstance(kind, str) else "it has no single type"
        raise BadHeaderAnnotation(
            f"{where}: {ANNOTATION} is for a string, an integer or a boolean, and {what}: "
            f'write one of these as "type" beside the annotation, and no null (a default makes it optional), or leave the annotation out'
        )
    if ours and place.schema.get("writeOnly") is True:
        raise BadHeaderAnnotation(
            f"{where}: it is a secret, and every proxy on the way would see it in the header: leave {ANNOTATION} out"
        )
    return MirroredParameter(f"{PARAMETER_PREFIX}{name.lower()}", f"Mcp-Param-{name}", names)
