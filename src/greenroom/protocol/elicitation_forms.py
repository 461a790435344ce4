"""Elicitation: forms from types or schemas, conversion of answers, and URLs to send a user to.

A form is a class with fields (dataclass, TypedDict, msgspec struct, pydantic model), each a string, number, boolean, date or choice; or one such
type alone, which becomes a form with the single field `value`; or a schema written by hand.

Choices are a `Literal` or an `Enum` of strings; a list of them is a multiple choice. `Titles` gives the choices other labels.
"""

from __future__ import annotations

import math
import re
import secrets
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from datetime import datetime
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, get_origin
from urllib.parse import urlsplit

import msgspec

from .errors import ErrorCode, LocalProtocolError, McpError
from .function_parameters import BadHint, fields_of, parts_of
from .serialization import is_array, is_object, to_jsonable
from .type_schemas import cached_by_hint, convert_json, schema_of
from .validation_errors import Mismatch, ProblemReason, ValidationProblem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from .validation import FormValidator

Email: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"format": "email"})]
Uri: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"format": "uri"})]


@dataclass(frozen=True)
class Titles:
    """The labels of choices: `Annotated[Literal["r", "g"], Titles({"r": "Red", "g": "Green"})]`.

    `legacy` writes them as `enumNames`, for clients that know only those.
    """

    of: Mapping[str, str]
    legacy: bool = False

    def __hash__(self) -> int:
        return hash((frozenset(self.of.items()), self.legacy))


_UNSENT_MEMBERS: Final = frozenset({"pattern"})
"""Keywords that the form schema does not have, and that clients would read differently: the answer is checked against them here."""


def form_of(kind: Any) -> dict[str, Any]:
    """The form schema of a type, or a schema written by hand; None is a form without fields.

    Raises `BadHint` for types that are no flat form.
    """
    if is_object(kind):
        check_form(kind)
        return dict(kind)
    return dict(_form_of_type(kind))


@cached_by_hint
def _form_of_type(kind: Any) -> dict[str, Any]:
    if kind is None:
        return {"type": "object", "properties": {}}
    form = _derived(kind)
    check_form(form)
    return form


def _derived(kind: Any) -> dict[str, Any]:
    schema = schema_of(kind)
    if "properties" not in schema:
        field = _field("value", schema, schema.get("$defs", {}), kind)
        return {"type": "object", "properties": {"value": field}, "required": ["value"]}
    hints = fields_of(get_origin(kind) or kind)
    defs = schema.get("$defs", {})
    properties = {name: _field(name, one, defs, hints.get(name)) for name, one in schema["properties"].items()}
    for name, chosen in _factory_defaults(kind):
        if properties.get(name, {}).get("type") == "array":
            properties[name].setdefault("default", to_jsonable(chosen()))
    form: dict[str, Any] = {"type": "object", "properties": properties}
    if required := schema.get("required"):
        form["required"] = required
    return form


def parse_answer(kind: Any, content: Any) -> Any:
    """Convert the user's answer. Raises `Mismatch` with all mistakes, whatever the client has checked.

    An optional field that is null counts as left out, as several clients send it. Fields that the form does not have are dropped.
    """
    form = form_of(kind)
    properties = form["properties"]
    if content is None and not properties:
        content = {}
    if not is_object(content):
        raise Mismatch([ValidationProblem((), ProblemReason("the answer must be an object", "type_mismatch"))])
    required = form.get("required", ())
    given = {
        name: value for name, value in content.items() if name in properties and (value is not None or name in required)
    }
    if problems := (_validator(form) if is_object(kind) else _validator_of_type(kind)).errors(given):
        raise Mismatch(problems)
    if kind is None or is_object(kind):
        return None if kind is None else given
    return convert_json(kind, given if _has_fields(kind) else given["value"])


def _validator(form: dict[str, Any]) -> FormValidator:
    from .validation import FormValidator  # noqa: PLC0415 - jsonschema is much to load, and few ask

    return FormValidator(form)


@cached_by_hint
def _validator_of_type(kind: Any) -> FormValidator:
    return _validator(form_of(kind))


@cached_by_hint
def _has_fields(kind: Any) -> bool:
    """Whether a type is a class with fields, and not the type of the only field."""
    return "properties" in schema_of(kind)


