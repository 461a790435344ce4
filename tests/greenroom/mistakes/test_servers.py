"""Typical mistakes of server authors: each message says what was wrong, and what to write."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from greenroom import (
    Client,
    ClientSettings,
    Command,
    Context,
    Hooks,
    Host,
    HttpConfig,
    Pool,
    Server,
    Settings,
    ToolFailed,
)
from greenroom.auth import BearerAuth
from greenroom.errors import GreenroomError
from greenroom.protocol.errors import LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

build: Any = Server
serve: Any = HttpConfig
setting: Any = Settings
hook: Any = Hooks
client_setting: Any = ClientSettings
pool: Any = Pool
host: Any = Host
client: Any = Client
command: Any = Command
"""A server, made without a type checker's help."""


class Mistake(NamedTuple):
    """The mistaken code, and two parts of its message: the error, and the remedy."""

    made: Callable[[], object]
    wrong: str
    right: str


def wrapping(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **more: Any) -> Any:
        return function(*args, **more)

    return wrapper


def server() -> Any:
    return Server("x")


def fine() -> str:
    return "fine"


def one(a: str) -> str:
    return a


def generator() -> Iterator[int]:
    yield 1


def many(*names: str) -> None: ...


def keywords(**names: str) -> None: ...


def by_place(a: int, /) -> None: ...


def of_nothing(a: Undefined) -> None: ...  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore[reportUndefinedVariable]


def imaginary(a: complex) -> None: ...


def gives_imaginary() -> complex:
    return 1j


def wrong_default(a: int = "3") -> None: ...  # type: ignore[assignment]  # pyright: ignore[reportArgumentType]


def two_contexts(a: Context, b: Context) -> None: ...


def described(a: Any) -> None: ...


described.__annotations__["a"] = "what it is"


def not_async(method: str, ctx: object, proceed: object) -> None: ...


async def two_of_three(ctx: object, proceed: object) -> None: ...


async def wants_the_server(server: object) -> AsyncIterator[None]:
    yield


def in_a_class() -> None:
    made = server()

    class Bell:  # pyright: ignore[reportUnusedClass] - its body is what goes wrong
        @made.tool  # type: ignore[untyped-decorator]
        def ring(self) -> None: ...


def twice() -> None:
    made = server()
    made.tool("a")(fine)
    made.tool("a")(one)


def two_at_one_uri() -> None:
    made = server()
    made.resource("a://b", name="first")(fine)
    made.resource("a://b", name="second")(fine)


def inside() -> Callable[[], str]:
    def found_nowhere() -> str:
        return "x"

    return found_nowhere


def run_in_a_loop() -> None:
    async def main() -> None:
        server().run()

    asyncio.run(main())


def listen_too_early() -> None:
    asyncio.run(server().listen(port=0))


