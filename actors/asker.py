"""What a client may be asked, in Python's own words: its model, its user, its roots.

Whoever can send a request can ask all of it: a handler's context does, and what stands for a peer outside of any call does too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from greenroom.protocol.elicitations import UrlElicitation, new_elicitation_id

from .asking_calls import asks
from .questions import Elicited, Root, Sampled, elicited, roots_of, sampling_params

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from greenroom.protocol.sampling import IncludeContext, ToolChoice

    from .asking_calls import Question

T = TypeVar("T")


class Asker:
    """Derive from it what has `request`."""

    __slots__ = ()

    def note(self, question: Question[Any]) -> None:
        """Nothing is known here of when a question ought to have been awaited."""

    @asks
    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Send a request to the client, and wait for its result."""
        raise NotImplementedError

    @asks
    async def sample(  # noqa: PLR0913 - the protocol's own parameters
        self,
        messages: Any,
        *,
        max_tokens: int = 1024,
        system_prompt: str | None = None,
        temperature: float | None = None,
        stop: Sequence[str] = (),
        model_preferences: Mapping[str, Any] | None = None,
        include_context: IncludeContext | None = None,
        tools: Sequence[Any] = (),
        tool_choice: ToolChoice | None = None,
        metadata: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Sampled:
        """Have the client's model continue `messages`: a text, a message, or several; what it said before goes in as it came.

        With `tools`, it may answer with uses of them (`said.tool_uses`), each of which wants a `ToolResult` in the next message. Raises
        `LocalProtocolError` for a conversation that no client would take.
        """
        params = sampling_params(
            messages,
            maxTokens=max_tokens,
            systemPrompt=system_prompt,
            temperature=temperature,
            stopSequences=list(stop) or None,
            modelPreferences=model_preferences,
            includeContext=include_context,
            tools=list(tools) or None,
            toolChoice=None if tool_choice is None else {"mode": tool_choice},
            metadata=metadata,
        )
        return Sampled.of(await self.request("sampling/createMessage", params, timeout=timeout))

    @overload
    async def elicit(
        self, message: str, form: Mapping[str, Any], *, timeout: float | None = ...
    ) -> Elicited[dict[str, Any]]: ...

    @overload
    async def elicit(self, message: str, form: None = ..., *, timeout: float | None = ...) -> Elicited[None]: ...

    @overload
    async def elicit(self, message: str, form: type[T], *, timeout: float | None = ...) -> Elicited[T]: ...

    def elicit(
        self, message: str, form: Any = None, *, timeout: float | None = None
    ) -> Coroutine[Any, Any, Elicited[Any]]:
        """Have the user fill in a form: a class with fields, a type for one field, or a schema; without any, only agree or not.

        `Accepted(value)`, `Declined()` or `Dismissed()`. Raises `BadAnswer` when what the client sends does not fit. Never ask for
        passwords, keys or payment details so: that is what `elicit_url` is for.
        """
        return self._elicit(message, form, timeout)

    @asks
    async def _elicit(self, message: str, form: Any, timeout: float | None) -> Elicited[Any]:
        from greenroom.protocol.forms import answer_into, form_of  # noqa: PLC0415 - few ask, and it is much to load

        asked = {"message": message, "requestedSchema": form_of(form)}
        result = await self.request("elicitation/create", asked, timeout=timeout)
        return elicited(result, lambda content: answer_into(form, content))

    @asks
    async def elicit_url(
        self, message: str, url: str, elicitation_id: str | None = None, *, timeout: float | None = None
    ) -> Elicited[str]:
        """Have the user visit a page; `{elicitation_id}` in the address is replaced by its id, which is made unless it is given.

        `Accepted(id)` means that they agreed to go there, not that they are done: `server.elicitation_complete(id)` says that.
        """
        visit = UrlElicitation(message, url, new_elicitation_id() if elicitation_id is None else elicitation_id)
        result = await self.request("elicitation/create", visit.to_wire(), timeout=timeout)
        return elicited(result, lambda _: visit.id)

    @asks
    async def roots(self, *, timeout: float | None = None) -> list[Root]:
        """Which folders or other places the client works in."""
        return roots_of(await self.request("roots/list", timeout=timeout))
