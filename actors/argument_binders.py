"""Binders: from the arguments that a peer sends to the function's arguments, one class for each style of handler."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, get_origin

from greenroom.protocol.function_parameters import MISSING, BadHint, default_problem, parameters_of
from greenroom.protocol.type_schemas import FunctionArguments, arguments_of, convert_json, filled_arguments
from greenroom.protocol.validation_errors import Mismatch, ProblemReason, ValidationProblem

from .catalogue import RegistrationError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from greenroom.protocol.function_parameters import Parameter

OBJECT_SCHEMA: Final[Mapping[str, Any]] = {"type": "object"}
"""The schema that accepts any object."""
_DICT_PARAMETER_NAMES: Final = frozenset({"args", "arguments", "params"})
"""The names of a single parameter that takes all arguments as a dict."""
_DICT_TYPES: Final = frozenset({dict, Mapping, MutableMapping})
_MISSING: Final = ProblemReason("is missing", "missing_required")
_UNKNOWN: Final = ProblemReason("there is no such argument", "unexpected_property")


class DictBinder:
    """`def tool(args)`: all arguments in one dict. In a tool, `args: dict` is an ordinary argument, as in other libraries."""

    def __init__(self, name: str, schema: Mapping[str, Any] = OBJECT_SCHEMA) -> None:
        """`name` is the parameter."""
        self._name = name
        self.schema = schema

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """A new dict, which the function may change."""
        return {self._name: dict(arguments)}


class KeywordBinder:
    """`def tool(city, days=3)` with a handwritten schema: arguments by name, not converted."""

    def __init__(self, parameters: Mapping[str, inspect.Parameter], schema: Mapping[str, Any]) -> None:
        """`parameters` are the function's, without the context.

        Raises `BadHint` for a default that only makes sense with a schema from hints.
        """
        self.schema = schema
        for each in parameters.values():
            if why := default_problem(each.default):
                raise BadHint(f"{each.name}: its default is {why}")
        kinds = {each.kind for each in parameters.values()}
        self._open = inspect.Parameter.VAR_KEYWORD in kinds
        named = [each for each in parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        self._names = frozenset(each.name for each in named)
        self._required = [each.name for each in named if each.default is MISSING]

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments. Raises `Mismatch` that names each missing and each unknown one."""
        missing = [name for name in self._required if name not in arguments]
        unknown = [] if self._open else [name for name in arguments if name not in self._names]
        if missing or unknown:
            raise Mismatch(
                [ValidationProblem((name,), _MISSING) for name in missing]
                + [ValidationProblem((name,), _UNKNOWN) for name in unknown]
            )
        return dict(arguments)


class TextBinder:
    """Prompts and template variables, which peers send as texts.

    A parameter with another hint gets the value that the text stands for.
    """

    def __init__(self, parameters: Collection[Parameter]) -> None:
        self.parameters = {each.wire: each for each in parameters}
        self._typed = {each.wire: each.hint for each in parameters if each.hint not in (str, Any, MISSING)}
        self._required = [each.wire for each in parameters if each.required]
        self.schema = OBJECT_SCHEMA

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments, converted where the hint is no text: "3", "true", "[1, 2]"."""
        problems = [ValidationProblem((name,), _MISSING) for name in self._required if name not in arguments]
        bound: dict[str, Any] = {}
        for name, value in arguments.items():
            if name not in self.parameters:
                problems.append(ValidationProblem((name,), _UNKNOWN))
                continue
            try:
                bound[name] = _from_text(self._typed[name], value) if name in self._typed else value
            except Mismatch as error:
                problems += [ValidationProblem((name, *each.path), each.reason) for each in error.errors]
        if problems:
            raise Mismatch(problems)
        return filled_arguments(self.parameters.values(), bound)


def _from_text(hint: Any, text: Any) -> Any:
    """The value of the text: the text itself if the hint accepts it, else the JSON that it holds."""
    from greenroom.protocol.errors import RemoteProtocolError  # noqa: PLC0415 - parameters of type str never need them
    from greenroom.protocol.jsonrpc import decode  # noqa: PLC0415 - same

    try:
        return convert_json(hint, text)
    except Mismatch:
        try:
            value = decode(str(text).encode())
        except RemoteProtocolError:
            value = text
        return convert_json(hint, value)


Binder: TypeAlias = "DictBinder | KeywordBinder | TextBinder | FunctionArguments"


def binder_of(function: Callable[..., Any], context: str | None, schema: Mapping[str, Any] | None) -> Binder:
    """The binder of a tool. `context` is the parameter that gets the context, `schema` the handwritten one."""
    parameters = function_parameters(function, context)
    whole = _dict_parameter(parameters, schema)
    if whole is not None and (schema is not None or parameters[whole].annotation is MISSING):
        return DictBinder(whole, OBJECT_SCHEMA if schema is None else schema)
    if schema is None:
        return arguments_of(function, () if context is None else (context,))
    for each in parameters.values():
        if each.kind in (each.POSITIONAL_ONLY, each.VAR_POSITIONAL):
            raise BadHint(f"{each} cannot be given by name, and arguments come by name: take it by its name")
    return KeywordBinder(parameters, schema)


def text_binder_of(what: str, function: Callable[..., Any], context: str | None) -> TextBinder | DictBinder:
    """The binder of a prompt, or of a template's variables."""
    try:
        whole = _dict_parameter(function_parameters(function, context), None)
        return (
            TextBinder(parameters_of(function, () if context is None else (context,)))
            if whole is None
            else DictBinder(whole)
        )
    except BadHint as error:
        raise RegistrationError(f"{what}: {error}") from error


def function_parameters(function: Callable[..., Any], context: str | None) -> dict[str, inspect.Parameter]:
    """The function's parameters, without its context."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise RegistrationError(
            f"the parameters of {function!r} cannot be read ({error}): wrap it in a function"
        ) from None
    return {name: each for name, each in signature.parameters.items() if name != context}


def _dict_parameter(parameters: Mapping[str, inspect.Parameter], schema: Mapping[str, Any] | None) -> str | None:
    """The one parameter that takes all arguments as a dict, if the function is written so."""
    if len(parameters) != 1:
        return None
    ((name, only),) = parameters.items()
    if only.kind not in (only.POSITIONAL_ONLY, only.POSITIONAL_OR_KEYWORD, only.KEYWORD_ONLY):
        return None
    if not _takes_a_dict(only.annotation):
        return None
    by_hand = schema is not None and name not in schema.get("properties", {})
    return name if name in _DICT_PARAMETER_NAMES or by_hand else None


def _takes_a_dict(hint: Any) -> bool:
    if hint is MISSING or hint is Any:
        return True
    if isinstance(hint, str):
        return hint.partition("[")[0].rpartition(".")[2] in ("Any", "dict", "Dict", "Mapping", "MutableMapping")
    return (get_origin(hint) or hint) in _DICT_TYPES if isinstance(hint, Hashable) else False
