// Node's own HTTP/2: two thousand calls on one connection, fifty at a time, beside a stream that has to hear of each.
"use strict";

const http2 = require("node:http2");

const CALLS = 2000;
const AT_ONCE = 50;
const where = new URL(process.argv[2]);
const connection = http2.connect(where.origin);
const goodbyes = [];
connection.on("goaway", (code) => goodbyes.push(code));
connection.on("error", fail);

function fail(error) {
  console.log(`WRONG ${error}`);
  process.exit(1);
}

function ask(headers, body) {
  return new Promise((resolve, reject) => {
    const stream = connection.request({ ":path": where.pathname, accept: "application/json, text/event-stream", ...headers });
    let text = "";
    let head;
    stream.on("response", (found) => (head = found));
    stream.on("data", (data) => (text += data));
    stream.on("end", () => resolve({ head, text }));
    stream.on("error", reject);
    stream.end(body);
  });
}

const post = (headers, message) =>
  ask({ ":method": "POST", "content-type": "application/json", ...headers }, JSON.stringify({ jsonrpc: "2.0", ...message }));

async function main() {
  const hello = await post({}, {
    id: 0,
    method: "initialize",
    params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "node", version: "1" } },
  });
  const session = { "mcp-session-id": hello.head["mcp-session-id"], "mcp-protocol-version": "2025-11-25" };
  await post(session, { method: "notifications/initialized" });

  const heard = [];
  let beats = 0;
  const listening = connection.request({ ":path": where.pathname, accept: "text/event-stream", ...session });
  let rest = "";
  listening.on("data", (data) => {
    rest += data;
    const events = rest.split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const line = event.split("\n").find((each) => each.startsWith("data: {"));
      if (line) heard.push(JSON.parse(line.slice(6)).params.number);
      if (event.startsWith(":")) beats += 1;
    }
  });
  listening.on("close", () => fail("the stream that listens was ended"));
  await new Promise((resolve) => listening.on("response", resolve));

  const began = process.hrtime.bigint();
  let next = 0;
  async function caller() {
    while (next < CALLS) {
      const number = next++;
      const { head, text } = await post(session, { id: number + 1, method: "tools/call", params: { name: "tell_all", arguments: { number } } });
      const answer = text.startsWith("{") ? text : text.split("\n").filter((line) => line.startsWith("data: {")).pop().slice(6);
      const found = JSON.parse(answer);
      if (head[":status"] !== 200 || found.id !== number + 1 || found.result.content[0].text !== String(number)) fail(answer);
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, caller));
  const seconds = Number(process.hrtime.bigint() - began) / 1e9;

  while (new Set(heard).size < CALLS || beats < 2) await new Promise((resolve) => setTimeout(resolve, 20));
  if (heard.length !== CALLS) fail(`${heard.length} events for ${CALLS} calls`);
  if (goodbyes.length) fail(`goodbyes: ${goodbyes}`);
  console.log(`${CALLS} calls on one connection in ${seconds.toFixed(1)} s; its sibling heard of each once, and ${beats} heartbeats`);
  process.exit(0);
}

setTimeout(() => fail("not done in time"), 50_000).unref();
main().catch(fail);
