"""The fixture that the official suite judges: `server.py PORT` serves it on 127.0.0.1, at `/mcp`.

Its tools, resources and prompts are the suite's contract, by name, on the public interface alone; the suite says what each has to do.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from greenroom import (
    Accepted,
    Context,
    ErrorCode,
    HttpConfig,
    McpError,
    Message,
    Sampled,
    Server,
    ToolError,
    audio,
    embedded,
    image,
    text,
    text_resource,
    user_message,
)

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC")
WAV = base64.b64decode("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQIAAACAgA==")
PAUSE = 0.05
"""Seconds between two notifications: the suite wants to see that they come one after the other."""

server = Server("conformance", version="1.0", instructions="Everything that the conformance suite asks for.")
server.skills(Path(__file__).with_name("skills"))


@server.tool
def test_simple_text() -> str:
    """Answer with a text."""
    return "This is a simple text response for testing."


@server.tool
def test_image_content() -> Any:
    """Answer with a picture."""
    return image(PNG, "image/png")


@server.tool
def test_audio_content() -> Any:
    """Answer with a sound."""
    return audio(WAV, "audio/wav")


@server.tool
def test_embedded_resource() -> Any:
    """Answer with a resource in the result."""
    resource = text_resource(
        "test://embedded-resource", "This is an embedded resource content.", mime_type="text/plain"
    )
    return embedded(resource)


@server.tool
def test_multiple_content_types() -> Any:
    """Answer with a text, a picture and a resource."""
    data = json.dumps({"test": "data", "value": 123})
    resource = text_resource("test://mixed-content-resource", data, mime_type="application/json")
    return [text("Multiple content types test:"), image(PNG, "image/png"), embedded(resource)]


@server.tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Log three messages while it works."""
    for what in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.info(what)
        await asyncio.sleep(PAUSE)
    return "Tool with logging executed successfully"


@server.tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Report progress three times while it works."""
    for done in (0, 50, 100):
        await ctx.progress(done, 100, f"Completed step {done} of 100")
        await asyncio.sleep(PAUSE)
    return "Tool with progress executed successfully"


@server.tool
def test_error_handling() -> str:
    """Fail."""
    raise ToolError("This tool intentionally returns an error for testing")


@server.tool
async def test_sampling(prompt: str, ctx: Context) -> str:
    """Have the client's model answer a prompt."""
    said: Sampled = await ctx.sample(prompt, max_tokens=100)
    return f"LLM response: {said.text}"


@dataclass
class Person:
    """Who is asked for."""

    username: Annotated[str, Meta(description="User's response")]
    email: Annotated[str, Meta(description="User's email address")]


@server.tool
async def test_elicitation(message: str, ctx: Context) -> str:
    """Ask the user for a name and an address."""
    match await ctx.elicit(message, Person):
        case Accepted(person):
            content = json.dumps({"username": person.username, "email": person.email})
            return f"User response: action=accept, content={content}"
        case other:
            return f"User response: action={other.action}, content={{}}"


@dataclass
class Profile:
    """A field of each primitive kind, each with a default."""

    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


@server.tool
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Ask the user with a form in which everything has a default."""
    match await ctx.elicit("Please review and update the form fields with defaults", Profile):
        case Accepted(profile):
            return f"Elicitation completed: action=accept, content={profile}"
        case other:
            return f"Elicitation completed: action={other.action}, content={{}}"


def _titled(*titles: str) -> list[dict[str, str]]:
    return [{"const": f"value{number}", "title": title} for number, title in enumerate(titles, 1)]


OPTIONS = ["option1", "option2", "option3"]
CHOICES: dict[str, Any] = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": OPTIONS},
        "titledSingle": {"type": "string", "oneOf": _titled("First Option", "Second Option", "Third Option")},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
        "titledMulti": {"type": "array", "items": {"anyOf": _titled("First Choice", "Second Choice", "Third Choice")}},
    },
    "required": [],
}
"""Every way to write a choice; one of them is deprecated, so it takes a schema by hand."""


@server.tool
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Ask the user with a form of choices."""
    match await ctx.elicit("Please select options from the enum fields", CHOICES):
        case Accepted(content):
            return f"Elicitation completed: action=accept, content={json.dumps(content)}"
        case other:
            return f"Elicitation completed: action={other.action}, content={{}}"


