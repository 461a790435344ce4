// The same tool on the TypeScript SDK 1.x, over stdio. Started with the folder that its packages are in.
"use strict";

const load = require("node:module").createRequire(require("node:path").join(process.argv[2], "_"));
const { McpServer } = load("@modelcontextprotocol/sdk/server/mcp.js");
const { StdioServerTransport } = load("@modelcontextprotocol/sdk/server/stdio.js");
const { z } = load("zod");

const server = new McpServer({ name: "echo", version: "1" });
server.registerTool(
  "echo",
  { description: "In the loop.", inputSchema: { text: z.string() } },
  async ({ text }) => ({ content: [{ type: "text", text }] }),
);
server.connect(new StdioServerTransport());
