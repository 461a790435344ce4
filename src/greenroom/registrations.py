"""Registering in plain words: `server.registry.register_tool(name, function, ToolOptions(…))`, at any time, from any thread.

What is registered stands on the shelf that all companies of the server share, at once and completely or not at all; those that run
are told that a list has changed, and tell their peers. The decorators of a server are these same calls, except that they refuse a
name that is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from greenroom.actors.catalogue import RegistrationError
from greenroom.actors.entries import (
    completion_entry,
    prompt_entry,
    resource_entry,
    template_entry,
    tool_entry,
)
from greenroom.actors.options import CompletionOptions, PromptOptions, ResourceOptions, TemplateOptions, ToolOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from greenroom.actors.catalogue import Catalogue, Kind, Shelf
from greenroom.actors.entries import Entry

Reference: TypeAlias = tuple[str, str, str]
"""What a completion is for: `("prompt", its name, an argument)` or `("resource_template", its URI template, a variable)`."""


class Registrations:
    """The shelf of a server, to write on."""

    def __init__(self, shelf: Shelf, changed: Callable[[Kind], None]) -> None:
        """`changed` is called after each change, with what has changed."""
        self._shelf = shelf
        self._changed = changed

    @property
    def catalogue(self) -> Catalogue:
        """Everything that is registered now, as it is and will stay."""
        return self._shelf.catalogue

    def register_tool(
        self, name: str, function: Callable[..., Any], options: ToolOptions | None = None, *, replace: bool = True
    ) -> None:
        """A tool of that name, instead of one that has it already unless `replace` is False. Raises `RegistrationError`."""
        self._put(tool_entry(name, function, _checked(options, ToolOptions)), replace)

    def register_resource(
        self, name: str, function: Callable[..., Any], options: ResourceOptions, *, replace: bool = True
    ) -> None:
        """A resource, at `options.uri`."""
        self._put(resource_entry(name, function, _checked(options, ResourceOptions)), replace)

    def register_resource_template(
        self, name: str, function: Callable[..., Any], options: TemplateOptions, *, replace: bool = True
    ) -> None:
        """All resources that `options.uri_template` describes."""
        self._put(template_entry(name, function, _checked(options, TemplateOptions)), replace)

    def register_prompt(
        self, name: str, function: Callable[..., Any], options: PromptOptions | None = None, *, replace: bool = True
    ) -> None:
        """A prompt."""
        self._put(prompt_entry(name, function, _checked(options, PromptOptions)), replace)

    def register_completion(
        self,
        reference: Reference,
        function: Callable[..., Any],
        options: CompletionOptions | None = None,
        *,
        replace: bool = True,
    ) -> None:
        """Who completes an argument of a prompt, or a variable of a template."""
        self._put(completion_entry(reference, function, _checked(options, CompletionOptions)), replace)

    def unregister_tool(self, name: str) -> bool:
        """It is not there any more; whether it was."""
        return self._drop("tool", name)

    def unregister_resource(self, name: str) -> bool:
        """It is not there any more; whether it was."""
        return self._drop("resource", name)

    def unregister_resource_template(self, name: str) -> bool:
        """It is not there any more; whether it was."""
        return self._drop("resource_template", name)

    def unregister_prompt(self, name: str) -> bool:
        """It is not there any more; whether it was."""
        return self._drop("prompt", name)

    def unregister_completion(self, reference: Reference) -> bool:
        """It is not there any more; whether it was."""
        return self._drop("completion", reference)

    def _put(self, entry: Entry, replace: bool) -> None:  # noqa: FBT001 - passed on
        self._shelf.write(lambda catalogue: catalogue.put(entry, replace=replace))
        self._changed(entry.kind)

    def _drop(self, kind: Kind, name: Hashable) -> bool:
        dropped = self._shelf.write(lambda catalogue: catalogue.drop(kind, name))
        if dropped:
            self._changed(kind)
        return dropped


Options = TypeVar("Options")


def _checked(options: Options | None, kind: type[Options]) -> Options:
    """The options, or those of a function of which nothing was said. Raises `RegistrationError` for a dict of them."""
    if options is None:
        return kind()
    if not isinstance(options, kind):
        raise RegistrationError(f"options must be {kind.__name__}(title=…), not {options!r}")
    return options