@server.tool
async def test_reconnection(ctx: Context) -> str:
    """Close the stream of this call in its middle; the client has to come back for the answer."""
    await ctx.info("Before disconnect")
    ctx.interrupt_stream(retry=0.1)
    await asyncio.sleep(0.2)
    await ctx.info("After reconnect")
    return "Reconnection test completed"


SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


@server.tool(input_schema=SCHEMA, validate_input=True)
def json_schema_2020_12_tool(arguments: dict[str, Any]) -> str:
    """Take arguments by a schema that says all that JSON Schema 2020-12 can say."""
    return f"JSON Schema 2020-12 tool called with: {json.dumps(arguments)}"


# --- revision 2026-07-28: a question ends the HTTP request, and the answers come with the next one


@dataclass
class Named:
    """A form with a name."""

    name: str


@dataclass
class Coloured:
    """A form with a colour."""

    color: str


@dataclass
class Confirmed:
    """A form with a consent."""

    ok: bool


@dataclass
class Consent:
    """A form with a consent."""

    confirm: bool


@dataclass
class Signed:
    """A form with a name and a consent."""

    name: str
    confirm: bool


@dataclass
class Framed:
    """A form with a context."""

    context: str


@server.tool
async def test_streaming_elicitation(ctx: Context) -> str:
    """Report progress, then ask the user for a name."""
    await ctx.progress(50, 100)
    return f"Streaming complete: {await ctx.elicit('What is your name?', Named)}"


@server.tool
async def test_logging_tool(ctx: Context) -> str:
    """Log a message, for a request that asks for messages."""
    await ctx.info("Diagnostic message")
    return "Logging evaluated"


@server.tool
async def test_missing_capability(ctx: Context) -> str:
    """Need a model of the client's."""
    return (await ctx.sample("Say anything", max_tokens=10)).text


@server.tool
async def test_trigger_tool_change() -> str:
    """Change the list of tools, and change it back."""
    server.registry.register_tool("test_passing_tool", test_simple_text)
    server.registry.unregister_tool("test_passing_tool")
    return "Mutation triggered"


@server.tool
async def test_trigger_prompt_change() -> str:
    """Change the list of prompts, and change it back."""
    server.registry.register_prompt("test_passing_prompt", test_simple_prompt)
    server.registry.unregister_prompt("test_passing_prompt")
    return "Mutation triggered"