def _field(name: str, schema: Mapping[str, Any], defs: Mapping[str, Any], hint: Any) -> dict[str, Any]:
    """The schema of one field, reduced to what forms have."""
    full = _unwrapped(schema, defs)
    if "enum" in full:
        field = _choice(name, full, hint)
    else:
        kind = str(full.get("type"))
        if kind not in ALLOWED_MEMBERS or "contentEncoding" in full:
            raise BadHint(f"the form's field {name} is no string, number, boolean, date or choice; forms are flat")
        field = {one: value for one, value in full.items() if one in ALLOWED_MEMBERS[kind] - _UNSENT_MEMBERS}
        if kind == "array":
            field |= _choices(name, full, defs, hint)
        elif kind == "integer":
            field |= _inclusive_limits(full)
        elif kind == "string" and field.get("format") not in FORMATS:
            field.pop("format", None)
            if any(part.value is datetime for part in parts_of(hint)):
                field["format"] = "date-time"
        field = {"type": kind, **field}
    shared = {one: schema[one] for one in ("title", "description", "default") if schema.get(one) is not None}
    return {**field, **shared}


def _unwrapped(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Mapping[str, Any]:
    """A field's schema without `$ref`, and without the null of an optional field."""
    if is_array(members := schema.get("anyOf")):
        rest = [one for one in members if one != {"type": "null"}]
        if len(rest) == 1:
            return _unwrapped(rest[0], defs)
    reference = schema.get("$ref")
    return defs.get(reference.removeprefix("#/$defs/"), schema) if isinstance(reference, str) else schema


def _choice(name: str, schema: Mapping[str, Any], hint: Any) -> dict[str, Any]:
    """A single choice: `enum`, with titles `oneOf`, or `enumNames` as in older revisions."""
    values, titles = _values(name, schema), _titles_in(hint)
    if titles is None:
        return {"type": "string", "enum": values}
    if titles.legacy:
        return {"type": "string", "enum": values, "enumNames": [titles.of.get(one, one) for one in values]}
    return {"type": "string", "oneOf": _with_titles(values, titles)}


def _choices(name: str, schema: Mapping[str, Any], defs: Mapping[str, Any], hint: Any) -> dict[str, Any]:
    """A multiple choice: a list of `enum`, or with titles of `anyOf`."""
    items = _unwrapped(schema.get("items", {}), defs)
    if "enum" not in items:
        raise BadHint(f"the form's field {name} is a list without choices; make it a list of a Literal or an Enum")
    values, titles = _values(name, items), _titles_in(hint)
    return {"items": {"type": "string", "enum": values} if titles is None else {"anyOf": _with_titles(values, titles)}}


def _values(name: str, schema: Mapping[str, Any]) -> list[str]:
    """The choices."""
    values: list[Any] = [one for one in schema["enum"] if one is not None]
    if not values or not all(isinstance(one, str) for one in values):
        raise BadHint(f"the form's field {name} has choices that are not strings")
    return values


def _with_titles(values: list[str], titles: Titles) -> list[dict[str, str]]:
    return [{"const": one, "title": titles.of.get(one, one)} for one in values]


def _inclusive_limits(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Inclusive limits: more than 3 is at least 4, which a form can express."""
    found: dict[str, Any] = {}
    if "exclusiveMinimum" in schema:
        found["minimum"] = schema["exclusiveMinimum"] + 1
    if "exclusiveMaximum" in schema:
        found["maximum"] = schema["exclusiveMaximum"] - 1
    return found


def _factory_defaults(kind: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Defaults from factories, such as those of lists."""
    if is_dataclass(kind):
        for one in fields(kind):
            if one.default_factory is not MISSING:
                yield one.name, one.default_factory
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        for each in msgspec.structs.fields(kind):
            if each.default_factory is not msgspec.NODEFAULT:
                yield each.encode_name, each.default_factory


def _titles_in(hint: Any) -> Titles | None:
    return next((part.value for part in parts_of(hint) if isinstance(part.value, Titles) and not part.field_name), None)


# --- URL elicitation: the URL, its id, and the error that requires the user to open it first.
# What happens on the page bypasses the client, which sees only the URL. So the allowed URLs are checked here: users must be able to trust what they
# read.

ID_PLACEHOLDER: Final = "{elicitation_id}"
"""The placeholder of the id in a URL."""

_LONGEST_URL: Final = 8192
_LONGEST_ID: Final = 256
_NOT_IN_URLS: Final = re.compile(r"[^A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]|%(?![0-9A-Fa-f]{2})")
_ID: Final = re.compile(r"[\x21-\x7e]+")


def new_elicitation_id() -> str:
    """A new id that cannot be guessed."""
    return secrets.token_urlsafe(24)


def check_url(url: object) -> str:
    """Check a URL that a user is to open. Raises `LocalProtocolError` with what is wrong.

    It is absolute and https; http only to this machine. A name or password in it is refused, since it would disguise the host.
    """
    if not isinstance(url, str) or not url:
        raise _bad_url("must be a string")
    if len(url) > _LONGEST_URL:
        raise _bad_url(f"has at most {_LONGEST_URL} characters; it has {len(url)}")
    if found := _NOT_IN_URLS.search(url):
        place = f"it has {found[0]!r} at {found.start()}"
        raise _bad_url(f"has characters that must be percent-encoded ({place})")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise _bad_url(f"must be a URL: {error}") from None
    if parts.scheme not in ("https", "http") or not host or not any(letter.isalnum() for letter in host):
        raise _bad_url("must be absolute, with https:// and a host")
    if parts.username is not None or parts.password is not None:
        raise _bad_url(
            "must not contain a name or password: they would disguise the host, and reveal credentials to the client"
        )
    if parts.scheme == "http" and not _is_loopback(host):
        raise _bad_url(f"must be https: http is allowed only to this machine, and {host} is not")
    return url


def _bad_url(needed: str) -> LocalProtocolError:
    return LocalProtocolError(f"the url of an elicitation {needed}")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def check_id(id: object) -> str:
    """Check an id. Raises `LocalProtocolError`."""
    if not isinstance(id, str) or len(id) > _LONGEST_ID or not _ID.fullmatch(id):
        raise LocalProtocolError(
            f"the id of an elicitation is a string of 1 to {_LONGEST_ID} visible ASCII characters; leave it out to get one"
        )
    return id


@dataclass(frozen=True, slots=True)
class UrlElicitation:
    """A page for the user to open, and the reason. `{elicitation_id}` in the URL is replaced by the id."""

    message: str
    url: str = field(repr=False)
    id: str = field(default_factory=new_elicitation_id, repr=False)

    def __post_init__(self) -> None:
        """Raises `LocalProtocolError` for a URL that is not allowed."""
        check_message(self.message)
        if isinstance(self.url, str):  # pyright: ignore[reportUnnecessaryIsInstance] - not all callers use a type checker
            # The dataclass is frozen for its users; the placeholder is replaced once, while it is made.
            object.__setattr__(self, "url", self.url.replace(ID_PLACEHOLDER, check_id(self.id)))
        check_url(self.url)
        check_id(self.id)

    def to_wire(self) -> dict[str, Any]:
        """The params of its `elicitation/create`, and its entry in the error."""
        return {"mode": "url", "message": self.message, "url": self.url, "elicitationId": self.id}


def check_message(message: object) -> None:
    """Check that there is a message for the user."""
    if not isinstance(message, str) or not message.strip():
        raise LocalProtocolError(
            "the message of an elicitation tells the user why they are asked; it must be a string, and not empty"
        )


class UrlElicitationRequired(McpError):
    """Raise it if a call cannot continue before the user has opened a page: the client sends the user there, and calls again."""

    def __init__(
        self,
        elicitations: UrlElicitation | Sequence[UrlElicitation],
        message: str = "The user has to open a page first.",
    ) -> None:
        """`elicitations` has at least one page."""
        self.elicitations = (elicitations,) if isinstance(elicitations, UrlElicitation) else tuple(elicitations)
        if not self.elicitations:
            raise LocalProtocolError("an elicitation that is required needs at least one page")
        data = {"elicitations": [each.to_wire() for each in self.elicitations]}
        super().__init__(ErrorCode.URL_ELICITATION_REQUIRED, message, data)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.elicitations, self.message)


# --- The check of form schemas: elicitation's restricted dialect, member by member.
# It applies to schemas written by hand and to those made from types. A client renders a form from its members, so an unknown member would have no
# effect, and an invalid default would be refused when it is sent back.

FORMATS: Final = frozenset({"email", "uri", "date", "date-time"})

_ROOT: Final = frozenset({"$schema", "type", "properties", "required", "title", "description", "additionalProperties"})
_COMMON_MEMBERS: Final = frozenset({"type", "title", "description", "default"})
_TEXTS: Final = ("title", "description")

ALLOWED_MEMBERS: Final[Mapping[str, frozenset[str]]] = {
    "string": frozenset({"minLength", "maxLength", "format", "pattern", "enum", "enumNames", "oneOf"}),
    "number": frozenset({"minimum", "maximum"}),
    "integer": frozenset({"minimum", "maximum"}),
    "boolean": frozenset(),
    "array": frozenset({"items", "minItems", "maxItems"}),
}
"""The allowed members of a field, besides title, description and default, by type."""

_OF_CHOICES: Final[Mapping[str, frozenset[str]]] = {
    "enum": frozenset({"enum", "enumNames"}),
    "oneOf": frozenset({"oneOf"}),
}


def check_form(form: Any) -> None:
    """Check that clients can show a form. Raises `BadHint` naming the field and the mistake."""
    if not is_object(form) or form.get("type") != "object" or not is_object(fields := form.get("properties")):
        raise BadHint('a form must be an object: {"type": "object", "properties": {…}}')
    if strange := sorted(map(str, form.keys() - _ROOT)):
        raise BadHint(f"a form has only fields, and no {', '.join(strange)}")
    required: Any = form.get("required", [])
    if not is_array(required) or not all(isinstance(name, str) and name in fields for name in required):
        raise BadHint("a form's required must be a list of its fields")
    for name, each in fields.items():
        _check_field(f"the form's field {name}", each)
    _check_defaults(fields)


def _check_field(what: str, field: Any) -> None:
    kind = field.get("type") if is_object(field) else None
    if not isinstance(kind, str) or kind not in ALLOWED_MEMBERS:
        raise BadHint(f"{what} has the type {kind!r}; it must be one of {', '.join(ALLOWED_MEMBERS)}")
    allowed_members = next(
        (allowed for name, allowed in _OF_CHOICES.items() if kind == "string" and name in field), ALLOWED_MEMBERS[kind]
    )
    if strange := sorted(map(str, field.keys() - allowed_members - _COMMON_MEMBERS)):
        raise BadHint(f"{what} has {', '.join(strange)}, which forms do not support")
    for name in _TEXTS:
        if not isinstance(field.get(name, ""), str):
            raise BadHint(f"{what}: its {name} must be a string")
    match kind:
        case "string" if "enum" in field:
            _check_enum(what, field)
        case "string" if "oneOf" in field:
            _check_titled(what, field["oneOf"])
        case "string":
            _check_order(what, field, "minLength", "maxLength", whole=True)
            if field.get("format", "email") not in FORMATS:
                raise BadHint(
                    f"{what} has the format {field['format']!r}; it must be one of {', '.join(sorted(FORMATS))}"
                )
            if not isinstance(field.get("pattern", ""), str):
                raise BadHint(f"{what}: its pattern must be a string")
        case "array":
            _check_order(what, field, "minItems", "maxItems", whole=True)
            _check_items(what, field.get("items"), field)
        case _:
            _check_order(what, field, "minimum", "maximum")


def _check_items(what: str, items: Any, field: Mapping[str, Any]) -> None:
    if not is_object(items) or not (items.keys() & {"enum", "anyOf"}):
        raise BadHint(f"{what} has items without choices: they need an enum, or an anyOf with titles")
    if "anyOf" in items:
        choices = _check_titled(what, items["anyOf"])
        allowed = {"anyOf"}
    else:
        choices = _check_choices(what, items["enum"])
        allowed = {"type", "enum"}
        if items.get("type") != "string":
            raise BadHint(f'{what}: its items must have {{"type": "string"}}')
    if items.keys() - allowed:
        raise BadHint(f"{what}: its items must be choices only")
    if field.get("minItems", 0) > len(choices):
        raise BadHint(f"{what} requires more choices than it has")


def _check_enum(what: str, field: Mapping[str, Any]) -> None:
    choices = _check_choices(what, field["enum"])
    names: Any = field.get("enumNames", choices)
    if not is_array(names) or len(names) != len(choices) or not all(isinstance(one, str) for one in names):
        raise BadHint(f"{what}: enumNames must have a string for each of its choices")


def _check_choices(what: str, choices: Any) -> Sequence[str]:
    if not is_array(choices) or not choices or not all(isinstance(one, str) for one in choices):
        raise BadHint(f"{what} has choices that are not strings, or none")
    if len(set(choices)) != len(choices):
        raise BadHint(f"{what} has a choice twice")
    return choices


def _check_titled(what: str, titled: Any) -> Sequence[str]:
    if not is_array(titled) or not all(
        is_object(one) and set(one) == {"const", "title"} and isinstance(one["title"], str) for one in titled
    ):
        raise BadHint(f'{what}: each of its choices must be {{"const": …, "title": …}}')
    return _check_choices(what, [one["const"] for one in titled])


def _check_order(what: str, field: Mapping[str, Any], low: str, high: str, *, whole: bool = False) -> None:
    for name in (low, high):
        if name in field and not _is_number(field[name], whole=whole):
            raise BadHint(f"{what}: its {name} is a {'whole number, 0 or more' if whole else 'number'}")
    if low in field and high in field and field[low] > field[high]:
        raise BadHint(f"{what}: its {low} is more than its {high}")


def _is_number(value: Any, *, whole: bool) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return False
    return not whole or (isinstance(value, int) and value >= 0)


def _check_defaults(fields: Mapping[str, Any]) -> None:
    """A default is sent back if the user changes nothing, so it must be a valid answer."""
    from .validation import FormValidator  # noqa: PLC0415 - jsonschema is much to load, and few ask

    defaults = {name: field["default"] for name, field in fields.items() if "default" in field}
    if not defaults:
        return
    wrong = FormValidator({"type": "object", "properties": {name: fields[name] for name in defaults}}).errors(defaults)
    if wrong:
        raise BadHint("; ".join(f"the default of the form's field {problem}" for problem in wrong))
