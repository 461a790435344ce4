// The TypeScript SDK 1.x as a player.
"use strict";

const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { SSEClientTransport } = require("@modelcontextprotocol/sdk/client/sse.js");
const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const types = require("@modelcontextprotocol/sdk/types.js");

const { Ears, ROOTS, perform, run } = require("./play.cjs");

run(async (_mode, where) => {
  const ears = new Ears();
  const capabilities = { sampling: { tools: {} }, elicitation: { form: {}, url: {} }, roots: {} };
  const client = new Client({ name: "player", version: "1" }, { capabilities });
  client.onerror = (error) => ears.troubles.push(error);
  client.setRequestHandler(types.CreateMessageRequestSchema, ({ params }) => ears.sampled(params));
  client.setRequestHandler(types.ElicitRequestSchema, ({ params }) => ears.elicited(params));
  client.setRequestHandler(types.ListRootsRequestSchema, () => ROOTS);
  client.setNotificationHandler(types.LoggingMessageNotificationSchema, ({ params }) => {
    ears.logs.push([params.level, params.logger, params.data]);
  });
  client.setNotificationHandler(types.ResourceUpdatedNotificationSchema, ({ params }) => {
    ears.updates.push(params.uri);
  });
  client.setNotificationHandler(types.ElicitationCompleteNotificationSchema, ({ params }) => {
    ears.done.push(params.elicitationId);
  });
  client.setNotificationHandler(types.ToolListChangedNotificationSchema, () => {
    ears.changes.push("tools");
  });
  const old = where instanceof URL && where.pathname === "/sse";
  const transport = old
    ? new SSEClientTransport(where)
    : where instanceof URL
      ? new StreamableHTTPClientTransport(where)
      : new StdioClientTransport(where);
  const player = {
    ears,
    hello: () => ({
      ...client.getServerVersion(),
      instructions: client.getInstructions(),
      protocol: old ? "2025-11-25" : transport.protocolVersion, // the old transport keeps it to itself
      capabilities: client.getServerCapabilities(),
    }),
    ping: () => client.ping(),
    tools: (cursor) => client.listTools({ cursor }),
    call: (name, given, onprogress, signal) =>
      client.callTool({ name, arguments: given }, undefined, { onprogress, signal }),
    resources: () => client.listResources(),
    templates: () => client.listResourceTemplates(),
    read: (uri) => client.readResource({ uri }),
    subscribe: (uri) => client.subscribeResource({ uri }),
    unsubscribe: (uri) => client.unsubscribeResource({ uri }),
    prompts: () => client.listPrompts(),
    prompt: (name, given) => client.getPrompt({ name, arguments: given }),
    complete: (name, argument, value) =>
      client.complete({ ref: { type: "ref/prompt", name }, argument: { name: argument, value } }),
    level: (level) => client.setLoggingLevel(level),
  };
  await client.connect(transport);
  try {
    return await perform(player);
  } finally {
    if (where instanceof URL && !old) await transport.terminateSession();
    await client.close();
  }
});
