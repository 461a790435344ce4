// The TypeScript SDK's own example of a server that wants tokens, with its authorization server beside it: `guarded.cjs PORT`.
"use strict";

const net = require("node:net");
const path = require("node:path");

process.on("SIGTERM", () => process.exit(0));
const free = net.createServer().listen(0, "127.0.0.1", () => {
  const port = free.address().port;
  free.close(() => {
    process.env.MCP_PORT = process.argv[2];
    process.env.MCP_AUTH_PORT = String(port);
    process.argv.push("--oauth", "--oauth-strict");
    const cjs = path.dirname(path.dirname(require.resolve("@modelcontextprotocol/sdk/client/index.js")));
    require(path.join(cjs, "examples", "server", "simpleStreamableHttp.js"));
  });
});
