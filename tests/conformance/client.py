"""The client that the official suite judges: `client.py URL`, on the public interface alone.

The suite names the scenario in the environment. The client connects, in the era that the server speaks, does what the scenario is about, and exits
with 0.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

# All scenarios start at once, and one of them measures time: the others wait while they load.
if os.environ.get("MCP_CONFORMANCE_SCENARIO", "").startswith("auth/"):
    os.nice(10)

from greenroom import (
    Client,
    ElicitationRequest,
    GreenroomError,
    SamplingRequest,
    SkillReader,
    SkillRefused,
    Unauthorized,
)
from greenroom.auth import ClientCredentials, EnterpriseManaged, OAuth, SignInError, signing_key

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from greenroom import Tool
    from greenroom.auth import SignIn

DOCUMENT = "https://conformance-test.local/client-metadata.json"
GIVEN: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
"""What the suite says of the scenario: credentials, or the calls to make."""


async def initialize(client: Client) -> None:
    """Make the handshake, and list what the server has: nothing."""
    if "tools" in client.server_capabilities:
        await client.list_tools()


async def listed(client: Client) -> None:
    """List the tools, and nothing else."""
    print([tool.name for tool in await client.list_tools()])


async def tools_call(client: Client) -> None:
    """List the tools, and add two numbers."""
    [tool] = [tool for tool in await client.list_tools() if tool.name == "add_numbers"]
    print(await client.call(tool.name, a=5, b=3))


async def defaults(client: Client) -> None:
    """Let the server ask, and accept its defaults."""
    for tool in await client.list_tools():
        print((await client.call_tool(tool.name)).text)


async def sse_retry(client: Client) -> None:
    """Call the tool whose stream is cut: its reply comes on the next one."""
    for tool in await client.list_tools():
        print((await client.call_tool(tool.name)).text)


async def preserve(client: Client) -> None:
    """Send one tool's schema back unchanged through the other."""
    [focal] = [tool for tool in await client.list_tools() if tool.name == "json_schema_2020_12_tool"]
    await client.call("json_schema_echo", schema=focal.input_schema)


async def asked_again(client: Client) -> None:
    """Ask once more who the server is."""
    await client.ping()


async def rounds(client: Client) -> None:
    """Call all tools at once: some of them ask the user, and one that does not is called between their rounds."""
    tools = await client.list_tools()
    for reply in await asyncio.gather(*(client.call_tool(tool.name) for tool in tools)):
        print(reply.text)


async def headers(client: Client) -> None:
    """Call, read and get everything that is listed."""
    for tool in await client.list_tools():
        print((await client.call_tool(tool.name, _least(tool))).text)
    if "resources" in client.server_capabilities:
        for resource in await client.list_resources():
            await client.read_resource(resource.uri)
    if "prompts" in client.server_capabilities:
        for prompt in await client.list_prompts():
            await client.get_prompt(prompt.name)


def _least(tool: Tool) -> dict[str, str]:
    """A text for each argument that the tool requires."""
    return dict.fromkeys(tool.input_schema.get("required", ()), "us-west1")


async def given_calls(client: Client) -> None:
    """List the tools, and make the calls that the suite wants."""
    await client.list_tools()
    for call in GIVEN["toolCalls"]:
        print((await client.call_tool(call["name"], call["arguments"])).text)


async def skills_listed(client: Client) -> None:
    """List the skills, and get each one's entry: no file is read."""
    reader = SkillReader(client, "judge")
    for entry in await reader.list():
        print(entry)


async def skills_used(client: Client) -> None:
    """Load each skill, and read its files, unless it is not the one that was listed."""
    reader = SkillReader(client, "judge")
    for entry in await reader.list():
        try:
            skill = await reader.load(entry)
            for uri in entry.files or ():
                await skill.read(uri)
        except SkillRefused as refused:
            print(refused)


async def use(client: Client) -> None:
    """Use everything the server has, as a signed-in user."""
    for tool in await client.list_tools():
        await client.call_tool(tool.name)