REGISTERING = {
    "a number as a tool": Mistake(lambda: server().tool(3), "3 is neither a function nor a name", r"@server\.tool"),
    "a number as a function": Mistake(lambda: server().tool("a")(3), "3 cannot be called", "give a function"),
    "a class as a tool": Mistake(lambda: server().tool(dict), "dict is a class", "give a function, or an instance"),
    "a generator": Mistake(lambda: server().tool(generator), "it is a generator", "return a list"),
    "a lambda without a name": Mistake(lambda: server().tool(lambda: 1), "has no name: give it one", r'server\.tool\("its_name"\)'),
    "a name with a blank": Mistake(lambda: server().tool("my tool")(fine), "'my tool': a tool's name is", r'@server\.tool\("my_tool"\)'),
    "a name with an umlaut": Mistake(lambda: server().tool("über")(fine), "a tool's name is", r'@server\.tool\("uber"\)'),
    "a name that is taken": Mistake(twice, "there is a tool 'a' already", r"server\.registry\.register_tool\('a', …\)"),
    "replace in a decorator": Mistake(lambda: server().tool(replace=True)(fine), "no option 'replace'", r"server\.registry"),
    "a misspelt option": Mistake(lambda: server().tool(titel="a")(fine), "no option 'titel'", "did you mean title"),
    "tags": Mistake(lambda: server().tool(tags={"a"})(fine), "no option 'tags'", "meta="),
    "a method in a class": Mistake(in_a_class, "it is a method of Bell", r"derive Bell from McpServer, or .*Bell\(\)\.ring"),
    "options as a dict": Mistake(
        lambda: server().registry.register_tool("a", fine, {"title": "x"}), "not {'title': 'x'}", r"options must be ToolOptions\("
    ),
    "a wrapper without wraps": Mistake(lambda: server().tool("a")(wrapping(one)), "its parameters are hidden", r"@functools\.wraps\(function\)"),
    "*args": Mistake(lambda: server().tool(many), r"\*names has no names", "take a list"),
    "**kwargs": Mistake(lambda: server().tool(keywords), r"\*\*names has no schema", "name the parameters"),
    "positional only": Mistake(lambda: server().tool(by_place), "a is positional-only", "remove the `/`"),
    "a hint for checkers only": Mistake(lambda: server().tool(of_nothing), "the hint of a uses 'Undefined'", "import it outside of"),
    "a description for a hint": Mistake(lambda: server().tool(described), "is no type .*what it is", r"Annotated\[str"),
    "a type without JSON": Mistake(lambda: server().tool(imaginary), "a has no schema.*complex", "take its parts"),
    "a result without JSON": Mistake(lambda: server().tool(gives_imaginary), "its return hint: .*complex", "take its parts"),
    "a default that does not fit": Mistake(lambda: server().tool(wrong_default), "the default of a, '3'", "change one of them"),
    "two contexts": Mistake(lambda: server().tool(two_contexts), "a and b are both annotated with Context", "one for each call"),
    "a timeout as a text": Mistake(lambda: server().tool(timeout="30")(fine), "not '30'", "timeout is more than 0 seconds"),
    "isolation by a wrong word": Mistake(lambda: server().tool(isolation="processes")(fine), "not 'processes'", '"process"'),
    "no threads": Mistake(lambda: server().tool(threads=0)(fine), "not 0", "threads is 1 or more"),
    "task_support as a flag": Mistake(lambda: server().tool(task_support=True)(fine), "not True", "one of forbidden, optional, required"),
    "validate_input as a text": Mistake(lambda: server().tool(validate_input="yes")(fine), "not 'yes'", "validate_input must be True or False"),
    "scopes as a text": Mistake(lambda: server().tool(scopes="admin")(fine), "not 'admin'", "scopes is a list"),
    "icons as a text": Mistake(lambda: server().tool(icons="a.png")(fine), "not 'a.png'", r"a list of Icon\("),
    "a hint that is no flag": Mistake(
        lambda: server().tool(annotations={"readOnlyHint": "yes"})(fine), '"annotations.readOnlyHint"', "must be a boolean"
    ),
    "a schema of a wrong type": Mistake(
        lambda: server().tool(input_schema={"type": "object", "properties": {"a": {"type": "strin"}}})(fine),
        r'properties\.a\.type.*got "strin"', "expected one of array, boolean"
    ),
    "a schema that is no object": Mistake(
        lambda: server().tool(input_schema={"type": "array"})(fine), "has 'array'", 'must have the type "object"'
    ),
    "a lambda in a process": Mistake(
        lambda: server().tool("a", isolation="process")(lambda: 1), "a lambda has no name by which", "at the top of a module"
    ),
    "a local function in a process": Mistake(
        lambda: server().tool(isolation="process")(inside()), "is made inside of inside", "at the top of a module"
    ),
    "a pool of a text": Mistake(lambda: Pool(size="2"), "not '2'", "size must be a whole number"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    "a resource without parentheses": Mistake(lambda: server().resource(fine), "needs a URI", r'@server\.resource\("config://app"\)'),
    "a resource at no URI": Mistake(lambda: server().resource("config")(fine), "'config' is not a URI", "with a scheme, like config://app"),
    "a resource with arguments": Mistake(lambda: server().resource("a://b")(one), "its function needs a", "make it a template"),
    "two resources at one URI": Mistake(two_at_one_uri, "'first' is at a://b already", "give 'second' a URI of its own"),
    "a template without its variable": Mistake(
        lambda: server().resource("a://{b}")(one), r"needs a, which a://\{b\} does not have", "put it into the template"
    ),
    "a template with more variables": Mistake(
        lambda: server().resource("a://{a}/{b}")(one), "does not take b", "add the parameter"
    ),
    "a template that is not closed": Mistake(lambda: server().resource("a://{a")(one), "the '{' at 4", "is never closed"),
    "a template with a query": Mistake(lambda: server().resource("a://x{?a}")(one), r"\{\?a\} is not supported", r"there are \{name\}"),
    "a size of a template": Mistake(lambda: server().resource("a://{a}", size=3)(one), "size is not an option here", "is a template"),
    "a number as a prompt": Mistake(lambda: server().prompt(3), "3 is neither a function nor a name", r"@server\.prompt"),
    "arguments that a prompt does not take": Mistake(lambda: server().prompt(arguments=["x"])(one), "differ in x, a", "its arguments and its function's"),
    "a completion of nothing": Mistake(lambda: server().completion("a"), "the completion of 'a'", "give either prompt=…"),
    "a completion without parentheses": Mistake(lambda: server().completion(one), "is no argument's name", r'@server\.completion\("city"'),
    "a lifespan with an argument": Mistake(lambda: server().lifespan(wants_the_server), "requires server", "called without arguments"),
    "a lifespan that does not wait": Mistake(lambda: server().lifespan(generator), "the lifespan generator", "`async def` with one `yield`"),
}  # fmt: skip

SETTING_UP = {
    "a number for a name": Mistake(lambda: build(3), "not 3", r'Server\("weather"\)'),
    "a port at the server": Mistake(lambda: build("x", port=8000), "no option 'port'", r'server\.run\("http", port=…\)'),
    "a lifespan at the server": Mistake(lambda: build("x", lifespan=fine), "no option 'lifespan'", r"@server\.lifespan"),
    "a setting at the server": Mistake(lambda: build("x", page_size=3), "no option 'page_size'", r"settings=Settings\(page_size=…\)"),
    "a misspelt option": Mistake(lambda: build("x", instruction="a"), "no option 'instruction'", "did you mean instructions"),
    "settings as a dict": Mistake(lambda: build("x", settings={}), "not {}", r"settings must be Settings\("),
    "a version as a number": Mistake(lambda: build("x", version=1.0), "not 1.0", "version must be a text"),
    "seconds as a text": Mistake(lambda: setting(call_timeout="30"), "not '30'", "call_timeout must be a number of seconds"),
    "a count of none": Mistake(lambda: setting(max_in_flight=0), "not 0", "max_in_flight must be a whole number, 1 or more"),
    "a log level of Python's": Mistake(lambda: setting(log_level="warn"), "not 'warn'", "warning"),
    "hooks as a list": Mistake(lambda: build("x", hooks=[1]), r"not \[1\]", r"hooks must be Hooks\("),
    "a plain function around": Mistake(lambda: hook(around=not_async), "around must be", "`async def`"),
    "too few parameters around": Mistake(lambda: hook(around=two_of_three), "not <function two_of_three", r"method, ctx, proceed"),
    "an init that is no function": Mistake(lambda: hook(init={}), "not {}", "init must be a function of 1"),
    "auth as a text": Mistake(lambda: build("x", auth="hunter2"), "not a str", r"auth must be BearerAuth\("),
    "auth as a class": Mistake(lambda: build("x", auth=BearerAuth), "not the class BearerAuth", r"BearerAuth\("),
    "scopes without auth": Mistake(lambda: build("x", required_scopes=["a"]), "required_scopes need auth", "how callers authenticate"),
    "scopes as a text": Mistake(lambda: build("x", required_scopes="a"), "not a text", r"\['a'\]"),
    "a store as a text": Mistake(lambda: build("x", task_store="tasks.db"), "not 'tasks.db'", r'SqliteTasks\("tasks\.db"\)'),
    "a server mounted": Mistake(lambda: server().mount(Server("other")), "is a server", r"server\.mount\(Host\(\{'other': the_server\}\)\)"),
    "a URL mounted": Mistake(lambda: server().mount("https://x"), "not 'https://x'", r"server\.mount\(Host\("),
    "a host of numbers": Mistake(lambda: Host({"a": 3}), "not 3", r"a URL, a Command\("),  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
}  # fmt: skip

MISSPELT: dict[str, Mistake] = {
    "Settings": Mistake(lambda: setting(calltimeout=3), "Settings has no option 'calltimeout'", "did you mean call_timeout"),
    "Settings of a client": Mistake(lambda: setting(timeout=3), "no option 'timeout'", "write call_timeout="),
    "HttpConfig": Mistake(lambda: serve(hst="::1"), "HttpConfig has no option 'hst'", "did you mean host"),
    "ClientSettings": Mistake(lambda: client_setting(timeout=3), "ClientSettings has no option 'timeout'", "write request_timeout="),
    "Hooks": Mistake(lambda: hook(initialize=print), "Hooks has no option 'initialize'", "it has init, roots_changed"),
    "Pool": Mistake(lambda: pool(memry=1), "Pool has no option 'memry'", "did you mean memory"),
    "run": Mistake(lambda: server().run("http", prt=8), r"server\.run\(\) has no option 'prt'", "did you mean port"),
    "Host": Mistake(lambda: host(permissions=[]), "a host has no option 'permissions'", r"consent=Consent\(Permissions"),
    "Host mode": Mistake(lambda: host(mode="legacy"), "a host has no option 'mode'", r"settings=ClientSettings\(mode="),
    "Client, a setting": Mistake(lambda: client(server(), max_rounds=3), "a client has no option 'max_rounds'", r"settings=ClientSettings\(max_rounds="),
    "Client, the old name": Mistake(lambda: client(server(), protocol_version="2025-06-18"), "a client has no option 'protocol_version'", "write mode="),
    "Host, verdicts": Mistake(lambda: host(verdicts="eras.json"), "not 'eras.json'", r"EraVerdictFile\(\)"),
    "Host, misspelt": Mistake(lambda: host(patiense=1.0), "a host has no option 'patiense'", "did you mean patience"),
    "Client": Mistake(lambda: client(server(), timout=1.0), "a client has no option 'timout'", "did you mean timeout"),
    "Command": Mistake(lambda: command("python", envv={}), "Command has no option 'envv'", "did you mean env"),
    "Command, of a list": Mistake(lambda: command(["python", "x.py"]), "arguments of their own", r"Command\(\*\['python', 'x.py'\]\)"),
    "notify_list_changed": Mistake(lambda: server().notify_list_changed("resourcess"), "not 'resourcess'", "one of tool, resource"),
    "call_tool": Mistake(lambda: client(server()).call_tool("add", aa=1), "has no option 'aa'", r"call_tool\(name, {'aa': …}\), or call\(name, aa=…\)"),
    "call_tool, misspelt": Mistake(lambda: host().call_tool("a:add", tiemout=1), "no option 'tiemout'", "did you mean timeout"),
}  # fmt: skip

SERVING = {
    "a port as a text": Mistake(lambda: serve(port="8000"), "not '8000'", r"write int\('8000'\)"),
    "a port that there is not": Mistake(lambda: serve(port=80000), "not 80000", "between 0 and 65535"),
    "a host as a number": Mistake(lambda: serve(host=127), "not 127", "host must be a text"),
    "public without origins": Mistake(lambda: serve(host="0.0.0.0"), "can be reached from other machines", "allowed_origins="),
    "origins as a text": Mistake(lambda: serve(allowed_origins="https://a.b"), "not 'https://a.b'", "must be a list, or 'any'"),
    "a star for origins": Mistake(lambda: serve(allowed_origins=["*"]), r"has '\*'", "'any' alone"),
    "an origin without a scheme": Mistake(lambda: serve(allowed_origins=["a.b"]), "has 'a.b'", r"scheme://host"),
    "a path without a slash": Mistake(lambda: serve(path="mcp"), "not 'mcp'", "begin with a slash"),
    "bytes as a text": Mistake(lambda: serve(max_body="4MB"), "not '4MB'", "max_body must be a whole number"),
    "a flag as a text": Mistake(lambda: serve(http2="yes"), "not 'yes'", "http2 must be True or False"),
    "a key without a certificate": Mistake(lambda: serve(keyfile="a.pem"), "keyfile needs a certfile", "there is no TLS"),
    "a certificate that is not there": Mistake(
        lambda: server().run("http", port=0, config=HttpConfig(certfile="/nope.pem")), "certfile /nope.pem", "there is no such file"
    ),
    "a transport of another name": Mistake(lambda: server().run("sse"), "not 'sse'", r'"stdio" or "http".*old_sse'),
    "a port as the transport": Mistake(lambda: server().run(8000), "not 8000", r'server\.run\("http", port=8000\)'),
    "a port on stdio": Mistake(lambda: server().run(port=8000), 'port is for "http"', r'server\.run\("http", port=…\)'),
    "a port as a text in run": Mistake(lambda: server().run("http", port="8000"), "not '8000'", "whole number"),
    "a config as a dict": Mistake(lambda: server().run("http", config={}), "not {}", r"config must be HttpConfig\("),
    "workers on stdio": Mistake(lambda: server().run(workers=2), 'workers are for "http"', "stdio has one peer and one process"),
    "workers as a text": Mistake(lambda: server().run("http", workers="2"), "not '2'", "workers must be a whole number"),
    "workers without a name": Mistake(lambda: server().run("http", workers=2), "workers cannot find this server", r"server = Server\("),
    "a grace as a text": Mistake(lambda: server().run("http", port=0, grace="5"), "not '5'", "grace must be a number of seconds"),
    "run in a loop": Mistake(run_in_a_loop, "this code runs in one", r"async with server\.started\(\)"),
    "listening before it runs": Mistake(listen_too_early, "for a server that runs", r"async with server\.started\(\)"),
    "a transport for a supervisor": Mistake(lambda: server().child_spec("https"), "not 'https'", '"stdio" or "http"'),
}  # fmt: skip


def _table() -> list[Any]:
    tables = {"registering": REGISTERING, "setting up": SETTING_UP, "serving": SERVING, "misspelling": MISSPELT}
    return [pytest.param(each, id=f"{table}: {name}") for table, of in tables.items() for name, each in of.items()]


@pytest.mark.filterwarnings("ignore:coroutine")
@pytest.mark.parametrize("mistake", _table())
def test_the_message_names_what_was_wrong_and_what_to_write(mistake: Mistake) -> None:
    with pytest.raises((GreenroomError, RuntimeError)) as caught:
        mistake.made()
    said = str(caught.value)
    assert not isinstance(caught.value, TypeError) or isinstance(caught.value, GreenroomError)
    for part in (mistake.wrong, mistake.right):
        assert caught.match(part), f"{part!r} is not in {said!r}"
    assert "hunter2" not in said


async def test_a_mistake_at_a_call_is_told_as_well() -> None:
    made = Server("x")

    @made.tool
    async def forgetful(ctx: Context) -> str:
        return str(ctx.elicit("Really?", bool))

    @made.tool
    def promised() -> int:
        return "three"  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

    async with Client(made) as client:
        start: Any = client.start_tool
        with pytest.raises(ToolFailed, match=r"ctx\.elicit\(\) was not awaited: write `answer = await"):
            await client.call("forgetful")
        with pytest.raises(ToolFailed, match='schema: result: expected an integer, got "three"'):
            await client.call("promised")
        with pytest.raises(LocalProtocolError, match=r"progress must be True or False.*on_progress"):
            start("promised", progress=print)
