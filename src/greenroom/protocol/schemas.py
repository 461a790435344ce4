"""JSON Schemas from type hints, and values from JSON by the same hints: what the schema says is what the check does.

`arguments_of` reads a function once, at registration, and refuses what cannot be offered to peers. Its `bind` runs at each call:
msgspec converts, and only when that fails is the value held against the schema, so that a peer hears of all its mistakes at once.
Nothing is coerced: "3" is no integer, and 1 is no boolean. A number is a number, though: 3 is a float as well, and 3.0 an integer.
"""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, Final, NotRequired, Required, TypedDict, cast

import msgspec

from .conversions import convert, schemas_of
from .docstrings import read
from .hints import BadHint, name_of, parameters_of, refined
from .patterns import may_explode
from .problems import Mismatch, Problem, Reason
from .wire import is_array, is_object, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from .conversions import Mode
    from .hints import Parameter
    from .problems import Path
    from .validation import Validator

__all__ = ["Arguments", "BadHint", "Kind", "Mismatch", "Problem", "arguments_of", "into", "kind_of", "schema_of"]

MOST_PROBLEMS: Final = 50
"""How many of its mistakes a peer is told at once."""


class Kind:
    """One type with its schema: how values of it are told, made and refused."""

    def __init__(self, kind: Any, schema: Mapping[str, Any]) -> None:
        """`kind` as `hints.refined` left it."""
        self._kind = kind
        self.schema = dict(schema)
        self._careful = any(may_explode(pattern) for pattern in _patterns_in(self.schema))

    def make(self, value: Any) -> Any:
        """The value that the JSON stands for. Raises `Mismatch` with everything that is wrong."""
        if self._careful:  # msgspec matches with `re`: nothing comes to it that has not been matched in bounded time
            self._check(value)
        try:
            return convert(value, self._kind)
        except msgspec.ValidationError as error:
            return self._make_slowly(value, error)

    @cached_property
    def _validator(self) -> Validator:
        from .validation import OwnValidator  # noqa: PLC0415 - who makes no mistakes never loads it

        return OwnValidator(self.schema)

    def _check(self, value: Any) -> None:
        if problems := self._validator.errors(value, most=MOST_PROBLEMS):
            raise Mismatch(problems)

    def _make_slowly(self, value: Any, error: msgspec.ValidationError) -> Any:
        """What msgspec refused: either all of the reasons, or a 3.0 where it wanted a 3, which are the same number."""
        self._check(value)
        try:
            return convert(_with_integers(value), self._kind)
        except msgspec.ValidationError:
            raise Mismatch([_problem_of(error)]) from None


class Arguments(Kind):
    """What a function takes: the input schema, and arguments as typed values."""

    def __init__(self, parameters: Sequence[Parameter], schema: Mapping[str, Any]) -> None:
        """One parameter each, by name."""
        members: dict[str, Any] = {
            one.name: Required[one.hint] if one.required else NotRequired[one.hint] for one in parameters
        }
        made_of: Any = TypedDict
        super().__init__(made_of("Arguments", members), schema)
        self.names = frozenset(members)

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments to call the function with. What was not sent is not in it: the function has its own defaults.

        Raises `Mismatch` with everything that is wrong, arguments that there are not among it.
        """
        if not arguments.keys() <= self.names:
            return cast("dict[str, Any]", self._make_slowly(arguments, msgspec.ValidationError("unknown arguments")))
        return cast("dict[str, Any]", self.make(arguments))


def arguments_of(
    function: Callable[..., Any],
    skip: Collection[str] = frozenset({"ctx"}),
    names: Mapping[str, Any] | None = None,
) -> Arguments:
    """The arguments of a function, method, partial or callable object, by its hints and its docstring.

    `names` are further names that hints may use. Raises `BadHint` for what cannot be offered to peers, and says what to write instead.
    """
    parameters = parameters_of(function, skip, names)
    schemas, defs = _schemas([one.hint for one in parameters], name_of(function), [one.name for one in parameters])
    for one in parameters:
        if not one.required and not _fits(one):
            raise BadHint(
                f"{name_of(function)}: the default of {one.name}, {one.default!r}, does not fit its own hint; "
                "change one of them, or take None for what was not sent"
            )
    properties = {one.name: _described(one, schema) for one, schema in zip(parameters, schemas, strict=True)}
    schema: dict[str, Any] = {"type": "object"}
    if properties:
        schema["properties"] = properties
    if required := [one.name for one in parameters if one.required]:
        schema["required"] = required
    schema["additionalProperties"] = False
    if defs:
        schema["$defs"] = defs
    return Arguments(parameters, schema)


def _fits(parameter: Parameter) -> bool:
    """Whether a peer might send what the function takes by default; what is no JSON nobody sends, and is the function's own affair."""
    try:
        value = plain(parameter.default)
    except (TypeError, ValueError):
        return True
    if value is True or value is False:
        return _converts(value, parameter.hint) or _converts(int(value), parameter.hint)  # a bool is an int, in Python
    return _converts(value, parameter.hint) or _converts(_with_integers(value), parameter.hint)