class Stay(urllib.request.HTTPRedirectHandler):
    """A browser that follows no redirect."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> None:
        """Stop at the redirect, which is the result."""


async def browse(url: str, /) -> str | None:
    """A user who agrees to everything at once, and is redirected."""

    def visit() -> str | None:
        try:
            urllib.request.build_opener(Stay, urllib.request.ProxyHandler({})).open(url, timeout=10).close()
        except urllib.error.HTTPError as answer:
            with answer:
                return answer.headers["Location"]
        return None

    return await asyncio.to_thread(visit) or ""


def sign_in(scenario: str, given: dict[str, Any]) -> SignIn | None:
    """The login of this scenario."""
    match scenario.removeprefix("auth/"):
        case "client-credentials-basic":
            return ClientCredentials(client_id=given["client_id"], client_secret=given["client_secret"])
        case "client-credentials-jwt":
            key = signing_key(given["private_key_pem"])
            return ClientCredentials(client_id=given["client_id"], key=key, algorithm=given["signing_algorithm"])
        case "wif-jwt-bearer":
            return ClientCredentials(client_id=given["client_id"], workload_token=given["valid_jwt"])
        case "enterprise-managed-authorization" | "cross-app-access-complete-flow":
            return EnterpriseManaged(
                client_id=given["client_id"],
                client_secret=given["client_secret"],
                idp_client_id=given["idp_client_id"],
                idp_token_endpoint=given["idp_token_endpoint"],
                subject_token=given["idp_id_token"],
            )
        case "pre-registration":
            return OAuth(
                client_id=given["client_id"],
                client_secret=given["client_secret"],
                issuer=given.get("issuer"),
                browser=browse,
            )
        case other if other != scenario:
            return OAuth(client_metadata_url=DOCUMENT, browser=browse)
        case _:
            return None


# What a client has to refuse, and where it has to stop.
REFUSED = {
    "auth/resource-mismatch": "discovery",
    "auth/metadata-issuer-mismatch": "discovery",
    "auth/iss-supported-missing": "authorization",
    "auth/iss-wrong-issuer": "authorization",
    "auth/iss-unexpected": "authorization",
    "auth/iss-normalized": "authorization",
}


SCENARIOS: dict[str, Callable[[Client], Awaitable[None]]] = {
    "initialize": initialize,
    "tools_call": tools_call,
    "elicitation-sep1034-client-defaults": defaults,
    "json-schema-2020-12-preservation": preserve,
    "json-schema-ref-no-deref": listed,
    "request-metadata": asked_again,
    "sep-2322-client-request-state": rounds,
    "http-standard-headers": headers,
    "http-invalid-tool-headers": headers,
    "http-custom-headers": given_calls,
    "sep-2640-client-no-prefetch": skills_listed,
    **{f"sep-2640-client-verify-{part}": skills_used for part in ("digest", "frontmatter", "size")},
    "sse-retry": sse_retry,
}


async def agree(request: ElicitationRequest) -> Any:
    """A user who submits the form unchanged."""
    return request.accept()


async def parrot(request: SamplingRequest) -> str:
    """A model that returns its prompt."""
    return request.text


async def main(url: str, scenario: str) -> None:
    """Run one scenario."""
    play = SCENARIOS.get(scenario, use)
    try:
        async with Client(
            url,
            auth=sign_in(scenario, GIVEN),
            sampling=parrot,
            elicitation=agree,
            roots=[Path.cwd()],
            client_info={"name": "conformance", "version": "1.0"},
        ) as client:
            await play(client)
    except GreenroomError as error:
        print(f"{type(error).__name__}: {error}")
        failed = error if isinstance(error, SignInError) else getattr(error, "cause", None)
        if scenario == "auth/scope-retry-limit" and isinstance(failed, Unauthorized):
            return  # more scopes were granted once, and asked for again
        if not isinstance(failed, SignInError) or failed.step != REFUSED.get(scenario):
            raise


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG)
    wanted = os.environ["MCP_CONFORMANCE_SCENARIO"]
    if wanted not in SCENARIOS and not wanted.startswith("auth/"):
        sys.exit(f"{wanted} is not played here")
    asyncio.run(main(sys.argv[-1], wanted))
