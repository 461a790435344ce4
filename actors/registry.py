"""The registry as others hold it: what is registered in a company, by name.

Reading never waits and asks nobody: it looks at the snapshot on the shelf. Writing goes through the registrar, one after the other,
and waits until that is ready. It can be used before the company runs as well: `declare` writes straight to the shelf then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from greenroom.supervision import ActorError

from .catalogue import RegistrationError
from .entries import completion_entry, prompt_entry, resource_entry, template_entry, tool_entry
from .local import call_locally
from .registrar import Registrar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from greenroom.supervision import Ref

    from .catalogue import Catalogue, Kind
    from .entries import Entry
    from .jobs import House
    from .options import CompletionOptions, PromptOptions, ResourceOptions, TemplateOptions, ToolOptions


class Registry:
    """A handle; any number of them may exist for one company."""

    def __init__(self, house: House, registrar: Ref[Registrar]) -> None:
        """The registrar by name, so that one who is restarted is found again."""
        self._house = house
        self._registrar = registrar.within(None)

    def __repr__(self) -> str:
        return f"<Registry, version {self._house.shelf.catalogue.version}>"

    async def ready(self, timeout: float | None = 5.0) -> None:
        """Wait until it is. Raises `CallTimeout` when it is not within so many seconds, `NotRegistered` when the company does not run."""
        await self._registrar.within(timeout).call(Registrar.ready)

    # --- writing

    async def put(self, *entries: Entry, replace: bool = True) -> None:
        """Register all of these, or none: there is no moment at which peers see some of them."""
        await self._registrar.call(Registrar.put, entries, replace=replace)

    def declare(self, *entries: Entry, replace: bool = False) -> None:
        """As `put`, without waiting: at once while the company does not run, else through its registrar, in order.

        Raises `RegistrationError` for what cannot be registered as things stand.
        """

        def put_all(catalogue: Catalogue) -> Catalogue:
            for entry in entries:
                catalogue = catalogue.put(entry, replace=replace)
            return catalogue

        put_all(self._house.shelf.catalogue)  # what is wrong with it is told to whoever calls, and not to the registrar
        try:
            taken = self._registrar.cast(Registrar.put, entries, replace=replace)
        except ActorError:  # no node runs here
            taken = False
        if not taken:
            self._house.shelf.write(put_all)

    async def register_tool(
        self, name: str, function: Callable[..., Any], options: ToolOptions | None = None, *, replace: bool = True
    ) -> None:
        """Register a tool. Raises `RegistrationError`, which says what to do; nothing has changed then."""
        await self.put(tool_entry(name, function, options), replace=replace)

    async def register_resource(
        self, name: str, function: Callable[..., Any], options: ResourceOptions, *, replace: bool = True
    ) -> None:
        """Register a resource, which clients read by its URI."""
        await self.put(resource_entry(name, function, options), replace=replace)

    async def register_resource_template(
        self, name: str, function: Callable[..., Any], options: TemplateOptions, *, replace: bool = True
    ) -> None:
        """Register a resource template."""
        await self.put(template_entry(name, function, options), replace=replace)

    async def register_prompt(
        self, name: str, function: Callable[..., Any], options: PromptOptions | None = None, *, replace: bool = True
    ) -> None:
        """Register a prompt."""
        await self.put(prompt_entry(name, function, options), replace=replace)

    async def register_completion(
        self,
        name: tuple[str, str, str],
        function: Callable[..., Any],
        options: CompletionOptions | None = None,
        *,
        replace: bool = True,
    ) -> None:
        """Register who completes `("prompt", its name, an argument)` or `("resource_template", its URI template, a variable)`."""
        await self.put(completion_entry(name, function, options), replace=replace)

    async def unregister(self, kind: Kind, name: Hashable) -> bool:
        """Take one out. Whether it was there; calls that are under way go on."""
        return await self._registrar.call(Registrar.drop, kind, name)

    async def unregister_tool(self, name: str) -> bool:
        """Take a tool out."""
        return await self.unregister("tool", name)

    async def unregister_resource(self, name: str) -> bool:
        """Take a resource out."""
        return await self.unregister("resource", name)

    async def unregister_resource_template(self, name: str) -> bool:
        """Take a resource template out."""
        return await self.unregister("resource_template", name)

    async def unregister_prompt(self, name: str) -> bool:
        """Take a prompt out."""
        return await self.unregister("prompt", name)

    async def unregister_completion(self, name: tuple[str, str, str]) -> bool:
        """Take a completion out."""
        return await self.unregister("completion", name)

    # --- reading

    def find(self, name: Hashable, kind: Kind = "tool") -> Entry | None:
        """The entry of that name."""
        return self._house.shelf.catalogue.find(kind, name)

    def all(self, kind: Kind = "tool") -> list[tuple[str, Mapping[str, Any]]]:
        """All of a kind, sorted by name, each as clients see it."""
        entries: Any = self._house.shelf.catalogue.all(kind)
        return [(name, entries[name].wire) for name in sorted(entries)]

    def list_tools(self) -> list[tuple[str, Mapping[str, Any]]]:
        """The tools."""
        return self.all("tool")

    def list_resources(self) -> list[tuple[str, Mapping[str, Any]]]:
        """The resources."""
        return self.all("resource")

    def list_resource_templates(self) -> list[tuple[str, Mapping[str, Any]]]:
        """The resource templates."""
        return self.all("resource_template")

    def list_prompts(self) -> list[tuple[str, Mapping[str, Any]]]:
        """The prompts."""
        return self.all("prompt")

    # --- calling without a session

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """What the tool's function returns, or raises. Raises `NotFound`, and `ProcessExited` when it ended its own process."""
        return await call_locally(self._house, "tool", name, arguments)

    async def read_resource(self, name: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """What the function of the resource with that name returns, or raises."""
        return await call_locally(self._house, "resource", name, arguments)

    async def get_prompt(self, name: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """What the prompt's function returns, or raises."""
        return await call_locally(self._house, "prompt", name, arguments)

    # --- telling

    def notify_resource_updated(self, uri: str, extra: Mapping[str, Any] | None = None) -> None:
        """Tell whoever has subscribed to that resource. Several in one moment are told once."""
        self._house.updated(uri, extra or {})

    def notify_list_changed(self, kind: Kind) -> None:
        """Tell everybody that a list has changed. Registering does that by itself."""
        self._house.list_changed(kind)

    # --- short words for tools

    async def reg(self, name: str, function: Callable[..., Any], options: ToolOptions | None = None) -> None:
        """`register_tool`."""
        await self.register_tool(name, function, options)

    async def unreg(self, name: str) -> bool:
        """`unregister_tool`."""
        return await self.unregister_tool(name)

    async def run(self, name: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """`call_tool`."""
        return await self.call_tool(name, arguments)


__all__ = ["RegistrationError", "Registry"]