@server.tool
def test_mirrored_header(region: Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Region"})]) -> str:
    """Take an argument that HTTP clients repeat in a header."""
    return f"Region: {region}"


@server.tool
async def test_input_required_result_elicitation(ctx: Context) -> str:
    """Greet the user by the name that they give. The suite wants this name for the question."""
    match await ctx.elicit("What is your name?", Named, key="user_name"):
        case Accepted(named):
            return f"Hello, {named.name}!"
        case other:
            return f"Hello anyway: {other.action}"


@server.tool
async def test_input_required_result_sampling(ctx: Context) -> str:
    """Ask the client's model for a capital."""
    return (await ctx.sample("What is the capital of France?", max_tokens=100)).text


@server.tool
async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Name the client's roots."""
    return ", ".join(root.uri for root in await ctx.roots())


@server.tool
async def test_input_required_result_request_state(ctx: Context) -> str:
    """Ask for a consent; what waits for it is named by the request's state."""
    return f"state-ok: {await ctx.elicit('Please confirm', Confirmed)}"


@server.tool
async def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Ask for a consent, with a state that clients cannot change."""
    return f"state-ok: {await ctx.elicit('Please confirm', Confirmed)}"


@server.tool
async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Ask for three things at once."""
    async with asyncio.TaskGroup() as group:
        name = group.create_task(ctx.elicit("What is your name?", Named))
        greeting = group.create_task(ctx.sample("Generate a greeting", max_tokens=50))
        roots = group.create_task(ctx.roots())
    return f"{greeting.result().text} {name.result()} {len(roots.result())}"


@server.tool
async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Ask for a name, then for a colour."""
    name = await ctx.elicit("Step 1: What is your name?", Named)
    colour = await ctx.elicit("Step 2: What is your favorite color?", Coloured)
    return f"{name} {colour}"


@server.tool
async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Ask for all that this client can answer, and for nothing else."""
    said: list[str] = []
    if "elicitation" in ctx.client_capabilities:
        said.append(str(await ctx.elicit("What is your name?", Named)))
    if "sampling" in ctx.client_capabilities:
        said.append((await ctx.sample("Generate a greeting", max_tokens=50)).text)
    return " ".join(said)


# --- tasks, which are an extension of revision 2026-07-28


@server.tool
def greet(name: str) -> str:
    """Greet by name."""
    return f"Hello, {name}!"


@server.tool(task_support="optional")
async def slow_compute(seconds: float, label: str = "") -> str:
    """Take so many seconds."""
    await asyncio.sleep(seconds)
    return f"Computed {label} in {seconds} s"


@server.tool(task_support="required")
async def failing_job() -> str:
    """Fail after a while."""
    await asyncio.sleep(1)
    raise ToolError("This job fails")


@server.tool(task_support="optional")
async def protocol_error_job() -> str:
    """End with an error of the protocol."""
    raise McpError(ErrorCode.INTERNAL_ERROR, "This job ends with an error of the protocol")


@server.tool(task_support="optional")
async def confirm_delete(filename: str, ctx: Context) -> str:
    """Ask for a consent, as a task."""
    return f"{filename}: {await ctx.elicit('Delete it?', Consent)}"


@server.tool(task_support="optional")
async def multi_input(ctx: Context) -> str:
    """Ask for two things at once, as a task."""
    async with asyncio.TaskGroup() as group:
        first = group.create_task(ctx.elicit("Who is the first?", Signed))
        second = group.create_task(ctx.elicit("Who is the second?", Signed))
    return f"{first.result()} {second.result()}"


@server.tool(task_support="required", defer_task=True)
async def test_tool_with_task(ctx: Context) -> str:
    """Ask on the call, and become a task with the answer."""
    name = await ctx.elicit("What is your name?", Named)
    await ctx.start_task()
    return f"Done for {name}"


@server.resource("test://static-text", "static-text", mime_type="text/plain")
def static_text() -> str:
    """A text that stays as it is."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", "static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """A picture that stays as it is."""
    return PNG


@server.resource("test://watched-resource", "watched-resource", mime_type="text/plain")
def watched_resource() -> str:
    """A text to subscribe to."""
    return "Watched resource content"


@server.resource("test://template/{id}/data", "template", mime_type="application/json")
def template(id: str) -> str:  # the suite's own name for the variable
    """Data of an id."""
    return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


@server.prompt
def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@server.prompt
def test_prompt_with_arguments(
    arg1: Annotated[str, Meta(description="First test argument")],
    arg2: Annotated[str, Meta(description="Second test argument")],
) -> str:
    """A prompt with two arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.prompt
def test_prompt_with_embedded_resource(
    resourceUri: Annotated[str, Meta(description="URI of the resource to embed")],  # noqa: N803 - the suite's name for it
) -> list[Message]:
    """A prompt with a resource in it."""
    resource = text_resource(resourceUri, "Embedded resource content for testing.", mime_type="text/plain")
    return [user_message(embedded(resource)), user_message("Please process the embedded resource above.")]


@server.prompt
def test_prompt_with_image() -> list[Message]:
    """A prompt with a picture in it."""
    return [user_message(image(PNG, "image/png")), user_message("Please analyze the image above.")]


@server.prompt
async def test_input_required_result_prompt(ctx: Context) -> str:
    """A prompt that asks the user for its context."""
    match await ctx.elicit("What context should the prompt use?", Framed):
        case Accepted(framed):
            return f"Context: {framed.context}"
        case other:
            return f"No context: {other.action}"


@server.completion("arg1", prompt="test_prompt_with_arguments")
def complete_argument(begun: str) -> list[str]:
    """What the first argument may be."""
    return [word for word in ("paris", "park", "party") if word.startswith(begun)]


if __name__ == "__main__":
    # the suite counts a check of streams that it only makes when they come, and it says that it likes them best
    server.run("http", port=int(sys.argv[1]), config=HttpConfig(honour_accept_order=True))
