"""A tool whose results a host shows in a page: the document asks its host for them, and has a button that calls a tool.

Run it: `python examples/score_board.py`. It prints

    a host with apps shows scores in ui://scores/board
    a host without reads {"round":1,"scores":{"ann":3,"ben":2}}
    the button calls next_round, which models do not see
    the page now shows {'ann': 6, 'ben': 4}
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from greenroom import App, AppView, Client, Host, Server

BOARD = """<!doctype html>
<meta charset="utf-8">
<title>Scores</title>
<h1>Round <span id="round">…</span></h1>
<ul id="scores"></ul>
<button id="next">Next round</button>
<script type="module">
const waiting = new Map();
let last = 0;

function send(message) { window.parent.postMessage({ jsonrpc: "2.0", ...message }, "*"); }

function request(method, params) {
  const id = ++last;
  send({ id, method, params });
  return new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));
}

function show({ structuredContent }) {
  document.getElementById("round").textContent = structuredContent.round;
  document.getElementById("scores").replaceChildren(...Object.entries(structuredContent.scores).map(([name, points]) => {
    const line = document.createElement("li");
    line.textContent = `${name}: ${points}`;  // a text: a player's name is not HTML
    return line;
  }));
}

window.addEventListener("message", ({ source, data }) => {
  if (source !== window.parent) return;
  if (data.method === "ui/notifications/tool-result") return show(data.params);
  const { resolve, reject } = waiting.get(data.id) ?? {};
  if (!waiting.delete(data.id)) return;
  if (data.error) reject(data.error); else resolve(data.result);
});

document.getElementById("next").addEventListener("click", async () => {
  show(await request("tools/call", { name: "next_round", arguments: {} }));
});

await request("ui/initialize", {
  appCapabilities: {}, appInfo: { name: "scores", version: "1" }, protocolVersion: "2026-01-26",
});
send({ method: "ui/notifications/initialized" });
</script>
"""

server = Server("scores")
board = server.app("ui://scores/board", BOARD, title="Score board", view=AppView(prefers_border=True))
rounds = [1]


@dataclass
class Standing:
    """The scores of a round, by player."""

    round: int
    scores: dict[str, int]


def standing() -> Standing:
    """The scores of this round."""
    return Standing(rounds[-1], {"ann": 3 * rounds[-1], "ben": 2 * rounds[-1]})


@server.tool(app=board)
async def scores() -> Standing:
    """The scores of the game."""
    return standing()


@server.tool(app=App(board.uri, visibility=["app"]))
async def next_round() -> Standing:
    """Begin the next round. For the page's button."""
    rounds.append(rounds[-1] + 1)
    return standing()


async def main() -> None:
    """Use the server as hosts do."""
    async with Client(server) as client, Host({"game": server}) as host:
        (tool, button) = sorted(await client.list_tools(), key=lambda tool: tool.name, reverse=True)
        assert tool.meta is not None
        print(f"a host with apps shows {tool.name} in {tool.meta['ui']['resourceUri']}")
        print(f"a host without reads {(await client.call_tool(tool.name)).text}")
        seen = [each["name"] for each in await host.to_anthropic()]
        print(f"the button calls {button.name}, which models {'see' if len(seen) > 1 else 'do not see'}")
        print(f"the page now shows {(await client.call(button.name))['scores']}")


if __name__ == "__main__":
    asyncio.run(main())
