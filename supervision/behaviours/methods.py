"""Method references: which function of a server a client means."""

from __future__ import annotations

from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, cast

from .actions import Reject

if TYPE_CHECKING:
    from collections.abc import Callable

    from .serving import Serving


def find(cls: type[Serving], method: Any) -> Callable[..., Any]:
    """The most derived override of `method`, remembered by the class. Plain functions of the server stay.

    For what is no method of that class: a function that rejects the call, so that it is the caller who is told.
    """
    name = getattr(method, "__name__", None)
    if name is not None and any(vars(base).get(name) is method for base in cls.__mro__):
        function: Callable[..., Any] = getattr(cls, name)
        cls._otp_methods[method] = function
        return function
    if isinstance(method, MethodType) and any(vars(base).get(name or "") is method.__func__ for base in cls.__mro__):
        return _refuse(f"{method.__qualname__} is bound to an instance: write {cls.__name__}.{name}")
    owner = getattr(method, "__qualname__", "").rpartition(".")[0]
    if isinstance(method, FunctionType) and owner and not owner.endswith(">"):
        return _refuse(f"{method.__qualname__} is not a method of {cls.__name__}")
    if not callable(method):
        return _refuse(f"{method!r} is not a method of {cls.__name__}: write {cls.__name__}.name_of_the_method")
    return cast("Callable[..., Any]", method)


def _refuse(message: str) -> Callable[..., Any]:
    def refuse(_server: object, *_args: Any, **_kwargs: Any) -> None:
        raise Reject(TypeError(message))

    return refuse
