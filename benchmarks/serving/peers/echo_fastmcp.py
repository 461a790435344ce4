"""The two echo tools on FastMCP: with default settings, or with plain JSON answers and no access log, with or without sessions; or over stdio."""

import sys

from fastmcp import FastMCP

server = FastMCP("echo")


@server.tool
async def echo(text: str) -> str:
    """Runs in the loop."""
    return text


@server.tool
def echo_def(text: str) -> str:
    """Runs in a thread."""
    return text


if __name__ == "__main__":
    port, mode = int(sys.argv[1]), sys.argv[2]
    if mode == "shipped":
        server.run("http", port=port)
    elif mode == "stdio":
        server.run()
    else:
        import uvicorn

        application = server.http_app(json_response=True, stateless_http=mode == "stateless")
        uvicorn.run(application, port=port, log_level="warning", access_log=False)