def _converts(value: Any, hint: Any) -> bool:
    try:
        convert(value, hint)
    except msgspec.ValidationError:
        return False
    return True


def _described(parameter: Parameter, schema: dict[str, Any]) -> dict[str, Any]:
    """The property of a parameter. What its hint says goes before what the docstring says."""
    if parameter.description and "description" not in schema:
        schema = {**schema, "description": parameter.description}
    if parameter.required or "default" in schema:
        return schema
    try:
        return {**schema, "default": plain(parameter.default)}
    except (TypeError, ValueError):
        return schema  # a default that is no JSON is the function's own affair


def schema_of(hint: Any, mode: Mode = "validation") -> dict[str, Any]:
    """The schema of a type. An object's schema stands at the root, not behind a `$ref`."""
    (schema,), defs = _schemas([refined(hint)], "the hint", [str(hint)], mode)
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if set(schema) == {"$ref"} and name in defs:
        schema = dict(defs[name])
        if not _mentions(name, defs):
            del defs[name]
    return {**schema, "$defs": defs} if defs else schema


def into(hint: Any, value: Any) -> Any:
    """The value of that type that the JSON stands for. Raises `Mismatch` with everything that is wrong."""
    return kind_of(hint).make(value)


def kind_of(hint: Any) -> Kind:
    """The type with its schema, made once for each type."""
    try:
        return _kind_of(hint)
    except TypeError as error:
        if isinstance(error, BadHint):
            raise
        return _make_kind(hint)  # cannot be kept: its Annotated holds something unhashable


def _make_kind(hint: Any) -> Kind:
    return Kind(refined(hint), schema_of(hint))


_kind_of = lru_cache(maxsize=1024)(_make_kind)


def _schemas(
    kinds: Sequence[Any], where: str, names: Sequence[str], mode: Mode = "validation"
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The schemas, with descriptions in order; or the reason, as a `BadHint` that says which type it was."""
    try:
        schemas, defs = schemas_of(kinds, mode)
    except (TypeError, NameError) as error:
        for kind, name in zip(kinds, names, strict=True):
            try:
                schemas_of([kind], mode)
            except (TypeError, NameError) as reason:
                raise BadHint(f"{where}: {name} has no schema: {_plainly(reason)}") from error
        raise BadHint(f"{where}: {_plainly(error)}") from error
    return schemas, {name: _with_docs(schema) for name, schema in defs.items()}


def _plainly(error: Exception) -> str:
    """Why a type has no schema, and what helps."""
    text = str(error)
    if isinstance(error, NameError):
        return f"{error.name!r} is not there at run time; define it at the top of its module, outside of `if TYPE_CHECKING`"
    if "schema_hook" in text:
        kind = text.rpartition("type ")[2].removesuffix(" is not supported")
        return f"{kind} has no form in JSON; take its parts, or a dataclass, TypedDict or model of them"
    return text


def _with_docs(schema: dict[str, Any]) -> dict[str, Any]:
    """A definition whose docstring is read as a docstring: its `Attributes:` describe the properties."""
    if "description" not in schema:
        return schema
    text, said = read(cleandoc(schema["description"]))
    schema = {**schema, "description": text}
    if not text:
        del schema["description"]
    properties = {
        name: {**one, "description": said[name]} if name in said and "description" not in one else one
        for name, one in schema.get("properties", {}).items()
    }
    return {**schema, "properties": properties} if properties else schema


def _mentions(name: str, value: Any) -> bool:
    """Whether a definition is referred to anywhere."""
    if is_object(value):
        return value.get("$ref") == f"#/$defs/{name}" or any(_mentions(name, one) for one in value.values())
    return is_array(value) and any(_mentions(name, one) for one in value)


def _with_integers(value: Any) -> Any:
    """The same JSON with each whole number as an int, which every check takes for a float as well."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if is_object(value):
        return {name: _with_integers(one) for name, one in value.items()}
    return [_with_integers(one) for one in value] if is_array(value) else value


def _patterns_in(schema: Any) -> Iterator[str]:
    """Every pattern in a schema that was made from hints."""
    if is_object(schema):
        if isinstance(pattern := schema.get("pattern"), str):
            yield pattern
        for one in schema.values():
            yield from _patterns_in(one)
    elif is_array(schema):
        for one in schema:
            yield from _patterns_in(one)


_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


def _problem_of(error: msgspec.ValidationError) -> Problem:
    """The one problem that msgspec names, for the few that a schema cannot say."""
    text, _, place = str(error).partition(" - at `")
    path: Path = tuple(int(index) if index else name for name, index in _STEP.findall(place.rstrip("`")))
    return Problem(path, Reason(text.replace("`", ""), "type_mismatch"))
